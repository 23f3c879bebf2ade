//! Keys of the repository's file (reference 4.1, 4.2).

use super::autodiscover::AUTODISCOVER;
use crate::config::lists::{REQUIREMENTS, SILENCE};
use crate::config::lock_block::OF_REPO;
use crate::config::workflow::WORKFLOW;
use crate::config::yaml::{Key, Keys, Kind, words};
use crate::model::Distribution;

/// Reason why [`crate::config::overrides::OverrideKey::DeleteSourceBranchOnMerge`] has no effect.
pub(in crate::config) const OF_GITHUB: &str = "GitHub deletes the branch if the setting `Automatically delete head branches` of the repository is on; Atlantis also \
     ignores the key on GitHub";

/// Keys at the top level of the file.
pub(in crate::config) static TOP: Keys = Keys {
    of: "the file",
    list: &[
        Key::new(
            "version",
            Kind::Words(|| vec!["2", "3"]),
            Key::REQUIRED,
            "Write `3`. In version 2, commands of `plan` and `apply` that have quotes are refused.",
            "3",
        ),
        Key::new(
            "projects",
            Kind::List(&Kind::Map(&PROJECT)),
            "projects are discovered",
            "Projects of the repository.",
            "[{dir: infra/network}]",
        ),
        Key::new(
            "workflows",
            Kind::Named(&Kind::Map(&WORKFLOW)),
            "none",
            "Workflows of the repository. Needs `allow_custom_workflows: true` on the server.",
            "{quick: {plan: {steps: [plan]}}}",
        ),
        Key::new(
            "autodiscover",
            Kind::Map(&AUTODISCOVER),
            "`--autodiscover-mode`",
            "Discovery of projects that are not listed. The server's file wins.",
            "{mode: enabled, ignore_paths: [legacy/**]}",
        ),
        Key::new(
            "parallel_plan",
            Kind::Switch,
            "`true`",
            "Plan the projects in parallel.",
            "true",
        ),
        Key::new(
            "parallel_apply",
            Kind::Switch,
            "`true`",
            "Apply the projects in parallel.",
            "true",
        ),
        Key::new(
            "abort_on_execution_order_fail",
            Kind::Switch,
            "`false`",
            "Do not run later groups of the order after a failure in a group.",
            "true",
        ),
        Key::new(
            "allowed_regexp_prefixes",
            Kind::List(&Kind::Text),
            "`[]`",
            "Allowed beginnings of an expression after `-p` that names several projects; `[]`: any.",
            "[dev/, staging/]",
        ),
        Key::new(
            "repo_locks",
            Kind::Map(&OF_REPO),
            "the server's",
            "Time at which locks are taken, for projects without their own `repo_locks`. Needs permission.",
            "{mode: on_apply}",
        ),
        SILENCE,
        Key::new(
            "automerge",
            Kind::Switch,
            "`--automerge`",
            "Merge a pull request if all its projects are applied or have no changes.",
            "true",
        ),
        Key::new(
            "delete_source_branch_on_merge",
            Kind::WithoutEffect(&Kind::Switch, OF_GITHUB),
            "",
            "Accepted, without effect: the setting of the repository on GitHub decides.",
            "true",
        ),
        Key::new(
            "policies",
            Kind::NotYet(&Kind::Map(&crate::config::repos::POLICIES)),
            "none",
            "Not in this version. Atlantis ignores it.",
            "",
        ),
        Key::new(
            "emoji_reaction",
            Kind::WithoutEffect(
                &Kind::Text,
                "the reaction is added before this file is read; an administrator can choose one with `--emoji-reaction`",
            ),
            "",
            "Accepted, without effect: the reaction is added before this file is read, so the server decides.",
            "eyes",
        ),
    ],
    of_server: OF_SERVER,
    is_choice: false,
};

