//! Keys of the server's file (reference 5).

use std::collections::BTreeMap;

use super::config_source::ConfigSource;
use super::environment::{ProfileMapping, ProfileRules};
use super::policies::PoliciesMapping;
use crate::config::BranchFilter;
use crate::config::hook::HookMapping;
use crate::config::lists::{SILENCE, SilencedRuns};
use crate::config::lock_block::ServerLocksMapping;
use crate::config::overrides::OverrideKey;
use crate::config::repo::DELETE_SOURCE_BRANCH;
use crate::config::repo::autodiscover::AutodiscoverMapping;
use crate::config::workflow::WorkflowMapping;
use crate::config::yaml::{DocumentedKey, KeyDoc, KeyShape, Located, MappingKeys, mapping};
use crate::model::Requirement;

mapping! {
    /// Keys at the top level of the file.
    pub(in crate::config) struct ServerFileMapping("the file") {
        repos: Vec<EntryMapping> = KeyDoc {
            default: "`[]`",
            meaning: "Rules for repositories. For each key, the last matching entry that sets it wins.",
            example: "[{id: /.*/}]",
        },
        workflows: BTreeMap<String, WorkflowMapping> = KeyDoc {
            default: "none",
            meaning: "Workflows by name. The name `default` replaces the built-in workflow.",
            example: "{quick: {plan: {steps: [plan]}}}",
        },
        environment_profiles: BTreeMap<String, ProfileMapping> = KeyDoc {
            default: "none",
            meaning: "Sets of server variables for the runs of some projects, by name. Read at startup. Not a key of Atlantis.",
            example: "{prod: {plan: [AWS_PROFILE=PROD_PROFILE]}}",
        },
        team_authz: TeamAuthzMapping = KeyDoc {
            default: "none",
            meaning: "Program that decides about permissions.",
            example: "{command: /usr/local/bin/ask}",
        },
        policies: PoliciesMapping = KeyDoc {
            default: "none",
            meaning: "Policies for plans (docs/policies.md). In effect with `--enable-policy-checks`, or `policy_check: true` of an entry.",
            example: "{policy_sets: [{name: network, path: /etc/lockkeeper/policies}]}",
        },
    }
    without_field: [
        DocumentedKey {
            name: "metrics",
            shape: KeyShape::WithoutEffect(
                &KeyShape::Map(&METRICS),
                "`/metrics` is always available for Prometheus, and metrics are not sent to StatsD",
            ),
            doc: KeyDoc {
                default: "",
                meaning: "Accepted, without effect: `/metrics` is always available for Prometheus.",
                example: "{prometheus: {endpoint: /metrics}}",
            },
        },
        DocumentedKey {
            name: "external_stores",
            shape: KeyShape::NotYet(&KeyShape::Map(&STORES)),
            doc: KeyDoc {
                default: "none",
                meaning: "Not in this version.",
                example: "",
            },
        },
    ],
}

mapping! {
    /// Keys of `team_authz` at the top level.
    pub(in crate::config) struct TeamAuthzMapping("`team_authz`") {
        command: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Path of the program.",
            example: "/usr/local/bin/ask",
        },
        args: Vec<Located> = KeyDoc {
            default: "`[]`",
            meaning: "Arguments of the program.",
            example: "[--strict]",
        },
    }
}

