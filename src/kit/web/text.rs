//! Formats times, names and states for people.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::Serialize;
use url::Url;

use crate::model::{CommandOutcome, ProjectOutcome, PullRef, minute};
use crate::render::escape::push_visible;
use crate::store::{CommandState, RunState};

/// Formats a time for programs, as precisely as it is stored.
pub(crate) fn rfc3339(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Returns a number of seconds with its unit.
pub(crate) fn seconds_text(seconds: i64) -> String {
    let unit = if seconds == 1 { "second" } else { "seconds" };
    format!("{seconds} {unit}")
}

/// Maximum number of characters of a foreign text on a page.
const SHOWN_CHARS: usize = 500;

/// A past time: for machines, exact for people, and as an age.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PastTime {
    iso: String,
    exact: String,
    minute: String,
    ago: String,
}

impl PastTime {
    /// Formats `at` as seen from `now`.
    pub fn new(at: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        Self {
            iso: at.to_rfc3339_opts(SecondsFormat::Secs, true),
            exact: at.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
            minute: minute(at),
            ago: ago(now - at),
        }
    }
}

/// A future time: for machines, exact for people, and as the time until then.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FutureTime {
    iso: String,
    minute: String,
    ahead: String,
}

impl FutureTime {
    /// Formats `at` as seen from `now`.
    pub fn new(at: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        let iso = at.to_rfc3339_opts(SecondsFormat::Secs, true);
        Self {
            iso,
            minute: minute(at),
            ahead: ahead(at - now),
        }
    }
}

fn ahead(time: TimeDelta) -> String {
    match time.num_seconds() {
        ..60 => "in less than a minute".to_owned(),
        seconds @ 60..3600 => format!("in {} min", seconds / 60),
        seconds @ 3600..172_800 => format!("in {} h", seconds / 3600),
        seconds => format!("in {} days", seconds / 86400),
    }
}

fn ago(age: TimeDelta) -> String {
    match age.num_seconds() {
        ..5 => "just now".to_owned(),
        seconds @ 5..60 => format!("{seconds} s ago"),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86400),
    }
}

/// Formats a length of time: `1 h 2 min`, `3 min 4 s`, `5 s`.
pub(crate) fn duration(length: TimeDelta) -> String {
    let seconds = length.num_seconds().max(0);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, min, s) => format!("{min} min {s} s"),
        (h, min, _) => format!("{h} h {min} min"),
    }
}

/// Formats a number of bytes: `1.5 MiB`, `700 KiB`, `381 bytes`.
#[expect(
    clippy::cast_precision_loss,
    reason = "one digit after the point is shown"
)]
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let (mut rest, mut unit) = (bytes as f64 / 1024.0, 0);
    while rest >= 1023.5 && unit + 1 < UNITS.len() {
        (rest, unit) = (rest / 1024.0, unit + 1);
    }
    let digits = usize::from(unit > 0 && rest < 99.95);
    format!("{rest:.digits$} {}", UNITS[unit])
}

/// Formats the part of a link after the `?`. Empty values are left out.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, text) in pairs.iter().filter(|(_, text)| !text.is_empty()) {
        query.append_pair(name, text);
    }
    query.finish()
}

/// Makes a foreign text harmless to read: limited in length, without characters that hide, overwrite or reorder the
/// text around it. The templates escape it.
pub(crate) fn shown(text: &str) -> String {
    let mut short = String::new();
    let mut chars = text.chars();
    for c in chars.by_ref().take(SHOWN_CHARS) {
        push_visible(&mut short, c);
    }
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

/// Returns a link to a page of a forge, if the text is one. `javascript:` and similar schemes are not.
pub(crate) fn web_link(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    matches!(url.scheme(), "https" | "http").then(|| url.to_string())
}

/// Name of a pull request or an application on pages.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PullName {
    /// `acme/infra`
    pub repo: String,
    /// `github.com`
    pub host: String,
    pub number: i64,
    /// `#12`, `application network (branch main)`
    pub short: String,
    /// `pull request #12`, `application network (branch main)`
    pub called: String,
    /// True for an application, which the forge does not know.
    pub is_application: bool,
    /// Page of the pull request on the forge, or page of the application.
    pub link: Option<String>,
}

