//! Renders one of each comment, and hostile ones, so that the snapshots of one test show all texts of the bot.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use lockkeeper_policy::decision::SetDecision;
use lockkeeper_policy::findings::{AppliedWaiver, FindingLevel, FindingPlace, PolicyFinding};
use lockkeeper_policy::sets::{PolicyOwners, SetDigest, SetName};
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use uuid::Uuid;

use super::*;
use crate::config::repo::RepoConfig;
use crate::config::repos::ServerRepos;
use crate::discovery::explain::{
    ConfigWarning, ExplainInput, ExplainedTool, PlanExplanation, explain,
};
use crate::discovery::{FileTree, Input, SearchSettings};
use crate::model::{
    Actor, ChangeKind, ChangedFile, CommandId, CommandKind, CommandOutcome, Distribution, Origin,
    PlanChanges, PlanCounts, PlannedAction, ProjectKey, ProjectOutcome, RepoPath, ResourceChange,
    Sha256Digest, Subject, WorkspaceName,
};

const PLAN: &str = "terraform_data.one: Refreshing state... [id=c5500c5c]

Terraform will perform the following actions:

  # terraform_data.three will be created
  + resource \"terraform_data\" \"three\" {
      + id     = (known after apply)
      + input  = \"- x\"
    }

Plan: 1 to add, 0 to change, 0 to destroy.
";
const LOCKED_STATE: &str = "╷
│ Error: Error acquiring the state lock
│ 
│ Error message: resource temporarily unavailable
│ Lock Info:
│   ID:        83c9c04d-b3d3-9f5b-2b56-0bb4969084ff
│   Path:      terraform.tfstate
│   Operation: OperationTypeApply
│   Who:       root@vm
│   Created:   2026-11-21 09:00:31.370811785 +0000 UTC
╵
";
const NO_CHANGES: &str = "\nNo changes. Your infrastructure matches the configuration.\n";
const HOSTILE: &str = "x`|</details>@all\u{202e}#1";

fn at() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 11, 21, 9, 0, 0)
        .single()
        .expect("an unambiguous time")
}

pub(super) fn report(command: CommandKind, body: Body) -> Report {
    Report {
        command,
        id: CommandId::from(Uuid::from_u64_pair(0x7000, 0x8000_0000_0000_0001)),
        pull: Subject::pull(12),
        head: Some("a1".repeat(20).parse().expect("a commit")),
        executable: "lockkeeper".to_owned(),
        duration: Some(Duration::from_secs(12)),
        url: Some("https://locks.example/commands/1".to_owned()),
        operands: Vec::new(),
        extra_args: Vec::new(),
        style: ReportStyle::default(),
        notes: Vec::new(),
        behind: None,
        body,
    }
}

fn key(dir: &str, workspace: &str, name: Option<&str>) -> ProjectKey {
    ProjectKey {
        dir: RepoPath::new(dir).expect("a path"),
        workspace: WorkspaceName::new(workspace).expect("a workspace"),
        name: name.map(|name| name.parse().expect("a name")),
    }
}

fn project(key: ProjectKey, outcome: ProjectOutcome, output: &str) -> ProjectReport {
    ProjectReport {
        output: output.to_owned(),
        lock_url: Some("https://locks.example/locks/7".to_owned()),
        run_url: Some("https://locks.example/jobs/9".to_owned()),
        ..ProjectReport::new(key, outcome)
    }
}

fn change(action: PlannedAction, address: &str) -> ResourceChange {
    let imported = action == PlannedAction::Import;
    ResourceChange {
        address: address.to_owned(),
        deposed: None,
        previous: None,
        action,
        imported,
    }
}

fn list(resources: Vec<ResourceChange>, outputs: u32) -> PlanList {
    PlanList::Of(PlanChanges { resources, outputs })
}

pub(super) fn planned() -> ProjectReport {
    let counts = Some(PlanCounts {
        add: 1,
        ..PlanCounts::default()
    });
    let list = list(
        vec![change(PlannedAction::Create, "terraform_data.three")],
        0,
    );
    ProjectReport {
        counts,
        list,
        ..project(
            key("infra/net", "default", Some("net")),
            ProjectOutcome::Planned,
            PLAN,
        )
    }
}

fn held() -> ProjectReport {
    let holder = LockHolder {
        pull: Subject::pull(7),
        application: None,
        pull_url: "https://github.com/acme/infra/pull/7".to_owned(),
        who: "alice".to_owned(),
        since: at(),
        why: "planned by `lockkeeper plan`".to_owned(),
        place: None,
    };
    ProjectReport {
        held_by: Some(holder),
        ..project(key("db", "prod", None), ProjectOutcome::Locked, "")
    }
}

