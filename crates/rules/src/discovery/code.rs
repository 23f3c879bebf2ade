//! Selects and parses the files of a directory that Terraform or OpenTofu reads.

use hcl_edit::structure::{Block, Body};
use serde_json::Value;

use crate::model::{Distribution, RepoPath};

/// Mark that some editors put before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Maximum size of one parsed file in bytes; nobody writes larger code by hand.
pub(super) const MAX_FILE_BYTES: usize = 512 << 10;

/// Maximum number of bytes of one directory that are parsed.
const MAX_DIR_BYTES: usize = 4 << 20;

/// Maximum number of bytes of one directory that are read. A file counts once for each link to it.
const MAX_DIR_READ: usize = 64 << 20;

/// Numbers of bytes of one directory that may still be read and parsed.
pub(super) struct CodeBudget {
    read: usize,
    parsed: usize,
}

impl CodeBudget {
    pub(super) fn of_dir() -> Self {
        Self {
            read: MAX_DIR_READ,
            parsed: MAX_DIR_BYTES,
        }
    }

    /// Returns the text of a file that needs parsing: not too large, and with the word.
    pub(super) fn text(
        &mut self,
        word: &str,
        read: impl FnOnce() -> Option<String>,
    ) -> Option<String> {
        self.text_with(&[word], read)
    }

    /// Returns the text of a file that needs parsing: not too large, and with one of the words.
    pub(super) fn text_with(
        &mut self,
        words: &[&str],
        read: impl FnOnce() -> Option<String>,
    ) -> Option<String> {
        if self.read == 0 {
            return None;
        }
        let text = read()?;
        self.read = self.read.saturating_sub(text.len());
        let has_any = || words.iter().any(|word| has_word(&text, word));
        if text.len() > MAX_FILE_BYTES.min(self.parsed) || !has_any() {
            return None;
        }
        self.parsed -= text.len();
        Some(text)
    }
}

/// Returns true if a text contains a word. A part of a longer name does not count, such as `cloud` in
/// `google_cloud_run_service`.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    let is_name = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-');
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !before.ends_with(is_name) && !after.starts_with(is_name)
    })
}

/// Returns the text to parse: the file without one byte order mark, as the tools read HCL. The tools refuse JSON with
/// a mark, but this module reads it; running the tool reports the error.
pub(super) fn unmarked(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// A code file that does not parse as the format of its name. The tools may still accept it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnreadFile {
    /// Path of the file.
    pub file: RepoPath,
    /// Line of the error, from 1.
    pub line: usize,
    /// Description of the error.
    pub what: String,
}

/// Parses the text of an HCL file.
pub(super) fn parse(file: &RepoPath, text: &str) -> Result<Body, UnreadFile> {
    hcl_edit::parser::parse_body(text).map_err(|error| UnreadFile {
        file: file.clone(),
        line: error.location().line(),
        what: error.message().to_owned(),
    })
}

/// Parses the text of a JSON file.
pub(super) fn parse_json(file: &RepoPath, text: &str) -> Result<Value, UnreadFile> {
    serde_json::from_str(text).map_err(|error| {
        let (line, what) = (error.line(), error.to_string());
        // The line already says where the error is.
        let what = what
            .split(" at line ")
            .next()
            .unwrap_or_default()
            .to_owned();
        UnreadFile {
            file: file.clone(),
            line,
            what,
        }
    })
}

/// Returns the HCL files of a directory among its sorted `files`. Terraform reads `*.tf`. OpenTofu also reads
/// `*.tofu`, and there `x.tofu` hides `x.tf` (reference 12.2).
pub(super) fn native(
    files: &[RepoPath],
    distribution: Distribution,
) -> impl Iterator<Item = &RepoPath> {
    read_by(files, distribution, "")
}

/// Returns the JSON files of a directory in the same way: `*.tf.json`, `*.tofu.json`.
pub(super) fn json(
    files: &[RepoPath],
    distribution: Distribution,
) -> impl Iterator<Item = &RepoPath> {
    read_by(files, distribution, ".json")
}

fn read_by<'a>(
    files: &'a [RepoPath],
    distribution: Distribution,
    format: &'static str,
) -> impl Iterator<Item = &'a RepoPath> {
    let tofu = distribution == Distribution::OpenTofu;
    let exists = move |path: &str| {
        files
            .binary_search_by(|file| file.as_str().cmp(path))
            .is_ok()
    };
    files.iter().filter(move |file| {
        let Some((stem, ending)) = file
            .as_str()
            .strip_suffix(format)
            .and_then(|path| path.rsplit_once('.'))
        else {
            return false;
        };
        match ending {
            _ if is_editor_file(file.file_name()) => false,
            "tf" => !(tofu && exists(&format!("{stem}.tofu{format}"))),
            "tofu" => tofu,
            _ => false,
        }
    })
}

