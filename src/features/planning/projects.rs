//! Holds the projects of a command and the inputs to run each of them. The modules `search` and `plans` find the
//! projects.

mod applying;
mod behind;
mod files;
mod links;
mod plans;
mod policy_work;
mod search;
mod sparse;
mod submodules;
mod view;
mod wanted;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tracing::{debug, info};
use url::Url;

pub(super) use applying::ApplyInputs;
pub(super) use files::read_file;
pub(super) use plans::{PlanUse, meant, plans, wrong_name};
pub(super) use search::{checkout_refusal, concerned, explain, select};
pub(super) use wanted::ProjectSelection;

use super::CommandCx;
use super::needs::Findings;
use super::policies::Policies;
use crate::command::{CommandName, RefusedArg, var_files_outside};
use crate::config::repo::RepoConfig;
use crate::config::repos::{Demands, LockPolicy, RepoRules};
use crate::config::workflow::{Stage as Steps, Workflow};
use crate::context::RunCtx;
use crate::discovery::terragrunt::Unresolved;
use crate::discovery::{OrderPosition, Project, ProjectGroup, stages};
use crate::features::registry::access_of_run;
use crate::features::replies::Reply;
use crate::git::{Checkout, MirrorInUse, ModuleAccess};
use crate::model::{
    Distribution, Mergeability, PlanRecord, ProjectKey, RepoPath, RunKind, WorkspaceName, code_span,
};
use crate::queue::RunPermit;
use crate::render::ProjectReport;
use crate::workflow::{
    CheckedOut, CheckoutError, CommentWords, PlanMade, PullFacts, RegistryAccess, RunError,
    RunOutput, Source, StateWork, StepError, StepFailure, ToolContext, ToolError, VersionSources,
};
use behind::BaseChanges;
use files::required;
use sparse::ComputedExtents;

/// Projects of a command and their checkouts, one per workspace.
pub(super) struct Work {
    pub projects: Vec<Project>,
    /// Unresolved inputs. The pull request may concern more projects because of them.
    pub not_known: Vec<Unresolved>,
    /// Number of groups of projects that may run concurrently: `parallel_plan: false` allows only one.
    group_permits: Semaphore,
    /// Checked out commits; `None` for an apply, where each plan record has its own.
    pub source: Option<Source>,
    /// Rules of the administrator and the repository.
    policies: Policies,
    /// Rules of planned projects with another configuration, for an apply.
    others: HashMap<ProjectKey, Arc<Policies>>,
    /// Changes of the base branch that the projects lack; `None` if they lack none.
    behind: Option<BaseChanges>,
    /// Facts found out about the pull request.
    pub findings: Findings,
    checkouts: Mutex<HashMap<WorkspaceName, Slot>>,
    /// Files that checkouts need to contain.
    reached: ComputedExtents,
    /// Links that lead out of the checkouts.
    links: links::KnownLinks,
    /// Inputs of policy checks.
    policy_inputs: policy_work::SharedPolicyInputs,
}

/// Slot of a checkout that a project is preparing or has prepared, and its current state.
type Slot = Arc<Mutex<Option<(CheckedOut, Arc<Checkout>)>>>;

/// Maximum number of concurrent groups if only the pool limits the runs.
const NO_GROUP_LIMIT: usize = 10_000;

fn max_parallel_groups(parallel: Option<bool>) -> usize {
    if parallel == Some(false) {
        1
    } else {
        NO_GROUP_LIMIT
    }
}

/// Refuses arguments that Terraform must not get from a comment. Comments were checked by the same rules, but a
/// command may have been stored by a server with other rules.
pub(super) fn argument_refusal(
    ctx: &RunCtx,
    command: CommandName,
    extra: &[String],
    operands: &[String],
) -> Option<Reply> {
    let refused = ctx
        .settings
        .comments
        .extra_args()
        .check(command, extra, operands)
        .err();
    let refusal = |refused: RefusedArg| {
        let hint = "Run the command again with other arguments; `help` explains it.".to_owned();
        Reply::refused(refused.reason(), refused.to_string(), vec![hint])
    };
    refused
        .map(refusal)
        .or_else(|| var_file_refusal(ctx, extra))
}

/// Returns why an argument cannot be passed to the tool of a project, if only the other tool has it.
pub(super) fn argument_of_other_tool(
    ctx: &RunCtx,
    extra: &[String],
    tool: Distribution,
) -> Option<String> {
    let (argument, only) = ctx
        .settings
        .comments
        .extra_args()
        .of_other_tool(extra, tool)?;
    let argument = code_span(argument);
    Some(format!(
        "only {} supports the argument {argument}, and this project uses {}",
        only.title(),
        tool.title()
    ))
}

