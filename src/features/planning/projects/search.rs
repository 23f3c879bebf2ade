//! Finds the projects of a plan from its target.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use tokio::sync::{Mutex, Semaphore};

use super::behind::BaseChanges;
use super::sparse::{CommitListing, ComputedExtents};
use super::view::SearchFiles;
use super::wanted::{ProjectSelection, to_discovery};
use super::{NO_GROUP_LIMIT, Work, max_parallel_groups};
use crate::command;
use crate::config::repos::RepoRules;
use crate::discovery::explain::{
    self, ConfigWarning, ExplainInput, ExplainedTool, PlanExplanation,
};
use crate::discovery::{self, FileTree, Input, ModuleGraph};
use crate::features::planning::config_file::{
    ConfigReading, ReadConfig, UnknownConfig, may_be_written,
};
use crate::features::planning::hooks::{self, HookFacts};
use crate::features::planning::needs::Findings;
use crate::features::planning::policies::Policies;
use crate::features::planning::stop::Stop;
use crate::features::planning::{CommandCx, WrittenConfig};
use crate::features::replies::Reply;
use crate::git::{BranchChanges, Checkout, GitError, IgnoredFiles, TreeFiles};
use crate::model::{BranchName, ChangeKind, ChangedFile, CommitSha, ProjectKey, RepoPath, RunKind};
use crate::queue::JobError;
use crate::render::Body;
use crate::workflow::CheckoutError;

/// Finds the projects of a plan.
pub(in crate::features::planning) async fn select(
    cx: &CommandCx<'_>,
    wanted: &ProjectSelection<'_>,
    given: HookFacts<'_>,
) -> Result<Box<Work>, Stop> {
    let search = wanted.to_search();
    let find = move |input: &Input<'_>| {
        let projects = search.run(input)?;
        let not_known = search.not_known(input, &projects)?;
        Ok((projects, not_known))
    };
    let ((projects, not_known), work) = look(cx, Some(given), find).await?;
    let work = Work {
        projects,
        not_known,
        ..*work
    };
    work.tell_policies();
    Ok(Box::new(work))
}

/// Lists the projects that a plan of the whole pull request would plan, without running hooks.
pub(in crate::features::planning) async fn concerned(
    cx: &CommandCx<'_>,
) -> Result<Vec<ProjectKey>, Stop> {
    let search = ProjectSelection::Asked(&command::CommandTarget::Generic).to_search();
    let (projects, _) = look(cx, None, move |input| search.run(input)).await?;
    Ok(projects.into_iter().map(|project| project.key).collect())
}

/// Explains what a plan of these projects would do, with the same search. The warnings are about settings without effect
/// and unresolved inputs.
pub(in crate::features::planning) async fn explain(
    cx: &CommandCx<'_>,
    target: &command::CommandTarget,
) -> Result<(PlanExplanation, Vec<ConfigWarning>), Stop> {
    let settings = &cx.ctx.settings;
    let (rules, target) = (settings.rules(&cx.pull.at.repo), to_discovery(target));
    let tool = ExplainedTool::of_server(
        settings.terraform.distribution,
        settings.terraform.version.clone(),
    );
    let autoplan = settings.planning.autoplan;
    let find = move |input: &Input<'_>| {
        let question = ExplainInput {
            input,
            rules: &rules,
            tool,
            autoplan,
        };
        let explanation = match &target {
            Some(target) => explain::explain_target(target, &question)
                .map_err(|error| SearchFailure::of_target(&error)),
            None => explain::explain(&question).map_err(|error| SearchFailure::of_limit(&error)),
        }?;
        let warnings = explain::warnings(&question, Some(&explanation))
            .map_err(|error| SearchFailure::of_limit(&error))?;
        Ok((explanation, warnings))
    };
    let (explained, _) = Box::pin(look(cx, None, find)).await?;
    Ok(explained)
}

