//! Tests the merge of both files: appendix D of the reference with a test for each row, and the rest of the merge.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::config::Hook;
use crate::config::repo::{AllowedOverrides, AutodiscoverMode, OverrideKey, RepoConfig};
use crate::model::{BranchName, CommandKind, ProjectKey, Requirement};

mod overridden;

/// Reads a server's file with one entry of `repos` for each line, and with more text.
fn server_with(lines: &[&str], more: &str) -> RepoRules {
    let lines: Vec<_> = lines
        .iter()
        .map(|line| format!("  - {{{line}}}\n"))
        .collect();
    let text = format!(
        "repos:\n{}environment_profiles: {{prod: {{}}, dev: {{}}}}\n{more}",
        lines.concat()
    );
    let repos = ServerRepos::parse("repos.yaml", &text).unwrap_or_else(|errors| panic!("{errors}"));
    repos.rules(&"github.com/o/r".parse().unwrap())
}

fn server(lines: &[&str]) -> RepoRules {
    server_with(lines, "")
}

fn repo(rules: &RepoRules, text: &str) -> RepoConfig {
    let text = format!("version: 3\n{text}");
    RepoConfig::parse("atlantis.yaml", &text, rules.permissions())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

fn refusal(rules: &RepoRules, text: &str) -> String {
    let text = format!("version: 3\n{text}");
    RepoConfig::parse("atlantis.yaml", &text, rules.permissions())
        .expect_err("it should be refused")
        .to_string()
}

/// Returns the rules of the project in directory `a`.
fn of_a(rules: &RepoRules, config: Option<&RepoConfig>) -> ProjectRules {
    rules.project(config, &ProjectKey::of_dir("a".parse().unwrap()))
}

fn main_branch() -> BranchName {
    "main".parse().unwrap()
}

#[test]
fn appendix_d_1_each_key_has_its_own_last_word() {
    let rules = server(&[
        "id: /.*/, plan_requirements: [approved], allowed_overrides: [workflow]",
        "id: github.com/o/r, allowed_overrides: []",
    ]);
    insta::assert_snapshot!(of_a(&rules, None).plan_requirements, @"`approved` (line 2 of the server's `repos.yaml`, for `/.*/`)");
    assert_eq!(*rules.allowed_overrides(), AllowedOverrides::default());
}

/// Same result as in Atlantis, but with a warning.
#[test]
fn appendix_d_2_an_empty_list_of_requirements_says_nothing() {
    const LINES: [&str; 2] = [
        "id: /.*/, plan_requirements: [approved]",
        "id: github.com/o/r, plan_requirements: []",
    ];
    insta::assert_snapshot!(of_a(&server(&LINES), None).plan_requirements, @"`approved` (line 2 of the server's `repos.yaml`, for `/.*/`)");
    let text = format!("repos:\n  - {{{}}}\n  - {{{}}}\n", LINES[0], LINES[1]);
    let warnings = ServerRepos::parse("repos.yaml", &text).unwrap().warnings();
    insta::assert_snapshot!(warnings.join("\n"), @"repos.yaml line 3: `plan_requirements: []` has no effect: requirements of earlier entries stay in effect. To require less, change the expressions of those entries so that they do not match this repository");
}

/// In Atlantis an entry without requirements could lose `approved` when policies are checked.
#[test]
fn appendix_d_3_an_entry_without_requirements_takes_none_away() {
    for more in ["workflow: default", "policy_check: false"] {
        let more = format!("id: github.com/o/r, {more}");
        let rules = server(&["id: /.*/, apply_requirements: [approved, mergeable]", &more]);
        let demands = of_a(&rules, None).apply_requirements.to_string();
        assert_eq!(
            demands,
            "`approved` (line 2 of the server's `repos.yaml`, for `/.*/`), \
             `mergeable` (line 2 of the server's `repos.yaml`, for `/.*/`)"
        );
    }
}

/// In Atlantis the list of the project replaces the server's.
#[test]
fn appendix_d_4_an_empty_list_of_a_project_takes_nothing_away_unless_the_operator_says_so() {
    const SERVER: &str = "id: /.*/, apply_requirements: [approved], plan_requirements: [mergeable], allowed_overrides: ";
    let mut told = String::new();
    for allowed in [
        "[apply_requirements]",
        "[apply_requirements, fewer_requirements]",
    ] {
        for list in ["[]", "[undiverged]", "[undiverged, approved]"] {
            let rules = server(&[&format!("{SERVER}{allowed}")]);
            let config = repo(
                &rules,
                &format!("projects: [{{dir: a, apply_requirements: {list}}}]"),
            );
            let project = of_a(&rules, Some(&config));
            writeln!(told, "{allowed} {list}: {}", project.apply_requirements).unwrap();
            assert_eq!(project.plan_requirements.iter().count(), 1);
        }
    }
    insta::assert_snapshot!(told, @"
    [apply_requirements] []: `approved` (line 2 of the server's `repos.yaml`, for `/.*/`)
    [apply_requirements] [undiverged]: `approved` (line 2 of the server's `repos.yaml`, for `/.*/`), `undiverged` (line 2 of `atlantis.yaml`)
    [apply_requirements] [undiverged, approved]: `approved` (line 2 of the server's `repos.yaml`, for `/.*/`), `undiverged` (line 2 of `atlantis.yaml`)
    [apply_requirements, fewer_requirements] []: none
    [apply_requirements, fewer_requirements] [undiverged]: `undiverged` (line 2 of `atlantis.yaml`)
    [apply_requirements, fewer_requirements] [undiverged, approved]: `undiverged` (line 2 of `atlantis.yaml`), `approved` (line 2 of `atlantis.yaml`)
    ");
}

/// An import runs the code of the pull request with the credentials of applies. In Atlantis it needs nothing by default.
#[test]
fn an_import_needs_what_an_apply_needs_unless_a_file_sets_more_or_less() {
    const APPLY: &str = "id: /.*/, apply_requirements: [approved]";
    let of_entries = |more: &[&str]| {
        let lines = [&[APPLY], more].concat();
        of_a(&server(&lines), None).import_requirements
    };
    let mut told = String::new();
    let all: [&[&str]; 7] = [
        &[],
        &["id: github.com/o/r, apply_requirements: [mergeable]"],
        &["id: github.com/o/r, import_requirements: [undiverged]"],
        &["id: github.com/o/r, import_requirements: []"],
        &["id: github.com/o/r, import_requirements: []", "id: /.*/"],
        &[
            "id: /.*/, import_requirements: [mergeable]",
            "id: github.com/o/r, import_requirements: []",
        ],
        &[
            "id: /.*/, import_requirements: []",
            "id: github.com/o/r, import_requirements: [mergeable]",
        ],
    ];
    for more in all {
        writeln!(told, "{more:?}: {}", of_entries(more)).unwrap();
    }
    insta::assert_snapshot!(told, @r#"
    []: `approved` (line 2 of the server's `repos.yaml`, for `/.*/`)
    ["id: github.com/o/r, apply_requirements: [mergeable]"]: `mergeable` (line 3 of the server's `repos.yaml`, for `github.com/o/r`)
    ["id: github.com/o/r, import_requirements: [undiverged]"]: `undiverged` (line 3 of the server's `repos.yaml`, for `github.com/o/r`)
    ["id: github.com/o/r, import_requirements: []"]: none
    ["id: github.com/o/r, import_requirements: []", "id: /.*/"]: none
    ["id: /.*/, import_requirements: [mergeable]", "id: github.com/o/r, import_requirements: []"]: `mergeable` (line 3 of the server's `repos.yaml`, for `/.*/`)
    ["id: /.*/, import_requirements: []", "id: github.com/o/r, import_requirements: [mergeable]"]: `mergeable` (line 4 of the server's `repos.yaml`, for `github.com/o/r`)
    "#);
}

#[test]
fn an_import_into_a_project_needs_what_its_apply_needs_unless_it_sets_more_or_less() {
    const MAY: &str = "allowed_overrides: [apply_requirements, import_requirements";
    let mut told = String::new();
    for (entry, more) in [
        ("apply_requirements: [approved]", ""),
        ("apply_requirements: [approved]", ", fewer_requirements"),
        ("import_requirements: []", ""),
    ] {
        let rules = server(&[&format!("id: /.*/, {entry}, {MAY}{more}]")]);
        for own in [
            "apply_requirements: [mergeable]",
            "import_requirements: [undiverged]",
            "apply_requirements: [mergeable], import_requirements: []",
        ] {
            let config = repo(&rules, &format!("projects: [{{dir: a, {own}}}]"));
            let demands = of_a(&rules, Some(&config)).import_requirements;
            let words: Vec<&str> = demands.iter().map(|demand| demand.value.as_str()).collect();
            let words = if words.is_empty() {
                "none".to_owned()
            } else {
                words.join(" ")
            };
            writeln!(told, "{entry}{more}; {own}: {words}").unwrap();
        }
    }
    insta::assert_snapshot!(told, @"
    apply_requirements: [approved]; apply_requirements: [mergeable]: approved mergeable
    apply_requirements: [approved]; import_requirements: [undiverged]: approved undiverged
    apply_requirements: [approved]; apply_requirements: [mergeable], import_requirements: []: approved
    apply_requirements: [approved], fewer_requirements; apply_requirements: [mergeable]: mergeable
    apply_requirements: [approved], fewer_requirements; import_requirements: [undiverged]: undiverged
    apply_requirements: [approved], fewer_requirements; apply_requirements: [mergeable], import_requirements: []: none
    import_requirements: []; apply_requirements: [mergeable]: none
    import_requirements: []; import_requirements: [undiverged]: undiverged
    import_requirements: []; apply_requirements: [mergeable], import_requirements: []: none
    ");
}

#[test]
fn an_empty_list_for_imports_is_warned_about_only_after_an_entry_that_sets_some() {
    let warned = |first: &str| {
        let text = format!(
            "repos:\n  - {{id: /.*/, {first}}}\n  - {{id: github.com/o/r, import_requirements: []}}\n"
        );
        let rules = ServerRepos::parse("repos.yaml", &text).unwrap();
        rules.warnings().join("\n")
    };
    assert_eq!(warned("apply_requirements: [approved]"), "");
    assert_eq!(warned("import_requirements: []"), "");
    insta::assert_snapshot!(warned("import_requirements: [approved]"), @"repos.yaml line 3: `import_requirements: []` has no effect on repositories for which an earlier entry sets it: requirements of earlier entries stay in effect. To require less, change the expressions of those entries so that they do not match this repository");
}

/// In Atlantis an expression may match any part of the id.
#[test]
fn appendix_d_5_an_expression_speaks_for_whole_ids() {
    let text = r"repos: [{id: '/github.com\/o\/.*/', branch: /x/}]";
    let repos = ServerRepos::parse("repos.yaml", text).unwrap();
    for (id, expected) in [
        ("github.com/o/r", true),
        ("github.com.evil/o/x", false),
        ("xgithub.com/o/x", false),
    ] {
        assert_eq!(
            repos.rules(&id.parse().unwrap()).branch().is_some(),
            expected,
            "{id}"
        );
    }
}

/// In Atlantis the last entry decides these two keys even if it does not have them.
#[test]
fn appendix_d_6_a_later_entry_without_a_file_or_branch_leaves_those_of_before() {
    let rules = server(&[
        "id: /.*/, repo_config_file: ci/atlantis.yaml, branch: /^main$/",
        "id: github.com/o/r",
    ]);
    assert_eq!(
        rules.config_file().unwrap().value.as_str(),
        "ci/atlantis.yaml"
    );
    let branch = rules.branch().unwrap();
    assert!(branch.value.fits(&main_branch()));
    assert!(!branch.value.fits(&"maintenance".parse().unwrap()));
    insta::assert_snapshot!(branch.by, @"line 2 of the server's `repos.yaml`, for `/.*/`");
    let rules = server(&[
        "id: /.*/, repo_config_file: a.yaml",
        "id: github.com/o/r, repo_config_file: b.yaml",
    ]);
    assert_eq!(rules.config_file().unwrap().value.as_str(), "b.yaml");
    assert!(
        server(&["id: github.com/o/other, repo_config_file: a.yaml"])
            .config_file()
            .is_none()
    );
}

#[test]
fn appendix_d_7_the_server_wins_about_autodiscover_and_its_paths_if_it_has_any() {
    const REPO: &str = "autodiscover: {mode: disabled, ignore_paths: [own]}";
    let rows = [
        (&[][..], "", None, None),
        (&[], REPO, Some(AutodiscoverMode::Disabled), Some("own")),
        (
            &["id: /.*/, autodiscover: {mode: enabled}"],
            REPO,
            Some(AutodiscoverMode::Enabled),
            Some("own"),
        ),
        (
            &["id: /.*/, autodiscover: {mode: enabled, ignore_paths: [theirs]}"],
            REPO,
            Some(AutodiscoverMode::Enabled),
            Some("theirs"),
        ),
        (
            &[
                "id: /.*/, autodiscover: {ignore_paths: [theirs]}",
                "id: /.*/, autodiscover: {mode: disabled}",
            ],
            "",
            Some(AutodiscoverMode::Disabled),
            Some("theirs"),
        ),
        // A block without a mode means `auto`, as in Atlantis.
        (
            &["id: /.*/, autodiscover: {}"],
            REPO,
            Some(AutodiscoverMode::Auto),
            Some("own"),
        ),
        (
            &[],
            "autodiscover: {ignore_paths: [own]}",
            Some(AutodiscoverMode::Auto),
            Some("own"),
        ),
    ];
    for (lines, text, mode, paths) in rows {
        let rules = server(lines);
        let found = rules.autodiscover(Some(&repo(&rules, text)));
        assert_eq!(found.mode.map(|mode| mode.value), mode, "{lines:?} {text}");
        let globs = found.ignore_paths.map(|paths| paths.value[0].to_string());
        assert_eq!(globs.as_deref(), paths, "{lines:?} {text}");
    }
    let rules = server(&["id: /.*/, autodiscover: {mode: enabled}"]);
    let found = rules.autodiscover(Some(&repo(&rules, REPO)));
    let by = [found.mode.unwrap().by, found.ignore_paths.unwrap().by].map(|by| by.to_string());
    assert_eq!(
        by,
        [
            "line 2 of the server's `repos.yaml`, for `/.*/`",
            "line 2 of `atlantis.yaml`"
        ]
    );
}

/// In Atlantis `branch` filters the hooks after a command only.
#[test]
fn appendix_d_8_hooks_add_up_each_for_the_branches_of_its_entry() {
    let rules = server(&[
        "id: /.*/, pre_workflow_hooks: [{run: one}, {run: two}], post_workflow_hooks: [{run: after}]",
        "id: github.com/o/other, pre_workflow_hooks: [{run: never}]",
        "id: github.com/o/r, branch: /^release/, pre_workflow_hooks: [{run: three}], post_workflow_hooks: [{run: late}]",
    ]);
    let names = |base: &str| {
        let base: BranchName = base.parse().unwrap();
        let names = |hooks: Vec<&Hook>| {
            hooks
                .iter()
                .map(|hook| hook.command.clone())
                .collect::<Vec<_>>()
                .join(" ")
        };
        format!(
            "{} | {}",
            names(rules.pre_hooks(&base).collect()),
            names(rules.post_hooks(&base).collect())
        )
    };
    assert_eq!(names("main"), "one two | after");
    assert_eq!(names("release/1"), "one two three | after late");
}

#[test]
fn hooks_are_run_for_the_commands_that_they_name() {
    use CommandKind::{Apply, ApprovePolicies, Autoplan, Import, Plan, StateRm, Unlock, Version};
    const ALL: [CommandKind; 8] = [
        Plan,
        Autoplan,
        Apply,
        Unlock,
        Import,
        StateRm,
        Version,
        ApprovePolicies,
    ];
    let rows: &[(&str, &[CommandKind])] = &[
        ("", &ALL),
        (", commands: ", &ALL),
        (", commands: plan", &[Plan, Autoplan]),
        (", commands: autoplan", &[Autoplan]),
        (", commands: 'apply, unlock'", &[Apply, Unlock]),
        (", commands: [plan, apply]", &[Plan, Autoplan, Apply]),
        (", commands: 'plan,policy_check'", &[Plan, Autoplan]),
        (", commands: 'import, state'", &[Import, StateRm]),
        (", commands: [state_rm, version]", &[StateRm, Version]),
        (", commands: approve_policies", &[ApprovePolicies]),
    ];
    for (commands, expected) in rows {
        let rules = server(&[&format!(
            "id: /.*/, pre_workflow_hooks: [{{run: x{commands}}}]"
        )]);
        let base = main_branch();
        let hook = rules.pre_hooks(&base).next().unwrap();
        let found: Vec<_> = ALL.into_iter().filter(|kind| hook.is_for(*kind)).collect();
        assert_eq!(found, *expected, "{commands}");
    }
    let text = "repos: [{id: /.*/, pre_workflow_hooks: [{run: x, commands: policy_check}]}]";
    let repos = ServerRepos::parse("repos.yaml", text).unwrap();
    let rules = repos.rules(&"github.com/o/r".parse().unwrap());
    assert_eq!(
        rules.pre_hooks(&main_branch()).count(),
        0,
        "it would be run for nothing, not for everything"
    );
    insta::assert_snapshot!(repos.warnings().join("\n"), @"repos.yaml line 1: `policy_check` is a part of every plan and not a command, so the hook never runs for it: write `plan`");
}

const WORKFLOWS: &str =
    "workflows:\n  one: {plan: {steps: [plan]}}\n  two: {plan: {steps: [init]}}\n";

#[test]
fn the_workflow_is_the_projects_the_entrys_or_the_default() {
    const CUSTOM: &str =
        "id: /.*/, workflow: one, allowed_overrides: [workflow], allow_custom_workflows: true";
    const OWN: &str = "workflows: {two: {plan: {steps: [show]}}, three: {plan: {steps: []}}}\n";
    let rows = [
        ("id: /.*/", ""),
        ("id: /.*/, workflow: one", ""),
        (
            "id: /.*/, workflow: one, allowed_overrides: [workflow]",
            "projects: [{dir: a, workflow: two}]",
        ),
        (
            "id: /.*/, workflow: one, allowed_overrides: [workflow]",
            "projects: [{dir: a, workflow: default}]",
        ),
        (
            "id: /.*/, workflow: one, allowed_overrides: [workflow]",
            "projects: [{dir: b, workflow: two}]",
        ),
        (
            CUSTOM,
            &format!("{OWN}projects: [{{dir: a, workflow: two}}]"),
        ),
        (
            CUSTOM,
            &format!("{OWN}projects: [{{dir: a, workflow: three}}]"),
        ),
        (CUSTOM, &format!("{OWN}projects: [{{dir: a}}]")),
    ];
    let mut told = String::new();
    for (line, text) in rows {
        let rules = server_with(&[line], WORKFLOWS);
        let config = repo(&rules, text);
        let Decided { value, by } = of_a(&rules, Some(&config)).workflow;
        let steps: Vec<String> = value
            .plan
            .steps
            .iter()
            .map(|step| format!("{step:?}"))
            .collect();
        writeln!(
            told,
            "{line}; {}\n  {} by {by}: {}",
            text.replace('\n', "; "),
            value.name,
            steps.join(" ")
        )
        .unwrap();
    }
    insta::assert_snapshot!(told, @"
    id: /.*/; 
      default by the default: Builtin { step: Init, extra_args: [] } Builtin { step: Plan, extra_args: [] }
    id: /.*/, workflow: one; 
      one by line 2 of the server's `repos.yaml`, for `/.*/`: Builtin { step: Plan, extra_args: [] }
    id: /.*/, workflow: one, allowed_overrides: [workflow]; projects: [{dir: a, workflow: two}]
      two by line 2 of `atlantis.yaml`: Builtin { step: Init, extra_args: [] }
    id: /.*/, workflow: one, allowed_overrides: [workflow]; projects: [{dir: a, workflow: default}]
      default by line 2 of `atlantis.yaml`: Builtin { step: Init, extra_args: [] } Builtin { step: Plan, extra_args: [] }
    id: /.*/, workflow: one, allowed_overrides: [workflow]; projects: [{dir: b, workflow: two}]
      one by line 2 of the server's `repos.yaml`, for `/.*/`: Builtin { step: Plan, extra_args: [] }
    id: /.*/, workflow: one, allowed_overrides: [workflow], allow_custom_workflows: true; workflows: {two: {plan: {steps: [show]}}, three: {plan: {steps: []}}}; projects: [{dir: a, workflow: two}]
      two by line 3 of `atlantis.yaml`: Builtin { step: Show, extra_args: [] }
    id: /.*/, workflow: one, allowed_overrides: [workflow], allow_custom_workflows: true; workflows: {two: {plan: {steps: [show]}}, three: {plan: {steps: []}}}; projects: [{dir: a, workflow: three}]
      three by line 3 of `atlantis.yaml`: 
    id: /.*/, workflow: one, allowed_overrides: [workflow], allow_custom_workflows: true; workflows: {two: {plan: {steps: [show]}}, three: {plan: {steps: []}}}; projects: [{dir: a}]
      one by line 2 of the server's `repos.yaml`, for `/.*/`: Builtin { step: Plan, extra_args: [] }
    ");
    let rules = server_with(&["id: /.*/"], "workflows: {default: {plan: {steps: []}}}");
    assert!(
        of_a(&rules, None).workflow.value.plan.steps.is_empty(),
        "`default` can be replaced"
    );
}

/// Returns the message about each text with its line of the server's file.
fn refusals(texts: &[(&str, &str)]) -> String {
    let told = texts
        .iter()
        .map(|(line, text)| refusal(&server_with(&[line], WORKFLOWS), text));
    told.collect::<Vec<_>>().join("\n\n")
}

const MAY_CHOOSE: &str = "id: /.*/, allowed_overrides: [workflow]";
const ONLY_ONE: &str = "id: /.*/, allowed_overrides: [workflow], allowed_workflows: [one]";
const ONE_OR_OWN: &str = "id: /.*/, allowed_overrides: [workflow], allowed_workflows: [one], allow_custom_workflows: true";

#[test]
fn workflows_that_may_not_be_chosen_or_do_not_exist_are_refused_by_name() {
    let texts = [
        ("id: /.*/", "projects: [{dir: a, workflow: one}]"),
        (MAY_CHOOSE, "projects: [{dir: a, workflow: tow}]"),
        (MAY_CHOOSE, "projects: [{dir: a, workflow: something}]"),
        (
            MAY_CHOOSE,
            "workflows: {own: {}}\nprojects: [{dir: a, workflow: own}]",
        ),
    ];
    insta::assert_snapshot!(refusals(&texts), @"
    error: `workflow` may not be set here: the server does not allow it for this repository
     --> atlantis.yaml:2:21
      |
    2 | projects: [{dir: a, workflow: one}]
      |                     ^^^^^^^^
      = help: remove it, or ask an administrator of Lockkeeper to add `workflow` to `allowed_overrides` of this repository in the server's configuration (`--repo-config`)

    error: there is no workflow `tow`
     --> atlantis.yaml:2:31
      |
    2 | projects: [{dir: a, workflow: tow}]
      |                               ^^^
      = help: did you mean `two`?

    error: there is no workflow `something`
     --> atlantis.yaml:2:31
      |
    2 | projects: [{dir: a, workflow: something}]
      |                               ^^^^^^^^^
      = help: the workflows are `default`, `one`, `two`

    error: `workflows` may not be set here: the server does not allow it for this repository
     --> atlantis.yaml:2:1
      |
    2 | workflows: {own: {}}
      | ^^^^^^^^^
      = help: remove it, or ask an administrator of Lockkeeper to set `allow_custom_workflows: true` for this repository in the server's configuration (`--repo-config`)
    ");
}

#[test]
fn workflows_that_are_not_among_those_allowed_are_refused_by_name() {
    // All projects are checked, also those after one with a workflow of the repository.
    let texts = [
        (
            ONLY_ONE,
            "projects: [{dir: a, workflow: two}, {dir: b, workflow: one}, {dir: c, workflow: default}]",
        ),
        (
            ONE_OR_OWN,
            "workflows: {own: {}}\nprojects: [{dir: a, workflow: own}, {dir: b, workflow: two}]",
        ),
    ];
    insta::assert_snapshot!(refusals(&texts), @"
    error: the server does not allow the workflow `two` for this repository
     --> atlantis.yaml:2:31
      |
    2 | projects: [{dir: a, workflow: two}, {dir: b, workflow: one}, {dir: c, workflow: default}]
      |                               ^^^
      = help: choose one of `one`, or ask an administrator of Lockkeeper to add it to `allowed_workflows` of this repository in the server's configuration (`--repo-config`)

    error: the server does not allow the workflow `default` for this repository
     --> atlantis.yaml:2:81
      |
    2 | projects: [{dir: a, workflow: two}, {dir: b, workflow: one}, {dir: c, workflow: default}]
      |                                                                                 ^^^^^^^
      = help: choose one of `one`, or ask an administrator of Lockkeeper to add it to `allowed_workflows` of this repository in the server's configuration (`--repo-config`)

    error: the server does not allow the workflow `two` for this repository
     --> atlantis.yaml:3:56
      |
    3 | projects: [{dir: a, workflow: own}, {dir: b, workflow: two}]
      |                                                        ^^^
      = help: choose one of `one`, or ask an administrator of Lockkeeper to add it to `allowed_workflows` of this repository in the server's configuration (`--repo-config`)
    ");
    let rules = server_with(&[ONE_OR_OWN], WORKFLOWS);
    repo(
        &rules,
        "workflows: {own: {}, two: {}}\nprojects: [{dir: a, workflow: own}, {dir: b, workflow: two}]",
    );
    let rules = server_with(&[ONLY_ONE, "id: /.*/, allowed_workflows: []"], WORKFLOWS);
    repo(&rules, "projects: [{dir: a, workflow: two}]");
}

#[test]
fn a_project_is_silent_as_it_says_where_it_may() {
    const SERVER: &str = "id: /.*/, silence_pr_comments: [apply]";
    const MAY: &str = "id: /.*/, allowed_overrides: [silence_pr_comments]";
    let rows = [
        (&[][..], "", ""),
        (&[SERVER], "", "apply"),
        (&[SERVER, "id: /.*/, silence_pr_comments: []"], "", ""),
        (&[SERVER, MAY], "silence_pr_comments: [plan]", "plan"),
        (
            &[SERVER, MAY],
            "silence_pr_comments: [plan]\nprojects: [{dir: a, silence_pr_comments: []}]",
            "",
        ),
        (
            &[MAY],
            "projects: [{dir: b, silence_pr_comments: [plan]}, {dir: a, silence_pr_comments: [plan, apply]}]",
            "plan apply",
        ),
    ];
    for (lines, text, expected) in rows {
        let rules = server(lines);
        let silenced = of_a(&rules, Some(&repo(&rules, text))).silenced.value;
        let silenced: Vec<&str> = silenced.iter().map(|run| run.as_str()).collect();
        assert_eq!(silenced.join(" "), expected, "{lines:?} {text}");
    }
}

#[test]
fn the_old_form_of_locking_takes_a_lock_or_leaves_it_out() {
    const MAY: &str = "id: /.*/, allowed_overrides: [repo_locking, repo_locks]";
    for (mode, text, expected) in [
        (
            "on_plan",
            "projects: [{dir: a, repo_locking: false}]",
            "disabled",
        ),
        (
            "on_apply",
            "projects: [{dir: a, repo_locking: true}]",
            "on_apply",
        ),
        (
            "disabled",
            "projects: [{dir: a, repo_locking: true}]",
            "on_plan",
        ),
        (
            "disabled",
            "repo_locks: {mode: on_apply}\nprojects: [{dir: a, repo_locking: true}]",
            "on_apply",
        ),
        (
            "on_apply",
            "repo_locks: {mode: disabled}\nprojects: [{dir: a, repo_locking: true}]",
            "on_plan",
        ),
        (
            "on_apply",
            "repo_locks: {mode: disabled}\nprojects: [{dir: a, repo_locks: {mode: on_apply}}]",
            "on_apply",
        ),
    ] {
        let rules = server(&[MAY, &format!("id: /.*/, repo_locks: {{mode: {mode}}}")]);
        let policy = of_a(&rules, Some(&repo(&rules, text))).lock;
        assert_eq!(policy.mode.as_str(), expected, "{mode}; {text}");
    }
    let rules =
        server(&["id: /.*/, repo_locks: {mode: disabled}, allowed_overrides: [repo_locking]"]);
    assert_eq!(rules.lock_policy_unread().mode.as_str(), "on_plan");
    let told = refusal(
        &server(&[MAY]),
        "projects: [{dir: a, repo_locking: true, repo_locks: {mode: on_plan}}]",
    );
    insta::assert_snapshot!(told, @"
    error: `repo_locking` is the old form of `repo_locks`, and both are set
     --> atlantis.yaml:2:21
      |
    2 | projects: [{dir: a, repo_locking: true, repo_locks: {mode: on_plan}}]
      |                     ^^^^^^^^^^^^
      = help: remove `repo_locking`
    ");
}

#[test]
fn the_program_and_its_version_are_those_of_the_project() {
    let rules = server(&["id: /.*/"]);
    let config = repo(
        &rules,
        "projects:\n  - {dir: b, terraform_version: v1.8}\n  - {dir: a, terraform_version: v1.9, \
         terraform_distribution: opentofu}\n",
    );
    let project = of_a(&rules, Some(&config));
    let version = project.version.unwrap();
    assert_eq!(
        (
            version.value.to_string().as_str(),
            version.by.to_string().as_str()
        ),
        ("1.9.0", "line 4 of `atlantis.yaml`")
    );
    assert_eq!(project.distribution.unwrap().value.as_str(), "opentofu");
}

#[test]
fn where_the_file_is_read_from_is_the_last_word_of_the_server() {
    for (lines, expected) in [
        (&["id: /.*/"][..], None),
        (&["id: /.*/, repo_config_source: base"], Some("base")),
        (
            &["id: /.*/, repo_config_source: base", "id: /.*/"],
            Some("base"),
        ),
        (
            &[
                "id: /.*/, repo_config_source: base",
                "id: /.*/, repo_config_source: {branch: main}",
            ],
            Some("branch:main"),
        ),
        (
            &["id: /.*/, repo_config_source: merge_result"],
            Some("merge_result"),
        ),
        (
            &["id: /.*/, repo_config_source: pull_head"],
            Some("pull_head"),
        ),
    ] {
        let found = server(lines)
            .config_source()
            .map(|source| source.value.to_string());
        assert_eq!(found.as_deref(), expected, "{lines:?}");
    }
}

/// Checks that narrow permissions limit a configuration that was read with wide permissions.
#[test]
fn whoever_was_read_with_other_rules_is_not_heard() {
    let wide = "id: /.*/, allow_custom_workflows: true, allowed_overrides: [workflow, apply_requirements, \
                plan_requirements, import_requirements, fewer_requirements, silence_pr_comments, repo_locks, repo_locking]";
    let config = repo(
        &server(&[wide]),
        "silence_pr_comments: [plan]\nrepo_locks: {mode: disabled}\nworkflows: {own: {apply: {steps: []}}}\nprojects:\n\
         - {dir: a, workflow: own, apply_requirements: [], plan_requirements: [mergeable], import_requirements: []}\n",
    );
    let narrow = server(&["id: /.*/, apply_requirements: [approved]"]);
    let (heard, alone) = (of_a(&narrow, Some(&config)), of_a(&narrow, None));
    assert_eq!(heard, alone);
}

fn requirements() -> impl Strategy<Value = Vec<Requirement>> {
    proptest::collection::vec(prop::sample::select(Requirement::ALL), 0..5)
}

fn written(list: &[Requirement]) -> String {
    let words: Vec<&str> = list
        .iter()
        .map(|requirement| requirement.as_str())
        .collect();
    format!("[{}]", words.join(", "))
}

proptest! {
    /// Merges any requirements of a repository with repeated requirements of the server.
    #[test]
    fn no_demand_of_the_server_is_lost(
        first in requirements(),
        second in requirements(),
        own in requirements(),
        may in any::<bool>(),
        heard in any::<bool>(),
    ) {
        let lists = [&first, &second].map(|list| format!("id: /.*/, apply_requirements: {}", written(list)));
        let allowed = if may { "id: /.*/, allowed_overrides: [apply_requirements]" } else { "id: /.*/" };
        let rules = server(&[&lists[0], &lists[1], allowed]);
        let text = format!("projects: [{{dir: a, apply_requirements: {}}}]", written(&own));
        let all = [OverrideKey::ApplyRequirements].into_iter().collect();
        let config = RepoConfig::parse("atlantis.yaml", &format!("version: 3\n{text}"), &all).unwrap();
        let found: Vec<Requirement> =
            of_a(&rules, heard.then_some(&config)).apply_requirements.iter().map(|demand| demand.value).collect();
        let server = if second.is_empty() { &first } else { &second };
        let holds = |demand: &Requirement| found.iter().any(|found| found.implies(*demand));
        prop_assert!(server.iter().all(holds));
        let own = if may && heard { own.as_slice() } else { &[] };
        prop_assert!(own.iter().all(holds));
        prop_assert!(found.iter().all(|demand| server.contains(demand) || own.contains(demand)));
    }
}
