//! Keys of the server's file (reference 5).

use super::config_source::SOURCE;
use super::environment::{PROFILE, RULES};
use crate::config::hook::HOOK;
use crate::config::lists::{REQUIREMENTS, SILENCE};
use crate::config::lock_block::OF_SERVER;
use crate::config::overrides::ALLOWED_OVERRIDES;
use crate::config::repo::OF_GITHUB;
use crate::config::repo::autodiscover::AUTODISCOVER;
use crate::config::workflow::WORKFLOW;
use crate::config::yaml::{DocumentedKey, KeyShape, MappingKeys};

/// Keys at the top level of the file.
pub(in crate::config) static TOP: MappingKeys = MappingKeys::new(
    "the file",
    &[
        DocumentedKey::new(
            "repos",
            KeyShape::List(&KeyShape::Map(&ENTRY)),
            "`[]`",
            "Rules for repositories. For each key, the last matching entry that sets it wins.",
            "[{id: /.*/}]",
        ),
        DocumentedKey::new(
            "workflows",
            KeyShape::Named(&KeyShape::Map(&WORKFLOW)),
            "none",
            "Workflows by name. The name `default` replaces the built-in workflow.",
            "{quick: {plan: {steps: [plan]}}}",
        ),
        DocumentedKey::new(
            "environment_profiles",
            KeyShape::Named(&KeyShape::Map(&PROFILE)),
            "none",
            "Sets of server variables for the runs of some projects, by name. Read at startup. Not a key of Atlantis.",
            "{prod: {plan: [AWS_PROFILE=PROD_PROFILE]}}",
        ),
        DocumentedKey::new(
            "team_authz",
            KeyShape::Map(&TEAM_AUTHZ),
            "none",
            "Program that decides about permissions.",
            "{command: /usr/local/bin/ask}",
        ),
        DocumentedKey::new(
            "policies",
            KeyShape::NotYet(&KeyShape::Map(&POLICIES)),
            "none",
            "Not in this version.",
            "",
        ),
        DocumentedKey::new(
            "metrics",
            KeyShape::WithoutEffect(
                &KeyShape::Map(&METRICS),
                "`/metrics` is always available for Prometheus, and metrics are not sent to StatsD",
            ),
            "",
            "Accepted, without effect: `/metrics` is always available for Prometheus.",
            "{prometheus: {endpoint: /metrics}}",
        ),
        DocumentedKey::new(
            "external_stores",
            KeyShape::NotYet(&KeyShape::Map(&STORES)),
            "none",
            "Not in this version.",
            "",
        ),
    ],
);

/// Keys of `team_authz` at the top level.
pub(in crate::config) static TEAM_AUTHZ: MappingKeys = MappingKeys::new(
    "`team_authz`",
    &[
        DocumentedKey::new(
            "command",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Path of the program.",
            "/usr/local/bin/ask",
        ),
        DocumentedKey::new(
            "args",
            KeyShape::List(&KeyShape::Text),
            "`[]`",
            "Arguments of the program.",
            "[--strict]",
        ),
    ],
);

const HOOKS: KeyShape = KeyShape::List(&KeyShape::Map(&HOOK));