/// Refuses variables files outside of the project, because they could be any file of the server. Only those below the
/// directories of `--var-file-allowlist` are allowed (reference 1.6, step 8).
fn var_file_refusal(ctx: &RunCtx, extra: &[String]) -> Option<Reply> {
    let allowed = |file: &&str| {
        !ctx.settings
            .comments
            .var_file_dirs
            .iter()
            .any(|dir| lies_below(dir, Path::new(file)))
    };
    let first = var_files_outside(extra).into_iter().find(allowed)?;
    Some(Reply::refused(
        "var_file",
        format!(
            "the variables file {} lies outside of the project's directory.",
            code_span(first)
        ),
        vec![
            "Name a file below the project's directory, without `..` at its beginning.".to_owned(),
            "Or an administrator can allow its directory with `--var-file-allowlist`.".to_owned(),
        ],
    ))
}

/// Checks the path by its text alone: an absolute path without `..` that begins with the directory.
fn lies_below(dir: &Path, file: &Path) -> bool {
    let plain = file
        .components()
        .all(|part| part != std::path::Component::ParentDir);
    plain && file.is_absolute() && file.starts_with(dir)
}

/// Waits for a permit of the pool. Fails if the command has to stop.
pub(super) async fn acquire_permit(
    cx: &CommandCx<'_>,
    kind: RunKind,
) -> Result<RunPermit, Stopped> {
    tokio::select! {
        biased;
        () = cx.stop.cancelled() => Err(Stopped),
        permit = cx.ctx.runs.pool.acquire(kind, &cx.pull.at) => if cx.may_begin() { Ok(permit) } else { Err(Stopped) },
    }
}

/// The command has to stop.
pub(super) struct Stopped;

impl Work {
    /// Returns the rules of the administrator.
    pub fn rules(&self) -> &RepoRules {
        self.policies.of_operator()
    }

    /// Returns the rules of the administrator and the repository for a project.
    pub fn policies(&self, project: &ProjectKey) -> &Policies {
        self.others
            .get(project)
            .map_or(&self.policies, |policies| &**policies)
    }

    fn configs(&self) -> impl Iterator<Item = &RepoConfig> {
        let others = self.others.values().map(|policies| &**policies);
        std::iter::once(&self.policies)
            .chain(others)
            .filter_map(Policies::config)
    }

    /// Returns the lock policy of a project.
    pub fn policy(&self, project: &ProjectKey) -> LockPolicy {
        self.policies(project).of(project)
    }

    /// Returns the requirements of a project for a kind of run. A `state rm` has those of an import, because both change
    /// the state without a plan.
    pub fn demands(&self, kind: RunKind, project: &ProjectKey) -> Demands {
        let rules = self.policies(project).project(project);
        match kind {
            RunKind::Plan => rules.plan_requirements,
            RunKind::Apply => rules.apply_requirements,
            RunKind::Import | RunKind::StateRm => rules.import_requirements,
            RunKind::Version => Demands::default(),
        }
    }

    /// Returns true if the repository may have requirements for an apply that nobody can read now.
    pub fn hides_demands(&self, project: &ProjectKey) -> bool {
        self.policies(project).hides_demands()
    }

    /// Marks the reports that comments leave out (`silence_pr_comments`): only successful ones. Somebody has to read
    /// about every other one (P10).
    pub fn silence(&self, kind: RunKind, reports: &mut [ProjectReport]) {
        for report in reports
            .iter_mut()
            .filter(|report| report.outcome.is_success())
        {
            report.silenced = self
                .policies(&report.key)
                .project(&report.key)
                .silenced
                .value
                .contains(&kind);
        }
    }

    /// Logs the lock policies, for people who wonder which rule decided.
    fn tell_policies(&self) {
        for Project { key, .. } in &self.projects {
            debug!(project = %key, policy = %self.policy(key), "Lock policy");
        }
    }

