//! Verdicts and approvals of policy checks (P5, P6).
//!
//! The verdicts of a plan are stored in the transaction that stores its record, and go with the record. So a plan without
//! its verdicts never waits for an apply. Each row has a checksum. A row that was changed or cannot be read counts as not
//! evaluated, so that no damage lets a plan pass.
//!
//! An approval belongs to the plan that the person saw, and stays when that plan is replaced, because the approvals of a
//! sticky set count for later plans with the same violations. All approvals go when the pull is closed. An approval that
//! cannot be read does not count.
//!
//! The row of the pull and the row of the plan are the mutexes. An approval shares the first and holds the second, like
//! the gate of an apply. Removing approvals holds the row of the pull. So each of them is either before the gate or after
//! it.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, Utc};
use lockkeeper_policy::decision::{self, PolicyApproval, SetDecision};
use lockkeeper_policy::findings::{AppliedWaiver, PolicyFinding};
use lockkeeper_policy::sets::{SetDigest, SetName};
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use serde::Serialize;

use super::locks::{name_column, name_from_column};
use super::people::account_column;
use super::pulls::{pull_hold_in_tx, pull_share_in_tx};
use super::{
    ApplyChecks, Result, Store, TeamMember, Tx, execute, free_text, kept_time, on_pool,
    on_snapshot, on_tx,
};
use crate::model::{
    AccountId, Cause, LockEventKind, NewLockEvent, PlanId, PlanRecord, ProjectKey, PullRef,
    PullState, RepoPath, RunId, Sha256Digest, WorkspaceName,
};

/// Verdicts and approvals that decide whether a plan may be applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanPolicies {
    /// Verdicts on the plan, in the order in which they were recorded.
    pub verdicts: Vec<Verdict>,
    /// Approvals in the project of the plan, of this plan and of earlier ones, the oldest first.
    pub approvals: Vec<PolicyApproval>,
}

impl PlanPolicies {
    /// Returns the same with approvals that count only for teams of these members. People may have left a team since they
    /// approved.
    #[must_use]
    pub fn with_members(mut self, members: &[TeamMember]) -> Self {
        for approval in &mut self.approvals {
            let login = &approval.login;
            approval.teams.retain(|team| {
                members.iter().any(|member| {
                    member.login.eq_ignore_ascii_case(login)
                        && member.team.eq_ignore_ascii_case(team)
                })
            });
        }
        self
    }
}

/// An approval, and the project of its plan. That plan may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectApproval {
    pub project: ProjectKey,
    pub approval: PolicyApproval,
}

/// Approvals of one set in one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetApprovals {
    pub project: ProjectKey,
    pub set: SetName,
    /// The only person whose approvals are meant; `None` for all people.
    pub person: Option<String>,
}

/// Outcome of an approval.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyApprove {
    /// The approvals were stored.
    Stored,
    /// The plan was discarded, applied or is being applied, or its pull is closed. Nothing was stored.
    PlanGone,
}

macro_rules! verdicts_sql {
    ($more:literal, $of:literal) => {
        concat!(
            "SELECT v.plan, v.set_name, v.place, v.definition, v.outcome, v.why, v.origin, v.content, v.weights, ",
            "v.more_findings, v.items, v.texts, v.checksum",
            $more,
            " FROM plans p JOIN policy_verdicts v ON v.plan = p.id WHERE ",
            $of
        )
    };
}

/// Selects whole verdicts, with the texts for people.
macro_rules! whole_verdicts_sql {
    ($of:literal) => {
        verdicts_sql!(", v.findings, v.notes, v.output, v.tool", $of)
    };
}

/// Selects the approvals in the project of each plan.
macro_rules! approvals_sql {
    ($of:literal) => {
        concat!(
            "SELECT p.id AS of_plan, a.plan, a.set_name, a.person, a.account, a.login, a.teams, a.is_author, a.items, a.definition, ",
            "a.approved_at FROM plans p JOIN policy_approvals a ON a.repo = p.repo AND a.pull = p.pull AND a.dir = p.dir ",
            "AND a.workspace = p.workspace AND a.name = p.name WHERE ",
            $of
        )
    };
}

/// Approvals in all projects of a pull, also in those without a plan.
const ALL_APPROVALS_OF_PULL: &str = "SELECT a.plan AS of_plan, a.plan, a.set_name, a.person, a.account, a.login, a.teams, \
     a.is_author, a.items, a.definition, a.approved_at, a.dir, a.workspace, a.name FROM policy_approvals a \
     WHERE a.repo = $1 AND a.pull = $2";
