//! Verdict of one policy set on one plan. It is stored with the record of the plan, in the same transaction.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use chrono::NaiveDate;
use lockkeeper_model::model::Sha256Digest;

use crate::findings::{FindingLevel, PolicyFinding, block, one_line, sort, visible_lines};
use crate::sets::{ItemRegex, PolicySet, SetDigest, SetName};

/// Verdict of one policy set on one plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Set that was evaluated.
    pub set: SetName,
    /// Definition of the set at that time.
    pub definition: SetDigest,
    /// Result of the set for the plan.
    pub outcome: VerdictOutcome,
    /// Origin of the policies, for people: the directory, or the commit that a branch or tag pointed at.
    pub origin: String,
    /// SHA-256 of the policies that were evaluated, if they are known.
    pub content: Option<Sha256Digest>,
    /// Program that evaluated the set, with its version, for people; `None` if it is unknown. It decides nothing: approvals are
    /// bound to violations.
    pub tool: Option<String>,
    /// Findings, worst first, at most [`MAX_FINDINGS`].
    pub findings: Vec<PolicyFinding>,
    /// Number of findings beyond that limit. If the outcome is `Failed`, none of them is a violation.
    pub more_findings: u32,
    /// Digests of the violations that an approval has to cover. Empty unless the outcome is `Failed`.
    pub items: Vec<Sha256Digest>,
    /// Remarks about waivers, such as those that have ended: sentences, at most [`MAX_NOTES`].
    pub notes: Vec<String>,
    /// Text that the tool printed, for the page of the run and folded in comments; at most [`MAX_OUTPUT`] bytes.
    pub output: String,
}

/// Result of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerdictOutcome {
    /// The set has no violations.
    Passed,
    /// At least one violation; approvals can let it pass.
    Failed,
    /// The set could not be evaluated. No approval lets it pass. Holds the reason and the way out, in a sentence for people.
    NotEvaluated(String),
}

/// Maximum number of findings that are kept of one set.
pub const MAX_FINDINGS: usize = 200;

/// Maximum size of the output that is kept of one set, in bytes.
pub const MAX_OUTPUT: usize = 256 * 1024;

/// Maximum number of remarks that are kept of one set. The last one says how many are left out.
pub const MAX_NOTES: usize = 20;

/// Maximum number of items of one verdict. More of them become one item, so that any change needs new approvals.
pub const MAX_ITEMS: usize = 1000;

/// Maximum size of all matches of a pattern that are compared with violations, in bytes. With more of them the whole output
/// is an item.
const MAX_MATCHED: usize = 1 << 20;

/// Maximum size of the reason why a set could not be evaluated, in bytes.
const MAX_REASON: usize = 2000;

/// Maximum size of a remark, in bytes.
const MAX_NOTE: usize = 2000;

/// Maximum size of the name of a program with its version, in bytes.
const MAX_TOOL: usize = 200;

/// Maximum size of the text about the origin of policies, in bytes.
const MAX_ORIGIN: usize = 500;

impl Verdict {
    /// Returns the verdict of a set that was evaluated: it failed if a finding is a violation that no waiver takes out.
    ///
    /// People can only approve what they can read. With more violations than are kept, the set counts as not evaluated, and
    /// the verdict has the first ones, so that people can begin with them.
    ///
    /// Approvals are bound to items. With the default pattern each violation is an item. Any other pattern cuts the items out of
    /// the output, and each violation that is in no match is an item, too. Where the pattern cuts out nothing, the whole output
    /// and each violation are items.
    pub fn of_findings(
        set: &PolicySet,
        definition: SetDigest,
        origin: String,
        content: Option<Sha256Digest>,
        findings: Vec<PolicyFinding>,
        output: String,
    ) -> Self {
        let mut findings: Vec<PolicyFinding> =
            findings.into_iter().map(PolicyFinding::clean).collect();
        sort(&mut findings);
        let total = findings.len();
        let failed = findings.iter().any(PolicyFinding::is_violation);
        let items = if failed {
            items(&findings, &set.item_regex, &output)
        } else {
            Vec::new()
        };
        let violations = findings.iter().filter(|one| one.is_violation()).count();
        let (findings, outcome, items) = match keep(findings) {
            FindingsKept::Enough(findings) if failed => (findings, VerdictOutcome::Failed, items),
            FindingsKept::Enough(findings) => (findings, VerdictOutcome::Passed, items),
            FindingsKept::TooFew(findings) => {
                let outcome = VerdictOutcome::NotEvaluated(too_many(violations));
                (findings, outcome, Vec::new())
            }
        };
        Self {
            set: set.name.clone(),
            definition,
            outcome,
            origin: block(origin, MAX_ORIGIN),
            content,
            tool: None,
            more_findings: u32::try_from(total - findings.len()).unwrap_or(u32::MAX),
            findings,
            items,
            notes: Vec::new(),
            output: short_output(output),
        }
    }