    /// Waits for the turn of a group of projects.
    pub async fn turn(&self) -> SemaphorePermit<'_> {
        self.group_permits
            .acquire()
            .await
            .expect("the semaphore is never closed")
    }

    /// Returns the projects in their order. In each stage, projects with the same directory and workspace are
    /// together.
    pub fn stages(&self) -> Vec<ProjectGroup<Vec<&Project>>> {
        let all = stages(self.projects.iter().collect(), |project: &&Project| {
            (&project.key, &project.order)
        });
        all.into_iter()
            .map(|stage| grouped(stage, |project| &project.key))
            .collect()
    }

    /// Returns the position of a plan in the order; `None` if it is unknown.
    pub fn order(&self, plan: &PlanRecord) -> Option<OrderPosition> {
        self.policies(&plan.project).order(plan)
    }

    /// Returns true if a failure in one group of the order prevents the later groups from running.
    pub fn aborts(&self) -> bool {
        self.configs()
            .any(|config| config.abort_on_execution_order_fail)
    }

    pub fn source(&self) -> &Source {
        self.source
            .as_ref()
            .expect("a plan has fetched what it works on")
    }

    /// Returns the checkout of the planned commit for a workspace.
    pub async fn checkout(
        &self,
        cx: &CommandCx<'_>,
        workspace: &WorkspaceName,
    ) -> Result<Arc<Checkout>, CheckoutError> {
        self.checkout_of(cx, self.source(), workspace).await
    }

    /// Returns the checkout for a workspace. It is made once per command, unless the plans to apply come from several
    /// states of the base branch. Those share one place, so each change of the state makes the checkout again.
    pub async fn checkout_of(
        &self,
        cx: &CommandCx<'_>,
        source: &Source,
        workspace: &WorkspaceName,
    ) -> Result<Arc<Checkout>, CheckoutError> {
        let wanted = cx.ctx.checkouts.checked_out(source);
        let slot = Arc::clone(
            self.checkouts
                .lock()
                .await
                .entry(workspace.clone())
                .or_default(),
        );
        let mut slot = slot.lock().await;
        if let Some((_, checkout)) = slot.as_ref().filter(|(there, _)| *there == wanted) {
            return Ok(Arc::clone(checkout));
        }
        *slot = None;
        let ctx = cx.ctx;
        let checkout = match self.prepare(cx, source, workspace).await {
            Err(CheckoutError::Git(error)) if ctx.checkouts.has_lost(source).await => {
                info!(%error, "Fetching the commits again, because the mirror was replaced");
                ctx.checkouts.fetch_source(source).await?;
                self.prepare(cx, source, workspace).await?
            }
            prepared => prepared?,
        };
        let checkout = Arc::new(checkout);
        *slot = Some((wanted, Arc::clone(&checkout)));
        Ok(checkout)
    }

    /// Checks out the directories of the source that the command needs, with submodules and LFS content.
    async fn prepare(
        &self,
        cx: &CommandCx<'_>,
        source: &Source,
        workspace: &WorkspaceName,
    ) -> Result<Checkout, CheckoutError> {
        let extent = self.extent(cx, source, workspace).await?;
        let ctx = cx.ctx;
        let rules = submodules::SubmodulePolicy {
            ctx,
            parent: &source.pull.repo,
        };
        // Boxed, because the future is large, and everything that plans awaits it.
        let parts = Box::pin(ctx.checkouts.bring_parts(source, &rules)).await?;
        ctx.checkouts
            .prepare(source, workspace, &extent, &parts)
            .await
    }

    /// Returns the checkout for a run, and a guard: while it lives, the mirror of the checkout is not replaced.
    pub async fn checkout_for_run(
        &self,
        cx: &CommandCx<'_>,
        source: &Source,
        workspace: &WorkspaceName,
    ) -> Result<(Arc<Checkout>, MirrorInUse), CheckoutError> {
        loop {
            let checkout = self.checkout_of(cx, source, workspace).await?;
            let in_use = cx.ctx.checkouts.begin_run(&source.pull.repo).await;
            if cx.ctx.checkouts.is_current(&source.pull.repo, &checkout) {
                return Ok((checkout, in_use));
            }
            drop(in_use);
            let slot = Arc::clone(
                self.checkouts
                    .lock()
                    .await
                    .entry(workspace.clone())
                    .or_default(),
            );
            let mut slot = slot.lock().await;
            // Another project may have prepared it again by now.
            slot.take_if(|(_, there)| Arc::ptr_eq(there, &checkout));
        }
    }

    /// Plans one project, and returns the plan and its checkout.
    pub async fn plan(
        &self,
        cx: &CommandCx<'_>,
        project: &Project,
        extra: &[String],
        output: &RunOutput,
    ) -> Result<(PlanMade, Arc<Checkout>), RunError> {
        self.check_arguments(cx, &project.key, extra)?;
        let (checkout, _in_use) = self
            .checkout_for_run(cx, self.source(), &project.key.workspace)
            .await?;
        self.check_links(cx, self.source(), &checkout, &project.key)
            .await?;
        let workflow = self.policies(&project.key).workflow(&project.key);
        let facts = self.facts(cx, RunKind::Plan, &workflow, extra).await;
        let site = Site::of(self, cx, &checkout, &project.key, facts).await?;
        let place = site.place(
            cx,
            &project.key,
            &workflow,
            CommentWords::only(extra),
            output,
        );
        let policies = Box::pin(self.policy_work(cx, &project.key)).await;
        let place = ToolContext {
            policies: policies.as_ref(),
            ..place
        };
        let versions = self.versions(cx, &checkout, &project.key).await;
        let made = cx.ctx.runs.terraform.plan(&place, &versions).await?;
        Ok((made, checkout))
    }

    /// Checks the arguments of a plan again. Those of a plan that waited for a lock may be old, and arguments of
    /// another tool would only fail there.
    #[expect(
        clippy::result_large_err,
        reason = "made once for a run, at its beginning"
    )]
    fn check_arguments(
        &self,
        cx: &CommandCx<'_>,
        project: &ProjectKey,
        extra: &[String],
    ) -> Result<(), RunError> {
        let (allowed, tool) = (
            &cx.ctx.settings.comments.extra_args(),
            self.distribution(cx, project),
        );
        let refused = allowed
            .check(CommandName::Plan, extra, &[])
            .err()
            .map(|refused| refused.to_string());
        let Some(why) = refused.or_else(|| argument_of_other_tool(cx.ctx, extra, tool)) else {
            return Ok(());
        };
        Err(StepError::not_begun(
            &format!("{} plan", tool.program()),
            StepFailure::Argument(why),
        )
        .into())
    }

    /// Carries out a stage that changes the state of a project.
    pub async fn change_state(
        &self,
        cx: &CommandCx<'_>,
        project: &ProjectKey,
        stage: impl FnOnce(&Workflow) -> &Steps,
        (arguments, given): (&[String], CommentWords<'_>),
        output: &RunOutput,
    ) -> StateWork {
        let workflow = self.policies(project).workflow(project);
        match self.site(cx, project, arguments).await {
            Ok((site, versions, _in_use)) => {
                let place = site.place(cx, project, &workflow, given, output);
                cx.ctx
                    .runs
                    .terraform
                    .change_state(&place, &versions, stage(&workflow))
                    .await
            }
            Err(error) => StateWork::not_begun(error),
        }
    }

    /// Returns the output of the project's program about its version.
    pub async fn version(
        &self,
        cx: &CommandCx<'_>,
        project: &ProjectKey,
        output: &RunOutput,
    ) -> Result<String, RunError> {
        let workflow = self.policies(project).workflow(project);
        let (site, versions, _in_use) = self.site(cx, project, &[]).await?;
        cx.ctx
            .runs
            .terraform
            .version(
                &site.place(cx, project, &workflow, CommentWords::only(&[]), output),
                &versions,
            )
            .await
    }

    /// Returns the place of a project and its tool, for commands that need nothing more from the forge.
    async fn site(
        &self,
        cx: &CommandCx<'_>,
        project: &ProjectKey,
        arguments: &[String],
    ) -> Result<(Site, VersionSources, MirrorInUse), RunError> {
        let (checkout, in_use) = self
            .checkout_for_run(cx, self.source(), &project.workspace)
            .await?;
        self.check_links(cx, self.source(), &checkout, project)
            .await?;
        let facts = PullFacts::of(cx.pull, &cx.row.actor.login, arguments);
        let site = Site::of(self, cx, &checkout, project, facts).await?;
        Ok((site, self.versions(cx, &checkout, project).await, in_use))
    }

    /// Returns the program of a project.
    pub fn distribution(&self, cx: &CommandCx<'_>, project: &ProjectKey) -> Distribution {
        self.policies(project)
            .project(project)
            .distribution
            .map_or(cx.ctx.settings.terraform.distribution, |decided| {
                decided.value
            })
    }

    /// Collects the version constraints of a project: from the administrator, the configuration, and the code on the
    /// disk, because hooks may have written some of it.
    async fn versions(
        &self,
        cx: &CommandCx<'_>,
        checkout: &Arc<Checkout>,
        project: &ProjectKey,
    ) -> VersionSources {
        let rules = self.policies(project).project(project);
        let distribution = self.distribution(cx, project);
        let (checkout, dir) = (Arc::clone(checkout), project.dir.clone());
        let code =
            tokio::task::spawn_blocking(move || required(&checkout, &dir, distribution)).await;
        VersionSources {
            distribution,
            project: rules.version,
            code: code.unwrap_or_default(),
            default: cx.ctx.settings.terraform.version.clone(),
        }
    }

    /// Asks the forge for the facts that commands of the workflows of these projects need, and never returns. A plan polls this beside its
    /// runs, so the answer is on its way while they wait for permits and for the checkout. Right after a push it takes seconds.
    pub async fn ask_early(
        &self,
        cx: &CommandCx<'_>,
        kind: RunKind,
        projects: impl Iterator<Item = &Project>,
    ) -> Infallible {
        let mut workflows =
            projects.map(|project| self.policies(&project.key).workflow(&project.key));
        if !cx.pull.at.subject.is_application() && workflows.any(|flow| flow.runs_commands()) {
            // The projects wait for the answers if they need them earlier, and ask again after an error.
            drop(self.findings.of_pull(cx, kind).await);
        }
        std::future::pending().await
    }

    /// Collects the facts for commands of the workflow. The forge is asked only if there are any; an unknown fact is
    /// `false`.
    async fn facts(
        &self,
        cx: &CommandCx<'_>,
        kind: RunKind,
        workflow: &Workflow,
        extra: &[String],
    ) -> PullFacts {
        let mut facts = PullFacts::of(cx.pull, &cx.row.actor.login, extra);
        if !workflow.runs_commands() {
            return facts;
        }
        if cx.pull.at.subject.is_application() {
            (facts.approved, facts.mergeable) = (Some(false), Some(false));
            return facts;
        }
        let (approval, mergeability) = self.findings.of_pull(cx, kind).await;
        let approved = approval.is_ok_and(|approval| approval.is_given_for(&cx.pull.head));
        let mergeable = matches!(
            mergeability,
            Ok(Mergeability::Yes
                | Mergeability::ButFor {
                    up_to_date: false,
                    ..
                })
        );
        (facts.approved, facts.mergeable) = (Some(approved), Some(mergeable));
        facts
    }
}

