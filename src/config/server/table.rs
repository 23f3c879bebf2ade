//! Lists every setting of the server. The command line, the variables, the checks and the tables of the documentation
//! are generated from these rows. So none of them can miss a setting.

use super::setting::{Group, Kind, Setting};

use Group::{
    Comments, Github, Locks, Operation, Permissions, Planning, Repositories, Storage, Terraform,
    Web, Webhooks,
};
use Kind::{Choice, Duration, List, Number, Path, Secret, Secrets, Size, Text};

/// All settings, in the order in which they are shown.
pub static SETTINGS: &[Setting] = &[
    Setting::new(
        Repositories,
        "repo-allowlist",
        "LIST",
        List,
        "Repositories to serve, as host/owner/name; `*` stands for anything, `!` in front excludes. Required.",
    ),
    Setting::switch(
        Repositories,
        "require-claims",
        "Serve only repositories that an owner has claimed (docs/ownership.md); deliveries for others are refused.",
    ),
    Setting::switch(Repositories, "allow-fork-prs", "Also serve pull requests from forks: anybody may then run code."),
    Setting::switch(Repositories, "allow-draft-prs", "Also plan draft pull requests by itself."),
    Setting::new(
        Repositories,
        "checkout-strategy",
        "STRATEGY",
        Choice(&["branch", "merge"]),
        "What is planned: the head of the pull request, or its merge into the base branch. A head lacks what was merged after \
         it was made, and its plan would undo that.",
    )
    .or_with_compat("merge", "branch"),
    Setting::new(
        Repositories,
        "mirror-filter",
        "FILTER",
        Text,
        "What new mirrors leave at the forge until it is needed: `blob:none` the content of all files, `blob:limit=1m` that \
         of files of 1 MiB or more. Not set: mirrors are whole.",
    ),
    Setting::switch(
        Repositories,
        "sparse-checkout",
        "Check out only the directories of the projects and what their code reaches, such as modules; everything where \
         hooks run (docs/repositories.md).",
    ),
    Setting::switch(
        Repositories,
        "checkout-submodules",
        "Check out submodules too, and theirs: of repositories on the same forge that --repo-allowlist allows.",
    ),
    Setting::switch(
        Repositories,
        "checkout-lfs",
        "Check out the content of files kept with Git LFS. Needs the program git-lfs.",
    ),
    Setting::switch(
        Repositories,
        "write-git-creds",
        "Let the `init` of runs read private modules of the forge over https (docs/credentials.md#private-modules). No file is \
         written; whoever may have a plan made can read what these credentials can.",
    ),
    Setting::new(
        Repositories,
        "repo-config-source",
        "SOURCE",
        Text,
        "What atlantis.yaml is read from: pull_head, merge_result, base (the base branch) or branch:NAME. With `base` or a \
         branch a pull request cannot change what holds for itself. `repo_config_source` of --repo-config wins.",
    )
    .or_derived("what --checkout-strategy checks out"),
    Setting::new(
        Repositories,
        "repo-config",
        "FILE",
        Path,
        "What holds for which repository, usually called repos.yaml: how locks are taken, what a repository may decide \
         itself, who may do what.",
    ),
    Setting::new(Repositories, "repo-config-json", "JSON", Text, "The same as --repo-config, written out as JSON."),
    Setting::new(Github, "gh-user", "NAME", Text, "Account to act as, together with --gh-token or --gh-token-file."),
    Setting::new(Github, "gh-token", "TOKEN", Secret, "Personal access token of that account."),
    Setting::new(Github, "gh-token-file", "FILE", Path, "File with the token; read again whenever it is used."),
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
        "Installation of the App to use where an event names none.",
    )
    .or_derived("the only installation there is"),
    Setting::new(Github, "gh-app-slug", "NAME", Text, "Name of the App in URLs, to tell its own comments.")
        .or_derived("asked of GitHub"),
    Setting::new(Github, "gh-hostname", "HOST", Text, "Host of GitHub or GitHub Enterprise.").or("github.com"),
    Setting::new(Github, "gh-api-url", "URL", Text, "Where the REST API is.").or_derived("follows from --gh-hostname"),
    Setting::new(
        Webhooks,
        "gh-webhook-secret",
        "SECRET",
        Secrets,
        "Secret GitHub signs webhooks with, 16 characters at least. Give the old and the new one while changing it: repeat the \
         flag, or write one per line in the variable.",
    ),
    Setting::switch(
        Webhooks,
        "allow-unsigned-webhooks",
        "Start without a webhook secret: whoever reaches the server can then give it orders.",
    ),
    Setting::new(Web, "port", "NUMBER", Number(0, 65535), "Port to listen on; 0 takes any free one.").or("4141"),
    Setting::new(Web, "bind-address", "ADDRESS", Text, "Address to listen on.").or("0.0.0.0"),
    Setting::new(Web, "atlantis-url", "URL", Text, "Where people reach this server; a path is allowed.")
        .also(&["public-url"])
        .or_derived("http://<host name>:<port>; with a certificate https"),
    Setting::switch(
        Web,
        "web-basic-auth",
        "Ask for --web-username and --web-password before showing a page. Without it pages and API only show, and not what \
         runs print.",
    ),
    Setting::new(Web, "web-username", "NAME", Text, "User name for the pages.").or_with_compat("lockkeeper", "atlantis"),
    Setting::new(
        Web,
        "web-password",
        "PASSWORD",
        Secret,
        "Password for the pages, 16 characters at least; there is no default.",
    ),
    Setting::new(
        Web,
        "ssl-cert-file",
        "FILE",
        Path,
        "Certificate (PEM, with those it needs) to serve https with, together with --ssl-key-file; read again when it \
         changes.",
    ),
    Setting::new(Web, "ssl-key-file", "FILE", Path, "Private key (PEM) of that certificate."),
    Setting::new(
        Web,
        "web-hosts",
        "NAMES",
        List,
        "More names and addresses by which pages and API may be asked for, such as `lockkeeper.internal`. Those of \
         --atlantis-url and of the address that is listened on are known; others are answered with 421.",
    ),
    Setting::new(
        Web,
        "trusted-proxies",
        "NETWORKS",
        List,
        "Proxies that are believed when `X-Forwarded-For` says who sent a request, as in `10.0.0.0/8,::1`. Not set: the \
         address of whoever connects counts. It is kept in the audit log. A proxy that is not named here has 64 \
         connections at most.",
    ),
    Setting::new(Storage, "data-dir", "FOLDER", Path, "Where mirrors, checkouts and the built-in database are kept.")
        .or_with_compat("~/.lockkeeper", "~/.atlantis"),
    Setting::new(
        Storage,
        "database-url",
        "URL",
        Secret,
        "postgres://user:password@host/name, or sqlite:FILE. Several servers can share one PostgreSQL database.",
    )
    .or_derived("sqlite:<data dir>/lockkeeper.db"),
    Setting::new(
        Storage,
        "share-plan-dir",
        "FOLDER",
        Path,
        "Where plan files are kept; servers of one database may share it.",
    )
        .or_derived("<data dir>/plans; with PostgreSQL the database"),
    Setting::new(
        Storage,
        "plan-size-limit",
        "MIB",
        Number(1, 512),
        "Largest plan file in MiB that is kept in the database; larger ones need --share-plan-dir.",
    )
    .or("64"),
    Setting::new(
        Storage,
        "encryption-key-file",
        "FILE",
        Path,
        "Keys that credentials of repositories are encrypted with in the database, one a line; the first encrypts, all \
         decrypt. `lockkeeper credentials keygen` prints a line. Not set: no credentials can be kept.",
    ),
    Setting::new(
        Storage,
        "audit-checkpoint-file",
        "FILE",
        Path,
        "File that each signed checkpoint of the audit log is appended to, a line each; it is opened anew each time. Ship it \
         to another machine: it proves later how far the log reached. Not set: checkpoints are in the log of the server and \
         the last one in the data directory.",
    ),
    Setting::new(
        Storage,
        "disk-quota",
        "SIZE",
        Size,
        "Most that mirrors, checkouts, packages of providers and downloaded programs may take on the disk, such as 20GiB; what was not used for longest goes first. \
         Not set: no limit.",
    ),
    Setting::new(
        Storage,
        "sync-lease-timeout",
        "TIME",
        Duration,
        "How long the exclusive lease of a mirror lasts unless its server renews it, which it does while it works; 1m at \
         least.",
    )
    .or("3h"),
    Setting::new(
        Storage,
        "sync-parallel",
        "NUMBER",
        Number(0, 64),
        "Mirrors that this server brings in step at the same time at most; 0: none, and commands fetch what they need.",
    )
    .or("2"),
    Setting::new(
        Storage,
        "fetch-timeout",
        "TIME",
        Duration,
        "Longest time for one exchange of git with the forge; one that takes longer is broken off, and tried again later. \
         The first fetch of the largest repository must fit; 1s at least.",
    )
    .or("30m"),
    Setting::new(
        Storage,
        "keep-deliveries",
        "TIME",
        Duration,
        "Webhook deliveries are removed after this time; 4d at least, or `forever`.",
    )
    .or("30d"),
    Setting::new(
        Storage,
        "keep-runs",
        "TIME",
        Duration,
        "Commands, their runs and what those printed are removed after this time, but for those that the plans of an open \
         pull request still need; 4d at least, or `forever`.",
    )
    .or("90d"),
    Setting::new(
        Storage,
        "claims-gc-interval",
        "TIME",
        Duration,
        "How often claims on repositories are removed that nothing refers to (docs/ownership.md).",
    )
    .or("10m"),
    Setting::new(
        Permissions,
        "gh-team-allowlist",
        "LIST",
        List,
        "Which team may give which command, as team:command; `*` stands for every team or command. Teams are slugs of the \
         organisation that owns the repository; members of child teams count. Not set: \
         --allow-commenters decides.",
    ),
    Setting::new(
        Permissions,
        "allow-commenters",
        "WHO",
        Choice(&["writers", "everyone"]),
        "Who may give commands by comment where neither --gh-team-allowlist nor `team_authz` says it: `writers`, people who \
         may write to the repository, asked of GitHub; or `everyone` who can comment, which public repositories refuse.",
    )
    .or("writers"),
    Setting::new(
        Permissions,
        "web-allow",
        "LIST",
        List,
        "What may be done on the pages and by scripts with their password: `discard` (release a lock of which nothing is in \
         use, with its plans), `unlock_any` (take a lock away by force, or hand it over), `apply_lock`, `lease`, `sync`, \
         `owners` (change owners, applications and credentials) …, `all` or `none`. Without --web-basic-auth `none`.",
    )
    .or("all"),
    Setting::switch(
        Permissions,
        "allow-anonymous-web",
        "Without --web-basic-auth: let anybody who reaches the server do what --web-allow names, which can be `discard`, \
         `unlock_any`, `apply_lock`, `sync` and `cancel`, never more.",
    ),
    Setting::new(
        Permissions,
        "web-accounts-file",
        "FILE",
        Path,
        "Accounts of the pages and the API that are limited to owners, one a line, as in `user=kim owners=net,dns \
         allow=plan,apply password=…`; they see only what is of these owners, and do with it what `allow` says, which is \
         nothing where it is left out (docs/ownership.md). --web-username stays the account for the whole server.",
    ),
    Setting::new(
        Comments,
        "executable-name",
        "NAMES",
        List,
        "Words a comment must begin with to be a command; the first one is used in hints.",
    )
    .or_with_compat("lockkeeper", "atlantis"),
    Setting::new(Comments, "vcs-status-name", "NAME", Text, "What the names of commit statuses begin with.")
        .or_with_compat("lockkeeper", "atlantis"),
    Setting::new(
        Comments,
        "ignore-vcs-status-names",
        "NAMES",
        List,
        "What the names of statuses of other servers begin with: they do not keep a pull request from being mergeable.",
    ),
    Setting::new(Comments, "allow-commands", "LIST", List, "Commands that comments may give; `all` means every one.")
        .or("version,plan,apply,unlock,cancel,explain"),
    Setting::new(
        Comments,
        "allow-extra-args",
        "LIST",
        List,
        "More arguments that comments may give after `--`: `-name`, or `-name=` with a value; `plan:-name=` for one command.",
    ),
    Setting::new(Comments, "blocked-extra-args", "LIST", List, "Arguments after `--` in a comment that are refused.")
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
        "Most comments that one command posts, of at most 65,536 bytes each; 0: as many as it takes. Of longer output the middle is left out, with a link to all of it.",
    )
    .or("100"),
    Setting::new(
        Comments,
        "emoji-reaction",
        "NAME",
        Text,
        "Reaction to a comment whose command was accepted: eyes, rocket, +1 …; `none` for none.",
    )
    .or("eyes"),
    Setting::switch(Comments, "silence-allowlist-errors", "Do not answer in repositories that are not served."),
    Setting::switch(Comments, "silence-fork-pr-errors", "Do not answer on pull requests from forks."),
    Setting::switch(Comments, "silence-no-projects", "Do not answer when a pull request touches no project."),
    Setting::switch(
        Comments,
        "silence-vcs-status-no-plans",
        "Set no statuses on a commit that touches no project, unless somebody asked for a plan.",
    ),
    Setting::switch(
        Comments,
        "silence-vcs-status-no-projects",
        "Set no statuses on a commit that touches no project, and never set the combined ones to pending.",
    ),
    Setting::switch(
        Comments,
        "enable-regexp-cmd",
        "What follows -p may be a regular expression that matches the whole names of several projects.",
    ),
    Setting::switch(
        Comments,
        "disable-apply-all",
        "Refuse `apply` without a project: every apply has to name what it is about.",
    ),
    Setting::switch(Comments, "disable-markdown-folding", "Show long outputs in comments without folding them."),
    Setting::switch(
        Comments,
        "hide-unchanged-plan-comments",
        "Leave projects without changes out of the comment of a plan; its table keeps them.",
    ),
    Setting::switch(
        Comments,
        "enable-diff-markdown-format",
        "Colour every attribute and block of a plan that changes, not only whole resources.",
    ),
    Setting::switch(Planning, "disable-autoplan", "Plan only when a comment asks for it."),
    Setting::switch(
        Planning,
        "fail-on-pre-workflow-hook-error",
        "Refuse a plan or an apply when a hook before it fails.",
    ),
    Setting::new(
        Planning,
        "disable-autoplan-label",
        "LABEL",
        Text,
        "Pull requests with this label are planned only when a comment asks for it.",
    ),
    Setting::switch(
        Planning,
        "automerge",
        "Merge a pull request after an apply once all its projects are applied or have nothing to change \
         (docs/configuration.md). `automerge` in the file of a repository wins.",
    ),
    Setting::new(
        Planning,
        "automerge-method",
        "METHOD",
        Choice(&["merge", "rebase", "squash"]),
        "How --automerge merges. `apply --auto-merge-method` wins.",
    )
    .or_derived("the first of these that the repository allows"),
    Setting::new(
        Planning,
        "disable-automerge-label",
        "LABEL",
        Text,
        "Pull requests with this label are not merged by Lockkeeper.",
    ),
    Setting::new(Comments, "disable-unlock-label", "LABEL", Text, "On pull requests with this label `unlock` is refused."),
    Setting::new(
        Planning,
        "autoplan-file-list",
        "LIST",
        List,
        "Changes to these files make a folder a project to plan (patterns as in .dockerignore).",
    )
    .or("**/*.tf,**/*.tf.json,**/*.tfvars,**/*.tfvars.json,**/*.tofu,**/*.tofu.json,**/terragrunt.hcl,\
         **/.terraform.lock.hcl"),
    Setting::new(
        Planning,
        "autodiscover-mode",
        "MODE",
        Choice(&["auto", "enabled", "disabled"]),
        "Look for projects that the repository's configuration does not list; auto: only if it lists none.",
    )
    .or("auto"),
    Setting::switch(
        Planning,
        "autoplan-modules",
        "A change in a module (a directory that others name as a local `source`) plans the projects that use it.",
    ),
    Setting::new(
        Planning,
        "autoplan-modules-from-projects",
        "LIST",
        List,
        "Files whose directories are read for the modules they use; switches --autoplan-modules on.",
    )
    .or_derived("--autoplan-file-list"),
    Setting::switch(
        Planning,
        "restrict-file-list",
        "`plan -d` and `plan -p` plan only what the pull request changes; otherwise they are refused.",
    ),
    Setting::new(
        Planning,
        "max-projects",
        "NUMBER",
        Number(1, 10_000),
        "Projects that one command may concern; one that concerns more is refused.",
    )
    .or("1000"),
    Setting::switch(
        Planning,
        "include-git-untracked-files",
        "Files that hooks made in the checkout count as changed, unless the repository ignores them.",
    ),
    Setting::switch(
        Locks,
        "lock-queue",
        "A plan that meets the lock of another pull request waits for it in line; otherwise it is refused.",
    )
    .or("true"),
    Setting::switch(
        Locks,
        "disable-repo-locking",
        "Take no locks at all. Deprecated: write `repo_locks: {mode: disabled}` for the repositories in question into \
         the file of --repo-config.",
    ),
    Setting::new(
        Terraform,
        "default-tf-distribution",
        "NAME",
        Choice(&["terraform", "opentofu"]),
        "Program to use where a project says nothing.",
    )
    .also(&["tf-distribution"])
    .or("terraform"),
    Setting::new(Terraform, "default-tf-version", "VERSION", Text, "Version to use where a project says nothing.")
        .or_derived("the one on PATH"),
    Setting::new(
        Terraform,
        "tf-bin-dir",
        "FOLDER",
        Path,
        "Programs of other versions, named like terraform1.9.8 or tofu1.10.0.",
    )
    .or_derived("<data dir>/bin"),
    Setting::switch(
        Terraform,
        "tf-download",
        "Download versions of Terraform and OpenTofu that a project asks for and that are not here, into <data dir>/bin; \
         they are checked against the signatures of their makers.",
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
        "Mirror to download OpenTofu from: its list of releases as api.json, the files of each version in a folder such as \
         v1.9.0.",
    )
    .or_derived("its releases on GitHub"),
    Setting::switch(
        Terraform,
        "use-tf-plugin-cache",
        "Keep packages of providers in <data dir>/plugin-cache for all projects; safe with any number of runs at once.",
    )
    .or("true"),
    Setting::new(
        Terraform,
        "sandbox",
        "KIND",
        Choice(&["landlock", "require", "bubblewrap", "none"]),
        "What separates runs from the server: `landlock` where the kernel has it, `require` the same or the server does not \
         start, `bubblewrap` namespaces made by the program bwrap (docs/security.md).",
    )
    .or("landlock"),
    Setting::new(
        Terraform,
        "sandbox-read",
        "LIST",
        List,
        "Files and folders that runs may read besides, such as ~/.aws.",
    ),
    Setting::new(
        Terraform,
        "sandbox-write",
        "LIST",
        List,
        "Files and folders that runs may change besides, such as a socket or a cache of your own.",
    ),
    Setting::new(
        Terraform,
        "run-as",
        "UID[:GID]",
        Text,
        "Runs are this user and group instead of those of the server, which has to be root or to have the rights to change \
         them (docs/security.md).",
    ),
    Setting::new(Terraform, "run-memory", "SIZE", Size, "Most memory that the processes of a run may have together.")
        .or_derived("three quarters of the memory of the machine"),
    Setting::new(
        Terraform,
        "run-processes",
        "NUMBER",
        Number(0, 1_000_000),
        "Most processes and threads that the user of the server may have while a run starts more; 0 means any number.",
    )
    .or("4096"),
    Setting::new(Terraform, "run-file-size", "SIZE", Size, "Longest file that a run may write.").or("10GiB"),
    Setting::new(Terraform, "run-cpu-time", "TIME", Duration, "Most processor time that the processes of a run may use together.")
        .or("8h"),
    Setting::new(Terraform, "run-timeout", "TIME", Duration, "A project's run is stopped after this time.").or("2h"),
    Setting::new(
        Terraform,
        "shutdown-grace",
        "TIME",
        Duration,
        "A stopping server waits this long for runs, then interrupts them; an interrupted run has as long to end.",
    )
    .or("5m"),
    Setting::new(Terraform, "parallel-pool-size", "NUMBER", Number(0, 1000), "Projects run at the same time at most; 0 means the default.")
        .or("15"),
    Setting::new(
        Terraform,
        "parallel-repo-size",
        "NUMBER",
        Number(0, 1000),
        "Projects of one repository run at the same time at most; 0 means as many as --parallel-pool-size.",
    )
    .or("0"),
    Setting::new(
        Terraform,
        "pass-environment",
        "LIST",
        List,
        "More of the server's variables to hand to Terraform and steps, `*` allowed. Always handed over: PATH, HOME, \
         locale, proxy and certificate variables, TF_*, TERRAGRUNT_*, AWS_*, ARM_*, AZURE_*, GOOGLE_*, GCLOUD_*, \
         CLOUDSDK_*, KUBE_*. Never: LOCKKEEPER_*, ATLANTIS_*, DATABASE_URL and PGPASSWORD, which hold the server's own secrets.",
    ),
    Setting::new(
        Terraform,
        "pass-environment-plan",
        "LIST",
        List,
        "Variables to hand to plans and not to applies, `*` allowed, such as those of a role that can only read.",
    ),
    Setting::new(
        Terraform,
        "pass-environment-apply",
        "LIST",
        List,
        "Variables to hand to applies, imports and `state rm`, and not to plans, `*` allowed.",
    ),
    Setting::new(
        Operation,
        "config",
        "FILE",
        Path,
        "YAML file with settings; its keys are the names of the flags. Flags and variables win over it.",
    ),
    Setting::new(
        Operation,
        "log-level",
        "LEVEL",
        Choice(&["debug", "info", "warn", "error"]),
        "Least important messages to log.",
    )
    .or("info"),
    Setting::new(
        Operation,
        "log-format",
        "FORMAT",
        Choice(&["text", "json"]),
        "Lines for people, or one JSON object per line.",
    )
    .or("text"),
    Setting::new(
        Operation,
        "compat",
        "PRODUCT",
        Choice(&["atlantis"]),
        "Take the defaults that carry a name (command word, status name, data dir, user name) from Atlantis.",
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
