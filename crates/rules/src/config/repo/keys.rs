//! Keys of the repository's file (reference 4.1, 4.2).

use std::collections::BTreeMap;

use super::autodiscover::AutodiscoverMapping;
use super::registry::RegistryMapping;
use crate::config::BranchFilter;
use crate::config::lists::{SILENCE, SilencedRuns};
use crate::config::lock_block::RepoLocksMapping;
use crate::config::repos::{EntryMapping, ServerFileMapping};
use crate::config::workflow::{FileVersion, WorkflowMapping};
use crate::config::yaml::{
    DocumentedKey, KeyDoc, KeyShape, Located, Mapping, Vocabulary, mapping, words,
};
use crate::model::{Distribution, Requirement};

mapping! {
    /// Keys at the top level of the file.
    pub(in crate::config) struct RepoFileMapping("the file") {
        version: FileVersion = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Write `3`. In version 2, commands of `plan` and `apply` that have quotes are refused.",
            example: "3",
        },
        projects: Vec<ProjectMapping> = KeyDoc {
            default: "projects are discovered",
            meaning: "Projects of the repository.",
            example: "[{dir: infra/network}]",
        },
        workflows: BTreeMap<String, WorkflowMapping> = KeyDoc {
            default: "none",
            meaning: "Workflows of the repository. Needs `allow_custom_workflows: true` on the server.",
            example: "{quick: {plan: {steps: [plan]}}}",
        },
        autodiscover: AutodiscoverMapping = KeyDoc {
            default: "`--autodiscover-mode`",
            meaning: "Discovery of projects that are not listed. The server's file wins.",
            example: "{mode: enabled, ignore_paths: [legacy/**]}",
        },
        parallel_plan: bool = KeyDoc {
            default: "`true`",
            meaning: "Plan the projects in parallel.",
            example: "true",
        },
        parallel_apply: bool = KeyDoc {
            default: "`true`",
            meaning: "Apply the projects in parallel.",
            example: "true",
        },
        abort_on_execution_order_fail: bool = KeyDoc {
            default: "`false`",
            meaning: "Do not run later groups of the order after a failure in a group.",
            example: "true",
        },
        allowed_regexp_prefixes: Vec<Located> = KeyDoc {
            default: "`[]`",
            meaning: "Allowed beginnings of an expression after `-p` that names several projects; `[]`: any.",
            example: "[dev/, staging/]",
        },
        repo_locks: RepoLocksMapping = KeyDoc {
            default: "the server's",
            meaning: "Time at which locks are taken, for projects without their own `repo_locks`. Needs permission.",
            example: "{mode: on_apply}",
        },
        silence_pr_comments: SilencedRuns = SILENCE,
        automerge: bool = KeyDoc {
            default: "`--automerge`",
            meaning: "Merge a pull request if all its projects are applied or have no changes.",
            example: "true",
        },
        registry: RegistryMapping = KeyDoc {
            default: "found by the names of tags and of the repository",
            meaning: "Modules to publish from tags, as the file says at the tagged commit. Only in Lockkeeper.",
            example: "{modules: [{dir: modules/vpc, name: acme/vpc/aws}]}",
        },
    }
    without_field: [
        DELETE_SOURCE_BRANCH,
        DocumentedKey {
            name: "emoji_reaction",
            shape: KeyShape::WithoutEffect(
                &KeyShape::Text,
                "the reaction is added before this file is read; an administrator can choose one with `--emoji-reaction`",
            ),
            doc: KeyDoc {
                default: "",
                meaning: "Accepted, without effect: the reaction is added before this file is read, so the server decides.",
                example: "eyes",
            },
        },
    ],
    only_on_server: is_only_on_server,
}

