//! Waivers: exceptions from rules, each with an owner and a last day. They are in a file on a trusted branch:
//!
//! ```yaml
//! waivers:
//!   - rule: main.deny_public_bucket
//!     resource: aws_s3_bucket.website
//!     reason: The website is public.
//!     owner: alice
//!     until: 2026-12-31
//! ```
//!
//! Every key is required, so that no waiver is for everything or forever by accident. In `resource`, `*` stands for any
//! text; other characters stand for themselves, because addresses of resources have brackets and quotes. Findings have hidden
//! characters as `\u{34f}`, and waivers as well.

use std::cmp::Reverse;

use chrono::NaiveDate;
use regex::Regex;
use serde::Deserialize;
use serde_saphyr::options::DuplicateKeyPolicy;

use crate::findings::{AppliedWaiver, PolicyFinding};

/// Maximum size of a file of waivers, in bytes.
pub const MAX_BYTES: usize = 256 * 1024;
/// Maximum number of waivers in a file.
pub const MAX_WAIVERS: usize = 1000;
/// Maximum number of characters of each text.
const MAX_TEXT: usize = 500;
/// Maximum depth of lists and mappings. The file needs three levels.
const MAX_DEPTH: usize = 8;
/// Maximum number of events that aliases in the file expand to.
const MAX_REPLAYED_EVENTS: usize = 10_000;

/// Exception from a rule for some resources, with an owner and a last day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiver {
    /// Rule, as the finding names it.
    pub rule: String,
    /// Address of the resource, with `*` for any text. Only `*` alone matches findings without a resource.
    pub resource: String,
    /// Reason that comments show.
    pub reason: String,
    /// Person who answers for the waiver.
    pub owner: String,
    /// Last day on which the waiver applies.
    pub until: NaiveDate,
}

/// Reason that a file of waivers cannot be used. No waiver of the file applies then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaiverError {
    #[error("the file of waivers is larger than {} KiB. Remove waivers that have ended", MAX_BYTES / 1024)]
    TooLarge,
    #[error(
        "the file has {0} waivers; at most {MAX_WAIVERS} are read. Remove waivers that have ended"
    )]
    TooMany(usize),
    /// Holds the message of the reader of YAML.
    #[error("the file of waivers is not as expected: {0}")]
    Unreadable(String),
    #[error("waiver {number} (`{key}`): {problem}")]
    Invalid {
        /// Number of the waiver in the file, from 1.
        number: usize,
        /// Key with the problem.
        key: &'static str,
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWaivers {
    #[serde(default)]
    waivers: Option<Vec<RawWaiver>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWaiver {
    rule: String,
    resource: String,
    reason: String,
    owner: String,
    until: String,
}

/// Reads a file of waivers, YAML or JSON. An empty file has none.
pub fn read(text: &str) -> Result<Vec<Waiver>, WaiverError> {
    if text.len() > MAX_BYTES {
        return Err(WaiverError::TooLarge);
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, flow_nesting_limit: MAX_DEPTH },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED_EVENTS },
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    };
    let raw = match serde_saphyr::from_str_with_options::<RawWaivers>(text, options) {
        Ok(raw) => raw.waivers.unwrap_or_default(),
        Err(serde_saphyr::Error::Eof { .. }) => Vec::new(),
        Err(error) => {
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default();
            return Err(WaiverError::Unreadable(first.to_owned()));
        }
    };
    if raw.len() > MAX_WAIVERS {
        return Err(WaiverError::TooMany(raw.len()));
    }
    raw.into_iter()
        .enumerate()
        .map(|(at, raw)| raw.validate(at + 1))
        .collect()
}

impl RawWaiver {
    fn validate(self, number: usize) -> Result<Waiver, WaiverError> {
        let invalid = |key, problem: &str| WaiverError::Invalid {
            number,
            key,
            problem: problem.to_owned(),
        };
        let text = |key, text: String| {
            let text = text.trim().to_owned();
            if text.is_empty() {
                return Err(invalid(key, "it is empty"));
            }
            if text.chars().count() > MAX_TEXT || text.chars().any(char::is_control) {
                let problem = format!("write one line of at most {MAX_TEXT} characters");
                return Err(invalid(key, &problem));
            }
            Ok(text)
        };
        let until = NaiveDate::parse_from_str(self.until.trim(), "%Y-%m-%d")
            .map_err(|_| invalid("until", "write a day, as in 2026-12-31"))?;
        Ok(Waiver {
            rule: text("rule", self.rule)?,
            resource: text("resource", self.resource)?,
            reason: text("reason", self.reason)?,
            owner: text("owner", self.owner)?,
            until,
        })
    }
}

