//! `GET /api/runs/{id}/policies`: the results of policy sets for the plan of a run, for programs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use lockkeeper_policy::decision::PolicyApproval;
use lockkeeper_policy::findings::{FindingLevel, PolicyFinding};
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use serde::Serialize;

use super::page::find_run;
use super::policies::{approvals_of, is_approved};
use crate::kit::web::extract::Segment;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState};
use crate::model::PlanId;

/// Answer to the request.
#[derive(Serialize)]
pub(super) struct RunPoliciesJson {
    run: String,
    /// Results in the order of the sets; empty if the run made no plan, or one that was not checked.
    sets: Vec<SetJson>,
}

/// Result of one policy set.
#[derive(Serialize)]
struct SetJson {
    name: String,
    /// `passed`, `failed` or `not_evaluated`.
    outcome: &'static str,
    /// Reason why the set was not evaluated.
    why: Option<String>,
    origin: String,
    /// SHA-256 of the policies, if it is known.
    content: Option<String>,
    /// Program that evaluated the set, with its version, if it is known.
    tool: Option<String>,
    findings: Vec<FindingJson>,
    /// Number of findings that were not stored.
    more_findings: u32,
    /// Remarks about waivers that have ended or cannot be read.
    notes: Vec<String>,
    approvals: Vec<ApprovalJson>,
    /// True if the set is violated, and enough people have approved that.
    approved: bool,
    output: String,
}

/// Finding of a policy set in the plan.
#[derive(Serialize)]
struct FindingJson {
    /// `deny`, `require_approval` or `warn`.
    level: &'static str,
    /// Approvals that the rule requires, if it does.
    require_approval: Option<NeededJson>,
    rule: String,
    message: String,
    resource: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    link: Option<String>,
    evidence: Option<String>,
    /// Waiver that takes the finding out.
    waived: Option<WaivedJson>,
}

#[derive(Serialize)]
struct NeededJson {
    count: u32,
    teams: Vec<String>,
}

#[derive(Serialize)]
struct WaivedJson {
    owner: String,
    reason: String,
    until: String,
}

/// Approval by one person.
#[derive(Serialize)]
struct ApprovalJson {
    login: String,
    at: DateTime<Utc>,
    /// True if the person approved an earlier plan with the same violations.
    earlier_plan: bool,
}

/// `GET /api/runs/{id}/policies`
pub(super) async fn policies(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    Segment(asked): Segment,
) -> Result<Json<RunPoliciesJson>, WebError> {
    let run = find_run(&web, &visible, &asked).await?;
    let sets = match web.store.policy_plan_of_run(run.id).await? {
        Some((plan, found)) => {
            let (configured, approvals) = ((web.policy_sets)(), &found.approvals);
            let today = web.clock.now().date_naive();
            let verdicts = found.verdicts.into_iter();
            verdicts
                .map(|verdict| {
                    let approved = is_approved(plan, &verdict, approvals, &configured, today);
                    set(plan, verdict, approvals, approved)
                })
                .collect()
        }
        None => Vec::new(),
    };
    Ok(Json(RunPoliciesJson {
        run: run.id.to_string(),
        sets,
    }))
}

fn set(plan: PlanId, verdict: Verdict, approvals: &[PolicyApproval], approved: bool) -> SetJson {
    let approvals = approvals_of(plan, &verdict, approvals)
        .into_iter()
        .map(|approval| ApprovalJson {
            login: approval.login.clone(),
            at: approval.at,
            earlier_plan: approval.plan != plan,
        })
        .collect();
    let (outcome, why) = match verdict.outcome {
        VerdictOutcome::Passed => ("passed", None),
        VerdictOutcome::Failed => ("failed", None),
        VerdictOutcome::NotEvaluated(why) => ("not_evaluated", Some(why)),
    };
    SetJson {
        approvals,
        approved,
        name: verdict.set.to_string(),
        outcome,
        why,
        origin: verdict.origin,
        content: verdict.content.as_ref().map(ToString::to_string),
        tool: verdict.tool,
        findings: verdict.findings.into_iter().map(finding).collect(),
        more_findings: verdict.more_findings,
        notes: verdict.notes,
        output: verdict.output,
    }
}

fn finding(finding: PolicyFinding) -> FindingJson {
    let (level, require_approval) = match finding.level {
        FindingLevel::Deny => ("deny", None),
        FindingLevel::RequireApproval { count, teams } => {
            ("require_approval", Some(NeededJson { count, teams }))
        }
        FindingLevel::Warn => ("warn", None),
    };
    let (file, line) = finding.place.map(|place| (place.file, place.line)).unzip();
    FindingJson {
        level,
        require_approval,
        rule: finding.rule,
        message: finding.message,
        resource: finding.resource,
        file,
        line: line.flatten(),
        link: finding.link,
        evidence: finding.evidence,
        waived: finding.waived.map(|waiver| WaivedJson {
            owner: waiver.owner,
            reason: waiver.reason,
            until: waiver.until,
        }),
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_policy::sets::{SetDigest, SetName};

    use super::*;
    use crate::model::Sha256Digest;

    #[test]
    fn a_result_has_everything_that_is_stored() {
        let name = SetName::parse("basics").unwrap();
        let definition = SetDigest(Sha256Digest::of(b"definition"));
        let why = "conftest is missing".to_owned();
        let mut verdict = Verdict::not_evaluated(
            &name,
            definition,
            "/policies".to_owned(),
            why,
            "printed".to_owned(),
        )
        .by_tool(Some("conftest 0.62.0"));
        verdict.findings = vec![PolicyFinding {
            level: FindingLevel::RequireApproval {
                count: 2,
                teams: vec!["acme/ops".to_owned()],
            },
            ..PolicyFinding::deny("main.deny", "the bucket is public")
        }];
        let plan = PlanId::from(uuid::Uuid::nil());
        let json = serde_json::to_string_pretty(&set(plan, verdict, &[], false)).unwrap();
        insta::assert_snapshot!(json, @r#"
        {
          "name": "basics",
          "outcome": "not_evaluated",
          "why": "conftest is missing",
          "origin": "/policies",
          "content": null,
          "tool": "conftest 0.62.0",
          "findings": [
            {
              "level": "require_approval",
              "require_approval": {
                "count": 2,
                "teams": [
                  "acme/ops"
                ]
              },
              "rule": "main.deny",
              "message": "the bucket is public",
              "resource": null,
              "file": null,
              "line": null,
              "link": null,
              "evidence": null,
              "waived": null
            }
          ],
          "more_findings": 0,
          "notes": [],
          "approvals": [],
          "approved": false,
          "output": "printed"
        }
        "#);
    }
}