fn queued() -> ProjectReport {
    let held = held();
    let held_by = held.held_by.map(|holder| LockHolder {
        place: Some(2),
        ..holder
    });
    ProjectReport {
        outcome: ProjectOutcome::Waiting,
        held_by,
        next: Next::Nothing,
        ..held
    }
}

fn refused() -> ProjectReport {
    let text = UserText::new(
        "the requirement `approved` is not met: 0 of 1 approval.",
        ["Somebody with write access other than @bob can approve it.".to_owned()],
    );
    ProjectReport {
        message: Some(text),
        ..project(key(".", "default", None), ProjectOutcome::Refused, "")
    }
}

fn long_plan() -> ProjectReport {
    let lines = "      + tag = \"value\"\n".repeat(20);
    let output = format!(
        "  + resource \"a\" \"b\" {{\n{lines}    }}\n\nPlan: 1 to import, 2 to add, 0 to change, 3 to destroy.\n"
    );
    let counts = Some(PlanCounts {
        add: 2,
        destroy: 3,
        import: 1,
        ..PlanCounts::default()
    });
    let long = project(
        key("infra/long", "default", None),
        ProjectOutcome::Planned,
        &output,
    );
    ProjectReport {
        counts,
        changes_outside: true,
        list: list(long_list(), 1),
        uncompared: true,
        ..long
    }
}

/// Returns one of each line that a list can have.
fn long_list() -> Vec<ResourceChange> {
    use PlannedAction::{
        Create, Destroy, Forget, Import, Invoke, Move, Read, Replace, Unknown, Update,
    };
    let moved = |action| ResourceChange {
        previous: Some("a.old".to_owned()),
        ..change(action, "a.moved")
    };
    let imported = ResourceChange {
        imported: true,
        ..change(Update, "a.imported")
    };
    vec![
        change(Read, "data.a.read"),
        change(Create, &format!("a.created[\"{HOSTILE}\"]")),
        change(Create, "a.created"),
        change(Import, "a.imported_only"),
        imported,
        moved(Update),
        moved(Move),
        change(Unknown, "a.odd"),
        change(Invoke, "action.a.invoked"),
        change(Forget, "a.forgotten"),
        change(Replace, "a.replaced"),
        change(Destroy, "a.destroyed"),
        ResourceChange {
            deposed: Some("07a1d2f3".to_owned()),
            ..change(Destroy, "a.destroyed")
        },
    ]
}

/// Returns a plan whose text hides a change.
fn blocked() -> ProjectReport {
    let why = "the text of the plan and its machine-readable form disagree: the text does not show `a.backdoor`, which the \
               plan file changes. The list is that of the plan file";
    let list = list(vec![change(PlannedAction::Create, "a.backdoor")], 0);
    ProjectReport {
        list,
        blocked: Some(why.to_owned()),
        ..planned()
    }
}

/// Returns plans that use modules of the registry that should not be used any more.
fn outdated_modules() -> [ProjectReport; 2] {
    let deprecated = ModuleNote {
        name: "acme/vpc/aws".to_owned(),
        version: "1.2.3".to_owned(),
        takedown: None,
        since: at(),
        reason: "leaks addresses".to_owned(),
        instead: Some(("acme/vpc/aws".to_owned(), "1.2.4".to_owned())),
    };
    let taken_down = ModuleNote {
        name: "acme/network/aws".to_owned(),
        takedown: Some("security".to_owned()),
        reason: HOSTILE.to_owned(),
        instead: None,
        ..deprecated.clone()
    };
    let of = |modules| ProjectReport {
        modules,
        ..planned()
    };
    let many = std::iter::repeat_n(deprecated.clone(), 21);
    [
        of(vec![deprecated]),
        of([taken_down].into_iter().chain(many).collect()),
    ]
}

/// Returns a plan of a tool that has no machine-readable form.
fn unlisted() -> ProjectReport {
    let why = "Terraform 0.11.14 cannot show a plan in a machine-readable form; this requires 0.12 or later";
    ProjectReport {
        list: PlanList::Missing(why.to_owned()),
        ..planned()
    }
}

fn finding(level: FindingLevel, message: &str) -> PolicyFinding {
    let rule = match &level {
        FindingLevel::Deny => "main.deny",
        FindingLevel::RequireApproval { .. } => "main.require_approval",
        FindingLevel::Warn => "main.warn",
    };
    PolicyFinding {
        level,
        rule: rule.to_owned(),
        message: message.to_owned(),
        resource: None,
        place: None,
        link: None,
        evidence: None,
        other: None,
        waived: None,
    }
}

