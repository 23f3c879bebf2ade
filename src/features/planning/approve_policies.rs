//! Runs `approve_policies`: people let a plan be applied although it violates policies (reference 13.4).
//!
//! An approval belongs to a person, a plan, a set, and the violations that the person could see. It is a row of the
//! database, and the gate of the next apply counts it. Running the command a second time replaces the rows by the same
//! ones, so a crash does no harm.
//!
//! The checks have this order:
//! - Policies are checked at all, and the plan is one of the commit that the pull request has now.
//! - The comment was written after the command that made the plan had ended, so that its author can have seen the
//!   violations. A plan is stored earlier, while other projects of the command are still planned.
//! - The set is violated. A set that was not evaluated, or has changed since, cannot be approved.
//! - The person owns the set, or is in a team that a violated rule names. The author of the pull request may be excluded.
//!
//! To withdraw approvals needs much less (`withdraw_approvals.rs`).
//!
//! A team whose members the forge does not name lets nobody approve (P6).

use std::collections::HashMap;

use lockkeeper_policy::decision::{self, PolicyApproval, SetDecision};
use lockkeeper_policy::sets::{MAX_OWNER_TEAMS, PolicySet, SetName};
use lockkeeper_policy::verdict::Verdict;

use super::approvals::{
    self, ApprovalOutcome, person, plans_of_head, refused_report, report_on, set_names,
    teams_left_out_sentence, with_teams_left_out,
};
use super::hooks::{self, HookFacts};
use super::policies::PlannedRules;
use super::policy_checks::{self, CurrentSet};
use super::projects::{self, PlanUse, Work};
use super::stop::Stop;
use super::{CommandCx, permission, seen, withdraw_approvals};
use crate::authz;
use crate::command::ApprovePoliciesCommand;
use crate::config::access::Action;
use crate::features::replies::Reply;
use crate::forges::ForgeError;
use crate::model::{PlanId, PlanRecord, PlanState, WorkspaceName, code_span};
use crate::render::{Next, ProjectReport, UserText, approval_sentence};
use crate::store::{PlanPolicies, PolicyApprove};

pub(super) async fn run(
    cx: &CommandCx<'_>,
    command: &ApprovePoliciesCommand,
) -> Result<Reply, Stop> {
    let only = match command.policy_set.as_deref().map(SetName::parse) {
        None => None,
        Some(Ok(name)) => Some(name),
        Some(Err(error)) => {
            let message = format!("`--policy-set` does not name a policy set: {error}.");
            return Ok(Reply::refused("policy_set", message, Vec::new()));
        }
    };
    if command.clear {
        return Box::pin(withdraw_approvals::run(cx, command, only.as_ref())).await;
    }
    let found = cx.ctx.store.policy_decisions(&cx.pull.at).await?;
    if found.is_empty() && !policy_checks::may_be_on(cx) {
        return Ok(not_checked());
    }
    let Some(person) = person(cx, command) else {
        return Ok(nobody_known(cx));
    };
    // No status says that it runs: it asks nothing but the database and the forge.
    cx.start(vec![]).await?;
    let meant = projects::plans(cx, &command.target, PlanUse::Approve).await?;
    let all = cx.ctx.store.plan_list(&cx.pull.at).await?;
    let of_head = plans_of_head(cx, &all);
    let rules = PlannedRules::read(cx, &of_head).await?;
    if let Some(refusal) = rules.refusal() {
        return Ok(refusal);
    }
    let work = Work::of_plans(cx.ctx, rules, &of_head);
    let is_checked = policy_checks::is_on(cx, &work, of_head.iter().map(|plan| &plan.project));
    if found.is_empty() && !of_head.is_empty() && !is_checked {
        return Ok(not_checked());
    }
    run_hooks(cx, &work, &of_head, command).await?;
    let approving = ApprovalRequest {
        cx,
        command,
        only,
        person,
        work: &work,
        found,
    };
    let mut reports = Vec::new();
    for plan in &meant {
        reports.push(approving.project(plan).await?);
    }
    cx.left_to_others()?;
    let status = approvals::status(cx, &work).await?;
    Ok(approvals::reply(cx, reports, status))
}

