//! Implements `automerge`: merges a pull request after its apply.
//!
//! The apply decides whether a merge follows, and says so in its reply. It leaves a job, which checks everything
//! again and asks the forge to merge exactly the commit that was applied. An unknown fact prevents the merge (P6).
//! The job finds nothing to do if the pull request is merged already. So a crash between the merge and the end of the
//! job does no harm.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use chrono::TimeDelta;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::early::EarlyAnswers;
use super::policies::{PlannedRules, Policies};
use super::policy_checks;
use super::projects::{self, Work};
use super::{CommandCx, CommandSpec, MergePull, hooks, needs};
use crate::boxed::boxed;
use crate::command::{ApplyCommand, Command, MergeOptions};
use crate::context::RunCtx;
use crate::errors::describe_error;
use crate::features::replies::{self, CommandEnd, NewestRuns, PostComment, Reply, SetStatus};
use crate::forges::{ForgeError, MergeAnswer, WritePermit};
use crate::model::{
    CommandId, CommandKind, MergeMethod, PlanRecord, PlanState, ProjectKey, ProjectOutcome, Pull,
    PullState, RunId, RunKind,
};
use crate::queue::{Job, JobError, RunningJob};
use crate::render::{Body, ProjectReport, Report, UserText};
use crate::store::{CommandRow, NewJob};

/// Maximum number of merge requests that GitHub may refuse. It refuses for some seconds right after a push to the
/// base branch, and while it computes whether a pull request is mergeable.
const MOST_REQUESTS: usize = 4;
/// Time between two merge requests.
const BETWEEN_REQUESTS: TimeDelta = TimeDelta::seconds(5);
/// Shortest and longest time between two checks whether the statuses of the apply are set.
const BETWEEN_LOOKS: [TimeDelta; 2] = [TimeDelta::seconds(1), TimeDelta::minutes(1)];
/// Maximum wait for the statuses. Nobody expects a merge much later than the apply.
const LONGEST_WAIT: TimeDelta = TimeDelta::hours(1);
/// Flags of a plan by which it does not cover all of the code.
const PARTIAL: [&str; 4] = ["target", "exclude", "refresh-only", "destroy"];
/// Maximum number of projects that a comment names.
const MOST_NAMED: usize = 5;

/// Consequences of an apply that ended.
#[derive(Default)]
pub(super) struct AfterApply {
    /// Note for the reply of the apply.
    pub note: Option<String>,
    /// Job that merges the pull request.
    pub job: Option<NewJob>,
}

/// Decides whether a merge follows an apply.
pub(super) async fn after_apply(
    cx: &CommandCx<'_>,
    command: &ApplyCommand,
    reports: &[ProjectReport],
) -> Result<AfterApply, JobError> {
    let went_well = |report: &ProjectReport| {
        matches!(
            report.outcome,
            ProjectOutcome::Applied | ProjectOutcome::UpToDate
        )
    };
    let by = match command.merge {
        MergeOptions::Never => return Ok(AfterApply::default()),
        MergeOptions::AsConfigured => None,
        MergeOptions::By(method) => Some(method),
    };
    if cx.pull.at.subject.is_application() || !reports.iter().all(went_well) {
        return Ok(AfterApply::default());
    }
    let plans = plans(cx).await?;
    let of_head: Vec<&PlanRecord> = plans
        .iter()
        .filter(|plan| plan.head == cx.pull.head)
        .collect();
    let policies = PlannedRules::read(cx, &of_head).await?;
    if of_head.is_empty() || !is_on(cx, &policies) {
        return Ok(AfterApply::default());
    }
    let note = |note: String| AfterApply {
        note: Some(note),
        job: None,
    };
    let newest_runs = NewestRuns::of(cx.ctx, &cx.pull.at, &cx.pull.head).await?;
    let mut left = left(cx, &newest_runs, &plans).await?;
    left.extend(unpassed(cx, &policies, &of_head).await?);
    if !left.is_empty() {
        return Ok(note(format!("Not merged yet: {}", reasons(left).join(" "))));
    }
    if let Some(label) = label_in_the_way(cx.ctx, cx.pull) {
        let word = cx.ctx.settings.comments.executable();
        return Ok(note(format!(
            "Not merged, because the pull request has the label `{label}`. Remove it and comment `{word} apply` again, or merge \
             by hand."
        )));
    }
    let job = MergePull {
        pull: cx.pull.at.clone(),
        command: cx.row.id,
        head: cx.pull.head.clone(),
        method: by,
        refused: 0,
        notice: CommandId::next(&*cx.ctx.ids),
        since: cx.ctx.clock.now(),
    };
    let note = "All projects of this pull request are applied or have nothing to change: Lockkeeper merges it now.";
    Ok(AfterApply {
        note: Some(note.to_owned()),
        job: Some(job.to_new()),
    })
}

