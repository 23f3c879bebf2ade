//! From a command to the projects it concerns, and what running one of them needs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tracing::debug;

use super::CommandCx;
use super::policies::Policies;
use crate::command::{self, var_files_outside};
use crate::config::repo::{self, AllowedOverrides, RepoConfig};
use crate::config::repos::LockPolicy;
use crate::context::Ctx;
use crate::discovery::explain::{self, Explanation, Question, Tool, explain_target};
use crate::discovery::{self, Input, Project, Tree};
use crate::git::Checkout;
use crate::handlers::reply::Reply;
use crate::jobs::forge_job_error;
use crate::locks::Ask;
use crate::model::{PlanRecord, PlanState, ProjectKey, ProjectName, RepoPath, RunKind, WorkspaceName};
use crate::queue::{JobError, Place as PoolPlace};
use crate::render::Body;
use crate::workflow::{
    CheckoutError, Place, PlanMade, RunError, RunOutput, Source, StepError, Tool as Program, ToolError,
};

/// A file of Terraform code that is looked into for its workspace is not larger.
const MAX_CODE_BYTES: u64 = 1024 * 1024;

/// What a plan command works on.
pub(super) enum Selection {
    /// These projects.
    Work(Box<Work>),
    /// None, and the answer says why.
    Refused(Reply),
}

/// What an apply command works on.
pub(super) enum Plans {
    /// These plans, those that share files on disk together.
    Some(Vec<Vec<PlanRecord>>),
    /// None, and the answer says why.
    Refused(Reply),
}

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

/// What is to be planned.
pub(super) enum Wanted<'a> {
    /// Whatever the pull concerns, as far as its configuration wants it planned by itself.
    Concerned,
    /// What a comment names.
    Asked(&'a command::Target),
    /// What was asked for while a lock was held by somebody else.
    Waited(&'a [Ask]),
}

impl Wanted<'_> {
    /// Whether the whole pull is searched, so that what is not found does not concern it any more.
    pub fn is_everything(&self) -> bool {
        match self {
            Self::Concerned => true,
            Self::Asked(target) => !target.is_targeted(),
            Self::Waited(_) => false,
        }
    }

    /// Whether nobody waits for an answer if there is nothing to do.
    pub fn is_automatic(&self) -> bool {
        matches!(self, Self::Concerned | Self::Waited(_))
    }

    /// What the pull waited for until now.
    pub fn waited_for(&self) -> Vec<ProjectKey> {
        match self {
            Self::Concerned | Self::Asked(_) => Vec::new(),
            Self::Waited(asks) => asks.iter().map(|ask| ask.project.clone()).collect(),
        }
    }

    /// Arguments of one project, if they were not given for all.
    pub fn extra_args(&self, project: &ProjectKey) -> Option<&[String]> {
        let Self::Waited(asks) = self else { return None };
        asks.iter().find(|ask| ask.project == *project).map(|ask| ask.extra_args.as_slice())
    }

    fn to_search(&self) -> Search {
        match self {
            Self::Concerned => Search { auto: true, ..Search::default() },
            Self::Asked(target) => Search { target: to_discovery(target), ..Search::default() },
            Self::Waited(_) => Search { only: Some(self.waited_for()), ..Search::default() },
        }
    }
}

/// The same without borrowing, for a thread of its own.
#[derive(Default)]
struct Search {
    target: Option<discovery::Target>,
    auto: bool,
    only: Option<Vec<ProjectKey>>,
}

impl Search {
    fn run(&self, input: &Input<'_>) -> Result<Vec<Project>, Trouble> {
        let found = match (&self.target, &self.only) {
            (_, Some(only)) => {
                let concerned = discovery::discover(input).map_err(Trouble::of_limit)?;
                only.iter().filter_map(|key| find(key, &concerned, input)).collect()
            }
            (Some(wanted), None) => discovery::select(wanted, input).map_err(Trouble::of_target)?,
            (None, None) => discovery::discover(input).map_err(Trouble::of_limit)?,
        };
        Ok(found.into_iter().filter(|project| !self.auto || project.autoplan).collect())
    }
}

