//! Lists every setting of the server. The command line, the variables, the checks and the tables of the documentation
//! are generated from these rows. So none of them can miss a setting.

use super::setting::{Setting, SettingGroup, ValueKind};

use SettingGroup::{
    Comments, Github, Locks, Operation, Permissions, Planning, Repositories, Storage, Terraform,
    Web, Webhooks,
};
use ValueKind::{Choice, Duration, List, Number, Path, Secret, Secrets, Size, Text};

/// All settings, in the order in which they are shown.
pub static SETTINGS: &[Setting] = &[
    Setting::new(
        Repositories,
        "repo-allowlist",
        "LIST",
        List,
        "Repositories to serve, as host/owner/name; `*` matches anything, `!` in front excludes. Required.",
    ),
    Setting::switch(
        Repositories,
        "require-claims",
        "Serve only repositories that an owner has claimed (docs/ownership.md); refuse deliveries for others.",
    ),
    Setting::switch(
        Repositories,
        "allow-fork-prs",
        "Also serve pull requests from forks. Anybody can then run code on the server.",
    ),
    Setting::switch(Repositories, "allow-draft-prs", "Also plan draft pull requests automatically."),
    Setting::new(
        Repositories,
        "checkout-strategy",
        "STRATEGY",
        Choice(&["branch", "merge"]),
        "Commit to plan: the head of the pull request (branch), or its merge into the base branch (merge). The \
         head lacks newer commits of the base branch, and its plan would undo their changes.",
    )
    .or_with_compat("merge", "branch"),
    Setting::new(
        Repositories,
        "mirror-filter",
        "FILTER",
        Text,
        "Files that new mirrors do not fetch until they are needed: all files with `blob:none`, files of 1 MiB \
         or more with `blob:limit=1m`. Not set: mirrors are complete.",
    ),
    Setting::switch(
        Repositories,
        "sparse-checkout",
        "Check out only the directories of the projects and the code that they use, such as modules. \
         Repositories with hooks are checked out completely (docs/repositories.md).",
    ),
    Setting::switch(
        Repositories,
        "checkout-submodules",
        "Check out submodules and their submodules, if they are on the same forge and --repo-allowlist allows \
         them.",
    ),
    Setting::switch(
        Repositories,
        "checkout-lfs",
        "Check out the content of files kept with Git LFS. Needs the program git-lfs.",
    ),
    Setting::switch(
        Repositories,
        "write-git-creds",
        "Let the `init` of runs read private modules of the forge over https \
         (docs/credentials.md#private-modules). No file is written. Everyone who can request a plan can read \
         what these credentials can read.",
    ),
    Setting::new(
        Repositories,
        "repo-config-source",
        "SOURCE",
        Text,
        "Source of the repository's file: pull_head, merge_result, base (the base branch) or branch:NAME. With \
         `base` or a branch, a pull request cannot change its own rules. `repo_config_source` of --repo-config \
         wins.",
    )
    .or_derived("the commit of --checkout-strategy"),
    Setting::new(
        Repositories,
        "repo-config",
        "FILE",
        Path,
        "File with rules for repositories, usually called repos.yaml: how locks are taken, which settings a \
         repository can change, and who may do what.",
    ),
    Setting::new(Repositories, "repo-config-json", "JSON", Text, "Content of --repo-config as JSON."),
    Setting::new(Github, "gh-user", "NAME", Text, "Account to act as, together with --gh-token or --gh-token-file."),
    Setting::new(Github, "gh-token", "TOKEN", Secret, "Personal access token of that account."),
    Setting::new(Github, "gh-token-file", "FILE", Path, "File with the token; read again for each use."),
    Setting::new(
        Github,
        "gh-app-id",
        "NUMBER",
        Number(0, u64::MAX),
        "GitHub App to act as, together with --gh-app-key or --gh-app-key-file.",
    ),
    Setting::new(Github, "gh-app-key", "PEM", Secret, "Private key of the App."),
    Setting::new(Github, "gh-app-key-file", "FILE", Path, "File with the private key of the App."),
    Setting::new(
        Github,
        "gh-app-installation-id",
        "NUMBER",
        Number(0, u64::MAX),
        "Installation of the App for events that do not name one.",
    )
    .or_derived("the only installation"),
    Setting::new(Github, "gh-app-slug", "NAME", Text, "Name of the App in URLs, to recognize its own comments.")
        .or_derived("requested from GitHub"),
    Setting::new(Github, "gh-hostname", "HOST", Text, "Host of GitHub or GitHub Enterprise.").or("github.com"),
    Setting::new(Github, "gh-api-url", "URL", Text, "URL of the REST API.").or_derived("derived from --gh-hostname"),
    Setting::new(
        Webhooks,
        "gh-webhook-secret",
        "SECRET",
        Secrets,
        "Secret that GitHub signs webhooks with, at least 16 characters. To change it, give the old and the \
         new secret: repeat the flag, or write one per line in the variable.",
    ),
    Setting::switch(
        Webhooks,
        "allow-unsigned-webhooks",
        "Start without a webhook secret. Everyone who can reach the server can then send it commands.",
    ),
    Setting::new(Web, "port", "NUMBER", Number(0, 65535), "Port to listen on; 0 takes any free one.").or("4141"),
    Setting::new(Web, "bind-address", "ADDRESS", Text, "Address to listen on.").or("0.0.0.0"),
    Setting::new(Web, "atlantis-url", "URL", Text, "URL at which people reach this server; it may have a path.")
        .also(&["public-url"])
        .or_derived("http://<host name>:<port>; with a certificate https"),
    Setting::switch(
        Web,
        "web-basic-auth",
        "Require --web-username and --web-password for the pages. Without it, pages and API are read-only and \
         do not show the output of runs.",
    ),
    Setting::new(Web, "web-username", "NAME", Text, "User name for the pages.").or_with_compat("lockkeeper", "atlantis"),
    Setting::new(
        Web,
        "web-password",
        "PASSWORD",
        Secret,
        "Password for the pages, at least 16 characters; there is no default.",
    ),
    Setting::new(
        Web,
        "ssl-cert-file",
        "FILE",
        Path,
        "Certificate chain (PEM) for https, together with --ssl-key-file; read again when it changes.",
    ),
    Setting::new(Web, "ssl-key-file", "FILE", Path, "Private key (PEM) of that certificate."),
    Setting::new(
        Web,
        "web-hosts",
        "NAMES",
        List,
        "Additional host names and addresses of the pages and the API, such as `lockkeeper.internal`. Those of \
         --atlantis-url and of the listener are known. Requests for other hosts are answered with 421.",
    ),
    Setting::new(
        Web,
        "trusted-proxies",
        "NETWORKS",
        List,
        "Proxies whose `X-Forwarded-For` is trusted for the address of the client, as in `10.0.0.0/8,::1`. The \
         audit log contains that address. Not set: the address of the connection. Other clients can have 64 \
         connections at most.",
    ),
    Setting::new(Storage, "data-dir", "FOLDER", Path, "Folder for mirrors, checkouts and the built-in database.")
        .or_with_compat("~/.lockkeeper", "~/.atlantis"),
    Setting::new(
        Storage,
        "database-url",
        "URL",
        Secret,
        "Database: postgres://user:password@host/name, or sqlite:FILE. Several servers can share one \
         PostgreSQL database.",
    )
    .or_derived("sqlite:<data dir>/lockkeeper.db"),
    Setting::new(
        Storage,
        "share-plan-dir",
        "FOLDER",
        Path,
        "Folder for plan files; servers with one database can share it.",
    )
        .or_derived("<data dir>/plans; with PostgreSQL the database"),
    Setting::new(
        Storage,
        "plan-size-limit",
        "MIB",
        Number(1, 512),
        "Maximum size in MiB of a plan file in the database; larger ones need --share-plan-dir.",
    )
    .or("64"),
    Setting::new(
        Storage,
        "encryption-key-file",
        "FILE",
        Path,
        "File with keys for the stored credentials of repositories, one per line. The first key encrypts, all \
         keys decrypt. `lockkeeper credentials keygen` prints a line. Not set: credentials cannot be stored.",
    ),
    Setting::new(
        Storage,
        "audit-checkpoint-file",
        "FILE",
        Path,
        "File to which each signed checkpoint of the audit log is appended as one line; it is opened again \
         each time. Copy it to another machine to prove later that the log is complete. Not set: checkpoints \
         are in the log of the server, and the last one is in the data directory.",
    ),
    Setting::new(
        Storage,
        "disk-quota",
        "SIZE",
        Size,
        "Maximum disk space for mirrors, checkouts, packages of providers and downloaded programs, such as \
         20GiB. The least recently used data is removed first. Not set: no limit.",
    ),
    Setting::new(
        Storage,
        "sync-lease-timeout",
        "TIME",
        Duration,
        "Duration of the exclusive lease of a mirror. The server renews the lease while it works. At least 1m.",
    )
    .or("3h"),
    Setting::new(
        Storage,
        "sync-parallel",
        "NUMBER",
        Number(0, 64),
        "Maximum number of concurrent mirror syncs on this server. 0: none, and commands fetch what they need.",
    )
    .or("2"),
    Setting::new(
        Storage,
        "fetch-timeout",
        "TIME",
        Duration,
        "Time limit for one exchange of git with the forge; a longer one is stopped and retried later. It must \
         allow the first fetch of the largest repository. At least 1s.",
    )
    .or("30m"),
    Setting::new(
        Storage,
        "keep-deliveries",
        "TIME",
        Duration,
        "Time after which webhook deliveries are removed; at least 4d, or `forever`.",
    )
    .or("30d"),
    Setting::new(
        Storage,
        "keep-runs",
        "TIME",
        Duration,
        "Time after which commands, their runs and their output are removed, unless the plans of an open pull \
         request need them; at least 4d, or `forever`.",
    )
    .or("90d"),
    Setting::new(
        Storage,
        "claims-gc-interval",
        "TIME",
        Duration,
        "Interval at which unused claims on repositories are removed (docs/ownership.md).",
    )
    .or("10m"),
    Setting::new(
        Permissions,
        "gh-team-allowlist",
        "LIST",
        List,
        "Commands that teams may use, as team:command; `*` stands for all teams or commands. A team is the \
         slug of a team in the organisation that owns the repository, and includes the members of its child \
         teams. Not set: --allow-commenters decides.",
    ),
    Setting::new(
        Permissions,
        "allow-commenters",
        "WHO",
        Choice(&["writers", "everyone"]),
        "People who may use commands in comments if neither --gh-team-allowlist nor `team_authz` decides: \
         `writers`, people with write access to the repository on GitHub; or `everyone` who can comment, which \
         is refused in public repositories.",
    )
    .or("writers"),
    Setting::new(
        Permissions,
        "web-allow",
        "LIST",
        List,
        "Actions that are allowed on the pages, and for scripts with their password: `discard` (release an \
         unused lock with its plans), `unlock_any` (release a lock by force, or hand it over), `apply_lock`, \
         `lease`, `sync`, `owners` (change owners, applications and credentials) …, `all` or `none`. Without \
         --web-basic-auth, the default is `none`.",
    )
    .or("all"),
    Setting::switch(
        Permissions,
        "allow-anonymous-web",
        "Without --web-basic-auth: allow everyone who can reach the server to use the actions of --web-allow. \
         Only `discard`, `unlock_any`, `apply_lock`, `sync` and `cancel` are possible.",
    ),
    Setting::new(
        Permissions,
        "web-accounts-file",
        "FILE",
        Path,
        "File with accounts of the pages and the API for some owners only, one per line, as in `user=kim \
         owners=net,dns allow=plan,apply password=…`. They see only the data of these owners, and can use only \
         the actions in `allow`, by default none (docs/ownership.md). --web-username stays the account for the \
         whole server.",
    ),
    Setting::new(
        Comments,
        "executable-name",
        "NAMES",
        List,
        "Words that begin a command in a comment; hints show the first one.",
    )
    .or_with_compat("lockkeeper", "atlantis"),
    Setting::new(Comments, "vcs-status-name", "NAME", Text, "First part of the names of commit statuses.")
        .or_with_compat("lockkeeper", "atlantis"),
    Setting::new(
        Comments,
        "ignore-vcs-status-names",
        "NAMES",
        List,
        "First parts of the names of other servers' statuses. They do not prevent a pull request from being \
         mergeable.",
    ),
    Setting::new(
        Comments,
        "allow-commands",
        "LIST",
        List,
        "Commands that are allowed in comments; `all` allows all of them.",
    )
        .or("version,plan,apply,unlock,cancel,explain"),
    Setting::new(
        Comments,
        "allow-extra-args",
        "LIST",
        List,
        "Additional arguments that are allowed after `--` in comments: `-name`, or `-name=` with a value; \
         `plan:-name=` for one command.",
    ),
    Setting::new(Comments, "blocked-extra-args", "LIST", List, "Arguments that are refused after `--` in comments.")
        .or("-chdir,--chdir,-plugin-dir,--plugin-dir"),
    Setting::new(
        Comments,
        "var-file-allowlist",
        "FOLDERS",
        List,
        "Folders outside the checkout from which a comment may name a -var-file.",
    ),
    Setting::new(
        Comments,
        "max-comments-per-command",
        "NUMBER",
        Number(0, 10_000),
        "Maximum number of comments for one command, of at most 65,536 bytes each; 0: no limit. The middle of \
         longer output is left out, with a link to all of it.",
    )
    .or("100"),
    Setting::new(
        Comments,
        "emoji-reaction",
        "NAME",
        Text,
        "Reaction to a comment with an accepted command: eyes, rocket, +1 …; `none` for none.",
    )
    .or("eyes"),
    Setting::switch(Comments, "silence-allowlist-errors", "Do not answer in repositories that are not served."),
    Setting::switch(Comments, "silence-fork-pr-errors", "Do not answer on pull requests from forks."),
    Setting::switch(Comments, "silence-no-projects", "Do not answer when a pull request changes no project."),
    Setting::switch(
        Comments,
        "silence-vcs-status-no-plans",
        "Set no statuses on a commit that changes no project, unless somebody requested a plan.",
    ),
    Setting::switch(
        Comments,
        "silence-vcs-status-no-projects",
        "Set no statuses on a commit that changes no project, and never set the combined ones to pending.",
    ),
    Setting::switch(
        Comments,
        "enable-regexp-cmd",
        "Allow a regular expression after -p that matches the whole names of several projects.",
    ),
    Setting::switch(
        Comments,
        "disable-apply-all",
        "Refuse `apply` without a project. Each apply must name its project.",
    ),
    Setting::switch(Comments, "disable-markdown-folding", "Show long outputs in comments without folding them."),
    Setting::switch(
        Comments,
        "hide-unchanged-plan-comments",
        "Leave projects without changes out of the comment of a plan, except in its table.",
    ),
    Setting::switch(
        Comments,
        "enable-diff-markdown-format",
        "Colour every changed attribute and block of a plan, not only whole resources.",
    ),
    Setting::switch(Planning, "disable-autoplan", "Plan only when a comment requests it."),
    Setting::switch(
        Planning,
        "fail-on-pre-workflow-hook-error",
        "Refuse a plan or an apply if a hook before it fails.",
    ),
    Setting::new(
        Planning,
        "disable-autoplan-label",
        "LABEL",
        Text,
        "Label of pull requests that are planned only when a comment requests it.",
    ),
    Setting::switch(
        Planning,
        "automerge",
        "Merge a pull request after an apply if all its projects are applied or have no changes \
         (docs/configuration.md). `automerge` in the file of a repository wins.",
    ),
    Setting::new(
        Planning,
        "automerge-method",
        "METHOD",
        Choice(&["merge", "rebase", "squash"]),
        "Merge method of --automerge. `apply --auto-merge-method` wins.",
    )
    .or_derived("the first of these that the repository allows"),
    Setting::new(
        Planning,
        "disable-automerge-label",
        "LABEL",
        Text,
        "Label of pull requests that Lockkeeper does not merge.",
    ),
    Setting::new(
        Comments,
        "disable-unlock-label",
        "LABEL",
        Text,
        "Label of pull requests on which `unlock` is refused.",
    ),
    Setting::new(
        Planning,
        "autoplan-file-list",
        "LIST",
        List,
        "Files whose changes make a folder a project to plan (patterns as in .dockerignore).",
    )
    .or("**/*.tf,**/*.tf.json,**/*.tfvars,**/*.tfvars.json,**/*.tofu,**/*.tofu.json,**/terragrunt.hcl,\
         **/.terraform.lock.hcl"),
    Setting::new(
        Planning,
        "autodiscover-mode",
        "MODE",
        Choice(&["auto", "enabled", "disabled"]),
        "Find projects that the repository's configuration does not list; auto: only if it lists none.",
    )
    .or("auto"),
    Setting::switch(
        Planning,
        "autoplan-modules",
        "Plan the projects that use a changed module (a directory that others name as a local `source`).",
    ),
    Setting::new(
        Planning,
        "autoplan-modules-from-projects",
        "LIST",
        List,
        "Files whose directories are read to find the modules that they use; enables --autoplan-modules.",
    )
    .or_derived("--autoplan-file-list"),
    Setting::switch(
        Planning,
        "restrict-file-list",
        "Limit `plan -d` and `plan -p` to projects that the pull request changes; refuse them otherwise.",
    ),
    Setting::new(
        Planning,
        "max-projects",
        "NUMBER",
        Number(1, 10_000),
        "Maximum number of projects of one command; a command with more projects is refused.",
    )
    .or("1000"),
    Setting::switch(
        Planning,
        "include-git-untracked-files",
        "Treat files that hooks create in the checkout as changed, unless the repository ignores them.",
    ),
    Setting::switch(
        Locks,
        "lock-queue",
        "Queue a plan if another pull request holds the lock; otherwise the plan is refused.",
    )
    .or("true"),
    Setting::switch(
        Locks,
        "disable-repo-locking",
        "Take no locks at all. Deprecated: write `repo_locks: {mode: disabled}` for these repositories in the \
         file of --repo-config.",
    ),
    Setting::new(
        Terraform,
        "default-tf-distribution",
        "NAME",
        Choice(&["terraform", "opentofu"]),
        "Program for projects that do not name one.",
    )
    .also(&["tf-distribution"])
    .or("terraform"),
    Setting::new(Terraform, "default-tf-version", "VERSION", Text, "Version for projects that do not name one.")
        .or_derived("the one on PATH"),
    Setting::new(
        Terraform,
        "tf-bin-dir",
        "FOLDER",
        Path,
        "Folder with programs of other versions, named like terraform1.9.8 or tofu1.10.0.",
    )
    .or_derived("<data dir>/bin"),
    Setting::switch(
        Terraform,
        "tf-download",
        "Download missing versions of Terraform and OpenTofu that projects need into <data dir>/bin, and \
         verify the signatures of their publishers.",
    )
    .or("true"),
    Setting::new(
        Terraform,
        "tf-download-url",
        "URL",
        Text,
        "Mirror to download Terraform from, laid out like releases.hashicorp.com.",
    )
    .or_derived("https://releases.hashicorp.com"),
    Setting::new(
        Terraform,
        "tofu-download-url",
        "URL",
        Text,
        "Mirror to download OpenTofu from: the list of releases as api.json, and the files of each version in \
         a folder such as v1.9.0.",
    )
    .or_derived("its releases on GitHub"),
    Setting::switch(
        Terraform,
        "use-tf-plugin-cache",
        "Cache packages of providers in <data dir>/plugin-cache for all projects; safe for concurrent runs.",
    )
    .or("true"),
    Setting::new(
        Terraform,
        "sandbox",
        "KIND",
        Choice(&["landlock", "require", "bubblewrap", "none"]),
        "Isolation of runs from the server: `landlock` uses Landlock if the kernel has it, `require` refuses \
         to start without Landlock, `bubblewrap` uses namespaces of the program bwrap, `none` does not isolate \
         runs (docs/security.md).",
    )
    .or("landlock"),
    Setting::new(
        Terraform,
        "sandbox-read",
        "LIST",
        List,
        "Additional files and folders that runs may read, such as ~/.aws.",
    ),
    Setting::new(
        Terraform,
        "sandbox-write",
        "LIST",
        List,
        "Additional files and folders that runs may change, such as a socket or your own cache.",
    ),
    Setting::new(
        Terraform,
        "run-as",
        "UID[:GID]",
        Text,
        "User and group of runs, instead of those of the server. The server must be root or have the rights to \
         change them (docs/security.md).",
    ),
    Setting::new(Terraform, "run-memory", "SIZE", Size, "Maximum memory of all processes of a run together.")
        .or_derived("three quarters of the machine's memory"),
    Setting::new(
        Terraform,
        "run-processes",
        "NUMBER",
        Number(0, 1_000_000),
        "Maximum number of processes and threads of the server's user at which a run can start more; 0: no \
         limit.",
    )
    .or("4096"),
    Setting::new(Terraform, "run-file-size", "SIZE", Size, "Maximum size of a file that a run writes.").or("10GiB"),
    Setting::new(
        Terraform,
        "run-cpu-time",
        "TIME",
        Duration,
        "Maximum processor time of all processes of a run together.",
    )
        .or("8h"),
    Setting::new(Terraform, "run-timeout", "TIME", Duration, "Time after which a run is stopped.").or("2h"),
    Setting::new(
        Terraform,
        "shutdown-grace",
        "TIME",
        Duration,
        "Time that a stopping server waits for runs before it interrupts them; an interrupted run has the same \
         time to end.",
    )
    .or("5m"),
    Setting::new(
        Terraform,
        "parallel-pool-size",
        "NUMBER",
        Number(0, 1000),
        "Maximum number of concurrent runs; 0 means the default.",
    )
        .or("15"),
    Setting::new(
        Terraform,
        "parallel-repo-size",
        "NUMBER",
        Number(0, 1000),
        "Maximum number of concurrent runs of one repository; 0 means the value of --parallel-pool-size.",
    )
    .or("0"),
    Setting::new(
        Terraform,
        "pass-environment",
        "LIST",
        List,
        "Additional variables of the server to pass to Terraform and steps, `*` allowed. Always passed: PATH, \
         HOME, locale, proxy and certificate variables, TF_*, TERRAGRUNT_*, AWS_*, ARM_*, AZURE_*, GOOGLE_*, \
         GCLOUD_*, CLOUDSDK_*, KUBE_*. Never passed: LOCKKEEPER_*, ATLANTIS_*, DATABASE_URL and PGPASSWORD, \
         which contain the server's own secrets.",
    ),
    Setting::new(
        Terraform,
        "pass-environment-plan",
        "LIST",
        List,
        "Variables to pass to plans but not to applies, `*` allowed, such as those of a read-only role.",
    ),
    Setting::new(
        Terraform,
        "pass-environment-apply",
        "LIST",
        List,
        "Variables to pass to applies, imports and `state rm` but not to plans, `*` allowed.",
    ),
    Setting::new(
        Operation,
        "config",
        "FILE",
        Path,
        "YAML file with settings; its keys are the names of the flags. Flags and variables override it.",
    ),
    Setting::new(
        Operation,
        "log-level",
        "LEVEL",
        Choice(&["debug", "info", "warn", "error"]),
        "Minimum level of logged messages.",
    )
    .or("info"),
    Setting::new(
        Operation,
        "log-format",
        "FORMAT",
        Choice(&["text", "json"]),
        "Format of the log: lines for people, or one JSON object per line.",
    )
    .or("text"),
    Setting::new(
        Operation,
        "compat",
        "PRODUCT",
        Choice(&["atlantis"]),
        "Use the defaults of Atlantis that carry a name (command word, status name, data dir, user name).",
    ),
];

/// Returns the row of a flag.
pub(super) fn setting(flag: &str) -> &'static Setting {
    SETTINGS
        .iter()
        .find(|setting| setting.flag == flag)
        .expect("the caller names a row of the table")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::server::absent::ABSENT;

    #[test]
    fn every_name_is_used_once() {
        let mut seen = BTreeSet::new();
        let names = SETTINGS
            .iter()
            .flat_map(|s| std::iter::once(&s.flag).chain(s.aliases));
        for name in names.chain(ABSENT.iter().map(|absent| &absent.flag)) {
            assert!(seen.insert(*name), "--{name} is in the tables twice");
        }
    }

    #[test]
    fn help_is_one_sentence_or_more_and_ends_with_a_full_stop() {
        for setting in SETTINGS {
            assert!(
                setting.help.ends_with('.') && setting.help.len() > 15,
                "--{}",
                setting.flag
            );
        }
    }
}