/// Keys of an entry of `repos`.
pub(in crate::config) static ENTRY: MappingKeys = MappingKeys::new(
    "an entry of `repos`",
    &[
        DocumentedKey::new(
            "id",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Repository, or a regular expression between slashes that must match the whole id.",
            "github.com/acme/infra",
        ),
        DocumentedKey::new(
            "branch",
            KeyShape::SlashedRegex,
            "all",
            "Base branches whose pull requests are served; others are ignored. Hooks of an entry with a `branch` run \
             only for these.",
            "/^main$/",
        ),
        DocumentedKey::new(
            "repo_config_file",
            KeyShape::Text,
            "`lockkeeper.yaml` or `atlantis.yaml`",
            "Path of the repository's file, from its root.",
            "ci/lockkeeper.yaml",
        ),
        DocumentedKey::new(
            "repo_config_source",
            SOURCE,
            "`--repo-config-source`",
            "Source of the repository's file. Not a key of Atlantis.",
            "base",
        ),
        DocumentedKey::new(
            "plan_requirements",
            REQUIREMENTS,
            "`[]`",
            "Requirements for a plan.",
            "[mergeable]",
        ),
        DocumentedKey::new(
            "apply_requirements",
            REQUIREMENTS,
            "`[]`",
            "Requirements for an apply. `[]` has no effect: it does not remove the requirements of an earlier entry.",
            "[approved, mergeable]",
        ),
        DocumentedKey::new(
            "import_requirements",
            REQUIREMENTS,
            "`[]`",
            "Requirements for an import.",
            "[approved]",
        ),
        DocumentedKey::new(
            "four_eyes",
            KeyShape::Switch,
            "`false`",
            "Refuse an apply by the account that planned, for pull requests and applications. Not a key of Atlantis.",
            "true",
        ),
        DocumentedKey::new(
            "environment_profile",
            RULES,
            "none",
            "One of `environment_profiles` for its projects, or rules by directory; the last matching rule wins. `[]`: none. \
             Not a key of Atlantis.",
            "prod",
        ),
        DocumentedKey::new(
            "pre_workflow_hooks",
            HOOKS,
            "none",
            "Hooks before a command. Those of all matching entries run, in the order of the file.",
            "[{run: ./generate.sh}]",
        ),
        DocumentedKey::new(
            "post_workflow_hooks",
            HOOKS,
            "none",
            "Hooks after a command, in the same form.",
            "[{run: ./report.sh}]",
        ),
        DocumentedKey::new(
            "workflow",
            KeyShape::Text,
            "`default`",
            "Workflow of its projects.",
            "quick",
        ),
        DocumentedKey::new(
            "allowed_workflows",
            KeyShape::List(&KeyShape::Text),
            "all",
            "Workflows of the server that its projects may choose, if `workflow` is in `allowed_overrides`.",
            "[quick]",
        ),
        ALLOWED_OVERRIDES,
        DocumentedKey::new(
            "allow_custom_workflows",
            KeyShape::Switch,
            "`false`",
            "Allow the repository's file to define workflows, and so to run any program on the server.",
            "true",
        ),
        DocumentedKey::new(
            "repo_locks",
            KeyShape::Map(&OF_SERVER),
            "`on_plan`",
            "Time and scope of locks.",
            "{ttl: 72h}",
        ),
        DocumentedKey::new(
            "repo_locking",
            KeyShape::Switch,
            "`true`",
            "The old form: `false` means `repo_locks: {mode: disabled}` and overrides that key.",
            "true",
        ),
        DocumentedKey::new(
            "autodiscover",
            KeyShape::Map(&AUTODISCOVER),
            "the repository's",
            "Discovery of projects that are not listed. Overrides the repository's file.",
            "{mode: disabled}",
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
            "Check policies. Only `false` in this version.",
            "false",
        ),
        DocumentedKey::new(
            "custom_policy_check",
            KeyShape::NotYetTrue,
            "`false`",
            "Check policies with the project's own steps. Only `false` in this version.",
            "false",
        ),
    ],
);

static OWNERS: MappingKeys = MappingKeys::new(
    "`owners`",
    &[
        DocumentedKey::new(
            "users",
            KeyShape::List(&KeyShape::Text),
            "`[]`",
            "People.",
            "[ann]",
        ),
        DocumentedKey::new(
            "teams",
            KeyShape::List(&KeyShape::Text),
            "`[]`",
            "Teams.",
            "[platform]",
        ),
    ],
);

const OWNERS_KEY: DocumentedKey = DocumentedKey::new(
    "owners",
    KeyShape::Map(&OWNERS),
    "none",
    "Users and teams that may approve failed policies.",
    "{teams: [platform]}",
);
const APPROVALS: DocumentedKey = DocumentedKey::new(
    "approve_count",
    KeyShape::Integer,
    "`1`",
    "Number of required approvals.",
    "1",
);
const STICKY: DocumentedKey = DocumentedKey::new(
    "sticky_policy_approvals",
    KeyShape::Switch,
    "`false`",
    "Keep approvals after a push.",
    "false",
);
const ITEM: DocumentedKey = DocumentedKey::new(
    "policy_item_regex",
    KeyShape::Text,
    "the whole output",
    "Expression that matches one item of the output.",
    "'(?s).+'",
);

