//! The projects of a command, and what running one of them needs. How they are found is said in `search` and `plans`.

mod plans;
mod search;
mod wanted;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tracing::debug;

pub(super) use plans::{Plans, plans};
pub(super) use search::{Explained, Selection, explain, select};
pub(super) use wanted::Wanted;

use super::CommandCx;
use super::policies::Policies;
use crate::command::var_files_outside;
use crate::config::repos::{LockPolicy, RepoRules};
use crate::context::Ctx;
use crate::discovery::{Order, Project, Stage, stages};
use crate::git::Checkout;
use crate::handlers::reply::Reply;
use crate::model::{PlanRecord, ProjectKey, RepoPath, RunKind, WorkspaceName};
use crate::queue::Place as PoolPlace;
use crate::workflow::{CheckoutError, Place, PlanMade, RunError, RunOutput, Source, StepError, Tool, ToolError};

/// The projects of a command and their checkouts, one per workspace.
pub(super) struct Work {
    pub projects: Vec<Project>,
    /// How many groups of projects may be worked on at once: `parallel_plan: false` lets only one.
    abreast: Semaphore,
    /// What was checked out; `None` for an apply, where each plan record says it.
    pub source: Option<Source>,
    /// What the operator and the repository say about locks.
    policies: Policies,
    checkouts: Mutex<HashMap<(Source, WorkspaceName), Slot>>,
}

/// A checkout that somebody is making or has made.
type Slot = Arc<Mutex<Option<Arc<Checkout>>>>;

/// Nothing but the pool limits how many runs there are at once.
const ABREAST: usize = 10_000;

fn abreast(parallel: Option<bool>) -> usize {
    if parallel == Some(false) { 1 } else { ABREAST }
}

/// A variables file outside of the project could be any file of the server; only those below the directories of
/// `--var-file-allowlist` may be named (reference 1.6, step 8).
pub(super) fn var_file_refusal(ctx: &Ctx, extra: &[String]) -> Option<Reply> {
    let allowed = |file: &&str| !ctx.settings.var_file_dirs.iter().any(|dir| lies_below(dir, Path::new(file)));
    let first = var_files_outside(extra).into_iter().find(allowed)?;
    Some(Reply::refused(
        "var_file",
        format!("the variables file `{}` lies outside of the project's directory.", first.replace('`', "'")),
        vec![
            "Name a file below the project's directory, without `..` at its beginning.".to_owned(),
            "Or whoever runs Lockkeeper can allow its directory with `--var-file-allowlist`.".to_owned(),
        ],
    ))
}

/// By name alone: an absolute path without `..` that begins with the directory.
fn lies_below(dir: &Path, file: &Path) -> bool {
    let plain = file.components().all(|part| part != std::path::Component::ParentDir);
    plain && file.is_absolute() && file.starts_with(dir)
}

/// A place in the pool, or the end of waiting because the command is to stop.
pub(super) async fn place_in_pool(cx: &CommandCx<'_>, kind: RunKind) -> Result<PoolPlace, Stopped> {
    tokio::select! {
        biased;
        () = cx.stop.cancelled() => Err(Stopped),
        place = cx.ctx.pool.place(kind, &cx.pull.at) => if cx.may_begin() { Ok(place) } else { Err(Stopped) },
    }
}

/// The command is to stop.
pub(super) struct Stopped;

impl Work {
    /// For an apply: each plan says itself what it was made of. `parallel_apply: false` at the head that was planned lets
    /// only one group be applied at a time.
    pub fn of_plans(policies: Policies) -> Self {
        let abreast = Semaphore::new(abreast(policies.config().and_then(|config| config.parallel_apply)));
        Self { projects: Vec::new(), abreast, source: None, policies, checkouts: Mutex::default() }
    }

    /// What holds for the lock of a project.
    pub fn policy(&self, project: &ProjectKey) -> LockPolicy {
        self.policies.of(project)
    }

    /// For whoever wonders who decided how a lock is taken.
    fn tell_policies(&self) {
        for Project { key, .. } in &self.projects {
            debug!(project = %key, policy = %self.policy(key), "Lock policy");
        }
    }