/// Returns one of each line that the findings of a set can have, unsorted.
fn findings() -> Vec<PolicyFinding> {
    let security = FindingLevel::RequireApproval {
        count: 2,
        teams: vec!["security".to_owned()],
    };
    vec![
        finding(FindingLevel::Warn, "the bucket has no tags"),
        PolicyFinding {
            waived: Some(AppliedWaiver {
                reason: "the website is public".to_owned(),
                owner: "alice".to_owned(),
                until: "2026-12-31".to_owned(),
            }),
            ..finding(FindingLevel::Deny, "the bucket is public")
        },
        finding(security, "permissions are changed"),
        PolicyFinding {
            resource: Some("aws_db_instance.main".to_owned()),
            place: Some(FindingPlace {
                file: "infra/net/db.tf".to_owned(),
                line: Some(12),
            }),
            link: Some("https://policies.example/keep".to_owned()),
            evidence: Some("change.actions = [\"delete\"]".to_owned()),
            ..finding(FindingLevel::Deny, "the database would be destroyed")
        },
    ]
}

fn policy_set(name: &str, decision: SetDecision, findings: Vec<PolicyFinding>) -> PolicySetReport {
    let name = SetName::parse(name).expect("a name");
    let verdict = Verdict {
        set: name.clone(),
        definition: SetDigest(Sha256Digest::of(b"definition")),
        outcome: if findings.is_empty() {
            VerdictOutcome::Passed
        } else {
            VerdictOutcome::Failed
        },
        origin: "policies at `main`".to_owned(),
        content: None,
        tool: None,
        findings,
        more_findings: 0,
        items: Vec::new(),
        notes: Vec::new(),
        output: String::new(),
    };
    PolicySetReport {
        name,
        decision,
        verdict: Some(verdict),
        owners: PolicyOwners {
            users: vec!["alice".to_owned()],
            teams: vec!["security".to_owned()],
        },
        prevent_self_approve: true,
    }
}

fn with_policies(sets: Vec<PolicySetReport>) -> ProjectReport {
    let policies = PolicyReport { sets };
    ProjectReport {
        outcome: if policies.is_met() {
            ProjectOutcome::Planned
        } else {
            ProjectOutcome::PolicyFailed
        },
        policies: Some(policies),
        ..planned()
    }
}

fn violated(by: &[&str]) -> PolicySetReport {
    let decision = SetDecision::NeedsApproval {
        needed: 2,
        by: by.iter().map(|&login| login.to_owned()).collect(),
    };
    policy_set("databases", decision, findings())
}

fn approved() -> PolicySetReport {
    let decision = SetDecision::Approved(vec!["alice".to_owned(), "bob".to_owned()]);
    policy_set("databases", decision, findings())
}

fn basics() -> PolicySetReport {
    policy_set("basics", SetDecision::Passed, Vec::new())
}

/// Returns violated sets with outputs: of a step whose text is the evidence, of conftest, and of a tool that says more. The
/// last one has no owners.
fn outputs() -> Vec<PolicySetReport> {
    let needs_one = SetDecision::NeedsApproval {
        needed: 1,
        by: Vec::new(),
    };
    let with_output = |name, finding: PolicyFinding, output: &str| {
        let set = policy_set(name, needs_one.clone(), vec![finding]);
        PolicySetReport {
            verdict: set.verdict.map(|verdict| Verdict {
                tool: Some("conftest 0.62.0".to_owned()),
                notes: vec!["The waiver of alice ended on 2026-11-20.".to_owned()],
                output: output.to_owned(),
                ..verdict
            }),
            ..set
        }
    };
    let text = "checking 2 resources\nFAIL aws_s3_bucket.site is public";
    let reported = PolicyFinding {
        rule: String::new(),
        evidence: Some(text.to_owned()),
        ..finding(FindingLevel::Deny, "The check reports a failure.")
    };
    let conftest = "FAIL - plan.json - main - the bucket is public\n\n1 test, 0 passed, 0 warnings, 1 failure, 0 exceptions\n";
    let public = || finding(FindingLevel::Deny, "the bucket is public");
    vec![
        with_output("step", reported, text),
        with_output("conftest", public(), conftest),
        PolicySetReport {
            owners: PolicyOwners::default(),
            ..with_output(
                "scanner",
                public(),
                "the bucket is public\nrules of 2026-11-01",
            )
        },
    ]
}

fn approval_samples() -> Vec<(&'static str, Report)> {
    let one = |project| report(CommandKind::ApprovePolicies, Body::Projects(vec![project]));
    let told = |outcome, message: &str, sets| ProjectReport {
        message: Some(UserText::new(message, [])),
        output: String::new(),
        list: PlanList::None,
        outcome,
        ..with_policies(sets)
    };
    vec![
        (
            "approve_policies_one",
            one(told(
                ProjectOutcome::PolicyPassed,
                "`alice` approved the violations of `databases`.",
                vec![approved(), basics()],
            )),
        ),
        (
            "approve_policies_pending",
            one(told(
                ProjectOutcome::PolicyPending,
                "`alice` approved the violations of `databases`. Still needed: 1 approval of `databases`.",
                vec![violated(&["alice"])],
            )),
        ),
        (
            "approve_policies_refused",
            one(told(
                ProjectOutcome::Refused,
                "`bob` may not approve `databases`. `alice`, or members of `security`, can approve it.",
                vec![violated(&[])],
            )),
        ),
    ]
}

