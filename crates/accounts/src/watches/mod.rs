//! `watch.config`: the repositories whose events an account wants to hear of.
//!
//! ```text
//! [project "github.com/acme/infra"]
//!   notify = dir:prod/** owner:self [APPLIES, LOCKS]
//! ```

mod filter;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

pub use self::filter::{FilterField, FilterState, WatchFilter};
use crate::config_text::{ConfigEntry, ConfigText, KeyPath};
use crate::findings::Problem;
use crate::text::{shown, suggestion};

/// A `notify` value: a filter on changes, and the types of events to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Condition on the change. `None` matches every change.
    pub filter: Option<WatchFilter>,
    /// Types of events. None means silence.
    pub types: BTreeSet<NotifyType>,
}

/// Type of an event that a watch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotifyType {
    /// The server saw the change for the first time.
    NewChanges,
    /// The head of the change moved.
    NewPatchsets,
    /// The bot answered with a comment.
    AllComments,
    /// The change was merged.
    SubmittedChanges,
    /// The change was closed without a merge.
    AbandonedChanges,
    /// A plan ended, with or without success.
    Plans,
    /// An apply ended, with or without success.
    Applies,
    /// A lock was lost, handed over, or expired.
    Locks,
    /// A waiting change got its turn.
    Waits,
    /// Applies were stopped or allowed.
    ApplyLocks,
    /// The infrastructure no longer matches the code.
    Drift,
    /// Every type of event.
    All,
}

/// All watches of an account by project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watches {
    projects: BTreeMap<String, Vec<Watch>>,
}

const SECTION: &str = "project";
const NOTIFY: &str = "notify";

impl NotifyType {
    /// All types in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::NewChanges,
        Self::NewPatchsets,
        Self::AllComments,
        Self::SubmittedChanges,
        Self::AbandonedChanges,
        Self::Plans,
        Self::Applies,
        Self::Locks,
        Self::Waits,
        Self::ApplyLocks,
        Self::Drift,
        Self::All,
    ];

    /// Returns the word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NewChanges => "NEW_CHANGES",
            Self::NewPatchsets => "NEW_PATCHSETS",
            Self::AllComments => "ALL_COMMENTS",
            Self::SubmittedChanges => "SUBMITTED_CHANGES",
            Self::AbandonedChanges => "ABANDONED_CHANGES",
            Self::Plans => "PLANS",
            Self::Applies => "APPLIES",
            Self::Locks => "LOCKS",
            Self::Waits => "WAITS",
            Self::ApplyLocks => "APPLY_LOCKS",
            Self::Drift => "DRIFT",
            Self::All => "ALL",
        }
    }
}

impl FromStr for Watch {
    type Err = Problem;

    /// Parses a `notify` value. One without types is refused: an unquoted `#` or `;` has cut them off.
    fn from_str(value: &str) -> Result<Self, Problem> {
        let value = value.trim();
        let parts = value
            .strip_suffix(']')
            .and_then(|value| value.rsplit_once('['));
        let Some((filter, types)) = parts else {
            return Err(Problem::error(
                None,
                format!("`{}` has no types at its end", shown(value)),
                "write `<filter> [<types>]` such as `* [ALL]`, in double quotes if there is a `#` or `;`",
            ));
        };
        let filter = match filter.trim() {
            "" | "*" => None,
            filter => Some(filter.parse()?),
        };
        let words = types.split(',').map(str::trim);
        let words = words.filter(|_| !types.trim().is_empty());
        let types = words.map(|word| {
            let known = NotifyType::ALL
                .into_iter()
                .find(|known| known.as_str() == word);
            known.ok_or_else(|| {
                let what = format!("unknown type `{}`", shown(word));
                let words = NotifyType::ALL.map(NotifyType::as_str);
                Problem::error(None, what, suggestion(word, &words))
            })
        });
        Ok(Self {
            filter,
            types: types.collect::<Result<_, _>>()?,
        })
    }
}

impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.filter {
            None => f.write_str("*")?,
            Some(filter) => write!(f, "{filter}")?,
        }
        let types: Vec<&str> = self.types.iter().map(|word| word.as_str()).collect();
        write!(f, " [{}]", types.join(", "))
    }
}