/// Keys of an entry of `projects`.
pub(in crate::config) static PROJECT: Keys = Keys {
    of: "a project",
    list: &[
        Key::new(
            "dir",
            Kind::Text,
            Key::REQUIRED,
            "Directory from the root of the repository, or a pattern: then every matching directory with Terraform \
             code is a project.",
            "infra/network",
        ),
        Key::new(
            "name",
            Kind::Text,
            "none",
            "Name for commands: `plan -p NAME`. Required from the second project of a directory and workspace on.",
            "app",
        ),
        Key::new(
            "branch",
            Kind::SlashedRegex,
            "all",
            "Base branches that have this project.",
            "/^main$/",
        ),
        Key::new(
            "workspace",
            Kind::Text,
            "`default`",
            "Workspace to run in.",
            "prod",
        ),
        Key::new(
            "workflow",
            Kind::Text,
            "the server's",
            "Workflow of its plans and applies. Needs permission.",
            "quick",
        ),
        Key::new(
            "terraform_distribution",
            Kind::Words(|| words(Distribution::ALL, Distribution::as_str)),
            "`--default-tf-distribution`",
            "Program that runs the project.",
            "opentofu",
        ),
        Key::new(
            "terraform_version",
            Kind::Text,
            "found by `required_version`, else the server's",
            "Exact version of the program; a `v` in front and missing parts are allowed.",
            "1.9.5",
        ),
        Key::new(
            "autoplan",
            Kind::Map(&AUTOPLAN),
            "see below",
            "Changes that plan the project.",
            "{when_modified: ['*.tf', '../modules/**/*.tf']}",
        ),
        Key::new(
            "depends_on",
            Kind::List(&Kind::Text),
            "none",
            "Names of projects that must be applied first.",
            "[network]",
        ),
        Key::new(
            "execution_order_group",
            Kind::Integer,
            "`0`",
            "Group in the order of runs: lower groups run first. Can be negative.",
            "1",
        ),
        Key::new(
            "plan_requirements",
            REQUIREMENTS,
            "the server's",
            "Requirements for a plan, in addition to those of the server. Needs permission.",
            "[mergeable]",
        ),
        Key::new(
            "apply_requirements",
            REQUIREMENTS,
            "the server's",
            "Requirements for an apply, in addition to those of the server. Needs permission.",
            "[approved, undiverged]",
        ),
        Key::new(
            "import_requirements",
            REQUIREMENTS,
            "the server's",
            "Requirements for an import, in addition to those of the server. Needs permission.",
            "[approved]",
        ),
        Key::new(
            "repo_locks",
            Kind::Map(&OF_REPO),
            "that of the file",
            "Time at which its lock is taken. Needs permission.",
            "{mode: on_apply}",
        ),
        Key::new(
            "repo_locking",
            Kind::Switch,
            "none",
            "The old form: `false` means `repo_locks: {mode: disabled}`, `true` takes a lock if none would be taken \
             otherwise. Needs permission.",
            "false",
        ),
        SILENCE,
        Key::new(
            "delete_source_branch_on_merge",
            Kind::WithoutEffect(&Kind::Switch, OF_GITHUB),
            "",
            "Accepted, without effect: the setting of the repository on GitHub decides.",
            "true",
        ),
        Key::new(
            "policy_check",
            Kind::NotYetTrue,
            "`false`",
            "Check policies. Only `false` in this version. Needs permission.",
            "false",
        ),
        Key::new(
            "custom_policy_check",
            Kind::NotYetTrue,
            "`false`",
            "Check policies with the project's own steps. Only `false` in this version. Needs permission.",
            "false",
        ),
    ],
    of_server: OF_SERVER,
    is_choice: false,
};

/// Keys of permissions, which only the server's file may have, so that no pull request can set them.
const OF_SERVER: &[&str] = &[
    "allowed_overrides",
    "allowed_workflows",
    "allow_custom_workflows",
    "environment_profile",
    "environment_profiles",
    "pre_workflow_hooks",
    "post_workflow_hooks",
    "repo_config_file",
    "repo_config_source",
    "team_authz",
];

/// Keys of `autoplan` of a project.
pub(in crate::config) static AUTOPLAN: Keys = Keys::new(
    "`autoplan`",
    &[
        Key::new(
            "when_modified",
            Kind::List(&Kind::Text),
            "Terraform code and lock files below its directory",
            "Files whose changes plan the project, as patterns of a `.dockerignore` file, relative to its directory. `[]`: none.",
            "['*.tf', '../modules/**/*.tf']",
        ),
        Key::new(
            "enabled",
            Kind::Switch,
            "`true`",
            "Plan the project after a push. The comment `plan` without flags always plans it.",
            "false",
        ),
    ],
);
