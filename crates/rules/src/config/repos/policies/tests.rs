//! Tests the policy sets of whole files, and the sets of single projects.

use std::fmt::Write as _;

use super::*;
use crate::config::repo::RepoConfig;
use crate::config::repos::{RepoRules, ServerRepos};
use crate::config::yaml::YamlErrors;

fn parse(text: &str) -> Result<ServerRepos, YamlErrors> {
    ServerRepos::parse("/etc/repos.yaml", text)
}

/// Reads a file with this policy set.
fn set(keys: &str) -> PolicySet {
    let text = format!("policies: {{policy_sets: [{{name: a, {keys}}}]}}");
    let repos = parse(&text).unwrap_or_else(|errors| panic!("{keys}: {errors}"));
    repos.policies().sets.remove(0)
}

fn path(text: &str) -> RepoPath {
    RepoPath::new(text).unwrap()
}

#[test]
fn a_set_of_atlantis_is_read_with_its_defaults() {
    let text = "
policies:
  conftest_version: v0.60.0
  owners: {users: [Ann, bob], teams: [acme/security]}
  approve_count: 2
  sticky_policy_approvals: true
  policy_item_regex: (?m)^FAIL.*$
  policy_sets:
    - name: all
      path: /etc/policies
      source: local
    - name: net
      path: /etc/network.rego
      owners: {users: [ANN, cid]}
      approve_count: 1
      sticky_policy_approvals: false
      policy_item_regex: x
      prevent_self_approve: true
";
    let config = parse(text).unwrap().policies();
    assert_eq!(config.conftest_version, Some(Version::new(0, 60, 0)));
    let [all, net] = &config.sets[..] else {
        panic!("{config:?}");
    };
    assert_eq!(all.name.as_str(), "all");
    assert_eq!(all.source, PolicySource::Local("/etc/policies".into()));
    assert_eq!(all.engine, PolicyEngine::Conftest);
    assert_eq!(all.owners.users, ["Ann", "bob"]);
    assert_eq!(all.owners.teams, ["acme/security"]);
    assert_eq!((all.approve_count, all.sticky), (2, true));
    assert_eq!(all.item_regex.0.as_str(), "(?m)^FAIL.*$");
    assert!(!all.prevent_self_approve);
    assert_eq!((&all.waivers, &all.namespaces), (&None, &Vec::new()));
    // Owners of all sets own this one as well.
    assert_eq!(net.owners.users, ["Ann", "bob", "cid"]);
    assert_eq!(net.owners.teams, ["acme/security"]);
    assert_eq!((net.approve_count, net.sticky), (1, false));
    assert_eq!(net.item_regex.0.as_str(), "x");
    assert!(net.prevent_self_approve);
    let plain = set("path: /p");
    assert_eq!((plain.approve_count, plain.sticky), (1, false));
    assert_eq!(plain.item_regex, ItemRegex::default());
    assert_eq!(plain.scope, SetScope::default());
}

#[test]
fn policies_come_from_the_server_a_branch_or_another_repository() {
    let branch = PolicySource::Branch {
        branch: "main".to_owned(),
        path: path("policies"),
    };
    for keys in [
        "path: policies, branch: main",
        "path: ./policies/, branch: main, source: branch",
    ] {
        assert_eq!(set(keys).source, branch, "{keys}");
    }
    let repository = PolicySource::Repository {
        repository: "github.com/acme/rego".to_owned(),
        reference: "v1.4.0".to_owned(),
        path: RepoPath::root(),
    };
    for keys in [
        "path: ., repository: github.com/acme/rego, ref: v1.4.0",
        "path: ., repository: GitHub.com/Acme/rego, ref: v1.4.0, source: repository",
    ] {
        assert_eq!(set(keys).source, repository, "{keys}");
    }
    let embedded = set("path: /p, engine: embedded, namespaces: [main, net]");
    assert_eq!(embedded.engine, PolicyEngine::Embedded);
    assert_eq!(embedded.namespaces, ["main", "net"]);
    let steps = set("engine: steps, format: sarif");
    assert_eq!(steps.engine, PolicyEngine::Steps(ReportFormat::Sarif));
    assert_eq!(steps.source, PolicySource::Steps);
    let waived = set("path: /p, waivers: {branch: main, path: w.yaml}");
    assert_eq!(
        waived.waivers,
        Some(WaiverFile {
            branch: "main".to_owned(),
            path: path("w.yaml"),
        })
    );
}