fn policy_samples() -> Vec<(&'static str, Report)> {
    use CommandKind::Plan;
    let one = |command, project| report(command, Body::Projects(vec![project]));
    let warned = || {
        let findings = vec![finding(FindingLevel::Warn, "the bucket has no tags")];
        policy_set("tags", SetDecision::Passed, findings)
    };
    let without_verdict = |name, decision| PolicySetReport {
        verdict: None,
        ..policy_set(name, decision, Vec::new())
    };
    let not_evaluated = SetDecision::NotEvaluated("no rule was evaluated".to_owned());
    let of_others = with_policies(vec![
        policy_set("network", not_evaluated.clone(), Vec::new()),
        without_verdict("new", SetDecision::Missing),
        policy_set("dns", not_evaluated, Vec::new()),
        without_verdict("other", SetDecision::Changed),
        without_verdict("old", SetDecision::Removed),
    ]);
    let broken = SetDecision::NotEvaluated(
        "conftest ended with exit code 3. Correct the policies of the set, then plan again."
            .to_owned(),
    );
    let mixed = with_policies(vec![
        violated(&["alice"]),
        policy_set("network", broken, Vec::new()),
    ]);
    let foreign = PolicyFinding {
        rule: HOSTILE.to_owned(),
        resource: Some(HOSTILE.to_owned()),
        link: Some("javascript:alert(1)".to_owned()),
        evidence: Some(format!("```\n</details>\n{HOSTILE}")),
        ..finding(FindingLevel::Deny, HOSTILE)
    };
    let needs_one = SetDecision::NeedsApproval {
        needed: 1,
        by: Vec::new(),
    };
    vec![
        (
            "policies_violated",
            one(Plan, with_policies(vec![violated(&[]), basics()])),
        ),
        (
            "policies_passed",
            one(Plan, with_policies(vec![basics(), warned(), approved()])),
        ),
        ("policies_not_evaluated", one(Plan, of_others)),
        ("policies_mixed", one(Plan, mixed)),
        ("policies_outputs", one(Plan, with_policies(outputs()))),
        (
            "policies_quiet",
            Report {
                style: ReportStyle {
                    quiet_policies: true,
                    ..ReportStyle::default()
                },
                ..one(Plan, with_policies(vec![basics(), warned()]))
            },
        ),
        (
            "policies_violated_twice",
            report(
                Plan,
                Body::Projects(vec![
                    with_policies(vec![violated(&["alice"])]),
                    ProjectReport {
                        key: key("app", "default", None),
                        ..with_policies(vec![violated(&[])])
                    },
                ]),
            ),
        ),
        (
            "policies_hostile",
            one(
                Plan,
                with_policies(vec![policy_set("databases", needs_one, vec![foreign])]),
            ),
        ),
    ]
}

fn plan_samples() -> Vec<(&'static str, Report)> {
    use CommandKind::{Autoplan, Plan};
    use ProjectOutcome::{Failed, NoChanges};
    let idle = || project(key("idle", "default", None), NoChanges, NO_CHANGES);
    let broken = || project(key("broken", "default", None), Failed, LOCKED_STATE);
    let many = vec![planned(), idle(), broken(), held(), long_plan()];
    let hidden = ReportStyle {
        hide_unchanged: true,
        offer_apply_all: false,
        ..ReportStyle::default()
    };
    let args = vec!["-target=a[\"b\"]".to_owned()];
    vec![
        ("plan_one", Report { extra_args: args, ..report(Plan, Body::Projects(vec![planned()])) }),
        ("plan_one_deprecated_module", report(Plan, Body::Projects(vec![outdated_modules()[0].clone()]))),
        ("plan_one_module_taken_down", report(Plan, Body::Projects(vec![outdated_modules()[1].clone()]))),
        ("plan_one_no_changes", report(Plan, Body::Projects(vec![idle()]))),
        ("plan_one_state_locked", report(Plan, Body::Projects(vec![broken()]))),
        ("plan_one_held", report(Plan, Body::Projects(vec![held()]))),
        ("plan_one_queued", report(Plan, Body::Projects(vec![queued()]))),
        ("plan_one_blocked", report(Plan, Body::Projects(vec![blocked()]))),
        (
            "plan_one_behind",
            Report {
                notes: vec![
                    "This branch does not include changes to this project that were merged into `main` since it branched off: \
                     `0a1b2c3d` Add a vpc. Applying a plan without them may undo them. Merge `main` into this branch or rebase \
                     it; the push is planned automatically."
                        .to_owned(),
                ],
                behind: Some("main".parse().expect("a branch")),
                ..report(Plan, Body::Projects(vec![planned()]))
            },
        ),
        ("plan_one_unlisted", report(Plan, Body::Projects(vec![unlisted()]))),
        ("autoplan_many", report(Autoplan, Body::Projects(many))),
        ("plan_all_idle", Report { style: hidden.clone(), ..report(Plan, Body::Projects(vec![idle(), idle()])) }),
        ("plan_hidden", Report { style: hidden, ..report(Plan, Body::Projects(vec![planned(), idle()])) }),
        ("autoplan_no_projects", report(Autoplan, Body::NoProjects(None))),
    ]
}