/// Keys of `policies`. This version only checks their shape.
pub(in crate::config) static POLICIES: MappingKeys = MappingKeys::new(
    "`policies`",
    &[
        DocumentedKey::new(
            "conftest_version",
            KeyShape::Text,
            "none",
            "Version of conftest.",
            "0.60.0",
        ),
        OWNERS_KEY,
        APPROVALS,
        STICKY,
        ITEM,
        DocumentedKey::new(
            "policy_sets",
            KeyShape::List(&KeyShape::Map(&POLICY_SET)),
            "none",
            "Sets of policies.",
            "[]",
        ),
    ],
);

static POLICY_SET: MappingKeys = MappingKeys::new(
    "a policy set",
    &[
        DocumentedKey::new(
            "name",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Name of the set.",
            "network",
        ),
        DocumentedKey::new(
            "path",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Directory of the set.",
            "policies",
        ),
        DocumentedKey::new(
            "source",
            KeyShape::Words(|| vec!["local", "github"]),
            "`local`",
            "Location of the directory.",
            "local",
        ),
        OWNERS_KEY,
        APPROVALS,
        STICKY,
        ITEM,
        DocumentedKey::new(
            "prevent_self_approve",
            KeyShape::Switch,
            "`false`",
            "Refuse approvals of the author.",
            "false",
        ),
    ],
);

static METRICS: MappingKeys = MappingKeys::new(
    "`metrics`",
    &[
        DocumentedKey::new(
            "statsd",
            KeyShape::Map(&STATSD),
            "none",
            "A StatsD server.",
            "{host: localhost, port: '8125'}",
        ),
        DocumentedKey::new(
            "prometheus",
            KeyShape::Map(&PROMETHEUS),
            "none",
            "A page for Prometheus.",
            "{endpoint: /metrics}",
        ),
    ],
);

static STATSD: MappingKeys = MappingKeys::new(
    "`statsd`",
    &[
        DocumentedKey::new(
            "host",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Address of the server.",
            "localhost",
        ),
        DocumentedKey::new(
            "port",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Port of the server.",
            "'8125'",
        ),
    ],
);

static PROMETHEUS: MappingKeys = MappingKeys::new(
    "`prometheus`",
    &[DocumentedKey::new(
        "endpoint",
        KeyShape::Text,
        DocumentedKey::REQUIRED,
        "Path of the page.",
        "/metrics",
    )],
);

static STORES: MappingKeys = MappingKeys::new(
    "`external_stores`",
    &[DocumentedKey::new(
        "plan_store",
        KeyShape::Map(&PLAN_STORE),
        "none",
        "Store of plan files.",
        "{type: s3}",
    )],
);

static PLAN_STORE: MappingKeys = MappingKeys::new(
    "`plan_store`",
    &[
        DocumentedKey::new(
            "type",
            KeyShape::Words(|| vec!["s3"]),
            DocumentedKey::REQUIRED,
            "Kind of the store.",
            "s3",
        ),
        DocumentedKey::new(
            "s3",
            KeyShape::Map(&S3),
            "none",
            "Bucket of the store.",
            "{bucket: plans, region: eu-west-1}",
        ),
    ],
);

static S3: MappingKeys = MappingKeys::new(
    "`s3`",
    &[
        DocumentedKey::new(
            "bucket",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Name of the bucket.",
            "plans",
        ),
        DocumentedKey::new(
            "region",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Region of the bucket.",
            "eu-west-1",
        ),
        DocumentedKey::new(
            "prefix",
            KeyShape::Text,
            "none",
            "Beginning of all keys.",
            "plans/",
        ),
        DocumentedKey::new(
            "endpoint",
            KeyShape::Text,
            "none",
            "Address of the service.",
            "https://s3.example.com",
        ),
        DocumentedKey::new(
            "force_path_style",
            KeyShape::Switch,
            "`false`",
            "Put the bucket into the path of URLs.",
            "true",
        ),
        DocumentedKey::new(
            "profile",
            KeyShape::Text,
            "none",
            "Profile of the credentials.",
            "plans",
        ),
    ],
);
