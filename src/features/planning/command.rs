//! The life of one command: guards come first, then the state, then the action. The reply is returned, and posted in
//! one place.

use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, info_span};

use super::early::EarlyAnswers;
use super::stop::Stop;
use super::{
    apply, approve_policies, cancel, explain, give_up, guards, help, hooks, interrupted,
    permission, plan, policy_checks, projects, state_commands, superseded, turn, unlock, version,
};

use super::{CommandSpec, tally};
use crate::boxed::boxed;
use crate::command::Command;
use crate::context::RunCtx;
use crate::features::applications::{UnknownState, pull_now};
use crate::features::events::{close_pull, renew_locks};
use crate::features::renames;
use crate::features::replies::{self, Reply};
use crate::forges::ForgeError;
use crate::locks;
use crate::model::{
    Cause, CommandId, CommandKind, CommitStatus, ProjectOutcome, Pull, PullState, RunId,
};
use crate::queue::{JobError, RunningJob};
use crate::render::{ProjectReport, status};
use crate::store::{
    CommandRow, CommandState, HeadUpdate, KnownHead, NewJob, RunRow, RunState, StopKind,
    StopRequest,
};

/// Waits before the next attempts: GitHub answers 404 for a moment after a pull request was opened.
const NOT_FOUND_WAITS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(7),
    Duration::from_secs(15),
];

/// Context of one command for its handler.
pub(super) struct CommandCx<'a> {
    pub ctx: &'a RunCtx,
    pub row: &'a CommandRow,
    pub pull: &'a Pull,
    /// Answers of the forge that came with the pull request.
    pub(super) early: EarlyAnswers,
    /// Cancelled when the command has to stop: the pull request was closed, the server will not wait, or another
    /// replica took the command over.
    pub stop: CancellationToken,
    /// Cancelled when another replica took the command over.
    pub lost: CancellationToken,
    /// Settled once: before the first run of the command begins, or when the server is about to stop.
    pub(super) fate: OnceLock<ShutdownAction>,
    /// Place where its hooks run; empty until the hooks before the command have run.
    pub(super) hooks: OnceLock<hooks::HookDir>,
}

/// Future of a command when the server is about to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShutdownAction {
    /// A run has begun here, so the command ends here.
    Begun,
    /// All of it was still waiting, so another replica, or the next start, begins with it.
    HandedOver,
}

