//! `preferences.config`: how pages, mails and text fields look for an account. All preferences are rows of [`TABLE`].

use std::collections::BTreeMap;

use crate::config_text::{ConfigEntry, ConfigText, KeyPath};
use crate::findings::Problem;
use crate::text::{quoted, shown, suggestion};

/// One of the sections of `preferences.config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreferenceSection {
    /// Preferences of pages and mails.
    General,
    /// Preferences of plans and outputs of commands.
    Diff,
    /// Preferences of the text fields in which the files of the account are changed.
    Edit,
}

/// Values that a preference can have, with the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreferenceKind {
    /// True or false, with the default.
    Boolean(bool),
    /// Integer between two limits.
    Integer {
        /// Value of accounts that have none.
        default: i64,
        /// Smallest value that is accepted. A negative one is the only negative value, and has a meaning of its own.
        min: i64,
        /// Largest value that is accepted.
        max: i64,
    },
    /// Word of a list, whose first word is the default.
    Choice(&'static [&'static str]),
    /// Name of a time zone, such as `Europe/Berlin`.
    TimeZone,
}

/// A row of the table of preferences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference {
    /// Section of the file.
    pub section: PreferenceSection,
    /// Name of the key in the file, such as `changesPerPage`.
    pub name: &'static str,
    /// Accepted values and the default.
    pub kind: PreferenceKind,
}

/// Value of a preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreferenceValue {
    /// Value of a [`PreferenceKind::Boolean`].
    Boolean(bool),
    /// Value of a [`PreferenceKind::Integer`].
    Integer(i64),
    /// Value of a [`PreferenceKind::Choice`] or a [`PreferenceKind::TimeZone`].
    Text(String),
}

/// Preferences that a file sets. All others have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    values: BTreeMap<(PreferenceSection, &'static str), PreferenceValue>,
}

/// All preferences in the order in which pages show them.
pub const TABLE: &[Preference] = {
    use PreferenceKind::{Boolean, Choice, TimeZone};
    use PreferenceSection::{Diff, Edit, General};
    &[
        row(General, "showSiteHeader", Boolean(true)),
        row(General, "theme", Choice(&["AUTO", "LIGHT", "DARK"])),
        row(General, "timeZone", TimeZone),
        row(
            General,
            "dateFormat",
            Choice(&["STD", "US", "ISO", "EURO", "UK"]),
        ),
        row(General, "timeFormat", Choice(&["HHMM_12", "HHMM_24"])),
        row(General, "changesPerPage", integer(25, 10, 100)),
        row(
            General,
            "emailStrategy",
            Choice(&[
                "ENABLED",
                "CC_ON_OWN_COMMENTS",
                "ATTENTION_SET_ONLY",
                "DISABLED",
            ]),
        ),
        row(
            General,
            "emailFormat",
            Choice(&["HTML_PLAINTEXT", "PLAINTEXT"]),
        ),
        // The value -1 stands for the whole file.
        row(Diff, "context", integer(10, -1, 1000)),
        row(Diff, "lineLength", integer(100, 1, 1000)),
        row(Diff, "tabSize", integer(8, 1, 100)),
        row(Diff, "fontSize", integer(12, 1, 100)),
        row(Diff, "showTabs", Boolean(true)),
        row(Diff, "lineWrapping", Boolean(false)),
        row(
            Diff,
            "ignoreWhitespace",
            Choice(&[
                "IGNORE_NONE",
                "IGNORE_TRAILING",
                "IGNORE_LEADING_AND_TRAILING",
                "IGNORE_ALL",
            ]),
        ),
        row(Diff, "hideTopMenu", Boolean(false)),
        row(Diff, "manualReview", Boolean(false)),
        row(Edit, "lineLength", integer(100, 1, 1000)),
        row(Edit, "tabSize", integer(8, 1, 100)),
        row(Edit, "indentWithTabs", Boolean(false)),
        row(Edit, "lineWrapping", Boolean(false)),
        row(Edit, "hideLineNumbers", Boolean(false)),
        row(Edit, "hideTopMenu", Boolean(false)),
    ]
};

/// Time zone of accounts that have none.
const DEFAULT_TIME_ZONE: &str = "UTC";

const fn row(section: PreferenceSection, name: &'static str, kind: PreferenceKind) -> Preference {
    Preference {
        section,
        name,
        kind,
    }
}

const fn integer(default: i64, min: i64, max: i64) -> PreferenceKind {
    PreferenceKind::Integer { default, min, max }
}

