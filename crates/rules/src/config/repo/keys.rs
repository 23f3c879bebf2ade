//! Keys of the repository's file (reference 4.1, 4.2).

use super::autodiscover::AUTODISCOVER;
use crate::config::lists::{REQUIREMENTS, SILENCE};
use crate::config::lock_block::OF_REPO;
use crate::config::workflow::WORKFLOW;
use crate::config::yaml::{DocumentedKey, KeyShape, MappingKeys, words};
use crate::model::Distribution;

/// Reason why [`crate::config::overrides::OverrideKey::DeleteSourceBranchOnMerge`] has no effect.
pub(in crate::config) const OF_GITHUB: &str = "GitHub deletes the branch if the setting `Automatically delete head branches` of the repository is on; Atlantis also \
     ignores the key on GitHub";

/// Keys at the top level of the file.
pub(in crate::config) static TOP: MappingKeys = MappingKeys {
    of: "the file",
    list: &[
        DocumentedKey::new(
            "version",
            KeyShape::Words(|| vec!["2", "3"]),
            DocumentedKey::REQUIRED,
            "Write `3`. In version 2, commands of `plan` and `apply` that have quotes are refused.",
            "3",
        ),
        DocumentedKey::new(
            "projects",
            KeyShape::List(&KeyShape::Map(&PROJECT)),
            "projects are discovered",
            "Projects of the repository.",
            "[{dir: infra/network}]",
        ),
        DocumentedKey::new(
            "workflows",
            KeyShape::Named(&KeyShape::Map(&WORKFLOW)),
            "none",
            "Workflows of the repository. Needs `allow_custom_workflows: true` on the server.",
            "{quick: {plan: {steps: [plan]}}}",
        ),
        DocumentedKey::new(
            "autodiscover",
            KeyShape::Map(&AUTODISCOVER),
            "`--autodiscover-mode`",
            "Discovery of projects that are not listed. The server's file wins.",
            "{mode: enabled, ignore_paths: [legacy/**]}",
        ),
        DocumentedKey::new(
            "parallel_plan",
            KeyShape::Switch,
            "`true`",
            "Plan the projects in parallel.",
            "true",
        ),
        DocumentedKey::new(
            "parallel_apply",
            KeyShape::Switch,
            "`true`",
            "Apply the projects in parallel.",
            "true",
        ),
        DocumentedKey::new(
            "abort_on_execution_order_fail",
            KeyShape::Switch,
            "`false`",
            "Do not run later groups of the order after a failure in a group.",
            "true",
        ),
        DocumentedKey::new(
            "allowed_regexp_prefixes",
            KeyShape::List(&KeyShape::Text),
            "`[]`",
            "Allowed beginnings of an expression after `-p` that names several projects; `[]`: any.",
            "[dev/, staging/]",
        ),
        DocumentedKey::new(
            "repo_locks",
            KeyShape::Map(&OF_REPO),
            "the server's",
            "Time at which locks are taken, for projects without their own `repo_locks`. Needs permission.",
            "{mode: on_apply}",
        ),
        SILENCE,
        DocumentedKey::new(
            "automerge",
            KeyShape::Switch,
            "`--automerge`",
            "Merge a pull request if all its projects are applied or have no changes.",
            "true",
        ),
        DocumentedKey::new(
            "delete_source_branch_on_merge",
            KeyShape::WithoutEffect(&KeyShape::Switch, OF_GITHUB),
            "",
            "Accepted, without effect: the setting of the repository on GitHub decides.",
            "true",
        ),
        DocumentedKey::new(
            "policies",
            KeyShape::NotYet(&KeyShape::Map(&crate::config::repos::POLICIES)),
            "none",
            "Not in this version. Atlantis ignores it.",
            "",
        ),
        DocumentedKey::new(
            "emoji_reaction",
            KeyShape::WithoutEffect(
                &KeyShape::Text,
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
pub(in crate::config) static PROJECT: MappingKeys = MappingKeys {
    of: "a project",
    list: &[
        DocumentedKey::new(
            "dir",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Directory from the root of the repository, or a pattern: then every matching directory with Terraform \
             code is a project.",
            "infra/network",
        ),
        DocumentedKey::new(
            "name",
            KeyShape::Text,
            "none",
            "Name for commands: `plan -p NAME`. Required from the second project of a directory and workspace on.",
            "app",
        ),
        DocumentedKey::new(
            "branch",
            KeyShape::SlashedRegex,
            "all",
            "Base branches that have this project.",
            "/^main$/",
        ),
        DocumentedKey::new(
            "workspace",
            KeyShape::Text,
            "`default`",
            "Workspace to run in.",
            "prod",
        ),
        DocumentedKey::new(
            "workflow",
            KeyShape::Text,
            "the server's",
            "Workflow of its plans and applies. Needs permission.",
            "quick",
        ),
        DocumentedKey::new(
            "terraform_distribution",
            KeyShape::Words(|| words(Distribution::ALL, Distribution::as_str)),
            "`--default-tf-distribution`",
            "Program that runs the project.",
            "opentofu",
        ),
        DocumentedKey::new(
            "terraform_version",
            KeyShape::Text,
            "found by `required_version`, else the server's",
            "Exact version of the program; a `v` in front and missing parts are allowed.",
            "1.9.5",
        ),
        DocumentedKey::new(
            "autoplan",
            KeyShape::Map(&AUTOPLAN),
            "see below",
            "Changes that plan the project.",
            "{when_modified: ['*.tf', '../modules/**/*.tf']}",
        ),
        DocumentedKey::new(
            "depends_on",
            KeyShape::List(&KeyShape::Text),
            "none",
            "Names of projects that must be applied first.",
            "[network]",
        ),
        DocumentedKey::new(
            "execution_order_group",
            KeyShape::Integer,
            "`0`",
            "Group in the order of runs: lower groups run first. Can be negative.",
            "1",
        ),
        DocumentedKey::new(
            "plan_requirements",
            REQUIREMENTS,
            "the server's",
            "Requirements for a plan, in addition to those of the server. Needs permission.",
            "[mergeable]",
        ),
        DocumentedKey::new(
            "apply_requirements",
            REQUIREMENTS,
            "the server's",
            "Requirements for an apply, in addition to those of the server. Needs permission.",
            "[approved, undiverged]",
        ),
        DocumentedKey::new(
            "import_requirements",
            REQUIREMENTS,
            "the server's",
            "Requirements for an import, in addition to those of the server. Needs permission.",
            "[approved]",
        ),
        DocumentedKey::new(
            "repo_locks",
            KeyShape::Map(&OF_REPO),
            "that of the file",
            "Time at which its lock is taken. Needs permission.",
            "{mode: on_apply}",
        ),
        DocumentedKey::new(
            "repo_locking",
            KeyShape::Switch,
            "none",
            "The old form: `false` means `repo_locks: {mode: disabled}`, `true` takes a lock if none would be taken \
             otherwise. Needs permission.",
            "false",
        ),
        SILENCE,
        DocumentedKey::new(
            "delete_source_branch_on_merge",
            KeyShape::WithoutEffect(&KeyShape::Switch, OF_GITHUB),
            "",
            "Accepted, without effect: the setting of the repository on GitHub decides.",
            "true",
        ),
        DocumentedKey::new(
            "policy_check",
            KeyShape::NotYetTrue,
            "`false`",
            "Check policies. Only `false` in this version. Needs permission.",
            "false",
        ),
        DocumentedKey::new(
            "custom_policy_check",
            KeyShape::NotYetTrue,
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
pub(in crate::config) static AUTOPLAN: MappingKeys = MappingKeys::new(
    "`autoplan`",
    &[
        DocumentedKey::new(
            "when_modified",
            KeyShape::List(&KeyShape::Text),
            "Terraform code and lock files below its directory",
            "Files whose changes plan the project, as patterns of a `.dockerignore` file, relative to its directory. `[]`: none.",
            "['*.tf', '../modules/**/*.tf']",
        ),
        DocumentedKey::new(
            "enabled",
            KeyShape::Switch,
            "`true`",
            "Plan the project after a push. The comment `plan` without flags always plans it.",
            "false",
        ),
    ],
);
