//! Reads the tool version that the code of a directory requires: `terraform { required_version = "~> 1.9.0" }`
//! (reference 12.2).
//!
//! Terraform requires every `required_version` of a module, so all of them count together. One in an override file
//! replaces the others, as in Terraform. Only literal texts count, because neither tool accepts anything else.

use std::fmt;

use hcl_edit::Span;
use hcl_edit::structure::Attribute;
use semver::Version;
use serde_json::Value;

use super::code::{self, CodeBudget, UnreadFile};
use super::version_constraint::{InvalidConstraint, VersionConstraint};
use crate::model::{Distribution, RepoPath, code_span};

const KEY: &str = "required_version";

/// Maximum number of constraints of one directory that are kept; nobody writes that many.
const MOST: usize = 20;

/// One `required_version` and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredVersion {
    /// File that contains the constraint.
    pub file: RepoPath,
    /// Line, counted from 1; `None` if the format does not report it.
    pub line: Option<usize>,
    /// Parsed constraint, or the reason why it is invalid.
    pub constraint: Result<VersionConstraint, InvalidConstraint>,
}

/// All version constraints in the code of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredVersions {
    demands: Vec<RequiredVersion>,
    /// Files that may contain further constraints, but cannot be read.
    unread: Vec<UnreadFile>,
}

impl RequiredVersions {
    /// Returns true if the code requires no version.
    pub fn is_empty(&self) -> bool {
        self.demands.is_empty()
    }

    /// Returns the constraints, by file and line.
    pub fn iter(&self) -> impl Iterator<Item = &RequiredVersion> {
        self.demands.iter()
    }

    /// Returns the files that contain the word but cannot be read. They require nothing.
    pub(super) fn unread(&self) -> &[UnreadFile] {
        &self.unread
    }

    fn add(&mut self, read: Result<Vec<RequiredVersion>, UnreadFile>) {
        match read {
            Ok(demands) => self.demands.extend(demands),
            Err(unread) => self.unread.push(unread),
        }
    }

    /// Returns true if a version meets all constraints. No version meets an invalid constraint.
    pub fn matches(&self, version: &Version) -> bool {
        self.demands.iter().all(|one| {
            one.constraint
                .as_ref()
                .is_ok_and(|constraint| constraint.matches(version))
        })
    }

    /// Returns the first invalid constraint.
    pub fn unreadable(&self) -> Option<(&RequiredVersion, &InvalidConstraint)> {
        self.demands
            .iter()
            .find_map(|one| Some((one, one.constraint.as_ref().err()?)))
    }

    /// Returns the only version that can match, if a constraint names it.
    pub fn exact(&self) -> Option<&Version> {
        self.demands
            .iter()
            .find_map(|one| one.constraint.as_ref().ok()?.exact())
    }
}

impl fmt::Display for RequiredVersion {
    /// Writes ``line 3 of `net/versions.tf` says `~> 1.9.0` ``.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = code_span(self.file.as_str());
        match self.line {
            Some(line) => write!(f, "line {line} of {file}")?,
            None => f.write_str(&file)?,
        }
        match &self.constraint {
            Ok(constraint) => write!(f, " says `{constraint}`"),
            Err(error) => write!(f, ": {error}"),
        }
    }
}

impl fmt::Display for RequiredVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.demands.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(" and "))
    }
}

/// Returns the version constraints in the code of one directory. `files` are the files directly in it, sorted. `read`
/// returns the text of one of them, for a symbolic link that of its target, and `None` if it cannot be read. Files
/// that are too large or are not HCL are skipped, because the tool itself reports their errors.
pub fn required_versions(
    files: &[RepoPath],
    distribution: Distribution,
    read: &dyn Fn(&RepoPath) -> Option<String>,
) -> RequiredVersions {
    let mut budget = CodeBudget::of_dir();
    let mut text_of = |file: &RepoPath| budget.text(KEY, || read(file));
    let mut found = RequiredVersions::default();
    for file in code::native(files, distribution) {
        if let Some(text) = text_of(file) {
            found.add(in_native(file, code::unmarked(&text)));
        }
    }
    for file in code::json(files, distribution) {
        if let Some(text) = text_of(file) {
            found.add(in_json(file, code::unmarked(&text)));
        }
    }
    let RequiredVersions {
        mut demands,
        mut unread,
    } = found;
    demands.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    let mut demands = overridden(demands);
    demands.truncate(MOST);
    unread.truncate(MOST);
    RequiredVersions { demands, unread }
}

