//! Builds the section of a project about its policy sets: what is violated, worst first, and who can approve it.
//!
//! Findings come from programs that read the code of a pull request, so every text is bounded here and escaped by the
//! template.

use std::collections::HashSet;
use std::sync::LazyLock;

use lockkeeper_policy::decision::SetDecision;
use lockkeeper_policy::findings::{FindingLevel, FindingPlace, PolicyFinding};
use lockkeeper_policy::sets::PolicyOwners;
use lockkeeper_policy::verdict::Verdict;
use regex::Regex;
use serde::Serialize;

use super::project::{Block, folded};
use crate::model::code_span;
use crate::render::escape::shorten;
use crate::render::report::{PolicyReport, PolicySetReport, Report, approvers};

/// Maximum number of findings of one set in a comment. The page of the run has all of them.
const MOST_FINDINGS: usize = 25;
/// Maximum number of findings of all sets of a project in a comment.
const MOST_OF_PROJECT: usize = 60;
/// Maximum number of sets with a section of their own.
const MOST_SETS: usize = 20;
/// Maximum number of remarks about waivers of one set.
const MOST_NOTES: usize = 5;
/// Maximum number of people and teams that a sentence names.
const MOST_NAMES: usize = 10;
/// Maximum length of the text of a finding, in characters.
const LONGEST_MESSAGE: usize = 400;
/// Maximum size of folded evidence or output of one set, in bytes.
const MAX_BLOCK: usize = 6_000;
/// Maximum size of all such blocks of a project, in bytes.
const MAX_BLOCKS: usize = 20_000;
/// Size below which the rest of a block would not help anybody, in bytes.
const MIN_BLOCK: usize = 500;

/// Section of a project about its policy sets.
#[derive(Serialize)]
pub(super) struct PolicyView {
    /// `Policies did not pass: 1 of 3 sets`
    headline: String,
    met: bool,
    /// Sets with something to read.
    sets: Vec<PolicySetView>,
    /// Number of further sets that are not shown.
    more_sets: usize,
    /// True if a block was left out, because the blocks before it are long enough.
    has_more_text: bool,
    /// Names of the sets that passed and have nothing to read.
    passed: Vec<String>,
}

/// One policy set with something to read, or several that were not evaluated for the same reason.
#[derive(Serialize)]
struct PolicySetView {
    icon: &'static str,
    names: Vec<String>,
    /// Text such as "2 violations, 1 of 2 approvals, by `alice`".
    says: String,
    origin: Option<String>,
    findings: Vec<FindingView>,
    /// Number of findings that are not listed.
    more: usize,
    /// Remarks about waivers, such as those that have ended.
    notes: Vec<String>,
    /// Program that evaluated the set, with its version, if the set prevents the apply.
    tool: Option<String>,
    /// Sentence about the way out: the people who can approve, or that nobody can.
    way_out: Option<String>,
    evidence: Option<Block>,
    output: Option<Block>,
}

/// One finding, as one line.
#[derive(Serialize)]
struct FindingView {
    icon: &'static str,
    message: String,
    resource: Option<String>,
    /// `net/main.tf:12`
    place: Option<String>,
    rule: Option<String>,
    link: Option<String>,
    /// Waiver, or the approvals that it needs.
    note: Option<String>,
}

/// Returns the section; `None` if there is nothing to read.
pub(super) fn policies(report: &Report, policies: &PolicyReport) -> Option<PolicyView> {
    let met = policies.is_met();
    let quiet = report.style.quiet_policies;
    if policies.sets.is_empty() || (quiet && met) {
        return None;
    }
    let (told, passed): (Vec<&PolicySetReport>, Vec<&PolicySetReport>) =
        policies.sets.iter().partition(|set| has_something(set));
    let told: Vec<&PolicySetReport> = told
        .into_iter()
        .filter(|set| !quiet || !set.is_met())
        .collect();
    let mut budget = PolicyTextBudget {
        findings: MOST_OF_PROJECT,
        bytes: MAX_BLOCKS,
        is_full: false,
    };
    let groups = groups(&told);
    let more_sets: usize = groups
        .iter()
        .skip(MOST_SETS)
        .map(|group| group.names.len())
        .sum();
    let sets = groups
        .into_iter()
        .take(MOST_SETS)
        .map(|group| section(report, group, &mut budget))
        .collect();
    Some(PolicyView {
        headline: headline(policies),
        met,
        sets,
        has_more_text: budget.is_full,
        more_sets,
        passed: if quiet {
            Vec::new()
        } else {
            passed.iter().map(|set| set.name.to_string()).collect()
        },
    })
}

