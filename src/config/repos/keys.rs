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
            "What holds for which repositories. Of each key the last entry that sets it counts.",
            "[{id: /.*/}]",
        ),
        Key::new(
            "workflows",
            Kind::Named(&Kind::Map(&WORKFLOW)),
            "none",
            "Workflows by name. One called `default` replaces the built-in one.",
            "{quick: {plan: {steps: [plan]}}}",
        ),
        Key::new(
            "environment_profiles",
            Kind::Named(&Kind::Map(&PROFILE)),
            "none",
            "Variables of the server that only the runs of some projects get, by name. Read at the start. Our own key.",
            "{prod: {plan: [AWS_PROFILE=PROD_PROFILE]}}",
        ),
        Key::new(
            "team_authz",
            Kind::Map(&TEAM_AUTHZ),
            "nobody is asked",
            "A program that says who may do what.",
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
                "`/metrics` is there for Prometheus in any case, and numbers are not sent to StatsD",
            ),
            "",
            "Accepted, without effect: `/metrics` is always there for Prometheus.",
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
            "The program.",
            "/usr/local/bin/ask",
        ),
        Key::new(
            "args",
            Kind::List(&Kind::Text),
            "`[]`",
            "Its arguments.",
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
            "The repository, or a regular expression between slashes that has to fit the whole id.",
            "github.com/acme/infra",
        ),
        Key::new(
            "branch",
            Kind::SlashedRegex,
            "all",
            "Base branches whose pull requests are served; others are ignored. Hooks of an entry with a `branch` are \
             run for these only.",
            "/^main$/",
        ),
        Key::new(
            "repo_config_file",
            Kind::Text,
            "`lockkeeper.yaml` or `atlantis.yaml`",
            "Where the repository's file is, from its root.",
            "ci/lockkeeper.yaml",
        ),
        Key::new(
            "repo_config_source",
            SOURCE,
            "`--repo-config-source`",
            "What the repository's file is read from. Our own key.",
            "base",
        ),
        Key::new(
            "plan_requirements",
            REQUIREMENTS,
            "`[]`",
            "What must hold before a plan.",
            "[mergeable]",
        ),
        Key::new(
            "apply_requirements",
            REQUIREMENTS,
            "`[]`",
            "What must hold before an apply. `[]` says nothing: it does not take back what an earlier entry demands.",
            "[approved, mergeable]",
        ),
        Key::new(
            "import_requirements",
            REQUIREMENTS,
            "`[]`",
            "What must hold before an import.",
            "[approved]",
        ),
        Key::new(
            "four_eyes",
            Kind::Switch,
            "`false`",
            "Whether another account has to apply than planned, of pull requests and of applications. Our own key.",
            "true",
        ),
        Key::new(
            "environment_profile",
            RULES,
            "none",
            "One of `environment_profiles` for its projects, or rules by their directories, of which the last one that fits \
             counts. `[]`: none. Our own key.",
            "prod",
        ),
        Key::new(
            "pre_workflow_hooks",
            HOOKS,
            "none",
            "Commands before a command; those of all entries that fit are run, in the order of the file.",
            "[{run: ./generate.sh}]",
        ),
        Key::new(
            "post_workflow_hooks",
            HOOKS,
            "none",
            "The same after a command.",
            "[{run: ./report.sh}]",
        ),
        Key::new(
            "workflow",
            Kind::Text,
            "`default`",
            "The workflow of its projects.",
            "quick",
        ),
        Key::new(
            "allowed_workflows",
            Kind::List(&Kind::Text),
            "all",
            "Workflows of the server that its projects may choose, where `workflow` is in `allowed_overrides`.",
            "[quick]",
        ),
        ALLOWED_OVERRIDES,
        Key::new(
            "allow_custom_workflows",
            Kind::Switch,
            "`false`",
            "Whether the repository's file may define workflows, which is: run anything on the server.",
            "true",
        ),
        Key::new(
            "repo_locks",
            Kind::Map(&OF_SERVER),
            "`on_plan`",
            "When and how locks are taken.",
            "{ttl: 72h}",
        ),
        Key::new(
            "repo_locking",
            Kind::Switch,
            "`true`",
            "The old form: `false` is `repo_locks: {mode: disabled}`, whatever that says.",
            "true",
        ),
        Key::new(
            "autodiscover",
            Kind::Map(&AUTODISCOVER),
            "the repository's",
            "Whether projects that are not listed are looked for. Wins over what the repository says.",
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
            "Whether policies are checked. Only `false` in this version.",
            "false",
        ),
        Key::new(
            "custom_policy_check",
            Kind::NotYetTrue,
            "`false`",
            "Whether its own steps check policies. Only `false` in this version.",
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
    "Who may approve of what fails.",
    "{teams: [platform]}",
);
const APPROVALS: Key = Key::new(
    "approve_count",
    Kind::Integer,
    "`1`",
    "How many have to.",
    "1",
);
const STICKY: Key = Key::new(
    "sticky_policy_approvals",
    Kind::Switch,
    "`false`",
    "Whether approvals outlive a push.",
    "false",
);
const ITEM: Key = Key::new(
    "policy_item_regex",
    Kind::Text,
    "all of it",
    "What of the output is one item.",
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
            "The policies.",
            "[]",
        ),
    ],
);

static POLICY_SET: Keys = Keys::new(
    "a policy set",
    &[
        Key::new("name", Kind::Text, Key::REQUIRED, "Its name.", "network"),
        Key::new(
            "path",
            Kind::Text,
            Key::REQUIRED,
            "Its directory.",
            "policies",
        ),
        Key::new(
            "source",
            Kind::Words(|| vec!["local", "github"]),
            "`local`",
            "Where that is.",
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
            "Whether the author may not approve.",
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
            "Its address.",
            "localhost",
        ),
        Key::new("port", Kind::Text, Key::REQUIRED, "Its port.", "'8125'"),
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
        "Where plan files are kept.",
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
            "Its kind.",
            "s3",
        ),
        Key::new(
            "s3",
            Kind::Map(&S3),
            "none",
            "The bucket.",
            "{bucket: plans, region: eu-west-1}",
        ),
    ],
);

static S3: Keys = Keys::new(
    "`s3`",
    &[
        Key::new("bucket", Kind::Text, Key::REQUIRED, "Its name.", "plans"),
        Key::new(
            "region",
            Kind::Text,
            Key::REQUIRED,
            "Its region.",
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
            "Whether the bucket is in the path.",
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
