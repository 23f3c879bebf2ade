//! Tests whole files of the administrator, and the rules that follow from them for one project.

use std::fmt::Write as _;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::config::repo::{AllowedOverrides, OverrideKey, RepoConfig};
use crate::config::yaml::KeyShape;
use crate::model::{LockMode, LockScope, ProjectKey};

fn parse(text: &str) -> Result<ServerRepos, YamlErrors> {
    ServerRepos::parse("/etc/lockkeeper/repos.yaml", text)
}

/// Reads entries of `repos`, one for each line.
fn entries(lines: &[&str]) -> ServerRepos {
    let lines: Vec<_> = lines
        .iter()
        .map(|line| format!("  - {{{line}}}\n"))
        .collect();
    parse(&format!("repos:\n{}", lines.concat())).unwrap_or_else(|errors| panic!("{errors}"))
}

fn infra() -> RepoId {
    "github.com/acme/infra".parse().unwrap()
}

fn project(dir: &str) -> ProjectKey {
    ProjectKey::of_dir(dir.parse().unwrap())
}

fn policy(repos: &ServerRepos) -> LockPolicy {
    repos.rules(&infra()).lock_policy(None, &project("a"))
}

/// Lists every problem of every text: `text => what => help`.
fn told<'a>(texts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut told = String::new();
    for (shown, text) in texts {
        for problem in parse(&text).expect_err(shown).problems() {
            writeln!(
                told,
                "{} => {} => {}",
                shown.replace('\n', "\\n"),
                problem.what,
                problem.help
            )
            .unwrap();
        }
    }
    told
}

#[test]
fn every_key_is_read() {
    let text = "
repos:
  - id: /.*/
    repo_locks: {mode: on_apply, scope: project, ttl: 72h}
    allowed_overrides: [plan_requirements, apply_requirements, import_requirements, workflow,
      delete_source_branch_on_merge, repo_locking, repo_locks, policy_check, custom_policy_check, silence_pr_comments,
      fewer_requirements]
  - id: github.com/acme/infra
    repo_locking: yes
team_authz:
  command: /usr/local/bin/ask
  args: [--team, 7]
";
    let repos = parse(text).unwrap();
    insta::assert_snapshot!(policy(&repos), @"mode `on_apply` (line 3 of the server's `repos.yaml`, for `/.*/`), scope `project` (line 3 of the server's `repos.yaml`, for `/.*/`), ttl `72h` (line 3 of the server's `repos.yaml`, for `/.*/`)");
    let rules = repos.rules(&infra());
    assert!(
        OverrideKey::ALL
            .iter()
            .all(|key| rules.allowed_overrides().allows(*key))
    );
    let args = vec!["--team".to_owned(), "7".to_owned()];
    assert_eq!(
        repos.team_authz,
        Some(TeamAuthz {
            command: "/usr/local/bin/ask".to_owned(),
            args
        })
    );
    assert_eq!(
        repos.warnings(),
        ["repos.yaml line 8: `repo_locking` is deprecated: remove it"]
    );
    assert_eq!(rules.ttl(), repos.shortest_ttl());
}

#[test]
fn files_that_say_nothing_leave_the_defaults() {
    for text in [
        "{}",
        "repos:\n",
        "repos: []\nteam_authz:\n",
        "repos: [{id: /.*/, repo_locks: , allowed_overrides: }]",
    ] {
        let repos = parse(text).unwrap();
        let rules = repos.rules(&infra());
        assert_eq!(
            rules.lock_policy(None, &project("a")),
            policy(&ServerRepos::default()),
            "{text}"
        );
        assert_eq!(
            *rules.allowed_overrides(),
            AllowedOverrides::default(),
            "{text}"
        );
        assert_eq!(repos.team_authz, None);
    }
    insta::assert_snapshot!(policy(&ServerRepos::default()), @"mode `on_plan` (the default), scope `workspace` (the default), ttl `none` (the default)");
}

/// Entries and their result: mode, scope, ttl in hours, and the lines that decided them (0: the default).
type Case = (
    &'static [&'static str],
    (LockMode, LockScope, Option<u64>),
    [usize; 3],
);