/// Runs the hooks before the command, in a checkout of a plan. Without hooks, nothing is checked out.
async fn run_hooks(
    cx: &CommandCx<'_>,
    work: &Work,
    plans: &[&PlanRecord],
    command: &ApprovePoliciesCommand,
) -> Result<(), Stop> {
    let Some(plan) = plans.first().filter(|_| hooks::any(cx, work.rules())) else {
        return Ok(());
    };
    let fetched = cx.ctx.checkouts.fetch_plan(plan).await;
    let source = fetched.map_err(projects::checkout_refusal)?;
    let checkout = work
        .checkout_of(cx, &source, &WorkspaceName::default())
        .await
        .map_err(projects::checkout_refusal)?;
    let given = HookFacts::of(&command.target, &[]);
    hooks::before(cx, work.rules(), &checkout, given).await
}

fn not_checked() -> Reply {
    Reply::refused(
        "policy_checks_off",
        "plans of this repository are not checked against policies, so there is nothing to approve.".to_owned(),
        vec![
            "Apply the plan as it is.".to_owned(),
            "An administrator can configure policy sets, and switch the checks on with `--enable-policy-checks`."
                .to_owned(),
        ],
    )
}

fn nobody_known(cx: &CommandCx<'_>) -> Reply {
    let host = cx.pull.at.repo.host();
    Reply::refused(
        "unknown_account",
        format!(
            "{host} did not name the account that wrote the comment, so its approval could not be counted."
        ),
        vec!["Comment the command again.".to_owned()],
    )
}

/// Request to approve violations of some plans.
struct ApprovalRequest<'a> {
    cx: &'a CommandCx<'a>,
    command: &'a ApprovePoliciesCommand,
    /// The only set that is meant; `None` for all.
    only: Option<SetName>,
    person: String,
    work: &'a Work,
    found: HashMap<PlanId, PlanPolicies>,
}

/// Permission of the author of the command to approve a set.
struct ApproverRights {
    /// Teams of the set and of its rules that the author is in.
    teams: Vec<String>,
    /// True if the author owns the set, or is in a team that a violated rule names.
    may_approve: bool,
    /// True if the author of the command opened the pull request.
    is_author: bool,
    /// Number of further teams that decide, and whose members were not looked up.
    teams_left_out: usize,
}

/// Result of a request to approve one set.
enum ApprovalAnswer {
    /// An approval to store.
    New {
        approval: Box<PolicyApproval>,
        teams_left_out: usize,
    },
    /// The person has approved before, as this sentence says. An attempt of this command that was cut off may have stored
    /// the approval.
    Given(String),
    Refused(String),
}

