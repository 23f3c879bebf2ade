//! Finds and reads the configuration file of the repository.
//!
//! By default it is read from the checkout, so a pull request brings its own. The administrator can choose the base
//! branch or any other branch instead (`--repo-config-source`, `repo_config_source`). Then a pull request cannot
//! change the rules for itself.

use std::collections::HashMap;

use super::projects::read_file;
use super::{CommandCx, WrittenConfig, hooks};
use crate::config::Hook;
use crate::config::repo::{self, CANDIDATES, RepoConfig, RepoPermissions};
use crate::config::repos::{ConfigSource, RepoRules};
use crate::context::Ctx;
use crate::errors::describe_error;
use crate::git::{Checkout, CheckoutStrategy, GitError};
use crate::model::{BranchName, CommandId, CommandKind, CommitSha, PlanRecord, RepoPath, RunId};
use crate::workflow::{CheckoutError, Source};

/// Source of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConfigOrigin {
    /// The checkout, including the changes of hooks.
    Checkout,
    /// A commit of the repository.
    Commit {
        commit: CommitSha,
        /// Description of the commit, if it is not from the pull request: "the base branch `main`".
        name: Option<String>,
    },
}

/// Reason why the configuration of the repository is unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnknownConfig {
    /// Error for the people at the pull request; preformatted.
    #[error("{0}")]
    Wrong(String),
    /// A commit with the configuration is not available.
    #[error(transparent)]
    Checkout(#[from] CheckoutError),
}

/// Source of the file, its path, and the permitted settings.
pub(super) struct ConfigReading {
    /// Path from `repo_config_file`; `None` for one of the usual names.
    path: Option<RepoPath>,
    permissions: RepoPermissions,
    base: BranchName,
    origin: ConfigOrigin,
    /// Configuration of the commit, if it is read from one.
    said: Option<ReadConfig>,
}

/// Configuration of the repository, and the text of its file.
pub(super) struct ReadConfig {
    pub file: RepoPath,
    pub text: String,
    pub config: RepoConfig,
}

impl ConfigReading {
    /// Prepares a plan, whose commits have been fetched. A configuration from another commit than that of the
    /// checkout is read at once. Without a checkout, every configuration is read at once. A command without hooks of
    /// its own gets the file that the hooks of the plan have written.
    pub async fn of_source(
        cx: &CommandCx<'_>,
        rules: &RepoRules,
        source: &Source,
        has_checkout: bool,
    ) -> Result<Self, UnknownConfig> {
        let origin = origin(cx, &wanted(cx.ctx, rules), source, has_checkout).await?;
        let reading = Self::new(rules, &source.base_branch, origin);
        if let Some(written) = written_for_plans(cx, rules, source).await? {
            let origin = ConfigOrigin::Commit {
                commit: source.head.clone(),
                name: None,
            };
            let said = written
                .0
                .map(|(file, text)| reading.parse(&file, text))
                .transpose()?;
            return Ok(Self {
                origin,
                said,
                ..reading
            });
        }
        let said = reading.read_commit(cx).await?;
        Ok(Self { said, ..reading })
    }

    fn new(rules: &RepoRules, base: &BranchName, origin: ConfigOrigin) -> Self {
        let path = rules.config_file().map(|path| path.value.clone());
        Self {
            path,
            permissions: rules.permissions().clone(),
            base: base.clone(),
            origin,
            said: None,
        }
    }

    /// Returns the configuration of the repository; `None` if it has no file. Reads the checkout if that is the
    /// source.
    pub fn said(self, checkout: Option<&Checkout>) -> Result<Option<ReadConfig>, UnknownConfig> {
        match (&self.origin, checkout) {
            (ConfigOrigin::Checkout, Some(checkout)) => self.read_checkout(checkout),
            (ConfigOrigin::Checkout | ConfigOrigin::Commit { .. }, _) => Ok(self.said),
        }
    }

    /// Reads the configuration from its commit; `None` if the source is the checkout.
    async fn read_commit(&self, cx: &CommandCx<'_>) -> Result<Option<ReadConfig>, UnknownConfig> {
        let ConfigOrigin::Commit { commit, .. } = &self.origin else {
            return Ok(None);
        };
        let (repo, mut found) = (&cx.pull.at.repo, Vec::new());
        let there = cx.ctx.checkouts.tracked(repo, commit, &self.paths()).await;
        for path in there.map_err(CheckoutError::from)? {
            let most = RepoConfig::MAX_BYTES as u64;
            let text = cx.ctx.checkouts.read(repo, commit, &path, most).await;
            match text {
                Ok(Some(text)) => found.push((path, text)),
                Ok(None) => {}
                Err(error @ (GitError::TooLarge { .. } | GitError::Other { .. })) => {
                    return Err(self.wrong(format!("`{path}` cannot be read: {error}")));
                }
                // Any other error may be temporary.
                Err(error) => return Err(CheckoutError::from(error).into()),
            }
        }
        let Some(chosen) = self.choose(found.iter().map(|(path, _)| path))? else {
            return Ok(None);
        };
        let text = found
            .into_iter()
            .find(|(path, _)| *path == chosen)
            .map(|(_, text)| text)
            .unwrap_or_default();
        self.parse(&chosen, text).map(Some)
    }