impl PreferenceSection {
    /// All sections in the order of the table.
    pub const ALL: [Self; 3] = [Self::General, Self::Diff, Self::Edit];

    /// Returns the name of the section in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Diff => "diff",
            Self::Edit => "edit",
        }
    }
}

impl Preference {
    /// Finds a row by its section and its name in the file, without case.
    pub fn find(section: PreferenceSection, name: &str) -> Option<&'static Self> {
        TABLE
            .iter()
            .find(|row| row.section == section && row.name.eq_ignore_ascii_case(name))
    }

    /// Returns the name of the preference in the API, such as `changes_per_page`.
    pub fn api_name(&self) -> String {
        let mut name = String::new();
        for c in self.name.chars() {
            if c.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    }

    /// Returns the value of accounts that have none, where the server sets no other.
    pub fn default_value(&self) -> PreferenceValue {
        match self.kind {
            PreferenceKind::Boolean(default) => PreferenceValue::Boolean(default),
            PreferenceKind::Integer { default, .. } => PreferenceValue::Integer(default),
            PreferenceKind::Choice(words) => {
                PreferenceValue::Text(words.first().copied().unwrap_or_default().to_owned())
            }
            PreferenceKind::TimeZone => PreferenceValue::Text(DEFAULT_TIME_ZONE.to_owned()),
        }
    }

    fn path(&self) -> KeyPath<'static> {
        KeyPath::new(self.section.as_str(), self.name)
    }

    /// Reads the value of an entry in a file.
    fn read(&self, entry: ConfigEntry<'_>) -> Result<PreferenceValue, Problem> {
        let value = match self.kind {
            PreferenceKind::Boolean(_) => PreferenceValue::Boolean(entry.boolean()?),
            PreferenceKind::Integer { min, .. }
                if min < 0 && entry.value == Some(min.to_string().as_str()) =>
            {
                PreferenceValue::Integer(min)
            }
            PreferenceKind::Integer { .. } => PreferenceValue::Integer(entry.integer()?.into()),
            PreferenceKind::Choice(words) => {
                let text = entry.text()?;
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                PreferenceValue::Text(word.copied().unwrap_or(text).to_owned())
            }
            PreferenceKind::TimeZone => PreferenceValue::Text(entry.text()?.to_owned()),
        };
        self.check(&value).map_err(|problem| Problem {
            line: Some(entry.line),
            ..problem
        })?;
        Ok(value)
    }

    /// Checks that a value fits the kind of the preference.
    pub fn check(&self, value: &PreferenceValue) -> Result<(), Problem> {
        let problem = |value: &str, fix: String| {
            let what = format!("`{}` cannot be `{}`", self.name, shown(value));
            Problem::error(None, what, fix)
        };
        let (fits, fix) = match (self.kind, value) {
            (PreferenceKind::Boolean(_), PreferenceValue::Boolean(_)) => return Ok(()),
            (PreferenceKind::Integer { min, max, .. }, PreferenceValue::Integer(number)) => (
                (min..=max).contains(number),
                format!("write a number from {min} to {max}"),
            ),
            (PreferenceKind::Choice(words), PreferenceValue::Text(text)) => {
                (words.contains(&text.as_str()), suggestion(text, words))
            }
            (PreferenceKind::TimeZone, PreferenceValue::Text(text)) => (
                is_time_zone(text),
                "write a name such as `Europe/Berlin` or `UTC`".to_owned(),
            ),
            (PreferenceKind::Boolean(_), _) => (false, quoted(&["true", "false"])),
            (PreferenceKind::Integer { .. }, _) => (false, "write a number".to_owned()),
            (PreferenceKind::Choice(_) | PreferenceKind::TimeZone, _) => {
                (false, "write a word".to_owned())
            }
        };
        if fits {
            Ok(())
        } else {
            Err(problem(&value.to_text(), fix))
        }
    }
}

/// Checks the form of the name only, because the list of zones changes several times a year.
fn is_time_zone(text: &str) -> bool {
    let is_part = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphabetic())
            && chars.all(|c| c.is_ascii_alphanumeric() || "_+-".contains(c))
    };
    text.len() <= 64 && text.split('/').all(is_part)
}

impl PreferenceValue {
    fn to_text(&self) -> String {
        match self {
            Self::Boolean(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Text(value) => value.clone(),
        }
    }
}

impl Preferences {
    /// Name of the file in a user branch and in `refs/users/default`.
    pub const FILE: &'static str = "preferences.config";

