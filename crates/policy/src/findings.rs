//! Findings of policies in a plan.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chrono::NaiveDate;
use lockkeeper_model::model::{Sha256Digest, is_hidden};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::bounded::add_to_digest;

/// One finding of one policy set in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFinding {
    /// Weight of the finding.
    pub level: FindingLevel,
    /// Rule, such as `main.deny` or `CKV_AWS_20`; empty if the tool names none. Waivers compare it.
    pub rule: String,
    /// Text for people, on one line.
    pub message: String,
    /// Address of the resource, if the tool names one. Waivers compare it.
    pub resource: Option<String>,
    /// File and line, if the tool names them.
    pub place: Option<FindingPlace>,
    /// Address of further reading for people.
    pub link: Option<String>,
    /// Longer text for people, folded in comments.
    pub evidence: Option<String>,
    /// Digest of everything else that the tool says about the finding, and of texts before they were cleaned or shortened.
    /// It is not shown, and tells findings apart.
    pub other: Option<Sha256Digest>,
    /// Waiver that takes the finding out.
    pub waived: Option<AppliedWaiver>,
}

/// Weight of a finding, worst first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum FindingLevel {
    /// A violation, which owners of the set can approve.
    Deny,
    /// A violation that passes with this many approvals, of these teams if any are named.
    RequireApproval { count: u32, teams: Vec<String> },
    /// A hint that refuses nothing.
    Warn,
}

/// Place in the code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FindingPlace {
    /// Path in the repository.
    pub file: String,
    /// Line from 1; `None` if only the file is known.
    pub line: Option<u32>,
}

/// A waiver that takes a finding out, as comments name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedWaiver {
    /// Reason of the waiver.
    pub reason: String,
    /// Person who answers for it.
    pub owner: String,
    /// Last day on which it applies, as `2026-12-31`.
    pub until: String,
}

/// Keys of a result of a Rego rule beside `msg`, for both engines.
#[derive(Debug, Clone, Default)]
pub struct RegoKeys {
    /// Address of the resource, or the resource itself with its `address`.
    resource: Option<Value>,
    /// Path in the repository.
    file: Option<Value>,
    /// Line of the file, from 1.
    line: Option<Value>,
    /// Address of further reading for people.
    link: Option<Value>,
    /// Longer text for people, or any other value.
    details: Option<Value>,
    /// Approvals that let the violation pass: `{"count": 2, "teams": ["acme/security"]}`.
    require_approval: Option<Value>,
    /// All other keys. They are not shown, and tell results apart.
    others: BTreeMap<String, Value>,
}

/// Reason why an output does not say what was found. Nothing passes on such an output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The tool printed nothing.
    #[error("the output is empty, so nothing shows that any policy was evaluated")]
    Empty,
    /// The output is larger than [`MAX_INPUT`].
    #[error("the output is larger than {} MiB", MAX_INPUT >> 20)]
    TooLarge,
    /// The output has more findings than [`MAX_READ`].
    #[error("the output has more than {} findings", MAX_READ)]
    TooMany,
    /// The output has another format.
    #[error("the output is not {format}: {problem}")]
    Format {
        /// Expected format, such as "a SARIF 2.1.0 log".
        format: &'static str,
        /// First problem, with its position if the reader has one.
        problem: String,
    },
    /// The output says that something was not evaluated. Holds a clause for people.
    #[error("{0}")]
    NotEvaluated(String),
    /// A rule has a key that this program reads, with a value that it does not understand.
    #[error(
        "`require_approval` of the rule `{rule}` must be an object such as {{\"count\": 2, \"teams\": [\"acme/security\"]}}: {problem}"
    )]
    Approval {
        /// Rule, such as `main.violation`.
        rule: String,
        /// Explanation of the problem for people.
        problem: String,
    },
}

/// Maximum size of an output that is read, in bytes.
pub const MAX_INPUT: usize = 8 << 20;

/// Maximum number of findings that are read from one output.
pub const MAX_READ: usize = 10_000;

/// Maximum number of approvals that a rule can require.
pub const MAX_APPROVALS: u32 = 100;

// Limits of the texts of a finding, in bytes.
const MAX_RULE: usize = 200;
const MAX_MESSAGE: usize = 1000;
const MAX_RESOURCE: usize = 500;
const MAX_FILE: usize = 1024;
const MAX_LINK: usize = 500;
const MAX_EVIDENCE: usize = 4000;
const MAX_TEAM: usize = 200;
const MAX_TEAMS: usize = 50;

