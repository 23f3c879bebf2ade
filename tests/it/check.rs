//! Tests `lockkeeper check` as people run it, inside and outside of git repositories.

use insta::assert_snapshot;

use crate::support::program::{ProgramOutput, WorkingTree, run};

const CODE: &str = "resource \"terraform_data\" \"it\" {}\n";

/// Returns the output, without the commit.
fn told(said: &ProgramOutput) -> String {
    let shas = regex::Regex::new("`[0-9a-f]{8}`").unwrap();
    let folder = regex::Regex::new("/[^ `]*/infra/").unwrap();
    let out = shas.replace_all(&said.out, "`COMMIT`");
    format!(
        "exit code {}\n{}{}",
        said.code,
        folder.replace_all(&out, "DIR/"),
        said.err
    )
}

#[test]
fn every_mistake_of_all_files_is_shown_where_it_is() {
    let tree = WorkingTree::new(&[
        ("a/main.tf", CODE),
        (
            "lockkeeper.yaml",
            "version: 3\nprojects:\n- nmae: a\n  dir: a\n  autoplan:\n    when_modified: ['[']\n  workspace: a/b\n",
        ),
    ]);
    assert_snapshot!(told(&tree.check(&[])), @"
    exit code 1
    error: `nmae` is not a key of a project
     --> lockkeeper.yaml:3:3
      |
    3 | - nmae: a
      |   ^^^^
      = help: did you mean `name`?

    error: `[` is not a valid file pattern: `[` is not closed by `]`
     --> lockkeeper.yaml:6:21
      |
    6 |     when_modified: ['[']
      |                     ^^^
      = help: write it as in a `.dockerignore` file, such as `../modules/**/*.tf`

    error: `a/b` cannot be a workspace
     --> lockkeeper.yaml:7:14
      |
    7 |   workspace: a/b
      |              ^^^
      = help: do not use slashes, `..`, `$` or white space, and do not begin with `-` or `~`

    3 problems. Nothing is planned until the files are fixed.
    Checked as `localhost/unknown/infra` (assumed, because `origin` names no
    repository; see `--repo`) into `main`, configured by `lockkeeper.yaml`, on a
    server without `--repo-config`.
    ");
    tree.write(&[(
        "repos.yaml",
        "repos:\n- id: /.*/\n  aply_requirements: [approved]\n",
    )]);
    assert_snapshot!(told(&tree.check(&["--repo-config", "repos.yaml"])), @"
    exit code 1
    error: `aply_requirements` is not a key of an entry of `repos`
     --> DIR/repos.yaml:3:3
      |
    3 |   aply_requirements: [approved]
      |   ^^^^^^^^^^^^^^^^^
      = help: did you mean `apply_requirements`?

    1 problem. Nothing is planned until the files are fixed.
    `lockkeeper.yaml` was not checked, because its permissions depend on the
    server's file.
    Checked as `localhost/unknown/infra` (assumed, because `origin` names no
    repository; see `--repo`) into `main`, configured by `lockkeeper.yaml`, on a
    server with `repos.yaml`.
    ");
    let json = tree.check(&["--json"]).json();
    assert_eq!(
        (&json["problems"][0]["line"], &json["explanation"]),
        (&3.into(), &serde_json::Value::Null)
    );
}

#[test]
fn files_that_would_be_overlooked_are_pointed_out() {
    let tree = WorkingTree::new(&[("atlantis.yml", "version: 3\n"), ("main.tf", CODE)]);
    let said = tree.check(&[]);
    assert_eq!(said.code, 1);
    assert!(
        said.out.contains(
            "`atlantis.yml` is not read because of its name; rename it to `atlantis.yaml`"
        ),
        "{}",
        said.out
    );
    let tree = WorkingTree::new(&[
        ("atlantis.yaml", "version: 3\n"),
        ("lockkeeper.yaml", "version: 3\n"),
    ]);
    assert!(tree.check(&[]).out.contains("only one of them may exist"));
}

#[test]
fn a_change_is_explained_with_what_is_not_committed() {
    let tree = WorkingTree::new(&[
        ("app/main.tf", CODE),
        ("net/main.tf", CODE),
        (
            "old/main.tf",
            "# a file that is long enough to be found again when it moves\n# second line\n",
        ),
        ("idle/main.tf", CODE),
        (
            "lockkeeper.yaml",
            "version: 3\nprojects:\n- {name: app, dir: app}\n- {name: net, dir: net, autoplan: {enabled: false}}\n- {dir: old}\n- {dir: new}\n- {dir: idle, autoplan: {when_modified: ['*.py']}}\n",
        ),
    ]);
    tree.write(&[("app/main.tf", "# changed\n")]);
    tree.git(&["rm", "-q", "--cached", "old/main.tf"]);
    std::fs::create_dir(tree.path().join("new")).unwrap();
    std::fs::rename(
        tree.path().join("old/main.tf"),
        tree.path().join("new/main.tf"),
    )
    .unwrap();
    tree.commit();
    tree.write(&[("net/more.tf", CODE), ("README.md", "Read me.\n")]);
    assert_snapshot!(told(&tree.check(&[])), @"
    exit code 0
    3 of 5 projects would be planned, 1 of them only when a comment requests it.
    Compared with `main` (`COMMIT`): 4 changed files, 2 of them not committed yet.
    Checked as `localhost/unknown/infra` (assumed, because `origin` names no
    repository; see `--repo`) into `main`, configured by `lockkeeper.yaml`, on a
    server without `--repo-config`.

    Would be planned (3)
      app  `app/main.tf` changed and matches `**/*.tf*` of `when_modified`
      net  `net/more.tf` changed and matches `**/*.tf*` of `when_modified`; a push
           does not plan it, only a comment does (line 4 of `lockkeeper.yaml`)
      new  `new/main.tf` changed and matches `**/*.tf*` of `when_modified`

        workflow        `default` (the default)
        needs           nothing for plan, apply or import
        tool            terraform (the default), any version of the server
        lock            `on_plan`, scope `workspace`, no time limit (the default)

    Would not be planned (2)
         1  its directory does not exist
            old
         1  no changed file matches its `when_modified`: `*.py`
            idle

    Changed files that belong to no project (2)
      README.md    it matches `when_modified` of no project
      old/main.tf  it matches `when_modified` of no project

    Without effect, or unknown (1)
      lockkeeper.yaml:5     the directory `old` does not exist: correct `dir`, or
                            remove the project
    ");
}

#[test]
fn without_anything_to_compare_with_only_the_files_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("main.tf"), CODE).unwrap();
    let check = |args: &[&str]| {
        told(&run(
            env!("CARGO_BIN_EXE_lockkeeper"),
            dir.path(),
            args,
            &[],
        ))
    };
    assert!(check(&["check"]).starts_with("exit code 0\nNo problems in the files.\n"));
    assert!(check(&["check", "--all"]).starts_with(
        "exit code 0\n1 project would be planned.\nNo revision to compare with: 1 file treated as changed.\n"
    ));
    assert!(check(&["check", "--base", "main"]).starts_with("exit code 2\nerror: "));
    assert!(check(&["check", "absent"]).contains("is not a directory"));
}

#[test]
fn mistakes_in_the_file_of_hosts_are_shown_without_its_lines() {
    let tree = WorkingTree::new(&[("a/main.tf", CODE)]);
    tree.write(&[(
        "hosts.yaml",
        "hosts:\n- host: github.example.com\n  user: bot\n  token: ghp_secret\n  webhook_secret_file: /absent\n",
    )]);
    assert_snapshot!(told(&tree.check(&["--gh-hosts-file", "hosts.yaml"])), @"
    exit code 1
    error: an entry of `hosts` has no `token_file`
     --> DIR/hosts.yaml:2:3
      = help: name the file with the personal access token of the account

    error: `token` is not a key of an entry of `hosts`
     --> DIR/hosts.yaml:4:3
      = help: the keys of an entry of `hosts` are `host`, `api_url`, `user`, `token_file`, `app`, `webhook_secret_file`

    2 problems. Nothing is planned until the files are fixed.
    Checked as `localhost/unknown/infra` (assumed, because `origin` names no
    repository; see `--repo`) into `main`, without a configuration file, on a server
    without `--repo-config`.
    ");
    tree.write(&[(
        "hosts.yaml",
        "hosts:\n- host: github.example.com\n  user: bot\n  token_file: /absent\n  webhook_secret_file: /absent\n",
    )]);
    let said = tree.check(&["--gh-hosts-file", "hosts.yaml"]);
    assert_eq!(said.code, 0, "{}", told(&said));
}

#[test]
fn files_that_are_no_text_and_json_that_is_none_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let check = |args: &[&str]| {
        told(&run(
            env!("CARGO_BIN_EXE_lockkeeper"),
            dir.path(),
            args,
            &[],
        ))
    };
    let json = check(&["check", "--repo-config-json", "{\"repos\":[}"]);
    assert!(
        json.contains("error: this is not valid JSON: ") && !json.contains("yaml.org"),
        "{json}"
    );
    std::fs::write(
        dir.path().join("lockkeeper.yaml"),
        b"version: 3\n# caf\xe9\n",
    )
    .unwrap();
    let file = check(&["check"]);
    assert!(
        file.contains("error: `lockkeeper.yaml` cannot be read: line 2 is not UTF-8"),
        "{file}"
    );
}

#[test]
fn the_settings_of_the_server_count_from_flags_and_variables() {
    let tree = WorkingTree::new(&[("a/main.tf", CODE)]);
    tree.write(&[
        ("a/main.tf", "# changed\n"),
        (
            "repos.yaml",
            "repos:\n- id: /acme\\/.*/\n  repo_locks: {mode: on_apply}\n",
        ),
    ]);
    tree.git(&["remote", "add", "origin", "git@github.com:acme/infra.git"]);
    let mode = |said: ProgramOutput| said.json()["explanation"]["autodiscover"]["mode"].to_string();
    let variable = tree.check_with(&["--json"], &[("ATLANTIS_AUTODISCOVER_MODE", "disabled")]);
    assert_eq!(
        mode(variable),
        r#"{"by":{"flag":"autodiscover-mode","who":"flag"},"value":"disabled"}"#
    );
    let flag = tree.check_with(
        &["--json", "--autodiscover-mode", "enabled"],
        &[("ATLANTIS_AUTODISCOVER_MODE", "disabled")],
    );
    assert!(mode(flag).contains("enabled"));
    let said = tree.check(&["--repo-config", "repos.yaml"]);
    assert!(
        said.out.contains("`/acme\\/.*/` matches only a part of"),
        "{}",
        said.out
    );
    assert!(
        said.out
            .contains("Checked as `github.com/acme/infra` into `main`"),
        "{}",
        said.out
    );
    let wrong = tree.check(&[
        "--default-tf-version",
        "new",
        "--repo-config",
        "absent.yaml",
    ]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("--default-tf-version") && wrong.err.contains("absent.yaml"),
        "{}",
        wrong.err
    );
}

#[test]
fn more_projects_than_the_server_allows_are_told_with_the_flag() {
    let tree = WorkingTree::new(&[("a/main.tf", CODE), ("b/main.tf", CODE)]);
    tree.write(&[("a/main.tf", "# changed\n"), ("b/main.tf", "# changed\n")]);
    let words = |said: ProgramOutput| said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let refused = words(tree.check_with(&[], &[("LOCKKEEPER_MAX_PROJECTS", "1")]));
    assert!(
        refused.contains(
            "would refuse this plan: a command may have 1 projects at most (`--max-projects`)."
        ),
        "{refused}"
    );
    let allowed = words(tree.check(&["--max-projects", "2"]));
    assert!(
        allowed.contains("2 projects would be planned") && !allowed.contains("refuse"),
        "{allowed}"
    );
}

#[test]
fn a_server_that_reads_the_configuration_elsewhere_is_told_of_by_entry_and_by_flag() {
    let tree = WorkingTree::new(&[
        ("a/main.tf", CODE),
        ("lockkeeper.yaml", "version: 3\nprojects:\n- {dir: a}\n"),
    ]);
    tree.write(&[
        ("a/main.tf", "# changed\n"),
        (
            "base.yaml",
            "repos:\n- {id: /.*/, repo_config_source: base}\n",
        ),
        (
            "head.yaml",
            "repos:\n- {id: /.*/, repo_config_source: pull_head}\n",
        ),
    ]);
    let told = |args: &[&str], source: &str| {
        let said = tree.check_with(args, &[("LOCKKEEPER_REPO_CONFIG_SOURCE", source)]);
        let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
        let (_, rest) = words.split_once("The server reads the repository's file from ")?;
        rest.split_once("; this check reads it from the working tree.")
            .map(|(source, _)| source.to_owned())
    };
    let flag = "(`--repo-config-source` of the server)";
    assert_eq!(told(&[], "base"), Some(format!("`base` {flag}")));
    assert_eq!(
        told(&["--repo-config-source", "branch:main"], "base"),
        Some(format!("`branch:main` {flag}"))
    );
    let entry = "`base` (line 2 of the server's `base.yaml`, for `/.*/`)";
    assert_eq!(
        told(&["--repo-config", "base.yaml"], "pull_head").as_deref(),
        Some(entry)
    );
    assert_eq!(
        told(&["--repo-config", "head.yaml"], "base"),
        None,
        "the entry wins"
    );
    assert_eq!(told(&[], ""), None);
    assert_eq!(tree.check(&["--repo-config-source", "main"]).code, 2);
}

#[test]
fn hooks_that_were_not_run_and_units_that_terragrunt_passes_over_are_told() {
    let tree = WorkingTree::new(&[
        ("terragrunt.hcl", ""),
        (
            "net/terragrunt.hcl",
            "include \"root\" {\n  path = find_in_parent_folders()\n}\n",
        ),
        ("net/main.tf", CODE),
        ("off/terragrunt.hcl", "skip = true\n"),
        ("off/main.tf", CODE),
    ]);
    tree.write(&[
        ("net/main.tf", "# changed\n"),
        ("off/main.tf", "# changed\n"),
        (
            "repos.yaml",
            "repos:\n- id: /.*/\n  pre_workflow_hooks:\n  - run: ./generate\n  - {run: ./a, commands: apply}\n",
        ),
    ]);
    let said = tree.check(&["--repo-config", "repos.yaml"]);
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Hooks were not run. Before a plan, the server runs 1 hook. Without it, this explanation may differ from a \
         plan, because hooks may make or change files.",
        "1 it is not a Terragrunt unit: `skip` or `exclude` in its `terragrunt.hcl` excludes it off",
        "1 it is not a Terragrunt unit: its `terragrunt.hcl` is included by others and names no `source`, and it has \
         no code itself .",
        "off/main.tf `off` is not a Terragrunt unit: `skip` or `exclude`",
    ] {
        assert!(words.contains(part), "{part}\n{}", said.out);
    }
    let json = tree
        .check(&["--json", "--repo-config", "repos.yaml"])
        .json();
    assert_eq!(
        (
            &json["pre_workflow_hooks"],
            &json["explanation"]["hooks_not_run"]
        ),
        (&1.into(), &1.into())
    );
    let skipped = json["explanation"]["skipped"].as_array().unwrap();
    let why = |one: &serde_json::Value| format!("{} {}", one["dir"], one["reason"]);
    assert_eq!(
        skipped.iter().map(why).collect::<Vec<_>>(),
        [r#"".""#, r#""off""#].map(|dir| format!("{dir} \"passed_over\""))
    );
    let without = tree.check(&[]);
    assert!(!without.out.contains("Hooks"), "{}", without.out);
}

#[test]
fn code_that_is_a_link_counts_where_the_link_is() {
    let demand = "terraform {\n  required_version = \"~> 1.9.0\"\n}\n";
    let tree = WorkingTree::new(&[
        (
            "base/main.tf",
            "module \"net\" {\n  source = \"../../modules/net\"\n}\n",
        ),
        ("base/versions.tf", demand),
        ("modules/net/main.tf", CODE),
        (
            "lockkeeper.yaml",
            "version: 3\nprojects:\n- dir: live/prod\n",
        ),
    ]);
    let dir = tree.path().join("live/prod");
    std::fs::create_dir_all(&dir).unwrap();
    for (name, target) in [
        ("main.tf", "../../base/main.tf"),
        ("versions.tf", "../../base/versions.tf"),
        ("circle.tf", "circle.tf"),
        ("passwd.tf", "/etc/passwd"),
    ] {
        std::os::unix::fs::symlink(target, dir.join(name)).unwrap();
    }
    tree.git(&["checkout", "-q", "main"]);
    tree.commit();
    tree.git(&["checkout", "-q", "-B", "change"]);
    tree.write(&[("modules/net/main.tf", "# changed\n")]);
    let said = tree.check(&["--autoplan-modules"]);
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Would be planned (1)",
        "live/prod `modules/net/main.tf` changed, in a module that it uses: `modules/net`",
        "the newest version that matches: line 2 of `live/prod/versions.tf` says `~> 1.9.0`",
    ] {
        assert!(words.contains(part), "{part}\n{}", said.out);
    }
}