impl CommandCx<'_> {
    /// Records that work begins, and sets these statuses.
    pub async fn start(&self, statuses: Vec<CommitStatus>) -> Result<(), JobError> {
        let head = &self.pull.head;
        let mut outbox = self.left_behind().await?;
        outbox.extend(
            statuses
                .into_iter()
                .filter_map(|status| replies::status_job(self.row, head, status)),
        );
        let has_begun = self
            .ctx
            .store
            .command_start(self.row.id, Some(head), &outbox)
            .await?;
        self.ctx.wake_up.send();
        if has_begun {
            Ok(())
        } else {
            Err(JobError::retry(anyhow!(
                "the command was ended before it could start"
            )))
        }
    }

    /// Returns the jobs that end the statuses of an interrupted earlier attempt, if its commit is not the newest one
    /// any more: nobody comes back to it.
    async fn left_behind(&self) -> Result<Vec<NewJob>, JobError> {
        let (ctx, row) = (self.ctx, self.row);
        let Some(old) = row.head.as_ref().filter(|old| **old != self.pull.head) else {
            return Ok(Vec::new());
        };
        let mut statuses: Vec<CommitStatus> = replies::status_kind(row.kind)
            .map(|kind| replies::broken_status(ctx, kind))
            .into_iter()
            .chain(policy_checks::status_without_results(
                ctx,
                row,
                status::policies_broken,
            ))
            .collect();
        for run in ctx
            .store
            .run_list(row.id)
            .await?
            .into_iter()
            .filter(|run| run.has_status)
        {
            let end = status::project(
                run.kind,
                run.outcome.unwrap_or(ProjectOutcome::Cancelled),
                None,
            );
            statuses.push(replies::project_status(
                ctx,
                run.kind,
                &run.project,
                run.id,
                end,
            ));
        }
        Ok(statuses
            .into_iter()
            .filter_map(|status| replies::status_job(row, old, status))
            .collect())
    }

    /// Sets a status on the head commit at once.
    pub async fn status(&self, status: CommitStatus) -> Result<(), JobError> {
        self.push(self.status_job(status)).await
    }

    /// Adds the job of a status, if there is one.
    pub async fn push(&self, job: Option<NewJob>) -> Result<(), JobError> {
        if let Some(job) = job {
            self.ctx.store.job_push(&job).await?;
            self.ctx.wake_up.send();
        }
        Ok(())
    }

    /// Returns the job that sets a status on the head commit.
    pub fn status_job(&self, status: CommitStatus) -> Option<NewJob> {
        replies::status_job(self.row, &self.pull.head, status)
    }

    /// Returns the job that sets the last status of this command. If it is pending, something else will replace it.
    pub fn last_status_job(&self, status: CommitStatus) -> Option<NewJob> {
        replies::last_status_job(self.row, &self.pull.head, status)
    }

    /// Records the end of a run, and sets the status of its project. If the run had ended before, another replica took
    /// the command over and ended it. This one may not know yet that the lease is lost.
    pub async fn finish_run(
        &self,
        run: RunId,
        report: &ProjectReport,
        status: Option<NewJob>,
    ) -> Result<(), JobError> {
        let message = headline(report);
        if !self
            .ctx
            .store
            .run_finish_with(run, report.outcome, message.as_deref(), status.as_ref())
            .await?
        {
            return Err(taken_over());
        }
        if status.is_some() {
            self.ctx.wake_up.send();
        }
        tally::run(self.ctx, run, report.outcome).await;
        self.ctx.runs.hub.announce(run);
        Ok(())
    }

    /// Claims the right to begin a run. Returns `false` if the command has been handed over.
    pub fn may_begin(&self) -> bool {
        *self.fate.get_or_init(|| ShutdownAction::Begun) == ShutdownAction::Begun
    }

    /// Waits until the server is about to stop while nothing of the command has begun.
    async fn handed_over(&self) {
        self.ctx.closing.cancelled().await;
        if *self.fate.get_or_init(|| ShutdownAction::HandedOver) == ShutdownAction::Begun {
            std::future::pending::<()>().await;
        }
    }

    /// Returns an error if another replica has to continue the command. Callers use it once all waiting runs have
    /// stopped waiting.
    pub fn left_to_others(&self) -> Result<(), JobError> {
        if self.lost.is_cancelled() {
            return Err(taken_over());
        }
        if self.fate.get() == Some(&ShutdownAction::HandedOver) {
            let error = anyhow!(
                "the server is stopping and had not started the command; another server or the next start runs it"
            );
            return Err(JobError::Retry {
                at: Some(self.ctx.clock.now()),
                error,
            });
        }
        Ok(())
    }

    /// Stops all runs when the server is interrupted or the lease is lost: a child process must not outlive its right
    /// to run.
    async fn pass_on_stops(&self) -> Infallible {
        tokio::select! {
            () = self.ctx.runs.interrupt.cancelled() => {}
            () = self.lost.cancelled() => {}
            () = self.handed_over() => {}
        }
        self.stop.cancel();
        std::future::pending().await
    }

    /// Builds a cause that names the origin of the command, for the audit log: "planned by comment", "applied through
    /// the API".
    pub fn cause_of(&self, done: &str) -> Cause {
        self.cause(&format!("{done} {}", self.row.actor.origin.way()))
    }

    /// Builds a cause of a change of a lock, for the audit log.
    pub fn cause(&self, reason: &str) -> Cause {
        Cause::new(self.row.actor.clone(), reason)
    }

    /// Returns why the command has to stop early, if it has to.
    pub async fn asked_to_stop(&self) -> Result<Option<StopRequest>, JobError> {
        Ok(self
            .ctx
            .store
            .command_get(self.row.id)
            .await?
            .and_then(|row| row.stop))
    }

    /// Returns the reason to stop, if a newer plan replaces this one.
    pub async fn superseded(&self) -> Result<Option<StopRequest>, JobError> {
        Ok(self
            .asked_to_stop()
            .await?
            .filter(|stop| stop.kind == StopKind::Superseded))
    }

    /// Returns an error if the result of this attempt must not be written: another server has the command, or it is
    /// begun again after a restart.
    pub fn abandoned(&self) -> Result<(), JobError> {
        self.left_to_others()?;
        if self.ctx.runs.interrupt.is_cancelled() {
            return Err(JobError::Retry {
                at: Some(self.ctx.clock.now()),
                error: anyhow!(
                    "the server was shut down; the plan is made again after the restart"
                ),
            });
        }
        Ok(())
    }
}