    /// Reads the preferences that a file sets, and lists the problems of the file.
    pub fn read(text: &ConfigText) -> (Self, Vec<Problem>) {
        let mut problems: Vec<Problem> = text.entries().filter_map(unknown).collect();
        let mut values = BTreeMap::new();
        for row in TABLE {
            match text.value(row.path()).map(|entry| row.read(entry)) {
                None => {}
                Some(Ok(value)) => {
                    values.insert((row.section, row.name), value);
                }
                Some(Err(problem)) => problems.push(problem),
            }
        }
        (Self { values }, problems)
    }

    /// Returns the value of a preference: from this file, from the defaults of the server, or from the table.
    pub fn get(&self, row: &Preference, defaults: &Self) -> PreferenceValue {
        let key = (row.section, row.name);
        let set = self.values.get(&key).or_else(|| defaults.values.get(&key));
        set.cloned().unwrap_or_else(|| row.default_value())
    }

    /// Sets one preference in a file. A value equal to the default is removed, so that the account follows when the
    /// defaults of the server change.
    pub fn set(
        text: &mut ConfigText,
        row: &Preference,
        value: &PreferenceValue,
        defaults: &Self,
    ) -> Result<(), Problem> {
        row.check(value)?;
        if *value == Self::default().get(row, defaults) {
            text.unset(row.path())
        } else {
            text.set(row.path(), &value.to_text())
        }
    }
}

fn unknown(entry: ConfigEntry<'_>) -> Option<Problem> {
    let mut sections = PreferenceSection::ALL.iter();
    let is_section = |section: &&PreferenceSection| {
        entry.section == section.as_str() && entry.subsection.is_none()
    };
    let Some(section) = sections.find(is_section) else {
        return Some(entry.unknown_section(&PreferenceSection::ALL.map(PreferenceSection::as_str)));
    };
    if Preference::find(*section, entry.key).is_some() {
        return None;
    }
    let rows = TABLE.iter().filter(|row| row.section == *section);
    Some(entry.unknown_key(&rows.map(|row| row.name).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    fn config(text: &str) -> ConfigText {
        ConfigText::parse(text.as_bytes()).unwrap()
    }

    fn preference(name: &str) -> &'static Preference {
        PreferenceSection::ALL
            .iter()
            .find_map(|section| Preference::find(*section, name))
            .unwrap()
    }

    #[test]
    fn every_row_has_a_default_that_fits_and_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for row in TABLE {
            assert_eq!(row.check(&row.default_value()), Ok(()), "{}", row.name);
            assert!(names.insert((row.section, row.api_name())), "{}", row.name);
        }
        assert_eq!(preference("changesPerPage").api_name(), "changes_per_page");
    }

    #[test]
    fn a_value_is_from_the_file_the_server_or_the_table() {
        let (server, _) =
            Preferences::read(&config("[general]\ntheme = dark\nchangesPerPage = 50\n"));
        let (mine, problems) = Preferences::read(&config(
            "[GENERAL]\nchangesperpage = 100\n[edit]\nindentWithTabs\n",
        ));
        assert_eq!(problems, []);
        let get = |name| mine.get(preference(name), &server);
        assert_eq!(get("changesPerPage"), PreferenceValue::Integer(100));
        assert_eq!(get("theme"), PreferenceValue::Text("DARK".to_owned()));
        assert_eq!(get("indentWithTabs"), PreferenceValue::Boolean(true));
        assert_eq!(get("timeZone"), PreferenceValue::Text("UTC".to_owned()));
    }

    #[test]
    fn the_context_can_be_the_whole_file() {
        let (preferences, problems) = Preferences::read(&config("[diff]\ncontext = -1\n"));
        assert_eq!(problems, []);
        let context = preferences.get(preference("context"), &Preferences::default());
        assert_eq!(context, PreferenceValue::Integer(-1));
        for (text, problem) in [
            (
                "[diff]\ncontext = -2\n",
                "line 2: `context`: `-2` is not a number; write at most 4294967295 in plain digits, without a unit",
            ),
            (
                "[diff]\ncontext = 1001\n",
                "line 2: `context` cannot be `1001`; write a number from -1 to 1000",
            ),
            (
                "[diff]\ntabSize = -1\n",
                "line 2: `tabSize`: `-1` is not a number; write at most 4294967295 in plain digits, without a unit",
            ),
        ] {
            let (_, problems) = Preferences::read(&config(text));
            assert_eq!(problems.len(), 1);
            assert_eq!(problems[0].to_string(), problem);
        }
        let mut text = config("");
        let whole = PreferenceValue::Integer(-1);
        Preferences::set(
            &mut text,
            preference("context"),
            &whole,
            &Preferences::default(),
        )
        .unwrap();
        assert_eq!(text.as_str(), "[diff]\n\tcontext = -1\n");
    }

    #[test]
    fn problems_have_lines_and_ways_out() {
        let text = "[general]\nthme = DARK\ntheme = DRAK\nchangesPerPage = 1k\nshowSiteHeader = maybe\n\
                    timeZone = \"Mars; now\"\n[dif]\nx = 1\n[diff]\ntabSize = 0\n[edit \"x\"]\ny\n";
        let (_, problems) = Preferences::read(&config(text));
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "line 2: unknown key `thme`; did you mean `theme`?",
                "line 8: unknown section `dif`; did you mean `diff`?",
                "line 12: unknown subsection `edit.x`; write `[edit]`",
                "line 5: `showSiteHeader`: `maybe` is not a boolean; write `true` or `false`",
                "line 3: `theme` cannot be `DRAK`; did you mean `DARK`?",
                "line 6: `timeZone` cannot be `Mars; now`; write a name such as `Europe/Berlin` or `UTC`",
                "line 4: `changesPerPage`: `1k` is not a number; write at most 4294967295 in plain digits, without a unit",
                "line 10: `tabSize` cannot be `0`; write a number from 1 to 100",
            ]
        );
    }

    #[test]
    fn a_value_equal_to_the_default_is_not_written() {
        let (server, _) = Preferences::read(&config("[general]\nchangesPerPage = 50\n"));
        let mut text = config("[general]\n\tchangesPerPage = 100 # many\n\tother = 1\n");
        let mut set = |name, value| {
            Preferences::set(&mut text, preference(name), &value, &server).unwrap();
            text.to_string()
        };
        assert_eq!(
            set("changesPerPage", PreferenceValue::Integer(25)),
            "[general]\n\tchangesPerPage = 25 # many\n\tother = 1\n"
        );
        assert_eq!(
            set("changesPerPage", PreferenceValue::Integer(50)),
            "[general]\n\tother = 1\n"
        );
        assert_eq!(
            set("tabSize", PreferenceValue::Integer(2)),
            "[general]\n\tother = 1\n[diff]\n\ttabSize = 2\n"
        );
        let wrong = PreferenceValue::Text("x".to_owned());
        for row in TABLE {
            assert!(
                row.kind == PreferenceKind::TimeZone || row.check(&wrong).is_err(),
                "{}",
                row.name
            );
        }
    }

    fn value(row: &'static Preference) -> BoxedStrategy<PreferenceValue> {
        match row.kind {
            PreferenceKind::Boolean(_) => any::<bool>().prop_map(PreferenceValue::Boolean).boxed(),
            PreferenceKind::Integer { min, max, .. } => {
                (min..=max).prop_map(PreferenceValue::Integer).boxed()
            }
            PreferenceKind::Choice(words) => proptest::sample::select(words)
                .prop_map(|word| PreferenceValue::Text(word.to_owned()))
                .boxed(),
            PreferenceKind::TimeZone => "[A-Z][a-z]{1,5}(/[A-Z][a-z_]{1,5})?"
                .prop_map(PreferenceValue::Text)
                .boxed(),
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn what_was_set_is_read(
            changes in proptest::collection::vec(
                proptest::sample::select(TABLE).prop_flat_map(|row| {
                    let row = Preference::find(row.section, row.name).unwrap();
                    (Just(row), value(row))
                }),
                0..6,
            ),
        ) {
            let (server, _) = Preferences::read(&config("[general]\nchangesPerPage = 50\ntheme = DARK\n"));
            let mut text = config("# mine\n[general]\n\tother = 1\n");
            let mut expected = BTreeMap::new();
            for (row, value) in changes {
                Preferences::set(&mut text, row, &value, &server).unwrap();
                expected.insert((row.section, row.name), value);
                prop_assert!(text.as_str().starts_with("# mine\n[general]\n\tother = 1\n"));
            }
            let (mine, _) = Preferences::read(&text);
            for row in TABLE {
                let value = expected.get(&(row.section, row.name)).cloned();
                let default = Preferences::default().get(row, &server);
                prop_assert_eq!(mine.get(row, &server), value.unwrap_or(default));
            }
        }
    }
}