    /// The turn of a group of projects.
    pub async fn turn(&self) -> SemaphorePermit<'_> {
        self.abreast.acquire().await.expect("the row is never closed")
    }

    /// The projects in their order; in each stage those that share a directory and a workspace together.
    pub fn stages(&self) -> Vec<Stage<Vec<&Project>>> {
        let all = stages(self.projects.iter().collect(), |project: &&Project| (&project.key, &project.order));
        all.into_iter().map(|stage| grouped(stage, |project| &project.key)).collect()
    }

    /// When the turn of a project comes, by what was planned; `None`: that cannot be found out.
    pub fn order(&self, project: &ProjectKey) -> Option<Order> {
        self.policies.order(project)
    }

    /// Whether a failure in one group of the order keeps the later groups from running.
    pub fn aborts(&self) -> bool {
        self.policies.config().is_some_and(|config| config.abort_on_execution_order_fail)
    }

    fn rules(&self) -> &RepoRules {
        self.policies.rules()
    }

    fn source(&self) -> &Source {
        self.source.as_ref().expect("a plan has fetched what it works on")
    }

    /// The checkout for a workspace, made once per command.
    async fn checkout(&self, cx: &CommandCx<'_>, workspace: &WorkspaceName) -> Result<Arc<Checkout>, CheckoutError> {
        self.checkout_of(cx, self.source(), workspace).await
    }

    pub async fn checkout_of(
        &self,
        cx: &CommandCx<'_>,
        source: &Source,
        workspace: &WorkspaceName,
    ) -> Result<Arc<Checkout>, CheckoutError> {
        let slot = Arc::clone(self.checkouts.lock().await.entry((source.clone(), workspace.clone())).or_default());
        let mut slot = slot.lock().await;
        if let Some(checkout) = &*slot {
            return Ok(Arc::clone(checkout));
        }
        let checkout = Arc::new(cx.ctx.checkouts.prepare(source, workspace).await?);
        *slot = Some(Arc::clone(&checkout));
        Ok(checkout)
    }

    /// Plans one project.
    pub async fn plan(
        &self,
        cx: &CommandCx<'_>,
        project: &Project,
        extra: &[String],
        output: &RunOutput,
    ) -> Result<(PlanMade, Arc<Checkout>), RunError> {
        let checkout = self.checkout(cx, &project.key.workspace).await?;
        let site = Site::of(cx, &checkout, &project.key).await?;
        let place = site.place(cx, &project.key, extra, output);
        let version = project.terraform_version.as_ref().or(cx.ctx.settings.default_version.as_ref());
        let made = cx.ctx.terraform.plan(&place, cx.ctx.settings.distribution, version).await?;
        Ok((made, checkout))
    }

    /// Applies one plan, in a checkout of exactly what was planned.
    pub async fn apply(
        &self,
        cx: &CommandCx<'_>,
        plan: &PlanRecord,
        ready: &Ready,
        extra: &[String],
        output: &RunOutput,
    ) -> Result<String, RunError> {
        let site = Site::of(cx, &ready.checkout, &plan.project).await?;
        let place = site.place(cx, &plan.project, extra, output);
        cx.ctx.terraform.apply(&place, &ready.tool, &ready.file).await
    }
}

/// Those of a stage that share a directory and a workspace, and so files on disk, together.
pub(super) fn grouped<T>(stage: Stage<T>, key: impl Fn(&T) -> &ProjectKey) -> Stage<Vec<T>> {
    let mut groups: BTreeMap<(RepoPath, WorkspaceName), Vec<T>> = BTreeMap::new();
    for member in stage.members {
        let place = (key(&member).dir.clone(), key(&member).workspace.clone());
        groups.entry(place).or_default().push(member);
    }
    Stage { group: stage.group, members: groups.into_values().collect() }
}

/// What has to be at hand before the gate of an apply is asked.
pub(super) struct Ready {
    pub tool: Tool,
    pub file: Vec<u8>,
    pub checkout: Arc<Checkout>,
}

/// Where in a checkout a project is.
struct Site {
    dir: PathBuf,
    hold: PathBuf,
    lock_file_tracked: bool,
}

impl Site {
    async fn of(cx: &CommandCx<'_>, checkout: &Checkout, project: &ProjectKey) -> Result<Self, RunError> {
        let dir = checkout.resolve_dir(&project.dir).map_err(CheckoutError::from)?;
        let lock_file = project.dir.join(".terraform.lock.hcl").expect("a file of a directory stays inside");
        let tracked = cx.ctx.checkouts.is_tracked(&cx.pull.at.repo, checkout, &lock_file).await;
        let lock_file_tracked = tracked.map_err(CheckoutError::from)?;
        Ok(Self { dir, hold: checkout.hold.clone(), lock_file_tracked })
    }

    fn place<'a>(
        &'a self,
        cx: &'a CommandCx<'_>,
        project: &'a ProjectKey,
        extra: &'a [String],
        output: &'a RunOutput,
    ) -> Place<'a> {
        Place {
            project,
            dir: &self.dir,
            hold: &self.hold,
            lock_file_tracked: self.lock_file_tracked,
            extra,
            output,
            stop: &cx.stop,
            timeout: cx.ctx.settings.run_timeout,
        }
    }
}

/// What to do about a run that failed, where we know more than the tool says.
pub(super) fn hints(error: &RunError) -> Vec<String> {
    match error {
        RunError::Tool(ToolError::Missing { program, .. }) => vec![format!(
            "Whoever runs Lockkeeper has to install `{program}` on the PATH of the server or in `--tf-bin-dir`."
        )],
        RunError::Tool(ToolError::OtherVersion { wanted, .. }) => vec![format!(
            "Ask for a version this server has, or have {wanted} put into `--tf-bin-dir` under its name and version."
        )],
        RunError::Step(StepError::TimedOut { .. }) => {
            vec!["If it needs that long, whoever runs Lockkeeper can raise `--run-timeout`.".to_owned()]
        }
        RunError::Tool(ToolError::Unreadable { .. } | ToolError::Process(_))
        | RunError::Step(StepError::Failed { .. } | StepError::Stopped { .. } | StepError::Process(_))
        | RunError::Checkout(_)
        | RunError::Artifact(_)
        | RunError::Disk(_) => Vec::new(),
    }
}