impl ApprovalRequest<'_> {
    async fn project(&self, plan: &PlanRecord) -> Result<ProjectReport, Stop> {
        let cx = self.cx;
        let report = refused_report(cx, plan);
        if let Some(text) = stale(cx, self.command, plan).await? {
            return Ok(ProjectReport {
                message: Some(text),
                next: Next::Plan,
                ..report
            });
        }
        let denied = permission::check_project(cx, Action::ApprovePolicies, &plan.project).await?;
        if denied.is_some() {
            return Ok(ProjectReport {
                message: denied,
                ..report
            });
        }
        let sets = self
            .work
            .policies(&plan.project)
            .sets(&plan.project, &cx.pull.labels)
            .unwrap_or_default();
        let found = self.found.get(&plan.id).cloned().unwrap_or_default();
        let found = policy_checks::with_members_now(cx, &sets, found).await;
        let decisions = policy_checks::decisions(&sets, &found, plan.id, policy_checks::today(cx));
        if let Some(why) = self.refusal(plan, &decisions) {
            return Ok(ProjectReport {
                message: Some(why),
                ..report
            });
        }
        let done = self.approve(plan, &sets, &found, &decisions).await?;
        Ok(report_on(cx, self.work, plan, done).await?)
    }

    /// Returns the reason why nothing of this plan can be approved.
    fn refusal(&self, plan: &PlanRecord, decisions: &[(SetName, SetDecision)]) -> Option<UserText> {
        if matches!(plan.state, PlanState::Applied | PlanState::Applying) {
            let message = "this plan was already applied, or is being applied, so there is nothing to approve.";
            return Some(UserText::new(message, []));
        }
        let only = self.only.as_ref()?;
        if decisions.iter().any(|(name, _)| name == only) {
            return None;
        }
        let hint = if decisions.is_empty() {
            "No policy set concerns this project.".to_owned()
        } else {
            let names = set_names(decisions.iter().map(|(name, _)| name));
            format!("Policy sets of this project: {names}.")
        };
        let message = format!("no policy set `{only}` concerns this project.");
        Some(UserText::new(message, [hint]))
    }

    fn is_meant(&self, name: &SetName) -> bool {
        self.only.as_ref().is_none_or(|only| only == name)
    }

    /// Approves the violations of every set that the author of the command may approve.
    async fn approve(
        &self,
        plan: &PlanRecord,
        sets: &[CurrentSet],
        found: &PlanPolicies,
        decisions: &[(SetName, SetDecision)],
    ) -> Result<ApprovalOutcome, Stop> {
        let cx = self.cx;
        let (mut approvals, mut outcome) = (Vec::new(), ApprovalOutcome::default());
        let mut teams_missed = 0;
        for (name, decision) in decisions.iter().filter(|(name, _)| self.is_meant(name)) {
            if matches!(decision, SetDecision::Approved(_)) {
                outcome.done.extend(self.given_for(plan, name, found));
            }
            if !matches!(decision, SetDecision::NeedsApproval { .. }) {
                continue;
            }
            let set = sets.iter().find(|(set, _)| set.name == *name);
            let verdict = found.verdicts.iter().find(|verdict| verdict.set == *name);
            let (Some(set), Some(verdict)) = (set, verdict) else {
                continue;
            };
            match self.approval(plan, set, verdict, &found.approvals).await? {
                ApprovalAnswer::New {
                    approval,
                    teams_left_out,
                } => {
                    approvals.push(*approval);
                    teams_missed = teams_missed.max(teams_left_out);
                }
                ApprovalAnswer::Given(sentence) => outcome.done.push(sentence),
                ApprovalAnswer::Refused(why) => outcome.refused.push(why),
            }
        }
        if approvals.is_empty() {
            return Ok(outcome);
        }
        let cause = cx.cause_of("approved");
        match cx
            .ctx
            .store
            .policy_approve(plan, &approvals, &cause)
            .await?
        {
            PolicyApprove::Stored => {
                outcome.done.push(format!(
                    "{} approved the violations of {}.",
                    code_span(&cx.row.actor.login),
                    set_names(approvals.iter().map(|approval| &approval.set))
                ));
                outcome.done.extend(teams_left_out_sentence(teams_missed));
            }
            PolicyApprove::PlanGone => outcome.refused.push(
                "the plan was discarded or applied in the meantime, so nothing was approved."
                    .to_owned(),
            ),
        }
        Ok(outcome)
    }

    /// Returns the sentence that the author of the command has approved a set, if an approval of this plan says so.
    fn given_for(&self, plan: &PlanRecord, name: &SetName, found: &PlanPolicies) -> Option<String> {
        let is_given = found.approvals.iter().any(|approval| {
            approval.set == *name && approval.plan == plan.id && approval.person == self.person
        });
        let login = code_span(&self.cx.row.actor.login);
        is_given.then(|| format!("{login} has already approved the violations of `{name}`."))
    }

    /// Returns the approval of one set, or why there is none.
    async fn approval(
        &self,
        plan: &PlanRecord,
        current: &CurrentSet,
        verdict: &Verdict,
        given: &[PolicyApproval],
    ) -> Result<ApprovalAnswer, Stop> {
        let (cx, set) = (self.cx, &current.0);
        let (name, login) = (&set.name, &cx.row.actor.login);
        let decision = self.decision(current, verdict).await?;
        if !decision.may_approve {
            let left_out = decision.teams_left_out;
            let why = not_an_owner(login, set, verdict, left_out);
            return Ok(ApprovalAnswer::Refused(why));
        }
        if set.prevent_self_approve && decision.is_author {
            return Ok(ApprovalAnswer::Refused(format!(
                "{} opened this pull request, so somebody else must approve `{name}` (`prevent_self_approve`).",
                code_span(login)
            )));
        }
        let new = PolicyApproval {
            set: name.clone(),
            plan: plan.id,
            person: self.person.clone(),
            account: cx.row.actor.account,
            login: login.clone(),
            teams: decision.teams,
            is_author: decision.is_author,
            items: verdict.items.clone(),
            definition: verdict.definition.clone(),
            at: cx.ctx.clock.now(),
        };
        let counts = |approval: &PolicyApproval| {
            let covers = new.items.iter().all(|item| approval.items.contains(item));
            let has_teams = new.teams.iter().all(|team| approval.teams.contains(team));
            approval.is_of_same_person(&new)
                && covers
                && has_teams
                && approval.set == *name
                && approval.definition == new.definition
                && (approval.plan == plan.id || set.sticky)
        };
        let mut counting = given.iter().filter(|&one| counts(one)).peekable();
        if counting.peek().is_some() {
            let sentence = format!(
                "{} has already approved `{name}`, and somebody else must approve it, too.",
                code_span(login)
            );
            // Others may have had the same login.
            return Ok(if counting.any(|approval| approval.person == new.person) {
                ApprovalAnswer::Given(sentence)
            } else {
                ApprovalAnswer::Refused(sentence)
            });
        }
        Ok(ApprovalAnswer::New {
            approval: Box::new(new),
            teams_left_out: decision.teams_left_out,
        })
    }

    /// Finds out whether the author of the command may approve a set. The forge is only asked about teams if there are
    /// any.
    async fn decision(
        &self,
        (set, definition): &CurrentSet,
        verdict: &Verdict,
    ) -> Result<ApproverRights, ForgeError> {
        let (cx, login) = (self.cx, &self.cx.row.actor.login);
        let needed = set.needed(definition.clone());
        let mut deciding = decision::deciding_teams(&needed, verdict);
        let teams_left_out = deciding.len().saturating_sub(MAX_OWNER_TEAMS);
        deciding.truncate(MAX_OWNER_TEAMS);
        let mut teams = Vec::new();
        for team in deciding {
            if authz::is_member(cx.ctx, &cx.pull.at.repo, &team, login).await? {
                teams.push(team);
            }
        }
        Ok(ApproverRights {
            may_approve: decision::may_approve(&needed, verdict, login, &teams),
            is_author: login.eq_ignore_ascii_case(&cx.pull.author),
            teams,
            teams_left_out,
        })
    }
}