const VERDICTS_OF_PLAN: &str = whole_verdicts_sql!("p.id = $1");
const VERDICTS_OF_RUN: &str = whole_verdicts_sql!("p.run = $1");
const VERDICTS_OF_PULL: &str =
    whole_verdicts_sql!("p.repo = $1 AND p.pull = $2 AND p.state <> 'discarded'");
const DECISIONS_OF_PULL: &str =
    verdicts_sql!("", "p.repo = $1 AND p.pull = $2 AND p.state <> 'discarded'");
const APPROVALS_OF_PLAN: &str = approvals_sql!("p.id = $1");
const APPROVALS_OF_RUN: &str = approvals_sql!("p.run = $1");
const APPROVALS_OF_PULL: &str =
    approvals_sql!("p.repo = $1 AND p.pull = $2 AND p.state <> 'discarded'");

/// Finds a plan that can still be applied, or that has nothing to apply.
macro_rules! approvable_sql {
    ($lock:literal) => {
        concat!(
            "SELECT id FROM plans WHERE id = $1 AND repo = $2 AND pull = $3 ",
            "AND state IN ('planned', 'apply_failed', 'no_changes')",
            $lock
        )
    };
}

impl Store {
    /// Returns the verdicts and approvals of the plans of a pull that were not discarded. A plan without verdicts has no
    /// entry.
    pub async fn policy_results(&self, pull: &PullRef) -> Result<HashMap<PlanId, PlanPolicies>> {
        let mut at = self.begin_snapshot().await?;
        let verdicts = on_snapshot!(&mut at, db => sqlx::query_as::<_, VerdictRow>(VERDICTS_OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        let approvals = on_snapshot!(&mut at, db => sqlx::query_as::<_, ApprovalRow>(APPROVALS_OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        at.end().await?;
        collect(verdicts, approvals)
    }

    /// Returns the same as [`Self::policy_results`] without the texts for people, which are large: their findings have only
    /// their weights, each once. It is enough for the decisions of all plans of a pull. Damage of the texts is not noticed.
    pub async fn policy_decisions(&self, pull: &PullRef) -> Result<HashMap<PlanId, PlanPolicies>> {
        let mut at = self.begin_snapshot().await?;
        let verdicts = on_snapshot!(&mut at, db => sqlx::query_as::<_, DecisionRow>(DECISIONS_OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        let approvals = on_snapshot!(&mut at, db => sqlx::query_as::<_, ApprovalRow>(APPROVALS_OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        at.end().await?;
        collect(verdicts, approvals)
    }

    /// Returns the verdicts and approvals of the plan that a run made, discarded or not. `None`: the run made no plan, or
    /// one without verdicts.
    pub async fn policy_results_of_run(&self, run: RunId) -> Result<Option<PlanPolicies>> {
        let found = self.policy_plan_of_run(run).await?;
        Ok(found.map(|(_, policies)| policies))
    }

    /// Returns the same as [`Self::policy_results_of_run`] with the plan, which tells its approvals from those of other plans.
    pub async fn policy_plan_of_run(&self, run: RunId) -> Result<Option<(PlanId, PlanPolicies)>> {
        let mut at = self.begin_snapshot().await?;
        let verdicts = on_snapshot!(&mut at, db => sqlx::query_as::<_, VerdictRow>(VERDICTS_OF_RUN)
            .bind(run).fetch_all(db))?;
        let approvals = on_snapshot!(&mut at, db => sqlx::query_as::<_, ApprovalRow>(APPROVALS_OF_RUN)
            .bind(run).fetch_all(db))?;
        at.end().await?;
        Ok(collect(verdicts, approvals)?
            .into_iter()
            .max_by_key(|(plan, _)| *plan))
    }

    /// Stores approvals of the violations of a plan. An earlier approval of the same plan and set by the same person is
    /// replaced. Fails if an approval names another plan.
    pub async fn policy_approve(
        &self,
        plan: &PlanRecord,
        approvals: &[PolicyApproval],
        cause: &Cause,
    ) -> Result<PolicyApprove> {
        if approvals.iter().any(|approval| approval.plan != plan.id) {
            return Err(sqlx::Error::Protocol(
                "an approval is of another plan than the one that is approved".to_owned(),
            ));
        }
        let mut tx = self.begin().await?;
        let open = pull_share_in_tx(&mut tx, &plan.pull).await? == Some(PullState::Open);
        if !open || !plan_hold_in_tx(&mut tx, plan).await? {
            return tx.roll_back().await.map(|()| PolicyApprove::PlanGone);
        }
        let mut events = Vec::new();
        for approval in approvals {
            approval_put_in_tx(&mut tx, plan, approval).await?;
            events.push(event(
                LockEventKind::PolicyApproved,
                (&plan.pull, &plan.project),
                &approval.set,
                cause,
            ));
        }
        self.lock_events_in_tx(&mut tx, events).await?;
        tx.commit().await.map(|()| PolicyApprove::Stored)
    }

    /// Lists the approvals in a pull, the oldest first, also those of plans that were discarded or removed. Those that
    /// cannot be read are left out, because they do not count.
    pub async fn policy_approvals(&self, pull: &PullRef) -> Result<Vec<ProjectApproval>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, ProjectApprovalRow>(ALL_APPROVALS_OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        let mut all: Vec<ProjectApproval> = rows
            .into_iter()
            .filter_map(ProjectApprovalRow::approval)
            .collect();
        all.sort_by(|one, other| {
            let (a, b) = (&one.approval, &other.approval);
            (a.at, &one.project, &a.set, &a.person).cmp(&(b.at, &other.project, &b.set, &b.person))
        });
        Ok(all)
    }

    /// Removes approvals in a pull, also those of plans that are gone. Returns the sets that had approvals.
    pub async fn policy_clear(
        &self,
        pull: &PullRef,
        unwanted: &[SetApprovals],
        cause: &Cause,
    ) -> Result<Vec<SetName>> {
        let mut tx = self.begin().await?;
        pull_hold_in_tx(&mut tx, pull).await?;
        let (mut cleared, mut events) = (Vec::new(), Vec::new());
        for SetApprovals {
            project,
            set,
            person,
        } in unwanted
        {
            let rows = execute!(
                &mut tx,
                "DELETE FROM policy_approvals WHERE repo = $1 AND pull = $2 AND dir = $3 AND workspace = $4 AND name = $5 \
                 AND set_name = $6 AND ($7 = '' OR person = $7)",
                &pull.repo,
                pull.subject,
                &project.dir,
                &project.workspace,
                name_column(project),
                set.as_str(),
                person.as_deref().unwrap_or_default(),
            )?;
            if rows > 0 {
                events.push(event(
                    LockEventKind::PolicyCleared,
                    (pull, project),
                    set,
                    cause,
                ));
                if !cleared.contains(set) {
                    cleared.push(set.clone());
                }
            }
        }
        self.lock_events_in_tx(&mut tx, events).await?;
        tx.commit().await.map(|()| cleared)
    }
}

/// Stores the verdicts of a plan with its record.
pub(super) async fn verdicts_insert_in_tx(
    tx: &mut Tx,
    plan: PlanId,
    verdicts: &[Verdict],
) -> Result<()> {
    for (place, verdict) in (0..).zip(verdicts) {
        let VerdictRow {
            decision: row,
            findings,
            notes,
            output,
            tool,
        } = VerdictRow::of(plan, place, verdict);
        execute!(
            &mut *tx,
            "INSERT INTO policy_verdicts (plan, set_name, place, definition, outcome, why, origin, content, findings, \
             weights, more_findings, items, notes, output, tool, texts, checksum) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, \
             $10, $11, $12, $13, $14, $15, $16, $17)",
            row.plan,
            row.set_name.as_str(),
            row.place,
            row.definition.as_str(),
            row.outcome.as_str(),
            row.why.as_deref(),
            row.origin.as_str(),
            row.content.as_deref(),
            findings.as_str(),
            row.weights.as_str(),
            row.more_findings,
            row.items.as_str(),
            notes.as_str(),
            output.as_str(),
            tool.as_deref(),
            row.texts.as_str(),
            row.checksum.as_str(),
        )?;
    }
    Ok(())
}

/// Returns the decisions of the policy sets for a plan, if it must not be applied; `None`: it may be. The transaction
/// shares the row of the pull and has changed the row of the plan, so that no approval comes or goes until it ends.
pub(super) async fn policies_unmet_in_tx(
    tx: &mut Tx,
    plan: PlanId,
    checks: &ApplyChecks<'_>,
    today: NaiveDate,
) -> Result<Option<Vec<(SetName, SetDecision)>>> {
    let needed = checks.policies;
    let verdicts = on_tx!(&mut *tx, db => sqlx::query_as::<_, VerdictRow>(VERDICTS_OF_PLAN).bind(plan).fetch_all(db))?;
    if needed.is_empty() && verdicts.is_empty() {
        return Ok(None);
    }
    let approvals = on_tx!(&mut *tx, db => sqlx::query_as::<_, ApprovalRow>(APPROVALS_OF_PLAN).bind(plan).fetch_all(db))?;
    let policies = collect(verdicts, approvals)?
        .remove(&plan)
        .unwrap_or_default()
        .with_members(checks.members);
    let PlanPolicies {
        verdicts,
        approvals,
    } = &policies;
    let decisions = decision::decisions(needed, verdicts, approvals, &plan, today);
    Ok((!decision::may_apply(&decisions)).then_some(decisions))
}

/// Removes all approvals of a pull.
pub(super) async fn approvals_forget_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<()> {
    execute!(
        tx,
        "DELETE FROM policy_approvals WHERE repo = $1 AND pull = $2",
        &pull.repo,
        pull.subject,
    )
    .map(drop)
}

/// Returns true if a plan can still be approved, and locks its row.
async fn plan_hold_in_tx(tx: &mut Tx, plan: &PlanRecord) -> Result<bool> {
    let sql = match tx {
        Tx::Sqlite(_) => approvable_sql!(""),
        Tx::Postgres(_) => approvable_sql!(" FOR UPDATE"),
    };
    let found = on_tx!(tx, db => sqlx::query_scalar::<_, PlanId>(sql)
        .bind(plan.id).bind(&plan.pull.repo).bind(plan.pull.subject).fetch_optional(db))?;
    Ok(found.is_some())
}

async fn approval_put_in_tx(
    tx: &mut Tx,
    plan: &PlanRecord,
    approval: &PolicyApproval,
) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO policy_approvals (plan, set_name, person, account, login, teams, is_author, items, definition, \
         approved_at, repo, pull, dir, workspace, name) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) \
         ON CONFLICT (plan, set_name, person) DO UPDATE SET account = excluded.account, login = excluded.login, \
         teams = excluded.teams, is_author = excluded.is_author, items = excluded.items, definition = excluded.definition, \
         approved_at = excluded.approved_at",
        plan.id,
        approval.set.as_str(),
        free_text(&approval.person),
        account_column(approval.account),
        free_text(&approval.login),
        json(&approval.teams),
        approval.is_author,
        json(&approval.items),
        &approval.definition.0,
        kept_time(approval.at),
        &plan.pull.repo,
        plan.pull.subject,
        &plan.project.dir,
        &plan.project.workspace,
        name_column(&plan.project),
    )
    .map(drop)
}

/// Sorts the rows by plan. Approvals of a plan without verdicts are left out.
fn collect<R: ReadableVerdict>(
    mut verdicts: Vec<R>,
    approvals: Vec<ApprovalRow>,
) -> Result<HashMap<PlanId, PlanPolicies>> {
    verdicts.sort_by_key(|row| row.decision().place);
    let mut of_plans: HashMap<PlanId, PlanPolicies> = HashMap::new();
    for row in &verdicts {
        let policies = of_plans.entry(row.decision().plan).or_default();
        policies.verdicts.push(verdict(row)?);
    }
    for row in approvals {
        if let Some(policies) = of_plans.get_mut(&row.of_plan) {
            policies.approvals.extend(row.approval());
        }
    }
    for policies in of_plans.values_mut() {
        policies
            .approvals
            .sort_by(|a, b| (a.at, &a.set, &a.person).cmp(&(b.at, &b.set, &b.person)));
    }
    Ok(of_plans)
}

fn event(
    kind: LockEventKind,
    (pull, project): (&PullRef, &ProjectKey),
    set: &SetName,
    cause: &Cause,
) -> NewLockEvent {
    let about = format!("policy set `{set}` of {project}");
    let reason = if cause.reason.is_empty() {
        about
    } else {
        format!("{about} ({})", cause.reason)
    };
    NewLockEvent {
        kind,
        key: None,
        scope: None,
        pull: Some(pull.clone()),
        concern: None,
        cause: Cause {
            reason,
            ..cause.clone()
        },
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("texts and numbers are JSON")
}

/// Parts of a stored verdict that decide whether a plan may be applied. The checksum covers the other fields, in this
/// order, and the digest of the texts.
#[derive(sqlx::FromRow, Serialize)]
struct DecisionRow {
    plan: PlanId,
    set_name: String,
    place: i64,
    definition: String,
    outcome: String,
    why: Option<String>,
    origin: String,
    content: Option<String>,
    weights: String,
    more_findings: i64,
    items: String,
    texts: String,
    #[serde(skip)]
    checksum: String,
}

/// A verdict as it is stored.
#[derive(sqlx::FromRow)]
struct VerdictRow {
    #[sqlx(flatten)]
    decision: DecisionRow,
    findings: String,
    notes: String,
    output: String,
    tool: Option<String>,
}

/// A stored verdict, with or without its texts.
trait ReadableVerdict {
    fn decision(&self) -> &DecisionRow;

    /// Returns the verdict, or the damage of the row.
    fn read(&self, set: &SetName) -> std::result::Result<Verdict, String>;
}

/// Returns the verdict of a row, or a verdict that the set was not evaluated if the row is damaged. Fails if the row does not
/// even name its set.
fn verdict(row: &impl ReadableVerdict) -> Result<Verdict> {
    let decision = row.decision();
    let set = SetName::parse(&decision.set_name)
        .map_err(|error| sqlx::Error::Decode(error.to_string().into()))?;
    match row.read(&set) {
        Ok(verdict) => Ok(verdict),
        Err(damage) => {
            tracing::error!(plan = %decision.plan, %set, %damage, "The stored verdict of a policy set is damaged");
            let definition = decision.definition.parse().map(SetDigest);
            Ok(Verdict::not_evaluated(
                &set,
                definition.unwrap_or_else(|_| SetDigest(Sha256Digest::of(b""))),
                String::new(),
                format!("The stored verdict is damaged: {damage}. Plan again."),
                String::new(),
            ))
        }
    }
}

impl DecisionRow {
    fn sum(&self) -> String {
        Sha256Digest::of(json(self).as_bytes()).to_string()
    }
}

impl ReadableVerdict for DecisionRow {
    fn decision(&self) -> &DecisionRow {
        self
    }

    fn read(&self, set: &SetName) -> std::result::Result<Verdict, String> {
        if self.checksum != self.sum() {
            return Err("its row was changed in the database".to_owned());
        }
        let outcome = match (self.outcome.as_str(), &self.why) {
            ("passed", None) => VerdictOutcome::Passed,
            ("failed", None) => VerdictOutcome::Failed,
            ("not_evaluated", Some(why)) => VerdictOutcome::NotEvaluated(why.clone()),
            (other, _) => return Err(format!("`{other}` is no outcome that this version knows")),
        };
        let content = self
            .content
            .as_deref()
            .map(str::parse::<Sha256Digest>)
            .transpose()?;
        let verdict = Verdict {
            set: set.clone(),
            definition: SetDigest(self.definition.parse()?),
            outcome,
            origin: self.origin.clone(),
            content,
            tool: None,
            findings: serde_json::from_str(&self.weights).map_err(|error| error.to_string())?,
            more_findings: u32::try_from(self.more_findings).map_err(|error| error.to_string())?,
            items: serde_json::from_str(&self.items).map_err(|error| error.to_string())?,
            notes: Vec::new(),
            output: String::new(),
        };
        match verdict.damage() {
            None => Ok(verdict),
            Some(damage) => Err(damage.to_owned()),
        }
    }
}

impl VerdictRow {
    fn of(plan: PlanId, place: i64, verdict: &Verdict) -> Self {
        let (outcome, why) = match &verdict.outcome {
            VerdictOutcome::Passed => ("passed", None),
            VerdictOutcome::Failed => ("failed", None),
            VerdictOutcome::NotEvaluated(why) => {
                ("not_evaluated", Some(free_text(why).into_owned()))
            }
        };
        let decision = DecisionRow {
            plan,
            set_name: verdict.set.as_str().to_owned(),
            place,
            definition: verdict.definition.0.to_string(),
            outcome: outcome.to_owned(),
            why,
            origin: free_text(&verdict.origin).into_owned(),
            content: verdict.content.as_ref().map(ToString::to_string),
            weights: json(&weights(&verdict.findings)),
            more_findings: i64::from(verdict.more_findings),
            items: json(&verdict.items),
            texts: String::new(),
            checksum: String::new(),
        };
        let mut row = Self {
            decision,
            findings: json(&verdict.findings),
            notes: json(&verdict.notes),
            output: free_text(&verdict.output).into_owned(),
            tool: verdict
                .tool
                .as_deref()
                .map(|tool| free_text(tool).into_owned()),
        };
        row.decision.texts = row.sum_of_texts();
        row.decision.checksum = row.decision.sum();
        row
    }

    fn sum_of_texts(&self) -> String {
        let texts = json(&(&self.findings, &self.notes, &self.output, &self.tool));
        Sha256Digest::of(texts.as_bytes()).to_string()
    }
}

impl ReadableVerdict for VerdictRow {
    fn decision(&self) -> &DecisionRow {
        &self.decision
    }

    fn read(&self, set: &SetName) -> std::result::Result<Verdict, String> {
        let decision = self.decision.read(set)?;
        if self.decision.texts != self.sum_of_texts() {
            return Err("its row was changed in the database".to_owned());
        }
        let verdict = Verdict {
            findings: serde_json::from_str(&self.findings).map_err(|error| error.to_string())?,
            notes: serde_json::from_str(&self.notes).map_err(|error| error.to_string())?,
            output: self.output.clone(),
            tool: self.tool.clone(),
            ..decision
        };
        match verdict.damage() {
            None => Ok(verdict),
            Some(damage) => Err(damage.to_owned()),
        }
    }
}

/// Returns what findings decide, each once: their levels, and the ends of their waivers.
fn weights(findings: &[PolicyFinding]) -> Vec<PolicyFinding> {
    let mut all = Vec::new();
    for finding in findings {
        let mut weight = PolicyFinding::deny("", "");
        weight.level = finding.level.clone();
        weight.waived = finding.waived.as_ref().map(|waiver| AppliedWaiver {
            reason: String::new(),
            owner: String::new(),
            until: waiver.until.clone(),
        });
        if !all.contains(&weight) {
            all.push(weight);
        }
    }
    all
}

/// An approval as it is stored.
#[derive(sqlx::FromRow)]
struct ApprovalRow {
    /// Plan of the project for which the approval was read.
    of_plan: PlanId,
    /// Plan that was approved.
    plan: PlanId,
    set_name: String,
    person: String,
    account: Option<i64>,
    login: String,
    teams: String,
    is_author: bool,
    items: String,
    definition: String,
    approved_at: DateTime<Utc>,
}

/// An approval as it is stored, with the project of its plan.
#[derive(sqlx::FromRow)]
struct ProjectApprovalRow {
    #[sqlx(flatten)]
    approval: ApprovalRow,
    dir: RepoPath,
    workspace: WorkspaceName,
    name: String,
}

impl ProjectApprovalRow {
    /// Returns the approval. One that cannot be read does not count.
    fn approval(self) -> Option<ProjectApproval> {
        Some(ProjectApproval {
            approval: self.approval.approval()?,
            project: ProjectKey {
                dir: self.dir,
                workspace: self.workspace,
                name: name_from_column(&self.name),
            },
        })
    }
}

fn account_of(number: i64) -> std::result::Result<AccountId, String> {
    let number = u32::try_from(number).ok().and_then(AccountId::new);
    number.ok_or_else(|| "its account is no number of an account".to_owned())
}

impl ApprovalRow {
    /// Returns the approval. One that cannot be read does not count.
    fn approval(self) -> Option<PolicyApproval> {
        let plan = self.plan;
        match self.read() {
            Ok(approval) => Some(approval),
            Err(damage) => {
                tracing::error!(%plan, %damage, "An approval of policy violations cannot be read and does not count");
                None
            }
        }
    }

    fn read(self) -> std::result::Result<PolicyApproval, String> {
        Ok(PolicyApproval {
            set: SetName::parse(&self.set_name).map_err(|error| error.to_string())?,
            plan: self.plan,
            person: self.person,
            account: self.account.map(account_of).transpose()?,
            login: self.login,
            teams: serde_json::from_str(&self.teams).map_err(|error| error.to_string())?,
            is_author: self.is_author,
            items: serde_json::from_str(&self.items).map_err(|error| error.to_string())?,
            definition: SetDigest(self.definition.parse()?),
            at: self.approved_at,
        })
    }
}