#[test]
fn of_each_key_the_last_entry_that_sets_it_counts() {
    use LockMode::{Disabled, OnApply, OnPlan};
    use LockScope::{Project, Workspace};
    let cases: &[Case] = &[
        (&[], (OnPlan, Workspace, None), [0, 0, 0]),
        (&["id: /.*/"], (OnPlan, Workspace, None), [0, 0, 0]),
        (
            &["id: /.*/, repo_locks: {mode: on_apply}"],
            (OnApply, Workspace, None),
            [2, 0, 0],
        ),
        (
            &["id: /.*/, repo_locks: {scope: project}"],
            (OnPlan, Project, None),
            [0, 2, 0],
        ),
        (
            &["id: /.*/, repo_locks: {ttl: 3d}"],
            (OnPlan, Workspace, Some(72)),
            [0, 0, 2],
        ),
        (
            &["id: github.com/acme/other, repo_locks: {mode: disabled}"],
            (OnPlan, Workspace, None),
            [0, 0, 0],
        ),
        (
            &[
                "id: /.*/, repo_locks: {mode: on_apply, ttl: 72h}",
                "id: github.com/acme/infra, repo_locks: {mode: on_plan}",
            ],
            (OnPlan, Workspace, Some(72)),
            [3, 0, 2],
        ),
        (
            &[
                "id: github.com/acme/infra, repo_locks: {mode: disabled}",
                "id: /.*/, repo_locks: {mode: on_apply}",
            ],
            (OnApply, Workspace, None),
            [3, 0, 0],
        ),
        (
            &[
                "id: /.*/, repo_locks: {ttl: 1h, scope: project}",
                "id: /.*acme.*/, repo_locks: {ttl: none, scope: workspace}",
            ],
            (OnPlan, Workspace, None),
            [0, 3, 3],
        ),
        // A block without keys means `on_plan`, as in Atlantis.
        (
            &[
                "id: /.*/, repo_locks: {mode: disabled}",
                "id: /.*/, repo_locks: {}",
            ],
            (OnPlan, Workspace, None),
            [3, 0, 0],
        ),
        (
            &[
                "id: /.*/, repo_locks: {mode: disabled}",
                "id: /.*/, repo_locks:",
            ],
            (Disabled, Workspace, None),
            [2, 0, 0],
        ),
        // The old form overrides the new one, until a later entry changes it.
        (
            &["id: /.*/, repo_locking: false, repo_locks: {mode: on_apply}"],
            (Disabled, Workspace, None),
            [2, 0, 0],
        ),
        (
            &[
                "id: /.*/, repo_locking: false",
                "id: /.*/, repo_locks: {mode: on_apply}",
            ],
            (Disabled, Workspace, None),
            [2, 0, 0],
        ),
        (
            &[
                "id: /.*/, repo_locking: false",
                "id: /.*/, repo_locking: true, repo_locks: {mode: on_apply}",
            ],
            (OnApply, Workspace, None),
            [3, 0, 0],
        ),
        (
            &["id: /.*/, repo_locking: true, repo_locks: {mode: disabled}"],
            (Disabled, Workspace, None),
            [2, 0, 0],
        ),
        // An expression must fit the whole id.
        (
            &["id: /acme/, repo_locks: {mode: disabled}"],
            (OnPlan, Workspace, None),
            [0, 0, 0],
        ),
    ];
    for (lines, expected, deciders) in cases {
        let LockPolicy {
            mode,
            scope,
            ttl,
            decided_by,
        } = policy(&entries(lines));
        assert_eq!(
            (mode, scope, ttl.map(|ttl| ttl.as_secs() / 3600)),
            *expected,
            "{lines:?}"
        );
        let lines_of =
            [decided_by.mode, decided_by.scope, decided_by.ttl].map(|decider| line_of(&decider));
        assert_eq!(lines_of, *deciders, "{lines:?}");
    }
}

const PROFILES: &str = "environment_profiles: {dev: {}, lab: {}, prod: {plan: [A=PROD_A]}}\n";