/// Returns true for files that the tools skip: hidden files and files that editors leave behind.
pub(super) fn is_editor_file(name: &str) -> bool {
    name.starts_with('.') || name.ends_with('~') || name.starts_with('#') && name.ends_with('#')
}

/// Returns the blocks of a name that have no labels.
pub(super) fn unlabelled<'a>(body: &'a Body, name: &'a str) -> impl Iterator<Item = &'a Block> {
    body.get_blocks(name).filter(|block| !block.is_labeled())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_directory_costs_has_an_end() {
        let large = "x".repeat(MAX_FILE_BYTES + 1);
        let (mut budget, mut reads) = (CodeBudget::of_dir(), 0);
        for _ in 0..1_000 {
            let read = || {
                reads += 1;
                Some(large.clone())
            };
            assert_eq!(budget.text("x", read), None);
        }
        assert_eq!(reads, MAX_DIR_READ / MAX_FILE_BYTES);
        let (mut budget, text) = (CodeBudget::of_dir(), "word ".repeat(MAX_FILE_BYTES / 5));
        let parsed = (0..20)
            .filter_map(|_| budget.text("word", || Some(text.clone())))
            .count();
        assert_eq!(parsed, MAX_DIR_BYTES / MAX_FILE_BYTES);
        assert_eq!(CodeBudget::of_dir().text("other", || Some(text)), None);
    }

    #[test]
    fn a_part_of_a_longer_name_is_no_word() {
        for text in [
            "cloud",
            "cloud {",
            "x\ncloud{}",
            "\"cloud\"",
            "google_cloud cloud",
            "\u{feff}cloud",
            "é.cloud",
        ] {
            assert!(has_word(text, "cloud"), "{text:?}");
        }
        for text in [
            "",
            "clou",
            "google_cloud_run",
            "cloudflare",
            "cloud-init",
            "a-cloud",
            "cloud2",
            "écloud",
        ] {
            assert!(!has_word(text, "cloud"), "{text:?}");
        }
    }

    #[test]
    fn one_byte_order_mark_is_passed_over() {
        for (text, expected) in [
            ("\u{feff}a", "a"),
            ("a", "a"),
            ("", ""),
            ("\u{feff}\u{feff}a", "\u{feff}a"),
        ] {
            assert_eq!(unmarked(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_with_the_line() {
        let file: RepoPath = "a.tf".parse().unwrap();
        let told = |unread: UnreadFile| format!("{}:{}: {}", unread.file, unread.line, unread.what);
        let hcl = parse(&file, "\na {\n").unwrap_err();
        assert_eq!(
            told(hcl),
            "a.tf:2: invalid block body; expected `}`, newline or identifier"
        );
        let json = parse_json(&file, "{\n  \"a\": x\n}").unwrap_err();
        assert_eq!(told(json), "a.tf:2: expected value");
    }

    #[test]
    fn each_tool_reads_its_own_files() {
        let names = [
            "#a.tf#",
            ".a.tf",
            "a.tf",
            "a.tf.json",
            "a.tf~",
            "a.tfvars",
            "b.json",
            "b.tf",
            "b.tf.json",
            "b.tofu",
            "c.tf.json",
            "c.tofu.json",
            "d.tofu",
            "e",
            "tf",
        ];
        let files: Vec<RepoPath> = names
            .iter()
            .map(|name| format!("x/{name}").parse().unwrap())
            .collect();
        let shown = |files: Vec<&RepoPath>| {
            let names: Vec<&str> = files.iter().map(|file| file.file_name()).collect();
            names.join(" ")
        };
        let both = |distribution| {
            (
                shown(native(&files, distribution).collect()),
                shown(json(&files, distribution).collect()),
            )
        };
        assert_eq!(
            both(Distribution::Terraform),
            ("a.tf b.tf".into(), "a.tf.json b.tf.json c.tf.json".into())
        );
        assert_eq!(
            both(Distribution::OpenTofu),
            (
                "a.tf b.tofu d.tofu".into(),
                "a.tf.json b.tf.json c.tofu.json".into()
            )
        );
    }
}
