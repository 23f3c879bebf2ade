//! Tests every key of an entry and of a project that a later setting can override. A row has the setting of an entry,
//! a later setting of another entry or a project, and the result. A key without a row fails, unless it has a reason.

use super::{main_branch, of_a, repo, server_with};
use crate::config::repo::{OverrideKey, ProjectMapping, RepoConfig};
use crate::config::repos::{Demands, EntryMapping, RepoRules};
use crate::config::yaml::{KeyShape, Mapping};

/// Workflows and policy sets of the server.
const DEFINED: &str = "workflows:\n  one: {plan: {steps: [plan]}}\n  two: {plan: {steps: [init]}}\n\
                       policies: {policy_sets: [{name: a, path: /p}]}\n";

/// A key, its value in an entry, its later value, and the result that [`held`] returns.
type Row = (&'static str, &'static str, &'static str, &'static str);

/// Keys that a later entry overrides.
const ENTRIES: &[Row] = &[
    ("branch", "/^main$/", "/^release$/", "^release$"),
    ("repo_config_file", "a.yaml", "b.yaml", "b.yaml"),
    (
        "repo_config_source",
        "base",
        "{branch: main}",
        "branch:main",
    ),
    (
        "plan_requirements",
        "[approved]",
        "[mergeable]",
        "mergeable",
    ),
    (
        "apply_requirements",
        "[approved, mergeable]",
        "[undiverged]",
        "undiverged",
    ),
    ("four_eyes", "false", "true", "true"),
    ("environment_profile", "prod", "dev", "dev"),
    (
        "environment_profile",
        "dev",
        "[{dir: a, profile: prod}]",
        "prod",
    ),
    (
        "environment_profile",
        "dev",
        "[{dir: b, profile: prod}]",
        "none",
    ),
    ("environment_profile", "dev", "[]", "none"),
    (
        "import_requirements",
        "[mergeable]",
        "[approved]",
        "approved",
    ),
    // The hooks of both entries run.
    (
        "pre_workflow_hooks",
        "[{run: one}]",
        "[{run: two}]",
        "one two",
    ),
    (
        "post_workflow_hooks",
        "[{run: one}]",
        "[{run: two}]",
        "one two",
    ),
    ("workflow", "one", "two", "two"),
    ("allowed_workflows", "[one]", "[two]", "two"),
    (
        "allowed_overrides",
        "[workflow]",
        "[repo_locks]",
        "repo_locks",
    ),
    ("allow_custom_workflows", "true", "false", "false"),
    (
        "repo_locks",
        "{mode: disabled}",
        "{mode: on_apply}",
        "on_apply workspace None",
    ),
    (
        "repo_locks",
        "{scope: project}",
        "{scope: workspace}",
        "on_plan workspace None",
    ),
    (
        "repo_locks",
        "{ttl: 72h}",
        "{ttl: none}",
        "on_plan workspace None",
    ),
    (
        "repo_locks",
        "{mode: on_apply, ttl: 1h}",
        "{scope: project}",
        "on_apply project Some(3600s)",
    ),
    ("repo_locking", "false", "true", "on_plan workspace None"),
    (
        "autodiscover",
        "{mode: enabled, ignore_paths: [old]}",
        "{mode: disabled}",
        "disabled old",
    ),
    (
        "autodiscover",
        "{ignore_paths: [old]}",
        "{ignore_paths: [new]}",
        "auto new",
    ),
    ("silence_pr_comments", "[plan]", "[apply]", "apply"),
    ("policy_check", "true", "false", "false"),
    ("policy_check", "false", "true", "true"),
    (
        "custom_policy_check",
        "false",
        "true, policy_check: true",
        "true",
    ),
];

