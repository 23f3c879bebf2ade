//! Compares what this crate reads and writes with the `git` program.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use gix_hash::ObjectId;
use gix_object::Tree;
use gix_object::tree::{Entry, EntryKind};
use lockkeeper_accounts::config_text::{ConfigText, KeyPath};
use lockkeeper_accounts::external_ids::{ExternalIdKey, NoteName};
use lockkeeper_accounts::notes::{NoteTrees, changed_notes, read_notes, write_notes};
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
fn git_with_input(arguments: &[&str], dir: &Path, input: &str) -> Option<Vec<u8>> {
    let mut child = Command::new("git")
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env!("PATH"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("git is installed");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().expect("git ends");
    writer.join().expect("the input was written");
    output.status.success().then_some(output.stdout)
}

fn git(arguments: &[&str], dir: &Path) -> Option<Vec<u8>> {
    git_with_input(arguments, dir, "")
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

/// A repository whose trees are read with `git ls-tree`.
struct GitTrees<'a>(&'a Path);

impl NoteTrees for GitTrees<'_> {
    type Error = std::fmt::Error;

    fn tree(&self, id: ObjectId) -> Result<Tree, std::fmt::Error> {
        let entries = git_text(&["ls-tree", &id.to_string()], self.0);
        let entry = |line: &str| {
            let words: Vec<&str> = line.split([' ', '\t']).collect();
            let &[mode, _, oid, name] = words.as_slice() else {
                panic!("{line}");
            };
            let kind = if mode == "040000" {
                EntryKind::Tree
            } else {
                EntryKind::Blob
            };
            Entry {
                mode: kind.into(),
                filename: name.into(),
                oid: oid.parse().expect("an object id"),
            }
        };
        Ok(Tree {
            entries: entries.lines().map(entry).collect(),
        })
    }
}

fn git_text(arguments: &[&str], dir: &Path) -> String {
    let output = git(arguments, dir).unwrap_or_else(|| panic!("git {arguments:?} failed"));
    String::from_utf8(output)
        .expect("UTF-8")
        .trim_end()
        .to_owned()
}

/// Writes trees with git, which has to compute the same ids.
fn store(trees: &[(ObjectId, Tree)], dir: &Path) {
    let mut input = String::new();
    for (_, tree) in trees {
        for entry in &tree.entries {
            let (mode, kind) = if entry.mode.is_tree() {
                ("040000", "tree")
            } else {
                ("100644", "blob")
            };
            let line = format!("{mode} {kind} {}\t{}\n", entry.oid, entry.filename);
            input.push_str(&line);
        }
        input.push('\n');
    }
    let written = git_with_input(&["mktree", "--batch"], dir, &input).expect("git takes the trees");
    let written = String::from_utf8(written).expect("UTF-8");
    let expected: Vec<String> = trees.iter().map(|(id, _)| id.to_string()).collect();
    assert_eq!(written.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn notes_agree_with_git_notes() {
    const REF: &str = "refs/notes/external-ids";
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    git_text(&["init", "-q", "--bare"], dir);
    let blob = git_with_input(&["hash-object", "-w", "--stdin"], dir, "a").unwrap();
    let blob: ObjectId = String::from_utf8(blob).unwrap().trim_end().parse().unwrap();
    let keys = (0..300).map(|number| {
        format!("gerrit:user{number}")
            .parse::<ExternalIdKey>()
            .unwrap()
    });
    let mut notes: BTreeMap<NoteName, ObjectId> = keys.map(|key| (key.note_name(), blob)).collect();
    let list = || {
        let list = git_text(&["notes", "--ref", REF, "list"], dir);
        let pair = |line: &str| {
            let (blob, name) = line.split_once(' ')?;
            Some((name.to_owned(), blob.to_owned()))
        };
        list.lines().filter_map(pair).collect::<BTreeMap<_, _>>()
    };
    let as_text = |notes: &BTreeMap<NoteName, ObjectId>| {
        let pairs = notes
            .iter()
            .map(|(name, blob)| (name.to_string(), blob.to_string()));
        pairs.collect::<BTreeMap<_, _>>()
    };
    let identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"];
    let commit = |root: ObjectId| {
        let root = root.to_string();
        let commit = git_text(
            &[&identity[..], &["commit-tree", "-m", "x", &root]].concat(),
            dir,
        );
        git_text(&["update-ref", REF, &commit], dir);
    };

    // Git lists what was written here.
    let all = notes
        .iter()
        .map(|(name, blob)| (*name, Some(*blob)))
        .collect();
    let written = write_notes(&GitTrees(dir), None, &all).unwrap();
    store(&written.trees, dir);
    commit(written.root);
    assert_eq!(list(), as_text(&notes));

    // A change made by git, in a fan-out of its own, is found here.
    let name = *notes.keys().nth(150).unwrap();
    let removed = name.to_string();
    let remove = ["notes", "--ref", REF, "remove", &removed];
    git_text(&[&identity[..], &remove].concat(), dir);
    notes.remove(&name);
    let root = git_text(&["rev-parse", &format!("{REF}^{{tree}}")], dir);
    let root: ObjectId = root.parse().unwrap();
    assert_eq!(read_notes(&GitTrees(dir), Some(root)).unwrap(), notes);
    let found = changed_notes(&GitTrees(dir), Some(written.root), Some(root)).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&name]);

    // A change made here in the tree of git is listed by git.
    let added: ExternalIdKey = "gerrit:jdoe".parse().unwrap();
    let changes = BTreeMap::from([(added.note_name(), Some(blob))]);
    let written = write_notes(&GitTrees(dir), Some(root), &changes).unwrap();
    store(&written.trees, dir);
    notes.insert(added.note_name(), blob);
    commit(written.root);
    assert_eq!(list(), as_text(&notes));
}