#[test]
fn a_thousand_projects_are_told_in_a_screenful() {
    let names: Vec<String> = (0..1000)
        .map(|n| format!("team{:02}/app{n:03}", n / 50))
        .collect();
    let files: Vec<(String, &str)> = names
        .iter()
        .map(|name| (format!("{name}/main.tf"), CODE))
        .collect();
    let project = |name: &String| format!("- {{dir: {name}, terraform_version: 1.9.8}}\n");
    let config = format!(
        "version: 3\nprojects:\n{}",
        names.iter().map(project).collect::<Vec<_>>().concat()
    );
    let mut all: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), *text))
        .collect();
    all.push(("lockkeeper.yaml", &config));
    let tree = WorkingTree::new(&all);
    tree.write(&[
        ("team00/app007/main.tf", "# changed\n"),
        ("team07/app350/x.tfvars", ""),
        ("docs/x.md", ""),
    ]);
    let said = tree.check(&[]);
    assert_snapshot!(told(&said), @"
    exit code 0
    2 of 1000 projects would be planned.
    Compared with `main` (`COMMIT`): 3 changed files, 3 of them not committed yet.
    Checked as `localhost/unknown/infra` (assumed, because `origin` names no
    repository; see `--repo`) into `main`, configured by `lockkeeper.yaml`, on a
    server without `--repo-config`.

    Would be planned (2)
      team00/app007  `team00/app007/main.tf` changed and matches `**/*.tf*` of
                     `when_modified`
      team07/app350  `team07/app350/x.tfvars` changed and matches `**/*.tf*` of
                     `when_modified`

        workflow        `default` (the default)
        needs           nothing for plan, apply or import
        tool            terraform (the default), version 1.9.8 (lines 10, 353 of
                        `lockkeeper.yaml`)
        lock            `on_plan`, scope `workspace`, no time limit (the default)

    Would not be planned (998)
       998  no Terraform file in its directory changed (the default of
            `when_modified`)
            team00/app000, team00/app001, team00/app002, team00/app003,
            team00/app004, … and 993 more

    Changed files that belong to no project (1)
      docs/x.md  it matches `when_modified` of no project
    ");
    let everything = tree.check(&["--all"]).out;
    assert!(
        everything.lines().count() > 998 && everything.contains("\n        team19/app999\n"),
        "{everything}"
    );
}