/// Searches a checkout of the pull request, after the hooks if `given` has facts for them. Returns the result and the
/// work for it.
async fn look<T: Send + 'static>(
    cx: &CommandCx<'_>,
    given: Option<HookFacts<'_>>,
    find: impl FnOnce(&Input<'_>) -> Result<T, SearchFailure> + Send + 'static,
) -> Result<(T, Box<Work>), Stop> {
    let (mut work, reading) = begin(cx).await?;
    let view = SearchFiles::of(cx, &work).await.map_err(checkout_refusal)?;
    if let (Some(given), Some(checkout)) = (given, view.checkout()) {
        hooks::before(cx, work.policies.of_operator(), checkout, given).await?;
    }
    let is_kept = cx.row.kind.runs() == Some(RunKind::Plan)
        && may_be_written(cx, work.policies.of_operator());
    let (input, graph) = search_input(cx, &work, view, reading).await?;
    let settings = cx.ctx.settings.discovery();
    let found = tokio::task::spawn_blocking(move || input.search(find, &settings, graph)).await;
    let found = found
        .context("the search for projects failed")
        .map_err(JobError::Fail)?;
    let SearchResult {
        what,
        said,
        behind,
        graph,
        seen,
    } = found.map_err(SearchFailure::into_stop)?;
    if is_kept {
        cx.abandoned()?;
        let written = WrittenConfig(
            said.as_ref()
                .map(|said| (said.file.clone(), said.text.clone())),
        );
        cx.ctx
            .store
            .command_config_keep(cx.row.id, &written)
            .await
            .map_err(JobError::from)?;
    }
    let config = said.map(|said| said.config);
    work.reached = work.reached.with_seen(seen);
    if let Some((tree, graph)) = graph {
        cx.ctx.settings.modules.keep(tree, &graph);
    }
    let group_permits = Semaphore::new(max_parallel_groups(
        config.as_ref().and_then(|config| config.parallel_plan),
    ));
    let policies = work.policies.with_config(config);
    Ok((
        what,
        Box::new(Work {
            group_permits,
            policies,
            behind,
            ..work
        }),
    ))
}

/// Fetches the commits and the configuration. The work has no projects yet.
async fn begin(cx: &CommandCx<'_>) -> Result<(Work, ConfigReading), Stop> {
    let source = if let Some(source) = cx.early.source(cx.pull) {
        cx.ctx.checkouts.used(&source).await;
        source
    } else {
        let fetched = cx.ctx.checkouts.fetch(cx.pull).await;
        fetched.map_err(checkout_refusal)?
    };
    let rules = cx.ctx.settings.rules(&cx.pull.at.repo);
    let has_checkout = !SearchFiles::is_of_commit(cx, &rules);
    let reading = ConfigReading::of_source(cx, &rules, &source, has_checkout).await;
    let reading = reading.map_err(config_refusal)?;
    let work = Work {
        projects: Vec::new(),
        not_known: Vec::new(),
        group_permits: Semaphore::new(NO_GROUP_LIMIT),
        source: Some(source),
        policies: Policies::new(rules, None),
        behind: None,
        others: HashMap::new(),
        findings: Findings::default(),
        checkouts: Mutex::default(),
        reached: ComputedExtents::default(),
        links: super::links::KnownLinks::default(),
        policy_inputs: super::policy_work::SharedPolicyInputs::default(),
    };
    Ok((work, reading))
}

/// Lists the files and the changes, once the hooks have run.
async fn search_input(
    cx: &CommandCx<'_>,
    work: &Work,
    view: SearchFiles,
    reading: ConfigReading,
) -> Result<(SearchInput, Graph), Stop> {
    let files = cx
        .ctx
        .checkouts
        .files(work.source(), view.commit())
        .await
        .map_err(JobError::retry)?;
    let made = match view.checkout() {
        Some(checkout) => GeneratedFiles::of(cx, work, checkout).await?,
        None => GeneratedFiles::default(),
    };
    if files.truncated || made.all.truncated || made.changed.truncated {
        return Err(Stop::Reply(too_many_files()));
    }
    let graph = Graph::of(cx, work, view.commit(), &made.all).await?;
    let Some(Changed {
        mut files_of_pull,
        gap,
    }) = changed_files(cx, work).await?
    else {
        return Err(Stop::Reply(too_many_files()));
    };
    files_of_pull.extend(made.changed.paths.iter().map(added));
    let (base, rules) = (
        cx.pull.base_branch.clone(),
        work.policies.of_operator().clone(),
    );
    Ok((
        SearchInput {
            view,
            reading,
            files,
            made: made.all,
            changed: files_of_pull,
            gap,
            base,
            rules,
        },
        graph,
    ))
}