fn apply_samples() -> Vec<(&'static str, Report)> {
    use CommandKind::Apply;
    use ProjectOutcome::{Applied, Failed, Skipped};
    let applied = "terraform_data.one: Creating...\n\nApply complete! Resources: 2 added, 1 changed, 0 destroyed.\n";
    let stale =
        "╷\n│ Error: Saved plan is stale\n│ \n│ The given plan file can no longer be applied.\n╵\n";
    let cut =
        "terraform_data.one: Creating...\nterraform_data.one: Still creating... [10s elapsed]\n";
    let text = UserText::new(
        "the server stopped while this ran; below is the last that it kept.",
        [],
    );
    let net = || key("infra/net", "default", Some("net"));
    let cut = ProjectReport {
        message: Some(text),
        ..project(net(), Failed, cut)
    };
    let stale = project(key("db", "prod", None), Failed, stale);
    let interrupted = vec![cut, project(key("db", "prod", None), Skipped, "")];
    vec![
        (
            "apply_one",
            report(
                Apply,
                Body::Projects(vec![project(net(), Applied, applied)]),
            ),
        ),
        (
            "apply_mixed",
            report(
                Apply,
                Body::Projects(vec![project(net(), Applied, applied), stale, refused()]),
            ),
        ),
        (
            "apply_interrupted",
            report(Apply, Body::Interrupted(interrupted)),
        ),
    ]
}

fn state_samples() -> Vec<(&'static str, Report)> {
    use CommandKind::{Import, StateRm, Version};
    use ProjectOutcome::{Failed, Imported, StateRemoved, Told};
    let words = |operands: &[&str], report| Report {
        operands: operands.iter().map(|&word| word.to_owned()).collect(),
        ..report
    };
    let import = |one| {
        words(
            &["aws_vpc.main[\"a\"]", "vpc-0a1b"],
            report(Import, Body::Projects(vec![one])),
        )
    };
    let net = |outcome, output| project(key("infra/net", "default", Some("net")), outcome, output);
    let text = UserText::new(
        "The earlier plan is discarded, because it does not include this change.",
        [],
    );
    let imported = net(
        Imported,
        "aws_vpc.main[\"a\"]: Importing from ID \"vpc-0a1b\"...\n\nImport successful!\n",
    );
    let imported = ProjectReport {
        message: Some(text),
        next: Next::Plan,
        ..imported
    };
    let wrong = "╷\n│ Error: resource address \"aws_vpc.main[\\\"a\\\"]\" does not exist in the configuration.\n╵\n";
    let removed = |dir| ProjectReport {
        next: Next::Plan,
        ..project(
            key(dir, "default", None),
            StateRemoved,
            "Removed aws_vpc.old\nSuccessfully removed 1 resource instance(s).\n",
        )
    };
    let many = Body::Projects(vec![removed("app"), removed("db"), held()]);
    let cut = UserText::new(
        "the import was interrupted, because Lockkeeper stopped while it was running.",
        [],
    );
    let cut = ProjectReport {
        message: Some(cut),
        ..net(Failed, "")
    };
    vec![
        ("import_one", import(imported)),
        ("import_failed", import(net(Failed, wrong))),
        ("import_held", import(held())),
        (
            "import_interrupted",
            report(Import, Body::Interrupted(vec![cut])),
        ),
        (
            "import_no_projects",
            words(&["a.b", "1"], report(Import, Body::NoProjects(None))),
        ),
        (
            "state_rm_many",
            words(&["aws_vpc.old"], report(StateRm, many)),
        ),
        (
            "version_one",
            report(
                Version,
                Body::Projects(vec![net(Told, "Terraform v1.11.4\non linux_amd64\n")]),
            ),
        ),
    ]
}