impl Watches {
    /// Name of the file in a user branch.
    pub const FILE: &'static str = "watch.config";
    /// Maximum number of watches of an account.
    pub const MAX_WATCHES: usize = 500;

    /// Reads all valid watches, and lists the problems of the file.
    pub fn read(text: &ConfigText) -> (Self, Vec<Problem>) {
        let mut watches = Self::default();
        let mut problems = Vec::new();
        for entry in text.entries() {
            match read_entry(entry) {
                Ok((project, watch)) => {
                    let project = watches.projects.entry(project.to_owned());
                    project.or_default().push(watch);
                }
                Err(problem) => problems.push(problem),
            }
        }
        problems.extend(too_many(watches.len()).err());
        (watches, problems)
    }

    /// Returns the number of watches.
    pub fn len(&self) -> usize {
        self.projects.values().map(Vec::len).sum()
    }

    /// Returns true if there are no watches.
    pub fn is_empty(&self) -> bool {
        self.projects.is_empty()
    }

    /// Returns the watched projects with their watches.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[Watch])> {
        let projects = self.projects.iter();
        projects.map(|(project, watches)| (project.as_str(), watches.as_slice()))
    }

    /// Replaces the watches of a project in a file. Merges watches with equal filters, and leaves values alone whose
    /// meaning stays, and those that no reader understands.
    pub fn set_project(
        text: &mut ConfigText,
        project: &str,
        watches: &[Watch],
    ) -> Result<(), Problem> {
        if project.is_empty() {
            return Err(Problem::error(
                None,
                "the project has no name",
                "write its name",
            ));
        }
        let mut merged: Vec<Watch> = Vec::new();
        for watch in watches {
            match merged.iter_mut().find(|known| known.filter == watch.filter) {
                Some(known) => known.types.extend(&watch.types),
                None => merged.push(watch.clone()),
            }
        }
        let path = KeyPath::within(SECTION, project, NOTIFY);
        let old: Vec<(String, Watch)> = text
            .values(path)
            .filter_map(|entry| {
                let value = entry.value?;
                Some((value.to_owned(), value.parse().ok()?))
            })
            .collect();
        let values = merged.iter().map(|watch| {
            let same = old.iter().find(|(_, old)| old == watch);
            same.map_or_else(|| watch.to_string(), |(value, _)| value.clone())
        });
        let mut values: Vec<String> = values.collect();
        // A value without meaning stays behind the one that was before it.
        let mut place = 0;
        for value in text.values(path).filter_map(|entry| entry.value) {
            if value.parse::<Watch>().is_err() {
                values.insert(place, value.to_owned());
                place += 1;
            } else if let Some(at) = values.iter().position(|new| new == value) {
                place = place.max(at + 1);
            }
        }
        let values: Vec<&str> = values.iter().map(String::as_str).collect();

        let mut edited = text.clone();
        edited.set_values(path, &values)?;
        let mut rest = edited.entries();
        let is_empty =
            !rest.any(|entry| entry.section == SECTION && entry.subsection == Some(project));
        drop(rest);
        if is_empty {
            edited.remove_section(SECTION, Some(project))?;
        }
        let number = Self::read(&edited).0.len();
        if number > Self::read(text).0.len() {
            too_many(number)?;
        }
        *text = edited;
        Ok(())
    }
}

fn read_entry(entry: ConfigEntry<'_>) -> Result<(&str, Watch), Problem> {
    if entry.section != SECTION {
        return Err(entry.unknown_section(&[SECTION]));
    }
    let Some(project) = entry.subsection.filter(|project| !project.is_empty()) else {
        return Err(Problem::error(
            entry.line,
            "the watch names no project",
            "write `[project \"github.com/owner/name\"]` above it",
        ));
    };
    if !entry.key.eq_ignore_ascii_case(NOTIFY) {
        return Err(entry.unknown_key(&[NOTIFY]));
    }
    let watch = entry.text()?.parse().map_err(|problem| Problem {
        line: Some(entry.line),
        ..problem
    })?;
    Ok((project, watch))
}

fn too_many(number: usize) -> Result<(), Problem> {
    if number <= Watches::MAX_WATCHES {
        return Ok(());
    }
    let fix = format!("keep at most {}", Watches::MAX_WATCHES);
    let what = format!("there are {number} watches");
    Err(Problem::limit(number, what, fix))
}

#[cfg(test)]
mod tests;