/// Keys that a project with permission overrides.
const PROJECTS: &[Row] = &[
    ("workflow", "one", "two", "two"),
    // The requirements of both are in effect.
    (
        "plan_requirements",
        "[approved]",
        "[mergeable]",
        "approved mergeable",
    ),
    (
        "apply_requirements",
        "[approved]",
        "[undiverged, approved]",
        "approved undiverged",
    ),
    (
        "import_requirements",
        "[mergeable]",
        "[approved]",
        "mergeable approved",
    ),
    (
        "repo_locks",
        "{mode: disabled}",
        "{mode: on_apply}",
        "on_apply workspace None",
    ),
    (
        "repo_locks",
        "{scope: project, ttl: 1h}",
        "{mode: on_apply}",
        "on_apply project Some(3600s)",
    ),
    ("repo_locking", "false", "true", "on_plan workspace None"),
    ("repo_locking", "true", "false", "disabled workspace None"),
    ("silence_pr_comments", "[plan]", "[apply]", "apply"),
    ("policy_check", "true", "false", "false"),
    ("policy_check", "false", "true", "true"),
    (
        "custom_policy_check",
        "true, policy_check: true",
        "false",
        "false",
    ),
];

/// Keys that a project overrides if the administrator has set `fewer_requirements`.
const PROJECTS_WITH_FEWER: &[Row] = &[
    (
        "plan_requirements",
        "[approved]",
        "[mergeable]",
        "mergeable",
    ),
    ("apply_requirements", "[approved]", "[]", ""),
    (
        "import_requirements",
        "[mergeable]",
        "[approved]",
        "approved",
    ),
];

/// Permissions of the projects in these tests.
const MAY: &str = "workflow, plan_requirements, apply_requirements, import_requirements, repo_locks, repo_locking, \
                   silence_pr_comments, policy_check, custom_policy_check";

const NO_EFFECT: &str = "it has no effect: there is nothing to override";
const WHICH: &str = "it says what the others are about";
const OF_PROJECTS: &str = "no entry has it: only a project says it";

/// Keys of an entry that nothing overrides.
const ENTRIES_WITHOUT: &[(&str, &str)] =
    &[("id", WHICH), ("delete_source_branch_on_merge", NO_EFFECT)];

/// Keys of a project that override nothing of an entry.
const PROJECTS_WITHOUT: &[(&str, &str)] = &[
    ("dir", WHICH),
    ("name", WHICH),
    ("branch", WHICH),
    ("workspace", WHICH),
    ("terraform_distribution", OF_PROJECTS),
    ("terraform_version", OF_PROJECTS),
    ("autoplan", OF_PROJECTS),
    ("depends_on", OF_PROJECTS),
    ("execution_order_group", OF_PROJECTS),
    ("delete_source_branch_on_merge", NO_EFFECT),
];

/// Returns the value in effect of a key, for the project in directory `a`.
fn held(rules: &RepoRules, config: Option<&RepoConfig>, key: &str) -> String {
    let (project, base, may) = (of_a(rules, config), main_branch(), rules.permissions());
    match key {
        "branch" => rules.branch().expect(key).value.as_str().to_owned(),
        "repo_config_file" => rules.config_file().expect(key).value.to_string(),
        "repo_config_source" => rules.config_source().expect(key).value.to_string(),
        "plan_requirements" => demanded(&project.plan_requirements),
        "apply_requirements" => demanded(&project.apply_requirements),
        "import_requirements" => demanded(&project.import_requirements),
        "environment_profile" => project
            .environment_profile
            .map_or("none".to_owned(), |profile| profile.value),
        "four_eyes" => rules.four_eyes().value.to_string(),
        "pre_workflow_hooks" => joined(rules.pre_hooks(&base).map(|hook| hook.command.as_str())),
        "post_workflow_hooks" => joined(rules.post_hooks(&base).map(|hook| hook.command.as_str())),
        "workflow" => project.workflow.value.name.clone(),
        "allowed_workflows" => joined(may.allowed_workflows.iter().map(String::as_str)),
        "allowed_overrides" => joined(
            OverrideKey::ALL
                .iter()
                .filter(|key| may.allows(**key))
                .map(|key| key.as_str()),
        ),
        "allow_custom_workflows" => may.allows_custom_workflows().to_string(),
        "repo_locks" | "repo_locking" => {
            format!(
                "{} {} {:?}",
                project.lock.mode, project.lock.scope, project.lock.ttl
            )
        }
        "autodiscover" => searched(rules, config),
        "silence_pr_comments" => joined(project.silenced.value.iter().map(|run| run.as_str())),
        "policy_check" => project.policies.is_some().to_string(),
        "custom_policy_check" => project.policies.map_or("unchecked".to_owned(), |policies| {
            (!policies.value.step_sets.is_empty()).to_string()
        }),
        other => panic!("how `{other}` is read is not written here"),
    }
}