/// A project by its key, whether or not the pull concerns it; `None` when it is gone.
fn find(key: &ProjectKey, concerned: &[Project], input: &Input<'_>) -> Option<Project> {
    let is_it = |project: &&Project| project.key == *key;
    let by_name = |name: &ProjectName| discovery::Target::Project(name.to_string());
    let by_place = || discovery::Target::Place {
        dir: discovery::DirSelector::Path(key.dir.clone()),
        workspace: Some(key.workspace.clone()),
    };
    concerned.iter().find(is_it).cloned().or_else(|| {
        let target = key.name.as_ref().map_or_else(by_place, by_name);
        discovery::select(&target, input).ok()?.iter().find(is_it).cloned()
    })
}

/// Finds the projects of a plan.
pub(super) async fn select(cx: &CommandCx<'_>, wanted: &Wanted<'_>) -> Result<Selection, JobError> {
    let search = wanted.to_search();
    Ok(match look(cx, move |input| search.run(input)).await? {
        Looked::Found(projects, work) => {
            let work = Work { projects, ..*work };
            work.tell_policies();
            Selection::Work(Box::new(work))
        }
        Looked::Refused(reply) => Selection::Refused(reply),
    })
}

/// What there is to say about a plan before it is made.
pub(super) enum Explained {
    /// All of it.
    Answer(Box<Explanation>),
    /// Nothing, and the answer says why.
    Refused(Reply),
}

/// Says what a plan of these projects would do, by the same search.
pub(super) async fn explain(cx: &CommandCx<'_>, target: &command::Target) -> Result<Explained, JobError> {
    let settings = &cx.ctx.settings;
    let (rules, target) = (settings.rules(&cx.pull.at.repo), to_discovery(target));
    let (tool, autoplan) =
        (Tool::of_server(settings.distribution, settings.default_version.clone()), settings.autoplan);
    let find = move |input: &Input<'_>| {
        let question = Question { input, rules: &rules, tool, autoplan };
        match &target {
            Some(target) => explain_target(target, &question).map_err(Trouble::of_target),
            None => explain::explain(&question).map_err(Trouble::of_limit),
        }
    };
    Ok(match look(cx, find).await? {
        Looked::Found(explanation, _) => Explained::Answer(Box::new(explanation)),
        Looked::Refused(reply) => Explained::Refused(reply),
    })
}

/// What a look at the checkout came to.
enum Looked<T> {
    /// What was looked for, and how to work on it.
    Found(T, Box<Work>),
    /// Nothing, and the answer says why.
    Refused(Reply),
}

/// Looks for something in a checkout of the pull.
async fn look<T: Send + 'static>(
    cx: &CommandCx<'_>,
    find: impl FnOnce(&Input<'_>) -> Result<T, Trouble> + Send + 'static,
) -> Result<Looked<T>, JobError> {
    let source = match cx.ctx.checkouts.fetch(&*cx.ctx.forge, cx.pull, cx.row.installation).await {
        Ok(source) => source,
        Err(error) => return checkout_refusal(error).map(Looked::Refused),
    };
    let rules = cx.ctx.settings.rules(&cx.pull.at.repo);
    let allowed = rules.allowed_overrides().clone();
    let work = Work {
        projects: Vec::new(),
        abreast: Semaphore::new(ABREAST),
        source: Some(source),
        policies: Policies::new(rules, None),
        checkouts: Mutex::default(),
    };
    let checkout = match work.checkout(cx, &WorkspaceName::default()).await {
        Ok(checkout) => checkout,
        Err(error) => return checkout_refusal(error).map(Looked::Refused),
    };
    let files = cx.ctx.checkouts.files(work.source(), &checkout).await.map_err(JobError::retry)?;
    if files.truncated {
        return Ok(Looked::Refused(too_many_files()));
    }
    let changed = cx.ctx.forge.changed_files(&cx.pull.at, cx.row.installation).await.map_err(forge_job_error)?;
    let settings = cx.ctx.settings.discovery.clone();
    let found = tokio::task::spawn_blocking(move || {
        let tree = Tree::new(files.paths);
        let config = configuration(&tree, &checkout, &allowed)?;
        let read = |path: &RepoPath| read_code(&checkout, path);
        let input = Input { tree: &tree, changed: &changed, config: config.as_ref(), settings: &settings, read: &read };
        let found = find(&input)?;
        Ok::<_, Trouble>((found, config))
    });
    match found.await.context("the search for projects broke off").map_err(JobError::Fail)? {
        Ok((found, config)) => {
            let abreast = Semaphore::new(abreast(config.as_ref().and_then(|config| config.parallel_plan)));
            let policies = work.policies.with_config(config);
            Ok(Looked::Found(found, Box::new(Work { abreast, policies, ..work })))
        }
        Err(trouble) => Ok(Looked::Refused(trouble.into_reply())),
    }
}

