//! Runs `approve_policies --clear-policy-approval`: people take approvals of violations back.
//!
//! A withdrawal can only refuse more, and may be urgent, so it comes before everything that could fail. It needs no plan, no
//! label, no hook, and no configuration of the repository. Owners of a set that is configured withdraw all of its approvals
//! in the pull request, and all people withdraw those that they gave themselves, even if the set is not configured any more.
//! Running the command a second time finds nothing left, so a crash does no harm.
//!
//! The report and the status of the policy checks follow afterwards.

use std::collections::BTreeSet;

use lockkeeper_policy::decision::PolicyApproval;
use lockkeeper_policy::sets::{MAX_OWNER_TEAMS, PolicySet, SetName};

use super::CommandCx;
use super::approvals::{
    self, ApprovalOutcome, person, plans_of_head, report_on, set_names, with_teams_left_out,
};
use super::policies::PlannedRules;
use super::projects::{self, Work};
use super::stop::Stop;
use crate::authz;
use crate::command::ApprovePoliciesCommand;
use crate::features::replies::{self, Reply};
use crate::forges::ForgeError;
use crate::model::{CommitStatus, PlanRecord, ProjectKey, ProjectOutcome, code_span};
use crate::render::{Next, ProjectReport, owner_sentence, status};
use crate::store::{ProjectApproval, SetApprovals};

/// Withdraws approvals. `only` is the only set that is meant; `None` for all.
pub(super) async fn run(
    cx: &CommandCx<'_>,
    command: &ApprovePoliciesCommand,
    only: Option<&SetName>,
) -> Result<Reply, Stop> {
    cx.start(vec![]).await?;
    let store = &cx.ctx.store;
    let mut given = store.policy_approvals(&cx.pull.at).await?;
    let plans = store.plan_list(&cx.pull.at).await?;
    let approved = given.iter().map(|given| given.project.clone());
    let planned = plans.iter().map(|plan| plan.project.clone());
    let all: BTreeSet<ProjectKey> = approved.chain(planned).collect();
    let meant = match projects::meant(cx, &command.target, &all) {
        Ok(meant) => meant,
        Err(error) => return Ok(projects::wrong_name(&error)),
    };
    given.retain(|given| {
        meant.contains(&given.project) && only.is_none_or(|only| given.approval.set == *only)
    });
    if meant.is_empty() {
        let message =
            "there are no approvals of policy violations here, so there is nothing to withdraw.";
        return Ok(Reply::refused("no_approvals", message.to_owned(), vec![]));
    }
    let mut withdrawal = Withdrawal {
        cx,
        person: person(cx, command),
        given,
        owned: BTreeSet::new(),
        teams_left_out: 0,
    };
    withdrawal.carry_out().await?;
    withdrawal.reply(&plans, meant).await
}

/// Approvals that are withdrawn as far as the author of the command may do so.
struct Withdrawal<'a> {
    cx: &'a CommandCx<'a>,
    /// Author of the command, if the forge or this server names one.
    person: Option<String>,
    /// Approvals that are meant.
    given: Vec<ProjectApproval>,
    /// Sets that the author of the command owns, as far as they have approvals.
    owned: BTreeSet<SetName>,
    /// Maximum number of teams of a set whose members were not looked up.
    teams_left_out: usize,
}