/// Lists the changes of the pull request; `None` if there are too many. Git is asked and not the forge, which lists
/// 3,000 files at most, and lists those of another commit after a push. An application has no changes, because its
/// registration names its project.
async fn changed_files(cx: &CommandCx<'_>, work: &Work) -> Result<Option<Changed>, JobError> {
    if cx.pull.at.subject.is_application() {
        return Ok(Some(Changed {
            files_of_pull: Vec::new(),
            gap: None,
        }));
    }
    let changes = cx
        .ctx
        .checkouts
        .changed(work.source())
        .await
        .map_err(JobError::retry)?;
    let Some(BranchChanges { files, left_at }) = changes else {
        return Ok(None);
    };
    let lacking = cx
        .ctx
        .checkouts
        .lacks(work.source(), &left_at)
        .await
        .map_err(JobError::retry)?;
    let gap = |lacking: Vec<ChangedFile>| {
        (!lacking.is_empty()).then_some(MissingBaseChanges { left_at, lacking })
    };
    Ok(lacking.map(|lacking| Changed {
        files_of_pull: files,
        gap: gap(lacking),
    }))
}

/// Changes of a pull request, and of its base branch.
struct Changed {
    files_of_pull: Vec<ChangedFile>,
    gap: Option<MissingBaseChanges>,
}

/// Changes of the base branch that a pull request lacks.
struct MissingBaseChanges {
    /// Commit where it left the branch.
    left_at: CommitSha,
    /// Files that the branch has changed since then.
    lacking: Vec<ChangedFile>,
}

/// Files of the checkout that no commit has.
#[derive(Default)]
struct GeneratedFiles {
    /// Files that the search sees.
    all: TreeFiles,
    /// Files that count as changed.
    changed: TreeFiles,
}

impl GeneratedFiles {
    /// Lists files that no commit has. The search sees files of hooks even if the repository ignores them, because
    /// generated configuration is there. Files count as changed only with `--include-git-untracked-files`, and
    /// ignored ones never do.
    async fn of(cx: &CommandCx<'_>, work: &Work, checkout: &Checkout) -> Result<Self, JobError> {
        let list = |wanted: bool, ignored| async move {
            if !wanted {
                return Ok(TreeFiles::default());
            }
            cx.ctx
                .checkouts
                .untracked(work.source(), checkout, ignored)
                .await
                .map_err(JobError::retry)
        };
        let changed = list(
            cx.ctx.settings.planning.untracked_files,
            IgnoredFiles::LeftOut,
        )
        .await?;
        let has_hooks = hooks::any_before(cx, work.policies.of_operator());
        let all = if has_hooks {
            list(true, IgnoredFiles::Listed).await?
        } else {
            changed.clone()
        };
        Ok(Self { all, changed })
    }
}

/// Returns a file that a hook made as an added file, for every answer of the forge.
fn added(path: &RepoPath) -> ChangedFile {
    ChangedFile {
        path: path.clone(),
        previous: None,
        kind: ChangeKind::Added,
    }
}

/// Module graph, as far as it is wanted and known.
enum Graph {
    NotWanted,
    Known(Arc<ModuleGraph>),
    /// Not known yet. The built graph is kept under this id of the tree, unless the files may differ from the tree.
    ToBuild(Option<String>),
}