/// Refuses an apply that names a merge method although pull requests are not merged automatically.
pub(super) fn method_without_merge(
    cx: &CommandCx<'_>,
    command: &ApplyCommand,
    policies: &PlannedRules,
) -> Option<Reply> {
    let MergeOptions::By(method) = command.merge else {
        return None;
    };
    (!is_on(cx, policies)).then(|| {
        Reply::refused(
            "automerge_off",
            format!(
                "`--auto-merge-method {method}` has no effect here, because pull requests are not merged automatically."
            ),
            vec![
                "Comment the command without the flag, and merge by hand.".to_owned(),
                "Or set `automerge: true` in the configuration of this repository, plan again and apply. The administrator of \
                 Lockkeeper can set `--automerge` for all repositories."
                    .to_owned(),
            ],
        )
    })
}

/// Returns true if the configurations of the plans enable the merge. All of them have to agree, and all have to be
/// readable.
fn is_on(cx: &CommandCx<'_>, policies: &PlannedRules) -> bool {
    let says = |policies: &Policies| {
        let own = policies.config().and_then(|config| config.automerge);
        !policies.is_unread() && own.unwrap_or(cx.ctx.settings.planning.automerge)
    };
    says(&policies.policies) && policies.others.values().all(|policies| says(policies))
}

async fn plans(cx: &CommandCx<'_>) -> Result<Vec<PlanRecord>, sqlx::Error> {
    let plans = cx.ctx.store.plan_list(&cx.pull.at).await?;
    Ok(plans
        .into_iter()
        .filter(|plan| plan.state != PlanState::Discarded)
        .collect())
}

/// Returns the label of the pull request that prevents a merge.
fn label_in_the_way<'a>(ctx: &'a RunCtx, pull: &Pull) -> Option<&'a str> {
    ctx.settings
        .planning
        .no_automerge_label
        .as_deref()
        .filter(|label| pull.has_label(label))
}

/// Lists the projects that are neither applied nor without changes at the head of the pull request, each with the
/// reason.
async fn left(
    cx: &CommandCx<'_>,
    newest_runs: &NewestRuns,
    plans: &[PlanRecord],
) -> Result<Vec<(ProjectKey, &'static str)>, sqlx::Error> {
    let in_part = planned_in_part(cx.ctx, plans).await?;
    let known: BTreeSet<&ProjectKey> = newest_runs
        .projects()
        .chain(plans.iter().map(|plan| &plan.project))
        .collect();
    let why = |project: &ProjectKey| match plans.iter().find(|plan| plan.project == *project) {
        None => Some("has no plan"),
        Some(plan) if plan.head != cx.pull.head => Some("is not planned at the newest commit"),
        Some(plan) if plan.base_branch != cx.pull.base_branch => {
            Some("is planned against another base branch")
        }
        Some(plan) => match plan.state {
            PlanState::Planned => Some("is planned and not applied"),
            PlanState::Applying => Some("is being applied"),
            PlanState::ApplyFailed => Some("failed to apply"),
            PlanState::Discarded => Some("has no plan"),
            PlanState::Applied | PlanState::NoChanges if in_part.contains(&plan.run) => Some(
                "was planned only in part, or for another purpose (`-target`, `-exclude`, `-refresh-only`, `-destroy`)",
            ),
            PlanState::Applied | PlanState::NoChanges => {
                (!newest_runs.is_done(project)).then_some("was run again since, without success")
            }
        },
    };
    Ok(known
        .into_iter()
        .filter_map(|project| Some((project.clone(), why(project)?)))
        .collect())
}