impl Withdrawal<'_> {
    /// Removes the approvals. The forge is asked about teams only after everything was removed that needs no answer.
    async fn carry_out(&mut self) -> Result<(), Stop> {
        let login = &self.cx.row.actor.login;
        let approved: BTreeSet<SetName> = self
            .given
            .iter()
            .map(|given| given.approval.set.clone())
            .collect();
        let configured: Vec<PolicySet> = self.configured(|set| approved.contains(&set.name));
        let (own, others): (Vec<PolicySet>, Vec<PolicySet>) = configured
            .into_iter()
            .partition(|set| set.owners.has(login, &[]));
        self.owned = own.into_iter().map(|set| set.name).collect();
        self.remove().await?;
        let mut by_team = BTreeSet::new();
        for set in others {
            if self.is_in_team_of(&set).await? {
                by_team.insert(set.name);
            } else {
                let left_out = set.owners.teams.len().saturating_sub(MAX_OWNER_TEAMS);
                self.teams_left_out = self.teams_left_out.max(left_out);
            }
        }
        if !by_team.is_empty() {
            self.owned.extend(by_team);
            self.remove().await?;
        }
        Ok(())
    }

    /// Returns the sets of the server that fit, whether or not they concern a project now.
    fn configured(&self, fits: impl Fn(&PolicySet) -> bool) -> Vec<PolicySet> {
        let repos = &self.cx.ctx.settings.repo_rules.repos;
        repos.policies().sets.into_iter().filter(fits).collect()
    }

    /// Returns true if the author of the command is in one of the teams that own a set.
    async fn is_in_team_of(&self, set: &PolicySet) -> Result<bool, ForgeError> {
        let (cx, login) = (self.cx, &self.cx.row.actor.login);
        for team in set.owners.teams.iter().take(MAX_OWNER_TEAMS) {
            if authz::is_member(cx.ctx, &cx.pull.at.repo, team, login).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if the author of the command has given an approval. Logins are not compared, because others may have
    /// had the same one.
    fn is_own(&self, approval: &PolicyApproval) -> bool {
        let account = self.cx.row.actor.account;
        self.person.as_ref() == Some(&approval.person)
            || (account.is_some() && account == approval.account)
    }

    /// Removes all approvals of the sets that the author of the command owns, and of other sets those that the author gave.
    async fn remove(&self) -> Result<(), sqlx::Error> {
        let mut unwanted: Vec<SetApprovals> = Vec::new();
        for ProjectApproval { project, approval } in &self.given {
            let is_owned = self.owned.contains(&approval.set);
            if !is_owned && !self.is_own(approval) {
                continue;
            }
            let approvals = SetApprovals {
                project: project.clone(),
                set: approval.set.clone(),
                person: (!is_owned).then(|| approval.person.clone()),
            };
            if !unwanted.contains(&approvals) {
                unwanted.push(approvals);
            }
        }
        if unwanted.is_empty() {
            return Ok(());
        }
        let (cx, cause) = (self.cx, self.cx.cause_of("withdrawn"));
        let cleared = cx.ctx.store.policy_clear(&cx.pull.at, &unwanted, &cause);
        cleared.await.map(drop)
    }

    /// Says what was withdrawn in a project.
    fn outcome(&self, project: &ProjectKey) -> ApprovalOutcome {
        let login = code_span(&self.cx.row.actor.login);
        let (mut all, mut own, mut left) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for given in self.given.iter().filter(|given| given.project == *project) {
            let set = &given.approval.set;
            if self.owned.contains(set) {
                all.insert(set);
            } else if self.is_own(&given.approval) {
                own.insert(set);
            } else {
                left.insert(set);
            }
        }
        let mut outcome = ApprovalOutcome::default();
        if !all.is_empty() {
            let names = set_names(all);
            outcome
                .done
                .push(format!("The approvals of {names} were withdrawn."));
        }
        if !own.is_empty() {
            let names = set_names(own.iter().copied());
            outcome.done.push(format!(
                "{login} withdrew the approvals of {names} that {login} had given."
            ));
        }
        for set in left.difference(&own) {
            outcome.refused.push(self.refusal(&login, set));
        }
        if outcome.done.is_empty() && outcome.refused.is_empty() {
            let nothing = "There are no approvals to withdraw.";
            outcome.done.push(nothing.to_owned());
        }
        outcome
    }

    /// Says why approvals of other people stay.
    fn refusal(&self, login: &str, name: &SetName) -> String {
        let Some(set) = self.configured(|set| set.name == *name).pop() else {
            return format!(
                "{login} may not withdraw the approvals of `{name}`. The set is not configured any more, so only the people who \
                 gave them can withdraw them."
            );
        };
        let who = owner_sentence(&set.owners, "withdraw them");
        let refusal = format!("{login} may not withdraw the approvals of `{name}`. {who}");
        with_teams_left_out(refusal, self.teams_left_out)
    }

    /// Reports on the projects that are meant, and sets the status of the policy checks.
    async fn reply(
        &self,
        plans: &[PlanRecord],
        meant: BTreeSet<ProjectKey>,
    ) -> Result<Reply, Stop> {
        let cx = self.cx;
        let of_head = plans_of_head(cx, plans);
        let rules = PlannedRules::read(cx, &of_head).await?;
        let is_unread = rules.refusal().is_some();
        let work = Work::of_plans(cx.ctx, rules, &of_head);
        let mut reports = Vec::new();
        for project in meant {
            let outcome = self.outcome(&project);
            let plan = of_head.iter().find(|plan| plan.project == project);
            reports.push(match plan.filter(|_| !is_unread) {
                Some(plan) => report_on(cx, &work, plan, outcome).await?,
                None => without_plan(project, outcome),
            });
        }
        cx.left_to_others()?;
        let status = self.status(&work, is_unread).await?;
        Ok(approvals::reply(cx, reports, status))
    }

    async fn status(
        &self,
        work: &Work,
        is_unread: bool,
    ) -> Result<Option<CommitStatus>, sqlx::Error> {
        let cx = self.cx;
        if is_unread {
            // An earlier success must not stay.
            let unread = replies::policies_status(cx.ctx, status::policies_unread());
            return Ok(Some(unread).filter(|_| !self.given.is_empty()));
        }
        approvals::status(cx, work).await
    }
}

/// Reports on a project that has no plan whose policies could be shown.
fn without_plan(project: ProjectKey, outcome: ApprovalOutcome) -> ProjectReport {
    let result = if outcome.done.is_empty() {
        ProjectOutcome::Refused
    } else {
        ProjectOutcome::Told
    };
    ProjectReport {
        message: Some(outcome.into_text()),
        next: Next::Nothing,
        ..ProjectReport::new(project, result)
    }
}
