//! Compares what this crate reads and writes with the `git` program.

use std::path::Path;

use lockkeeper_accounts::config_text::{ConfigText, KeyPath};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The tests start a program for each case, so there are few of them, and always the same.
fn few_cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(18),
        ..ProptestConfig::default()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test runs git without a deadline"
)]
fn git(arguments: &[&str], dir: &Path) -> Option<Vec<u8>> {
    let output = std::process::Command::new("git")
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env!("PATH"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git is installed");
    output.status.success().then_some(output.stdout)
}

/// Returns the keys and values as git reads them, or `None` if it refuses the file.
fn list_of_git(text: &str) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(dir.path().join("config"), text).expect("a written file");
    git(
        &["config", "--no-includes", "--list", "-z", "-f", "config"],
        dir.path(),
    )
}

fn list_of_ours(text: &str) -> Option<Vec<u8>> {
    let config = ConfigText::parse(text.as_bytes()).ok()?;
    let entries = config.entries().map(|entry| {
        let name = KeyPath {
            section: entry.section,
            subsection: entry.subsection,
            key: &entry.key.to_lowercase(),
        }
        .to_string();
        // Git has no dot before keys that are in no section.
        let name = if config.sections().any(|header| header.line <= entry.line) {
            name
        } else {
            name.trim_start_matches('.').to_owned()
        };
        let value = entry.value.map(|value| format!("\n{value}"));
        format!("{name}{}\0", value.unwrap_or_default())
    });
    Some(entries.collect::<String>().into_bytes())
}

fn same(text: &str) -> Result<(), TestCaseError> {
    let (git, ours) = (list_of_git(text), list_of_ours(text));
    // Git before 2.45 reads a tab between two words as a blank.
    let shown = |list: Option<Vec<u8>>| {
        list.map(|list| String::from_utf8(list).expect("UTF-8").replace('\t', " "))
    };
    prop_assert_eq!(shown(ours), shown(git), "{:?}", text);
    Ok(())
}

/// Lines as people write them, and some that git refuses.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\[[aB](\\.[cD]|[ \t]\"[c-e \\\\\"#]{0,3}\")?\\] ?",
        "[ \t]{0,2}[kL][0-9a-b-]{0,2} ?= ?[xé \"#;\\\\nt]{0,8}",
        "[ \t]{0,2}[kL] ?[#=\\[]?",
        "[ \t]*[#;][a \\\\\"]{0,4}",
        "[ \t]{0,2}",
        "[aé\\[\\]=\"\\\\ #]{0,4}",
        Just("\u{feff}".to_owned()),
    ]
}

fn text() -> impl Strategy<Value = String> {
    let line_break = proptest::sample::select(vec!["\n", "\n", "\r\n", ""]);
    proptest::collection::vec((line(), line_break), 0..7)
        .prop_map(|lines| lines.into_iter().map(|(line, end)| line + end).collect())
}

#[derive(Clone, Debug)]
enum Edit {
    Set(String),
    SetValues(Vec<String>),
    Unset,
    Add(String),
    RemoveSection,
}

fn edit() -> impl Strategy<Value = (Option<&'static str>, Edit)> {
    let value = || "[x \t\n\r\"\\\\#;é\u{8}]{0,6}";
    let edit = prop_oneof![
        value().prop_map(Edit::Set),
        proptest::collection::vec(value(), 0..4).prop_map(Edit::SetValues),
        Just(Edit::Unset),
        value().prop_map(Edit::Add),
        Just(Edit::RemoveSection),
    ];
    let subsection = proptest::sample::select(vec![None, Some("c"), Some("d\\\"")]);
    (subsection, edit)
}

type Values = Vec<(String, Option<String>)>;

/// The keys with their values: first those of one key, or of one section, and then all others.
fn apart(config: &ConfigText, path: KeyPath<'_>, whole_section: bool) -> (Values, Values) {
    let mine = |entry: &lockkeeper_accounts::config_text::ConfigEntry<'_>| {
        let path = if whole_section {
            KeyPath {
                key: entry.key,
                ..path
            }
        } else {
            path
        };
        entry.is(path)
    };
    let pair = |entry: lockkeeper_accounts::config_text::ConfigEntry<'_>| {
        let name = format!("{}.{:?}.{}", entry.section, entry.subsection, entry.key);
        (name, entry.value.map(str::to_owned))
    };
    let (mine, others): (Vec<_>, Vec<_>) = config.entries().partition(mine);
    (
        mine.into_iter().map(pair).collect(),
        others.into_iter().map(pair).collect(),
    )
}

proptest! {
    #![proptest_config(few_cases(500))]

    #[test]
    fn a_text_is_read_as_git_reads_it(text in text()) {
        same(&text)?;
    }
}

proptest! {
    #![proptest_config(few_cases(300))]

    #[test]
    fn an_edit_changes_only_its_key(
        text in text().prop_filter("git refuses it", |text| ConfigText::parse(text.as_bytes()).is_ok()),
        edits in proptest::collection::vec(edit(), 1..4),
    ) {
        let mut config = ConfigText::parse(text.as_bytes()).unwrap();
        for (subsection, edit) in edits {
            let path = KeyPath { section: "a", subsection, key: "k" };
            let whole_section = matches!(edit, Edit::RemoveSection);
            let before = config.clone();
            let (old, others) = apart(&config, path, whole_section);
            let mut expected: Vec<Option<String>> = old.into_iter().map(|(_, value)| value).collect();
            match edit {
                Edit::Set(value) => {
                    config.set(path, &value).unwrap();
                    expected = vec![Some(value)];
                }
                Edit::SetValues(values) => {
                    let texts: Vec<&str> = values.iter().map(String::as_str).collect();
                    config.set_values(path, &texts).unwrap();
                    expected = values.into_iter().map(Some).collect();
                }
                Edit::Unset => {
                    config.unset(path).unwrap();
                    expected.clear();
                }
                Edit::Add(value) => {
                    config.add(path, &value).unwrap();
                    expected.push(Some(value));
                }
                Edit::RemoveSection => {
                    config.remove_section("a", subsection).unwrap();
                    expected.clear();
                }
            }
            let (new, rest) = apart(&config, path, whole_section);
            let new: Vec<Option<String>> = new.into_iter().map(|(_, value)| value).collect();
            prop_assert_eq!(new, expected, "{:?} became {:?}", before, config);
            prop_assert_eq!(rest, others, "{:?} became {:?}", before, config);
            // A whole line with a comment belongs to no key.
            let comments = |config: &ConfigText| {
                let lines = config.as_str().lines().filter(|line| line.trim_start().starts_with(['#', ';']));
                lines.count()
            };
            if !whole_section {
                prop_assert!(comments(&config) >= comments(&before), "{:?} became {:?}", before, config);
            }
        }
        same(config.as_str())?;
    }
}