/// Groups the projects of a stage with the same directory and workspace, because they share files on disk.
pub(super) fn grouped<T>(
    stage: ProjectGroup<T>,
    key: impl Fn(&T) -> &ProjectKey,
) -> ProjectGroup<Vec<T>> {
    let mut groups: BTreeMap<(RepoPath, WorkspaceName), Vec<T>> = BTreeMap::new();
    for member in stage.members {
        let place = (key(&member).dir.clone(), key(&member).workspace.clone());
        groups.entry(place).or_default().push(member);
    }
    ProjectGroup {
        group: stage.group,
        members: groups.into_values().collect(),
    }
}

/// Returns the access of the built-in `init` to private modules, if the administrator enabled it. The author of the
/// code decides which repositories are read, so a pull request from a fork never gets the access.
async fn module_access(cx: &CommandCx<'_>) -> Result<Option<ModuleAccess>, CheckoutError> {
    if !cx.ctx.settings.repos.module_access || cx.pull.is_fork() {
        return Ok(None);
    }
    let repo = &cx.pull.at.repo;
    let forge = cx.ctx.forges.of(repo)?;
    let credentials = forge.module_credentials(repo).await?;
    let url = Url::parse(&forge.clone_url(repo)).ok();
    Ok(credentials
        .zip(url)
        .map(|(credentials, url)| ModuleAccess::new(&url, &credentials)))
}