impl Graph {
    async fn of(
        cx: &CommandCx<'_>,
        work: &Work,
        commit: &CommitSha,
        made: &TreeFiles,
    ) -> Result<Self, JobError> {
        if cx.ctx.settings.planning.module_files.is_none() {
            return Ok(Self::NotWanted);
        }
        // Hooks may also have changed files that are part of the tree.
        if !made.paths.is_empty() || hooks::any_before(cx, work.policies.of_operator()) {
            return Ok(Self::ToBuild(None));
        }
        let tree = cx
            .ctx
            .checkouts
            .tree_id(work.source(), commit)
            .await
            .map_err(JobError::retry)?;
        Ok(cx
            .ctx
            .settings
            .modules
            .get(&tree)
            .map_or_else(|| Self::ToBuild(Some(tree)), Self::Known))
    }
}

/// Inputs of the search for projects.
struct SearchInput {
    view: SearchFiles,
    reading: ConfigReading,
    files: TreeFiles,
    /// Files that no commit has.
    made: TreeFiles,
    changed: Vec<ChangedFile>,
    gap: Option<MissingBaseChanges>,
    base: BranchName,
    rules: RepoRules,
}

/// Result of a search for projects.
struct SearchResult<T> {
    what: T,
    /// Configuration of the repository.
    said: Option<ReadConfig>,
    /// Projects with changes of the base branch that the pull request lacks.
    behind: Option<BaseChanges>,
    /// Graph that was not known before, and the id of its tree.
    graph: Option<(String, Arc<ModuleGraph>)>,
    /// Files that the search looked at.
    seen: CommitListing,
}

impl SearchInput {
    /// Runs the search. It reads files, so it needs a thread of its own.
    fn search<T>(
        self,
        find: impl FnOnce(&Input<'_>) -> Result<T, SearchFailure>,
        settings: &discovery::SearchSettings,
        graph: Graph,
    ) -> Result<SearchResult<T>, SearchFailure> {
        let Self {
            view,
            reading,
            files,
            made,
            changed,
            gap,
            base,
            rules,
        } = self;
        // Every file that a hook made may be a link.
        let maybe_links = files.links.iter().chain(&made.paths);
        let links: Vec<(RepoPath, String)> = maybe_links
            .filter_map(|link| Some((link.clone(), view.link_target(link)?)))
            .collect();
        let tree = FileTree::new(files.paths.into_iter().chain(made.paths)).with_links(links);
        let said = reading
            .said(view.checkout().map(|checkout| &**checkout))
            .map_err(|trouble| SearchFailure::Config(trouble.to_string()))?;
        let config = said.as_ref().map(|said| &said.config);
        let read = |path: &RepoPath| view.read(&tree, path);
        let build = |from| {
            let graph = ModuleGraph::build(&tree, from, &read);
            graph
                .map(Arc::new)
                .map_err(|error| SearchFailure::Limit(error.to_string()))
        };
        let (modules, tree_id) = match (graph, &settings.modules) {
            (Graph::NotWanted, _) | (_, None) => (None, None),
            (Graph::Known(graph), Some(_)) => (Some(graph), None),
            (Graph::ToBuild(tree), Some(from)) => (Some(build(from)?), tree),
        };
        let input = Input {
            tree: &tree,
            changed: &changed,
            config,
            base: &base,
            autodiscover: &rules.autodiscover(config),
            modules: modules.as_deref(),
            settings,
            read: &read,
        };
        let found = find(&input);
        // The rules are those for changes of the pull request: every change that would lead to a plan counts.
        let behind = gap.map(|gap| {
            let concerned = discovery::discover(&Input {
                changed: &gap.lacking,
                ..input
            });
            let projects = concerned
                .map_err(|error| SearchFailure::of_limit(&error))?
                .into_iter();
            Ok(BaseChanges {
                left_at: gap.left_at,
                projects: projects.map(|project| project.key).collect(),
            })
        });
        view.trouble().map_err(SearchFailure::Unread)?;
        let behind = behind.transpose()?;
        Ok(SearchResult {
            what: found?,
            said,
            behind,
            graph: tree_id.zip(modules),
            seen: CommitListing::new(view.commit(), tree),
        })
    }
}

/// Reason why no projects can be named.
pub(super) enum SearchFailure {
    Config(String),
    Target(String),
    Limit(String),
    /// Files could not be read; the error may be temporary.
    Unread(GitError),
}

impl SearchFailure {
    pub(super) fn of_limit(error: &discovery::LimitExceeded) -> Self {
        Self::Limit(error.to_string())
    }