/// Message of a finding without one.
pub(crate) const NO_MESSAGE: &str = "The rule gives no message.";

impl PolicyFinding {
    /// Returns a finding with only a level, a rule and a message.
    pub fn new(level: FindingLevel, rule: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            level,
            rule: rule.into(),
            message: message.into(),
            resource: None,
            place: None,
            link: None,
            evidence: None,
            other: None,
            waived: None,
        }
    }

    /// Returns a violation with only a rule and a message.
    pub fn deny(rule: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FindingLevel::Deny, rule, message)
    }

    /// Returns a hint with only a rule and a message.
    pub fn warn(rule: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FindingLevel::Warn, rule, message)
    }

    /// Returns a violation that passes with approvals.
    pub fn require_approval(
        count: u32,
        teams: Vec<String>,
        rule: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::new(
            FindingLevel::RequireApproval { count, teams },
            rule,
            message,
        )
    }

    /// Returns the finding of a result of a Rego rule. A key `require_approval` replaces the level, of hints as well.
    ///
    /// Texts that are something else are kept as JSON, and everything that is not shown has a digest, so that different
    /// results stay different findings.
    pub fn of_rego(
        level: FindingLevel,
        rule: &str,
        message: &str,
        keys: RegoKeys,
    ) -> Result<Self, ReadError> {
        let RegoKeys {
            resource,
            file,
            line,
            link,
            details,
            require_approval,
            mut others,
        } = keys;
        let level = match require_approval {
            Some(value) => level_of_approval(rule, value)?,
            None => level,
        };
        if let Some(whole @ Value::Object(_)) = &resource {
            others.insert("resource".to_owned(), whole.clone());
        }
        if let Some(link) = &link {
            others.insert("link".to_owned(), link.clone());
        }
        let line = line.as_ref().and_then(line_of);
        let place = file
            .and_then(text_of)
            .map(|file| FindingPlace { file, line });
        let finding = Self {
            resource: resource.and_then(resource_of),
            place,
            link: link.and_then(text_of),
            evidence: details.and_then(evidence_of),
            other: digest_of(&others),
            ..Self::new(level, rule, message)
        };
        Ok(finding.clean())
    }

    /// Returns true for a finding that refuses the apply until it is approved.
    pub fn is_violation(&self) -> bool {
        self.waived.is_none() && self.level != FindingLevel::Warn
    }

    /// Returns a text that is equal for violations that one approval covers. The line is part of it only if there is no
    /// resource: it changes with every line above.
    pub fn identity(&self) -> String {
        let place = self.place.as_ref();
        let file = place.map(|place| place.file.as_str());
        let line = place
            .and_then(|place| place.line)
            .filter(|_| self.resource.is_none());
        json!([
            self.level,
            self.rule,
            self.message,
            self.resource,
            file,
            line,
            self.evidence,
            self.other,
        ])
        .to_string()
    }

    /// Adds a text to the digest that tells findings apart, such as the text before a filter.
    pub fn tell_apart(&mut self, text: &str) {
        add_to_digest(&mut self.other, text);
    }

    /// Removes everything that comments and databases could not keep, and shortens texts. The digests of all texts that
    /// are changed by that become a part of `other`, so that findings which differ only there stay different.
    ///
    /// The rule and the resource have no character removed, because waivers compare them: hidden characters are written
    /// as `\u{34f}`.
    #[must_use]
    pub fn clean(self) -> Self {
        let mut changed: BTreeMap<&'static str, Sha256Digest> = BTreeMap::new();
        let mut compare = |key: &'static str, raw: &str, clean: &str| {
            if raw != clean {
                changed.insert(key, Sha256Digest::of(raw.as_bytes()));
            }
        };
        let rule = visible_name(&self.rule, MAX_RULE);
        compare("rule", &self.rule, &rule);
        let message = one_line(&self.message, MAX_MESSAGE);
        compare("message", &self.message, &message);
        let resource = self.resource.map(|raw| {
            let name = visible_name(&raw, MAX_RESOURCE);
            compare("resource", &raw, &name);
            name
        });
        let place = self.place.and_then(|raw| {
            let place = raw.clean();
            let file = place.as_ref().map_or("", |place| place.file.as_str());
            compare("file", &raw.file, file);
            place
        });
        let evidence = self.evidence.map(|raw| {
            let text = block(raw.clone(), MAX_EVIDENCE);
            compare("evidence", &raw, &text);
            text
        });
        let mut other = self.other;
        if !changed.is_empty() {
            add_to_digest(&mut other, &changed);
        }
        Self {
            level: self.level.clean(),
            rule,
            message: if message.is_empty() {
                NO_MESSAGE.to_owned()
            } else {
                message
            },
            resource: resource.filter(|name| !name.is_empty()),
            place,
            link: self.link.filter(|link| is_link(link)),
            evidence: evidence.filter(|text| !text.is_empty()),
            other,
            waived: self.waived.map(|waiver| AppliedWaiver {
                reason: one_line(&waiver.reason, MAX_MESSAGE),
                owner: one_line(&waiver.owner, MAX_RULE),
                until: one_line(&waiver.until, MAX_RULE),
            }),
        }
    }
}