/// Place of a project in a checkout.
struct Site {
    dir: PathBuf,
    root: PathBuf,
    mirror: PathBuf,
    hold: PathBuf,
    lock_file_tracked: bool,
    facts: PullFacts,
    profile: Option<String>,
    modules: Option<ModuleAccess>,
    registry: Option<RegistryAccess>,
}

impl Site {
    async fn of(
        work: &Work,
        cx: &CommandCx<'_>,
        checkout: &Checkout,
        project: &ProjectKey,
        facts: PullFacts,
    ) -> Result<Self, RunError> {
        let dir = checkout
            .resolve_dir(&project.dir)
            .map_err(CheckoutError::from)?;
        let lock_file = project
            .dir
            .join(".terraform.lock.hcl")
            .expect("a file of a directory stays inside");
        let tracked = cx
            .ctx
            .checkouts
            .is_tracked(&cx.pull.at.repo, checkout, &lock_file)
            .await;
        let lock_file_tracked = tracked.map_err(CheckoutError::from)?;
        let (root, hold) = (checkout.path.clone(), checkout.hold.clone());
        let mirror = cx.ctx.checkouts.mirror_dir(&cx.pull.at.repo);
        let profile = work
            .policies(project)
            .project(project)
            .environment_profile
            .map(|decided| decided.value);
        let modules = module_access(cx).await?;
        let registry = access_of_run(cx.ctx, cx.pull)
            .await
            .map_err(RunError::Registry)?;
        Ok(Self {
            dir,
            root,
            mirror,
            hold,
            lock_file_tracked,
            facts,
            profile,
            modules,
            registry,
        })
    }

