//! Versions that tags of a repository name.
//!
//! A tag is hostile text until it is a [`TagName`]. Versions only ever have plain names, so all other tags are left out
//! before anything else sees them.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use lockkeeper_model::model::text_type;
use regex::Regex;

use crate::names::{GoPath, ModuleName, Namespace};
use crate::versions::{GoVersion, MajorMismatch, ModuleVersion, VersionKey};

/// Prefix of the names of repositories that are a Terraform module: `terraform-aws-vpc`.
const MODULE_REPOSITORY: &str = "terraform-";

/// Numbers of a version, anywhere in a tag.
static NUMBERS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("([0-9]{1,18})\\.([0-9]{1,18})\\.([0-9]{1,18})").expect("the pattern is valid")
});

/// The name of a tag without `refs/tags/`, such as `v1.2.3` or `modules/vpc/v1.2.3`. It has only characters that are safe
/// in arguments of git, in pages and in statuses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TagName(String);

/// A text is not the name of a tag that can name a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTagName {
    /// The name is empty or longer than [`TagName::MAX_BYTES`].
    #[error("a tag has 1 to {} bytes", TagName::MAX_BYTES)]
    Length,
    /// The name has a character that no version needs.
    #[error("a tag has letters, digits and the characters `. - _ + /`")]
    Character,
    /// A part of the name is empty, begins with a dot or a minus sign, or ends with a dot or `.lock`.
    #[error("a part of the tag is empty, or begins or ends in a way that git refuses")]
    Part,
}

/// A pattern of tags with one `*`, which stands for a version: `vpc-v*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagPattern {
    before: String,
    after: String,
}

/// A text is not a pattern of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTagPattern {
    /// The number of stars is not one.
    #[error("a pattern of tags has one `*`, which stands for the version")]
    Star,
    /// No tag can match the pattern.
    #[error("a pattern of tags: {0}")]
    Name(#[from] InvalidTagName),
}

/// A tag that is named as those of Go modules are: `v1.2.3`, `http/v1.2.3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoTag {
    dir: String,
    version: GoVersion,
}

/// A tag is no version of the module that a `go.mod` file names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoTagFault {
    /// The module belongs to tags of another directory.
    #[error(
        "`{path}` is not the path of a module in the directory `{dir}`, so this tag is no version of it"
    )]
    Directory {
        /// Path that the file names.
        path: GoPath,
        /// Directory that the tag names.
        dir: String,
    },
    /// The major version is that of another path.
    #[error(transparent)]
    Major(#[from] MajorMismatch),
}

fn is_plain(text: &str) -> bool {
    let is_allowed =
        |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_' | b'+' | b'/');
    text.bytes().all(is_allowed)
}

impl TagName {
    /// Maximum length in bytes.
    pub const MAX_BYTES: usize = 200;

    /// Returns the name without `refs/tags/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the numbers of the version that the tag may name, for an order of many tags. `None`: no rule and no pattern
    /// finds a version in it.
    pub fn numbers(&self) -> Option<(u64, u64, u64)> {
        let found = NUMBERS.captures(&self.0)?;
        let number = |at: usize| found[at].parse().unwrap_or(u64::MAX);
        Some((number(1), number(2), number(3)))
    }

    /// Returns the version that is the whole name, with or without a leading `v`: that of a Terraform module at the
    /// top of a repository.
    pub fn module_version(&self) -> Option<ModuleVersion> {
        let text = self.0.strip_prefix('v').unwrap_or(&self.0);
        read_module_version(text)
    }

    /// Returns directory and version of a tag that is named as those of Go modules are. Tags in the form of
    /// pseudo-versions are none, because `go` does not look at them.
    pub fn as_go(&self) -> Option<GoTag> {
        let (dir, version) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        let version: GoVersion = version.parse().ok()?;
        let is_named = !version.is_incompatible() && !version.is_pseudo();
        is_named.then(|| GoTag {
            dir: dir.to_owned(),
            version,
        })
    }
}

impl FromStr for TagName {
    type Err = InvalidTagName;