/// Returns one comment for each reason to refuse a command.
fn refused_samples() -> Vec<(&'static str, Report)> {
    use CommandKind::{Autoplan, Help, Plan};
    let repo = "github.com/acme/infra".parse().expect("a repository");
    let (url, claims) = (
        "https://github.com/acme/infra",
        "https://locks.example/claims",
    );
    let not_available = CommandRefusal::not_available("approve_policies", &["plan", "apply"]);
    let refused = |command, refusal| report(command, Body::Refused(refusal));
    vec![
        (
            "not_allowlisted",
            refused(Plan, CommandRefusal::not_allowlisted(&repo)),
        ),
        (
            "unclaimed",
            refused(Plan, CommandRefusal::unclaimed(&repo, url, claims)),
        ),
        ("draft", refused(Autoplan, CommandRefusal::draft())),
        ("fork", refused(Plan, CommandRefusal::fork(Some(&repo)))),
        ("fork_gone", refused(Plan, CommandRefusal::fork(None))),
        ("not_available", refused(Help, not_available)),
    ]
}

/// Returns one comment for each event of a lock.
fn lock_samples() -> Vec<(&'static str, Report)> {
    use CommandKind::Unlock;
    let released = |plan| Released {
        plan,
        lock: true,
        ..Released::nothing(key("infra/net", "default", Some("net")))
    };
    let idle = IdleNotice {
        projects: vec![
            key("infra/net", "default", Some("net")),
            key("app", "default", None),
        ],
        ttl: TimeDelta::days(3),
        ends_at: DateTime::UNIX_EPOCH + TimeDelta::hours(72),
    };
    let expired = |released, applied| Body::LockExpired {
        released,
        ttl: TimeDelta::minutes(90),
        applied,
    };
    vec![
        (
            "unlocked",
            report(
                Unlock,
                Body::Unlocked {
                    released: vec![released(true), released(false)],
                    applied: false,
                },
            ),
        ),
        (
            "unlocked_nothing",
            report(
                Unlock,
                Body::Unlocked {
                    released: Vec::new(),
                    applied: false,
                },
            ),
        ),
        (
            "merged",
            report(
                Unlock,
                Body::Closed {
                    merged: true,
                    released: vec![released(true)],
                },
            ),
        ),
        (
            "not_merged",
            report(CommandKind::Apply, Body::NotMerged(not_merged())),
        ),
        ("lock_idle", report(Unlock, Body::LockIdle(idle))),
        (
            "lock_expired",
            report(Unlock, expired(vec![released(true)], false)),
        ),
        (
            "lock_expired_applied",
            report(Unlock, expired(vec![released(true), released(false)], true)),
        ),
        (
            "lock_released",
            report(Unlock, Body::LockLost(lost(LockLossKind::Released))),
        ),
        (
            "lock_taken_away",
            report(Unlock, Body::LockLost(taken_away())),
        ),
        (
            "lock_handed_over",
            report(Unlock, Body::LockLost(handed_over())),
        ),
    ]
}

fn not_merged() -> UserText {
    let hints = [
        "Do what github.com asks for. Then comment `lockkeeper apply` again, or merge by hand."
            .to_owned(),
    ];
    UserText::new(
        "github.com refused it: Required status check \"ci\" is expected.",
        hints,
    )
}

fn other_samples() -> Vec<(&'static str, Report)> {
    use CommandKind::{Apply, Help, Plan};
    let usage = "There is no flag `--foo` for `plan`; did you mean `--verbose`?".to_owned();
    let config = "error: unknown key `nmae`\n --> atlantis.yaml:3:5\n  |\n3 |   - nmae: net\n  |     ^^^^ did you mean `name`?";
    let broken = UserText::new(
        "this command could not be run.",
        ["Run the command again.".to_owned()],
    );
    vec![
        (
            "config_errors",
            report(Plan, Body::ConfigErrors(config.to_owned())),
        ),
        ("broken", report(Apply, Body::Broken(broken))),
        (
            "help",
            report(
                Help,
                Body::Help(
                    "lockkeeper plan   makes a plan\nlockkeeper apply  applies it".to_owned(),
                ),
            ),
        ),
        ("mistake", report(Help, Body::Mistake(usage))),
    ]
}

