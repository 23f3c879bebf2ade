//! Tests every key of all files (reference 4, 5, 6.2) with the tables that the readers use.
//!
//! Each key is tested absent, without a value, and with the value of the documentation. It is also tested with a
//! value of a wrong kind or an unknown word, and without permission. The snapshot lists all keys with their messages,
//! so that no key is left without a test.

use std::fmt::Write as _;

use super::reference::{hosts_schema, mappings, repo_schema, server_schema};
use super::repo;
use super::repo::{OverrideKey, RepoConfig, RepoPermissions};
use super::repos::{self, ServerRepos};
use super::server::{HostsFile, HostsFileMapping};
use super::yaml::{DocumentedKey, KeyDoc, KeyShape, Mapping, MappingKeys, YamlErrors};

/// A mapping, the text around its entries (`%`), and the entries that it needs beside the tested one.
type SurroundingText = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const SHELL: (&str, &str) = ("shell", "sh");

const REPO: &[SurroundingText] = &[
    ("the file", "{%}", &[("version", "3")]),
    (
        "a project",
        "{version: 3, projects: [{%}, {dir: z, name: network}]}",
        &[("dir", "a")],
    ),
    (
        "a requirement",
        "{version: 3, projects: [{dir: a, apply_requirements: [{%}]}]}",
        &[("approved", "{stale: true}")],
    ),
    (
        "`approved`",
        "{version: 3, projects: [{dir: a, plan_requirements: [approved: {%}]}]}",
        &[],
    ),
    (
        "`autoplan`",
        "{version: 3, projects: [{dir: a, autoplan: {%}}]}",
        &[],
    ),
    ("`autodiscover`", "{version: 3, autodiscover: {%}}", &[]),
    ("`registry`", "{version: 3, registry: {%}}", &[]),
    (
        "a module of `registry`",
        "{version: 3, registry: {modules: [{%}]}}",
        &[("name", "acme/vpc/aws")],
    ),
    (
        "`repo_locks`",
        "{version: 3, projects: [{dir: a, repo_locks: {%}}]}",
        &[],
    ),
    ("a workflow", "{version: 3, workflows: {w: {%}}}", &[]),
    ("a stage", "{version: 3, workflows: {w: {plan: {%}}}}", &[]),
    (
        "a step",
        "{version: 3, workflows: {w: {plan: {steps: [{%}]}}}}",
        &[],
    ),
    (
        "a built-in step",
        "{version: 3, workflows: {w: {plan: {steps: [init: {%}]}}}}",
        &[],
    ),
    (
        "`run`",
        "{version: 3, workflows: {w: {policy_check: {steps: [run: {%}]}}}}",
        &[("command", "x"), SHELL],
    ),
    (
        "an item of `output`",
        "{version: 3, workflows: {w: {plan: {steps: [run: {command: x, output: [{%}]}]}}}}",
        &[("filter_regex", "x")],
    ),
    (
        "`env`",
        "{version: 3, workflows: {w: {plan: {steps: [env: {%}]}}}}",
        &[("name", "A"), ("command", "x"), SHELL],
    ),
    (
        "`multienv`",
        "{version: 3, workflows: {w: {plan: {steps: [multienv: {%}]}}}}",
        &[("command", "x"), SHELL],
    ),
];