    fn read_checkout(&self, checkout: &Checkout) -> Result<Option<ReadConfig>, UnknownConfig> {
        let is_there = |path: &RepoPath| {
            let meta = checkout.path.join(path.as_str()).symlink_metadata();
            meta.is_ok_and(|meta| !meta.is_dir())
        };
        let found: Vec<RepoPath> = self.paths().into_iter().filter(is_there).collect();
        let Some(chosen) = self.choose(found.iter())? else {
            return Ok(None);
        };
        let text = read_file(checkout, &chosen, RepoConfig::MAX_BYTES as u64 + 1);
        let text =
            text.map_err(|error| self.wrong(format!("`{chosen}` cannot be read: {error}")))?;
        self.parse(&chosen, text).map(Some)
    }

    fn paths(&self) -> Vec<RepoPath> {
        let usual = || {
            CANDIDATES
                .map(|name| RepoPath::new(name).expect("a plain name is a path"))
                .to_vec()
        };
        self.path.clone().map_or_else(usual, |path| vec![path])
    }

    fn choose<'a>(
        &self,
        found: impl Iterator<Item = &'a RepoPath>,
    ) -> Result<Option<RepoPath>, UnknownConfig> {
        match &self.path {
            Some(_) => Ok(found.into_iter().next().cloned()),
            None => repo::find(found).map_err(|error| self.wrong(error.to_string())),
        }
    }

    fn parse(&self, file: &RepoPath, text: String) -> Result<ReadConfig, UnknownConfig> {
        let config = RepoConfig::parse(file.as_str(), &text, &self.permissions);
        let config = config.map_err(|errors| self.wrong(errors.to_string()))?;
        let config = config
            .for_base(&self.base)
            .map_err(|error| self.wrong(error.to_string()))?;
        Ok(ReadConfig {
            file: file.clone(),
            text,
            config,
        })
    }

    /// Builds an error that names the source of the file. Otherwise people would look for the mistake in the pull
    /// request, where it is not.
    fn wrong(&self, what: String) -> UnknownConfig {
        UnknownConfig::Wrong(match &self.origin {
            ConfigOrigin::Checkout | ConfigOrigin::Commit { name: None, .. } => what,
            ConfigOrigin::Commit {
                commit,
                name: Some(name),
            } => {
                let note = "not from this pull request, so correct it there";
                format!(
                    "{what}\n\nThe file is read from {name} at {}, {note}.",
                    commit.short()
                )
            }
        })
    }
}

/// Returns the file that the hooks of the plan have written. A command without hooks of its own uses that file, even
/// if its checkout is on another replica or does not exist any more.
async fn written_for_plans(
    cx: &CommandCx<'_>,
    rules: &RepoRules,
    source: &Source,
) -> Result<Option<WrittenConfig>, UnknownConfig> {
    let has_own = cx.row.kind.runs().is_some() && hooks::any_before(cx, rules);
    if has_own || !may_be_written(cx, rules) {
        return Ok(None);
    }
    let written = cx
        .ctx
        .store
        .command_config_of_head(&source.pull, &source.head)
        .await;
    written.map_err(|error| CheckoutError::from(error).into())
}

/// Returns true if hooks of a plan may have written the file, so that it must be stored with the command. A plan
/// without hooks of its own uses the file that the hooks of an earlier plan have left.
pub(super) fn may_be_written(cx: &CommandCx<'_>, rules: &RepoRules) -> bool {
    let for_plans = |hook: &Hook| {
        [CommandKind::Plan, CommandKind::Autoplan]
            .into_iter()
            .any(|kind| hook.is_for(kind))
    };
    is_of_checkout(cx.ctx, rules) && rules.pre_hooks(&cx.pull.base_branch).any(for_plans)
}

/// Finds the commands whose hooks may have written the configuration, by their runs that made plans.
pub(super) async fn written(
    cx: &CommandCx<'_>,
    rules: &RepoRules,
) -> Result<HashMap<RunId, CommandId>, sqlx::Error> {
    if is_of_checkout(cx.ctx, rules) {
        cx.ctx.store.plan_configs(&cx.pull.at).await
    } else {
        Ok(HashMap::new())
    }
}

