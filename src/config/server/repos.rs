//! Which repositories and pulls are served, and when a plan is made by itself.

use super::allowlist::RepoAllowlist;
use super::choice::choice;
use super::reader::{Read, Reader};
use crate::config::MirrorFilter;
use crate::config::repo::Patterns;
use crate::model::MergeMethod;

choice! {
    /// What is planned.
    pub enum CheckoutStrategy {
        /// The head of the pull.
        Branch = "branch",
        /// The merge of the head into the base branch.
        Merge = "merge",
    }
}

choice! {
    /// Whether to look for projects that the repository's configuration does not list (reference 3.5).
    pub enum AutodiscoverMode {
        /// Only if it lists none.
        Auto = "auto",
        /// Always.
        Enabled = "enabled",
        /// Never.
        Disabled = "disabled",
    }
}

/// Which repositories and pulls are served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub struct RepoConfig {
    /// The repositories.
    pub allowlist: RepoAllowlist,
    /// Whether pulls from forks are served.
    pub allow_forks: bool,
    /// Whether draft pulls are planned by themselves.
    pub allow_drafts: bool,
    /// What is planned.
    pub checkout: CheckoutStrategy,
    /// What new mirrors leave at the forge until it is needed; `None`: nothing.
    pub mirror_filter: Option<MirrorFilter>,
    /// Whether checkouts hold only what their projects reach.
    pub sparse: bool,
    /// Whether submodules are checked out.
    pub submodules: bool,
    /// Whether the content of files kept with Git LFS is.
    pub lfs: bool,
    /// Whether `init` may read private modules of the forge.
    pub module_access: bool,
}

impl RepoConfig {
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let allowlist = read_allowlist(reader);
        let require_claims = reader.switch("require-claims");
        let allow_forks = reader.switch("allow-fork-prs");
        let allow_drafts = reader.switch("allow-draft-prs");
        let checkout = reader.choice("checkout-strategy");
        let mirror_filter = reader.parsed(
            "mirror-filter",
            str::parse,
            "write `blob:none`, `blob:limit=1m`, or nothing for whole mirrors",
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

fn read_allowlist(reader: &mut Reader<'_>) -> Read<RepoAllowlist> {
    let entries = reader.list("repo-allowlist");
    if entries.is_empty() {
        return reader.refuse("repo-allowlist", "missing", ALLOWLIST_EXAMPLE);
    }
    match RepoAllowlist::new(&entries) {
        Ok(allowlist) => Ok(allowlist),
        Err(reason) => reader.refuse("repo-allowlist", reason.to_string(), ALLOWLIST_EXAMPLE),
    }
}

/// When a plan is made by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub struct PlanningConfig {
    /// Whether events plan at all.
    pub autoplan: bool,
    /// A command fails when a hook before it does.
    pub fail_on_pre_hook: bool,
    /// Patterns as in `.dockerignore`, in order; files that match make their folder a project to plan.
    pub autoplan_files: Vec<String>,
    /// Whether to look for projects.
    pub autodiscover: AutodiscoverMode,
    /// Patterns of the files by which a directory is one whose modules count; `None`: modules concern nobody.
    pub module_files: Option<Vec<String>>,
    /// Whether only what changed may be planned by name or directory.
    pub restrict_file_list: bool,
    /// Projects that one command may concern.
    pub max_projects: usize,
    /// Whether files that no commit has count as changed.
    pub untracked_files: bool,
    /// Labels that keep something from being done.
    pub labels: Labels,
    /// Merging after applies.
    pub automerge: AutomergeConfig,
}

/// Labels of pulls that keep something from being done; `None`: none does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Plans by themselves.
    pub no_autoplan: Option<String>,
    /// `unlock` by comment.
    pub no_unlock: Option<String>,
    /// Merging by Lockkeeper.
    pub no_automerge: Option<String>,
}

/// Merging of pulls after their applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutomergeConfig {
    /// Whether pulls are merged, where their repository does not say.
    pub enabled: bool,
    /// Method; `None`: the first that the repository allows.
    pub method: Option<MergeMethod>,
}

impl AutomergeConfig {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
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
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
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

/// Naming the files switches it on, as in Atlantis.
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

/// What the search for projects could not go by is told now, all of it.
fn read_patterns(reader: &mut Reader<'_>, flag: &'static str) -> Read<Vec<String>> {
    const FIX: &str =
        "write patterns as in .dockerignore, such as `**/*.tf`, with commas between them";
    let patterns = reader.list(flag);
    let mut result = Ok(());
    for pattern in &patterns {
        if let Err(reason) = Patterns::new([pattern.as_str()]) {
            result = reader.refuse(flag, format!("`{pattern}` is not a pattern: {reason}"), FIX);
        }
    }
    result.map(|()| patterns)
}