const SERVER: &[SurroundingText] = &[
    ("the file", "{%}", &[]),
    (
        "an entry of `repos`",
        "{workflows: {quick: {}}, environment_profiles: {prod: {}}, policies: {policy_sets: [{name: a, path: /p}]}, repos: [{%}]}",
        &[("id", "/.*/")],
    ),
    (
        "a requirement",
        "{repos: [{id: /.*/, apply_requirements: [{%}]}]}",
        &[("approved", "{stale: true}")],
    ),
    (
        "`approved`",
        "{repos: [{id: /.*/, import_requirements: [approved: {%}]}]}",
        &[],
    ),
    (
        "an environment profile",
        "{environment_profiles: {prod: {%}}}",
        &[],
    ),
    (
        "a rule of `environment_profile`",
        "{environment_profiles: {prod: {}}, repos: [{id: /.*/, environment_profile: [{%}]}]}",
        &[("dir", "a"), ("profile", "prod")],
    ),
    ("`team_authz`", "{team_authz: {%}}", &[("command", "x")]),
    ("`policies`", "{policies: {%}}", &[]),
    ("`owners`", "{policies: {owners: {%}}}", &[]),
    (
        "a policy set",
        "{policies: {policy_sets: [{%}]}}",
        &[
            ("name", "a"),
            ("path", "/p"),
            ("repository", "github.com/acme/policies"),
            ("ref", "v1"),
            ("engine", "embedded"),
        ],
    ),
    (
        "`when`",
        "{policies: {policy_sets: [{name: a, path: /p, when: {%}}]}}",
        &[],
    ),
    (
        "`waivers`",
        "{policies: {policy_sets: [{name: a, path: /p, waivers: {%}}]}}",
        &[("branch", "main"), ("path", "w.yaml")],
    ),
    (
        "`repo_config_source`",
        "{repos: [{id: /.*/, repo_config_source: {%}}]}",
        &[("branch", "x")],
    ),
    (
        "`repo_locks`",
        "{repos: [{id: /.*/, repo_locks: {%}}]}",
        &[],
    ),
    (
        "`autodiscover`",
        "{repos: [{id: /.*/, autodiscover: {%}}]}",
        &[],
    ),
    (
        "a hook",
        "{repos: [{id: /.*/, pre_workflow_hooks: [{%}]}]}",
        &[("run", "x"), SHELL],
    ),
    ("a workflow", "{workflows: {w: {%}}}", &[]),
    ("a stage", "{workflows: {w: {plan: {%}}}}", &[]),
    ("a step", "{workflows: {w: {plan: {steps: [{%}]}}}}", &[]),
    (
        "a built-in step",
        "{workflows: {w: {plan: {steps: [init: {%}]}}}}",
        &[],
    ),
    (
        "`run`",
        "{workflows: {w: {policy_check: {steps: [run: {%}]}}}}",
        &[("command", "x"), SHELL],
    ),
    (
        "an item of `output`",
        "{workflows: {w: {plan: {steps: [run: {command: x, output: [{%}]}]}}}}",
        &[("filter_regex", "x")],
    ),
    (
        "`env`",
        "{workflows: {w: {plan: {steps: [env: {%}]}}}}",
        &[("name", "A"), ("command", "x"), SHELL],
    ),
    (
        "`multienv`",
        "{workflows: {w: {plan: {steps: [multienv: {%}]}}}}",
        &[("command", "x"), SHELL],
    ),
];

const ACCOUNT: (&str, &str) = ("user", "lockkeeper");
const TOKEN_FILE: (&str, &str) = ("token_file", "/t");
const WEBHOOK: (&str, &str) = ("webhook_secret_file", "/w");

const HOSTS: &[SurroundingText] = &[
    (
        "the file",
        "{%}",
        &[(
            "hosts",
            "[{host: a.test, user: a, token_file: /t, webhook_secret_file: /w}]",
        )],
    ),
    (
        "an entry of `hosts`",
        "{hosts: [{%}]}",
        &[("host", "a.test"), ACCOUNT, TOKEN_FILE, WEBHOOK],
    ),
    (
        "`app`",
        "{hosts: [{host: a.test, webhook_secret_file: /w, app: {%}}]}",
        &[("id", "12"), ("key_file", "/k")],
    ),
];