/// Returns one project that is planned, one that only a comment plans, and all kinds of skipped ones.
fn explained() -> PlanExplanation {
    let files = [
        "app/main.tf",
        "net/main.tf",
        "idle/main.tf",
        "HOSTILE`@all/main.tf",
    ];
    let tree = FileTree::new(files.map(|file| RepoPath::new(file).expect("a path")));
    let text = "version: 3\nprojects:\n- {dir: app}\n- {name: net, dir: net, autoplan: {enabled: false}}\n- {dir: gone}\n";
    let rules =
        ServerRepos::default().rules(&"github.com/acme/infra".parse().expect("a repository"));
    let config =
        RepoConfig::parse("lockkeeper.yaml", text, rules.permissions()).expect("it is valid");
    let changed = ["app/main.tf", "net/main.tf", "docs/`x`.md"].map(|file| ChangedFile {
        path: RepoPath::new(file).expect("a path"),
        previous: None,
        kind: ChangeKind::Modified,
    });
    let input = Input {
        tree: &tree,
        changed: &changed,
        config: Some(&config),
        base: &"main".parse().expect("a branch"),
        autodiscover: &rules.autodiscover(Some(&config)),
        modules: None,
        settings: &SearchSettings::default(),
        read: &|_| None,
    };
    let tool = ExplainedTool::of_server(Distribution::Terraform, None);
    explain(&ExplainInput {
        input: &input,
        rules: &rules,
        tool,
        autoplan: true,
    })
    .expect("there is not much to it")
}

fn warnings() -> Vec<ConfigWarning> {
    let warning = |file: &str, line, what: &str| ConfigWarning {
        file: file.to_owned(),
        line,
        what: what.to_owned(),
        help: "correct it, or remove it".to_owned(),
    };
    vec![
        warning(
            "live/app/terragrunt.hcl",
            Some(7),
            "the `source` is not known: `run_cmd()` runs a program",
        ),
        warning(
            "lockkeeper.yaml",
            None,
            "no project uses the workflow `a|b`</details>",
        ),
    ]
}

fn explain_samples() -> Vec<(&'static str, Report)> {
    let nothing = PlanExplanation {
        planned: Vec::new(),
        ..explained()
    };
    let hooks = PlanExplanation {
        hooks: 2,
        ..explained()
    };
    vec![
        (
            "explained_without_hooks",
            report(
                CommandKind::Explain,
                Body::Explained(Box::new(hooks), vec![]),
            ),
        ),
        (
            "explained",
            report(
                CommandKind::Explain,
                Body::Explained(Box::new(explained()), warnings()),
            ),
        ),
        (
            "explained_nothing",
            report(
                CommandKind::Explain,
                Body::Explained(Box::new(nothing), vec![]),
            ),
        ),
    ]
}

fn lost(how: LockLossKind) -> LostLock {
    LostLock {
        key: key("infra/net", "default", Some("net")),
        how,
        by: Actor::new("alice", Origin::Page),
        reason: None,
        plan: true,
        interrupted: false,
        applied: false,
        now: None,
    }
}

fn taken_away() -> LostLock {
    let by = Actor::new("a`b", Origin::Cli);
    let now = Some((
        Subject::pull(3),
        "https://github.com/acme/infra/pull/3".to_owned(),
    ));
    let reason = Some("the outage first; see #4 and @acme/ops, <b>now</b>".to_owned());
    LostLock {
        by,
        reason,
        interrupted: true,
        applied: true,
        now,
        ..lost(LockLossKind::TakenAway)
    }
}

fn handed_over() -> LostLock {
    let now = Some((Subject::pull(3), "javascript:alert(1)".to_owned()));
    LostLock {
        now,
        plan: false,
        ..lost(LockLossKind::HandedOver)
    }
}

fn hostile() -> Report {
    let key = key(HOSTILE, "a|b", None);
    let message = UserText::new(
        format!("`{HOSTILE}` and <b>{HOSTILE}</b>"),
        [format!("- {HOSTILE}\n# x")],
    );
    let output = format!("```\n</details>\n{HOSTILE}\n<!-- lockkeeper {{}} -->\n");
    let bad = ProjectReport {
        message: Some(message),
        ..project(key, ProjectOutcome::Failed, &output)
    };
    report(CommandKind::Plan, Body::Projects(vec![bad, planned()]))
}

pub(super) fn samples() -> Vec<(&'static str, Report)> {
    let of_projects = [
        plan_samples(),
        apply_samples(),
        state_samples(),
        explain_samples(),
        policy_samples(),
        approval_samples(),
    ];
    let of_others = [
        refused_samples(),
        lock_samples(),
        other_samples(),
        vec![("hostile", hostile())],
    ];
    [of_projects.concat(), of_others.concat()].concat()
}

#[test]
fn the_whole_voice_of_the_bot() {
    for (name, report) in samples() {
        let comments = comments(&report, &Limits::default());
        assert_eq!(comments.len(), 1, "{name}");
        assert_eq!(
            MachineLine::find(&comments[0].body),
            Some(report.machine_line()),
            "{name}"
        );
        assert!(comments[0].body.contains(&comments[0].marker), "{name}");
        insta::assert_snapshot!(name, comments[0].body);
    }
}