    /// Returns the verdict of a set that could not be evaluated.
    pub fn not_evaluated(
        set: &SetName,
        definition: SetDigest,
        origin: String,
        why: String,
        output: String,
    ) -> Self {
        Self {
            set: set.clone(),
            definition,
            outcome: VerdictOutcome::NotEvaluated(block(why, MAX_REASON)),
            origin: block(origin, MAX_ORIGIN),
            content: None,
            tool: None,
            findings: Vec::new(),
            more_findings: 0,
            items: Vec::new(),
            notes: Vec::new(),
            output: short_output(output),
        }
    }

    /// Returns the verdict with remarks about waivers. They decide nothing.
    #[must_use]
    pub fn with_notes(self, notes: &[String]) -> Self {
        let mut kept: Vec<String> = notes.iter().map(|note| one_line(note, MAX_NOTE)).collect();
        if kept.len() > MAX_NOTES {
            let left_out = kept.len() - (MAX_NOTES - 1);
            kept.truncate(MAX_NOTES - 1);
            kept.push(format!("{left_out} more remarks are left out."));
        }
        Self {
            notes: kept,
            ..self
        }
    }

    /// Returns the verdict with the program that evaluated the set.
    #[must_use]
    pub fn by_tool(self, tool: Option<&str>) -> Self {
        let tool = tool.map(|tool| one_line(tool, MAX_TOOL));
        Self {
            tool: tool.filter(|tool| !tool.is_empty()),
            ..self
        }
    }

    /// Returns true if the set was evaluated and is violated.
    pub fn is_failed(&self) -> bool {
        self.outcome == VerdictOutcome::Failed
    }

    /// Returns the violations that approvals have to cover.
    pub fn violations(&self) -> impl Iterator<Item = &PolicyFinding> {
        self.findings
            .iter()
            .filter(|finding| finding.is_violation())
    }

    /// Returns true if a waiver that takes a violation out has ended before this day.
    pub fn has_ended_waiver(&self, today: NaiveDate) -> bool {
        self.findings
            .iter()
            .filter(|finding| finding.level != FindingLevel::Warn)
            .filter_map(|finding| finding.waived.as_ref())
            .any(|waiver| waiver.last_day().is_none_or(|last| last < today))
    }

    /// Returns the reason why this cannot be a verdict that this program made, in a clause. Such a verdict lets nothing pass.
    pub fn damage(&self) -> Option<&'static str> {
        let violated = self.violations().next().is_some();
        match &self.outcome {
            VerdictOutcome::Passed if violated => Some("it passed in spite of its violations"),
            VerdictOutcome::Passed if !self.items.is_empty() => {
                Some("it passed, but has items to approve")
            }
            VerdictOutcome::Failed if !violated => Some("it failed without a violation"),
            VerdictOutcome::Failed if self.items.is_empty() => {
                Some("it failed without an item to approve")
            }
            VerdictOutcome::Passed | VerdictOutcome::Failed | VerdictOutcome::NotEvaluated(_) => {
                None
            }
        }
    }
}

/// Returns the digests that an approval has to cover, in order and each once.
fn items(findings: &[PolicyFinding], pattern: &ItemRegex, output: &str) -> Vec<Sha256Digest> {
    let violations: Vec<&PolicyFinding> =
        findings.iter().filter(|one| one.is_violation()).collect();
    let mut items = if pattern.is_default() {
        items_of_violations(&violations)
    } else {
        let matches = matches_in(pattern, output).filter(|_| violations.len() <= MAX_ITEMS);
        if let Some(matches) = matches {
            items_of_matches(matches, findings, violations)
        } else {
            let mut items = items_of_violations(&violations);
            items.push(Sha256Digest::of(output.as_bytes()));
            items
        }
    };
    items.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    items.dedup();
    if items.len() > MAX_ITEMS {
        let all: String = items.iter().map(Sha256Digest::as_str).collect();
        items = vec![Sha256Digest::of(all.as_bytes())];
    }
    items
}