mapping! {
    /// Keys of an entry of `projects`.
    pub(in crate::config) struct ProjectMapping("a project") {
        dir: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Directory from the root of the repository, or a pattern: then every matching directory with Terraform \
                      code is a project.",
            example: "infra/network",
        },
        name: Located = KeyDoc {
            default: "none",
            meaning: "Name for commands: `plan -p NAME`. Required from the second project of a directory and workspace on.",
            example: "app",
        },
        branch: BranchFilter = KeyDoc {
            default: "all",
            meaning: "Base branches that have this project.",
            example: "/^main$/",
        },
        workspace: Located = KeyDoc {
            default: "`default`",
            meaning: "Workspace to run in.",
            example: "prod",
        },
        workflow: Located = KeyDoc {
            default: "the server's",
            meaning: "Workflow of its plans and applies. Needs permission.",
            example: "quick",
        },
        terraform_distribution: Distribution = KeyDoc {
            default: "`--default-tf-distribution`",
            meaning: "Program that runs the project.",
            example: "opentofu",
        },
        terraform_version: Located = KeyDoc {
            default: "found by `required_version`, else the server's",
            meaning: "Exact version of the program; a `v` in front and missing parts are allowed.",
            example: "1.9.5",
        },
        autoplan: AutoplanMapping = KeyDoc {
            default: "see below",
            meaning: "Changes that plan the project.",
            example: "{when_modified: ['*.tf', '../modules/**/*.tf']}",
        },
        depends_on: Vec<Located> = KeyDoc {
            default: "none",
            meaning: "Names of projects that must be applied first.",
            example: "[network]",
        },
        execution_order_group: i32 = KeyDoc {
            default: "`0`",
            meaning: "Group in the order of runs: lower groups run first. Can be negative.",
            example: "1",
        },
        plan_requirements: Vec<Requirement> = KeyDoc {
            default: "the server's",
            meaning: "Requirements for a plan, in addition to those of the server. Needs permission.",
            example: "[mergeable]",
        },
        apply_requirements: Vec<Requirement> = KeyDoc {
            default: "the server's",
            meaning: "Requirements for an apply, in addition to those of the server. Needs permission.",
            example: "[approved, undiverged]",
        },
        import_requirements: Vec<Requirement> = KeyDoc {
            default: "the server's, or those for an apply",
            meaning: "Requirements for an import and a `state rm`, in addition to those of the server. Needs permission.",
            example: "[approved]",
        },
        repo_locks: RepoLocksMapping = KeyDoc {
            default: "that of the file",
            meaning: "Time at which its lock is taken. Needs permission.",
            example: "{mode: on_apply}",
        },
        repo_locking: bool = KeyDoc {
            default: "none",
            meaning: "The old form: `false` means `repo_locks: {mode: disabled}`, `true` takes a lock if none would be taken \
                      otherwise. Needs permission.",
            example: "false",
        },
        silence_pr_comments: SilencedRuns = SILENCE,
        policy_check: bool = KeyDoc {
            default: "the server's",
            meaning: "Check its plans against the policies of the server. Needs permission.",
            example: "false",
        },
        custom_policy_check: bool = KeyDoc {
            default: "the server's",
            meaning: "Let `run` steps of the stage `policy_check` check the sets without an `engine`. Needs permission.",
            example: "false",
        },
    }
    without_field: [DELETE_SOURCE_BRANCH],
    only_on_server: is_only_on_server,
}

/// Returns true if only the server's file has a key of this name, so that no pull request can set it.
fn is_only_on_server(name: &str) -> bool {
    let of_server = [ServerFileMapping::KEYS, EntryMapping::KEYS];
    let of_repo = [RepoFileMapping::KEYS, ProjectMapping::KEYS];
    of_server.iter().any(|keys| keys.find(name).is_some())
        && of_repo.iter().all(|keys| keys.find(name).is_none())
}

/// The key `delete_source_branch_on_merge` of both files.
pub(in crate::config) const DELETE_SOURCE_BRANCH: DocumentedKey = DocumentedKey {
    name: "delete_source_branch_on_merge",
    shape: KeyShape::WithoutEffect(
        &KeyShape::Switch,
        "GitHub deletes the branch if the setting `Automatically delete head branches` of the repository is on; \
         Atlantis also ignores the key on GitHub",
    ),
    doc: KeyDoc {
        default: "",
        meaning: "Accepted, without effect: the setting of the repository on GitHub decides.",
        example: "true",
    },
};

impl Vocabulary for Distribution {
    fn words() -> Vec<&'static str> {
        words(Self::ALL, Self::as_str)
    }
}

mapping! {
    /// Keys of `autoplan` of a project.
    pub(in crate::config) struct AutoplanMapping("`autoplan`") {
        when_modified: Vec<Located> = KeyDoc {
            default: "Terraform code and lock files below its directory",
            meaning: "Files whose changes plan the project, as patterns of a `.dockerignore` file, relative to its directory. `[]`: none.",
            example: "['*.tf', '../modules/**/*.tf']",
        },
        enabled: bool = KeyDoc {
            default: "`true`",
            meaning: "Plan the project after a push. The comment `plan` without flags always plans it.",
            example: "false",
        },
    }
}
