//! Tests whole files: the configuration that is read, and the messages about mistakes.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::config::repos::ServerRepos;
use crate::config::workflow::{Builtin, Stage};
use crate::model::LockMode;

fn parse(text: &str) -> Result<RepoConfig, YamlErrors> {
    RepoConfig::parse("atlantis.yaml", text, &RepoPermissions::default())
}

/// Parses with the permission to set `repo_locks`.
fn parse_locks(text: &str) -> Result<RepoConfig, YamlErrors> {
    RepoConfig::parse(
        "atlantis.yaml",
        text,
        &[OverrideKey::RepoLocks].into_iter().collect(),
    )
}

fn errors(text: &str) -> String {
    parse(text)
        .expect_err("the file should be refused")
        .to_string()
}

/// Returns a file with one project that has one more line.
fn with_line(line: &str) -> String {
    format!("version: 3\nprojects:\n  - dir: a\n    {line}\n")
}

fn show(config: &RepoConfig) -> String {
    let mut text = format!(
        "parallel: {:?} {:?}\n",
        config.parallel_plan, config.parallel_apply
    );
    for project in &config.projects {
        let name = project.name.as_ref().map_or("-", |name| name.as_str());
        let version = project
            .terraform_version
            .as_ref()
            .map_or("-".to_owned(), ToString::to_string);
        let Autoplan {
            enabled,
            when_modified,
        } = &project.autoplan;
        let patterns: Vec<_> = when_modified.texts().collect();
        let ProjectConfig {
            dir,
            workspace,
            line,
            ..
        } = project;
        writeln!(
            text,
            "{line}: {name} {dir} {workspace} {version} {enabled} {patterns:?}"
        )
        .unwrap();
    }
    text
}

#[test]
fn every_key_is_read() {
    let text = r#"
version: 3
automerge: false
parallel_plan: true
parallel_apply: no
projects:
  - name: net/prod
    dir: ./infra/net/
    workspace: prod
    terraform_version: v1.9.5
    autoplan:
      enabled: false
      when_modified: ["*.tf", "../modules/**", "!x.tf"]
  - dir: infra/apps/*
    terraform_version: 1.10
  - {dir: ., autoplan: {when_modified: []}}
"#;
    insta::assert_snapshot!(show(&parse(text).unwrap()), @r#"
    parallel: Some(true) Some(false)
    7: net/prod infra/net prod 1.9.5 false ["*.tf", "../modules/**", "!x.tf"]
    14: - infra/apps/* default 1.10.0 true ["**/*.tf*", "**/*.tofu", "**/*.tofu.json", "**/terragrunt.hcl", "**/.terraform.lock.hcl"]
    16: - . default - true []
    "#);
}

#[test]
fn keys_without_a_value_are_as_if_absent() {
    let text = "version: 3\nparallel_plan:\nprojects:\n  - dir: a\n    name:\n    workspace: ''\n    workflow:\n    \
                terraform_version: ~\n    autoplan:\n  - dir: b\n    autoplan:\n      enabled:\n      when_modified:\n";
    let config = parse(text).unwrap();
    let plain = parse("version: 3\nprojects:\n  - dir: a\n\n\n\n\n\n  - dir: b\n").unwrap();
    let without_lines = |config: RepoConfig| {
        config
            .projects
            .into_iter()
            .map(|project| ProjectConfig { line: 0, ..project })
            .collect::<Vec<_>>()
    };
    assert_eq!(without_lines(config), without_lines(plain));
    let empty = RepoConfig {
        file_name: "atlantis.yaml".to_owned(),
        ..RepoConfig::default()
    };
    assert_eq!(parse("version: 2\nprojects:\nrepo_locks:\n"), Ok(empty));
}

#[test]
fn files_of_windows_editors_are_read() {
    let config = parse("\u{feff}version: 3\r\nprojects:\r\n  - dir: a\r\n").unwrap();
    assert_eq!(config.projects.len(), 1);
}

#[test]
fn anchors_and_merges_save_typing() {
    let mut text =
        "version: 3\nprojects:\n  - &base\n    dir: d0\n    autoplan: &auto {enabled: false}\n"
            .to_owned();
    for number in 1..300 {
        writeln!(text, "  - {{dir: d{number}, autoplan: *auto}}").unwrap();
    }
    text.push_str("  - <<: *base\n    dir: e\n");
    let config = parse(&text).unwrap();
    assert_eq!(config.projects.len(), 301);
    assert!(
        config
            .projects
            .iter()
            .all(|project| !project.autoplan.enabled)
    );
}