/// Marks the findings that a waiver takes out on this day. Returns a note for each waiver that would have taken out a
/// finding and has ended.
pub fn apply(waivers: &[Waiver], today: NaiveDate, findings: &mut [PolicyFinding]) -> Vec<String> {
    let mut notes = Vec::new();
    let (mut current, ended): (Vec<&Waiver>, Vec<&Waiver>) =
        waivers.iter().partition(|waiver| today <= waiver.until);
    // Of several waivers, a finding keeps the one that applies longest.
    current.sort_by_key(|waiver| Reverse(waiver.until));
    for waiver in current {
        let matches = matcher(waiver);
        for finding in findings.iter_mut().filter(|finding| matches(finding)) {
            finding.waived.get_or_insert_with(|| AppliedWaiver {
                reason: waiver.reason.clone(),
                owner: waiver.owner.clone(),
                until: waiver.until.to_string(),
            });
        }
    }
    for waiver in ended {
        let matches = matcher(waiver);
        let open = findings
            .iter()
            .filter(|finding| finding.waived.is_none() && matches(finding))
            .count();
        if open > 0 {
            let Waiver {
                rule,
                resource,
                owner,
                until,
                ..
            } = waiver;
            notes.push(format!(
                "The waiver of `{rule}` for `{resource}` ended on {until}. Its owner is {owner}."
            ));
        }
    }
    notes
}