/// Atlantis checks nothing here, so mistakes show only when a plan is checked.
#[test]
fn what_is_no_policy_set_is_told_with_a_way_out() {
    let sets = [
        "path: /p",
        "name: ' a', path: /p",
        "name: a",
        "name: a, path: policies, engine: conftest",
        "name: a, path: $HOME/policies, engine: embedded",
        "name: a, path: /p, source: github",
        "name: a, path: /p, source: locl",
        "name: a, path: p, source: branch",
        "name: a, path: p, source: repository",
        "name: a, path: p, repository: github.com/acme/rego",
        "name: a, path: p, repository: 'https://github.com/acme/rego', ref: v1",
        "name: a, path: ../p, branch: main",
        "name: a, path: /p, source: local, branch: main",
        "name: a, path: /p, branch: main, ref: v1",
        "name: a, path: /p, engine: opa",
        "name: a, path: /p, engine: conftest, format: sarif",
        "name: a, path: /p, namespaces: [x]",
        "name: a, path: /p, policy_item_regex: '('",
        "name: a, path: /p, policy_item_regex: ''",
        "name: a, path: /p, owners: [ann]",
        "name: a, path: /p, owners: {users: ['']}",
        "name: a, path: /p, users: [ann]",
        "name: a, path: /p, when: {dirs: ['a[']}",
        "name: a, path: /p, waivers: {path: w.yaml}",
        "name: a, path: /p}, {name: a, path: /q",
    ];
    let mut told = String::new();
    for keys in sets {
        let text = format!("policies: {{policy_sets: [{{{keys}}}]}}");
        for problem in parse(&text).expect_err(keys).problems() {
            writeln!(told, "{keys} => {} => {}", problem.what, problem.help).unwrap();
        }
    }
    insta::assert_snapshot!(told, @r"
    path: /p => a policy set has no `name` => name the set: `name: network`; comments and approvals use the name
    name: ' a', path: /p => the name of a policy set begins or ends with a space: ` a` => use a word such as `network`
    name: a => a policy set has no `path` => write the directory of the policies: `path: /etc/lockkeeper/policies`
    name: a, path: policies, engine: conftest => `policies` is not an absolute path => write an absolute path of the server, `branch: main` for a directory on a branch of the repository, or `engine: steps` if a step of the workflow checks; a relative path would be in the checkout of the pull request, which could change the policies
    name: a, path: $HOME/policies, engine: embedded => `$HOME/policies` is not an absolute path => write an absolute path of the server, `branch: main` for a directory on a branch of the repository, or `engine: steps` if a step of the workflow checks; a relative path would be in the checkout of the pull request, which could change the policies
    name: a, path: /p, source: github => `github` is not a source of policies here => write `source: repository`, with `repository: github.com/OWNER/NAME` and a tag or a full commit as `ref`
    name: a, path: /p, source: locl => `locl` is not a value of `source` => did you mean `local`? The words are `local`, `branch`, `repository`
    name: a, path: p, source: branch => a policy set has no `branch` => name the branch that has the policies: `branch: main`
    name: a, path: p, source: repository => a policy set has no `ref` => name a tag or a full commit, so that nobody changes the policies unseen: `ref: v1.4.0`
    name: a, path: p, source: repository => a policy set has no `repository` => name the repository that has the policies: `repository: github.com/acme/policies`
    name: a, path: p, repository: github.com/acme/rego => a policy set has no `ref` => name a tag or a full commit, so that nobody changes the policies unseen: `ref: v1.4.0`
    name: a, path: p, repository: 'https://github.com/acme/rego', ref: v1 => `https://github.com/acme/rego` is not a repository => write `host/owner/name`, such as `github.com/acme/policies`
    name: a, path: ../p, branch: main => `../p` is not a path of a repository => write the path from the root of the repository that has the policies, such as `policies`
    name: a, path: /p, source: local, branch: main => `branch` does not go with `source: local`, so it is unclear where the policies are => remove it, or write `source: branch`
    name: a, path: /p, branch: main, ref: v1 => `ref` does not go with `source: branch`, so it is unclear where the policies are => remove it, or write `source: repository`
    name: a, path: /p, engine: opa => `opa` is not a value of `engine` => write one of `conftest`, `embedded`, `steps`
    name: a, path: /p, engine: conftest, format: sarif => `format` does not go with `engine: conftest`, whose output is known => remove it, or write `engine: steps` if a step of the workflow checks
    name: a, path: /p, namespaces: [x] => `namespaces` needs `engine: embedded` => remove it; for conftest, write `--namespace NAME` or `--all-namespaces` as `extra_args` of the step `policy_check`
    name: a, path: /p, policy_item_regex: '(' => `(` is not a regular expression: unclosed group => see https://docs.rs/regex/#syntax; the syntax is almost that of Go
    name: a, path: /p, policy_item_regex: '' => `policy_item_regex` is empty, so that an approval would cover everything => write an expression that matches each item of the output, such as `(?m)^FAIL.*$`, or remove it
    name: a, path: /p, owners: [ann] => `owners` must be a mapping, not a list => write a mapping here
    name: a, path: /p, owners: {users: ['']} => an item of `users` is empty => write its name, or remove it
    name: a, path: /p, users: [ann] => `users` is not a key of a policy set => `users` belongs under `owners`: write `owners:` with `users` in it
    name: a, path: /p, when: {dirs: ['a[']} => `a[` is not a valid pattern: unclosed character class; missing ']' => write a name or a directory, or a pattern such as `prod/**`
    name: a, path: /p, waivers: {path: w.yaml} => `waivers` has no `branch` => name a branch that pull requests cannot change: `branch: main`
    name: a, path: /p}, {name: a, path: /q => there are two policy sets `a` => give each set a name of its own, because approvals and comments use it
    ");
}

#[test]
fn mistakes_in_sets_are_shown_where_they_are() {
    let text = "policies:\n  policy_sets:\n    - name: net\n      path: policies\n      engine: conftest\n    - name: net\n      path: /p\n";
    insta::assert_snapshot!(parse(text).unwrap_err(), @"
    error: `policies` is not an absolute path
     --> /etc/repos.yaml:4:13
      |
    4 |       path: policies
      |             ^^^^^^^^
      = help: write an absolute path of the server, `branch: main` for a directory on a branch of the repository, or `engine: steps` if a step of the workflow checks; a relative path would be in the checkout of the pull request, which could change the policies
    ");
}

#[test]
fn settings_that_would_let_violations_pass_have_no_effect() {
    let text = "policies: {approve_count: 0, policy_sets: [{name: a, engine: steps, path: p, approve_count: -1}]}";
    let repos = parse(text).unwrap();
    assert_eq!(repos.policies().sets[0].approve_count, 1);
    let notes: Vec<String> = repos
        .without_effect()
        .1
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_snapshot!(notes.join("\n"), @"
    `approve_count: -1` has no effect: violations always need an approval; to let them pass, remove the set or use rules that only warn
    `approve_count: 0` has no effect: violations always need an approval; to let them pass, remove the set or use rules that only warn
    `path` of a policy set with `engine: steps` has no effect: the step of the workflow decides where its policies are
    ");
}

#[test]
fn more_teams_than_are_looked_up_are_noted() {
    let notes = |count: usize| {
        let teams: Vec<String> = (0..count).map(|n| format!("acme/t{n}")).collect();
        let (first, second) = teams.split_at(count / 2);
        let text = format!(
            "policies: {{policy_sets: [{{name: a, path: /p, owners: {{teams: [{}, ACME/T0]}}}}, {{name: b, path: /p, owners: {{teams: [{}]}}}}]}}",
            first.join(", "),
            second.join(", ")
        );
        let repos = parse(&text).unwrap();
        let notes = repos.without_effect().1.iter().map(ToString::to_string);
        notes.collect::<Vec<_>>()
    };
    assert_eq!(notes(MAX_OWNER_TEAMS), [""; 0]);
    let one = notes(MAX_OWNER_TEAMS + 1);
    assert!(
        one.len() == 1 && one[0].contains("have 31 teams as owners"),
        "{one:?}"
    );
}

#[test]
fn a_repository_may_be_checked_if_one_of_its_projects_could_be() {
    const SETS: &str = "policies: {policy_sets: [{name: a, path: /p}]}";
    let may = |entry: &str, sets: &str| {
        let text = format!("repos: [{{id: /.*/, {entry}}}]\n{sets}");
        let repos = parse(&text).unwrap_or_else(|errors| panic!("{text}: {errors}"));
        let repo = "github.com/acme/infra".parse().unwrap();
        repos.rules(&repo).may_check_policies()
    };
    assert!(may("policy_check: true", SETS));
    assert!(may("allowed_overrides: [policy_check]", SETS));
    assert!(!may("allowed_overrides: [policy_check]", ""));
    assert!(!may("allowed_overrides: [workflow]", SETS));
    assert!(!may("policy_check: false", SETS));
}

/// The example of Atlantis for custom policy checks, word for word.
const CUSTOM: &str = "
repos:
  - id: /.*/
    custom_policy_check: true
policies:
  policy_sets:
    - name: example-set
      path: example-cnspec-policies.mql.yaml
      source: local
";

#[test]
fn steps_can_check_a_set_with_a_relative_path() {
    let repos = parse(CUSTOM).unwrap();
    let notes: Vec<String> = repos.warnings();
    insta::assert_snapshot!(notes.join("\n"), @"repos.yaml line 8: policies are never read from `example-cnspec-policies.mql.yaml`, because the path is relative: steps check the set where `custom_policy_check` is true; elsewhere, the set is not evaluated and nothing can be applied. Write an absolute path of the server, or `branch: main` for a directory on a branch of the repository");
    let project = ProjectKey::of_dir(RepoPath::root());
    let of = |text: &str| {
        let repos = parse(text).unwrap().with_policy_checks().unwrap();
        let rules = repos.rules(&"github.com/acme/infra".parse().unwrap());
        rules.policies(None, &project).unwrap()
    };
    let custom = of(CUSTOM);
    assert_eq!(custom.sets[0].source, PolicySource::Steps);
    assert_eq!(custom.step_sets, [custom.sets[0].name.clone()]);
    let usual = of(&CUSTOM.replace("custom_policy_check: true", "custom_policy_check: false"));
    let relative = PolicySource::Relative("example-cnspec-policies.mql.yaml".to_owned());
    assert_eq!(usual.sets[0].source, relative);
    assert_eq!(usual.sets[0].engine, PolicyEngine::Conftest);
    assert!(usual.step_sets.is_empty());
}

#[test]
fn sets_of_steps_are_listed_for_projects_that_they_do_not_concern() {
    let text = "policies: {policy_sets: [{name: a, engine: steps, when: {dirs: [a]}}, {name: b, path: /p}, \
                {name: c, engine: steps, when: {dirs: [c]}}]}";
    let repos = parse(text).unwrap().with_policy_checks().unwrap();
    let rules = repos.rules(&"github.com/acme/infra".parse().unwrap());
    let found = rules
        .policies(None, &ProjectKey::of_dir(path("c")))
        .unwrap();
    let names =
        |sets: &[SetName]| -> Vec<String> { sets.iter().map(ToString::to_string).collect() };
    let concerned: Vec<SetName> = found.sets.iter().map(|set| set.name.clone()).collect();
    assert_eq!(names(&concerned), ["b", "c"]);
    assert_eq!(names(&found.step_sets), ["a", "c"]);
}

#[test]
fn steps_name_only_sets_that_steps_check() {
    let text = |name: &str| {
        format!(
            "policies: {{policy_sets: [{{name: a, path: /p}}, {{name: b, engine: steps}}, {{name: c, path: /p, engine: embedded}}]}}\n\
             workflows: {{w: {{policy_check: {{steps: [run: {{command: x, policy_set: {name}}}]}}}}}}"
        )
    };
    for name in ["a", "b"] {
        parse(&text(name)).unwrap();
    }
    let mut told = String::new();
    for name in ["c", "d"] {
        for problem in parse(&text(name)).expect_err(name).problems() {
            writeln!(told, "{} => {}", problem.what, problem.help).unwrap();
        }
    }
    insta::assert_snapshot!(told, @"
    a step of the workflow `w` names the policy set `c`, which steps do not check => write `engine: steps` for the set, or remove `policy_set` from the step
    a step of the workflow `w` names the policy set `d`, which does not exist => write the name of one of the `policy_sets`, or remove `policy_set` from the step
    ");
}

#[test]
fn a_switch_without_policy_sets_is_refused() {
    for key in ["policy_check", "custom_policy_check"] {
        let text = format!("repos: [{{id: /.*/, {key}: true}}]");
        let errors = parse(&text).unwrap_err();
        let what: Vec<&str> = errors
            .problems()
            .map(|problem| problem.what.as_str())
            .collect();
        assert_eq!(
            what,
            [format!(
                "`{key}: true` needs policy sets, and this file has none"
            )]
        );
        parse(&text.replace("true", "false")).unwrap();
        // A mistake in a set is the only problem.
        let wrong = format!("policies: {{policy_sets: [{{name: a}}]}}\n{text}");
        assert_eq!(parse(&wrong).unwrap_err().problems().count(), 1);
    }
    assert_eq!(
        parse("repos: []").unwrap().with_policy_checks(),
        Err(NoPolicySets)
    );
}

const SETS: &str = "policies: {policy_sets: [{name: any, path: /p}, {name: prod, path: /p, when: {dirs: [prod/**]}}, \
                    {name: labelled, path: /p, when: {labels: [x]}}, {name: rego, path: /p, engine: embedded}]}\n";

/// Reads the rules of a server with the policy sets of [`SETS`] and one entry.
fn rules(entry: &str, is_on: bool) -> RepoRules {
    let text = format!("{SETS}repos: [{{id: /.*/{entry}}}]");
    let repos = parse(&text).unwrap_or_else(|errors| panic!("{errors}"));
    let repos = if is_on {
        repos.with_policy_checks().unwrap()
    } else {
        repos
    };
    repos.rules(&"github.com/acme/infra".parse().unwrap())
}

/// Lists the sets of a project with their engines, and the source that switched the checks on.
fn checked(rules: &RepoRules, config: Option<&RepoConfig>, dir: &str) -> String {
    let project = ProjectKey::of_dir(dir.parse().unwrap());
    let Some(policies) = rules.project(config, &project).policies else {
        assert_eq!(rules.policies(config, &project), None);
        return "unchecked".to_owned();
    };
    assert_eq!(
        rules.policies(config, &project),
        Some(policies.value.clone())
    );
    let of = |set: &Arc<PolicySet>| {
        let engine = match set.engine {
            PolicyEngine::Conftest => "conftest",
            PolicyEngine::Embedded => "embedded",
            PolicyEngine::Steps(_) => "steps",
        };
        format!("{} by {engine}", set.name)
    };
    let sets: Vec<String> = policies.value.sets.iter().map(of).collect();
    format!("{} ({})", sets.join(", "), policies.by)
}

#[test]
fn sets_concern_the_projects_that_they_name() {
    let rules = rules("", true);
    let told = ["prod/net", "prod", "dev"].map(|dir| checked(&rules, None, dir));
    insta::assert_snapshot!(told.join("\n"), @"
    any by conftest, prod by conftest, labelled by conftest, rego by embedded (`--enable-policy-checks` of the server)
    any by conftest, prod by conftest, labelled by conftest, rego by embedded (`--enable-policy-checks` of the server)
    any by conftest, labelled by conftest, rego by embedded (`--enable-policy-checks` of the server)
    ");
}

#[test]
fn the_flag_the_entry_and_a_project_with_permission_decide_in_this_order() {
    const MAY: &str = ", allowed_overrides: [policy_check, custom_policy_check]";
    let mut told = String::new();
    for (entry, is_on, project) in [
        ("", false, ""),
        ("", true, ""),
        (", policy_check: true", false, ""),
        (", policy_check: false", true, ""),
        (", policy_check: false", true, ", policy_check: true"),
        ("", true, ", policy_check: false"),
        (", custom_policy_check: true", true, ""),
        ("", true, ", custom_policy_check: true"),
        (
            ", custom_policy_check: true",
            true,
            ", custom_policy_check: false",
        ),
    ] {
        let rules = rules(&format!("{entry}{MAY}"), is_on);
        let text = format!("version: 3\nprojects: [{{dir: dev{project}}}]\n");
        let config = RepoConfig::parse("atlantis.yaml", &text, rules.permissions()).unwrap();
        let found = checked(&rules, Some(&config), "dev");
        writeln!(told, "{is_on}{entry} | {project} => {found}").unwrap();
    }
    insta::assert_snapshot!(told, @"
    false |  => unchecked
    true |  => any by conftest, labelled by conftest, rego by embedded (`--enable-policy-checks` of the server)
    false, policy_check: true |  => any by conftest, labelled by conftest, rego by embedded (line 2 of the server's `repos.yaml`, for `/.*/`)
    true, policy_check: false |  => unchecked
    true, policy_check: false | , policy_check: true => any by conftest, labelled by conftest, rego by embedded (line 2 of `atlantis.yaml`)
    true | , policy_check: false => unchecked
    true, custom_policy_check: true |  => any by steps, labelled by steps, rego by embedded (`--enable-policy-checks` of the server)
    true | , custom_policy_check: true => any by steps, labelled by steps, rego by embedded (`--enable-policy-checks` of the server)
    true, custom_policy_check: true | , custom_policy_check: false => any by conftest, labelled by conftest, rego by embedded (`--enable-policy-checks` of the server)
    ");
}

/// A file that was read with other permissions decides nothing.
#[test]
fn a_project_without_permission_is_checked_as_the_server_says() {
    let wide = rules(", allowed_overrides: [policy_check]", true);
    let text = "version: 3\nprojects: [{dir: dev, policy_check: false}]\n";
    let config = RepoConfig::parse("atlantis.yaml", text, wide.permissions()).unwrap();
    assert_eq!(checked(&wide, Some(&config), "dev"), "unchecked");
    let narrow = rules("", true);
    assert_ne!(checked(&narrow, Some(&config), "dev"), "unchecked");
    RepoConfig::parse("atlantis.yaml", text, narrow.permissions()).unwrap_err();
}