#[test]
fn a_text_that_is_no_comment_has_no_lines_for_programs_and_all_lines_of_an_output() {
    for (name, mut report) in samples() {
        let with_lines = comments(&report, &Limits::default());
        report.style.machine_lines = false;
        let without = comments(&report, &Limits::default());
        let (text, line) = with_lines[0]
            .body
            .rsplit_once("\n\n")
            .expect("a comment ends with its line");
        assert_eq!(without[0].body, text, "{name}");
        assert!(line.contains(&without[0].marker), "{name}");
    }
    let mut report = flood(200, 60);
    report.style.machine_lines = false;
    let all = comments(&report, &Limits::default());
    assert!(all.len() > 1, "{}", all.len());
    assert!(
        all.iter().all(|one| PartLine::find(&one.body).is_none()),
        "no part has a line"
    );
}

/// Returns very many projects with very long outputs.
fn flood(projects: usize, lines: usize) -> Report {
    let output = "  + line ``` </details> é\n".repeat(lines);
    let one = |n: usize| {
        project(
            key(&format!("dir/{n}"), "default", None),
            ProjectOutcome::Planned,
            &output,
        )
    };
    report(
        CommandKind::Plan,
        Body::Projects((0..projects).map(one).collect()),
    )
}

#[test]
fn very_much_to_say_becomes_several_comments_that_tell_each_other_apart() {
    for (comment, most) in [(65_536, 100), (65_536, 3), (4_096, 7), (1, 2), (32_768, 0)] {
        let report = flood(200, 60);
        let all = comments(
            &report,
            &Limits {
                comment,
                comments: most,
            },
        );
        assert!(
            all.len() > 1 && (most == 0 || all.len() <= most),
            "{} {most}",
            all.len()
        );
        for (n, one) in (1..).zip(&all) {
            assert!(
                one.body.len() <= comment.max(MIN_COMMENT),
                "{}",
                one.body.len()
            );
            let line = PartLine::find(&one.body).expect("every comment has its line");
            assert_eq!((line.part, Ok(line.parts)), (n, u32::try_from(all.len())));
            let whole = MachineLine::find(&one.body).map(|line| line.outcome);
            assert_eq!(
                whole,
                (line.part == line.parts).then_some(CommandOutcome::Success),
                "once, in the last part"
            );
            assert_eq!(
                all.iter()
                    .filter(|other| other.body.contains(&one.marker))
                    .count(),
                1
            );
        }
    }
}

#[test]
fn dropped_comments_leave_a_note_and_a_link() {
    let all = comments(
        &flood(200, 60),
        &Limits {
            comment: 65_536,
            comments: 2,
        },
    );
    assert!(all[0].body.contains(
        "left out here**, because a command may post only a limited number of comments: [see the full output](https://"
    ));
    assert!(
        all[0]
            .body
            .starts_with("Ran Plan for 200 projects: 200 planned\n")
    );
    assert!(
        all[1]
            .body
            .contains("To **apply** all plans of this pull request")
    );
}

#[test]
fn one_very_long_output_is_cut_only_where_the_operator_limits_comments() {
    let lines = |all: &[Comment]| {
        all.iter()
            .map(|one| one.body.matches("line ``` </details> é").count())
            .sum::<usize>()
    };
    let all = comments(&flood(1, 50_000), &Limits::default());
    assert_eq!((all.len() > 10, lines(&all)), (true, 50_000));
    let few = comments(
        &flood(1, 50_000),
        &Limits {
            comments: 3,
            ..Limits::default()
        },
    );
    assert_eq!((few.len(), lines(&few) < 10_000), (3, true));
    let text = "left out here**, because a command may post only a limited number of comments: [see the full output](https://locks.example/";
    assert!(
        few.iter().any(|one| one.body.contains(text)),
        "{}",
        few[1].body
    );
}

#[test]
fn an_explanation_of_very_many_projects_is_bounded_and_says_what_it_left_out() {
    let one = explained().planned.remove(0);
    let planned = (0..2_000).map(|n| {
        let mut planned = one.clone();
        planned.key = key(&format!("dir/{n}"), "default", None);
        planned.order.group = n / 10;
        planned
    });
    let explanation = PlanExplanation {
        planned: planned.collect(),
        ..explained()
    };
    let all = comments(
        &report(
            CommandKind::Explain,
            Body::Explained(Box::new(explanation), vec![]),
        ),
        &Limits::default(),
    );
    assert_eq!(all.len(), 1);
    assert!(
        all[0]
            .body
            .starts_with("Ran Explain: 2000 of 2003 projects would be planned"),
        "{}",
        all[0].body
    );
    assert!(
        all[0]
            .body
            .contains("\n1800 more projects would be planned, with other settings.\n")
    );
    assert!(all[0].body.contains("\"truncated\":true"));
}