/// Lists the projects that nothing was applied to, and whose policies did not pass.
async fn unpassed(
    cx: &CommandCx<'_>,
    policies: &PlannedRules,
    plans: &[&PlanRecord],
) -> Result<Vec<(ProjectKey, &'static str)>, sqlx::Error> {
    let unmet = policy_checks::unmet_without_changes(cx, policies, plans).await?;
    Ok(unmet
        .into_iter()
        .map(|project| (project, "has policies that did not pass"))
        .collect())
}

/// Finds the runs whose plans do not cover all of the code, because the comment requested that.
async fn planned_in_part(
    ctx: &RunCtx,
    plans: &[PlanRecord],
) -> Result<BTreeSet<RunId>, sqlx::Error> {
    let (mut asked, mut found) = (BTreeMap::new(), BTreeSet::new());
    for plan in plans {
        let Some(run) = ctx.store.run_get(plan.run).await? else {
            continue;
        };
        if let Entry::Vacant(unread) = asked.entry(run.command) {
            let row = ctx.store.command_get(run.command).await?;
            unread.insert(row.and_then(|row| CommandSpec::from_json(&row.spec).ok()));
        }
        if asked[&run.command]
            .as_ref()
            .is_some_and(|spec| is_in_part(spec, &plan.project))
        {
            found.insert(plan.run);
        }
    }
    Ok(found)
}

fn is_in_part(spec: &CommandSpec, project: &ProjectKey) -> bool {
    let args = match spec {
        CommandSpec::Command(Command::Plan(plan)) => &plan.extra_args,
        CommandSpec::Turn(turn) => match turn.asks.iter().find(|ask| ask.project == *project) {
            Some(ask) => &ask.extra_args,
            None => return false,
        },
        CommandSpec::Command(_)
        | CommandSpec::Autoplan
        | CommandSpec::Mistake(_)
        | CommandSpec::NotServed
        | CommandSpec::Unclaimed => return false,
    };
    args.iter().any(|arg| {
        let name = arg
            .trim_start_matches('-')
            .split('=')
            .next()
            .unwrap_or_default();
        PARTIAL.contains(&name)
    })
}

/// Result of an attempt to merge.
pub(crate) enum MergeResult {
    /// The pull request is merged, or it is not open any more.
    Done,
    /// The pull request is not merged, for this reason.
    Refused(UserText),
    /// A later job tries again, because the forge or a status is not ready yet.
    Again(Box<NewJob>),
}

/// Merges the pull request of an apply.
pub(crate) async fn merge(
    ctx: &RunCtx,
    job: &MergePull,
    row: &CommandRow,
    attempt: &RunningJob,
    permit: &WritePermit,
) -> Result<MergeResult, JobError> {
    if statuses_are_missing(ctx, job).await? {
        let waited = ctx.clock.now() - job.since;
        return Ok(if waited < LONGEST_WAIT {
            let [shortest, longest] = BETWEEN_LOOKS;
            again(ctx, job, (waited / 2).clamp(shortest, longest))
        } else {
            let message = format!(
                "the status of the apply could not be set on {} for an hour.",
                job.pull.repo.host()
            );
            let way_out = format!(
                "Comment `{} apply` to try again, or merge by hand.",
                ctx.settings.comments.executable()
            );
            MergeResult::Refused(UserText::new(message, [way_out]))
        });
    }
    let pull = ctx.forges.of(&job.pull.repo)?.pull(&job.pull).await?;
    if pull.state != PullState::Open {
        info!(pull = %job.pull, state = %pull.state, "The pull request is not open any more, so it is not merged");
        return Ok(MergeResult::Done);
    }
    let cx = CommandCx {
        ctx,
        row,
        pull: &pull,
        early: EarlyAnswers::default(),
        stop: CancellationToken::new(),
        lost: attempt.lost.clone(),
        fate: OnceLock::new(),
        hooks: OnceLock::new(),
    };
    if let Some(why) = Box::pin(refusal(&cx, job)).await? {
        return Ok(MergeResult::Refused(why));
    }
    send(&cx, job, permit).await
}

/// Returns the same job for later. A failed attempt of this job would not do: those are counted, and end in an alarm.
fn again(ctx: &RunCtx, job: &MergePull, after: TimeDelta) -> MergeResult {
    MergeResult::Again(Box::new(NewJob {
        run_after: Some(ctx.clock.now() + after),
        ..job.to_new()
    }))
}