#[test]
fn the_profile_of_a_project_is_that_of_the_last_rule_that_fits() {
    const RULES: &str = "[{dir: '**', profile: dev}, {dir: prod/**, profile: prod}, {dir: app, workspace: prod, profile: prod}, \
                         {dir: 'lab-*', profile: lab}]";
    let cases = [
        ("", "infra", "default", "none"),
        ("environment_profile: dev", "infra", "default", "dev"),
        ("environment_profile: dev", ".", "prod", "dev"),
        (RULES, ".", "default", "dev"),
        (RULES, "infra/a", "default", "dev"),
        (RULES, "prod", "default", "prod"),
        (RULES, "prod/network", "prod", "prod"),
        (RULES, "not/prod", "default", "dev"),
        (RULES, "production", "default", "dev"),
        (RULES, "app", "default", "dev"),
        (RULES, "app", "prod", "prod"),
        (RULES, "app/deep", "prod", "dev"),
        (RULES, "lab-1", "default", "lab"),
    ];
    for (says, dir, workspace, expected) in cases {
        let says = if says.starts_with('[') {
            format!("environment_profile: {says}")
        } else {
            says.to_owned()
        };
        let repos = parse(&format!(
            "{PROFILES}repos:\n- {{id: github.com/acme/infra, {says}}}"
        ))
        .unwrap();
        let key = ProjectKey {
            workspace: workspace.parse().unwrap(),
            ..project(dir)
        };
        let found = repos
            .rules(&infra())
            .project(None, &key)
            .environment_profile;
        assert_eq!(
            found.map_or("none".to_owned(), |profile| profile.value),
            expected,
            "{says}: {dir} {workspace}"
        );
        let other = repos.rules(&"github.com/acme/other".parse().unwrap());
        assert_eq!(
            other.project(None, &key).environment_profile,
            None,
            "{says}"
        );
    }
}

