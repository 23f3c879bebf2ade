//! Decides from its first word whether a comment addresses the bot, or was probably meant to.

use super::spec::CommandName;
use super::suggest::{distance, nearest};

/// Word that always addresses the bot, under any configured name (reference 1.1, step 4).
const RUN: &str = "run";
/// Tools that people name when they mean the bot.
const TOOLS: [&str; 2] = ["terraform", "tofu"];
/// Names for which a near miss is answered. A name that the administrator chose may be close to that of another bot.
const DEFAULT_NAMES: [&str; 2] = ["lockkeeper", "atlantis"];
/// Suffix that GitHub appends to the login of an App. A mention does not include it.
const APP_SUFFIX: &str = "[bot]";
/// Stands for the usual name.
const NO_NAMES: &[&str] = &[];

/// Words that the bot answers to, compared without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotNames {
    names: Vec<String>,
    logins: Vec<String>,
}

/// Relation of the first word of a comment to the bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// The word is the bot's name or mention.
    Name,
    /// The word is `run`, which is also a word of everyday language.
    Everyday,
    /// The word is the name of a tool or a misspelling of the bot's name.
    Mistaken,
    /// The word has no relation to the bot.
    Stranger,
}

impl Default for BotNames {
    fn default() -> Self {
        Self::new(NO_NAMES, None)
    }
}

impl BotNames {
    /// Takes the executable names and the bot's logins on the forges. Replies show the first name; an empty list means
    /// `lockkeeper`. The list is complete: a server with another name leaves `lockkeeper` out, so that two servers
    /// can share a repository.
    pub fn new<'a, S: AsRef<str>>(names: &[S], logins: impl IntoIterator<Item = &'a str>) -> Self {
        let mut kept: Vec<String> = Vec::new();
        for name in names
            .iter()
            .map(|name| name.as_ref().trim())
            .filter(|name| !name.is_empty())
        {
            if !kept.iter().any(|other| same(other, name)) {
                kept.push(name.to_owned());
            }
        }
        if kept.is_empty() {
            kept.push(DEFAULT_NAMES[0].to_owned());
        }
        let logins = logins
            .into_iter()
            .map(|login| login.trim().trim_start_matches('@').to_owned())
            .filter(|login| !login.is_empty());
        Self {
            names: kept,
            logins: logins.collect(),
        }
    }

    /// Returns the name that replies show.
    pub fn primary(&self) -> &str {
        &self.names[0]
    }

    /// Returns true if the login is the bot's own. `name[bot]` is an App, another account than the person `name`. A
    /// bot that is configured with the bare name of its App is recognised nevertheless.
    pub fn is_own(&self, author: &str) -> bool {
        self.logins
            .iter()
            .any(|login| same(author, login) || same(author, &format!("{login}{APP_SUFFIX}")))
    }

    /// Classifies the first word of a comment.
    pub(super) fn address(&self, word: &str) -> Address {
        if self.names.iter().any(|name| same(name, word)) || self.is_mention(word) {
            Address::Name
        } else if same(word, RUN) {
            Address::Everyday
        } else if TOOLS.iter().any(|tool| same(tool, word)) || self.is_near_miss(word) {
            Address::Mistaken
        } else {
            Address::Stranger
        }
    }

    fn is_mention(&self, word: &str) -> bool {
        let Some(mentioned) = word.strip_prefix('@') else {
            return false;
        };
        self.logins.iter().any(|login| {
            same(mentioned, login)
                || same(mentioned, login.strip_suffix(APP_SUFFIX).unwrap_or(login))
        })
    }

    fn is_near_miss(&self, word: &str) -> bool {
        let defaults = DEFAULT_NAMES
            .iter()
            .filter(|name| self.names.iter().any(|own| same(own, name)));
        defaults
            .filter_map(|name| distance(word, name))
            .any(|steps| steps <= 2)
    }
}

/// Returns true if the word after an everyday or mistaken first word looks like a command: no word, a flag for help,
/// or the name of a command, perhaps misspelled. Otherwise the bot would answer people who write "run the tests".
pub(super) fn reads_like_a_command(next: Option<&str>) -> bool {
    let known = CommandName::ALL.iter().map(|name| name.as_str());
    next.is_none_or(|next| matches!(next, "-h" | "--help") || nearest(next, known).is_some())
}

fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || a.to_lowercase() == b.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_mentions_are_compared_without_case() {
        let names = BotNames::new(&["Infra-Bot", "LockKeeper"], Some("Acme-CI"));
        for word in [
            "infra-bot",
            "INFRA-BOT",
            "lockkeeper",
            "@acme-ci",
            "@ACME-ci",
        ] {
            assert_eq!(names.address(word), Address::Name, "{word}");
        }
        assert_eq!(names.address("RUN"), Address::Everyday);
        for word in ["acme-ci", "@acme", "@", "@@acme-ci", "infra"] {
            assert_eq!(names.address(word), Address::Stranger, "{word}");
        }
    }

    #[test]
    fn an_app_is_mentioned_without_its_suffix() {
        let names = BotNames::new(NO_NAMES, Some("keeper-app[bot]"));
        assert_eq!(names.address("@Keeper-App"), Address::Name);
        assert_eq!(names.address("@keeper-app[bot]"), Address::Name);
        assert_eq!(BotNames::default().address("@"), Address::Stranger);
    }

    #[test]
    fn the_bot_knows_itself() {
        let app = BotNames::new(NO_NAMES, Some("Keeper[bot]"));
        assert!(app.is_own("keeper[bot]"));
        assert!(
            !app.is_own("keeper"),
            "a person may be called as the App is"
        );
        let user = BotNames::new(NO_NAMES, Some("keeper"));
        assert!(user.is_own("KEEPER") && user.is_own("keeper[bot]"));
        assert!(!user.is_own("somebody") && !BotNames::default().is_own(""));
    }

    #[test]
    fn near_misses_of_the_default_name_are_noticed() {
        let names = BotNames::default();
        for word in [
            "lockeeper",
            "LOCKKEEPR",
            "lokckeeper",
            "lock-keeper",
            "terraform",
            "Tofu",
        ] {
            assert_eq!(names.address(word), Address::Mistaken, "{word}");
        }
        assert_eq!(names.address("gatekeeper"), Address::Stranger);
        assert_eq!(names.address("atlantis"), Address::Stranger);
    }

    #[test]
    fn chosen_names_have_no_near_miss_and_may_be_a_tool() {
        let names = BotNames::new(&["keeper-sec", "tofu"], None);
        assert_eq!(names.address("keeper-dev"), Address::Stranger);
        assert_eq!(names.address("lockkeepr"), Address::Stranger);
        assert_eq!(names.address("tofu"), Address::Name);
    }

    #[test]
    fn everyday_language_is_no_command() {
        assert!(!reads_like_a_command(Some("the")));
        assert!(reads_like_a_command(Some("plan")) && reads_like_a_command(Some("aplly")));
        assert!(reads_like_a_command(None) && reads_like_a_command(Some("--help")));
    }
}
