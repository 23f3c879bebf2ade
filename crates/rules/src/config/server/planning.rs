//! Settings for automatic plans, and for the selection of projects.

use super::problems::StartupProblem;
use super::reader::{ProblemRecorded, ReadResult, SettingReader};
use super::section::{section, unless_set};
use crate::config::repo::{AutodiscoverMode, Patterns};
use crate::model::MergeMethod;

section! {
    /// Settings for automatic plans, for the selection of projects, and for merges after applies.
    pub struct PlanningConfig in Planning {
        /// Plan only when a comment requests it.
        pub autoplan: bool = switch("disable-autoplan") => unless_set,

        /// Refuse a plan or an apply if a hook before it fails.
        pub fail_on_pre_hook: bool = switch("fail-on-pre-workflow-hook-error"),

        /// Check plans against the policy sets of --repo-config, and refuse applies of plans that did not pass
        /// (docs/policies.md). `policy_check` of its entries wins.
        pub policy_checks: bool = switch("enable-policy-checks"),

        /// Label of pull requests that are planned only when a comment requests it.
        pub no_autoplan_label: Option<String> = text("disable-autoplan-label", "LABEL"),

        /// Merge a pull request after an apply if all its projects are applied or have no changes
        /// (docs/configuration.md). `automerge` in the file of a repository wins.
        pub automerge: bool = switch("automerge"),

        /// Merge method of --automerge. `apply --auto-merge-method` wins.
        pub merge_method: Option<MergeMethod> =
            choice("automerge-method", "METHOD", &["merge", "rebase", "squash"])
                .or_derived("the first of these that the repository allows"),

        /// Label of pull requests that Lockkeeper does not merge.
        pub no_automerge_label: Option<String> = text("disable-automerge-label", "LABEL"),

        /// Files whose changes make a folder a project to plan (patterns as in .dockerignore).
        pub autoplan_files: Patterns =
            list("autoplan-file-list", "LIST").or(AUTOPLAN_FILES) => read_patterns,

        /// Find projects that the repository's configuration does not list; auto: only if it lists none.
        pub autodiscover: AutodiscoverMode =
            choice("autodiscover-mode", "MODE", &["auto", "enabled", "disabled"]).or("auto"),

        /// Patterns of the files whose directories are read for the modules they use. `None`: a change of a module
        /// plans no project that uses it.
        pub module_files: Option<Patterns> = read_module_files from {
            /// Plan the projects that use a changed module (a directory that others name as a local `source`).
            switch("autoplan-modules"),

            /// Files whose directories are read to find the modules that they use; enables --autoplan-modules.
            list("autoplan-modules-from-projects", "LIST").or_derived("--autoplan-file-list"),
        },

        /// Limit `plan -d` and `plan -p` to projects that the pull request changes; refuse them otherwise.
        pub restrict_file_list: bool = switch("restrict-file-list"),

        /// Maximum number of projects of one command; a command with more projects is refused.
        pub max_projects: usize = number("max-projects", "NUMBER", 1, 10_000).or("1000"),

        /// Treat files that hooks create in the checkout as changed, unless the repository ignores them.
        pub untracked_files: bool = switch("include-git-untracked-files"),
    }
}

/// Files of Terraform, OpenTofu and Terragrunt: the default of `--autoplan-file-list` (reference 10.1).
pub const AUTOPLAN_FILES: &str = "**/*.tf,**/*.tf.json,**/*.tfvars,**/*.tfvars.json,**/*.tofu,**/*.tofu.json,\
                              **/terragrunt.hcl,**/.terraform.lock.hcl";

/// Reads the patterns of files that use modules. Naming patterns switches the feature on, as in Atlantis.
fn read_module_files(reader: &mut SettingReader<'_>) -> ReadResult<Option<Patterns>> {
    let switch = reader.switch("autoplan-modules");
    let named = read_patterns(reader, "autoplan-modules-from-projects")?;
    let is_on = switch?;
    if named.texts().next().is_some() {
        Ok(Some(named))
    } else if is_on {
        read_patterns(reader, "autoplan-file-list").map(Some)
    } else {
        Ok(None)
    }
}

/// Reads patterns of files. Reports every invalid pattern.
fn read_patterns(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Patterns> {
    const FIX: &str = "write patterns as in .dockerignore, such as `**/*.tf`, separated by commas";
    let patterns = reader.list(flag);
    for pattern in &patterns {
        if let Err(reason) = Patterns::new([pattern.as_str()]) {
            let what = format!("`{pattern}` is not a valid pattern: {reason}");
            reader.record(StartupProblem::with(flag, what, FIX));
        }
    }
    // Every invalid pattern has been reported.
    Patterns::new(patterns.iter().map(String::as_str)).map_err(|_| ProblemRecorded)
}