impl RegoKeys {
    /// Takes the keys out of a result.
    pub fn of(mut result: Map<String, Value>) -> Self {
        let mut take = |key: &str| result.remove(key);
        Self {
            resource: take("resource"),
            file: take("file"),
            line: take("line"),
            link: take("link"),
            details: take("details"),
            require_approval: take("require_approval"),
            others: result.into_iter().collect(),
        }
        .with_place()
    }

    /// Takes the place out of the key that conftest reads, unless the result has a key `file`.
    fn with_place(mut self) -> Self {
        if self.file.is_none()
            && let Some(Value::Object(place)) = self.others.get("_loc")
        {
            (self.file, self.line) = (place.get("file").cloned(), place.get("line").cloned());
            self.others.remove("_loc");
        }
        self
    }
}

impl FindingLevel {
    /// Returns the level of a violation that passes with approvals, from `{"count": 2, "teams": ["acme/security"]}`. The error
    /// explains the problem.
    pub(crate) fn of_approval(value: Value) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RawApproval {
            #[serde(default = "one_approval")]
            count: u32,
            #[serde(default)]
            teams: Vec<String>,
        }

        if !value.is_object() {
            return Err(format!("expected an object, found {}", kind_of(&value)));
        }
        let RawApproval { count, mut teams } =
            serde_json::from_value(value).map_err(|error| error.to_string())?;
        if !(1..=MAX_APPROVALS).contains(&count) {
            return Err(format!("`count` must be 1 to {MAX_APPROVALS}"));
        }
        let fine = |team: &String| !team.is_empty() && one_line(team, MAX_TEAM) == *team;
        if teams.len() > MAX_TEAMS || !teams.iter().all(fine) {
            return Err(format!("`teams` must be at most {MAX_TEAMS} names"));
        }
        teams.sort();
        teams.dedup();
        Ok(Self::RequireApproval { count, teams })
    }

    /// Limits the teams. Approvals of teams that are left out do not count.
    fn clean(self) -> Self {
        match self {
            Self::RequireApproval { count, mut teams } => {
                teams.truncate(MAX_TEAMS);
                let teams = teams.iter().map(|team| one_line(team, MAX_TEAM)).collect();
                Self::RequireApproval {
                    count: count.max(1),
                    teams,
                }
            }
            Self::Deny => Self::Deny,
            Self::Warn => Self::Warn,
        }
    }
}

impl AppliedWaiver {
    /// Returns the last day on which the waiver applies; `None` if nobody can read it.
    pub fn last_day(&self) -> Option<NaiveDate> {
        self.until.parse().ok()
    }
}

impl FindingPlace {
    fn clean(&self) -> Option<Self> {
        let file = one_line(&self.file, MAX_FILE);
        (!file.is_empty()).then_some(Self {
            file,
            line: self.line.filter(|line| *line > 0),
        })
    }
}

/// Sorts findings: violations first, worst first, then by resource and message.
pub fn sort(findings: &mut [PolicyFinding]) {
    findings.sort_by(|one, other| {
        let (waived, other_waived) = (one.waived.is_some(), other.waived.is_some());
        waived
            .cmp(&other_waived)
            .then_with(|| one.level.cmp(&other.level))
            .then_with(|| one.resource.cmp(&other.resource))
            .then_with(|| one.message.cmp(&other.message))
            .then_with(|| one.rule.cmp(&other.rule))
            .then_with(|| one.place.cmp(&other.place))
            .then_with(|| one.evidence.cmp(&other.evidence))
            .then_with(|| text_of_digest(one).cmp(&text_of_digest(other)))
    });
}