fn demanded(demands: &Demands) -> String {
    joined(demands.iter().map(|demand| demand.value.as_str()))
}

fn searched(rules: &RepoRules, config: Option<&RepoConfig>) -> String {
    let found = rules.autodiscover(config);
    let mode = found.mode.map(|mode| mode.value.to_string());
    let paths = found
        .ignore_paths
        .into_iter()
        .flat_map(|paths| paths.value)
        .map(|glob| glob.to_string());
    mode.into_iter().chain(paths).collect::<Vec<_>>().join(" ")
}

fn joined<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_later_entry_overrides_an_earlier_one() {
    for (key, first, second, expected) in ENTRIES {
        let first = format!("id: /.*/, {key}: {first}");
        let second = format!("id: /.*/, {key}: {second}");
        let after = |lines: &[&str]| held(&server_with(lines, DEFINED), None, key);
        assert_eq!(after(&[&first, &second]), *expected, "{first}; {second}");
        assert_eq!(
            after(&[&first, &second, "id: /.*/"]),
            *expected,
            "{second}; and an entry that says nothing of it"
        );
        assert_ne!(
            after(&[&first]),
            *expected,
            "{first}; {second}: the row shows nothing"
        );
    }
}

#[test]
fn a_project_overrides_an_entry_where_it_may() {
    for (more, rows) in [
        ("", PROJECTS),
        (", fewer_requirements", PROJECTS_WITH_FEWER),
    ] {
        for (key, of_entry, own, expected) in rows {
            let entry = format!("id: /.*/, {key}: {of_entry}, allowed_overrides: [{MAY}{more}]");
            let rules = server_with(&[&entry], DEFINED);
            let config = repo(&rules, &format!("projects: [{{dir: a, {key}: {own}}}]"));
            assert_eq!(
                held(&rules, Some(&config), key),
                *expected,
                "{entry}; {own}"
            );
            assert_ne!(
                held(&rules, None, key),
                *expected,
                "{entry}; {own}: the row shows nothing"
            );
        }
    }
}

#[test]
fn every_key_has_its_row_or_a_reason_to_have_none() {
    for (keys, rows, without) in [
        (EntryMapping::KEYS, ENTRIES, ENTRIES_WITHOUT),
        (ProjectMapping::KEYS, PROJECTS, PROJECTS_WITHOUT),
    ] {
        for key in keys.list {
            let of = format!("`{}` of {}", key.name, keys.of);
            let has_row = rows.iter().any(|(name, ..)| *name == key.name);
            let reason = without
                .iter()
                .find(|(name, _)| *name == key.name)
                .map(|(_, reason)| *reason);
            assert_eq!(has_row, reason.is_none(), "{of}: either a row or a reason");
            assert_eq!(
                matches!(key.shape, KeyShape::WithoutEffect(..)),
                reason == Some(NO_EFFECT),
                "{of}"
            );
            let is_of_entries = EntryMapping::KEYS.names().any(|name| name == key.name);
            assert!(
                reason != Some(OF_PROJECTS) || !is_of_entries,
                "{of}: an entry has it too"
            );
        }
        let names = rows
            .iter()
            .map(|(name, ..)| *name)
            .chain(without.iter().map(|(name, _)| *name));
        for name in names {
            assert!(
                keys.names().any(|key| key == name),
                "`{name}` is no key of {}",
                keys.of
            );
        }
    }
}