    pub(super) fn of_target(error: &discovery::SelectError) -> Self {
        if let discovery::SelectError::Limit(error) = error {
            return Self::of_limit(error);
        }
        Self::Target(error.to_string())
    }

    fn into_stop(self) -> Stop {
        Stop::Reply(match self {
            Self::Config(text) => Reply::new(Body::ConfigErrors(text)),
            Self::Target(message) => Reply::refused("target", sentence(message), vec![]),
            Self::Limit(message) => Reply::refused("limit", sentence(message), vec![]),
            Self::Unread(error) => return Stop::Job(JobError::retry(error)),
        })
    }
}

/// Adds a full stop, unless the text ends like a sentence already.
pub(super) fn sentence(mut text: String) -> String {
    if !text.ends_with(['.', '?', '!']) {
        text.push('.');
    }
    text
}

fn config_refusal(trouble: UnknownConfig) -> Stop {
    match trouble {
        UnknownConfig::Wrong(text) => Stop::Reply(Reply::new(Body::ConfigErrors(text))),
        UnknownConfig::Checkout(error) => checkout_refusal(error),
    }
}

/// Ends a command whose checkout could not be made. Some reasons are temporary and lead to a retry; others
/// are for the people at the pull request.
pub(in crate::features::planning) fn checkout_refusal(error: CheckoutError) -> Stop {
    let (reason, message, hints) = match error {
        CheckoutError::Conflict { base, files } => (
            "merge_conflict",
            format!("this pull request cannot be merged into `{base}` without conflicts in {}.", list(&files)),
            vec!["Resolve the conflicts and push. The plan then runs automatically.".to_owned()],
        ),
        CheckoutError::HeadGone { head } => (
            "head_gone",
            format!("the commit `{}` is not part of the pull request any more.", head.short()),
            vec!["A push replaced it. The plan of the newest commit runs automatically.".to_owned()],
        ),
        error @ (CheckoutError::BaseGone { .. } | CheckoutError::Dir(_) | CheckoutError::Part(_)) => {
            ("checkout", format!("{error}."), vec![])
        }
        CheckoutError::Git(error @ GitError::Fsck { .. }) => (
            "fsck",
            format!("{error}."),
            vec![
                "Find the commit that added the object (`git fsck` in a clone names it), and push the branch without \
                 it."
                    .to_owned(),
            ],
        ),
        CheckoutError::Git(error @ GitError::Altered { .. }) => (
            "altered_mirror",
            format!("{error}. Nothing was run."),
            vec![
                "Run the command again. Lockkeeper replaces the mirror with a fresh one.".to_owned(),
                "Tell an administrator that a program on the server has changed the mirror. The log of the server \
                 names the file."
                    .to_owned(),
            ],
        ),
        other @ (CheckoutError::Forge(_)
        | CheckoutError::Git(_)
        | CheckoutError::Busy { .. }
        | CheckoutError::LeaseLost { .. }
        | CheckoutError::Store(_)) => return Stop::Job(JobError::retry(other)),
    };
    Stop::Reply(Reply::refused(reason, message, hints))
}

fn too_many_files() -> Reply {
    let message =
        "this repository has more files than can be listed (64 MiB of file names).".to_owned();
    Reply::refused("limit", message, vec![])
}

fn list(files: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut names: Vec<String> = files
        .iter()
        .take(SHOWN)
        .map(|file| format!("`{file}`"))
        .collect();
    if files.len() > SHOWN {
        names.push(format!("{} more", files.len() - SHOWN));
    }
    names.join(", ")
}