#[test]
fn what_has_no_effect_is_listed_of_both_files() {
    let tree = WorkingTree::new(&[
        ("a/main.tf", CODE),
        (
            "atlantis.yaml",
            "version: 3\nemoji_reaction: eyes\nprojects:\n- dir: a\n  delete_source_branch_on_merge: true\n  \
             apply_requirements: []\n  autoplan: {when_modified: ['*.py']}\n",
        ),
        (
            "repos.yaml",
            "repos:\n- id: /.*/\n  apply_requirements: [approved]\n  allowed_overrides: [apply_requirements]\n\
             - id: /.*/\n  apply_requirements: []\nworkflows:\n  w:\n    policy_check: {steps: [show]}\n\
             metrics: {prometheus: {endpoint: /metrics}}\n",
        ),
    ]);
    assert_snapshot!(told(&tree.check(&["--repo-config", "repos.yaml"])), @"
    exit code 0
    None of 1 project would be planned.
    Compared with `main` (`COMMIT`): 0 changed files.
    Checked as `localhost/unknown/infra` (assumed, because `origin` names no
    repository; see `--repo`) into `main`, configured by `atlantis.yaml`, on a
    server with `repos.yaml`.

    Would not be planned (1)
         1  no changed file matches its `when_modified`: `*.py`
            a

    Without effect, or unknown (6)
      atlantis.yaml:2       `emoji_reaction` has no effect: the reaction is added
                            before this file is read; an administrator can choose
                            one with `--emoji-reaction`
      atlantis.yaml:5       `delete_source_branch_on_merge` has no effect: GitHub
                            deletes the branch if the setting `Automatically delete
                            head branches` of the repository is on; Atlantis also
                            ignores the key on GitHub
      atlantis.yaml:6       `apply_requirements: []` has no effect: the requirements
                            of the server are still in effect; remove the key, or
                            ask an administrator to add `fewer_requirements` to
                            `allowed_overrides` of this repository
      repos.yaml:6          `apply_requirements: []` has no effect: requirements of
                            earlier entries stay in effect. To require less, change
                            the expressions of those entries so that they do not
                            match this repository
      repos.yaml:9          the stage `policy_check` of the workflow `w` never runs:
                            the file has no policy sets
      repos.yaml:10         `metrics` has no effect: `/metrics` is always available
                            for Prometheus, and metrics are not sent to StatsD
    ");
}