/// Returns true while the status of the apply is not set. A branch may require exactly that status.
async fn statuses_are_missing(ctx: &RunCtx, job: &MergePull) -> Result<bool, sqlx::Error> {
    let context = replies::pending_status(ctx, RunKind::Apply).context;
    ctx.store
        .job_lane_is_open(&SetStatus::lane_of(
            &job.pull.repo,
            &job.head,
            context.as_str(),
        ))
        .await
}

/// Returns why the pull request must not be merged, according to the database and the forge.
async fn refusal(cx: &CommandCx<'_>, job: &MergePull) -> Result<Option<UserText>, JobError> {
    let word = cx.ctx.settings.comments.executable();
    if let Some(why) = refusal_by_pull(cx.ctx, cx.pull, job) {
        return Ok(Some(why));
    }
    let plans = plans(cx).await?;
    let all: Vec<&PlanRecord> = plans.iter().collect();
    let policies = PlannedRules::read(cx, &all).await?;
    let newest_runs = NewestRuns::of(cx.ctx, &cx.pull.at, &cx.pull.head).await?;
    let mut left = left(cx, &newest_runs, &plans).await?;
    left.extend(unpassed(cx, &policies, &all).await?);
    match unplanned(cx, &newest_runs, &plans, &policies).await? {
        Ok(unplanned) => left.extend(
            unplanned
                .into_iter()
                .map(|project| (project, "has no plan")),
        ),
        Err(why) => return Ok(Some(why)),
    }
    if plans.is_empty() || !left.is_empty() {
        return Ok(Some(not_all_applied(left, word)));
    }
    boxed(|| unmet(cx, &all, policies)).await
}

/// Returns why the pull request must not be merged, according to its state on the forge.
fn refusal_by_pull(ctx: &RunCtx, pull: &Pull, job: &MergePull) -> Option<UserText> {
    let word = ctx.settings.comments.executable();
    if pull.head != job.head {
        let message = format!(
            "commit `{}` was applied, and the newest commit of the pull request is `{}` now.",
            job.head.short(),
            pull.head.short()
        );
        return Some(UserText::new(
            message,
            ["Plan and apply the newest commit.".to_owned()],
        ));
    }
    let label = label_in_the_way(ctx, pull)?;
    let message =
        format!("the pull request has the label `{label}` (`--disable-automerge-label`).");
    let hint = format!("Remove the label and comment `{word} apply` again, or merge by hand.");
    Some(UserText::new(message, [hint]))
}