/// Text that a pattern has cut out of an output.
struct OutputMatch<'a> {
    text: &'a str,
    /// The same text as findings have it.
    line: String,
    /// True if it belongs to a violation.
    is_taken: bool,
}

impl OutputMatch<'_> {
    fn is_about(&self, finding: &PolicyFinding) -> bool {
        let resource = finding.resource.as_deref().unwrap_or_default();
        self.line.contains(&finding.message) && self.line.contains(resource)
    }
}

/// Returns the texts that a pattern cuts out of an output, each once. `None` if there are none, or too many to compare them.
fn matches_in<'a>(pattern: &ItemRegex, output: &'a str) -> Option<Vec<OutputMatch<'a>>> {
    let mut texts = BTreeSet::new();
    let mut bytes = 0;
    for found in pattern.0.find_iter(output) {
        if !found.is_empty() && texts.insert(found.as_str()) {
            bytes += found.len();
        }
        if texts.len() > MAX_ITEMS || bytes > MAX_MATCHED {
            return None;
        }
    }
    let matches: Vec<OutputMatch<'a>> = texts
        .into_iter()
        .map(|text| OutputMatch {
            text,
            line: one_line(text, usize::MAX),
            is_taken: false,
        })
        .collect();
    (!matches.is_empty()).then_some(matches)
}

/// Returns the digests of the matches, and of each violation that has none of its own, or about which the tool says more than
/// its texts show. Matches that are only about findings
/// which a waiver takes out are no items: nobody approves them now.
fn items_of_matches(
    mut matches: Vec<OutputMatch<'_>>,
    findings: &[PolicyFinding],
    mut violations: Vec<&PolicyFinding>,
) -> Vec<Sha256Digest> {
    // A long message is in few matches, so it comes first. Each violation takes the shortest match that is left.
    matches.sort_by_key(|found| found.line.len());
    violations.sort_by_key(|finding| Reverse(finding.message.len()));
    violations.retain(|finding| {
        let own = matches
            .iter_mut()
            .find(|found| !found.is_taken && found.is_about(finding));
        match own {
            Some(own) => {
                own.is_taken = true;
                finding.other.is_some()
            }
            None => true,
        }
    });
    let waived: Vec<&PolicyFinding> = findings
        .iter()
        .filter(|finding| finding.waived.is_some())
        .take(MAX_ITEMS)
        .collect();
    let is_waived = |found: &&OutputMatch<'_>| {
        !found.is_taken && waived.iter().any(|finding| found.is_about(finding))
    };
    let mut items = items_of_violations(&violations);
    items.extend(
        matches
            .iter()
            .filter(|found| !is_waived(found))
            .map(|found| Sha256Digest::of(found.text.as_bytes())),
    );
    items
}

/// Returns a digest for each violation. Equal violations have different digests, because one more of them is a violation that
/// nobody approved.
fn items_of_violations(violations: &[&PolicyFinding]) -> Vec<Sha256Digest> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    violations
        .iter()
        .map(|finding| {
            let text = finding.identity();
            let times = seen.entry(text.clone()).or_default();
            *times += 1;
            Sha256Digest::of(format!("{text}{times}").as_bytes())
        })
        .collect()
}

/// Findings of a verdict, without those beyond the limit.
enum FindingsKept {
    /// Everything that decides is among them: each violation, and the one whose waiver ends first.
    Enough(Vec<PolicyFinding>),
    /// Violations were left out.
    TooFew(Vec<PolicyFinding>),
}