/// Returns a predicate for the findings of a waiver. A pattern that cannot be compiled matches nothing.
fn matcher(waiver: &Waiver) -> impl Fn(&PolicyFinding) -> bool {
    let pattern: Vec<String> = waiver.resource.split('*').map(regex::escape).collect();
    let pattern = Regex::new(&format!("(?s)^{}$", pattern.join(".*"))).ok();
    let (rule, is_any) = (waiver.rule.clone(), waiver.resource == "*");
    let is_resource = move |finding: &PolicyFinding| match (&finding.resource, &pattern) {
        (Some(resource), Some(pattern)) => pattern.is_match(resource),
        (Some(_), None) => false,
        (None, _) => is_any,
    };
    // The rule comes first, because there can be a thousand waivers and ten thousand findings.
    move |finding| finding.rule == rule && is_resource(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::FindingLevel;

    const FILE: &str = "waivers:
  - rule: main.deny_public
    resource: aws_s3_bucket.site[\"*\"]
    reason: The website is public.
    owner: alice
    until: 2026-12-31
";

    fn finding(rule: &str, resource: Option<&str>) -> PolicyFinding {
        PolicyFinding {
            level: FindingLevel::Deny,
            rule: rule.to_owned(),
            message: "public".to_owned(),
            resource: resource.map(str::to_owned),
            place: None,
            link: None,
            evidence: None,
            other: None,
            waived: None,
        }
    }

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn a_waiver_takes_out_findings_of_its_rule_and_resource_up_to_its_last_day() {
        let waivers = read(FILE).unwrap();
        let all = [
            ("main.deny_public", Some("aws_s3_bucket.site[\"a\"]")),
            ("main.deny_public", Some("aws_s3_bucket.site[0]")),
            ("main.deny_public", Some("aws_s3_bucket.other")),
            ("main.deny_public", Some("x.aws_s3_bucket.site[\"a\"]")),
            ("main.deny_public", None),
            ("main.deny", Some("aws_s3_bucket.site[\"a\"]")),
        ];
        let mut findings: Vec<PolicyFinding> = all
            .iter()
            .map(|(rule, resource)| finding(rule, *resource))
            .collect();
        assert_eq!(
            apply(&waivers, day("2026-12-31"), &mut findings),
            Vec::<String>::new()
        );
        let waived: Vec<bool> = findings.iter().map(|f| f.waived.is_some()).collect();
        assert_eq!(waived, [true, false, false, false, false, false]);
        assert_eq!(
            findings[0].waived,
            Some(AppliedWaiver {
                reason: "The website is public.".to_owned(),
                owner: "alice".to_owned(),
                until: "2026-12-31".to_owned(),
            })
        );
    }

    #[test]
    fn a_waiver_does_not_apply_to_names_that_only_look_the_same() {
        let waived = |pattern: &str, resource: &str| {
            let mut waivers = read(FILE).unwrap();
            pattern.clone_into(&mut waivers[0].resource);
            let mut findings = [finding("main.deny_public", Some(resource)).clean()];
            apply(&waivers, day("2026-12-31"), &mut findings);
            findings[0].waived.is_some()
        };
        let plain = r#"a.b["the site"]"#;
        assert!(waived(plain, plain));
        for between in ["\u{34f}", "\u{200b}", "\u{e0100}", "\u{0}", " ", "\t"] {
            let resource = format!("a.b[\"the {between}site\"]");
            assert!(!waived(plain, &resource), "{resource:?}");
            assert!(waived(r#"a.b["the *"]"#, &resource), "{resource:?}");
        }
        assert!(waived(r"a.b\u{34f}", "a.b\u{34f}"), "as comments show it");
        // Both have the same beginning, and comments show only that.
        let long = |end: &str| format!("{}{end}", "x".repeat(5000));
        let shown = finding("r", Some(&long("a"))).clean().resource.unwrap();
        assert!(waived(&shown, &long("a")) && !waived(&shown, &long("b")));
        // A rule is compared in the same way.
        let mut findings = [finding("main.deny_public\u{34f}", Some(plain)).clean()];
        let mut waivers = read(FILE).unwrap();
        plain.clone_into(&mut waivers[0].resource);
        apply(&waivers, day("2026-12-31"), &mut findings);
        assert_eq!(findings[0].waived, None);
    }

    #[test]
    fn the_waiver_that_applies_longest_counts() {
        let mut waivers = read(FILE).unwrap();
        let mut longer = waivers[0].clone();
        longer.until = day("2027-06-30");
        waivers.push(longer);
        let mut findings = vec![finding(
            "main.deny_public",
            Some("aws_s3_bucket.site[\"a\"]"),
        )];
        apply(&waivers, day("2026-12-31"), &mut findings);
        let waiver = findings[0].waived.as_ref().unwrap();
        assert_eq!(waiver.last_day(), Some(day("2027-06-30")));
    }

    #[test]
    fn an_ended_waiver_takes_out_nothing_and_is_named() {
        let mut findings = vec![finding(
            "main.deny_public",
            Some("aws_s3_bucket.site[\"a\"]"),
        )];
        let notes = apply(&read(FILE).unwrap(), day("2027-01-01"), &mut findings);
        assert_eq!(
            notes,
            [
                "The waiver of `main.deny_public` for `aws_s3_bucket.site[\"*\"]` ended on 2026-12-31. Its owner is alice."
            ]
        );
        assert_eq!(findings[0].waived, None);
        // Nothing to say where nothing is found.
        assert!(apply(&read(FILE).unwrap(), day("2027-01-01"), &mut []).is_empty());
    }

    #[test]
    fn only_an_asterisk_matches_findings_without_a_resource() {
        for (pattern, expected) in [("*", true), ("**", false), ("a*", false)] {
            let mut waivers = read(FILE).unwrap();
            pattern.clone_into(&mut waivers[0].resource);
            let mut findings = vec![finding("main.deny_public", None)];
            apply(&waivers, day("2026-01-01"), &mut findings);
            assert_eq!(findings[0].waived.is_some(), expected, "{pattern}");
        }
    }

    #[test]
    fn a_file_without_waivers_is_fine() {
        for text in ["", "waivers:\n", "waivers: []\n", "{\"waivers\": []}"] {
            assert_eq!(read(text), Ok(Vec::new()), "{text}");
        }
    }

    #[test]
    fn every_mistake_refuses_the_whole_file() {
        let changed = |from: &str, to: &str| read(&FILE.replace(from, to));
        for (from, to, problem) in [
            ("until: 2026-12-31", "until: soon", "write a day"),
            ("until: 2026-12-31", "until: 2026-13-01", "write a day"),
            ("    until: 2026-12-31\n", "", "until"),
            ("owner: alice", "owner: ''", "it is empty"),
            ("owner: alice", "owner: \"a\\nb\"", "one line"),
            ("reason:", "raeson:", "raeson"),
            ("waivers:", "waiver:", "waiver"),
            ("owner: alice", "owner: alice\n    owner: bob", "owner"),
        ] {
            let error = changed(from, to).unwrap_err().to_string();
            assert!(error.contains(problem), "{to}: {error}");
        }
        assert_eq!(read(&" ".repeat(MAX_BYTES + 1)), Err(WaiverError::TooLarge));
        let entry = FILE.trim_start_matches("waivers:\n");
        let many = format!("waivers:\n{}", entry.repeat(MAX_WAIVERS + 1));
        assert!(matches!(
            read(&many),
            Err(WaiverError::TooMany(_) | WaiverError::Unreadable(_))
        ));
    }
}