/// Nothing but the pool limits how many runs there are at once.
const ABREAST: usize = 10_000;

fn abreast(parallel: Option<bool>) -> usize {
    if parallel == Some(false) { 1 } else { ABREAST }
}

/// Why no projects can be named.
enum Trouble {
    Config(String),
    Target(String),
    Limit(String),
}

impl Trouble {
    fn of_limit(error: discovery::LimitExceeded) -> Self {
        Self::Limit(error.to_string())
    }

    fn of_target(error: discovery::SelectError) -> Self {
        Self::Target(error.to_string())
    }

    fn into_reply(self) -> Reply {
        match self {
            Self::Config(text) => Reply::new(Body::ConfigErrors(text)),
            Self::Target(message) => Reply::refused("target", sentence(message), vec![]),
            Self::Limit(message) => Reply::refused("limit", sentence(message), vec![]),
        }
    }
}

/// With a full stop, unless it ends like a sentence already.
fn sentence(mut text: String) -> String {
    if !text.ends_with(['.', '?', '!']) {
        text.push('.');
    }
    text
}

/// A checkout that cannot be had: some reasons pass, others are for the people at the pull.
fn checkout_refusal(error: CheckoutError) -> Result<Reply, JobError> {
    match error {
        CheckoutError::Conflict { base, files } => Ok(Reply::refused(
            "merge_conflict",
            format!("this pull request cannot be merged into `{base}` without conflicts in {}.", list(&files)),
            vec!["Resolve the conflicts and push; the plan then runs by itself.".to_owned()],
        )),
        CheckoutError::HeadGone { head } => Ok(Reply::refused(
            "head_gone",
            format!("the commit `{}` is not part of the pull request any more.", head.short()),
            vec!["A push replaced it; the plan of the newest commit runs by itself.".to_owned()],
        )),
        error @ (CheckoutError::BaseGone { .. } | CheckoutError::Dir(_)) => {
            Ok(Reply::refused("checkout", format!("{error}."), vec![]))
        }
        other @ (CheckoutError::Forge(_)
        | CheckoutError::Git(_)
        | CheckoutError::Busy { .. }
        | CheckoutError::Store(_)) => Err(JobError::retry(other)),
    }
}

fn too_many_files() -> Reply {
    let message = "this repository has more files than can be listed (64 MiB of file names).".to_owned();
    Reply::refused("limit", message, vec![])
}

fn list(files: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut names: Vec<String> = files.iter().take(SHOWN).map(|file| format!("`{file}`")).collect();
    if files.len() > SHOWN {
        names.push(format!("{} more", files.len() - SHOWN));
    }
    names.join(", ")
}

fn to_discovery(target: &command::Target) -> Option<discovery::Target> {
    match target {
        command::Target::Generic => None,
        command::Target::Project(name) => Some(discovery::Target::Project(name.as_str().to_owned())),
        command::Target::DirWorkspace { dir, workspace } => {
            let dir = match dir {
                None => discovery::DirSelector::Path(RepoPath::root()),
                Some(command::DirSelector::Path(path)) => discovery::DirSelector::Path(path.clone()),
                Some(command::DirSelector::Pattern(pattern)) => {
                    discovery::DirSelector::Glob(pattern.as_str().to_owned())
                }
            };
            Some(discovery::Target::Place { dir, workspace: workspace.clone() })
        }
    }
}

