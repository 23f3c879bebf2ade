//! Settings for the repositories and pulls to serve.

use super::allowlist::RepoAllowlist;
use super::choice::choice;
use super::reader::{ReadResult, SettingReader};
use super::section::section;
use crate::config::MirrorFilter;

choice! {
    /// Commit that is planned.
    pub enum StrategySetting {
        /// The head of the pull.
        Branch = "branch",
        /// The merge of the head into the base branch.
        Merge = "merge",
    }
}

section! {
    /// Repositories and pulls to serve, and their checkouts.
    pub struct ServedReposConfig in Repositories {
        /// Rules that select the repositories.
        pub allowlist: RepoAllowlist = read_allowlist from {
            /// Repositories to serve, as host/owner/name; `*` matches anything, `!` in front excludes. Required.
            list("repo-allowlist", "LIST"),

            /// Serve only repositories that an owner has claimed (docs/ownership.md); refuse deliveries for others.
            switch("require-claims"),
        },

        /// Also serve pull requests from forks. Anybody can then run code on the server.
        pub allow_forks: bool = switch("allow-fork-prs"),

        /// Also plan draft pull requests automatically.
        pub allow_drafts: bool = switch("allow-draft-prs"),

        /// Commit to plan: the head of the pull request (branch), or its merge into the base branch (merge). The
        /// head lacks newer commits of the base branch, and its plan would undo their changes.
        pub checkout: StrategySetting =
            choice("checkout-strategy", "STRATEGY", StrategySetting::WORDS).or_with_compat("merge", "branch"),

        /// Files that new mirrors do not fetch until they are needed: all files with `blob:none`, files of 1 MiB or
        /// more with `blob:limit=1m`. Not set: mirrors are complete.
        pub mirror_filter: Option<MirrorFilter> = text("mirror-filter", "FILTER") => read_mirror_filter,

        /// Check out only the directories of the projects and the code that they use, such as modules. Repositories
        /// with hooks are checked out completely (docs/repositories.md).
        pub sparse: bool = switch("sparse-checkout"),

        /// Check out submodules and their submodules, if they are on the same forge and --repo-allowlist allows
        /// them.
        pub submodules: bool = switch("checkout-submodules"),

        /// Check out the content of files kept with Git LFS. Needs the program git-lfs.
        pub lfs: bool = switch("checkout-lfs"),

        /// Let the `init` of runs read private modules of the forge over https
        /// (docs/credentials.md#private-modules). No file is written. Everyone who can request a plan can read what
        /// these credentials can read.
        pub module_access: bool = switch("write-git-creds"),
    }
}

const ALLOWLIST_EXAMPLE: &str = "name the repositories to serve, such as `github.com/acme/*`";

fn read_allowlist(reader: &mut SettingReader<'_>) -> ReadResult<RepoAllowlist> {
    let entries = reader.list("repo-allowlist");
    let allowlist = if entries.is_empty() {
        reader.refuse("repo-allowlist", "missing", ALLOWLIST_EXAMPLE)
    } else {
        RepoAllowlist::new(&entries).or_else(|reason| {
            reader.refuse("repo-allowlist", reason.to_string(), ALLOWLIST_EXAMPLE)
        })
    };
    let require_claims = reader.switch("require-claims");
    Ok(allowlist?.demanding_claims(require_claims?))
}

fn read_mirror_filter(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<Option<MirrorFilter>> {
    let fix = "write `blob:none` or `blob:limit=1m`, or remove the setting for complete mirrors";
    reader.parsed(flag, str::parse, fix)
}