/// Returns at most [`MAX_FINDINGS`] findings of a sorted list, the first ones: violations come before all others.
fn keep(mut findings: Vec<PolicyFinding>) -> FindingsKept {
    if findings.len() <= MAX_FINDINGS {
        return FindingsKept::Enough(findings);
    }
    let violations = findings.iter().filter(|one| one.is_violation()).count();
    let first_to_end = findings
        .iter()
        .enumerate()
        .filter(|(_, finding)| finding.level != FindingLevel::Warn)
        .filter_map(|(at, finding)| Some((finding.waived.as_ref()?.last_day(), at)))
        .min()
        .map(|(_, at)| at);
    // The one whose waiver ends first takes the last place, unless it has a place anyway.
    let beyond = first_to_end.filter(|at| *at >= MAX_FINDINGS);
    let is_enough = violations + usize::from(beyond.is_some()) <= MAX_FINDINGS;
    if let Some(at) = beyond.filter(|_| is_enough) {
        findings.swap(MAX_FINDINGS - 1, at);
    }
    findings.truncate(MAX_FINDINGS);
    sort(&mut findings);
    if is_enough {
        FindingsKept::Enough(findings)
    } else {
        FindingsKept::TooFew(findings)
    }
}

/// Returns the reason why a set with so many violations cannot be approved, and the way out.
fn too_many(violations: usize) -> String {
    format!(
        "The policies found {violations} violations. People could not read all of them, so nobody can approve them. The \
         page of the run has the first ones. Correct some of them, or let a rule report several resources as one \
         violation, then plan again."
    )
}

