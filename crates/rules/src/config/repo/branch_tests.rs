//! Tests projects of several base branches in one file, and projects that depend on each other.

use super::*;

fn parse(projects: &str) -> Result<RepoConfig, YamlErrors> {
    RepoConfig::parse(
        "atlantis.yaml",
        &format!("version: 3\nprojects:\n{projects}"),
        &RepoPermissions::default(),
    )
}

fn base(name: &str) -> BranchName {
    name.parse().unwrap()
}

#[test]
fn projects_of_different_base_branches_do_not_meet() {
    let config = parse(
        "  - {dir: a, name: net, branch: /^main$/, workspace: prod}\n  - {dir: a, name: net, branch: /^dev/}\n  \
         - {dir: b, branch: /^main$/}\n  - {dir: b, branch: /^dev/}\n  - {dir: c}\n",
    )
    .unwrap();
    let lines = |name: &str| {
        let here = config.for_base(&base(name)).unwrap();
        (
            here.projects
                .iter()
                .map(|project| project.line)
                .collect::<Vec<_>>(),
            here.elsewhere.len(),
        )
    };
    assert_eq!(lines("main"), (vec![3, 5, 7], 2));
    assert_eq!(lines("develop"), (vec![4, 6, 7], 2));
    assert_eq!(lines("release"), (vec![7], 4));
    let key = ProjectKey {
        name: Some("net".parse().unwrap()),
        ..ProjectKey::of_dir("a".parse().unwrap())
    };
    let of_dev = config.for_base(&base("dev")).unwrap();
    assert_eq!(of_dev.entry_of(&key).map(|entry| entry.line), Some(4));
}

