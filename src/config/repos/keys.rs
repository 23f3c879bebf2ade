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
use crate::config::yaml::{Key, Keys, Kind};

/// Keys at the top level of the file.
pub(in crate::config) static TOP: Keys = Keys::new(
    "the file",
    &[
        Key::new(
            "repos",
            Kind::List(&Kind::Map(&ENTRY)),
            "`[]`",
            "Rules for repositories. For each key, the last matching entry that sets it wins.",
            "[{id: /.*/}]",
        ),
        Key::new(
            "workflows",
            Kind::Named(&Kind::Map(&WORKFLOW)),
            "none",
            "Workflows by name. The name `default` replaces the built-in workflow.",
            "{quick: {plan: {steps: [plan]}}}",
        ),
        Key::new(
            "environment_profiles",
            Kind::Named(&Kind::Map(&PROFILE)),
            "none",
            "Sets of server variables for the runs of some projects, by name. Read at startup. Not a key of Atlantis.",
            "{prod: {plan: [AWS_PROFILE=PROD_PROFILE]}}",
        ),
        Key::new(
            "team_authz",
            Kind::Map(&TEAM_AUTHZ),
            "none",
            "Program that decides about permissions.",
            "{command: /usr/local/bin/ask}",
        ),
        Key::new(
            "policies",
            Kind::NotYet(&Kind::Map(&POLICIES)),
            "none",
            "Not in this version.",
            "",
        ),
        Key::new(
            "metrics",
            Kind::WithoutEffect(
                &Kind::Map(&METRICS),
                "`/metrics` is always available for Prometheus, and metrics are not sent to StatsD",
            ),
            "",
            "Accepted, without effect: `/metrics` is always available for Prometheus.",
            "{prometheus: {endpoint: /metrics}}",
        ),
        Key::new(
            "external_stores",
            Kind::NotYet(&Kind::Map(&STORES)),
            "none",
            "Not in this version.",
            "",
        ),
    ],
);

/// Keys of `team_authz` at the top level.
pub(in crate::config) static TEAM_AUTHZ: Keys = Keys::new(
    "`team_authz`",
    &[
        Key::new(
            "command",
            Kind::Text,
            Key::REQUIRED,
            "Path of the program.",
            "/usr/local/bin/ask",
        ),
        Key::new(
            "args",
            Kind::List(&Kind::Text),
            "`[]`",
            "Arguments of the program.",
            "[--strict]",
        ),
    ],
);

const HOOKS: Kind = Kind::List(&Kind::Map(&HOOK));

/// Keys of an entry of `repos`.
pub(in crate::config) static ENTRY: Keys = Keys::new(
    "an entry of `repos`",
    &[
        Key::new(
            "id",
            Kind::Text,
            Key::REQUIRED,
            "Repository, or a regular expression between slashes that must match the whole id.",
            "github.com/acme/infra",
        ),
        Key::new(
            "branch",
            Kind::SlashedRegex,
            "all",
            "Base branches whose pull requests are served; others are ignored. Hooks of an entry with a `branch` run \
             only for these.",
            "/^main$/",
        ),
        Key::new(
            "repo_config_file",
            Kind::Text,
            "`lockkeeper.yaml` or `atlantis.yaml`",
            "Path of the repository's file, from its root.",
            "ci/lockkeeper.yaml",
        ),
        Key::new(
            "repo_config_source",
            SOURCE,
            "`--repo-config-source`",
            "Source of the repository's file. Not a key of Atlantis.",
            "base",
        ),
        Key::new(
            "plan_requirements",
            REQUIREMENTS,
            "`[]`",
            "Requirements for a plan.",
            "[mergeable]",
        ),
        Key::new(
            "apply_requirements",
            REQUIREMENTS,
            "`[]`",
            "Requirements for an apply. `[]` has no effect: it does not remove the requirements of an earlier entry.",
            "[approved, mergeable]",
        ),
        Key::new(
            "import_requirements",
            REQUIREMENTS,
            "`[]`",
            "Requirements for an import.",
            "[approved]",
        ),
        Key::new(
            "four_eyes",
            Kind::Switch,
            "`false`",
            "Refuse an apply by the account that planned, for pull requests and applications. Not a key of Atlantis.",
            "true",
        ),
        Key::new(
            "environment_profile",
            RULES,
            "none",
            "One of `environment_profiles` for its projects, or rules by directory; the last matching rule wins. `[]`: none. \
             Not a key of Atlantis.",
            "prod",
        ),
        Key::new(
            "pre_workflow_hooks",
            HOOKS,
            "none",
            "Hooks before a command. Those of all matching entries run, in the order of the file.",
            "[{run: ./generate.sh}]",
        ),
        Key::new(
            "post_workflow_hooks",
            HOOKS,
            "none",
            "Hooks after a command, in the same form.",
            "[{run: ./report.sh}]",
        ),
        Key::new(
            "workflow",
            Kind::Text,
            "`default`",
            "Workflow of its projects.",
            "quick",
        ),
        Key::new(
            "allowed_workflows",
            Kind::List(&Kind::Text),
            "all",
            "Workflows of the server that its projects may choose, if `workflow` is in `allowed_overrides`.",
            "[quick]",
        ),
        ALLOWED_OVERRIDES,
        Key::new(
            "allow_custom_workflows",
            Kind::Switch,
            "`false`",
            "Allow the repository's file to define workflows, and so to run any program on the server.",
            "true",
        ),
        Key::new(
            "repo_locks",
            Kind::Map(&OF_SERVER),
            "`on_plan`",
            "Time and scope of locks.",
            "{ttl: 72h}",
        ),
        Key::new(
            "repo_locking",
            Kind::Switch,
            "`true`",
            "The old form: `false` means `repo_locks: {mode: disabled}` and overrides that key.",
            "true",
        ),
        Key::new(
            "autodiscover",
            Kind::Map(&AUTODISCOVER),
            "the repository's",
            "Discovery of projects that are not listed. Overrides the repository's file.",
            "{mode: disabled}",
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
            "Check policies. Only `false` in this version.",
            "false",
        ),
        Key::new(
            "custom_policy_check",
            Kind::NotYetTrue,
            "`false`",
            "Check policies with the project's own steps. Only `false` in this version.",
            "false",
        ),
    ],
);