mapping! {
    /// Keys of an entry of `repos`.
    pub(in crate::config) struct EntryMapping("an entry of `repos`") {
        id: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Repository, or a regular expression between slashes that must match the whole id.",
            example: "github.com/acme/infra",
        },
        branch: BranchFilter = KeyDoc {
            default: "all",
            meaning: "Base branches whose pull requests are served; others are ignored. Hooks of an entry with a `branch` run \
                      only for these.",
            example: "/^main$/",
        },
        repo_config_file: Located = KeyDoc {
            default: "`lockkeeper.yaml` or `atlantis.yaml`",
            meaning: "Path of the repository's file, from its root.",
            example: "ci/lockkeeper.yaml",
        },
        repo_config_source: ConfigSource = KeyDoc {
            default: "`--repo-config-source`",
            meaning: "Source of the repository's file. Not a key of Atlantis.",
            example: "base",
        },
        plan_requirements: Vec<Requirement> = KeyDoc {
            default: "`[]`",
            meaning: "Requirements for a plan.",
            example: "[mergeable]",
        },
        apply_requirements: Vec<Requirement> = KeyDoc {
            default: "`[]`",
            meaning: "Requirements for an apply. `[]` has no effect: it does not remove the requirements of an earlier entry.",
            example: "[approved, mergeable]",
        },
        import_requirements: Vec<Requirement> = KeyDoc {
            default: "those for an apply",
            meaning: "Requirements for an import and a `state rm`. `[]`: none, unless an earlier entry sets some.",
            example: "[approved]",
        },
        four_eyes: bool = KeyDoc {
            default: "`false`",
            meaning: "Refuse an apply by the account that planned, for pull requests and applications. Not a key of Atlantis.",
            example: "true",
        },
        environment_profile: ProfileRules = KeyDoc {
            default: "none",
            meaning: "One of `environment_profiles` for its projects, or rules by directory; the last matching rule wins. `[]`: none. \
                      Not a key of Atlantis.",
            example: "prod",
        },
        pre_workflow_hooks: Vec<HookMapping> = KeyDoc {
            default: "none",
            meaning: "Hooks before a command. Those of all matching entries run, in the order of the file.",
            example: "[{run: ./generate.sh}]",
        },
        post_workflow_hooks: Vec<HookMapping> = KeyDoc {
            default: "none",
            meaning: "Hooks after a command, in the same form.",
            example: "[{run: ./report.sh}]",
        },
        workflow: Located = KeyDoc {
            default: "`default`",
            meaning: "Workflow of its projects.",
            example: "quick",
        },
        allowed_workflows: Vec<Located> = KeyDoc {
            default: "all",
            meaning: "Workflows of the server that its projects may choose, if `workflow` is in `allowed_overrides`.",
            example: "[quick]",
        },
        allowed_overrides: Vec<OverrideKey> = KeyDoc {
            default: "`[]`",
            meaning: "Keys that the repository's own file may set. `fewer_requirements` is not a key: with it, the \
                           repository's lists of requirements replace those of the server; without it, they are added.",
            example: "[workflow, apply_requirements]",
        },
        allow_custom_workflows: bool = KeyDoc {
            default: "`false`",
            meaning: "Allow the repository's file to define workflows, and so to run any program on the server.",
            example: "true",
        },
        repo_locks: ServerLocksMapping = KeyDoc {
            default: "`on_plan`",
            meaning: "Time and scope of locks.",
            example: "{ttl: 72h}",
        },
        repo_locking: bool = KeyDoc {
            default: "`true`",
            meaning: "The old form: `false` means `repo_locks: {mode: disabled}` and overrides that key.",
            example: "true",
        },
        autodiscover: AutodiscoverMapping = KeyDoc {
            default: "the repository's",
            meaning: "Discovery of projects that are not listed. Overrides the repository's file.",
            example: "{mode: disabled}",
        },
        silence_pr_comments: SilencedRuns = SILENCE,
        policy_check: bool = KeyDoc {
            default: "`--enable-policy-checks`",
            meaning: "Check the plans of its projects against the `policy_sets` that concern them.",
            example: "false",
        },
        custom_policy_check: bool = KeyDoc {
            default: "`false`",
            meaning: "Let `run` steps of the stage `policy_check` check the sets without an `engine`.",
            example: "true",
        },
    }
    without_field: [DELETE_SOURCE_BRANCH],
}

static METRICS: MappingKeys = MappingKeys::unused(
    "`metrics`",
    &[
        DocumentedKey::unused("statsd", KeyShape::Map(&STATSD)),
        DocumentedKey::unused("prometheus", KeyShape::Map(&PROMETHEUS)),
    ],
);

static STATSD: MappingKeys = MappingKeys::unused(
    "`statsd`",
    &[
        DocumentedKey::unused("host", KeyShape::Text),
        DocumentedKey::unused("port", KeyShape::Text),
    ],
);

static PROMETHEUS: MappingKeys = MappingKeys::unused(
    "`prometheus`",
    &[DocumentedKey::unused("endpoint", KeyShape::Text)],
);

static STORES: MappingKeys = MappingKeys::unused(
    "`external_stores`",
    &[DocumentedKey::unused(
        "plan_store",
        KeyShape::Map(&PLAN_STORE),
    )],
);

static PLAN_STORE: MappingKeys = MappingKeys::unused(
    "`plan_store`",
    &[
        DocumentedKey::unused("type", KeyShape::Words(|| vec!["s3"])),
        DocumentedKey::unused("s3", KeyShape::Map(&S3)),
    ],
);

static S3: MappingKeys = MappingKeys::unused(
    "`s3`",
    &[
        DocumentedKey::unused("bucket", KeyShape::Text),
        DocumentedKey::unused("region", KeyShape::Text),
        DocumentedKey::unused("prefix", KeyShape::Text),
        DocumentedKey::unused("endpoint", KeyShape::Text),
        DocumentedKey::unused("force_path_style", KeyShape::Switch),
        DocumentedKey::unused("profile", KeyShape::Text),
    ],
);