/// Returns a sentence for each project, up to a maximum number.
fn reasons(mut left: Vec<(ProjectKey, &'static str)>) -> Vec<String> {
    left.sort();
    left.dedup_by(|a, b| a.0 == b.0);
    let more = left.len().saturating_sub(MOST_NAMED);
    let lines = left
        .iter()
        .take(MOST_NAMED)
        .map(|(project, why)| format!("{project} {why}."));
    lines
        .chain((more > 0).then(|| format!("And {more} more.")))
        .collect()
}

fn not_all_applied(left: Vec<(ProjectKey, &'static str)>, word: &str) -> UserText {
    let way_out =
        format!("Comment `{word} plan`, look at the plan, then apply it; or merge by hand.");
    let message = "not every project of the pull request is applied or has nothing to change.";
    UserText::new(message, reasons(left).into_iter().chain([way_out]))
}

/// Lists projects without a plan that a plan of the whole pull request would cover now. Hooks do not run for this
/// search. If there are any, the latest search at this commit counts.
async fn unplanned(
    cx: &CommandCx<'_>,
    newest_runs: &NewestRuns,
    plans: &[PlanRecord],
    policies: &PlannedRules,
) -> Result<Result<Vec<ProjectKey>, UserText>, JobError> {
    if hooks::any_before(cx, &cx.ctx.settings.rules(&cx.pull.at.repo)) {
        let hint = format!(
            "Comment `{} plan`, and apply what is left; or merge by hand.",
            cx.ctx.settings.comments.executable()
        );
        let message = "the newest commit of the pull request has no plan of all projects, so it is unknown whether \
                       all of them are applied.";
        let is_known = is_searched(cx, newest_runs, plans, policies).await?;
        return Ok(if is_known {
            Ok(Vec::new())
        } else {
            Err(UserText::new(message, [hint]))
        });
    }
    let has_plan = |project: &ProjectKey| plans.iter().any(|plan| plan.project == *project);
    Ok(match projects::concerned(cx).await {
        Ok(projects) => Ok(projects
            .into_iter()
            .filter(|project| !has_plan(project))
            .collect()),
        Err(stop) => {
            let reply = stop.into_reply()?;
            let cannot = "the projects of the pull request cannot be determined";
            let CommandEnd::Comment(body) = reply.told else {
                return Ok(Err(UserText::new(format!("{cannot}."), [])));
            };
            let Body::Refused(refusal) = *body else {
                return Ok(Err(UserText::new(
                    format!("{cannot}: its configuration has errors."),
                    [],
                )));
            };
            Err(UserText {
                message: format!("{cannot}: {}", refusal.text.message),
                ..refusal.text
            })
        }
    })
}

/// Returns true if a plan of the whole pull request has found every project. Its plans are for the current base
/// branch (see [`left`]), so one of them shows that the search was for this branch. An automatic search leaves out
/// projects that are only planned by comment.
async fn is_searched(
    cx: &CommandCx<'_>,
    newest_runs: &NewestRuns,
    plans: &[PlanRecord],
    policies: &PlannedRules,
) -> Result<bool, sqlx::Error> {
    let Some(search) = newest_runs.search() else {
        return Ok(false);
    };
    let runs = cx.ctx.store.run_list(search.command).await?;
    if !plans
        .iter()
        .any(|plan| runs.iter().any(|run| run.id == plan.run))
    {
        return Ok(false);
    }
    let plans_all = |policies: &Policies| {
        let mut projects = policies
            .config()
            .into_iter()
            .flat_map(|config| &config.projects);
        !policies.is_unread() && projects.all(|project| project.autoplan.enabled)
    };
    let is_whole = || {
        plans_all(&policies.policies)
            && policies.others.values().all(|policies| plans_all(policies))
    };
    Ok(!search.is_automatic || is_whole())
}

/// Checks the requirements of an apply again before the merge, for each project, even without changes.
async fn unmet(
    cx: &CommandCx<'_>,
    plans: &[&PlanRecord],
    policies: PlannedRules,
) -> Result<Option<UserText>, JobError> {
    let work = Work::of_plans(cx.ctx, policies, plans);
    for plan in plans {
        if work.hides_demands(&plan.project) {
            let message = format!(
                "the `apply_requirements` of {} cannot be read.",
                plan.project
            );
            return Ok(Some(UserText::new(
                message,
                ["Plan and apply again, or merge by hand.".to_owned()],
            )));
        }
        let demands = work.demands(RunKind::Apply, &plan.project);
        if demands.is_empty() {
            continue;
        }
        let source = match cx.ctx.checkouts.fetch_plan(plan).await {
            Ok(source) => source,
            Err(error) => return Err(JobError::retry(error)),
        };
        if let Some(unmet) = needs::refusal_of_merge(cx, &work, &demands, &source).await? {
            return Ok(Some(unmet));
        }
    }
    Ok(None)
}

/// Asks the forge to merge.
async fn send(
    cx: &CommandCx<'_>,
    job: &MergePull,
    permit: &WritePermit,
) -> Result<MergeResult, JobError> {
    let (ctx, host) = (cx.ctx, job.pull.repo.host());
    let try_again = format!(
        "Then comment `{} apply` again, or merge by hand.",
        ctx.settings.comments.executable()
    );
    let forge = ctx.forges.of(&job.pull.repo)?;
    let allowed = forge.merge_methods(&job.pull.repo).await?;
    let method = match (
        job.method.or(ctx.settings.planning.merge_method),
        allowed.first(),
    ) {
        (Some(method), _) if allowed.contains(&method) => method,
        (None, Some(first)) => *first,
        (Some(method), _) => {
            return Ok(MergeResult::Refused(not_allowed(cx, method, job, &allowed)));
        }
        (None, None) => {
            let message = format!("the repository on {host} allows no merge method.");
            return Ok(MergeResult::Refused(UserText::new(
                message,
                ["Allow one in its settings.".to_owned(), try_again],
            )));
        }
    };
    let refused = |said: &str| {
        let way_out = format!("Resolve this on {host}. {try_again}");
        MergeResult::Refused(UserText::new(
            format!("{host} refused to merge: {}", sentence(said)),
            [way_out],
        ))
    };
    // The checks above took time, and GitHub only gets the commit that it may merge.
    let now = ctx.forges.of(&job.pull.repo)?.pull(&job.pull).await?;
    if now.state != PullState::Open {
        return Ok(MergeResult::Done);
    }
    if let Some(why) = refusal_by_pull(ctx, &now, job) {
        return Ok(MergeResult::Refused(why));
    }
    if now.base_branch != cx.pull.base_branch {
        let message = format!(
            "its base branch was changed from `{}` to `{}`.",
            cx.pull.base_branch, now.base_branch
        );
        return Ok(MergeResult::Refused(UserText::new(
            message,
            ["Plan and apply it for that branch.".to_owned()],
        )));
    }
    let forge = ctx.forges.of(&job.pull.repo)?;
    match forge.merge(&job.pull, &job.head, method, permit).await {
        Ok(MergeAnswer::Merged) => {
            info!(pull = %job.pull, head = %job.head, %method, "Merged a pull request after its apply");
            Ok(MergeResult::Done)
        }
        Ok(MergeAnswer::HeadMoved) => {
            let message = format!(
                "commits were pushed after `{}` was applied.",
                job.head.short()
            );
            Ok(MergeResult::Refused(UserText::new(
                message,
                ["Plan and apply the newest commit.".to_owned()],
            )))
        }
        Ok(MergeAnswer::NotNow(said)) if job.refused + 1 < MOST_REQUESTS => {
            info!(pull = %job.pull, said, "The forge refused to merge a pull request; retrying later");
            Ok(again(
                ctx,
                &MergePull {
                    refused: job.refused + 1,
                    ..job.clone()
                },
                BETWEEN_REQUESTS,
            ))
        }
        Ok(MergeAnswer::NotNow(said)) => Ok(refused(&said)),
        Err(ForgeError::Rejected { message, .. }) => Ok(refused(&message)),
        Err(
            error @ (ForgeError::Denied { .. }
            | ForgeError::NotConfigured { .. }
            | ForgeError::NotFound { .. }),
        ) => {
            let message = format!(
                "Lockkeeper is not allowed to merge: {}.",
                describe_error(&error)
            );
            let way_out = "Ask the administrator of Lockkeeper to give its GitHub App the permission `Contents: Read and \
                           write` (each organization has to accept it), or its account the right to push to this \
                           repository.";
            Ok(MergeResult::Refused(UserText::new(
                message,
                [way_out.to_owned(), try_again],
            )))
        }
        Err(
            error @ (ForgeError::RateLimited { .. }
            | ForgeError::Moved { .. }
            | ForgeError::Unavailable { .. }),
        ) => Err(error.into()),
    }
}

fn not_allowed(
    cx: &CommandCx<'_>,
    method: MergeMethod,
    job: &MergePull,
    allowed: &[MergeMethod],
) -> UserText {
    let by = if job.method.is_some() {
        "--auto-merge-method"
    } else {
        "--automerge-method"
    };
    let names: Vec<String> = allowed.iter().map(|method| format!("`{method}`")).collect();
    let names = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(" and ")
    };
    let message =
        format!("the repository does not allow the method `{method}` (`{by}`); it allows {names}.");
    let word = cx.ctx.settings.comments.executable();
    let choose = match allowed.first() {
        Some(other) => {
            format!("Comment `{word} apply --auto-merge-method {other}`, or merge by hand.")
        }
        None => "Merge by hand.".to_owned(),
    };
    let allow = "Or allow the method in the settings of the repository.";
    UserText::new(message, [choose, allow.to_owned()])
}

/// Formats a message of the forge as a sentence.
fn sentence(said: &str) -> String {
    if said.ends_with(['.', '!', '?']) {
        said.to_owned()
    } else {
        format!("{said}.")
    }
}

/// Builds the comments that say why a pull request is not merged.
pub(crate) fn not_merged(ctx: &RunCtx, job: &MergePull, why: UserText) -> Vec<PostComment> {
    let report = replies::notice(
        ctx,
        CommandKind::Apply,
        job.notice,
        &job.pull,
        Body::NotMerged(why),
    );
    let report = Report {
        head: Some(job.head.clone()),
        ..report
    };
    replies::posts(ctx, &report, &job.pull, job.since)
}