pub(super) const PRIVATE: &str = "Not shown here, because the workflow hides parts of the output from comments. The page of the \
                       run has the full output.";

/// Returns the whole output of a run, for `--verbose`.
pub(super) async fn log(
    ctx: &RunCtx,
    verbose: bool,
    run: RunId,
) -> Result<Option<String>, sqlx::Error> {
    if !verbose {
        return Ok(None);
    }
    if ctx.store.run_get(run).await?.is_some_and(|run| run.private) {
        return Ok(Some(PRIVATE.to_owned()));
    }
    ctx.store.run_output(run).await.map(Some)
}

/// Returns the error of an attempt that lost its lease. The queue notices that and writes nothing.
pub(super) fn taken_over() -> JobError {
    JobError::retry(anyhow!("another replica took over the command"))
}

/// Summarises the end of a run in one line, for pages.
pub(super) fn headline(report: &ProjectReport) -> Option<String> {
    if let Some(text) = &report.message {
        return Some(text.message.clone());
    }
    if let Some(holder) = &report.held_by {
        if let Some(place) = holder.place {
            let called = holder.pull.short_name(holder.application.as_deref());
            return Some(status::queued(&called, &holder.who, place));
        }
        let called = holder.pull.display_name(holder.application.as_deref());
        return Some(format!(
            "Locked by {called} since {}",
            holder.since.format("%Y-%m-%d %H:%M")
        ));
    }
    let counts = report.counts.map(|counts| counts.to_string());
    if report.outcome != ProjectOutcome::PolicyFailed {
        return counts;
    }
    let failed = "Policies did not pass.".to_owned();
    let texts: Vec<String> = counts.into_iter().chain([failed]).collect();
    Some(texts.join(" "))
}

/// Works on a command, and records its end and all comments and statuses about it.
pub(crate) async fn run(ctx: &RunCtx, id: CommandId, attempt: &RunningJob) -> Result<(), JobError> {
    let Some(row) = ctx.store.command_get(id).await? else {
        return Err(JobError::Fail(anyhow!("there is no command {id}")));
    };
    if row.state == CommandState::Finished {
        return Ok(());
    }
    let _right_of_way = ctx.runs.pool.right_of_way(&row.pull);
    let _in_use = ctx.checkouts.enter(&row.pull).await;
    let span = info_span!("command", command = %row.id, kind = %row.kind, pull = %row.pull);
    async {
        if row.kind == CommandKind::Cancel {
            return cancel::run(ctx, &row).await;
        }
        let reply = rounds(ctx, row.clone(), attempt)
            .await
            .map_err(|error| give_up::patience(&row, attempt, error))?;
        let end = reply.into_end(ctx, &row);
        if ctx.store.command_finish(&end).await? {
            tally::command(ctx, row.kind, &end);
        }
        renew_locks(ctx, &row.pull, &row.actor, "a command ended").await?;
        info!(outcome = %end.outcome, reason = end.reason, "The command ended");
        Ok(())
    }
    .instrument(span)
    .await
}