fn text_of_digest(finding: &PolicyFinding) -> Option<&str> {
    finding.other.as_ref().map(Sha256Digest::as_str)
}

/// Returns an output without a byte order mark, if it is neither empty nor too large.
pub(crate) fn input(text: &str) -> Result<&str, ReadError> {
    if text.len() > MAX_INPUT {
        return Err(ReadError::TooLarge);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(ReadError::Empty);
    }
    Ok(text)
}

/// Puts a text on one line of at most `limit` bytes.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut visible = word.chars().filter(|c| !is_hidden(*c)).peekable();
        if visible.peek().is_some() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.extend(visible);
        }
    }
    shorten(line, limit)
}

/// Removes everything from a text but lines, tabs and visible characters, and shortens it to `limit` bytes.
pub(crate) fn block(text: String, limit: usize) -> String {
    shorten(visible_lines(text).trim().to_owned(), limit)
}

/// Removes control characters and invisible ones, but keeps lines and tabs.
pub(crate) fn visible_lines(mut text: String) -> String {
    text.retain(|c| c == '\n' || !is_hidden(c));
    text
}

/// Writes the hidden characters of a name as `\u{34f}`, and white space as well, unless it is one space between two words.
/// Waivers compare names, so no character is removed. A name of more than `limit` bytes ends with its whole digest.
fn visible_name(text: &str, limit: usize) -> String {
    let mut name = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let is_between = !name.is_empty() && !name.ends_with(' ') && !rest.as_str().is_empty();
        let is_plain = match c {
            ' ' => is_between,
            c => !is_hidden(c) && !c.is_whitespace(),
        };
        if is_plain {
            name.push(c);
        } else {
            write!(name, "{}", c.escape_unicode()).ok();
        }
        if name.len() > limit {
            return cut(name, limit, Sha256Digest::of(text.as_bytes()).as_str());
        }
    }
    name
}

/// Shortens a text to `limit` bytes. A shortened text ends with a part of its digest, so that people can tell such texts
/// apart. Their whole digest is a part of [`PolicyFinding::other`].
fn shorten(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let digest = Sha256Digest::of(text.as_bytes());
    cut(text, limit, &digest.as_str()[..16])
}

/// Cuts a text, and ends it with a digest. Both have at most `limit` bytes together.
fn cut(mut text: String, limit: usize, digest: &str) -> String {
    let mark = format!("… [{digest}]");
    let end = text.floor_char_boundary(limit.saturating_sub(mark.len() + 1));
    text.truncate(text[..end].trim_end().len());
    text.push(' ');
    text.push_str(&mark);
    text
}

/// Returns true for an address that comments can link to.
fn is_link(text: &str) -> bool {
    let tail = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    tail.is_some_and(|tail| {
        !tail.is_empty()
            && text.len() <= MAX_LINK
            && tail.chars().all(|c| {
                c.is_ascii_graphic()
                    && !matches!(
                        c,
                        '<' | '>' | '"' | '`' | '\\' | '|' | '(' | ')' | '[' | ']'
                    )
            })
    })
}

fn level_of_approval(rule: &str, value: Value) -> Result<FindingLevel, ReadError> {
    FindingLevel::of_approval(value).map_err(|problem| ReadError::Approval {
        rule: one_line(rule, MAX_RULE),
        problem: one_line(&problem, MAX_MESSAGE),
    })
}

/// Returns the digest of keys and their values; `None` if there are none.
fn digest_of(keys: &BTreeMap<String, Value>) -> Option<Sha256Digest> {
    if keys.is_empty() {
        return None;
    }
    let text = serde_json::to_string(keys).expect("values of JSON are always JSON");
    Some(Sha256Digest::of(text.as_bytes()))
}

fn one_approval() -> u32 {
    1
}

/// Returns the kind of a value, with its article.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn text_of(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Some(other.to_string())
        }
    }
}

/// Returns the address of a resource: rules often hand on the whole resource.
fn resource_of(value: Value) -> Option<String> {
    match value.get("address").and_then(Value::as_str) {
        Some(address) => Some(address.to_owned()),
        None => text_of(value),
    }
}

