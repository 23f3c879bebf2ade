//! Results of policy sets on the page of a run, with every stored finding.

use chrono::{DateTime, Utc};
use lockkeeper_policy::decision::PolicyApproval;
use lockkeeper_policy::findings::{FindingLevel, PolicyFinding};
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use serde::Serialize;

use crate::kit::web::text::{Badge, PastTime, shown, web_link};
use crate::render::escape::visible;
use crate::render::plan_output::clean;
use crate::store::PlanPolicies;

/// Results of one policy set.
#[derive(Serialize)]
pub(super) struct PolicyPanel {
    name: String,
    badge: Badge,
    /// Reason why the set was not evaluated.
    why: Option<String>,
    origin: String,
    /// SHA-256 of the policies, if it is known.
    content: Option<String>,
    /// Program that evaluated the set, with its version, if it is known.
    tool: Option<String>,
    findings: Vec<FindingRow>,
    /// Number of findings that were not stored.
    more: u32,
    /// Remarks about waivers that have ended or cannot be read.
    notes: Vec<String>,
    approvals: Vec<ApproverRow>,
    output: Option<String>,
}

/// One finding, with everything that is stored of it.
#[derive(Serialize)]
struct FindingRow {
    badge: Badge,
    message: String,
    rule: String,
    link: Option<String>,
    resource: Option<String>,
    place: Option<String>,
    evidence: Option<String>,
    /// Sentence about the waiver.
    waived: Option<String>,
}

/// Approval of the violations by one person.
#[derive(Serialize)]
struct ApproverRow {
    login: String,
    at: PastTime,
}

/// Builds the panels of a run, in the order of the sets.
pub(super) fn panels(found: &PlanPolicies, now: DateTime<Utc>) -> Vec<PolicyPanel> {
    found
        .verdicts
        .iter()
        .map(|verdict| panel(verdict, &found.approvals, now))
        .collect()
}

fn panel(verdict: &Verdict, approvals: &[PolicyApproval], now: DateTime<Utc>) -> PolicyPanel {
    let (badge, why) = match &verdict.outcome {
        VerdictOutcome::Passed => (Badge::new("good", "passed"), None),
        VerdictOutcome::Failed => (Badge::new("bad", "violated"), None),
        VerdictOutcome::NotEvaluated(why) => (Badge::new("warn", "not evaluated"), Some(why)),
    };
    let own = approvals
        .iter()
        .filter(|approval| approval.set == verdict.set);
    PolicyPanel {
        name: shown(verdict.set.as_str()),
        badge,
        why: why.map(|why| shown(why)),
        origin: shown(&verdict.origin),
        content: verdict.content.as_ref().map(ToString::to_string),
        tool: verdict.tool.as_deref().map(shown),
        findings: verdict.findings.iter().map(row).collect(),
        more: verdict.more_findings,
        notes: verdict.notes.iter().map(|note| shown(note)).collect(),
        approvals: own
            .map(|approval| ApproverRow {
                login: shown(&approval.login),
                at: PastTime::new(approval.at, now),
            })
            .collect(),
        output: Some(visible(&clean(&verdict.output))).filter(|output| !output.trim().is_empty()),
    }
}

fn row(finding: &PolicyFinding) -> FindingRow {
    let badge = match (&finding.waived, &finding.level) {
        (Some(_), _) => Badge::new("idle", "waived"),
        (None, FindingLevel::Deny) => Badge::new("bad", "violation"),
        (None, FindingLevel::RequireApproval { .. }) => Badge::new("bad", "needs approval"),
        (None, FindingLevel::Warn) => Badge::new("warn", "warning"),
    };
    FindingRow {
        badge,
        message: shown(&finding.message),
        rule: shown(&finding.rule),
        link: finding.link.as_deref().and_then(web_link),
        resource: finding.resource.as_deref().map(shown),
        place: finding.place.as_ref().map(|place| match place.line {
            Some(line) => shown(&format!("{}:{line}", place.file)),
            None => shown(&place.file),
        }),
        evidence: finding
            .evidence
            .as_deref()
            .map(|text| visible(&clean(text))),
        waived: finding.waived.as_ref().map(|waiver| {
            shown(&format!(
                "Waived by {} until {}: {}",
                waiver.owner, waiver.until, waiver.reason
            ))
        }),
    }
}