/// Sets that share a section: one, or several that were not evaluated for the same reason.
struct SetGroup<'a> {
    names: Vec<String>,
    first: &'a PolicySetReport,
}

/// Groups the sets, so that a step that fails for all of them is described once.
fn groups<'a>(told: &[&'a PolicySetReport]) -> Vec<SetGroup<'a>> {
    let printed = |set: &'a PolicySetReport| {
        let verdict = set.verdict.as_ref()?;
        Some((verdict.output.as_str(), verdict.tool.as_deref()))
    };
    let mut groups: Vec<SetGroup<'a>> = Vec::new();
    for &set in told {
        let shared = groups.iter_mut().find(|group| {
            matches!(set.decision, SetDecision::NotEvaluated(_))
                && set.decision == group.first.decision
                && printed(set) == printed(group.first)
        });
        match shared {
            Some(group) => group.names.push(set.name.to_string()),
            None => groups.push(SetGroup {
                names: vec![set.name.to_string()],
                first: set,
            }),
        }
    }
    groups
}

/// Space in the comment that the policy sets of a project share.
struct PolicyTextBudget {
    /// Number of findings that can still be listed.
    findings: usize,
    /// Size of the blocks that can still be shown, in bytes.
    bytes: usize,
    /// True if a block was left out.
    is_full: bool,
}

impl PolicyTextBudget {
    /// Returns a folded block, as far as the budget permits.
    fn block(&mut self, report: &Report, title: &'static str, text: &str) -> Option<Block> {
        if text.trim().is_empty() {
            return None;
        }
        if self.bytes < MIN_BLOCK {
            self.is_full = true;
            return None;
        }
        let block = folded(report, "text", title, text, self.bytes.min(MAX_BLOCK))?;
        self.bytes = self.bytes.saturating_sub(block.text.len());
        Some(block)
    }
}

fn headline(policies: &PolicyReport) -> String {
    let all = policies.sets.len();
    let unmet = policies.sets.iter().filter(|set| !set.is_met()).count();
    let approved = |set: &PolicySetReport| matches!(set.decision, SetDecision::Approved(_));
    match (unmet, all) {
        (0, _) if policies.sets.iter().any(approved) => "Policies passed with approvals".to_owned(),
        (0, _) => "Policies passed".to_owned(),
        (_, 1) => "Policies did not pass".to_owned(),
        (unmet, all) => format!("Policies did not pass: {unmet} of {all} sets"),
    }
}

/// Returns true if a set needs lines of its own.
fn has_something(set: &PolicySetReport) -> bool {
    let says_more = set
        .verdict
        .as_ref()
        .is_some_and(|verdict| !verdict.findings.is_empty() || !verdict.notes.is_empty());
    set.decision != SetDecision::Passed || says_more
}

fn section(report: &Report, group: SetGroup<'_>, budget: &mut PolicyTextBudget) -> PolicySetView {
    let set = group.first;
    let verdict = set.verdict.as_ref();
    let shows = shows_findings(&set.decision);
    let mut sorted: Vec<&PolicyFinding> = verdict
        .filter(|_| shows)
        .map(|verdict| verdict.findings.iter().collect())
        .unwrap_or_default();
    sorted.sort_by_key(|finding| (finding.waived.is_some(), finding.level.clone()));
    let most = sorted.len().min(MOST_FINDINGS).min(budget.findings);
    budget.findings -= most;
    let beyond = verdict
        .filter(|_| shows)
        .map_or(0, |verdict| number(verdict.more_findings));
    let more = (sorted.len() - most).saturating_add(beyond);
    sorted.truncate(most);
    PolicySetView {
        icon: icon(&set.decision),
        names: group.names,
        says: says(set),
        origin: verdict
            .map(|verdict| shorten(&verdict.origin, LONGEST_MESSAGE))
            .filter(|origin| !origin.is_empty() && shows),
        evidence: budget.block(report, "Evidence", &evidence(&sorted)),
        output: verdict
            .filter(|verdict| !(set.is_met() || shows && only_repeats(verdict)))
            .and_then(|verdict| {
                budget.block(report, "Output of the policy check", &verdict.output)
            }),
        findings: sorted.into_iter().map(line).collect(),
        notes: verdict
            .filter(|_| shows)
            .map(|verdict| verdict.notes.iter().take(MOST_NOTES))
            .into_iter()
            .flatten()
            .map(|note| shorten(note, LONGEST_MESSAGE))
            .collect(),
        more,
        tool: verdict
            .filter(|_| !set.is_met())
            .and_then(|verdict| verdict.tool.clone()),
        way_out: way_out(set),
    }
}