fn configuration(tree: &Tree, checkout: &Checkout, allowed: &AllowedOverrides) -> Result<Option<RepoConfig>, Trouble> {
    let Some(file) = repo::find(tree.files()).map_err(|error| Trouble::Config(error.to_string()))? else {
        return Ok(None);
    };
    let text = read_file(checkout, &file, RepoConfig::MAX_BYTES as u64 + 1);
    let text = text.map_err(|error| Trouble::Config(format!("`{file}` cannot be read: {error}")))?;
    RepoConfig::parse(file.as_str(), &text, allowed).map(Some).map_err(|errors| Trouble::Config(errors.to_string()))
}

fn read_code(checkout: &Checkout, path: &RepoPath) -> Option<String> {
    read_file(checkout, path, MAX_CODE_BYTES).ok()
}

/// Reads a regular file of a checkout; no link is followed, so nothing outside can be read.
fn read_file(checkout: &Checkout, path: &RepoPath, most: u64) -> std::io::Result<String> {
    let invalid = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let dir = checkout.resolve_dir(&path.parent()).map_err(|error| invalid(error.to_string()))?;
    let file = dir.join(path.file_name());
    let meta = file.symlink_metadata()?;
    if !meta.is_file() {
        return Err(invalid("it is not a regular file".to_owned()));
    }
    if meta.len() > most {
        return Err(invalid(format!("it is larger than {most} bytes")));
    }
    std::fs::read_to_string(file)
}

/// Finds the plans of an apply.
pub(super) async fn plans(cx: &CommandCx<'_>, target: &command::Target) -> Result<Plans, JobError> {
    let recorded = cx.ctx.store.plan_list(&cx.pull.at).await?;
    let wanted: Vec<PlanRecord> = recorded.into_iter().filter(|plan| concerns(target, plan)).collect();
    if wanted.is_empty() {
        let word = &cx.ctx.settings.executable;
        let what = if target.is_targeted() { "there is no plan of that project" } else { "there is no plan to apply" };
        return Ok(Plans::Refused(Reply::refused(
            "no_plan",
            format!("{what} in this pull request."),
            vec![format!("Comment `{word} plan` first, look at the plan, then apply it.")],
        )));
    }
    let mut groups: BTreeMap<(RepoPath, WorkspaceName), Vec<PlanRecord>> = BTreeMap::new();
    for plan in wanted.into_iter().filter(|plan| plan.state != PlanState::Discarded) {
        groups.entry((plan.project.dir.clone(), plan.project.workspace.clone())).or_default().push(plan);
    }
    Ok(Plans::Some(groups.into_values().collect()))
}

fn concerns(target: &command::Target, plan: &PlanRecord) -> bool {
    match target {
        command::Target::Generic => true,
        command::Target::Project(name) => plan.project.name.as_ref().is_some_and(|own| name.matches(own)),
        command::Target::DirWorkspace { dir, workspace } => {
            let dir_fits = match dir {
                None => plan.project.dir.is_root(),
                Some(command::DirSelector::Path(path)) => *path == plan.project.dir,
                Some(command::DirSelector::Pattern(pattern)) => pattern.matches(&plan.project.dir),
            };
            dir_fits && plan.project.workspace == workspace.clone().unwrap_or_default()
        }
    }
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

    /// The projects, those that share a directory and a workspace together.
    pub fn groups(&self) -> Vec<Vec<&Project>> {
        let mut groups: BTreeMap<(&RepoPath, &WorkspaceName), Vec<&Project>> = BTreeMap::new();
        for project in &self.projects {
            groups.entry((&project.key.dir, &project.key.workspace)).or_default().push(project);
        }
        groups.into_values().collect()
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

/// What has to be at hand before the gate of an apply is asked.
pub(super) struct Ready {
    pub tool: Program,
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