/// Returns the beginning of an output, with a last line that says how much is left out.
fn short_output(output: String) -> String {
    /// Bytes that the last line needs at most.
    const LAST_LINE: usize = 100;

    let mut text = visible_lines(output);
    if text.len() > MAX_OUTPUT {
        let end = text.floor_char_boundary(MAX_OUTPUT - LAST_LINE);
        let left_out = text.len() - end;
        text.truncate(end);
        let left_out = left_out.to_string();
        text.extend(["\n… ", left_out.as_str(), " more bytes are left out."]);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use regex::Regex;

    use super::*;
    use crate::findings::{AppliedWaiver, FindingPlace};
    use crate::sets::testing::policy_set;

    fn verdict_of(findings: Vec<PolicyFinding>) -> Verdict {
        evaluated(&policy_set("a"), findings, "")
    }

    fn evaluated(set: &PolicySet, findings: Vec<PolicyFinding>, output: &str) -> Verdict {
        Verdict::of_findings(
            set,
            set.digest(None),
            "main".to_owned(),
            None,
            findings,
            output.to_owned(),
        )
    }

    fn with_pattern(pattern: &str, output: &str) -> Verdict {
        of_output(pattern, output, vec![PolicyFinding::deny("r", "a")])
    }

    fn of_output(pattern: &str, output: &str, findings: Vec<PolicyFinding>) -> Verdict {
        let mut set = policy_set("a");
        set.item_regex = ItemRegex(Regex::new(pattern).unwrap());
        evaluated(&set, findings, output)
    }

    fn waived(finding: PolicyFinding) -> PolicyFinding {
        PolicyFinding {
            waived: Some(AppliedWaiver {
                reason: "r".to_owned(),
                owner: "o".to_owned(),
                until: "2026-12-31".to_owned(),
            }),
            ..finding
        }
    }

    #[test]
    fn hints_and_waived_violations_pass() {
        for findings in [
            vec![],
            vec![PolicyFinding::warn("r", "m")],
            vec![
                waived(PolicyFinding::deny("r", "m")),
                PolicyFinding::warn("r", "m"),
            ],
        ] {
            let verdict = verdict_of(findings);
            assert_eq!(verdict.outcome, VerdictOutcome::Passed);
            assert!(verdict.items.is_empty());
            assert_eq!(verdict.damage(), None);
        }
    }

    #[test]
    fn each_violation_fails_and_is_an_item() {
        for finding in [
            PolicyFinding::deny("r", "m"),
            PolicyFinding::require_approval(2, vec![], "r", "m"),
        ] {
            let verdict = verdict_of(vec![finding, waived(PolicyFinding::deny("r", "m"))]);
            assert!(verdict.is_failed());
            assert_eq!(verdict.items.len(), 1);
            assert_eq!(verdict.damage(), None);
        }
    }

    #[test]
    fn everything_of_a_violation_changes_its_item() {
        let place = |file: &str, line| {
            Some(FindingPlace {
                file: file.to_owned(),
                line,
            })
        };
        let base = PolicyFinding {
            place: place("a.tf", Some(1)),
            ..PolicyFinding::deny("r", "m")
        };
        let moved = |finding: &PolicyFinding| PolicyFinding {
            place: place("a.tf", Some(2)),
            ..finding.clone()
        };
        let item = |finding: &PolicyFinding| verdict_of(vec![finding.clone()]).items;
        // The line of a resource changes with every line above.
        let of_resource = PolicyFinding {
            resource: Some("a.b".to_owned()),
            ..base.clone()
        };
        assert_eq!(item(&of_resource), item(&moved(&of_resource)));
        let others = [
            moved(&base),
            of_resource,
            PolicyFinding {
                level: FindingLevel::RequireApproval {
                    count: 1,
                    teams: Vec::new(),
                },
                ..base.clone()
            },
            PolicyFinding {
                rule: "q".to_owned(),
                ..base.clone()
            },
            PolicyFinding {
                message: "n".to_owned(),
                ..base.clone()
            },
            PolicyFinding {
                place: place("b.tf", Some(1)),
                ..base.clone()
            },
            PolicyFinding {
                evidence: Some("e".to_owned()),
                ..base.clone()
            },
            PolicyFinding {
                other: Some(Sha256Digest::of(b"o")),
                ..base.clone()
            },
        ];
        for other in others {
            assert_ne!(item(&base), item(&other), "{other:?}");
        }
    }

    #[test]
    fn one_more_of_equal_violations_is_one_more_item() {
        let finding = PolicyFinding::deny("r", "m");
        let one = verdict_of(vec![finding.clone()]);
        let two = verdict_of(vec![finding.clone(), finding]);
        assert_eq!(two.items.len(), 2);
        assert!(two.items.contains(&one.items[0]));
    }

    #[test]
    fn a_pattern_cuts_items_out_of_the_output() {
        let digests = |texts: &[&str]| -> Vec<Sha256Digest> {
            let mut all: Vec<_> = texts
                .iter()
                .map(|text| Sha256Digest::of(text.as_bytes()))
                .collect();
            all.sort_by(|one, other| one.as_str().cmp(other.as_str()));
            all
        };
        let output = "FAIL - a\nok\nFAIL - b\nFAIL - a\n";
        let verdict = with_pattern("FAIL - .*", output);
        assert_eq!(verdict.items, digests(&["FAIL - a", "FAIL - b"]));
        let nothing = with_pattern("no such text", output);
        assert_eq!(nothing.items.len(), 2);
        assert!(nothing.items.contains(&Sha256Digest::of(output.as_bytes())));
        let empty = with_pattern("x*", output);
        assert_eq!(empty.items, nothing.items);
        let without_output = with_pattern("FAIL - .*", "");
        assert!(
            without_output
                .items
                .contains(&verdict_of(vec![PolicyFinding::deny("r", "a")]).items[0])
        );
    }

    #[test]
    fn violations_without_a_match_of_their_own_are_items() {
        let deny = |message: &str| PolicyFinding::deny("r", message);
        let of_resource = |message: &str, resource: &str| PolicyFinding {
            resource: Some(resource.to_owned()),
            ..deny(message)
        };
        let (line, long) = ("FAIL - bucket", "x".repeat(2000));
        let with_long = format!("FAIL - {long}");
        for (output, findings, own) in [
            (line, vec![deny("bucket")], 0),
            // The pattern matches the first line of a message only.
            ("FAIL - bucket\na", vec![deny("bucket\na")], 1),
            (
                "FAIL - bucket\nWARN - net",
                vec![deny("bucket"), deny("net")],
                1,
            ),
            // One match is of one violation.
            (line, vec![deny("bucket"), deny("buck")], 1),
            (line, vec![deny("bucket"), deny("bucket")], 1),
            (
                "FAIL - bucket\nFAIL - bucket",
                vec![deny("bucket"), deny("bucket")],
                1,
            ),
            (
                "FAIL - bucket\nFAIL - buck",
                vec![deny("bucket"), deny("buck")],
                0,
            ),
            (line, vec![of_resource("bucket", "a.b")], 1),
            ("FAIL - bucket a.b", vec![of_resource("bucket", "a.b")], 0),
            (with_long.as_str(), vec![deny(&long)], 1),
        ] {
            let verdict = of_output("(?m)^FAIL.*$", output, findings.clone());
            let matches: HashSet<&str> = output
                .lines()
                .filter(|line| line.starts_with("FAIL"))
                .collect();
            assert_eq!(
                verdict.items.len(),
                matches.len() + own,
                "{output} {findings:?}"
            );
            for text in matches {
                let digest = Sha256Digest::of(text.as_bytes());
                assert!(verdict.items.contains(&digest), "{output} {findings:?}");
            }
        }
    }

    #[test]
    fn a_match_does_not_stand_for_texts_that_nobody_sees() {
        let of = |message: &str| {
            let findings = vec![PolicyFinding::deny("r", message)];
            of_output("FAIL.*", "FAIL - bucket", findings).items
        };
        let plain = of("bucket");
        assert_eq!(plain, [Sha256Digest::of(b"FAIL - bucket")]);
        let hidden = of("buck\u{34f}et");
        assert_eq!(hidden.len(), 2);
        assert_ne!(hidden, of("bucket\u{34f}"));
        assert!(hidden.contains(&plain[0]));
    }

    #[test]
    fn violations_with_equal_beginnings_are_other_items() {
        let long = "x".repeat(10_000);
        let item = |end: &str| {
            let finding = PolicyFinding {
                evidence: Some(format!("{long}{end}")),
                ..PolicyFinding::deny("r", "m")
            };
            verdict_of(vec![finding]).items
        };
        assert_eq!(item("a"), item("a"));
        assert_ne!(item("a"), item("b"));
    }

    #[test]
    fn lines_of_waived_findings_are_no_items() {
        let open = PolicyFinding::deny("r", "open");
        let public = PolicyFinding::deny("r", "public");
        let output = "FAIL - open\nFAIL - public";
        let of = |findings: Vec<PolicyFinding>| of_output("FAIL - .*", output, findings).items;
        let before = of(vec![open.clone(), waived(public.clone())]);
        assert_eq!(before, [Sha256Digest::of(b"FAIL - open")]);
        let after = of(vec![open.clone(), public]);
        assert_eq!(after.len(), 2);
        // A line that is about both is an item.
        let both = of(vec![open.clone(), waived(open)]);
        assert_eq!(both.len(), 2);
    }

    #[test]
    fn too_many_matches_are_the_whole_output() {
        let lines: Vec<String> = (0..=MAX_ITEMS).map(|n| format!("FAIL - {n}")).collect();
        let output = lines.join("\n");
        let large = "x".repeat(MAX_MATCHED + 1);
        for (pattern, output) in [("FAIL - .*", &output), ("x+", &large)] {
            let items = with_pattern(pattern, output).items;
            assert_eq!(items.len(), 2);
            assert!(items.contains(&Sha256Digest::of(output.as_bytes())));
        }
    }

    /// Returns as many violations, each with a message of its own.
    fn denied(count: usize) -> Vec<PolicyFinding> {
        let numbers = 0..count;
        numbers
            .map(|n| PolicyFinding::deny("r", format!("{n:04}")))
            .collect()
    }

    #[test]
    fn too_many_items_become_one() {
        let items = |count: usize| super::items(&denied(count), &ItemRegex::default(), "");
        assert_eq!(items(MAX_ITEMS).len(), MAX_ITEMS);
        let (one, other) = (items(MAX_ITEMS + 1), items(MAX_ITEMS + 2));
        assert_eq!((one.len(), other.len()), (1, 1));
        assert_ne!(one, other);
    }

    #[test]
    fn violations_that_nobody_can_read_cannot_be_approved() {
        let most = verdict_of(denied(MAX_FINDINGS));
        assert!(most.is_failed());
        assert_eq!((most.items.len(), most.more_findings), (MAX_FINDINGS, 0));
        let more = verdict_of(denied(MAX_FINDINGS + 2));
        let VerdictOutcome::NotEvaluated(why) = &more.outcome else {
            panic!("{more:?}");
        };
        assert!(why.contains("found 202 violations") && why.ends_with("plan again."));
        // People begin with the first ones.
        assert_eq!((more.findings.len(), more.more_findings), (MAX_FINDINGS, 2));
        assert!(more.items.is_empty());
        assert_eq!(more.damage(), None);
    }

    #[test]
    fn hints_and_waived_findings_leave_no_violation_out() {
        let others = (0..MAX_FINDINGS).map(|n| PolicyFinding::warn("r", n.to_string()));
        let passing = (0..MAX_FINDINGS).map(|n| waived(PolicyFinding::deny("a", n.to_string())));
        let strict = PolicyFinding::require_approval(5, vec!["acme/security".to_owned()], "r", "m");
        let open = denied(MAX_FINDINGS - 2).into_iter().chain([strict]);
        let verdict = verdict_of(others.chain(passing).chain(open).collect());
        assert!(verdict.is_failed());
        assert_eq!(verdict.findings.len(), MAX_FINDINGS);
        assert_eq!(verdict.violations().count(), MAX_FINDINGS - 1);
        assert_eq!(verdict.more_findings as usize, 2 * MAX_FINDINGS - 1);
    }

    #[test]
    fn the_waiver_that_ends_first_has_a_place() {
        let until = |name: &str, last_day: &str| {
            let mut finding = waived(PolicyFinding::deny("r", name));
            let waiver = finding.waived.as_mut().expect("a waiver applies");
            waiver.until = last_day.to_owned();
            finding
        };
        let of = |open: usize| {
            let waived = [until("a", "2026-12-31"), until("b", "2026-12-01")];
            verdict_of(denied(open).into_iter().chain(waived).collect())
        };
        let verdict = of(MAX_FINDINGS - 1);
        assert!(verdict.is_failed());
        assert_eq!(verdict.findings.len(), MAX_FINDINGS);
        let day = |text: &str| text.parse::<NaiveDate>().unwrap();
        assert!(!verdict.has_ended_waiver(day("2026-12-01")));
        assert!(verdict.has_ended_waiver(day("2026-12-02")));
        assert!(matches!(
            of(MAX_FINDINGS).outcome,
            VerdictOutcome::NotEvaluated(_)
        ));
    }

    #[test]
    fn remarks_are_short_lines_and_few() {
        let verdict = verdict_of(vec![]).with_notes(&["a\n\u{1b}b".to_owned()]);
        assert_eq!(verdict.notes, ["a b"]);
        let many = |count: usize| {
            let notes = (0..count).map(|n| format!("The waiver {n} has ended."));
            let notes: Vec<String> = notes.collect();
            verdict_of(vec![]).with_notes(&notes).notes
        };
        assert_eq!(many(MAX_NOTES).len(), MAX_NOTES);
        let cut = many(MAX_NOTES + 1);
        assert_eq!(cut.len(), MAX_NOTES);
        assert_eq!(cut.last().unwrap(), "2 more remarks are left out.");
        let long = verdict_of(vec![]).with_notes(&["x".repeat(10_000)]);
        assert!(long.notes[0].len() <= MAX_NOTE);
    }

    #[test]
    fn the_program_is_a_short_line_and_decides_nothing() {
        let verdict = verdict_of(vec![PolicyFinding::deny("r", "a")]);
        let with = |tool| verdict.clone().by_tool(tool);
        assert_eq!(with(None), verdict);
        assert_eq!(with(Some(" \n\0")), verdict);
        let named = with(Some("conftest\n0.62.0\u{1b}"));
        assert_eq!(named.tool.as_deref(), Some("conftest 0.62.0"));
        assert_eq!(named.items, verdict.items);
        assert_eq!(named.definition, verdict.definition);
        let long = "x".repeat(10_000);
        let long = verdict.clone().by_tool(Some(&long));
        assert!(long.tool.unwrap().len() <= MAX_TOOL);
    }

    #[test]
    fn outputs_are_shortened_and_have_no_control_characters() {
        let set = policy_set("a");
        let output = format!("\0\u{1b}[31mä{}", "ä".repeat(MAX_OUTPUT));
        let verdict = Verdict::not_evaluated(
            &set.name,
            set.digest(None),
            "a\0b".to_owned(),
            "why\0".to_owned(),
            output,
        );
        assert!(verdict.output.len() <= MAX_OUTPUT);
        assert!(
            verdict.output.starts_with("[31mä"),
            "{:?}",
            &verdict.output[..20]
        );
        assert!(verdict.output.ends_with("more bytes are left out."));
        assert_eq!(verdict.origin, "ab");
        assert_eq!(
            verdict.outcome,
            VerdictOutcome::NotEvaluated("why".to_owned())
        );
    }
}
