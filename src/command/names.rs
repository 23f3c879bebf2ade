//! Whom a comment speaks to: the words that mean the bot, and words that were probably meant to.

use super::spec::CommandName;
use super::suggest::{distance, nearest};

/// The word that always stands for the bot, whatever it is called (reference 1.1, step 4).
const RUN: &str = "run";
/// Tools that people name when they mean the bot that runs them.
const TOOLS: [&str; 2] = ["terraform", "tofu"];
/// Names for which a near miss is answered. A name chosen by the operator may be close to another bot's.
const DEFAULT_NAMES: [&str; 2] = ["lockkeeper", "atlantis"];
/// What GitHub appends to the login of an App. It is no part of a mention.
const APP_SUFFIX: &str = "[bot]";

/// The words that the bot answers to, compared without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    names: Vec<String>,
    login: Option<String>,
}

/// How the first word of a comment relates to the bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// It is the bot's name or mention.
    Name,
    /// It is `run`, which is also a word of everyday language.
    Everyday,
    /// It is a tool's name or a misspelling of the bot's.
    Mistaken,
    /// It is anything else.
    Stranger,
}

impl Default for Names {
    fn default() -> Self {
        Self::new::<&str>(&[], None)
    }
}

impl Names {
    /// The executable names, the first being the one that replies show (none at all: `lockkeeper`), and the
    /// bot's login on the forge. The list is complete: a server that is called otherwise leaves `lockkeeper`
    /// out, so that two servers can share a repository.
    pub fn new<S: AsRef<str>>(names: &[S], login: Option<&str>) -> Self {
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
        let login = login
            .map(|login| login.trim().trim_start_matches('@').to_owned())
            .filter(|login| !login.is_empty());
        Self { names: kept, login }
    }

    /// The name that replies show.
    pub fn primary(&self) -> &str {
        &self.names[0]
    }

    /// Whether the login is the bot's own. `name[bot]` is an App, another account than the person `name`; a bot
    /// configured by the bare name of its App is recognised nevertheless.
    pub fn is_own(&self, author: &str) -> bool {
        self.login.as_ref().is_some_and(|login| {
            same(author, login) || same(author, &format!("{login}{APP_SUFFIX}"))
        })
    }

    /// What the first word of a comment means.
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
        let (Some(login), Some(mentioned)) = (&self.login, word.strip_prefix('@')) else {
            return false;
        };
        same(mentioned, login) || same(mentioned, login.strip_suffix(APP_SUFFIX).unwrap_or(login))
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

/// Whether what follows an everyday or mistaken first word looks like a command: nothing, a flag for help, or a
/// command's name, perhaps misspelled. Otherwise people who write "run the tests" would be answered.
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
        let names = Names::new(&["Infra-Bot", "LockKeeper"], Some("Acme-CI"));
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
        let names = Names::new::<&str>(&[], Some("keeper-app[bot]"));
        assert_eq!(names.address("@Keeper-App"), Address::Name);
        assert_eq!(names.address("@keeper-app[bot]"), Address::Name);
        assert_eq!(Names::default().address("@"), Address::Stranger);
    }

    #[test]
    fn the_bot_knows_itself() {
        let app = Names::new::<&str>(&[], Some("Keeper[bot]"));
        assert!(app.is_own("keeper[bot]"));
        assert!(
            !app.is_own("keeper"),
            "a person may be called as the App is"
        );
        let user = Names::new::<&str>(&[], Some("keeper"));
        assert!(user.is_own("KEEPER") && user.is_own("keeper[bot]"));
        assert!(!user.is_own("somebody") && !Names::default().is_own(""));
    }

    #[test]
    fn near_misses_of_the_default_name_are_noticed() {
        let names = Names::default();
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
        let names = Names::new(&["keeper-sec", "tofu"], None);
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
