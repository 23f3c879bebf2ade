//! Keys of the repository's file (reference 4.1, 4.2).

use super::autodiscover::AUTODISCOVER;
use crate::config::lists::{REQUIREMENTS, SILENCE};
use crate::config::lock_block::OF_REPO;
use crate::config::workflow::WORKFLOW;
use crate::config::yaml::{Key, Keys, Kind, words};
use crate::model::Distribution;

/// Reason why [`crate::config::overrides::OverrideKey::DeleteSourceBranchOnMerge`] has no effect.
pub(in crate::config) const OF_GITHUB: &str = "GitHub deletes the branch itself if the setting `Automatically delete head branches` of the repository is on; Atlantis \
     ignores the key there too";

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
            "they are discovered",
            "The projects of the repository.",
            "[{dir: infra/network}]",
        ),
        Key::new(
            "workflows",
            Kind::Named(&Kind::Map(&WORKFLOW)),
            "none",
            "Workflows of the repository. The server has to say `allow_custom_workflows: true`.",
            "{quick: {plan: {steps: [plan]}}}",
        ),
        Key::new(
            "autodiscover",
            Kind::Map(&AUTODISCOVER),
            "`--autodiscover-mode`",
            "Whether projects that are not listed are looked for. What the server's file says wins.",
            "{mode: enabled, ignore_paths: [legacy/**]}",
        ),
        Key::new(
            "parallel_plan",
            Kind::Switch,
            "`true`",
            "Whether projects are planned side by side.",
            "true",
        ),
        Key::new(
            "parallel_apply",
            Kind::Switch,
            "`true`",
            "Whether projects are applied side by side.",
            "true",
        ),
        Key::new(
            "abort_on_execution_order_fail",
            Kind::Switch,
            "`false`",
            "Whether a failure in one group of the order keeps the later groups from running.",
            "true",
        ),
        Key::new(
            "allowed_regexp_prefixes",
            Kind::List(&Kind::Text),
            "`[]`",
            "How an expression after `-p` has to begin if it is to name several projects; `[]`: in any way.",
            "[dev/, staging/]",
        ),
        Key::new(
            "repo_locks",
            Kind::Map(&OF_REPO),
            "the server's",
            "When locks are taken, where a project says nothing itself. Needs permission.",
            "{mode: on_apply}",
        ),
        SILENCE,
        Key::new(
            "automerge",
            Kind::Switch,
            "`--automerge`",
            "Whether a pull request is merged once all its projects are applied or have nothing to change.",
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
                "the reaction is given before this file is read; whoever runs Lockkeeper chooses one with `--emoji-reaction`",
            ),
            "",
            "Accepted, without effect: the reaction is given before this file is read, so the server decides.",
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
            "Its directory from the root of the repository, or a pattern: then every directory that fits and has \
             Terraform code is a project.",
            "infra/network",
        ),
        Key::new(
            "name",
            Kind::Text,
            "none",
            "What people call it by: `plan -p NAME`. Needed from the second project of a directory and workspace on.",
            "app",
        ),
        Key::new(
            "branch",
            Kind::SlashedRegex,
            "all",
            "Base branches that it is about; others do not have this project.",
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
            "Which workflow makes its plans and applies. Needs permission.",
            "quick",
        ),
        Key::new(
            "terraform_distribution",
            Kind::Words(|| words(Distribution::ALL, Distribution::as_str)),
            "`--default-tf-distribution`",
            "Which program.",
            "opentofu",
        ),
        Key::new(
            "terraform_version",
            Kind::Text,
            "found by `required_version`, else the server's",
            "One exact version of it; `v` before it and missing parts are fine.",
            "1.9.5",
        ),
        Key::new(
            "autoplan",
            Kind::Map(&AUTOPLAN),
            "see below",
            "When a change concerns it.",
            "{when_modified: ['*.tf', '../modules/**/*.tf']}",
        ),
        Key::new(
            "depends_on",
            Kind::List(&Kind::Text),
            "none",
            "Names of projects that have to be applied before it.",
            "[network]",
        ),
        Key::new(
            "execution_order_group",
            Kind::Integer,
            "`0`",
            "Its place in the order: lower ones come first. May be negative.",
            "1",
        ),
        Key::new(
            "plan_requirements",
            REQUIREMENTS,
            "the server's",
            "What must hold before a plan, beside what the server demands. Needs permission.",
            "[mergeable]",
        ),
        Key::new(
            "apply_requirements",
            REQUIREMENTS,
            "the server's",
            "What must hold before an apply, beside what the server demands. Needs permission.",
            "[approved, undiverged]",
        ),
        Key::new(
            "import_requirements",
            REQUIREMENTS,
            "the server's",
            "What must hold before an import, beside what the server demands. Needs permission.",
            "[approved]",
        ),
        Key::new(
            "repo_locks",
            Kind::Map(&OF_REPO),
            "the rest of the file",
            "When its lock is taken. Needs permission.",
            "{mode: on_apply}",
        ),
        Key::new(
            "repo_locking",
            Kind::Switch,
            "none",
            "The old form: `false` is `repo_locks: {mode: disabled}`, `true` takes a lock where none would be. Needs \
             permission.",
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
            "Whether policies are checked. Only `false` in this version. Needs permission.",
            "false",
        ),
        Key::new(
            "custom_policy_check",
            Kind::NotYetTrue,
            "`false`",
            "Whether its own steps check policies. Only `false` in this version. Needs permission.",
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
            "Files that concern it, as patterns of a `.dockerignore` file, relative to its directory. `[]`: none.",
            "['*.tf', '../modules/**/*.tf']",
        ),
        Key::new(
            "enabled",
            Kind::Switch,
            "`true`",
            "Whether a push plans it. The comment `plan` without flags plans it in any case.",
            "false",
        ),
    ],
);