impl PullName {
    /// Creates a name with a link. `url` comes from the forge and is not trusted.
    pub fn new(pull: &PullRef, url: &str) -> Self {
        Self {
            link: web_link(url),
            ..Self::without_link(pull)
        }
    }

    /// Creates a name with a link. An application is shown with its title.
    pub fn titled(pull: &PullRef, url: &str, title: Option<&str>) -> Self {
        let title = title.map(shown);
        let (short, called) = (
            pull.subject.short_name(title.as_deref()),
            pull.subject.display_name(title.as_deref()),
        );
        Self {
            short,
            called,
            ..Self::new(pull, url)
        }
    }

    /// Creates a name without a link, where only the reference is stored.
    pub fn without_link(pull: &PullRef) -> Self {
        Self {
            repo: shown(pull.repo.full_name()),
            host: pull.repo.host().to_string(),
            number: pull.subject.stored(),
            short: pull.subject.short_name(None),
            called: pull.subject.display_name(None),
            is_application: pull.subject.is_application(),
            link: None,
        }
    }
}

/// A state as a word and a colour. The word alone is sufficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Badge {
    tone: &'static str,
    text: &'static str,
}

impl Badge {
    /// Creates a badge in a tone that the style sheet knows.
    pub const fn new(tone: &'static str, text: &'static str) -> Self {
        Self { tone, text }
    }

    /// Returns the badge of a run.
    pub fn of_run(state: RunState, outcome: Option<ProjectOutcome>) -> Self {
        match (state, outcome) {
            (RunState::Queued, _) => Self::new("idle", "waiting"),
            (RunState::Running, _) => Self::new("busy", "running"),
            (RunState::Finished, Some(outcome)) => Self::of_project(outcome),
            (RunState::Finished, None) => Self::new("idle", "ended"),
        }
    }

    /// Returns the badge of a hook.
    pub fn of_hook(state: RunState, outcome: Option<ProjectOutcome>) -> Self {
        match (state, outcome) {
            (RunState::Finished, Some(outcome)) if outcome.is_success() => {
                Self::new("good", "succeeded")
            }
            (RunState::Queued | RunState::Running | RunState::Finished, outcome) => {
                Self::of_run(state, outcome)
            }
        }
    }

    /// Returns the badge of a command.
    pub fn of_command(state: CommandState, outcome: Option<CommandOutcome>) -> Self {
        match (state, outcome) {
            (CommandState::Queued, _) | (CommandState::Finished, Some(CommandOutcome::Waiting)) => {
                Self::new("idle", "waiting")
            }
            (CommandState::Running, _) => Self::new("busy", "running"),
            (CommandState::Finished, Some(CommandOutcome::Success)) => Self::new("good", "success"),
            (CommandState::Finished, Some(CommandOutcome::Partial)) => {
                Self::new("warn", "partly failed")
            }
            (CommandState::Finished, Some(CommandOutcome::Failure)) => Self::new("bad", "failed"),
            (CommandState::Finished, Some(CommandOutcome::Refused)) => Self::new("warn", "refused"),
            (CommandState::Finished, None) => Self::new("idle", "ended"),
        }
    }