#[test]
fn projects_that_meet_on_every_branch_of_one_of_them_are_told_apart_when_the_file_is_read() {
    let errors = parse(
        "  - {dir: a, name: net}\n  - {dir: b, name: net, branch: /^main$/}\n  - {dir: c, branch: /x/}\n  - {dir: c, branch: /x/}\n",
    );
    insta::assert_snapshot!(errors.unwrap_err(), @"
    error: two projects have the name `net`; the other one is in line 3
     --> atlantis.yaml:4:5
      |
    4 |   - {dir: b, name: net, branch: /^main$/}
      |     ^
      = help: give each project its own name

    error: `dir: c` with workspace `default` is already a project in line 5
     --> atlantis.yaml:6:5
      |
    6 |   - {dir: c, branch: /x/}
      |     ^
      = help: give this project a `name`, so that commands can select it: `plan -p NAME`
    ");
}

#[test]
fn projects_that_meet_on_one_branch_are_told_when_it_comes() {
    let config = parse(
        "  - {dir: a, name: net, branch: /main/}\n  - {dir: b, name: net, branch: /^m/}\n  - {dir: c, branch: /main/}\n  \
         - {dir: c, branch: /^m/}\n",
    )
    .unwrap();
    assert!(config.for_base(&base("maintenance-2")).is_err());
    assert!(config.for_base(&base("mine")).is_ok());
    insta::assert_snapshot!(config.for_base(&base("main")).unwrap_err(), @"for pull requests into `main`: line 4 of `atlantis.yaml`: two projects have the name `net`; the other one is in line 3; give each project its own name; line 6 of `atlantis.yaml`: `dir: c` with workspace `default` is already a project in line 5; give this project a `name`, so that commands can select it: `plan -p NAME`");
}

#[test]
fn what_is_no_branch_filter_is_told() {
    let told = ["main", "/main", "main/", "//", "/", "/(/", "[main]"].map(|branch| {
        let errors = parse(&format!("  - {{dir: a, branch: {branch}}}\n")).expect_err(branch);
        errors
            .problems()
            .map(|problem| format!("{branch} => {} => {}", problem.what, problem.help))
            .collect::<Vec<_>>()
            .concat()
    });
    insta::assert_snapshot!(told.join("\n"), @"
    main => `main` is not a regular expression between slashes => write a slash before and after it: `branch: /^main$/`
    /main => `/main` is not a regular expression between slashes => write a slash before and after it: `branch: /^main$/`
    main/ => `main/` is not a regular expression between slashes => write a slash before and after it: `branch: /^main$/`
    // => `//` is not a regular expression between slashes => write a slash before and after it: `branch: /^main$/`
    / => `/` is not a regular expression between slashes => write a slash before and after it: `branch: /^main$/`
    /(/ => `(` is not a regular expression: unclosed group => see https://docs.rs/regex/#syntax; the syntax is almost that of Go
    [main] => `branch` must be a text, not a list => write a text here
    ");
}

#[test]
fn names_to_wait_for_must_exist() {
    let errors = parse(
        "  - {dir: a, name: network}\n  - dir: b\n    depends_on:\n      - network\n      - netwrk\n      - database\n      - a b\n",
    );
    insta::assert_snapshot!(errors.unwrap_err(), @"
    error: there is no project `netwrk` to depend on
     --> atlantis.yaml:7:9
      |
    7 |       - netwrk
      |         ^^^^^^
      = help: did you mean `network`?

    error: there is no project `database` to depend on
     --> atlantis.yaml:8:9
      |
    8 |       - database
      |         ^^^^^^^^
      = help: write the `name` of a project of this file; a project without a name cannot be a dependency

    error: `a b` cannot be the name of a project
     --> atlantis.yaml:9:9
      |
    9 |       - a b
      |         ^^^
      = help: use 1 to 255 letters, digits, `-`, `_`, `.`, `~` or `/`
    ");
}

#[test]
fn projects_that_wait_for_each_other_are_told_once_with_the_whole_circle() {
    let told = [
        "  - {dir: a, name: a, depends_on: [a]}\n",
        "  - {dir: a, name: a, depends_on: [b]}\n  - {dir: b, name: b, depends_on: [c]}\n  - {dir: c, name: c, depends_on: [b]}\n",
        "  - {dir: a, name: a, depends_on: [b, c]}\n  - {dir: b, name: b, depends_on: [d]}\n  - {dir: c, name: c, depends_on: [d]}\n  \
         - {dir: d, name: d, depends_on: [a]}\n",
    ]
    .map(|projects| {
        let errors = parse(projects).expect_err(projects);
        errors.problems().map(|problem| format!("{} => {}\n", problem.what, problem.help)).collect::<Vec<_>>().concat()
    });
    insta::assert_snapshot!(told.join("\n"), @"
    projects depend on each other in a cycle, so none of them can run: `a` → `a` => remove one of them from `depends_on`

    projects depend on each other in a cycle, so none of them can run: `b` → `c` → `b` => remove one of them from `depends_on`

    projects depend on each other in a cycle, so none of them can run: `a` → `c` → `d` → `a` => remove one of them from `depends_on`
    ");
    // Two paths to the same project are not a cycle.
    parse("  - {dir: a, name: a, depends_on: [b, c]}\n  - {dir: b, name: b, depends_on: [d]}\n  - {dir: c, name: c, depends_on: [d]}\n  - {dir: d, name: d}\n").unwrap();
    // Projects that depend on each other on different branches are not a cycle either.
    parse("  - {dir: a, name: a, branch: /x/, depends_on: [b]}\n  - {dir: b, name: b, branch: /x/}\n  - {dir: a, name: a, branch: /y/}\n  - {dir: b, name: b, branch: /y/, depends_on: [a]}\n").unwrap();
}

#[test]
fn a_long_circle_is_found_without_a_deep_stack() {
    let mut text = String::new();
    for number in 0..5_000 {
        let next = (number + 1) % 5_000;
        std::fmt::Write::write_fmt(
            &mut text,
            format_args!("  - {{dir: d{number}, name: p{number}, depends_on: [p{next}]}}\n"),
        )
        .unwrap();
    }
    let errors = parse(&text).unwrap_err();
    assert_eq!(errors.problems().count(), 1);
}
