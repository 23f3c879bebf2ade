//! Settings for the repositories and pulls to serve, and for automatic plans.

use super::allowlist::RepoAllowlist;
use super::choice::choice;
use super::reader::{ReadResult, SettingReader};
use crate::config::MirrorFilter;
use crate::config::repo::Patterns;
use crate::model::MergeMethod;

choice! {
    /// Commit that is planned.
    pub enum StrategySetting {
        /// The head of the pull.
        Branch = "branch",
        /// The merge of the head into the base branch.
        Merge = "merge",
    }
}

choice! {
    /// Search for projects that the repository's configuration does not list (reference 3.5).
    pub enum ServerAutodiscover {
        /// Searches only if the configuration lists no project.
        Auto = "auto",
        /// Searches in every repository.
        Enabled = "enabled",
        /// Never searches for projects.
        Disabled = "disabled",
    }
}

/// Repositories and pulls to serve, and their checkouts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub struct ServedReposConfig {
    /// Rules that select the repositories.
    pub allowlist: RepoAllowlist,
    /// True if pulls from forks are served.
    pub allow_forks: bool,
    /// True if draft pulls are planned automatically.
    pub allow_drafts: bool,
    /// Commit that is planned.
    pub checkout: StrategySetting,
    /// Content that new mirrors leave at the forge until it is needed. `None`: mirrors fetch everything.
    pub mirror_filter: Option<MirrorFilter>,
    /// True if checkouts contain only the directories that their projects need.
    pub sparse: bool,
    /// True if submodules are checked out.
    pub submodules: bool,
    /// True if the content of Git LFS files is checked out.
    pub lfs: bool,
    /// True if `init` may read private modules of the forge.
    pub module_access: bool,
}

impl ServedReposConfig {
    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let allowlist = read_allowlist(reader);
        let require_claims = reader.switch("require-claims");
        let allow_forks = reader.switch("allow-fork-prs");
        let allow_drafts = reader.switch("allow-draft-prs");
        let checkout = reader.choice("checkout-strategy");
        let mirror_filter = reader.parsed(
            "mirror-filter",
            str::parse,
            "write `blob:none` or `blob:limit=1m`, or remove the setting for complete mirrors",
        );
        let sparse = reader.switch("sparse-checkout");
        let submodules = reader.switch("checkout-submodules");
        let lfs = reader.switch("checkout-lfs");
        let module_access = reader.switch("write-git-creds");
        Ok(Self {
            allowlist: allowlist?.demanding_claims(require_claims?),
            allow_forks: allow_forks?,
            allow_drafts: allow_drafts?,
            checkout: checkout?.expect("the strategy has a default"),
            mirror_filter: mirror_filter?,
            sparse: sparse?,
            submodules: submodules?,
            lfs: lfs?,
            module_access: module_access?,
        })
    }
}

const ALLOWLIST_EXAMPLE: &str = "name the repositories to serve, such as `github.com/acme/*`";

fn read_allowlist(reader: &mut SettingReader<'_>) -> ReadResult<RepoAllowlist> {
    let entries = reader.list("repo-allowlist");
    if entries.is_empty() {
        return reader.refuse("repo-allowlist", "missing", ALLOWLIST_EXAMPLE);
    }
    match RepoAllowlist::new(&entries) {
        Ok(allowlist) => Ok(allowlist),
        Err(reason) => reader.refuse("repo-allowlist", reason.to_string(), ALLOWLIST_EXAMPLE),
    }
}

/// Settings for automatic plans, and for the selection of projects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub struct PlanningConfig {
    /// True if events plan automatically.
    pub autoplan: bool,
    /// True if a command fails when a hook before it fails.
    pub fail_on_pre_hook: bool,
    /// Patterns as in `.dockerignore`, in order. The folder of a matching file is a project to plan.
    pub autoplan_files: Vec<String>,
    /// Search for projects that no configuration lists.
    pub autodiscover: ServerAutodiscover,
    /// Patterns of the files whose directories are read for the modules they use. `None`: a change of a module plans
    /// no project that uses it.
    pub module_files: Option<Vec<String>>,
    /// True if commands may name only projects and directories that the pull changes.
    pub restrict_file_list: bool,
    /// Maximum number of projects of one command.
    pub max_projects: usize,
    /// True if files that no commit has count as changed.
    pub untracked_files: bool,
    /// Labels that prevent actions on a pull.
    pub labels: Labels,
    /// Settings for merges after applies.
    pub automerge: AutomergeConfig,
}

/// Labels that prevent actions on a pull. `None`: no label prevents the action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Label that prevents automatic plans.
    pub no_autoplan: Option<String>,
    /// Label that prevents `unlock` by comment.
    pub no_unlock: Option<String>,
    /// Label that prevents merges by Lockkeeper.
    pub no_automerge: Option<String>,
}

/// Settings for merges of pulls after their applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutomergeConfig {
    /// True if pulls are merged unless their repository decides otherwise.
    pub enabled: bool,
    /// Method of the merge. `None` stands for the first method that the repository allows.
    pub method: Option<MergeMethod>,
}

impl AutomergeConfig {
    fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let (enabled, method) = (
            reader.switch("automerge"),
            reader.choice("automerge-method"),
        );
        Ok(Self {
            enabled: enabled?,
            method: method?,
        })
    }
}

impl PlanningConfig {
    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let disabled = reader.switch("disable-autoplan");
        let fail_on_pre_hook = reader.switch("fail-on-pre-workflow-hook-error");
        let files = read_patterns(reader, "autoplan-file-list");
        let autodiscover = reader.choice("autodiscover-mode");
        let labels = Labels {
            no_autoplan: reader.text("disable-autoplan-label"),
            no_unlock: reader.text("disable-unlock-label"),
            no_automerge: reader.text("disable-automerge-label"),
        };
        let automerge = AutomergeConfig::read(reader);
        let modules = reader.switch("autoplan-modules");
        let module_files = read_patterns(reader, "autoplan-modules-from-projects");
        let restrict_file_list = reader.switch("restrict-file-list");
        let max_projects = reader.number::<usize>("max-projects");
        let untracked_files = reader.switch("include-git-untracked-files");
        let files = files?;
        Ok(Self {
            autoplan: !disabled?,
            fail_on_pre_hook: fail_on_pre_hook?,
            module_files: module_files_of(modules?, module_files?, &files),
            autoplan_files: files,
            autodiscover: autodiscover?.expect("the mode has a default"),
            restrict_file_list: restrict_file_list?,
            max_projects: max_projects?.expect("the number has a default"),
            untracked_files: untracked_files?,
            labels,
            automerge: automerge?,
        })
    }
}

/// Returns the patterns of files that use modules. Naming patterns switches the feature on, as in Atlantis.
fn module_files_of(
    switch: bool,
    named: Vec<String>,
    autoplan_files: &[String],
) -> Option<Vec<String>> {
    if named.is_empty() {
        switch.then(|| autoplan_files.to_vec())
    } else {
        Some(named)
    }
}

/// Reads patterns of files. Reports every invalid pattern now, before a search for projects needs it.
fn read_patterns(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Vec<String>> {
    const FIX: &str = "write patterns as in .dockerignore, such as `**/*.tf`, separated by commas";
    let patterns = reader.list(flag);
    let mut result = Ok(());
    for pattern in &patterns {
        if let Err(reason) = Patterns::new([pattern.as_str()]) {
            result = reader.refuse(
                flag,
                format!("`{pattern}` is not a valid pattern: {reason}"),
                FIX,
            );
        }
    }
    result.map(|()| patterns)
}