/// Keeps only the constraints of the last override file that has any, if there is one.
fn overridden(mut found: Vec<RequiredVersion>) -> Vec<RequiredVersion> {
    let last = found
        .iter()
        .map(|one| &one.file)
        .rfind(|file| is_override(file))
        .cloned();
    if let Some(last) = last {
        found.retain(|one| one.file == last);
    }
    found
}

/// Returns true for override files: `override.tf`, `x_override.tf.json`.
fn is_override(file: &RepoPath) -> bool {
    let stem = file.file_name().split('.').next().unwrap_or_default();
    stem == "override" || stem.ends_with("_override")
}

fn in_native(file: &RepoPath, text: &str) -> Result<Vec<RequiredVersion>, UnreadFile> {
    let body = code::parse(file, text)?;
    let attributes =
        code::unlabelled(&body, "terraform").filter_map(|block| block.body.get_attribute(KEY));
    let one = |attribute: &Attribute| {
        let line = attribute.key.span().map(|span| line_at(text, span.start));
        let constraint = attribute.value.as_str()?.parse();
        Some(RequiredVersion {
            file: file.clone(),
            line,
            constraint,
        })
    };
    Ok(attributes.filter_map(one).collect())
}

/// Reads `{"terraform": {"required_version": "~> 1.9"}}`, or a list of such objects.
fn in_json(file: &RepoPath, text: &str) -> Result<Vec<RequiredVersion>, UnreadFile> {
    let whole = code::parse_json(file, text)?;
    let blocks = match whole.get("terraform") {
        Some(Value::Array(blocks)) => blocks.as_slice(),
        Some(block) => std::slice::from_ref(block),
        None => &[],
    };
    // JSON values do not know their position. If the word occurs only once, its position is the right one.
    let mut places = text.match_indices(KEY).map(|(at, _)| line_at(text, at));
    let line = places.next().filter(|_| places.next().is_none());
    let texts = blocks.iter().filter_map(|block| block.get(KEY)?.as_str());
    Ok(texts
        .map(|text| RequiredVersion {
            file: file.clone(),
            line,
            constraint: text.parse(),
        })
        .collect())
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
        + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::code::MAX_FILE_BYTES;
    use super::*;

    fn found(distribution: Distribution, files: &[(&str, &str)]) -> RequiredVersions {
        let mut names: Vec<RepoPath> = files
            .iter()
            .map(|(name, _)| name.parse().unwrap())
            .collect();
        names.sort();
        required_versions(&names, distribution, &|file| {
            let text = files.iter().find(|(name, _)| *name == file.as_str());
            text.map(|(_, text)| (*text).to_owned())
        })
    }

    fn says(files: &[(&str, &str)]) -> String {
        found(Distribution::Terraform, files).to_string()
    }

    fn demand(text: &str) -> String {
        format!("terraform {{\n  required_version = \"{text}\"\n}}\n")
    }

    #[test]
    fn only_a_literal_in_a_terraform_block_counts() {
        let good = "line 2 of `main.tf` says `~> 1.9.0`";
        let cases = [
            (demand("~> 1.9.0"), good),
            (
                demand("~> 1.9.0").replace("terraform {", "terraform \"x\" {"),
                "",
            ),
            (
                demand("~> 1.9.0").replace("terraform {", "resource \"a\" \"b\" {"),
                "",
            ),
            (demand("~> ${var.x}"), ""),
            (demand("x").replace("\"x\"", "local.version"), ""),
            (demand("x").replace("\"x\"", "1.9"), ""),
            (format!("\u{feff}{}", demand("~> 1.9.0")), good),
            (format!("\u{feff}\u{feff}{}", demand("~> 1.9.0")), ""),
            (format!("{}}}", demand("~> 1.9.0")), ""),
            ("# required_version".to_owned(), ""),
            (String::new(), ""),
        ];
        for (text, expected) in cases {
            assert_eq!(says(&[("main.tf", &text)]), expected, "{text}");
        }
    }

    #[test]
    fn all_that_are_found_count_together() {
        let files = [
            ("a.tf", demand(">= 1.5")),
            ("b.tf", format!("\n{}{}", demand("< 2"), demand("!= 1.7.0"))),
        ];
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        let all = found(Distribution::Terraform, &files);
        assert_eq!(
            all.to_string(),
            "line 2 of `a.tf` says `>= 1.5` and line 3 of `b.tf` says `< 2` and line 6 of `b.tf` says `!= 1.7.0`"
        );
        let fits = |text: &str| all.matches(&Version::parse(text).unwrap());
        assert_eq!(
            ["1.4.9", "1.5.0", "1.7.0", "1.9.8", "2.0.0"].map(fits),
            [false, true, false, true, false]
        );
        assert_eq!(all.exact(), None);
    }

    #[test]
    fn json_is_read_too() {
        let one = "{\n  \"terraform\": {\"required_version\": \">= 1.5\"}\n}";
        assert_eq!(
            says(&[("a.tf.json", one)]),
            "line 2 of `a.tf.json` says `>= 1.5`"
        );
        assert_eq!(
            says(&[("a.tf.json", &format!("\u{feff}{one}"))]),
            "line 2 of `a.tf.json` says `>= 1.5`"
        );
        let list = r#"{"terraform": [{"required_version": ">= 1.5"}, {"required_version": "< 2"}, {"backend": {}}]}"#;
        assert_eq!(
            says(&[("a.tf.json", list)]),
            "`a.tf.json` says `>= 1.5` and `a.tf.json` says `< 2`"
        );
        for nothing in [
            "[]",
            "{}",
            "{\"terraform\": 1}",
            "{\"terraform\": {\"required_version\": 1}}",
            "{\"required_version\"",
        ] {
            assert_eq!(says(&[("a.tf.json", nothing)]), "", "{nothing}");
        }
    }

    #[test]
    fn each_tool_reads_its_own_files() {
        let (tf, tofu) = (demand("1.9.8"), demand("1.8.0"));
        let files = [
            ("a.tf", tf.as_str()),
            ("a.tofu", tofu.as_str()),
            ("b.tofu.json", r#"{"terraform":{"required_version":">1"}}"#),
        ];
        assert_eq!(
            found(Distribution::Terraform, &files).to_string(),
            "line 2 of `a.tf` says `= 1.9.8`"
        );
        assert_eq!(
            found(Distribution::OpenTofu, &files).to_string(),
            "line 2 of `a.tofu` says `= 1.8.0` and line 1 of `b.tofu.json` says `> 1`"
        );
        assert_eq!(
            found(Distribution::OpenTofu, &files).exact(),
            Some(&Version::new(1, 8, 0))
        );
    }

    #[test]
    fn the_last_override_file_takes_the_place_of_the_others() {
        let (one, two, three) = (demand("1.1.0"), demand("1.2.0"), demand("1.3.0"));
        let files = [
            ("a_override.tf", two.as_str()),
            ("main.tf", one.as_str()),
            ("override.tf", three.as_str()),
        ];
        assert_eq!(says(&files), "line 2 of `override.tf` says `= 1.3.0`");
        assert_eq!(
            says(&files[..2]),
            "line 2 of `a_override.tf` says `= 1.2.0`"
        );
    }

    #[test]
    fn what_cannot_be_read_is_known_and_met_by_nothing() {
        let found = found(Distribution::Terraform, &[("main.tf", &demand("latest"))]);
        let (at, error) = found.unreadable().unwrap();
        assert_eq!(at.line, Some(2));
        assert!(
            error
                .to_string()
                .contains("`latest` is not a version constraint")
        );
        assert!(!found.matches(&Version::new(1, 9, 8)));
    }

    #[test]
    fn files_that_are_no_code_are_known_if_they_have_the_word() {
        let found = found(
            Distribution::Terraform,
            &[
                ("a.tf", &demand("~> 1.9.0")),
                ("b.tf", "# required_version\n}\n"),
                ("c.tf", "}\n"),
                ("d.tf.json", "{\"required_version\""),
                ("e.tofu", "# required_version\n}\n"),
            ],
        );
        assert_eq!(found.to_string(), "line 2 of `a.tf` says `~> 1.9.0`");
        let unread: Vec<String> = found
            .unread()
            .iter()
            .map(|one| format!("{}:{}", one.file, one.line))
            .collect();
        assert_eq!(unread, ["b.tf:2", "d.tf.json:1"]);
    }

    #[test]
    fn what_is_too_much_is_passed_over() {
        let large = format!(
            "{}{}",
            demand("1.9.8"),
            "# filler\n".repeat(MAX_FILE_BYTES / 8)
        );
        assert_eq!(says(&[("main.tf", &large)]), "");
        let many = demand("1.9.8").repeat(MOST + 5);
        assert_eq!(
            found(Distribution::Terraform, &[("main.tf", &many)])
                .iter()
                .count(),
            MOST
        );
    }

    proptest! {
        #[test]
        fn no_code_makes_it_panic(text in r"(?s).{0,60}", signs in r#"[a{}=\[\]"$%()<\n !?:+#/*.,~-]{0,60}"#) {
            for text in [text, signs] {
                let text = format!("{text}\n# required_version");
                let _found = found(Distribution::OpenTofu, &[("main.tf", &text), ("main.tf.json", &text)]);
            }
        }
    }
}