/// Result of one round of work on a command.
pub(super) enum WorkRound {
    /// The command is over.
    Over(Reply),
    /// A newer commit arrived, so the command begins again on that one.
    Again,
}

async fn rounds(
    ctx: &RunCtx,
    mut row: CommandRow,
    attempt: &RunningJob,
) -> Result<Reply, JobError> {
    loop {
        match work(ctx, &row, attempt).await? {
            WorkRound::Over(reply) => return Ok(reply),
            WorkRound::Again => row = ctx.store.command_get(row.id).await?.unwrap_or(row),
        }
    }
}

async fn work(ctx: &RunCtx, row: &CommandRow, attempt: &RunningJob) -> Result<WorkRound, JobError> {
    if let Some(reply) = interrupted::reply(ctx, row).await? {
        return Ok(WorkRound::Over(reply));
    }
    let spec = CommandSpec::from_json(&row.spec)
        .context("the stored command cannot be read")
        .map_err(JobError::Fail)?;
    if let Some(reply) = help::answer(ctx, row, &spec) {
        return Ok(WorkRound::Over(reply));
    }
    if let Some(reply) = asked_before(ctx, row, &spec).await? {
        return Ok(WorkRound::Over(reply));
    }
    let known = ctx.store.head_get(&row.pull).await?;
    let asked = tokio::try_join!(
        boxed(|| facts(ctx, row, attempt)),
        boxed(|| async { Ok(EarlyAnswers::ask(ctx, row, &spec, known.as_ref()).await) }),
    );
    let (pull, early) = match asked {
        Ok(asked) => asked,
        Err(stop) => {
            return refuse(ctx, row, &spec, stop.into_reply()?)
                .await
                .map(WorkRound::Over);
        }
    };
    if pull.state != PullState::Open && row.kind != CommandKind::Unlock {
        // Nothing of a closed pull request stays locked, even if no event about its end arrived (P7).
        close_pull(ctx, &pull, &row.actor).await?;
    }
    let refusal = match boxed(|| guards::check(ctx, row, &pull)).await? {
        Some(refusal) => Some(refusal),
        None => boxed(|| permission::check(ctx, row, &pull, &spec)).await?,
    };
    let round = if let Some(refusal) = refusal {
        WorkRound::Over(refuse(ctx, row, &spec, refusal).await?)
    } else {
        note_head(ctx, &pull, known.as_ref(), &spec).await?;
        boxed(|| carry_out(ctx, row, &pull, early, &spec, attempt)).await?
    };
    Ok(match round {
        WorkRound::Over(reply) => WorkRound::Over(Reply {
            head: reply.head.or(Some(pull.head)),
            ..reply
        }),
        WorkRound::Again => WorkRound::Again,
    })
}

/// Records the current head of the pull request. The plan is made from it, so a later event about the same head
/// requests nothing more. `known` was read before the forge was asked.
async fn note_head(
    ctx: &RunCtx,
    pull: &Pull,
    known: Option<&KnownHead>,
    spec: &CommandSpec,
) -> Result<(), sqlx::Error> {
    if pull.at.subject.is_application() {
        return Ok(());
    }
    let (at, known) = (pull.pull_head(), known.map(|known| &known.at));
    match (pull.state, spec) {
        (PullState::Closed | PullState::Merged, _) => Ok(()),
        (PullState::Open, CommandSpec::Autoplan) if known == Some(&at) => Ok(()),
        (PullState::Open, CommandSpec::Autoplan) => ctx
            .store
            .head_note(&pull.at, HeadUpdate::Forge { known, at: &at })
            .await
            .map(drop),
        (PullState::Open, _) if known.is_some() => Ok(()),
        (
            PullState::Open,
            CommandSpec::Command(_)
            | CommandSpec::Turn(_)
            | CommandSpec::Mistake(_)
            | CommandSpec::NotServed
            | CommandSpec::Unclaimed,
        ) => ctx.store.head_note_first(&pull.at, &at).await,
    }
}

