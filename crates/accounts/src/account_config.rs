//! `account.config`: the properties of an account.

use crate::config_text::{ConfigEntry, ConfigText, KeyPath};
use crate::email::AccountEmail;
use crate::external_ids::ExternalId;
use crate::findings::Problem;
use crate::text::shown;

/// Properties of an account. The file may leave out any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountConfig {
    /// Name of the person or service.
    pub full_name: Option<String>,
    /// Address for mails, as the file has it. It counts if it is on an external ID of the account.
    pub preferred_email: Option<AccountEmail>,
    /// Short note beside the name, such as `OOO`.
    pub status: Option<String>,
    /// False if the account is locked out.
    pub active: bool,
}

const FULL_NAME: KeyPath<'static> = key("fullName");
const PREFERRED_EMAIL: KeyPath<'static> = key("preferredEmail");
const STATUS: KeyPath<'static> = key("status");
const ACTIVE: KeyPath<'static> = key("active");

const fn key(key: &'static str) -> KeyPath<'static> {
    KeyPath {
        section: "account",
        subsection: None,
        key,
    }
}

impl AccountConfig {
    /// Name of the file in a user branch.
    pub const FILE: &'static str = "account.config";

    /// Reads the properties, and lists the problems of the file. A value that cannot be read counts as none. Only `active`
    /// must be readable: otherwise somebody who is locked out could be let in.
    pub fn read(text: &ConfigText) -> (Self, Vec<Problem>) {
        let mut problems = unknown_keys(text);
        let mut config = Self::default();
        let mut keep = |result: Result<(), Problem>| {
            problems.extend(result.err().map(Problem::into_unusable));
        };
        keep(read_line(text, FULL_NAME).map(|value| config.full_name = value));
        keep(read_line(text, STATUS).map(|value| config.status = value));
        keep(read_email(text).map(|value| config.preferred_email = value));
        match text.value(ACTIVE).map(|entry| entry.boolean()).transpose() {
            Ok(active) => config.active = active.unwrap_or(true),
            Err(problem) => problems.push(problem),
        }
        (config, problems)
    }

    /// Returns the line of the preferred address.
    pub(crate) fn preferred_email_line(text: &ConfigText) -> Option<usize> {
        text.value(PREFERRED_EMAIL).map(|entry| entry.line)
    }

    /// Returns the line of `active`.
    pub fn active_line(text: &ConfigText) -> Option<usize> {
        text.value(ACTIVE).map(|entry| entry.line)
    }

    /// Returns the preferred address, if it is on one of these external IDs of the account. On none, it has no effect: it may
    /// be somebody else's.
    pub fn own_email<'a>(
        &self,
        external_ids: impl IntoIterator<Item = &'a ExternalId>,
    ) -> Option<&AccountEmail> {
        let preferred = self.preferred_email.as_ref()?;
        let mut emails = external_ids.into_iter().filter_map(|id| id.email.as_ref());
        emails
            .any(|email| email.key() == preferred.key())
            .then_some(preferred)
    }

    /// Writes the properties that differ from the text. `active` is left out when it is true.
    pub fn write(&self, text: &mut ConfigText) -> Result<(), Problem> {
        let (old, _) = Self::read(text);
        let mut edited = text.clone();
        let mut put = |path, old: Option<&str>, new: Option<&str>| match new {
            _ if old == new => Ok(()),
            Some(value) => check_line(None, path, value).and_then(|()| edited.set(path, value)),
            None => edited.unset(path),
        };
        let email = |config: &Self| config.preferred_email.as_ref().map(ToString::to_string);
        put(
            FULL_NAME,
            old.full_name.as_deref(),
            self.full_name.as_deref(),
        )?;
        put(
            PREFERRED_EMAIL,
            email(&old).as_deref(),
            email(self).as_deref(),
        )?;
        put(STATUS, old.status.as_deref(), self.status.as_deref())?;
        let active = |active: bool| (!active).then_some("false");
        put(ACTIVE, active(old.active), active(self.active))?;
        *text = edited;
        Ok(())
    }
}

impl Default for AccountConfig {
    fn default() -> Self {
        Self {
            full_name: None,
            preferred_email: None,
            status: None,
            active: true,
        }
    }
}

fn unknown_keys(text: &ConfigText) -> Vec<Problem> {
    let known = [FULL_NAME, PREFERRED_EMAIL, STATUS, ACTIVE];
    let unknown = text
        .entries()
        .filter(|entry| !known.iter().any(|path| entry.is(*path)));
    let problem = |entry: ConfigEntry<'_>| {
        if entry.section == "account" && entry.subsection.is_none() {
            entry.unknown_key(&known.map(|path| path.key))
        } else {
            entry.unknown_section(&["account"])
        }
    };
    unknown.map(problem).collect()
}

/// Reads a value that is shown in one line. An empty one counts as none.
fn read_line(text: &ConfigText, path: KeyPath<'_>) -> Result<Option<String>, Problem> {
    let Some(entry) = text.value(path) else {
        return Ok(None);
    };
    let value = entry.text()?;
    check_line(Some(entry.line), path, value)?;
    Ok(Some(value.to_owned()).filter(|value| !value.is_empty()))
}