/// Values that look right but are not. The first text is `mapping.key`, the second is the value.
const BAD: &[(&str, &str)] = &[
    ("the file.version", "4"),
    ("the file.workflows", "{'': {}}"),
    ("a project.dir", "''"),
    ("a project.dir", "' '"),
    ("a project.dir", "../a"),
    ("a project.dir", "'a['"),
    ("a project.name", "a b"),
    ("a project.branch", "/(/"),
    ("a project.workspace", "$x"),
    ("a project.workflow", "quack"),
    ("a project.terraform_version", "'>= 1.5'"),
    ("a project.depends_on", "[netwrk]"),
    ("a project.execution_order_group", "1.5"),
    ("a project.apply_requirements", "[policies_passed]"),
    ("a project.plan_requirements", "[aproved]"),
    ("a project.plan_requirements", "['approved: {stale: true}']"),
    ("a project.plan_requirements", "[mergeable: {stale: true}]"),
    ("`autoplan`.when_modified", "['[']"),
    ("`autodiscover`.ignore_paths", "[/legacy]"),
    ("`autodiscover`.ignore_paths", "[../legacy]"),
    ("`repo_locks`.mode", "on_aply"),
    ("`repo_locks`.ttl", "72"),
    ("a stage.steps", "[pln]"),
    ("`run`.output", "hiden"),
    ("`run`.policy_set", "' '"),
    ("`env`.name", "A-B"),
    ("an item of `output`.filter_regex", "'('"),
    ("a hook.run", "''"),
    ("a hook.commands", "planning"),
    ("a hook.commands", "'plan, aply'"),
    ("a hook.shell", "''"),
    ("an entry of `repos`.id", "acme"),
    ("an entry of `repos`.branch", "main"),
    ("an entry of `repos`.repo_config_file", "/etc/passwd"),
    ("an entry of `repos`.repo_config_file", "../x.yaml"),
    ("an entry of `repos`.repo_config_file", "."),
    ("an entry of `repos`.repo_config_source", "bas"),
    ("an entry of `repos`.workflow", "quik"),
    ("an entry of `repos`.allowed_workflows", "[quick, slow]"),
    ("an entry of `repos`.allowed_overrides", "[workflows]"),
    ("an entry of `repos`.silence_pr_comments", "[import]"),
    ("an entry of `repos`.import_requirements", "[approve]"),
    ("`repo_config_source`.branch", "a..b"),
    ("the file.environment_profiles", "{'': {}}"),
    ("an environment profile.plan", "[A-B]"),
    ("an environment profile.plan", "[AWS_*]"),
    ("an environment profile.plan", "[A=]"),
    ("an environment profile.plan", "[A=LOCKKEEPER_GH_TOKEN]"),
    ("an environment profile.plan", "[A=atlantis_gh_token]"),
    ("an environment profile.plan", "[DATABASE_URL=A]"),
    ("an environment profile.plan", "[PGPASSWORD]"),
    ("an environment profile.apply", "[A, B, A=C]"),
    ("an entry of `repos`.environment_profile", "prd"),
    (
        "an entry of `repos`.environment_profile",
        "[{workspace: prod, profile: prod}]",
    ),
    ("a rule of `environment_profile`.dir", "../a"),
    ("a rule of `environment_profile`.workspace", "../a"),
    ("a rule of `environment_profile`.profile", "staging"),
    ("`team_authz`.command", "' '"),
    ("`policies`.conftest_version", "latest"),
    ("`policies`.policy_item_regex", "'('"),
    ("a policy set.name", "' '"),
    ("a policy set.path", "../p"),
    ("a policy set.source", "github"),
    ("a policy set.branch", "a..b"),
    ("a policy set.repository", "acme"),
    ("a policy set.ref", "a..b"),
    ("a policy set.policy_item_regex", "''"),
    ("`when`.dirs", "['a[']"),
    ("`waivers`.branch", "a..b"),
    ("`waivers`.path", "."),
    ("the file.hosts", "[]"),
    (
        "the file.hosts",
        "[{host: A.test, app: {id: 1, key_file: /k}, webhook_secret_file: /w}, {host: a.test, app: {id: 2, key_file: /k}, webhook_secret_file: /w}]",
    ),
    ("an entry of `hosts`.host", "a b"),
    ("an entry of `hosts`.api_url", "github.example.com"),
    ("an entry of `hosts`.user", "' '"),
    ("an entry of `hosts`.token_file", "''"),
    ("an entry of `hosts`.webhook_secret_file", "''"),
    ("`app`.id", "0"),
    ("`app`.installation", "0"),
    ("`app`.key_file", "''"),
];

fn document(around: &SurroundingText, key: &str, value: &str) -> String {
    let (of, text, siblings) = around;
    let is_other_way = |other: &str| match (*of, key) {
        // `app` excludes `user` and `token_file`, because a host has one way in.
        (_, "app") => matches!(other, "user" | "token_file"),
        // Policies have one place.
        ("a policy set", "source" | "branch") => matches!(other, "repository" | "ref"),
        // Only steps have a format.
        ("a policy set", "format") => other == "engine",
        (_, _) => false,
    };
    // `value` excludes `command` and `shell`, because a value does not run.
    let is_needed =
        |other: &str| other != key && !is_other_way(other) && !(key == "value" && other != "name");
    let beside: Vec<String> = siblings
        .iter()
        .filter(|(other, _)| is_needed(other))
        .map(|(other, value)| format!(", {other}: {value}"))
        .collect();
    text.replace('%', &format!("{key}: {value}{}", beside.concat()))
}

/// Returns the document with only the required entries of the mapping.
fn without(around: &SurroundingText) -> String {
    let (_, text, siblings) = around;
    let all: Vec<String> = siblings
        .iter()
        .map(|(key, value)| format!("{key}: {value}"))
        .collect();
    text.replace('%', &all.join(", "))
}