fn evidence_of(value: Value) -> Option<String> {
    match value {
        list @ (Value::Array(_) | Value::Object(_)) => serde_json::to_string_pretty(&list).ok(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            text_of(other)
        }
    }
}

fn line_of(value: &Value) -> Option<u32> {
    let number = match value.as_str() {
        Some(text) => text.trim().parse().ok()?,
        None => value.as_u64()?,
    };
    u32::try_from(number).ok().filter(|line| *line > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(value: Value) -> RegoKeys {
        RegoKeys::of(serde_json::from_value(value).unwrap())
    }

    fn denied(value: Value) -> PolicyFinding {
        PolicyFinding::of_rego(FindingLevel::Deny, "main.deny", "m", keys(value)).unwrap()
    }

    #[test]
    fn a_result_of_rego_has_all_keys() {
        let finding = PolicyFinding::of_rego(
            FindingLevel::Deny,
            "main.deny_public",
            "Bucket is public",
            keys(json!({
                "resource": "aws_s3_bucket.logs",
                "file": "prod/main.tf",
                "line": 12,
                "link": "https://wiki.example.com/s3",
                "details": "acl is `public-read`\nsince last week",
            })),
        );
        let expected = PolicyFinding {
            resource: Some("aws_s3_bucket.logs".to_owned()),
            place: Some(FindingPlace {
                file: "prod/main.tf".to_owned(),
                line: Some(12),
            }),
            link: Some("https://wiki.example.com/s3".to_owned()),
            evidence: Some("acl is `public-read`\nsince last week".to_owned()),
            other: Some(Sha256Digest::of(
                br#"{"link":"https://wiki.example.com/s3"}"#,
            )),
            ..PolicyFinding::deny("main.deny_public", "Bucket is public")
        };
        assert_eq!(finding, Ok(expected));
    }

    #[test]
    fn values_of_other_types_are_kept_as_json() {
        let finding = PolicyFinding::of_rego(
            FindingLevel::Warn,
            "main.warn",
            "",
            keys(json!({
                "resource": {"address": "null_resource.a", "mode": "managed"},
                "file": 7,
                "line": "8",
                "link": ["https://example.com"],
                "details": {"b": 1},
            })),
        )
        .unwrap();
        assert_eq!(finding.message, NO_MESSAGE);
        assert_eq!(finding.resource.as_deref(), Some("null_resource.a"));
        let place = finding.place.unwrap();
        assert_eq!((place.file.as_str(), place.line), ("7", Some(8)));
        assert_eq!(finding.link, None);
        assert_eq!(finding.evidence.as_deref(), Some("{\n  \"b\": 1\n}"));
        let other = PolicyFinding::of_rego(
            FindingLevel::Warn,
            "main.warn",
            "",
            keys(json!({"resource": ["a"], "file": null, "line": -1})),
        )
        .unwrap();
        assert_eq!(other.resource.as_deref(), Some("[\"a\"]"));
        assert_eq!(other.place, None);
    }

    #[test]
    fn everything_in_a_result_tells_it_apart() {
        let results = [
            json!({}),
            json!({"address": "aws_s3_bucket.a"}),
            json!({"address": "aws_s3_bucket.b"}),
            json!({"id": "X1", "severity": "high"}),
            json!({"id": "X1", "severity": "low"}),
            json!({"resource": "aws_s3_bucket.a"}),
            json!({"resource": {"address": "aws_s3_bucket.a"}}),
            json!({"resource": {"address": "aws_s3_bucket.b"}}),
            json!({"resource": {"address": "aws_s3_bucket.a", "acl": "public"}}),
            json!({"resource": {"name": "a"}}),
            json!({"resource": {"name": "b"}}),
            json!({"link": ["https://example.com/a"]}),
            json!({"link": ["https://example.com/b"]}),
            json!({"line": 7}),
            json!({"_loc": 7}),
        ];
        // A line without a file says nothing.
        let found: Vec<PolicyFinding> = results.iter().cloned().map(denied).collect();
        assert_eq!(found[0], found[13]);
        for (n, finding) in found.iter().enumerate().filter(|(n, _)| *n != 13) {
            let same = found[..n].contains(finding);
            assert!(!same, "{}", results[n]);
        }
    }

    #[test]
    fn the_place_for_conftest_is_a_place() {
        let place = |value: Value| {
            let place = denied(value).place.unwrap();
            (place.file, place.line)
        };
        let at = |file: &str, line| (file.to_owned(), Some(line));
        assert_eq!(
            place(json!({"_loc": {"file": "a.tf", "line": 3}})),
            at("a.tf", 3)
        );
        let both = json!({"file": "b.tf", "line": 4, "_loc": {"file": "a.tf", "line": 3}});
        assert_eq!(place(both), at("b.tf", 4));
    }

    #[test]
    fn approvals_that_a_rule_requires_replace_the_level() {
        let level = |value: Value| {
            let keys = keys(json!({"require_approval": value}));
            PolicyFinding::of_rego(FindingLevel::Warn, "main.warn", "m", keys)
                .map(|found| found.level)
        };
        let two = FindingLevel::RequireApproval {
            count: 2,
            teams: vec!["a/b".to_owned(), "a/c".to_owned()],
        };
        assert_eq!(
            level(json!({"count": 2, "teams": ["a/c", "a/b", "a/c"]})),
            Ok(two)
        );
        let one = FindingLevel::RequireApproval {
            count: 1,
            teams: vec![],
        };
        assert_eq!(level(json!({})), Ok(one));
        for wrong in [
            json!(true),
            json!(2),
            json!("acme/security"),
            json!({"count": 0}),
            json!({"count": 101}),
            json!({"count": "2"}),
            json!({"teams": "acme/security"}),
            json!({"teams": [""]}),
            json!({"teams": ["a\nb"]}),
            json!({"team": ["acme/security"]}),
            json!({"teams": ["acme/security"], "cout": 3}),
            json!([2, ["acme/security"]]),
            json!({"teams": vec!["acme/security"; MAX_TEAMS + 1]}),
            json!({"teams": ["x".repeat(MAX_TEAM + 1)]}),
            json!(null),
        ] {
            let error = level(wrong.clone()).unwrap_err();
            assert!(
                matches!(error, ReadError::Approval { .. }),
                "{wrong}: {error}"
            );
            assert!(error.to_string().contains("`main.warn`"), "{error}");
        }
    }

    #[test]
    fn the_worst_findings_come_first_and_waived_ones_last() {
        let waived = PolicyFinding {
            waived: Some(AppliedWaiver {
                reason: "r".to_owned(),
                owner: "o".to_owned(),
                until: "2026-12-31".to_owned(),
            }),
            ..PolicyFinding::deny("r", "waived")
        };
        let of_resource = |resource: &str, message: &str| PolicyFinding {
            resource: Some(resource.to_owned()),
            ..PolicyFinding::deny("r", message)
        };
        let sorted = [
            PolicyFinding::deny("r", "z"),
            of_resource("a", "b"),
            of_resource("a", "c"),
            of_resource("b", "a"),
            PolicyFinding::require_approval(1, vec![], "r", "a"),
            PolicyFinding::warn("r", "a"),
            waived,
        ];
        let mut findings: Vec<PolicyFinding> = sorted.iter().rev().cloned().collect();
        sort(&mut findings);
        assert_eq!(findings, sorted);
    }

    /// Returns findings in which one text has this value, for each text that approvals cover.
    fn with_text(text: &str) -> [PolicyFinding; 5] {
        let base = || PolicyFinding::deny("r", "m");
        let text = || text.to_owned();
        let rule = PolicyFinding::deny(text(), "m");
        let message = PolicyFinding::deny("r", text());
        let resource = PolicyFinding {
            resource: Some(text()),
            ..base()
        };
        let place = PolicyFinding {
            place: Some(FindingPlace {
                file: text(),
                line: None,
            }),
            ..base()
        };
        let evidence = PolicyFinding {
            evidence: Some(text()),
            ..base()
        };
        [rule, message, resource, place, evidence]
    }

    #[test]
    fn texts_that_differ_only_after_the_limit_stay_different() {
        let long = "word ".repeat(1000);
        let ones = with_text(&format!("{long}a")).map(PolicyFinding::clean);
        let others = with_text(&format!("{long}b")).map(PolicyFinding::clean);
        for (one, other) in ones.iter().zip(&others) {
            assert_ne!(one.identity(), other.identity(), "{one:?}");
            assert!(one.other.is_some(), "the whole digest counts: {one:?}");
            assert_ne!(one.other, other.other);
        }
        let [rule, message, resource, ..] = ones;
        assert!(message.message.starts_with("word word"), "{message:?}");
        assert!(message.message.len() <= MAX_MESSAGE);
        // Waivers compare these without `other`.
        let digest = Sha256Digest::of(format!("{long}a").as_bytes());
        let end = format!("… [{}]", digest.as_str());
        let resource = resource.resource.unwrap();
        assert!(resource.ends_with(&end) && resource.len() <= MAX_RESOURCE);
        assert!(rule.rule.ends_with(&end) && rule.rule.len() <= MAX_RULE);
    }

    #[test]
    fn texts_that_differ_only_in_hidden_characters_or_white_space_stay_different() {
        let hidden = (0..=0xe_0fff_u32)
            .filter_map(char::from_u32)
            .filter(|c| is_hidden(*c))
            .map(String::from);
        let spaces = ["  ", "\t", "\n", "\u{a0}", "\r\n"].map(str::to_owned);
        let mut texts = vec![" a[\"b c\"]".to_owned(), "a[\"b c\"] ".to_owned()];
        for between in hidden.chain(spaces) {
            texts.push(format!("a[\"b{between} c\"]"));
        }
        let plain = with_text("a[\"b c\"]").map(PolicyFinding::clean);
        assert!(plain.iter().all(|finding| finding.other.is_none()));
        for text in texts {
            let found = with_text(&text).map(PolicyFinding::clean);
            for (plain, found) in plain.iter().zip(&found) {
                assert_ne!(plain.identity(), found.identity(), "{text:?}");
            }
            let [rule, _, resource, ..] = found;
            let [plain_rule, _, plain_resource, ..] = &plain;
            assert_ne!(rule.rule, plain_rule.rule, "{text:?}");
            assert_ne!(resource.resource, plain_resource.resource, "{text:?}");
        }
    }

    #[test]
    fn hidden_characters_of_names_are_shown() {
        for (text, expected) in [
            ("a[\"b\u{34f}\"]", r#"a["b\u{34f}"]"#),
            ("a  b", r"a \u{20}b"),
            (" a\t", r"\u{20}a\u{9}"),
            ("a b\u{2003}c", r"a b\u{2003}c"),
            ("größe", "größe"),
        ] {
            let [rule, _, resource, ..] = with_text(text).map(PolicyFinding::clean);
            assert_eq!(rule.rule, expected, "{text:?}");
            assert_eq!(resource.resource.as_deref(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn only_addresses_that_comments_can_link_to_are_links() {
        for (link, fine) in [
            ("https://example.com/a?b=c#d", true),
            ("http://example.com", true),
            ("https://", false),
            ("javascript:alert(1)", false),
            ("https://example.com/a b", false),
            ("https://example.com/)[x](https://evil.example", false),
            ("https://example.com/\u{202e}", false),
            ("//example.com", false),
        ] {
            let finding = PolicyFinding {
                link: Some(link.to_owned()),
                ..PolicyFinding::deny("r", "m")
            };
            assert_eq!(finding.clean().link.is_some(), fine, "{link}");
        }
    }

    proptest! {
        #[test]
        fn cleaning_is_idempotent_and_bounded(
            message in r"(?s).{0,60}",
            evidence in r"(?s).{0,60}",
            file in "[a-z \n\0\u{200b}]{0,20}",
        ) {
            let finding = PolicyFinding {
                resource: Some(evidence.repeat(9)),
                evidence: Some(evidence.repeat(60)),
                place: Some(FindingPlace { file, line: Some(0) }),
                ..PolicyFinding::deny("r\0", message.repeat(30))
            };
            let clean = finding.clean();
            prop_assert!(clean.message.len() <= MAX_MESSAGE);
            prop_assert!(!clean.message.is_empty());
            prop_assert!(!clean.message.contains(|c: char| is_hidden(c) || c == '\n'));
            let resource = clean.resource.clone().unwrap_or_default();
            prop_assert!(resource.len() <= MAX_RESOURCE);
            prop_assert!(!resource.contains(|c: char| is_hidden(c) || c == '\t'));
            let evidence = clean.evidence.clone().unwrap_or_default();
            prop_assert!(evidence.len() <= MAX_EVIDENCE);
            prop_assert!(!evidence.contains(|c: char| is_hidden(c) && c != '\n'));
            prop_assert_eq!(clean.clone().clean(), clean);
        }
    }
}