/// Reads the configuration that was in effect when a plan was made, for its apply. A named branch is read as it is
/// now. `written` is the command that made the plan, if its hooks may have written the file.
pub(super) async fn of_plan(
    cx: &CommandCx<'_>,
    rules: &RepoRules,
    plan: &PlanRecord,
    written: Option<CommandId>,
) -> anyhow::Result<Option<RepoConfig>> {
    if let Some(command) = written
        && let Some(written) = cx.ctx.store.command_config(command).await?
    {
        let reading = ConfigReading::new(rules, &plan.base_branch, ConfigOrigin::Checkout);
        let said = written
            .0
            .map(|(file, text)| reading.parse(&file, text))
            .transpose()?;
        return Ok(said.map(|said| said.config));
    }
    let source = cx.ctx.checkouts.fetch_plan(plan).await?;
    let origin = origin(cx, &wanted(cx.ctx, rules), &source, false).await?;
    let reading = ConfigReading::new(rules, &plan.base_branch, origin);
    Ok(reading.read_commit(cx).await?.map(|said| said.config))
}

/// Returns why nothing may be applied while the configuration cannot be read. `None`: the administrator's own rules
/// are enough.
pub(super) fn refusal(ctx: &Ctx, rules: &RepoRules, error: &anyhow::Error) -> Option<String> {
    let ConfigSource::Branch(branch) = wanted(ctx, rules) else {
        return None;
    };
    let why = error
        .downcast_ref::<UnknownConfig>()
        .map_or_else(|| describe_error(&**error), ToString::to_string);
    let first = why
        .lines()
        .next()
        .unwrap_or_default()
        .trim_end_matches('.')
        .to_owned();
    Some(format!(
        "the configuration cannot be read from the branch `{branch}` (`repo_config_source`): {first}."
    ))
}

/// Chooses the source: the entry of the repository decides, then the flag, then the checkout strategy.
fn wanted(ctx: &Ctx, rules: &RepoRules) -> ConfigSource {
    let of_entry = rules.config_source().map(|source| source.value.clone());
    of_entry
        .or_else(|| ctx.settings.repo_rules.config_source.clone())
        .unwrap_or(match ctx.checkouts.strategy() {
            CheckoutStrategy::Branch => ConfigSource::PullHead,
            CheckoutStrategy::Merge => ConfigSource::MergeResult,
        })
}

/// Returns true if the configuration depends on the commit of the base branch.
pub(super) fn goes_by_base(ctx: &Ctx, rules: &RepoRules) -> bool {
    matches!(
        wanted(ctx, rules),
        ConfigSource::Base | ConfigSource::MergeResult
    )
}

/// Returns true if hooks can change the configuration.
fn is_of_checkout(ctx: &Ctx, rules: &RepoRules) -> bool {
    is_checked_out(&wanted(ctx, rules), ctx.checkouts.strategy())
}

fn is_checked_out(wanted: &ConfigSource, strategy: CheckoutStrategy) -> bool {
    match wanted {
        ConfigSource::PullHead => strategy == CheckoutStrategy::Branch,
        ConfigSource::MergeResult => strategy == CheckoutStrategy::Merge,
        ConfigSource::Base | ConfigSource::Branch(_) => false,
    }
}

async fn origin(
    cx: &CommandCx<'_>,
    wanted: &ConfigSource,
    source: &Source,
    has_checkout: bool,
) -> Result<ConfigOrigin, UnknownConfig> {
    if has_checkout && is_checked_out(wanted, cx.ctx.checkouts.strategy()) {
        return Ok(ConfigOrigin::Checkout);
    }
    Ok(match wanted {
        ConfigSource::PullHead => ConfigOrigin::Commit {
            commit: source.head.clone(),
            name: None,
        },
        ConfigSource::MergeResult => ConfigOrigin::Commit {
            commit: cx.ctx.checkouts.merged(source).await?,
            name: None,
        },
        ConfigSource::Base => ConfigOrigin::Commit {
            commit: source.base.clone(),
            name: Some(format!("the base branch `{}`", source.base_branch)),
        },
        ConfigSource::Branch(branch) => {
            let tip = cx.ctx.checkouts.fetch_branch(source, branch).await?;
            let commit = tip.ok_or_else(|| {
                UnknownConfig::Wrong(format!(
                    "The configuration is read from the branch `{branch}` (`repo_config_source`), but there is no \
                     such branch. Create the branch, or ask an administrator to name another one."
                ))
            })?;
            ConfigOrigin::Commit {
                commit,
                name: Some(format!("the branch `{branch}`")),
            }
        }
    })
}