/// Returns the reason why nobody can approve this plan: it is of another commit, or nobody can have looked at it.
async fn stale(
    cx: &CommandCx<'_>,
    command: &ApprovePoliciesCommand,
    plan: &PlanRecord,
) -> Result<Option<UserText>, sqlx::Error> {
    if plan.head != cx.pull.head {
        let message = format!(
            "the plan was made for commit `{}`, and the pull request is at `{}` now. Nothing was approved.",
            plan.head.short(),
            cx.pull.head.short()
        );
        return Ok(Some(UserText::new(message, [])));
    }
    if plan.base_branch != cx.pull.base_branch {
        let message = format!(
            "the plan was made against the base branch `{}`, and the base branch of the pull request is `{}` now. \
             Nothing was approved.",
            plan.base_branch, cx.pull.base_branch
        );
        return Ok(Some(UserText::new(message, [])));
    }
    let Some(written_at) = command.written_at else {
        let host = cx.pull.at.repo.host();
        let message = format!(
            "{host} did not report when the comment was written, so Lockkeeper cannot tell whether its author saw the \
             plan. Nothing was approved."
        );
        let hint = "Comment the command again.".to_owned();
        return Ok(Some(UserText::new(message, [hint])));
    };
    if seen::by_author(cx, plan, Some(written_at)).await? {
        return Ok(None);
    }
    let message = "it is not certain that a comment showed the plan when its approval was requested. Nothing was approved.";
    let hint = "Look at what the policies found, then comment the command again. If that is refused as well, plan again first."
        .to_owned();
    Ok(Some(UserText::new(message, [hint])))
}

fn not_an_owner(login: &str, set: &PolicySet, verdict: &Verdict, teams_left_out: usize) -> String {
    let who = approval_sentence(&set.owners, Some(verdict), "it");
    let refusal = format!("{} may not approve `{}`. {who}", code_span(login), set.name);
    with_teams_left_out(refusal, teams_left_out)
}