/// Checks that a repository cannot choose a profile: a pull request controls its names, workspaces and files.
#[test]
fn a_repository_chooses_no_profile() {
    let all = parse(&format!(
        "{PROFILES}repos:\n- id: /.*/\n  allow_custom_workflows: true\n  environment_profile: [{{dir: prod, profile: prod}}]\n  \
         allowed_overrides: [{}]",
        OverrideKey::ALL
            .iter()
            .map(|key| key.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    ));
    let rules = all.unwrap().rules(&infra());
    for text in [
        "environment_profile: prod",
        "environment_profiles: {prod: {}}",
        "projects: [{dir: a, environment_profile: prod}]",
    ] {
        let errors = RepoConfig::parse(
            "atlantis.yaml",
            &format!("version: 3\n{text}"),
            rules.permissions(),
        )
        .unwrap_err();
        assert!(
            errors
                .to_string()
                .contains("can be set only on the server, not by a pull request"),
            "{text}: {errors}"
        );
    }
    let text =
        "version: 3\nprojects: [{dir: evil, name: prod, workspace: prod, workflow: default}]";
    let config = RepoConfig::parse("atlantis.yaml", text, rules.permissions()).unwrap();
    let key = ProjectKey {
        workspace: "prod".parse().unwrap(),
        name: Some("prod".parse().unwrap()),
        ..project("evil")
    };
    assert_eq!(rules.project(Some(&config), &key).environment_profile, None);
}

#[test]
fn profiles_that_mean_nothing_are_refused_with_the_reason() {
    let texts = [
        "environment_profile: prd",
        "environment_profile: 'off'",
        "environment_profile: [{workspace: prod, profile: prod}]",
        "environment_profile: [{dir: prod}]",
        "environment_profile: {dir: prod, profile: prod}",
    ];
    insta::assert_snapshot!(told(texts.map(|says| (says, format!("{PROFILES}repos: [{{id: /.*/, {says}}}]")))), @"
    environment_profile: prd => there is no environment profile `prd` => did you mean `prod`?
    environment_profile: 'off' => there is no environment profile `off` => define it under `environment_profiles`; the defined ones are `dev`, `lab`, `prod`
    environment_profile: [{workspace: prod, profile: prod}] => a rule of `environment_profile` has no `dir` => name the directories that may use the profile, such as `dir: prod/**`, because a pull request can set any workspace
    environment_profile: [{dir: prod}] => a rule of `environment_profile` has no `profile` => name one of `environment_profiles`
    environment_profile: {dir: prod, profile: prod} => `environment_profile` must be a name or a list of rules, not a mapping => write a name or a list of rules here
    ");
    let lists = [
        "[A-B]",
        "[PATH]",
        "[A=PGPASSWORD]",
        "[A=LOCKKEEPER_GH_TOKEN]",
        "[A, A=B]",
        "A",
    ];
    insta::assert_snapshot!(told(lists.map(|list| (list, format!("environment_profiles: {{prod: {{plan: {list}}}}}")))), @"
    [A-B] => `A-B` is not a valid name of a variable => write `NAME`, or `NAME=SOURCE` with the name of a variable of the server; do not write values here
    [PATH] => `PATH` stays in the environment of the server's process, so it cannot be limited to one profile => set the value on the server under another name, and write `NAME=SOURCE` here
    [A=PGPASSWORD] => `PGPASSWORD` is a setting of the server, which runs never get => remove it; if a provider needs the secret, set it on the server under a second name
    [A=LOCKKEEPER_GH_TOKEN] => `LOCKKEEPER_GH_TOKEN` is a setting of the server, which runs never get => remove it; if a provider needs the secret, set it on the server under a second name
    [A, A=B] => `A` is in `plan` twice => keep one of the two
    A => `plan` must be a list, not `A` => write a list here
    ");
}

fn line_of(decider: &Decider) -> usize {
    match decider {
        Decider::Default => 0,
        Decider::Server { line, .. } | Decider::Repo { line, .. } => *line,
        Decider::Flag(flag) => panic!("--{flag} was not given"),
    }
}

#[test]
fn the_last_list_of_overrides_counts_an_empty_one_too() {
    const MANY: &str = "id: /.*/, allowed_overrides: [repo_locks, workflow]";
    for (lines, locks, workflow) in [
        (&[][..], false, false),
        (&[MANY], true, true),
        (&[MANY, "id: /.*/"], true, true),
        (
            &[MANY, "id: /.*/, allowed_overrides: [workflow]"],
            false,
            true,
        ),
        (&[MANY, "id: /.*/, allowed_overrides: []"], false, false),
        (
            &[MANY, "id: github.com/acme/other, allowed_overrides: []"],
            true,
            true,
        ),
    ] {
        let rules = entries(lines).rules(&infra());
        let allows = |key| rules.allowed_overrides().allows(key);
        assert_eq!(
            (
                allows(OverrideKey::RepoLocks),
                allows(OverrideKey::Workflow)
            ),
            (locks, workflow),
            "{lines:?}"
        );
    }
}

/// Returns a repository with `on_apply` at its top and `disabled` for `b` in line 5.
fn outspoken() -> RepoConfig {
    let text = "version: 3\nrepo_locks: {mode: on_apply}\nprojects:\n- dir: a\n- {dir: b, repo_locks: {mode: disabled}}\n";
    RepoConfig::parse(
        "atlantis.yaml",
        text,
        &[OverrideKey::RepoLocks].into_iter().collect(),
    )
    .unwrap()
}

#[test]
fn a_repository_is_heard_where_it_is_allowed_its_projects_most() {
    const SERVER: &str = "id: /.*/, repo_locks: {mode: on_plan, ttl: 1h}";
    const MAY: &str = "id: /.*/, allowed_overrides: [repo_locks]";
    let mode = |repos: &ServerRepos, dir: &str| {
        let policy = repos
            .rules(&infra())
            .lock_policy(Some(&outspoken()), &project(dir));
        format!("{dir}: `{}` by {}\n", policy.mode, policy.decided_by.mode)
    };
    let worlds = [
        ("nothing is allowed", entries(&[SERVER])),
        (
            "something else is allowed",
            entries(&[
                SERVER,
                "id: /.*/, allowed_overrides: [repo_locking, workflow]",
            ]),
        ),
        ("it is allowed", entries(&[SERVER, MAY])),
        (
            "it is allowed, and the old form says no",
            entries(&[MAY, "id: /.*/, repo_locking: false"]),
        ),
        (
            "all locking is off",
            entries(&[SERVER, MAY]).without_locking(),
        ),
    ];
    let mut told = String::new();
    for (world, repos) in worlds {
        let modes = ["a", "b", "c"].map(|dir| mode(&repos, dir)).concat();
        writeln!(told, "{world}\n{modes}").unwrap();
    }
    insta::assert_snapshot!(told, @"
    nothing is allowed
    a: `on_plan` by line 2 of the server's `repos.yaml`, for `/.*/`
    b: `on_plan` by line 2 of the server's `repos.yaml`, for `/.*/`
    c: `on_plan` by line 2 of the server's `repos.yaml`, for `/.*/`

    something else is allowed
    a: `on_plan` by line 2 of the server's `repos.yaml`, for `/.*/`
    b: `on_plan` by line 2 of the server's `repos.yaml`, for `/.*/`
    c: `on_plan` by line 2 of the server's `repos.yaml`, for `/.*/`

    it is allowed
    a: `on_apply` by line 2 of `atlantis.yaml`
    b: `disabled` by line 5 of `atlantis.yaml`
    c: `on_apply` by line 2 of `atlantis.yaml`

    it is allowed, and the old form says no
    a: `on_apply` by line 2 of `atlantis.yaml`
    b: `disabled` by line 5 of `atlantis.yaml`
    c: `on_apply` by line 2 of `atlantis.yaml`

    all locking is off
    a: `disabled` by `--disable-repo-locking` of the server
    b: `disabled` by `--disable-repo-locking` of the server
    c: `disabled` by `--disable-repo-locking` of the server
    ");
}

#[test]
fn a_file_that_cannot_be_read_leaves_no_lock_out() {
    const OFF: &str = "id: /.*/, repo_locks: {mode: disabled, ttl: 1h}";
    const LATE: &str = "id: /.*/, repo_locks: {mode: on_apply}";
    const MAY: &str = "id: /.*/, allowed_overrides: [repo_locks]";
    for (repos, expected) in [
        (entries(&[]), LockMode::OnPlan),
        (entries(&[OFF]), LockMode::Disabled),
        (entries(&[OFF, MAY]), LockMode::OnPlan),
        (entries(&[LATE, MAY]), LockMode::OnApply),
        (entries(&[OFF, MAY]).without_locking(), LockMode::Disabled),
    ] {
        let (unread, alone) = (repos.rules(&infra()).lock_policy_unread(), policy(&repos));
        assert_eq!(
            (unread.mode, unread.ttl, unread.scope),
            (expected, alone.ttl, alone.scope),
            "{repos:?}"
        );
    }
}

#[test]
fn entries_that_fit_a_part_only_are_named() {
    let repos = entries(&[
        "id: /acme/, repo_locks: {mode: disabled}",
        "id: /.*/",
        r"id: /^github\.com\/acme\/.*/",
        "id: /x/",
    ]);
    let rules = repos.rules(&infra());
    let named: Vec<_> = rules
        .near_misses()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(named, ["line 2 of the server's `repos.yaml`, for `/acme/`"]);
}

#[test]
fn every_bad_value_is_named() {
    let lines = [
        "id: [a]",
        "id:",
        "id: acme/infra",
        "id: /(/",
        "id: /.*/, repo_locks: on_plan",
        "id: /.*/, repo_locks: {mode: on_plann}",
        "id: /.*/, repo_locks: {mode: true}",
        "id: /.*/, repo_locks: {scope: projects}",
        "id: /.*/, repo_locks: {scope: directory}",
        "id: /.*/, repo_locks: {ttl: 72}",
        "id: /.*/, repo_locks: {ttl: 0h}",
        "id: /.*/, repo_locks: {ttl: 800d}",
        "id: /.*/, repo_locks: {ttl: [72h]}",
        "id: /.*/, repo_locks: {tll: 72h}",
        "id: /.*/, repo_locking: maybe",
        "id: /.*/, allowed_overrides: repo_locks",
        "id: /.*/, allowed_overrides: [repo_lock, colour, [workflow]]",
        "id: /.*/, allowed_override: []",
        "id: /.*/, parallel_limit: 3",
    ];
    let texts = lines.map(|line| (line, format!("repos:\n  - {{{line}}}\n")));
    insta::assert_snapshot!(told(texts), @r"
    id: [a] => `id` must be a text, not a list => write a text here
    id: => an entry of `repos` has no `id` => name its repositories: `id: github.com/acme/infra`, or `id: /.*/`
    id: acme/infra => `acme/infra` is neither a repository nor a regular expression between slashes => write `host/owner/repo`, or an expression such as `/github\.com/acme/.*/` (`/.*/` is every repository)
    id: /(/ => `/(/` is not a regular expression: unclosed group => see https://docs.rs/regex/#syntax; the syntax is almost that of Go
    id: /.*/, repo_locks: on_plan => `repo_locks` must be a mapping, not `on_plan` => write a mapping here
    id: /.*/, repo_locks: {mode: on_plann} => `on_plann` is not a value of `mode` => did you mean `on_plan`? The words are `on_plan`, `on_apply`, `disabled`
    id: /.*/, repo_locks: {mode: true} => `true` is not a value of `mode` => write one of `on_plan`, `on_apply`, `disabled`
    id: /.*/, repo_locks: {scope: projects} => `projects` is not a value of `scope` => did you mean `project`? The words are `workspace`, `project`
    id: /.*/, repo_locks: {scope: directory} => `directory` is not a value of `scope` => write one of `workspace`, `project`
    id: /.*/, repo_locks: {ttl: 72} => `72` is not a valid idle time of a lock => write a time of up to a year, such as `72h` or `3d`, or `none` for no limit
    id: /.*/, repo_locks: {ttl: 0h} => `0h` is not a valid idle time of a lock => write a time of up to a year, such as `72h` or `3d`, or `none` for no limit
    id: /.*/, repo_locks: {ttl: 800d} => `800d` is not a valid idle time of a lock => write a time of up to a year, such as `72h` or `3d`, or `none` for no limit
    id: /.*/, repo_locks: {ttl: [72h]} => `ttl` must be a text, not a list => write a text here
    id: /.*/, repo_locks: {tll: 72h} => `tll` is not a key of `repo_locks` => did you mean `ttl`?
    id: /.*/, repo_locking: maybe => `repo_locking` must be `true` or `false`, not `maybe` => write `true` or `false` here
    id: /.*/, allowed_overrides: repo_locks => `allowed_overrides` must be a list, not `repo_locks` => write a list here
    id: /.*/, allowed_overrides: [repo_lock, colour, [workflow]] => `repo_lock` is not an item of `allowed_overrides` => did you mean `repo_locks`? The words are `plan_requirements`, `apply_requirements`, `import_requirements`, `workflow`, `delete_source_branch_on_merge`, `repo_locking`, `repo_locks`, `policy_check`, `custom_policy_check`, `silence_pr_comments`, `fewer_requirements`
    id: /.*/, allowed_overrides: [repo_lock, colour, [workflow]] => `colour` is not an item of `allowed_overrides` => write one of `plan_requirements`, `apply_requirements`, `import_requirements`, `workflow`, `delete_source_branch_on_merge`, `repo_locking`, `repo_locks`, `policy_check`, `custom_policy_check`, `silence_pr_comments`, `fewer_requirements`
    id: /.*/, allowed_overrides: [repo_lock, colour, [workflow]] => an item of `allowed_overrides` must be a text, not a list => write a text here
    id: /.*/, allowed_override: [] => `allowed_override` is not a key of an entry of `repos` => did you mean `allowed_overrides`?
    id: /.*/, parallel_limit: 3 => `parallel_limit` is not a key of an entry of `repos` => the keys of an entry of `repos` are `id`, `branch`, `repo_config_file`, `repo_config_source`, `plan_requirements`, `apply_requirements`, `import_requirements`, `four_eyes`, `environment_profile`, `pre_workflow_hooks`, `post_workflow_hooks`, `workflow`, `allowed_workflows`, `allowed_overrides`, `allow_custom_workflows`, `repo_locks`, `repo_locking`, `autodiscover`, `silence_pr_comments`, `policy_check`, `custom_policy_check`, `delete_source_branch_on_merge`
    ");
    let texts = [
        "",
        "[]",
        "repos",
        "repos: {id: a}",
        "repos: [a]",
        "repo: []",
        "projects: []",
        "team_authz: ask",
        "team_authz: {}",
        "team_authz: {args: [a]}",
        "team_authz: {command: ' '}",
        "team_authz: {command: [a], args: b}",
        "team_authz: {command: a, arg: b}",
    ];
    insta::assert_snapshot!(told(texts.map(|text| (text, text.to_owned()))), @"
     => the file is empty => write `repos:` and its entries, or start the server without this file
    [] => the file must be a mapping, not a list => write a mapping here
    repos => the file must be a mapping, not `repos` => write a mapping here
    repos: {id: a} => `repos` must be a list, not a mapping => write a list here
    repos: [a] => an entry of `repos` must be a mapping, not `a` => write a mapping here
    repo: [] => `repo` is not a key of the file => did you mean `repos`?
    projects: [] => `projects` is not a key of the file => the keys of the file are `repos`, `workflows`, `environment_profiles`, `team_authz`, `policies`, `metrics`, `external_stores`
    team_authz: ask => `team_authz` must be a mapping, not `ask` => write a mapping here
    team_authz: {} => `team_authz` has no `command`, so there is no program to ask => name the command that decides about permissions, or remove `team_authz`
    team_authz: {args: [a]} => `team_authz` has no `command`, so there is no program to ask => name the command that decides about permissions, or remove `team_authz`
    team_authz: {command: ' '} => the `command` of `team_authz` is empty, so there is no program to ask => name the command that decides about permissions, or remove `team_authz`
    team_authz: {command: [a], args: b} => `command` must be a text, not a list => write a text here
    team_authz: {command: [a], args: b} => `args` must be a list, not `b` => write a list here
    team_authz: {command: a, arg: b} => `arg` is not a key of `team_authz` => did you mean `args`?
    ");
}

#[test]
fn what_is_for_later_is_refused_by_name() {
    let mut told = String::new();
    for (keys, text) in [
        (ServerFileMapping::KEYS, "repos: []\n"),
        (EntryMapping::KEYS, "repos:\n  - id: /.*/\n    "),
    ] {
        for key in keys.list {
            if !matches!(key.shape, KeyShape::NotYet(_)) {
                continue;
            }
            let error = parse(&format!("{text}{}: {{}}\n", key.name)).expect_err(key.name);
            let all: Vec<_> = error
                .problems()
                .map(|problem| problem.what.as_str())
                .collect();
            writeln!(told, "{}", all.join(" + ")).unwrap();
            parse(&format!("{text}{}:\n", key.name)).unwrap();
        }
    }
    insta::assert_snapshot!(told, @"`external_stores` is not available in this version yet");
    // Reference 5.1 and 5.2 count 6 and 19 keys. Lockkeeper adds four.
    assert_eq!(ServerFileMapping::KEYS.list.len(), 6 + 1);
    assert_eq!(EntryMapping::KEYS.list.len(), 19 + 3);
}

#[test]
fn all_problems_are_told_at_once_with_their_places() {
    let text = "repos:\n  - id: /.*/\n    repo_locks: {mode: on_aply}\n    workflow: custom\n  - branch: /main/\nteam_auth: {}\n";
    insta::assert_snapshot!(parse(text).unwrap_err(), @"
    error: `on_aply` is not a value of `mode`
     --> /etc/lockkeeper/repos.yaml:3:24
      |
    3 |     repo_locks: {mode: on_aply}
      |                        ^^^^^^^
      = help: did you mean `on_apply`? The words are `on_plan`, `on_apply`, `disabled`

    error: there is no workflow `custom`
     --> /etc/lockkeeper/repos.yaml:4:15
      |
    4 |     workflow: custom
      |               ^^^^^^
      = help: define it under `workflows`; the defined ones are `default`

    error: an entry of `repos` has no `id`
     --> /etc/lockkeeper/repos.yaml:5:5
      |
    5 |   - branch: /main/
      |     ^
      = help: name its repositories: `id: github.com/acme/infra`, or `id: /.*/`

    error: `team_auth` is not a key of the file
     --> /etc/lockkeeper/repos.yaml:6:1
      |
    6 | team_auth: {}
      | ^^^^^^^^^
      = help: did you mean `team_authz`?
    ");
}

#[test]
fn json_is_read_like_yaml() {
    let text = "{\n\t\"repos\": [\n\t\t{ \"id\": \"/github\\\\.com\\/acme\\/.*/\", \"repo_locks\": { \"mode\": \"on_apply\" } }\n\t]\n}";
    assert_eq!(policy(&parse(text).unwrap()).mode, LockMode::OnApply);
}

#[test]
fn the_examples_of_the_page_about_locks_do_what_it_says() {
    let page = include_str!("../../../../../docs/locking.md");
    let blocks: Vec<&str> = page
        .split("```yaml ")
        .skip(1)
        .filter_map(|rest| rest.split_once('\n')?.1.split("```").next())
        .collect();
    let [server, repo] = blocks[..] else {
        panic!("the page has two examples: {blocks:?}")
    };
    let repos = parse(server).unwrap_or_else(|errors| panic!("{errors}"));
    let (rules, sandbox) = (
        repos.rules(&infra()),
        repos.rules(&"github.com/acme/sandbox".parse().unwrap()),
    );
    let config = RepoConfig::parse("atlantis.yaml", repo, rules.permissions());
    let config = config.unwrap_or_else(|errors| panic!("{errors}"));
    let modes = ["network", "app"].map(|dir| rules.lock_policy(Some(&config), &project(dir)).mode);
    assert_eq!(modes, [LockMode::OnPlan, LockMode::OnApply]);
    let policy = sandbox.lock_policy(Some(&config), &project("network"));
    assert_eq!(
        (policy.mode, policy.ttl),
        (LockMode::Disabled, Some(Duration::from_hours(72)))
    );
}

#[test]
fn limits_are_told() {
    let many = |count: usize| {
        format!(
            "repos:\n{}",
            "  - {id: github.com/acme/infra}\n".repeat(count)
        )
    };
    assert!(parse(&many(ServerRepos::MAX_ENTRIES)).is_ok());
    let told = [
        many(ServerRepos::MAX_ENTRIES + 1),
        " ".repeat(ServerRepos::MAX_BYTES + 1),
    ];
    let told = told.map(|text| parse(&text).unwrap_err().to_string());
    insta::assert_snapshot!(told.join("\n\n"), @"
    error: there are 1001 entries of `repos`; the maximum is 1000
     --> /etc/lockkeeper/repos.yaml
      = help: use one regular expression for repositories with the same rules

    error: the file is larger than 1048576 bytes
     --> /etc/lockkeeper/repos.yaml
      = help: use one regular expression for repositories with the same rules
    ");
}

/// Settings of a random entry.
#[derive(Debug, Clone)]
struct RandomSettings {
    is_about_us: bool,
    mode: Option<LockMode>,
    scope: Option<LockScope>,
    /// Hours; 0 stands for no limit.
    ttl: Option<u64>,
    locking: Option<bool>,
}

impl RandomSettings {
    fn any() -> impl Strategy<Value = Self> {
        let mode = prop::option::of(prop::sample::select(LockMode::ALL));
        let scope = prop::option::of(prop::sample::select(LockScope::ALL));
        let ttl = prop::option::of(0_u64..1000);
        let all = (
            any::<bool>(),
            mode,
            scope,
            ttl,
            prop::option::of(any::<bool>()),
        );
        all.prop_map(|(is_about_us, mode, scope, ttl, locking)| Self {
            is_about_us,
            mode,
            scope,
            ttl,
            locking,
        })
    }

    fn text(&self) -> String {
        let id = if self.is_about_us {
            "/github.com/acme/.*/"
        } else {
            "github.com/acme/other"
        };
        let ttl = |hours: u64| {
            if hours == 0 {
                "none".to_owned()
            } else {
                format!("{hours}h")
            }
        };
        let lines = [
            Some(format!("  - id: {id}\n    repo_locks:\n")),
            self.mode.map(|mode| format!("      mode: {mode}\n")),
            self.scope.map(|scope| format!("      scope: {scope}\n")),
            self.ttl.map(|hours| format!("      ttl: {}\n", ttl(hours))),
            self.locking
                .map(|locking| format!("    repo_locking: {locking}\n")),
        ];
        lines.into_iter().flatten().collect()
    }
}

fn many() -> impl Strategy<Value = Vec<RandomSettings>> {
    proptest::collection::vec(RandomSettings::any(), 0..6)
}

fn written(list: &[RandomSettings], more: &str) -> ServerRepos {
    parse(&format!(
        "repos:\n{}{more}\nteam_authz:\n",
        list.iter().map(RandomSettings::text).collect::<String>()
    ))
    .unwrap()
}

const FREE: &str = "  - {id: /.*/, allowed_overrides: [repo_locks]}";

proptest! {
    #[test]
    fn no_text_makes_parsing_panic(text in r"(?s).{0,200}") {
        if let Err(errors) = parse(&text) {
            prop_assert!(errors.to_string().contains("help:"));
        }
    }

    /// Compares the merge with a simple definition: search from the end for the first entry that sets the key.
    #[test]
    fn merging_is_looking_for_the_last_word(list in many()) {
        let read = policy(&written(&list, ""));
        let ours = || list.iter().rev().filter(|said| said.is_about_us);
        let off = ours().find_map(|said| said.locking) == Some(false);
        let mode = if off { LockMode::Disabled } else { ours().find_map(|said| said.mode).unwrap_or_default() };
        let ttl = ours().find_map(|said| said.ttl).filter(|hours| *hours > 0).map(Duration::from_hours);
        let scope = ours().find_map(|said| said.scope).unwrap_or_default();
        prop_assert_eq!((read.mode, read.scope, read.ttl), (mode, scope, ttl));
    }

    #[test]
    fn without_locking_nothing_locks(list in many(), dir in "[abc]") {
        let rules = written(&list, FREE).without_locking().rules(&infra());
        prop_assert_eq!(rules.lock_policy(Some(&outspoken()), &project(&dir)).mode, LockMode::Disabled);
    }

    #[test]
    fn a_repository_changes_the_mode_only_and_only_if_it_may(list in many(), dir in "[abc]", free in any::<bool>()) {
        let rules = written(&list, if free { FREE } else { "" }).rules(&infra());
        let policy = |config| rules.lock_policy(config, &project(&dir));
        let (alone, heard) = (policy(None), policy(Some(&outspoken())));
        prop_assert_eq!((alone.scope, alone.ttl), (heard.scope, heard.ttl));
        prop_assert!(free || alone == heard);
    }
}