/// Returns the end of a command that was stopped before this attempt began, if it was.
async fn asked_before(
    ctx: &RunCtx,
    row: &CommandRow,
    spec: &CommandSpec,
) -> Result<Option<Reply>, JobError> {
    let Some(stop) = &row.stop else {
        return Ok(None);
    };
    match stop.kind {
        // The forge will say if the pull request is still closed.
        StopKind::Closed => Ok(None),
        StopKind::Superseded => superseded::before(ctx, row, spec, stop).await,
        StopKind::Cancelled => {
            let reply = cancel::before(row, stop);
            refuse(
                ctx,
                row,
                spec,
                Reply {
                    head: row.head.clone(),
                    ..reply
                },
            )
            .await
            .map(Some)
        }
    }
}

async fn refuse(
    ctx: &RunCtx,
    row: &CommandRow,
    spec: &CommandSpec,
    mut refusal: Reply,
) -> Result<Reply, JobError> {
    turn::pass_on(ctx, row, turn::projects_of(ctx, row, spec).await?).await?;
    // An earlier attempt was interrupted, and no later one will end what it began.
    if row.state == CommandState::Running {
        refusal.statuses.extend(give_up::wind_up(ctx, row).await?);
        // That attempt was at this commit, even if there is a newer one now.
        refusal.head.clone_from(&row.head);
    }
    Ok(refusal)
}

/// Carries out the command until it has to stop.
async fn carry_out(
    ctx: &RunCtx,
    row: &CommandRow,
    pull: &Pull,
    early: EarlyAnswers,
    spec: &CommandSpec,
    attempt: &RunningJob,
) -> Result<WorkRound, JobError> {
    if pull.state == PullState::Open {
        let renew_interval = locks::renew_interval(ctx.settings.lock_ttl(&pull.at.repo));
        let due = ctx
            .store
            .command_due(row.id, &pull.at, &pull.url, renew_interval)
            .await?;
        if due.pull || due.stop {
            let seen = ctx.store.pull_seen(&pull.at, pull.state, &pull.url);
            // Transactions that wait at the same time share a commit.
            tokio::try_join!(seen, ctx.store.command_go_on(row.id, StopKind::Closed))?;
        }
        if due.locks {
            renew_locks(ctx, &pull.at, &row.actor, "the pull request is worked on").await?;
        }
    }
    let stop = ctx.stops.enter(row.id);
    let cx = CommandCx {
        ctx,
        row,
        pull,
        early,
        stop: stop.token.clone(),
        lost: attempt.lost.clone(),
        fate: OnceLock::new(),
        hooks: OnceLock::new(),
    };
    if cx.asked_to_stop().await?.is_some() {
        // The request to stop arrived after this attempt had read its row, and before the command was registered
        // here.
        cx.stop.cancel();
    }
    let reply = tokio::select! {
        reply = act_and_follow_up(&cx, spec) => reply?,
        never = cx.pass_on_stops() => match never {},
    };
    match cx.superseded().await? {
        Some(stop) => superseded::after(ctx, row, spec, &stop).await,
        None => Ok(WorkRound::Over(reply)),
    }
}

async fn act_and_follow_up(cx: &CommandCx<'_>, spec: &CommandSpec) -> Result<Reply, JobError> {
    let reply = act(cx, spec).await.or_else(Stop::into_reply)?;
    hooks::after(cx, &reply).await?;
    Ok(reply)
}