    fn place<'a>(
        &'a self,
        cx: &'a CommandCx<'_>,
        project: &'a ProjectKey,
        workflow: &'a Workflow,
        given: CommentWords<'a>,
        output: &'a RunOutput,
    ) -> ToolContext<'a> {
        ToolContext {
            project,
            workflow,
            facts: &self.facts,
            profile: self.profile.as_deref(),
            dir: &self.dir,
            root: &self.root,
            mirror: &self.mirror,
            hold: &self.hold,
            lock_file_tracked: self.lock_file_tracked,
            modules: self.modules.as_ref(),
            registry: self.registry.as_ref(),
            lists_modules: cx.ctx.runs.registry.host().is_some(),
            policies: None,
            given,
            output,
            stop: &cx.stop,
            timeout: cx.ctx.settings.runs.timeout,
        }
    }
}

/// Returns hints about a failed run, if we know more than the tool says.
pub(super) async fn hints(cx: &CommandCx<'_>, error: &RunError) -> Vec<String> {
    let of_parts = sparse::hint_of_submodules(cx, error).await;
    known_hints(cx.ctx, error)
        .into_iter()
        .chain(of_parts)
        .collect()
}

fn known_hints(ctx: &RunCtx, error: &RunError) -> Vec<String> {
    match error {
        RunError::Step(_) if ctx.checkouts.is_sparse() && sparse::may_lack_files(error.output()) => vec![
            "The checkout contains only files that this project is known to use (`--sparse-checkout`). If the file is \
             in this repository, name it in `when_modified` of the project, relative to its directory, and plan \
             again."
                .to_owned(),
        ],
        RunError::Step(step) if ctx.runs.terraform.plans.sandbox.mechanism().is_some() && step.is_denied() => vec![
            "Runs may only use their checkout, the programs of the system, and paths that the administrator names \
             (`--sandbox`). If the run needs the path above, ask an administrator to name it in `--sandbox-read` or \
             `--sandbox-write`."
                .to_owned(),
        ],
        RunError::Step(StepError { why: StepFailure::Unreported(_), .. }) => vec![
            "Compare the infrastructure with the state, then plan again to see what is left.".to_owned(),
            "If a program on this server replaces the tool, it must print the same output as the tool.".to_owned(),
        ],
        RunError::Tool(ToolError::Missing { program, .. }) => vec![format!(
            "Ask an administrator to install `{program}` on the PATH of the server or in `--tf-bin-dir`."
        )],
        RunError::Tool(ToolError::OtherVersion { wanted, .. } | ToolError::Unasked { wanted, .. }) => vec![format!(
            "Use a version that this server has, or ask an administrator to install {wanted} in `--tf-bin-dir` under \
             its name and version."
        )],
        RunError::Tool(ToolError::Download { wanted, .. }) => vec![format!(
            "Run the command again when the mirror can be reached, or ask an administrator to install {wanted} in \
             `--tf-bin-dir` under its name and version."
        )],
        RunError::Tool(ToolError::Constraint(_)) => {
            vec!["Correct the constraint, or set `terraform_version` of the project, which has precedence.".to_owned()]
        }
        RunError::Tool(ToolError::Unsatisfied { title, .. }) => vec![
            format!("Change the constraint, or set `terraform_version` of the project to an installed version of \
                     {title}."),
            "Or ask an administrator to install a matching version in `--tf-bin-dir`, named like `terraform1.9.8` or \
             `tofu1.9.0`."
                .to_owned(),
        ],
        RunError::Step(StepError { why: StepFailure::TimedOut { .. }, .. }) => {
            vec!["If the run needs more time, an administrator can raise `--run-timeout`.".to_owned()]
        }
        RunError::Tool(ToolError::Unreadable { .. } | ToolError::Process(_))
        | RunError::Step(_)
        | RunError::Checkout(_)
        | RunError::Artifact(_)
        | RunError::Disk(_)
        | RunError::Registry(_) => Vec::new(),
    }
}