/// Numbers at the end of the output of conftest.
static SUMMARY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^\d+ tests?, \d+ passed(, \d+ (warning|failure|exception)s?)*$")
        .expect("the pattern is valid")
});

/// Returns true if the output of a set says nothing that its findings and their evidence do not say.
fn only_repeats(verdict: &Verdict) -> bool {
    let evidence: HashSet<&str> = verdict
        .findings
        .iter()
        .filter_map(|finding| finding.evidence.as_deref())
        .flat_map(str::lines)
        .map(str::trim)
        .collect();
    let is_known = |line: &str| {
        line.is_empty()
            || evidence.contains(line)
            || SUMMARY.is_match(line)
            || verdict.findings.iter().any(|finding| {
                !finding.message.is_empty() && line.ends_with(finding.message.trim_end())
            })
    };
    verdict.output.lines().map(str::trim).all(is_known)
}

/// Returns true if the findings say something about this plan as it is now.
fn shows_findings(decision: &SetDecision) -> bool {
    match decision {
        SetDecision::Passed | SetDecision::NeedsApproval { .. } => true,
        // People have read them before they approved, and the page of the run has them.
        SetDecision::Approved(_)
        | SetDecision::NotEvaluated(_)
        | SetDecision::Missing
        | SetDecision::Changed
        | SetDecision::Removed
        | SetDecision::WaiverEnded => false,
    }
}

fn icon(decision: &SetDecision) -> &'static str {
    match decision {
        SetDecision::Passed | SetDecision::Approved(_) => "✅",
        SetDecision::NeedsApproval { .. } => "❌",
        SetDecision::NotEvaluated(_)
        | SetDecision::Missing
        | SetDecision::Changed
        | SetDecision::Removed
        | SetDecision::WaiverEnded => "⛔",
    }
}

fn says(set: &PolicySetReport) -> String {
    let violations = set.verdict.as_ref().map_or_else(String::new, violations);
    match &set.decision {
        SetDecision::Passed => "passed".to_owned(),
        SetDecision::Approved(by) => format!("{violations}, approved by {}", names(by, "and")),
        SetDecision::NeedsApproval { needed, by } if by.is_empty() => {
            format!(
                "{violations}, 0 of {}",
                counted(number(*needed), "approval")
            )
        }
        SetDecision::NeedsApproval { needed, by } => format!(
            "{violations}, {} of {}, by {}",
            by.len(),
            counted(number(*needed), "approval"),
            names(by, "and")
        ),
        SetDecision::NotEvaluated(why) => {
            format!(
                "not evaluated: {}",
                sentence(&shorten(why, LONGEST_MESSAGE))
            )
        }
        SetDecision::Missing => {
            "not checked, because the set was added after this plan. Plan again.".to_owned()
        }
        SetDecision::Changed => "changed after this plan. Plan again.".to_owned(),
        SetDecision::Removed => {
            "removed from the configuration after this plan. Plan again.".to_owned()
        }
        SetDecision::WaiverEnded => {
            "a waiver ended after this plan was made. Plan again.".to_owned()
        }
    }
}

/// Counts the violations. None of the findings beyond the limit of a verdict is one.
fn violations(verdict: &Verdict) -> String {
    counted(verdict.violations().count(), "violation")
}