/// Lists every problem of every text: `text => what => help`.
fn told<'a>(texts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut told = String::new();
    for (shown, text) in texts {
        for problem in parse(&text).expect_err(shown).problems() {
            writeln!(told, "{shown} => {} => {}", problem.what, problem.help).unwrap();
        }
    }
    told
}

#[test]
fn every_bad_value_of_a_project_is_named() {
    let lines = [
        "name: [a]",
        "name: {a: b}",
        "name: a b",
        "name: ''",
        "workspace: [a]",
        "workspace: a/b",
        "workspace: -x",
        "workflow: [a]",
        "workflow: custom",
        "terraform_version: [1]",
        "terraform_version: '>= 1.5'",
        "autoplan: yes",
        "autoplan: [enabled]",
        "autoplan: {enabled: maybe}",
        "autoplan: {enabled: 1}",
        "autoplan: {enabled: [true]}",
        "autoplan: {when_modified: '*.tf'}",
        "autoplan: {when_modified: [[a]]}",
        "autoplan: {when_modified: ['[']}",
        "autoplan: {when_modified: [~]}",
        "autoplan: {on: true}",
    ];
    insta::assert_snapshot!(told(lines.map(|line| (line, with_line(line)))), @"
    name: [a] => `name` must be a text, not a list => write a text here
    name: {a: b} => `name` must be a text, not a mapping => write a text here
    name: a b => `a b` cannot be the name of a project => use 1 to 255 letters, digits, `-`, `_`, `.`, `~` or `/`
    name: '' => `` cannot be the name of a project => use 1 to 255 letters, digits, `-`, `_`, `.`, `~` or `/`
    workspace: [a] => `workspace` must be a text, not a list => write a text here
    workspace: a/b => `a/b` cannot be a workspace => do not use slashes, `..`, `$` or white space, and do not begin with `-` or `~`
    workspace: -x => `-x` cannot be a workspace => do not use slashes, `..`, `$` or white space, and do not begin with `-` or `~`
    workflow: [a] => `workflow` must be a text, not a list => write a text here
    workflow: custom => `workflow` may not be set here: the server does not allow it for this repository => remove it, or ask an administrator of Lockkeeper to add `workflow` to `allowed_overrides` of this repository in the server's configuration (`--repo-config`)
    workflow: custom => there is no workflow `custom` => the workflows are `default`
    terraform_version: [1] => `terraform_version` must be a text, not a list => write a text here
    terraform_version: '>= 1.5' => `>= 1.5` is not a version of Terraform => write one exact version, such as `1.9.5` or `v1.9.5`
    autoplan: yes => `autoplan` must be a mapping, not `yes` => write a mapping here
    autoplan: [enabled] => `autoplan` must be a mapping, not a list => write a mapping here
    autoplan: {enabled: maybe} => `enabled` must be `true` or `false`, not `maybe` => write `true` or `false` here
    autoplan: {enabled: 1} => `enabled` must be `true` or `false`, not `1` => write `true` or `false` here
    autoplan: {enabled: [true]} => `enabled` must be `true` or `false`, not a list => write `true` or `false` here
    autoplan: {when_modified: '*.tf'} => `when_modified` must be a list, not `*.tf` => write a list here
    autoplan: {when_modified: [[a]]} => an item of `when_modified` must be a text, not a list => write a text here
    autoplan: {when_modified: ['[']} => `[` is not a valid file pattern: `[` is not closed by `]` => write it as in a `.dockerignore` file, such as `../modules/**/*.tf`
    autoplan: {when_modified: [~]} => an item of `when_modified` must be a text, not nothing => write a text here
    autoplan: {on: true} => `on` is not a key of `autoplan` => the keys of `autoplan` are `when_modified`, `enabled`
    ");
}

#[test]
fn every_bad_value_of_the_file_is_named() {
    let texts = [
        "[]",
        "text",
        "version: [3]",
        "version: 1",
        "version: 3.0",
        "version: three",
        "projects: []",
        "version: 3\nprojects: a",
        "version: 3\nprojects: {dir: a}",
        "version: 3\nprojects: [a]",
        "version: 3\nprojects: [~]",
        "version: 3\nprojects: [{}]",
        "version: 3\nprojects: [{dir: [a]}]",
        "version: 3\nprojects: [{dir: ../a}]",
        "version: 3\nprojects: [{dir: 'a/../b'}]",
        "version: 3\nprojects: [{dir: 'a[', name: b}]",
        "version: 3\nparallel_plan: 2",
        "version: 3\nparallel_apply: [true]",
        "version: 3\nautomerge: perhaps",
        "",
    ];
    insta::assert_snapshot!(told(texts.map(|text| (text, text.to_owned()))), @"
    [] => the file must be a mapping, not a list => write a mapping here
    text => the file must be a mapping, not `text` => write a mapping here
    version: [3] => `version` must be a number => write `version: 3`
    version: 1 => version `1` of this file does not exist => write `version: 3`
    version: 3.0 => version `3.0` of this file does not exist => write `version: 3`
    version: three => version `three` of this file does not exist => write `version: 3`
    projects: [] => `version` is missing => begin the file with `version: 3`
    version: 3
    projects: a => `projects` must be a list, not `a` => write a list here
    version: 3
    projects: {dir: a} => `projects` must be a list, not a mapping => write a list here
    version: 3
    projects: [a] => a project must be a mapping, not `a` => write a mapping here
    version: 3
    projects: [~] => a project must be a mapping, not nothing => write a mapping here
    version: 3
    projects: [{}] => a project has no `dir` => write the path from the root of the repository, such as `infra/network`, or `.` for the root
    version: 3
    projects: [{dir: [a]}] => `dir` must be a text, not a list => write a text here
    version: 3
    projects: [{dir: ../a}] => `dir` must not have `..`: `../a` => write the path from the root of the repository, such as `infra/network`, or `.` for the root
    version: 3
    projects: [{dir: 'a/../b'}] => `dir` must not have `..`: `a/../b` => write the path from the root of the repository, such as `infra/network`, or `.` for the root
    version: 3
    projects: [{dir: 'a[', name: b}] => `a[` is not a valid pattern of directories: unclosed character class; missing ']' => write the path from the root of the repository, such as `infra/network`, or `.` for the root
    version: 3
    parallel_plan: 2 => `parallel_plan` must be `true` or `false`, not `2` => write `true` or `false` here
    version: 3
    parallel_apply: [true] => `parallel_apply` must be `true` or `false`, not a list => write `true` or `false` here
    version: 3
    automerge: perhaps => `automerge` must be `true` or `false`, not `perhaps` => write `true` or `false` here
     => `version` is missing => begin the file with `version: 3`
    ");
}

#[test]
fn nobody_is_sent_for_a_permission_that_would_not_help() {
    for (value, expected) in [
        ("true", "needs policy sets, and the server has none"),
        ("yes", "needs policy sets, and the server has none"),
        ("false", "may not be set here"),
    ] {
        for key in ["policy_check", "custom_policy_check"] {
            let text = with_line(&format!("{key}: {value}"));
            let errors = parse(&text).unwrap_err();
            let told: Vec<_> = errors
                .problems()
                .map(|problem| problem.what.as_str())
                .collect();
            assert_eq!(told.len(), 1, "{text}: {told:?}");
            assert!(told[0].contains(expected), "{text}: {told:?}");
        }
    }
}

/// Atlantis ignores the key. Its author relies on it.
#[test]
fn a_repository_cannot_define_its_own_policies() {
    let all: RepoPermissions = OverrideKey::ALL.iter().copied().collect();
    let text = "version: 3\npolicies: {policy_sets: [{name: a, path: /p}]}\n";
    let errors = RepoConfig::parse("atlantis.yaml", text, &all).unwrap_err();
    insta::assert_snapshot!(errors, @"
    error: `policies` of the file can be set only on the server, not by a pull request
     --> atlantis.yaml:2:1
      |
    2 | policies: {policy_sets: [{name: a, path: /p}]}
      | ^^^^^^^^
      = help: remove it; an administrator can set it in the server's configuration (`--repo-config`)
    ");
}

/// With such a stage, a pull request would decide about its own verdicts.
#[test]
fn a_stage_that_checks_policies_needs_permission_and_policy_sets() {
    const STAGE: &str = "version: 3\nworkflows: {w: {policy_check: {steps: [show]}}}\n";
    const SETS: &str = "policies: {policy_sets: [{name: a, path: /p}]}\n";
    let read = |server: &str, more: &str| {
        let text = format!("{server}repos: [{{id: /.*/, allow_custom_workflows: true{more}}}]");
        let repos = ServerRepos::parse("repos.yaml", &text).unwrap();
        let rules = repos.rules(&"github.com/acme/infra".parse().unwrap());
        RepoConfig::parse("atlantis.yaml", STAGE, rules.permissions())
    };
    let idle = read("", "").unwrap();
    insta::assert_snapshot!(idle.without_effect[0], @"the stage `policy_check` of the workflow `w` never runs: the server has no policy sets");
    insta::assert_snapshot!(read(SETS, "").unwrap_err(), @"
    error: the stage `policy_check` of the workflow `w` may not be set here: the server checks plans against its own policies
     --> atlantis.yaml:2:17
      |
    2 | workflows: {w: {policy_check: {steps: [show]}}}
      |                 ^^^^^^^^^^^^
      = help: remove the stage, or ask an administrator of Lockkeeper to add `custom_policy_check` to `allowed_overrides` of this repository in the server's configuration (`--repo-config`)
    ");
    let allowed = read(SETS, ", allowed_overrides: [custom_policy_check]").unwrap();
    assert_eq!(allowed.without_effect, []);
    assert_eq!(
        allowed.workflows["w"].policy_check,
        Stage::of(&[Builtin::Show])
    );
}

/// Keys without effect are accepted with or without permission.
#[test]
fn what_weakens_nothing_is_accepted_and_has_no_effect() {
    let text = "version: 3\ndelete_source_branch_on_merge: true\nemoji_reaction: eyes\nprojects:\n  - dir: a\n    \
                delete_source_branch_on_merge: true\n  - dir: b\n    delete_source_branch_on_merge: false\n";
    let told: Vec<String> = parse(text)
        .unwrap()
        .without_effect
        .iter()
        .map(|remark| format!("{}: {}", remark.line, remark.what))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    2: `delete_source_branch_on_merge` has no effect
    3: `emoji_reaction` has no effect
    6: `delete_source_branch_on_merge` has no effect
    ");
}

#[test]
fn usual_slips_are_told_with_what_to_write() {
    let texts = [
        "version: 3\nprojects: [{dir: a, autoplan: {when_modified: [*.tf]}}]",
        "version: 3\nprojects:\n  - dir: a\n    autoplan:\n      when_modified:\n        - **/*.tf\n",
        "version: 3\nprojects: [{dir: a, when_modified: ['*.tf']}]",
        "version: 3\nprojects: [{dir: a, enabled: false}]",
    ];
    insta::assert_snapshot!(told(texts.map(|text| (text, text.to_owned()))), @"
    version: 3
    projects: [{dir: a, autoplan: {when_modified: [*.tf]}}] => `*.tf` is not a text in YAML: without quotes, the `*` at the beginning makes it an alias => put it in quotes: `'*.tf'`
    version: 3
    projects:
      - dir: a
        autoplan:
          when_modified:
            - **/*.tf
     => `**/*.tf` is not a text in YAML: without quotes, the `*` at the beginning makes it an alias => put it in quotes: `'**/*.tf'`
    version: 3
    projects: [{dir: a, when_modified: ['*.tf']}] => `when_modified` is not a key of a project => `when_modified` belongs under `autoplan`: write `autoplan:` with `when_modified` in it
    version: 3
    projects: [{dir: a, enabled: false}] => `enabled` is not a key of a project => `enabled` belongs under `autoplan`: write `autoplan:` with `enabled` in it
    ");
}

#[test]
fn lock_modes_are_read_where_the_server_allows_it() {
    let text = "version: 3\nrepo_locks: {mode: on_apply}\nprojects:\n  - dir: a\n  - dir: b\n    repo_locks:\n      \
                mode: disabled\n  - {dir: c, repo_locks: {}}\n  - {dir: d, repo_locks: }\n";
    let config = parse_locks(text).unwrap();
    let request = |mode, line| {
        Some(LockTiming {
            mode,
            line,
            is_old_form: false,
        })
    };
    assert_eq!(config.repo_locks, request(LockMode::OnApply, 2));
    let projects: Vec<_> = config
        .projects
        .iter()
        .map(|project| project.repo_locks)
        .collect();
    assert_eq!(
        projects,
        [
            None,
            request(LockMode::Disabled, 7),
            request(LockMode::OnPlan, 8),
            None
        ]
    );
}

#[test]
fn who_may_do_what_is_not_decided_by_a_pull_request() {
    let texts = [
        "version: 3\nrepo_locks: {mode: disabled}\nprojects:\n  - {dir: a, repo_locks: {mode: on_apply}}\n",
        "version: 3\nrepo_locks: {mode: on_plan, scope: project, ttl: 72h}\n",
        "version: 3\nallowed_overrides: [repo_locks]\nprojects:\n  - {dir: a, allowed_overrides: [repo_locks]}\n",
        "version: 3\nteam_authz: {command: echo pass}\n",
    ];
    let [refused, allowed @ ..] = texts;
    let told = std::iter::once(parse(refused)).chain(allowed.map(parse_locks));
    let told: Vec<_> = told.map(|result| result.unwrap_err().to_string()).collect();
    insta::assert_snapshot!(told.join("\n\n"), @"
    error: `repo_locks` may not be set here: the server does not allow it for this repository
     --> atlantis.yaml:2:1
      |
    2 | repo_locks: {mode: disabled}
      | ^^^^^^^^^^
      = help: remove it, or ask an administrator of Lockkeeper to add `repo_locks` to `allowed_overrides` of this repository in the server's configuration (`--repo-config`)

    error: `repo_locks` may not be set here: the server does not allow it for this repository
     --> atlantis.yaml:4:14
      |
    4 |   - {dir: a, repo_locks: {mode: on_apply}}
      |              ^^^^^^^^^^
      = help: remove it, or ask an administrator of Lockkeeper to add `repo_locks` to `allowed_overrides` of this repository in the server's configuration (`--repo-config`)

    error: `scope` of `repo_locks` can be set only on the server, not by a pull request
     --> atlantis.yaml:2:29
      |
    2 | repo_locks: {mode: on_plan, scope: project, ttl: 72h}
      |                             ^^^^^
      = help: remove it; an administrator can set it in the server's configuration (`--repo-config`)

    error: `ttl` of `repo_locks` can be set only on the server, not by a pull request
     --> atlantis.yaml:2:45
      |
    2 | repo_locks: {mode: on_plan, scope: project, ttl: 72h}
      |                                             ^^^
      = help: remove it; an administrator can set it in the server's configuration (`--repo-config`)

    error: `allowed_overrides` of the file can be set only on the server, not by a pull request
     --> atlantis.yaml:2:1
      |
    2 | allowed_overrides: [repo_locks]
      | ^^^^^^^^^^^^^^^^^
      = help: remove it; an administrator can set it in the server's configuration (`--repo-config`)

    error: `allowed_overrides` of a project can be set only on the server, not by a pull request
     --> atlantis.yaml:4:14
      |
    4 |   - {dir: a, allowed_overrides: [repo_locks]}
      |              ^^^^^^^^^^^^^^^^^
      = help: remove it; an administrator can set it in the server's configuration (`--repo-config`)

    error: `team_authz` of the file can be set only on the server, not by a pull request
     --> atlantis.yaml:2:1
      |
    2 | team_authz: {command: echo pass}
      | ^^^^^^^^^^
      = help: remove it; an administrator can set it in the server's configuration (`--repo-config`)
    ");
}

#[test]
fn keys_of_the_server_are_refused_wherever_a_pull_request_puts_them() {
    let of_the_file = ["repos: []", "metrics: {}", "external_stores: {}"];
    let of_a_project = ["id: /.*/", "four_eyes: false"];
    let in_file = of_the_file.map(|line| (line, format!("version: 3\n{line}\n")));
    let in_project = of_a_project.map(|line| {
        (
            line,
            format!("version: 3\nprojects:\n  - dir: a\n    {line}\n"),
        )
    });
    for (line, text) in in_file.into_iter().chain(in_project) {
        let key = line.split(':').next().unwrap();
        let told = parse_locks(&text).unwrap_err().to_string();
        let first = format!("error: `{key}` of ");
        assert!(told.starts_with(&first), "{told}");
        assert!(
            told.contains("can be set only on the server, not by a pull request"),
            "{told}"
        );
    }
}

#[test]
fn every_bad_value_of_repo_locks_is_named() {
    let lines = [
        "repo_locks: on_plan",
        "repo_locks: [mode]",
        "repo_locks: {mode: [on_plan]}",
        "repo_locks: {mode: on_plann}",
        "repo_locks: {mode: sometimes}",
        "repo_locks: {mod: on_plan}",
        "repo_locking: false",
    ];
    let mut told = String::new();
    for line in lines {
        let places = [with_line(line), format!("version: 3\n{line}\n")]
            .map(|text| parse_locks(&text).unwrap_err());
        for problem in places.iter().flat_map(YamlErrors::problems) {
            writeln!(told, "{line} => {} => {}", problem.what, problem.help).unwrap();
        }
    }
    insta::assert_snapshot!(told, @"
    repo_locks: on_plan => `repo_locks` must be a mapping, not `on_plan` => write a mapping here
    repo_locks: on_plan => `repo_locks` must be a mapping, not `on_plan` => write a mapping here
    repo_locks: [mode] => `repo_locks` must be a mapping, not a list => write a mapping here
    repo_locks: [mode] => `repo_locks` must be a mapping, not a list => write a mapping here
    repo_locks: {mode: [on_plan]} => `mode` must be a text, not a list => write a text here
    repo_locks: {mode: [on_plan]} => `mode` must be a text, not a list => write a text here
    repo_locks: {mode: on_plann} => `on_plann` is not a value of `mode` => did you mean `on_plan`? The words are `on_plan`, `on_apply`, `disabled`
    repo_locks: {mode: on_plann} => `on_plann` is not a value of `mode` => did you mean `on_plan`? The words are `on_plan`, `on_apply`, `disabled`
    repo_locks: {mode: sometimes} => `sometimes` is not a value of `mode` => write one of `on_plan`, `on_apply`, `disabled`
    repo_locks: {mode: sometimes} => `sometimes` is not a value of `mode` => write one of `on_plan`, `on_apply`, `disabled`
    repo_locks: {mod: on_plan} => `mod` is not a key of `repo_locks` => did you mean `mode`?
    repo_locks: {mod: on_plan} => `mod` is not a key of `repo_locks` => did you mean `mode`?
    repo_locking: false => `repo_locking` may not be set here: the server does not allow it for this repository => remove it, or ask an administrator of Lockkeeper to add `repo_locking` to `allowed_overrides` of this repository in the server's configuration (`--repo-config`)
    repo_locking: false => `repo_locking` is not a key of the file => did you mean `repo_locks`?
    ");
}

#[test]
fn a_project_is_traced_to_its_entry_as_discovery_does() {
    let text = "version: 3\nprojects:\n  - {dir: a}\n  - {dir: a, name: x}\n  - {dir: b, name: y}\n  - {dir: '*'}\n  - {dir: '?', \
                workspace: w}\n  - {dir: '**'}\n";
    let config = parse(text).unwrap();
    let line = |dir: &str, workspace: &str, name: Option<&str>| {
        let (dir, workspace) = (dir.parse().unwrap(), workspace.parse().unwrap());
        let key = ProjectKey {
            dir,
            workspace,
            name: name.map(|name| name.parse().unwrap()),
        };
        config.entry_of(&key).map(|entry| entry.line)
    };
    assert_eq!(line("a", "", None), Some(3));
    assert_eq!(line("a", "", Some("x")), Some(4));
    assert_eq!(line("a", "w", None), Some(7));
    assert_eq!(
        line("b", "", None),
        None,
        "a pattern makes no project where a plain entry is"
    );
    assert_eq!(line("c", "", None), Some(6));
    assert_eq!(line("c/d", "", None), Some(8));
    assert_eq!(line("c", "", Some("x")), None);
    assert_eq!(line("c", "other", None), None);
}

#[test]
fn all_problems_are_told_at_once_with_their_places() {
    let text = "version: 4
projcts: []
projects:
  - name: net work
    dir: a
    workspce: prod
    apply_requirements: [approved]
    autoplan:
      when_modified: [\"**/*.tf\", \"[\"]
  - workspace: $x
";
    insta::assert_snapshot!(errors(text), @r#"
    error: version `4` of this file does not exist
     --> atlantis.yaml:1:10
      |
    1 | version: 4
      |          ^
      = help: write `version: 3`

    error: `projcts` is not a key of the file
     --> atlantis.yaml:2:1
      |
    2 | projcts: []
      | ^^^^^^^
      = help: did you mean `projects`?

    error: `net work` cannot be the name of a project
     --> atlantis.yaml:4:11
      |
    4 |   - name: net work
      |           ^^^^^^^^
      = help: use 1 to 255 letters, digits, `-`, `_`, `.`, `~` or `/`

    error: `workspce` is not a key of a project
     --> atlantis.yaml:6:5
      |
    6 |     workspce: prod
      |     ^^^^^^^^
      = help: did you mean `workspace`?

    error: `apply_requirements` may not be set here: the server does not allow it for this repository
     --> atlantis.yaml:7:5
      |
    7 |     apply_requirements: [approved]
      |     ^^^^^^^^^^^^^^^^^^
      = help: remove it, or ask an administrator of Lockkeeper to add `apply_requirements` to `allowed_overrides` of this repository in the server's configuration (`--repo-config`)

    error: `[` is not a valid file pattern: `[` is not closed by `]`
     --> atlantis.yaml:9:34
      |
    9 |       when_modified: ["**/*.tf", "["]
      |                                  ^^^
      = help: write it as in a `.dockerignore` file, such as `../modules/**/*.tf`

    error: a project has no `dir`
      --> atlantis.yaml:10:5
       |
    10 |   - workspace: $x
       |     ^
       = help: write the path from the root of the repository, such as `infra/network`, or `.` for the root

    error: `$x` cannot be a workspace
      --> atlantis.yaml:10:16
       |
    10 |   - workspace: $x
       |                ^^
       = help: do not use slashes, `..`, `$` or white space, and do not begin with `-` or `~`
    "#);
}

#[test]
fn files_without_a_version_and_broken_files_say_what_to_do() {
    let told = ["", "projects: [", "a: 1\na: 2\n"].map(errors).join("\n\n");
    insta::assert_snapshot!(told, @"
    error: `version` is missing
     --> atlantis.yaml
      = help: begin the file with `version: 3`

    error: this is not valid YAML: unclosed bracket '['
     --> atlantis.yaml:1:11
      |
    1 | projects: [
      |           ^
      = help: see https://yaml.org for the syntax of YAML

    error: `a` is given twice in one mapping
     --> atlantis.yaml:2:1
      |
    2 | a: 2
      | ^
      = help: keep one of the two
    ");
}

#[test]
fn projects_that_could_not_be_told_apart_are_refused() {
    let text = "version: 3
projects:
  - {dir: a}
  - {dir: ./a/, workspace: default}
  - {dir: a, name: x}
  - {dir: a, workspace: w}
  - {dir: b, name: x}
  - {dir: c/*}
  - {dir: c/*}
  - {dir: d/*, name: y}
";
    insta::assert_snapshot!(errors(text), @"
    error: `dir: a` with workspace `default` is already a project in line 3
     --> atlantis.yaml:4:5
      |
    4 |   - {dir: ./a/, workspace: default}
      |     ^
      = help: give this project a `name`, so that commands can select it: `plan -p NAME`

    error: two projects have the name `x`; the other one is in line 5
     --> atlantis.yaml:7:5
      |
    7 |   - {dir: b, name: x}
      |     ^
      = help: give each project its own name

    error: `dir: c/*` with workspace `default` is already a project in line 8
     --> atlantis.yaml:9:5
      |
    9 |   - {dir: c/*}
      |     ^
      = help: remove one of the two

    error: a project with a pattern as its `dir` (`d/*`) cannot have a `name`
      --> atlantis.yaml:10:22
       |
    10 |   - {dir: d/*, name: y}
       |                      ^
       = help: remove `name`, or write one entry for each directory
    ");
}

/// The default that replaces an invalid value conflicts with nothing.
#[test]
fn one_mistake_brings_no_other_one() {
    let text = "version: 3
projects:
  - {dir: a}
  - {dir: a, workspace: $x}
  - {dir: a, name: net work}
  - {dir: a, branch: main}
  - {dir: b, workspace: [w]}
  - {dir: b}
";
    let errors = parse(text).unwrap_err();
    let told: Vec<_> = errors
        .problems()
        .map(|problem| problem.what.as_str())
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    `$x` cannot be a workspace
    `net work` cannot be the name of a project
    `main` is not a regular expression between slashes
    `workspace` must be a text, not a list
    ");
    let mended = text.replace("$x", "x").replace("net work", "net");
    let errors = parse(&mended.replace("main", "/main/").replace("[w]", "w")).unwrap_err();
    let told: Vec<_> = errors
        .problems()
        .map(|problem| problem.what.as_str())
        .collect();
    assert_eq!(
        told,
        ["`dir: a` with workspace `default` is already a project in line 3"]
    );
    let text =
        "version: 3\nprojects:\n  - {dir: '', name: net}\n  - {dir: a, depends_on: [net, nte]}\n";
    let errors = parse(text).unwrap_err();
    let told: Vec<_> = errors
        .problems()
        .map(|problem| problem.what.as_str())
        .collect();
    assert_eq!(
        told,
        ["`dir` is empty", "there is no project `nte` to depend on"]
    );
}

#[test]
fn a_mistake_behind_an_anchor_is_told_once() {
    let text = "version: 3\nprojects:\n  - {dir: a, autoplan: &x {enabeld: true}}\n  - {dir: b, autoplan: *x}\n";
    assert_eq!(parse(text).unwrap_err().problems().count(), 1);
}

#[test]
fn limits_are_told() {
    let entries = |count: usize, dir: &str| {
        (0..count).fold("version: 3\nprojects:\n".to_owned(), |text, n| {
            format!("{text}  - dir: {dir}{n}\n")
        })
    };
    let patterns = |count: usize| {
        let list = (0..count).fold(String::new(), |text, n| format!("{text}a{n}, "));
        with_line(&format!("autoplan: {{when_modified: [{list}]}}"))
    };
    assert!(parse(&entries(RepoConfig::MAX_PROJECTS, "d")).is_ok());
    assert!(parse(&entries(RepoConfig::MAX_GLOBS, "x*")).is_ok());
    let told = [
        errors(&" ".repeat(RepoConfig::MAX_BYTES + 1)),
        errors(&entries(RepoConfig::MAX_PROJECTS + 1, "d")),
        errors(&entries(RepoConfig::MAX_GLOBS + 1, "x*")),
        errors(&patterns(6_000)),
    ];
    insta::assert_snapshot!(told.join("\n\n"), @"
    error: the file is longer than 1 MiB
     --> atlantis.yaml
      = help: use a pattern as the `dir` of similar projects, or YAML anchors

    error: there are 5001 projects; the maximum is 5000
     --> atlantis.yaml
      = help: use a pattern as the `dir` of similar projects

    error: 101 projects have a pattern as their `dir`; the maximum is 100
     --> atlantis.yaml
      = help: join patterns, for example with `{a,b}` or `**`

    error: the file has more than 5000 different patterns
     --> atlantis.yaml
      = help: use fewer and wider patterns, for example with `**`
    ");
}

proptest! {
    #[test]
    fn no_text_makes_parsing_panic(text in r"(?s).{0,200}") {
        let _result = parse(&text);
    }

    #[test]
    fn nothing_like_a_configuration_makes_parsing_panic(
        pieces in proptest::collection::vec(
            prop::sample::select(vec![
                "version: 3\n", "projects:\n", "  - ", "dir: a\n", "dir: 'b/*'\n", "    name: x\n", "    ", "\n", "autoplan:",
                " {when_modified: [", "'**/*.tf'", "]", "}", "&a ", "*a", "<<: *a\n", "- ", "[", "{", "|\n", "'", "\"", "#",
                "!!str ", "---\n", "\t", "é", "workspace: on\n", "terraform_version: 1.10\n", "? ", ": ", "\u{feff}", "\r\n",
            ]),
            0..40,
        )
    ) {
        match parse(&pieces.concat()) {
            Ok(config) => prop_assert!(config.projects.len() <= pieces.len() * 40),
            Err(errors) => {
                prop_assert!(errors.problems().count() > 0);
                prop_assert!(errors.to_string().contains("help:"));
            }
        }
    }

    #[test]
    fn what_is_written_is_what_is_read(
        dirs in proptest::collection::btree_map("[a-z]{1,4}(/[a-z]{1,4}){0,2}", (any::<bool>(), "[a-z]{1,8}"), 1..10)
    ) {
        let mut text = "version: 3\nprojects:\n".to_owned();
        for (dir, (enabled, workspace)) in &dirs {
            writeln!(text, "  - dir: \"{dir}\"\n    workspace: {workspace}\n    autoplan: {{enabled: {enabled}}}").unwrap();
        }
        // A workspace may be spelled like a boolean, but not like `null`.
        prop_assume!(!dirs.values().any(|(_, workspace)| workspace == "null"));
        let config = parse(&text).unwrap();
        prop_assert_eq!(config.projects.len(), dirs.len());
        for (project, (dir, (enabled, workspace))) in config.projects.iter().zip(&dirs) {
            prop_assert_eq!(&project.dir.to_string(), dir);
            prop_assert_eq!(project.autoplan.enabled, *enabled);
            prop_assert_eq!(project.workspace.as_str(), workspace.as_str());
        }
    }
}