async fn act(cx: &CommandCx<'_>, spec: &CommandSpec) -> Result<Reply, Stop> {
    match spec {
        // Each is a large future, and only one of them is needed.
        CommandSpec::Autoplan => Ok(boxed(|| plan::autoplan(cx)).await?),
        CommandSpec::Turn(turn) => Ok(boxed(|| plan::in_turn(cx, turn)).await?),
        CommandSpec::Command(Command::Plan(command)) if cx.pull.at.subject.is_application() => {
            Ok(boxed(|| plan::of_application(cx, command)).await?)
        }
        CommandSpec::Command(Command::Plan(command)) => {
            Ok(boxed(|| plan::by_comment(cx, command)).await?)
        }
        CommandSpec::Command(Command::Apply(command)) => boxed(|| apply::run(cx, command)).await,
        CommandSpec::Command(Command::Unlock) => Ok(unlock::run(cx).await?),
        CommandSpec::Command(Command::Explain(command)) => {
            boxed(|| explain::run(cx, command)).await
        }
        CommandSpec::Command(Command::Version(command)) => {
            boxed(|| version::run(cx, command)).await
        }
        CommandSpec::Command(Command::Import(command)) => {
            boxed(|| state_commands::import(cx, command)).await
        }
        CommandSpec::Command(Command::StateRm(command)) => {
            boxed(|| state_commands::state_rm(cx, command)).await
        }
        CommandSpec::Command(Command::ApprovePolicies(command)) => {
            boxed(|| approve_policies::run(cx, command)).await
        }
        CommandSpec::Command(other) => Ok(help::not_available(other)),
        CommandSpec::Mistake(_) | CommandSpec::NotServed | CommandSpec::Unclaimed => {
            unreachable!("answered above without asking the forge")
        }
    }
}

/// Fetches the current state of the pull request, or of the branch of an application. The forge may not find a new pull request for a moment, so the function retries.
async fn facts(ctx: &RunCtx, row: &CommandRow, attempt: &RunningJob) -> Result<Pull, Stop> {
    match pull_now(ctx, &row.pull).await {
        Ok(pull) => {
            if renames::is_settled(ctx, &pull, Some(attempt.lease.id)).await? {
                return Ok(pull);
            }
            let error = anyhow!(
                "the name of {} belonged to another repository until now",
                pull.at.repo
            );
            Err(Stop::Job(JobError::Retry {
                at: Some(ctx.clock.now()),
                error,
            }))
        }
        Err(UnknownState::Forge(error @ ForgeError::NotFound { .. }))
            if !row.pull.subject.is_application() =>
        {
            let tries = usize::try_from(attempt.lease.tries() - 1).unwrap_or(usize::MAX);
            match NOT_FOUND_WAITS.get(tries) {
                Some(wait) => Err(Stop::Job(JobError::Retry {
                    at: Some(ctx.clock.now() + *wait),
                    error: error.into(),
                })),
                None => Err(Stop::Job(JobError::fail(error))),
            }
        }
        Err(UnknownState::Forge(error)) => Err(error.into()),
        Err(UnknownState::Checkout(error)) => Err(projects::checkout_refusal(error)),
        Err(UnknownState::Store(error)) => Err(error.into()),
        Err(UnknownState::Refused(reason, text)) => Err(Stop::Reply(Reply::refused(
            reason,
            text.message,
            text.hints,
        ))),
    }
}

/// Ends runs that an earlier attempt left unfinished, because everything is done again.
pub(super) async fn forget_cut_off(ctx: &RunCtx, runs: Vec<RunRow>) -> Result<(), sqlx::Error> {
    forget(
        ctx,
        runs,
        "Interrupted when the server stopped. It is repeated.",
    )
    .await
}

/// Ends the runs that have not ended yet.
pub(super) async fn forget(ctx: &RunCtx, runs: Vec<RunRow>, why: &str) -> Result<(), sqlx::Error> {
    for run in runs
        .into_iter()
        .filter(|run| run.state != RunState::Finished)
    {
        if ctx
            .store
            .run_finish(run.id, ProjectOutcome::Cancelled, Some(why))
            .await?
        {
            tally::run(ctx, run.id, ProjectOutcome::Cancelled).await;
        }
        ctx.runs.hub.announce(run.id);
    }
    Ok(())
}