static OWNERS: Keys = Keys::new(
    "`owners`",
    &[
        Key::new("users", Kind::List(&Kind::Text), "`[]`", "People.", "[ann]"),
        Key::new(
            "teams",
            Kind::List(&Kind::Text),
            "`[]`",
            "Teams.",
            "[platform]",
        ),
    ],
);

const OWNERS_KEY: Key = Key::new(
    "owners",
    Kind::Map(&OWNERS),
    "none",
    "Users and teams that may approve failed policies.",
    "{teams: [platform]}",
);
const APPROVALS: Key = Key::new(
    "approve_count",
    Kind::Integer,
    "`1`",
    "Number of required approvals.",
    "1",
);
const STICKY: Key = Key::new(
    "sticky_policy_approvals",
    Kind::Switch,
    "`false`",
    "Keep approvals after a push.",
    "false",
);
const ITEM: Key = Key::new(
    "policy_item_regex",
    Kind::Text,
    "the whole output",
    "Expression that matches one item of the output.",
    "'(?s).+'",
);

/// Keys of `policies`. This version only checks their shape.
pub(in crate::config) static POLICIES: Keys = Keys::new(
    "`policies`",
    &[
        Key::new(
            "conftest_version",
            Kind::Text,
            "none",
            "Version of conftest.",
            "0.60.0",
        ),
        OWNERS_KEY,
        APPROVALS,
        STICKY,
        ITEM,
        Key::new(
            "policy_sets",
            Kind::List(&Kind::Map(&POLICY_SET)),
            "none",
            "Sets of policies.",
            "[]",
        ),
    ],
);

static POLICY_SET: Keys = Keys::new(
    "a policy set",
    &[
        Key::new(
            "name",
            Kind::Text,
            Key::REQUIRED,
            "Name of the set.",
            "network",
        ),
        Key::new(
            "path",
            Kind::Text,
            Key::REQUIRED,
            "Directory of the set.",
            "policies",
        ),
        Key::new(
            "source",
            Kind::Words(|| vec!["local", "github"]),
            "`local`",
            "Location of the directory.",
            "local",
        ),
        OWNERS_KEY,
        APPROVALS,
        STICKY,
        ITEM,
        Key::new(
            "prevent_self_approve",
            Kind::Switch,
            "`false`",
            "Refuse approvals of the author.",
            "false",
        ),
    ],
);

static METRICS: Keys = Keys::new(
    "`metrics`",
    &[
        Key::new(
            "statsd",
            Kind::Map(&STATSD),
            "none",
            "A StatsD server.",
            "{host: localhost, port: '8125'}",
        ),
        Key::new(
            "prometheus",
            Kind::Map(&PROMETHEUS),
            "none",
            "A page for Prometheus.",
            "{endpoint: /metrics}",
        ),
    ],
);

static STATSD: Keys = Keys::new(
    "`statsd`",
    &[
        Key::new(
            "host",
            Kind::Text,
            Key::REQUIRED,
            "Address of the server.",
            "localhost",
        ),
        Key::new(
            "port",
            Kind::Text,
            Key::REQUIRED,
            "Port of the server.",
            "'8125'",
        ),
    ],
);

static PROMETHEUS: Keys = Keys::new(
    "`prometheus`",
    &[Key::new(
        "endpoint",
        Kind::Text,
        Key::REQUIRED,
        "Path of the page.",
        "/metrics",
    )],
);

static STORES: Keys = Keys::new(
    "`external_stores`",
    &[Key::new(
        "plan_store",
        Kind::Map(&PLAN_STORE),
        "none",
        "Store of plan files.",
        "{type: s3}",
    )],
);

static PLAN_STORE: Keys = Keys::new(
    "`plan_store`",
    &[
        Key::new(
            "type",
            Kind::Words(|| vec!["s3"]),
            Key::REQUIRED,
            "Kind of the store.",
            "s3",
        ),
        Key::new(
            "s3",
            Kind::Map(&S3),
            "none",
            "Bucket of the store.",
            "{bucket: plans, region: eu-west-1}",
        ),
    ],
);

static S3: Keys = Keys::new(
    "`s3`",
    &[
        Key::new(
            "bucket",
            Kind::Text,
            Key::REQUIRED,
            "Name of the bucket.",
            "plans",
        ),
        Key::new(
            "region",
            Kind::Text,
            Key::REQUIRED,
            "Region of the bucket.",
            "eu-west-1",
        ),
        Key::new(
            "prefix",
            Kind::Text,
            "none",
            "Beginning of all keys.",
            "plans/",
        ),
        Key::new(
            "endpoint",
            Kind::Text,
            "none",
            "Address of the service.",
            "https://s3.example.com",
        ),
        Key::new(
            "force_path_style",
            Kind::Switch,
            "`false`",
            "Put the bucket into the path of URLs.",
            "true",
        ),
        Key::new(
            "profile",
            Kind::Text,
            "none",
            "Profile of the credentials.",
            "plans",
        ),
    ],
);