fn wrong(kind: &KeyShape) -> &'static [&'static str] {
    match kind {
        KeyShape::Switch | KeyShape::Integer => &["colour", "[1]", "{a: b}"],
        KeyShape::Text => &["[a]", "{a: b}"],
        KeyShape::SlashedRegex => &["main", "[/a/]"],
        KeyShape::Words(_) => &["colour", "[a]"],
        KeyShape::List(_) => &["colour", "{a: b}", "[{colour: red}]"],
        KeyShape::Map(_) => &["colour", "[a]", "{colour: red}"],
        KeyShape::Named(_) => &["colour", "[a]", "{w: [a]}"],
        KeyShape::Any(_) => &["[[a]]", "{colour: red}"],
        KeyShape::WithoutEffect(kind, _) => wrong(kind),
        KeyShape::NotYet(_) => &["{colour: red}", "[a]"],
    }
}

/// Returns the permissions of a file that may set every key.
fn wide() -> RepoPermissions {
    let all: Vec<&str> = OverrideKey::ALL.iter().map(|key| key.as_str()).collect();
    let text = format!(
        "{{workflows: {{quick: {{}}}}, policies: {{policy_sets: [{{name: a, path: /p}}]}}, repos: [{{id: /.*/, \
         allow_custom_workflows: true, allowed_overrides: [{}]}}]}}",
        all.join(", ")
    );
    let repos = ServerRepos::parse("repos.yaml", &text).unwrap();
    repos
        .rules(&"github.com/acme/infra".parse().unwrap())
        .permissions()
        .clone()
}

type Parse = fn(&str) -> Result<(), YamlErrors>;

fn parse_repo(text: &str) -> Result<(), YamlErrors> {
    RepoConfig::parse("lockkeeper.yaml", text, &wide()).map(|_| ())
}

fn parse_narrow(text: &str) -> Result<(), YamlErrors> {
    RepoConfig::parse("lockkeeper.yaml", text, &RepoPermissions::default()).map(|_| ())
}

fn parse_server(text: &str) -> Result<(), YamlErrors> {
    ServerRepos::parse("repos.yaml", text).map(|_| ())
}

fn parse_hosts(text: &str) -> Result<(), YamlErrors> {
    HostsFile::named("hosts.yaml", text).check()
}