    fn of_project(outcome: ProjectOutcome) -> Self {
        match outcome {
            ProjectOutcome::Planned => Self::new("good", "planned"),
            ProjectOutcome::NoChanges => Self::new("good", "no changes"),
            ProjectOutcome::Applied => Self::new("good", "applied"),
            ProjectOutcome::UpToDate => Self::new("good", "up to date"),
            ProjectOutcome::Imported => Self::new("good", "imported"),
            ProjectOutcome::StateRemoved => Self::new("good", "state removed"),
            ProjectOutcome::Told => Self::new("good", "done"),
            ProjectOutcome::Discarded => Self::new("idle", "discarded"),
            ProjectOutcome::Waiting => Self::new("idle", "waiting"),
            ProjectOutcome::Locked => Self::new("warn", "locked by another"),
            ProjectOutcome::Refused => Self::new("warn", "refused"),
            ProjectOutcome::Failed => Self::new("bad", "failed"),
            ProjectOutcome::Cancelled => Self::new("idle", "cancelled"),
            ProjectOutcome::Skipped => Self::new("idle", "skipped"),
            ProjectOutcome::PolicyPassed => Self::new("good", "policies passed"),
            ProjectOutcome::PolicyPending => Self::new("warn", "policies do not pass yet"),
            ProjectOutcome::PolicyFailed => Self::new("bad", "policies did not pass"),
        }
    }
}

/// Words of a search: all must occur, anywhere, without regard to case.
#[derive(Clone, Debug)]
pub(crate) struct SearchWords(Vec<String>);

impl SearchWords {
    /// Reads a query. Only its first 200 characters count.
    pub fn new(query: &str) -> Self {
        let query: String = query.chars().take(200).collect();
        Self(query.split_whitespace().map(str::to_lowercase).collect())
    }

    /// Returns true if there is no word, so that everything is found.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if every word occurs in one of the fields.
    pub fn finds(&self, fields: &[&str]) -> bool {
        let text = fields.join("\n").to_lowercase();
        self.0.iter().all(|word| text.contains(word.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        let cases = [
            (0, "0 bytes"),
            (381, "381 bytes"),
            (1 << 10, "1 KiB"),
            (700 << 10, "700 KiB"),
            (1536 << 10, "1.5 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (300 << 30, "300 GiB"),
            (u64::MAX, "16777216 TiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn ages_and_durations_are_rounded_down() {
        for (seconds, text) in [
            (-3, "just now"),
            (4, "just now"),
            (59, "59 s ago"),
            (60, "1 min ago"),
            (3599, "59 min ago"),
            (172_799, "47 h ago"),
            (172_800, "2 days ago"),
        ] {
            assert_eq!(ago(TimeDelta::seconds(seconds)), text);
        }
        for (seconds, text) in [
            (59, "in less than a minute"),
            (60, "in 1 min"),
            (172_799, "in 47 h"),
            (172_800, "in 2 days"),
        ] {
            assert_eq!(ahead(TimeDelta::seconds(seconds)), text);
        }
        for (seconds, text) in [
            (-1, "0 s"),
            (59, "59 s"),
            (61, "1 min 1 s"),
            (3600, "1 h 0 min"),
        ] {
            assert_eq!(duration(TimeDelta::seconds(seconds)), text);
        }
    }

    #[test]
    fn only_pages_of_the_web_become_links() {
        for text in [
            "javascript:alert(1)",
            "JAVASCRIPT:alert(1)",
            "data:text/html,x",
            "//h/x",
            "/x",
            "",
            " \tjavascript:x",
        ] {
            assert_eq!(web_link(text), None, "{text:?}");
        }
        assert_eq!(
            web_link("https://h/a?b=\"'<"),
            Some("https://h/a?b=%22%27%3C".to_owned())
        );
    }

    #[test]
    fn texts_cannot_hide_or_reorder_what_stands_around_them() {
        assert_eq!(
            shown("a\u{202e}b\u{1b}c\u{200b}d"),
            "a[U+202E]b\u{fffd}c[U+200B]d"
        );
        assert_eq!(shown(&"é".repeat(501)).chars().count(), 501);
        assert!(shown(&"é".repeat(501)).ends_with('…'));
        assert_eq!(shown("plain — ünï"), "plain — ünï");
    }

    #[test]
    fn a_search_wants_every_word_somewhere() {
        let search = SearchWords::new(" NET  acme ");
        assert!(search.finds(&["github.com/acme/infra", "infra/net"]));
        assert!(!search.finds(&["github.com/acme/infra", "infra/db"]));
        assert!(SearchWords::new(" ").finds(&["anything"]));
    }
}