    fn from_str(text: &str) -> Result<Self, InvalidTagName> {
        if !(1..=Self::MAX_BYTES).contains(&text.len()) {
            return Err(InvalidTagName::Length);
        }
        if !is_plain(text) {
            return Err(InvalidTagName::Character);
        }
        let is_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-'])
                && !part.ends_with('.')
                && part.strip_suffix(".lock").is_none()
                && !part.contains("..")
        };
        if !text.split('/').all(is_part) {
            return Err(InvalidTagName::Part);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_type!(TagName);

impl TagPattern {
    /// Returns the pattern of a module in this directory that names none: `v*`, or `modules/vpc/v*`.
    pub fn of_dir(dir: &str) -> Result<Self, InvalidTagPattern> {
        if dir.is_empty() {
            "v*".parse()
        } else {
            format!("{dir}/v*").parse()
        }
    }

    /// Returns the version that a tag names.
    pub fn version_of(&self, tag: &TagName) -> Option<ModuleVersion> {
        let rest = tag.0.strip_prefix(self.before.as_str())?;
        read_module_version(rest.strip_suffix(self.after.as_str())?)
    }
}

impl FromStr for TagPattern {
    type Err = InvalidTagPattern;

    fn from_str(text: &str) -> Result<Self, InvalidTagPattern> {
        let (before, after) = text.split_once('*').ok_or(InvalidTagPattern::Star)?;
        if after.contains('*') {
            return Err(InvalidTagPattern::Star);
        }
        // With a version in place of the star, the pattern has to be a tag.
        let _tag: TagName = format!("{before}1.2.3{after}").parse()?;
        Ok(Self {
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }
}

impl fmt::Display for TagPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*{}", self.before, self.after)
    }
}

/// Reads a version in its one form, without a `v` and without build metadata.
fn read_module_version(text: &str) -> Option<ModuleVersion> {
    let version: ModuleVersion = text.parse().ok()?;
    (version.to_string() == text).then_some(version)
}

impl GoTag {
    /// Returns the directories whose `go.mod` file the tag can be about, without slashes at their ends: that of the tag,
    /// and from `v2` on the one of the major version below it.
    pub fn places(&self) -> Vec<String> {
        let major = self.major();
        let mut places = vec![self.dir.clone()];
        if !matches!(major.as_str(), "v0" | "v1") {
            places.push(match self.dir.as_str() {
                "" => major,
                dir => format!("{dir}/{major}"),
            });
        }
        places
    }

    /// Returns the version that the tag is of the module with this path, whose `go.mod` file is in one of
    /// [`Self::places`]. Without its major version, the path of a module in a directory ends with that directory.
    pub fn version_of(&self, place: &str, path: &GoPath) -> Result<VersionKey, GoTagFault> {
        let suffix = path.major_suffix();
        let base = &path.as_str()[..path.as_str().len() - suffix.len()];
        let is_of_dir = self.dir.is_empty()
            || base
                .strip_suffix(self.dir.as_str())
                .is_some_and(|before| before.ends_with('/'));
        // A directory for a major version has the module of that major version.
        let is_of_place = place == self.dir || suffix.strip_prefix('/') == Some(&self.major());
        if !is_of_dir || !is_of_place {
            return Err(GoTagFault::Directory {
                path: path.clone(),
                dir: place.to_owned(),
            });
        }
        Ok(VersionKey::go(path.clone(), self.version.clone())?)
    }

    /// Returns the major version, such as `v2`.
    fn major(&self) -> String {
        let text = self.version.to_string();
        text.split('.').next().unwrap_or_default().to_owned()
    }
}

/// Returns the module that a repository is by its name: `acme/vpc/aws` for `terraform-aws-vpc` in the namespace `acme`.
pub fn module_of_repository(repository: &str, namespace: &Namespace) -> Option<ModuleName> {
    let name = repository.strip_prefix(MODULE_REPOSITORY)?;
    let (system, name) = name.split_once('-')?;
    format!("{}/{name}/{system}", namespace.as_str())
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag(text: &str) -> TagName {
        text.parse().unwrap()
    }

    #[test]
    fn only_plain_names_are_tags() {
        for text in ["v1.2.3", "modules/vpc/v1.2.3-rc.1", "a+b_c", "1.2.3"] {
            assert_eq!(tag(text).to_string(), text);
        }
        let long = "v".repeat(TagName::MAX_BYTES + 1);
        for text in [
            "",
            "-v1",
            "a/-b",
            "a//b",
            "/a",
            "a/",
            "../a",
            "a/../b",
            "a..b",
            ".a",
            "a.",
            "a.lock",
            "v1 0",
            "v1\n",
            "v1\u{1b}[0m",
            "<b>v1.0.0</b>",
            "v1.0.0^{}",
            "v1:2",
            "v1~1",
            "v1*",
            "é",
            &long,
        ] {
            assert!(text.parse::<TagName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_finds_the_version_in_place_of_its_star() {
        for (pattern, name, version) in [
            ("v*", "v1.2.3", Some("1.2.3")),
            ("*", "1.2.3-rc.1", Some("1.2.3-rc.1")),
            ("vpc-v*", "vpc-v1.2.3", Some("1.2.3")),
            ("modules/vpc/v*", "modules/vpc/v2.0.0", Some("2.0.0")),
            ("v*-vpc", "v1.2.3-vpc", Some("1.2.3")),
            ("vpc-*", "vpc-v1.2.3", None),
            ("v*", "v1.2", None),
            ("v*", "v1.2.3+meta", None),
            ("v*", "v01.2.3", None),
            ("v*", "x1.2.3", None),
            ("vpc-v*", "v1.2.3", None),
        ] {
            let pattern: TagPattern = pattern.parse().unwrap();
            let found = pattern.version_of(&tag(name));
            assert_eq!(
                found.map(|version| version.to_string()).as_deref(),
                version,
                "{pattern} {name}"
            );
        }
        for text in ["", "v", "v**", "*/*", "-*", "a b*", "../*", "*.lock"] {
            assert!(text.parse::<TagPattern>().is_err(), "{text}");
        }
        assert_eq!(TagPattern::of_dir("a/b").unwrap().to_string(), "a/b/v*");
        assert_eq!(TagPattern::of_dir("").unwrap().to_string(), "v*");
    }

    #[test]
    fn a_tag_is_a_version_of_the_module_that_go_finds_by_it() {
        let found = |name: &str, place: &str, path: &str| {
            let go = tag(name).as_go()?;
            if !go.places().iter().any(|known| known == place) {
                return None;
            }
            let key = go.version_of(place, &path.parse().unwrap()).ok()?;
            Some(key.to_string())
        };
        for (name, place, path, version) in [
            (
                "v1.2.3",
                "",
                "example.com/net",
                Some("go example.com/net v1.2.3"),
            ),
            (
                "v0.1.0-rc.1",
                "",
                "example.com/net",
                Some("go example.com/net v0.1.0-rc.1"),
            ),
            (
                "http/v1.2.3",
                "http",
                "example.com/net/http",
                Some("go example.com/net/http v1.2.3"),
            ),
            (
                "v2.0.0",
                "",
                "example.com/net/v2",
                Some("go example.com/net/v2 v2.0.0"),
            ),
            (
                "v2.0.0",
                "v2",
                "example.com/net/v2",
                Some("go example.com/net/v2 v2.0.0"),
            ),
            (
                "http/v2.0.0",
                "http/v2",
                "example.com/net/http/v2",
                Some("go example.com/net/http/v2 v2.0.0"),
            ),
            (
                "http/v2.0.0",
                "http",
                "example.com/net/http/v2",
                Some("go example.com/net/http/v2 v2.0.0"),
            ),
            // The major version is no part of a tag.
            ("v2/v2.0.0", "v2", "example.com/net/v2", None),
            // These are versions of other modules, or of none.
            ("v2.0.0", "", "example.com/net", None),
            ("v1.0.0", "", "example.com/net/v2", None),
            ("v2.0.0", "v2", "example.com/net", None),
            ("v3.0.0", "v3", "example.com/net/v2", None),
            ("http/v1.2.3", "http", "example.com/net", None),
            ("http/v1.2.3", "http", "example.com/nethttp", None),
            ("http/v1.2.3", "", "example.com/net", None),
            ("v1.2.3", "v1", "example.com/net", None),
            ("v1.2", "", "example.com/net", None),
            ("v1.2.3+incompatible", "", "example.com/net", None),
            (
                "v0.0.0-20191109021931-daa7c04131f5",
                "",
                "example.com/net",
                None,
            ),
            ("1.2.3", "", "example.com/net", None),
        ] {
            assert_eq!(
                found(name, place, path).as_deref(),
                version,
                "{name} in `{place}`, {path}"
            );
        }
    }

    #[test]
    fn a_repository_is_a_module_by_its_name() {
        let acme: Namespace = "acme".parse().unwrap();
        for (repository, name) in [
            ("terraform-aws-vpc", Some("acme/vpc/aws")),
            (
                "terraform-aws-vpc-endpoints",
                Some("acme/vpc-endpoints/aws"),
            ),
            ("terraform-aws", None),
            ("terraform-aws-", None),
            ("terraform-AWS-vpc", None),
            ("network", None),
        ] {
            let found = module_of_repository(repository, &acme);
            assert_eq!(
                found.map(|name| name.to_string()).as_deref(),
                name,
                "{repository}"
            );
        }
    }

    #[test]
    fn tags_are_ordered_by_their_numbers() {
        assert_eq!(tag("modules/vpc-v1.20.3-rc.1").numbers(), Some((1, 20, 3)));
        assert_eq!(tag("nightly").numbers(), None);
        assert_eq!(tag("v1.2").numbers(), None);
    }

    proptest! {
        #[test]
        fn every_version_that_is_found_is_named_by_the_tag(text in "(v|vpc-v|a/v|)[0-9]{1,2}\\.[0-9]{1,2}\\.[0-9]{1,2}(-rc\\.[0-9])?(\\+b)?") {
            let name = tag(&text);
            prop_assert!(name.numbers().is_some());
            if let Some(version) = name.module_version() {
                let (plain, with_v) = (version.to_string(), format!("v{version}"));
                prop_assert!(text == plain || text == with_v);
            }
            if let Some(go) = name.as_go() {
                let path: GoPath = "example.com/m/a".parse().unwrap();
                if let Ok(key) = go.version_of(&go.places()[0], &path) {
                    prop_assert!(text.ends_with(&key.version()));
                }
            }
        }

        #[test]
        fn no_text_is_both_a_tag_and_dangerous(text in "[a-z0-9./+_ <>$'~^:-]{1,8}") {
            if let Ok(name) = text.parse::<TagName>() {
                prop_assert!(!name.as_str().starts_with('-'));
                prop_assert!(!name.as_str().contains(".."));
                let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"./+_-".contains(&c);
                prop_assert!(name.as_str().bytes().all(is_plain));
            }
        }
    }
}