fn read_email(text: &ConfigText) -> Result<Option<AccountEmail>, Problem> {
    let Some(entry) = text.value(PREFERRED_EMAIL) else {
        return Ok(None);
    };
    let value = entry.text()?;
    value.parse().map(Some).map_err(|error| {
        Problem::error(
            entry.line,
            format!("`{}`: `{}` is {error}", PREFERRED_EMAIL.key, shown(value)),
            "write an address of one of your external IDs, or remove the line",
        )
    })
}

/// Checks a text that becomes part of commits and pages.
fn check_line(line: Option<usize>, path: KeyPath<'_>, value: &str) -> Result<(), Problem> {
    const MAX_CHARS: usize = 250;
    if value.contains(char::is_control) {
        let what = format!("`{}` has control characters", path.key);
        return Err(Problem::error(
            line,
            what,
            "write it in one line without them",
        ));
    }
    if value.chars().count() > MAX_CHARS {
        let what = format!("`{}` is too long", path.key);
        return Err(Problem::error(
            line,
            what,
            format!("use at most {MAX_CHARS} characters"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    fn read(text: &str) -> (AccountConfig, Vec<String>) {
        let (config, problems) = AccountConfig::read(&ConfigText::parse(text.as_bytes()).unwrap());
        (config, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn properties_are_read() {
        let text = "[account]\n\tfullName = John Doe\n  preferredemail = john.doe@example.com\n  status = OOO\nactive = false\n";
        let (config, problems) = read(text);
        assert_eq!(problems, [""; 0]);
        assert_eq!(config.full_name.as_deref(), Some("John Doe"));
        assert_eq!(
            config.preferred_email.unwrap().as_str(),
            "john.doe@example.com"
        );
        assert_eq!(config.status.as_deref(), Some("OOO"));
        assert!(!config.active);
        assert_eq!(read(""), (AccountConfig::default(), vec![]));
        assert_eq!(
            read("[account]\nfullName=\nactive=yes\n").0,
            AccountConfig::default()
        );
    }

    #[test]
    fn problems_have_lines_and_ways_out() {
        let long = format!("status = {}\n", "x".repeat(251));
        let text = format!(
            "x = 1\n[account]\nfulName = J\nfullName\npreferredEmail = john\n{long}active = maybe\n[acount]\na=1\n[account \"x\"]\na=1\n"
        );
        assert_eq!(
            read(&text).1,
            [
                "line 1: `x` is in no section; use one of `account`",
                "line 3: unknown key `fulName`; did you mean `fullName`?",
                "line 9: unknown section `acount`; did you mean `account`?",
                "line 11: unknown subsection `account.x`; write `[account]`",
                "line 4: `fullName` has no value; write `fullName = value`, or remove the line",
                "line 6: `status` is too long; use at most 250 characters",
                "line 5: `preferredEmail`: `john` is not an e-mail address such as `john@example.com`; \
                 write an address of one of your external IDs, or remove the line",
                "line 7: `active`: `maybe` is not a boolean; write `true` or `false`",
            ]
        );
        assert_eq!(
            read("[account]\nfullName = \"a\\nb\"\n").1,
            ["line 2: `fullName` has control characters; write it in one line without them"]
        );
    }

    #[test]
    fn only_what_differs_is_written() {
        let before = "# me\n[account]\n  fullName = J # name\n  active = true\n  other = 1\n";
        let mut text = ConfigText::parse(before.as_bytes()).unwrap();
        let (mut config, _) = AccountConfig::read(&text);
        config.write(&mut text).unwrap();
        assert_eq!(text.as_str(), before);
        config.active = false;
        config.full_name = None;
        config.status = Some("away".to_owned());
        config.write(&mut text).unwrap();
        assert_eq!(
            text.as_str(),
            "# me\n[account]\n  active = false\n  other = 1\n  status = away\n"
        );
        config.active = true;
        config.write(&mut text).unwrap();
        assert_eq!(
            text.as_str(),
            "# me\n[account]\n  other = 1\n  status = away\n"
        );
        config.full_name = Some("a\nb".to_owned());
        assert!(config.write(&mut text).is_err());
    }

    fn properties() -> impl Strategy<Value = AccountConfig> {
        let line = || proptest::option::of("[a \"#;\\\\é]{1,8}");
        let email = proptest::option::of("[a-c]{1,3}@[a-c]{1,3}\\.de");
        (line(), email, line(), any::<bool>()).prop_map(|(full_name, email, status, active)| {
            AccountConfig {
                full_name,
                preferred_email: email.map(|email| email.parse().unwrap()),
                status,
                active,
            }
        })
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn what_was_written_is_read(first in properties(), second in properties()) {
            let mut text = ConfigText::parse(b"[Account] # mine\n\tother = 1\n").unwrap();
            for config in [first, second] {
                config.write(&mut text).unwrap();
                prop_assert_eq!(&AccountConfig::read(&text).0, &config);
                prop_assert!(text.as_str().contains("# mine\n\tother = 1\n"));
            }
        }
    }
}