fn number(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats names as code: "`a`, `b` and 3 more".
fn names(names: &[String], last: &str) -> String {
    let mut all: Vec<String> = names
        .iter()
        .take(MOST_NAMES)
        .map(|name| code_span(name))
        .collect();
    if names.len() > MOST_NAMES {
        all.push(format!("{} more", names.len() - MOST_NAMES));
    }
    match all.split_last() {
        Some((only, [])) => only.clone(),
        Some((end, rest)) => format!("{} {last} {end}", rest.join(", ")),
        None => "nobody".to_owned(),
    }
}

/// Ends a text with a full stop.
fn sentence(text: &str) -> String {
    let text = text.trim_end();
    let end = if text.ends_with(['.', '!', '?', '…']) {
        ""
    } else {
        "."
    };
    format!("{text}{end}")
}

/// Returns the sentence about the way out of a set that prevents the apply.
fn way_out(set: &PolicySetReport) -> Option<String> {
    match &set.decision {
        SetDecision::NeedsApproval { .. } => {
            let author = match set.approvers() {
                Some(_) if set.prevent_self_approve => " The author of the pull request cannot.",
                Some(_) | None => "",
            };
            let who = approval_sentence(&set.owners, set.verdict.as_ref(), "this");
            Some(format!("{who}{author}"))
        }
        SetDecision::NotEvaluated(why) if has_way_out(why) => {
            Some("Approvals do not help here.".to_owned())
        }
        SetDecision::NotEvaluated(_) => Some(
            "Approvals do not help here. Ask an administrator of Lockkeeper to correct this, then plan again."
                .to_owned(),
        ),
        SetDecision::Passed
        | SetDecision::Approved(_)
        | SetDecision::Missing
        | SetDecision::Changed
        | SetDecision::Removed
        | SetDecision::WaiverEnded => None,
    }
}

/// Returns true if the reason of a set that was not evaluated says itself how to go on.
pub fn has_way_out(why: &str) -> bool {
    why.to_ascii_lowercase().contains("plan again")
}

/// Returns the sentence about the people who can approve the violations of a set, called `what`.
pub fn approval_sentence(owners: &PolicyOwners, verdict: Option<&Verdict>, what: &str) -> String {
    match approvers(owners, verdict) {
        Some(people) => format!("{} can approve {what}.", subject(&people)),
        None => {
            format!(
                "Nobody can approve {what}, because the set has no owners. Ask an administrator."
            )
        }
    }
}

/// Returns the sentence about what owners can do.
pub fn owner_sentence(owners: &PolicyOwners, does: &str) -> String {
    if owners.users.is_empty() && owners.teams.is_empty() {
        return "The set has no owners. Ask an administrator.".to_owned();
    }
    format!("{} can {does}.", subject(owners))
}

/// Returns people as the subject of a sentence.
fn subject(people: &PolicyOwners) -> String {
    match (people.users.as_slice(), people.teams.as_slice()) {
        (users, []) => names(users, "or"),
        ([], teams) => format!("Members of {}", names(teams, "or")),
        (users, teams) => format!(
            "{}, or members of {},",
            names(users, "or"),
            names(teams, "or")
        ),
    }
}

fn line(finding: &PolicyFinding) -> FindingView {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.trim().is_empty());
    FindingView {
        icon: match (&finding.waived, &finding.level) {
            (Some(_), _) => "⚪",
            (None, FindingLevel::Deny) => "❌",
            (None, FindingLevel::RequireApproval { .. }) => "✋",
            (None, FindingLevel::Warn) => "⚠️",
        },
        message: shorten(&finding.message, LONGEST_MESSAGE),
        resource: finding.resource.as_deref().and_then(some),
        place: finding.place.as_ref().map(place),
        rule: some(&finding.rule),
        link: finding.link.clone(),
        note: note(finding),
    }
}

fn place(place: &FindingPlace) -> String {
    match place.line {
        Some(line) => format!("{}:{line}", place.file),
        None => place.file.clone(),
    }
}

fn note(finding: &PolicyFinding) -> Option<String> {
    if let Some(waiver) = &finding.waived {
        return Some(format!(
            "Waived by {} until {}: {}",
            names(std::slice::from_ref(&waiver.owner), "and"),
            waiver.until,
            shorten(&waiver.reason, LONGEST_MESSAGE)
        ));
    }
    match &finding.level {
        FindingLevel::Deny | FindingLevel::Warn => None,
        FindingLevel::RequireApproval { count, teams } if teams.is_empty() => {
            Some(format!("Needs {}.", counted(number(*count), "approval")))
        }
        FindingLevel::RequireApproval { count, teams } => Some(format!(
            "Needs {} from members of {}.",
            counted(number(*count), "approval"),
            names(teams, "or")
        )),
    }
}

/// Joins the longer texts of the findings, each under its message.
fn evidence(findings: &[&PolicyFinding]) -> String {
    let of = |finding: &&PolicyFinding| {
        let text = finding.evidence.as_deref()?.trim_matches('\n');
        (!text.trim().is_empty()).then(|| format!("{}\n{text}", finding.message))
    };
    findings
        .iter()
        .filter_map(of)
        .collect::<Vec<_>>()
        .join("\n\n")
}