fn around(of: &str, all: &'static [SurroundingText]) -> &'static SurroundingText {
    all.iter()
        .find(|(name, ..)| *name == of)
        .unwrap_or_else(|| panic!("the keys of {of} have no test"))
}

fn told(errors: &YamlErrors) -> String {
    errors
        .problems()
        .map(|problem| format!("{} => {}", problem.what, problem.help))
        .collect::<Vec<_>>()
        .join("; ")
}

/// Parses all documents that a test can write with the key. Checks which of them are valid, and writes the messages.
fn check_key(parse: Parse, around: &SurroundingText, key: &DocumentedKey, out: &mut String) {
    let (of, ..) = around;
    if *of != "a step" {
        parse(&without(around))
            .unwrap_or_else(|errors| panic!("without {of}.{}: {errors}", key.name));
    }
    let example = document(around, key.name, key.doc.example);
    parse(&example).unwrap_or_else(|errors| panic!("{example}: {errors}"));
    writeln!(out, "{of}.{}: {}", key.name, key.doc.example).unwrap();
    let empty = parse(&document(around, key.name, ""));
    match (key.doc.default == KeyDoc::REQUIRED, empty) {
        (true, Err(errors)) => writeln!(out, "  (nothing) => {}", told(&errors)).unwrap(),
        (true, Ok(())) => panic!("{of}.{} may be empty", key.name),
        (false, Ok(())) => {}
        (false, Err(errors)) => assert!(
            [
                "`run`",
                "a step",
                "`env`",
                "an entry of `hosts`",
                "a policy set"
            ]
            .contains(of),
            "{of}.{}: {errors}",
            key.name
        ),
    }
    let path = format!("{of}.{}", key.name);
    let more = BAD
        .iter()
        .filter(|(name, _)| *name == path)
        .map(|(_, value)| *value);
    for value in wrong(&key.shape).iter().copied().chain(more) {
        let document = document(around, key.name, value);
        let errors = parse(&document).expect_err(&document);
        writeln!(out, "  {value} => {}", told(&errors)).unwrap();
    }
}

fn check_file(parse: Parse, top: &'static MappingKeys, all: &'static [SurroundingText]) -> String {
    let mut out = String::new();
    for keys in mappings(top) {
        for key in keys.list {
            check_key(parse, around(keys.of, all), key, &mut out);
        }
        check_unknown(parse, around(keys.of, all), keys);
    }
    out
}

/// Checks that a key without its last letter is an error that suggests the right name.
fn check_unknown(parse: Parse, around: &SurroundingText, keys: &MappingKeys) {
    for key in keys.list.iter().filter(|key| key.name.len() > 3) {
        let mistyped = &key.name[..key.name.len() - 1];
        let errors = parse(&document(around, mistyped, "x")).expect_err(mistyped);
        let told = told(&errors);
        assert!(
            told.contains(&format!("did you mean `{}`?", key.name)),
            "{mistyped} of {}: {told}",
            keys.of
        );
    }
}

#[test]
fn every_key_of_the_repositorys_file_has_its_row() {
    insta::assert_snapshot!(check_file(parse_repo, repo::RepoFileMapping::KEYS, REPO));
}

#[test]
fn every_key_of_the_servers_file_has_its_row() {
    insta::assert_snapshot!(check_file(
        parse_server,
        repos::ServerFileMapping::KEYS,
        SERVER
    ));
}

#[test]
fn every_key_of_the_file_of_hosts_has_its_row() {
    insta::assert_snapshot!(check_file(parse_hosts, HostsFileMapping::KEYS, HOSTS));
}

#[test]
fn every_bad_value_belongs_to_a_key() {
    let all = || {
        mappings(repo::RepoFileMapping::KEYS)
            .into_iter()
            .chain(mappings(repos::ServerFileMapping::KEYS))
            .chain(mappings(HostsFileMapping::KEYS))
    };
    for (path, value) in BAD {
        let is_it = |keys: &MappingKeys| {
            keys.list
                .iter()
                .any(|key| format!("{}.{}", keys.of, key.name) == *path)
        };
        assert!(all().any(is_it), "{path}: {value}");
    }
}

/// Compares the keys of Atlantis with the numbers and names of the reference.
#[test]
fn no_key_of_atlantis_is_missing() {
    let names = |keys: &MappingKeys| {
        let mut names: Vec<&str> = keys.names().collect();
        names.sort_unstable();
        names.join(" ")
    };
    let all = [
        repo::RepoFileMapping::KEYS,
        repo::ProjectMapping::KEYS,
        repos::ServerFileMapping::KEYS,
        repos::EntryMapping::KEYS,
    ];
    insta::assert_snapshot!(all.map(|keys| format!("{}: {}", keys.list.len(), names(keys))).join("\n"), @"
    14: abort_on_execution_order_fail allowed_regexp_prefixes autodiscover automerge delete_source_branch_on_merge emoji_reaction parallel_apply parallel_plan projects registry repo_locks silence_pr_comments version workflows
    19: apply_requirements autoplan branch custom_policy_check delete_source_branch_on_merge depends_on dir execution_order_group import_requirements name plan_requirements policy_check repo_locking repo_locks silence_pr_comments terraform_distribution terraform_version workflow workspace
    7: environment_profiles external_stores metrics policies repos team_authz workflows
    22: allow_custom_workflows allowed_overrides allowed_workflows apply_requirements autodiscover branch custom_policy_check delete_source_branch_on_merge environment_profile four_eyes id import_requirements plan_requirements policy_check post_workflow_hooks pre_workflow_hooks repo_config_file repo_config_source repo_locking repo_locks silence_pr_comments workflow
    ");
    // `registry`, `environment_profiles`, `environment_profile`, `repo_config_source` and `four_eyes` are keys of
    // Lockkeeper only. `policies` of the repository's file is refused as a key of the server.
    assert_eq!(
        all.map(|keys| keys.list.len()),
        [14 - 1 + 1, 19, 6 + 1, 19 + 3]
    );
}

/// Checks that the server refuses each key that needs permission, and names it.
#[test]
fn every_key_that_needs_permission_is_refused_without_it() {
    let mut refused = Vec::new();
    for (keys, of) in [
        (repo::RepoFileMapping::KEYS, "the file"),
        (repo::ProjectMapping::KEYS, "a project"),
    ] {
        for key in keys.list {
            let Err(errors) = parse_narrow(&document(around(of, REPO), key.name, key.doc.example))
            else {
                continue;
            };
            assert!(
                told(&errors).contains(&format!("`{}` may not be set here", key.name)),
                "{errors}"
            );
            refused.push(format!("{of}.{}", key.name));
        }
    }
    insta::assert_snapshot!(refused.join("\n"), @"
    the file.workflows
    the file.repo_locks
    the file.silence_pr_comments
    a project.workflow
    a project.plan_requirements
    a project.apply_requirements
    a project.import_requirements
    a project.repo_locks
    a project.repo_locking
    a project.silence_pr_comments
    a project.policy_check
    a project.custom_policy_check
    ");
}

/// Parses YAML as the validator of an editor does.
fn json(text: &str) -> serde_json::Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Values that a schema cannot check: existing names, syntax of expressions, and rules between keys.
const UNSEEN: &[&str] = &[
    "../a",
    "'a['",
    "a b",
    "/(/",
    "$x",
    "quack",
    "'>= 1.5'",
    "[netwrk]",
    "['[']",
    "[/legacy]",
    "[../legacy]",
    "72",
    "A-B",
    "'('",
    "''",
    "planning",
    "'plan, aply'",
    "acme",
    "/etc/passwd",
    "../x.yaml",
    ".",
    "quik",
    "[quick, slow]",
    "a..b",
    "' '",
    "{'': {}}",
    "eyes",
    "[A-B]",
    "[AWS_*]",
    "[A=]",
    "[A=LOCKKEEPER_GH_TOKEN]",
    "[A=atlantis_gh_token]",
    "[DATABASE_URL=A]",
    "[PGPASSWORD]",
    "[A, B, A=C]",
    "prd",
    "staging",
    "[]",
    "[{host: A.test, app: {id: 1, key_file: /k}, webhook_secret_file: /w}, {host: a.test, app: {id: 2, key_file: /k}, webhook_secret_file: /w}]",
    "github.example.com",
    "0",
    "latest",
    "../p",
    "['a[']",
];

#[test]
fn the_schemas_accept_the_examples_and_refuse_what_they_can_see() {
    let files = [
        (
            repo_schema(),
            repo::RepoFileMapping::KEYS,
            REPO,
            parse_repo as Parse,
        ),
        (
            server_schema(),
            repos::ServerFileMapping::KEYS,
            SERVER,
            parse_server,
        ),
        (hosts_schema(), HostsFileMapping::KEYS, HOSTS, parse_hosts),
    ];
    for (schema, top, all, parse) in files {
        let validator = jsonschema::draft202012::new(&schema).expect("the schema is one");
        for (keys, key) in mappings(top)
            .into_iter()
            .flat_map(|keys| keys.list.iter().map(move |key| (keys, key)))
        {
            let around = around(keys.of, all);
            let example = document(around, key.name, key.doc.example);
            assert!(validator.is_valid(&json(&example)), "{example}");
            let path = format!("{}.{}", keys.of, key.name);
            let more = BAD
                .iter()
                .filter(|(name, value)| *name == path && !UNSEEN.contains(value));
            for value in wrong(&key.shape)
                .iter()
                .copied()
                .chain(more.map(|(_, value)| *value))
            {
                let document = document(around, key.name, value);
                assert!(
                    parse(&document).is_err() && !validator.is_valid(&json(&document)),
                    "{document}"
                );
            }
        }
    }
}

/// Checks the shape of values that this version does not use yet, so that mistakes in them show now.
#[test]
fn the_shape_of_what_is_for_later_is_checked() {
    let texts = [
        "metrics: {statsd: {host: [a]}, prometeus: {}}",
        "external_stores: {plan_store: {type: s3, s3: {bucket: a, force_path_style: perhaps}}}",
        "external_stores: {plan_store: {type: gcs}}",
    ];
    let all = texts.map(|text| format!("{text}\n  {}\n", told(&parse_server(text).unwrap_err())));
    insta::assert_snapshot!(all.concat(), @"
    metrics: {statsd: {host: [a]}, prometeus: {}}
      `host` must be a text, not a list => write a text here; `prometeus` is not a key of `metrics` => did you mean `prometheus`?
    external_stores: {plan_store: {type: s3, s3: {bucket: a, force_path_style: perhaps}}}
      `external_stores` is not available in this version yet => remove it if you do not need it; Lockkeeper stops here, because ignoring it could be unsafe; `force_path_style` must be `true` or `false`, not `perhaps` => write `true` or `false` here
    external_stores: {plan_store: {type: gcs}}
      `external_stores` is not available in this version yet => remove it if you do not need it; Lockkeeper stops here, because ignoring it could be unsafe; `gcs` is not a value of `type` => write one of `s3`
    ");
}
