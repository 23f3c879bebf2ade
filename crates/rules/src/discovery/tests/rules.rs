//! Tests the rules of reference 3 that need more than files and entries; each test names its section.

use super::*;
use crate::config::BranchFilter;
use crate::config::repo::{DirGlob, ProjectConfig};
use crate::config::repos::{Decided, Decider};

impl World {
    /// Changes an entry of the configuration, by its position in the list.
    fn entry(mut self, at: usize, change: impl FnOnce(&mut ProjectConfig)) -> Self {
        change(&mut self.config.as_mut().unwrap().projects[at]);
        self
    }

    fn for_branch(self, at: usize, expression: &str) -> Self {
        self.entry(at, |entry| {
            entry.branch = Some(BranchFilter::new(regex::Regex::new(expression).unwrap()));
        })
    }

    fn in_order(self, at: usize, group: i32, after: &[&str]) -> Self {
        self.entry(at, |entry| {
            entry.execution_order_group = group;
            entry.depends_on = after.iter().map(|name| name.parse().unwrap()).collect();
        })
    }

    fn into(self, base: &'static str) -> Self {
        Self { base, ..self }
    }

    fn ignoring(mut self, globs: &[&str]) -> Self {
        let value = globs
            .iter()
            .map(|glob| DirGlob::new(glob).unwrap())
            .collect();
        self.autodiscover.ignore_paths = Some(Decided {
            value,
            by: by_line(7),
        });
        self
    }

    fn search_decided(mut self, mode: AutodiscoverMode) -> Self {
        self.autodiscover.mode = Some(Decided {
            value: mode,
            by: by_line(6),
        });
        self
    }

    fn with_modules(mut self, from: &str) -> Self {
        self.settings.modules = Some(Patterns::from_flag(from).unwrap());
        self
    }

    fn text(mut self, file: &str, text: &str) -> Self {
        self.texts.insert(file.to_owned(), text.to_owned());
        self
    }

    /// Adds a file with module calls.
    fn calls(self, file: &str, sources: &[&str]) -> Self {
        let call = |source: &&str| format!("module \"m\" {{\n  source = \"{source}\"\n}}\n");
        self.text(file, &sources.iter().map(call).collect::<String>())
    }

    fn linked(self, links: &[(&str, &str)]) -> Self {
        let files = self
            .tree
            .files()
            .iter()
            .cloned()
            .chain(links.iter().map(|(link, _)| path(link)));
        let tree = FileTree::new(files).with_links(
            links
                .iter()
                .map(|(link, target)| (path(link), (*target).to_owned())),
        );
        Self { tree, ..self }
    }

    fn restricted(mut self) -> Self {
        self.settings.restrict = true;
        self
    }

    fn regexp(mut self, prefixes: &[&str]) -> Self {
        self.settings.regexp = true;
        self.config.as_mut().unwrap().allowed_regexp_prefixes =
            prefixes.iter().map(|text| (*text).to_owned()).collect();
        self
    }

    /// Returns the reason for the plan of each project, one per line.
    fn reasons(&self, changed: &[&str]) -> String {
        let changed: Vec<_> = changed.iter().map(|file| modified(file)).collect();
        let projects = self.discover(&changed).unwrap();
        projects
            .iter()
            .map(|one| format!("{}: {}", one.key.status_id(), one.why))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Returns the projects that a comment with a target plans.
    fn plan(&self, target: &RequestedProjects, changed: &[&str]) -> String {
        let changed: Vec<_> = changed.iter().map(|file| modified(file)).collect();
        match self.with_input(&changed, |input| select_for_plan(target, input)) {
            Ok(projects) => ids(&projects),
            Err(error) => format!("error: {error}"),
        }
    }
}

fn by_line(line: usize) -> Decider {
    Decider::Repo {
        file: "atlantis.yaml".to_owned(),
        line,
    }
}

const CODE: [&str; 4] = ["a/main.tf", "b/main.tf", "c/main.tf", "main.tf"];

/// Tests the base branches of reference 3.11.
#[test]
fn projects_for_other_base_branches_are_left_out() {
    for (base, expected) in [
        ("main", "a"),
        ("release/1", "b"),
        ("release-main", "a"),
        ("develop", ""),
    ] {
        let world = World::new(&CODE).projects(&["dir: a, name: a", "dir: b, name: b"]);
        let world = world
            .for_branch(0, "main$")
            .for_branch(1, "^release/")
            .into(base);
        assert_eq!(
            world.planned(&["a/main.tf", "b/main.tf"]),
            expected,
            "{base}"
        );
    }
}

/// Reference 3.5 `[!]`: a configuration whose projects are all for other branches still counts as one.
#[test]
fn a_branch_that_nothing_is_configured_for_turns_no_search_on() {
    let world = |mode| {
        World::new(&CODE)
            .projects(&["dir: a"])
            .for_branch(0, "^main$")
            .into("develop")
            .mode(mode)
    };
    assert_eq!(
        world(AutodiscoverMode::Auto).planned(&["a/main.tf", "b/main.tf"]),
        ""
    );
    assert_eq!(
        world(AutodiscoverMode::Enabled).planned(&["a/main.tf", "b/main.tf"]),
        "b/default"
    );
}

/// Reference 3.11: the same directory may be configured twice, for two branches.
#[test]
fn each_branch_may_have_its_own_entry_for_a_directory() {
    let world = World::new(&CODE).projects(&[
        "dir: a, name: old",
        "dir: a, name: new",
        "dir: '*', workspace: w",
    ]);
    let world = world
        .for_branch(0, "^main$")
        .for_branch(1, "^develop$")
        .for_branch(2, "^develop$")
        .into("develop");
    assert_eq!(world.planned(&["a/main.tf", "b/main.tf"]), "new a/w b/w");
}

/// Tests the refusals of reference 3.7 and 3.11.
#[test]
fn a_target_for_another_branch_is_refused_with_the_line() {
    let world = World::new(&CODE).projects(&["dir: a, name: a", "dir: b"]);
    let world = world
        .for_branch(0, "^main$")
        .for_branch(1, "^main$")
        .into("develop");
    let targets = [
        named("a"),
        named("x"),
        placed("a", ""),
        placed("b", "w"),
        placed("c", ""),
    ];
    let told: Vec<_> = targets
        .iter()
        .map(|target| world.plan(target, &[]))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    error: the project `a` is for other base branches: its `branch` (`/^main$/`, line 3 of the configuration file) does not match `develop`, the base branch of this pull request
    error: there is no project `x` in the configuration file. These exist: `a`.
    error: the directory `a` is configured for other base branches only: `branch` (`/^main$/`, line 3 of the configuration file) does not match `develop`, the base branch of this pull request
    error: the directory `b` is configured for other base branches only: `branch` (`/^main$/`, line 4 of the configuration file) does not match `develop`, the base branch of this pull request
    c/default
    ");
}

/// Tests the precedence of files over flags in reference 3.5.
#[test]
fn the_files_decide_over_the_flag_whether_there_is_a_search() {
    use AutodiscoverMode as M;
    for (flag, decided, expected) in [
        (M::Disabled, M::Enabled, "a/w b/default"),
        (M::Enabled, M::Disabled, "a/w"),
        (M::Enabled, M::Auto, "a/w"),
    ] {
        let world = World::new(&CODE)
            .projects(&["dir: a, workspace: w"])
            .mode(flag)
            .search_decided(decided);
        assert_eq!(
            world.planned(&["a/main.tf", "b/main.tf"]),
            expected,
            "{flag} {decided}"
        );
    }
}

/// Tests `ignore_paths` of reference 3.4 (8) and 3.5.
#[test]
fn ignored_paths_are_not_found_but_configured_ones_are() {
    let world = World::new(&CODE)
        .projects(&["dir: a"])
        .ignoring(&["a", "b*"])
        .mode(AutodiscoverMode::Enabled);
    assert_eq!(
        world.planned(&["a/main.tf", "b/main.tf", "c/main.tf"]),
        "a/default c/default"
    );
}

/// Tests the refusal of reference 3.6.
#[test]
fn an_ignored_directory_is_refused_with_the_rule_and_its_line() {
    let world = || World::new(&CODE).ignoring(&["x", "{b,c}"]);
    assert_eq!(world().plan(&placed("a", ""), &[]), "a/default");
    insta::assert_snapshot!(world().plan(&placed("b", ""), &[]), @"error: the directory `b` is not a project: it matches `{b,c}` of `ignore_paths` (line 7 of `atlantis.yaml`). Give it an entry in `projects` if it is one");
    assert_eq!(
        world().projects(&["dir: b"]).plan(&placed("b", ""), &[]),
        "b/default"
    );
    assert_eq!(
        world()
            .mode(AutodiscoverMode::Disabled)
            .plan(&placed("b", ""), &[]),
        "b/default"
    );
}

/// Tests the order of reference 3.9.
#[test]
fn projects_come_by_group_then_directory_workspace_and_name() {
    let world =
        World::new(&CODE).projects(&["dir: a", "dir: b, name: z", "dir: b, name: y", "dir: c"]);
    let world = world.in_order(0, 2, &["z"]).in_order(3, -1, &[]);
    let all = ["a/main.tf", "b/main.tf", "c/main.tf"];
    assert_eq!(world.planned(&all), "c/default y z a/default");
    let projects = world.discover(&all.map(modified)).unwrap();
    assert_eq!(
        projects[3].order,
        OrderPosition {
            group: 2,
            after: vec!["z".parse().unwrap()]
        }
    );
}

/// Returns a monorepo: `live/*` use `modules/app`, which uses `modules/net`; only `live/prod` uses `shared/dns`.
fn monorepo() -> World {
    let files = [
        "live/prod/main.tf",
        "live/stage/main.tf.json",
        "live/lab/main.tofu",
        "live/none/main.tf",
        "modules/app/main.tf",
        "modules/app/templates/user.tpl",
        "modules/net/main.tf",
        "shared/dns/main.tf",
        "shared/dns/README.md",
        "shared/wrap/main.tf",
    ];
    World::new(&files)
        .with_modules("**/*.tf,**/*.tf.json,**/*.tofu")
        .calls(
            "live/prod/main.tf",
            &["../../modules/app", "../../shared/wrap"],
        )
        .text(
            "live/stage/main.tf.json",
            r#"{"module": {"app": {"source": "../../modules/app"}}}"#,
        )
        .calls("live/lab/main.tofu", &["../../modules/net/"])
        .calls("modules/app/main.tf", &["../net"])
        .calls("shared/wrap/main.tf", &["../dns"])
}

/// Reference 3.10 for discovered directories.
#[test]
fn a_change_in_a_module_plans_whoever_uses_it() {
    let world = monorepo();
    for (changed, expected) in [
        (
            "modules/app/main.tf",
            "live/prod/default live/stage/default",
        ),
        (
            "modules/net/main.tf",
            "live/lab/default live/prod/default live/stage/default",
        ),
        (
            "modules/app/templates/x.tf",
            "live/prod/default live/stage/default",
        ),
        ("modules/app/templates/user.tpl", ""),
        // As in Atlantis, a directory with code outside of `modules` is a project itself when it changes.
        ("shared/dns/main.tf", "live/prod/default shared/dns/default"),
        ("shared/dns/README.md", ""),
        ("live/prod/main.tf", "live/prod/default"),
    ] {
        assert_eq!(world.planned(&[changed]), expected, "{changed}");
    }
    insta::assert_snapshot!(world.reasons(&["modules/net/main.tf"]), @"
    live/lab/default: `modules/net/main.tf` changed, in a module that it uses: `modules/net`
    live/prod/default: `modules/net/main.tf` changed, in a module that it uses: `modules/app`, which uses `modules/net`
    live/stage/default: `modules/net/main.tf` changed, in a module that it uses: `modules/app`, which uses `modules/net`
    ");
    let beside = ["shared/dns/README.md", "shared/dns/main.tf"];
    assert_eq!(
        world.planned(&beside),
        "live/prod/default shared/dns/default"
    );
    let without = World {
        settings: SearchSettings::default(),
        ..world
    };
    assert_eq!(
        without.planned(&["modules/app/main.tf", "shared/dns/main.tf"]),
        "shared/dns/default"
    );
}

/// Reference 3.10 for configured projects: any file of a module counts, and an empty `when_modified` means never.
#[test]
fn configured_projects_are_concerned_by_their_modules() {
    let entries = [
        "dir: live/prod, name: prod",
        "dir: live/stage, name: stage, autoplan: {when_modified: []}",
        "dir: live/lab, name: lab, autoplan: {enabled: false}",
    ];
    let world = monorepo().projects(&entries);
    for (changed, expected) in [
        ("modules/app/templates/user.tpl", "prod"),
        ("modules/net/main.tf", "lab prod"),
        ("shared/dns/README.md", "prod"),
        ("live/none/main.tf", ""),
    ] {
        assert_eq!(world.planned(&[changed]), expected, "{changed}");
    }
    assert!(!world.discover(&[modified("modules/net/main.tf")]).unwrap()[0].autoplan);
}

/// Reference 3.10: a directory in between is a module and not planned itself, unless it has a state of its own.
#[test]
fn a_module_in_between_is_a_project_only_with_a_state() {
    let world = || {
        World::new(&[
            "app/main.tf",
            "mid/main.tf",
            "low/main.tf",
            "low/x.tf",
            "mid/state.tf",
        ])
        .with_modules("**/*.tf")
        .calls("app/main.tf", &["../mid"])
        .calls("mid/main.tf", &["../low"])
    };
    assert_eq!(world().planned(&["low/x.tf"]), "app/default low/default");
    let stateful = world().text("mid/state.tf", "terraform {\n  backend \"s3\" {}\n}\n");
    assert_eq!(
        stateful.planned(&["low/x.tf"]),
        "app/default low/default mid/default"
    );
}

/// Reference 3.10: `--autoplan-modules-from-projects` says whose modules count; those of modules always do.
#[test]
fn only_directories_with_the_files_asked_for_are_read() {
    let world = |from| {
        World {
            settings: SearchSettings::default(),
            ..monorepo()
        }
        .with_modules(from)
    };
    assert_eq!(
        world("live/stage/*").planned(&["modules/net/main.tf"]),
        "live/stage/default"
    );
    assert_eq!(
        world("**/*.tofu").planned(&["modules/net/main.tf"]),
        "live/lab/default"
    );
    assert_eq!(world("nothing").planned(&["modules/net/main.tf"]), "");
}

#[test]
fn a_module_that_was_removed_still_has_its_users() {
    let world = World::new(&["app/main.tf"])
        .with_modules("**/*.tf")
        .calls("app/main.tf", &["../gone"]);
    assert_eq!(world.planned(&["gone/main.tf"]), "app/default");
}

#[test]
fn modules_outside_of_the_repository_are_nobodys() {
    let world = World::new(&["app/main.tf", "main.tf", "x/main.tf"])
        .with_modules("**/*.tf")
        .calls(
            "app/main.tf",
            &["../../../etc", "../..", "./out", "../../app/../x"],
        )
        .linked(&[("app/out", "../..")]);
    assert_eq!(world.planned(&["x/main.tf"]), "x/default");
    assert_eq!(world.planned(&["etc/main.tf"]), "");
}

#[test]
fn modules_are_found_behind_links() {
    let world = World::new(&["app/main.tf", "lib/net/main.tf"])
        .with_modules("app/*")
        .calls("app/main.tf", &["./parts/net"])
        .linked(&[("app/parts", "../lib")]);
    insta::assert_snapshot!(world.reasons(&["lib/net/main.tf"]), @"
    app/default: `lib/net/main.tf` changed, in a module that it uses: `lib/net`
    lib/net/default: `lib/net/main.tf` changed
    ");
}

/// Symbolic links: code counts as if it lay where the link is.
#[test]
fn code_that_is_a_link_counts_where_the_link_is() {
    let links = [
        ("live/prod/main.tf", "../../base/main.tf"),
        ("live/prod/circle.tf", "circle.tf"),
        ("live/prod/out.tf", "../../../base/other.tf"),
        ("modules/net/main.tf", "../../base/net.tf"),
    ];
    let world = || {
        World::new(&[
            "base/main.tf",
            "base/net.tf",
            "base/other.tf",
            "modules/net/x.tf",
            "modules/dns/x.tf",
        ])
        .with_modules("live/*/*")
        .calls("base/main.tf", &["../../modules/net"])
        .calls("base/net.tf", &["../dns"])
        .calls("base/other.tf", &["../../modules/other"])
        .linked(&links)
    };
    insta::assert_snapshot!(world().reasons(&["modules/dns/x.tf"]), @"live/prod/default: `modules/dns/x.tf` changed, in a module that it uses: `modules/net`, which uses `modules/dns`");
    assert_eq!(world().planned(&["modules/net/x.tf"]), "live/prod/default");
    assert_eq!(
        world().planned(&["base/net.tf"]),
        "base/default live/prod/default"
    );
    assert_eq!(world().planned(&["modules/other/main.tf"]), "");
    let named =
        World::new(&["base/cloud.tf"]).linked(&[("live/prod/cloud.tf", "../../base/cloud.tf")]);
    assert_eq!(
        named.planned(&["base/cloud.tf"]),
        "base/base live/prod/base"
    );
}

/// Symbolic links: a change counts at every path that shows it.
#[test]
fn what_changes_behind_a_link_changes_at_the_link() {
    let files = [
        "base/main.tf",
        "base/common.tf",
        "live/prod/main.tf",
        "live/stage/main.tf",
    ];
    let links = [
        ("live/prod/common.tf", "../../base/common.tf"),
        ("live/stage/shared", "../../base"),
    ];
    let world = World::new(&files).linked(&links);
    assert_eq!(
        world.planned(&["base/common.tf"]),
        "base/default live/prod/default"
    );
    let world = world.projects(&[
        "dir: live/stage, autoplan: {when_modified: ['shared/*.tf']}",
        "dir: live/prod",
    ]);
    assert_eq!(
        world.planned(&["base/common.tf"]),
        "live/prod/default live/stage/default"
    );
    assert_eq!(world.planned(&["base/main.tf"]), "live/stage/default");
}

#[test]
fn a_link_is_no_directory_of_a_project() {
    let world = World::new(&CODE).linked(&[("l", "a"), ("out", "../..")]);
    insta::assert_snapshot!([placed("l", ""), placed("out", "")].map(|target| world.plan(&target, &[])).join("\n"), @"
    error: `l` is a symbolic link to `a`: two projects with the same files would disturb each other. Name that directory with `-d`, or as `dir` in the configuration file
    error: the directory `out` does not exist in this pull request. Write the path from the root of the repository.
    ");
}

/// Tests the regular expressions of reference 3.7.
#[test]
fn an_expression_names_several_projects() {
    let world = |prefixes: &[&str]| {
        World::new(&CODE)
            .projects(&[
                "dir: a, name: app-a",
                "dir: b, name: app-b",
                "dir: c, name: net",
            ])
            .regexp(prefixes)
    };
    assert_eq!(world(&[]).plan(&named("app-.*"), &[]), "app-a app-b");
    assert_eq!(world(&["app-"]).plan(&named("app-.*"), &[]), "app-a app-b");
    assert!(
        world(&["net"])
            .plan(&named("app-.*"), &[])
            .starts_with("error: `app-.*` matches 2 projects")
    );
    assert_eq!(world(&["net"]).plan(&named("app-[a]"), &[]), "app-a");
    assert!(
        world(&[])
            .plan(&named("ap"), &[])
            .starts_with("error: there is no project `ap`")
    );
    assert_eq!(
        chosen(&world(&[]), &named("ne.")),
        "net (its name matches `ne.`)"
    );
}

/// Tests `--restrict-file-list` of reference 3.8.
#[test]
fn only_what_changed_may_be_planned_where_the_operator_says_so() {
    let world = || {
        World::new(&CODE)
            .projects(&["dir: a, name: a", "dir: b, name: b", "dir: c, name: c"])
            .restricted()
    };
    let cases = [
        (placed("a", ""), &["a/main.tf"][..]),
        (placed("a", ""), &["b/main.tf", "c/x.md"]),
        (placed("a", ""), &[]),
        (placed("a", ""), &["a/deep/x.tf"]),
        (globbed("*", ""), &["b/main.tf", "c/x.md"]),
        (globbed("[a]", ""), &["b/main.tf"]),
        (named("a"), &["a/main.tf"]),
        (named("a"), &["a/main.tf", "b/main.tf", "x.md"]),
    ];
    let told: Vec<_> = cases
        .iter()
        .map(|(target, changed)| world().plan(target, changed))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    a
    error: no file changed in `a`, and this server plans only directories that the pull request changes (`--restrict-file-list`): files changed in `b`, `c`
    error: no file changed in `a`, and this server plans only directories that the pull request changes (`--restrict-file-list`): it changes no file
    error: no file changed in `a`, and this server plans only directories that the pull request changes (`--restrict-file-list`): files changed in `a/deep`
    b c
    error: no file changed in `[a]`, and this server plans only directories that the pull request changes (`--restrict-file-list`): files changed in `b`
    a
    error: the pull request also changes `.`, `b`, which `a` does not have, and this server plans projects by name only when nothing else changes (`--restrict-file-list`): comment `plan` without `-p`, or choose with `-d`
    ");
    assert_eq!(
        world()
            .regexp(&[])
            .plan(&named("[ab]"), &["a/main.tf", "b/main.tf"]),
        "a b"
    );
    assert_eq!(
        world().regexp(&[]).plan(&named("[ab]"), &["a/main.tf"]),
        "a"
    );
    let free = World {
        settings: SearchSettings::default(),
        ..world()
    };
    assert_eq!(free.plan(&named("a"), &["b/main.tf"]), "a");
}

fn module_world() -> impl Strategy<Value = World> {
    let dir = || one_of(vec!["a", "b", "a/b", "modules/m", "c"]);
    let source = one_of(vec![
        "./b",
        "../a",
        "../b",
        "../modules/m",
        "../..",
        "../../..",
        ".",
        "../c",
        "./l",
    ]);
    let call = (dir(), proptest::collection::vec(source, 1..4));
    let link = (
        one_of(vec!["a/l", "c/l", "modules/l"]),
        one_of(vec!["..", "../b", "/etc", "../../..", "l"]),
    );
    let links = proptest::collection::vec(link, 0..3);
    (proptest::collection::vec(call, 0..6), links).prop_map(|(calls, links)| {
        let files = ["a", "b", "a/b", "modules/m", "c"].map(|dir| format!("{dir}/main.tf"));
        let world = World::new(&files.each_ref().map(String::as_str))
            .with_modules("**/*.tf")
            .linked(&links);
        calls.iter().fold(world, |world, (dir, sources)| {
            world.calls(&format!("{dir}/main.tf"), sources)
        })
    })
}

proptest! {
    #[test]
    fn whatever_calls_and_links_there_are_it_ends_inside(world in module_world(), changed in changes()) {
        let projects = world.discover(&changed).unwrap();
        let keys: HashSet<_> = projects.iter().map(|project| &project.key).collect();
        prop_assert_eq!(keys.len(), projects.len());
        for Project { key, why, .. } in &projects {
            prop_assert!(world.tree.dir_exists(&key.dir));
            if let ProjectReason::Module(one) = why {
                prop_assert!(!one.via.is_empty() && one.via.last().unwrap().contains(&one.file));
            }
        }
    }

    #[test]
    fn modules_only_add_projects(world in module_world(), changed in changes()) {
        let with: HashSet<_> = world.discover(&changed).unwrap().into_iter().map(|project| project.key).collect();
        let without = World { settings: SearchSettings::default(), ..world }.discover(&changed).unwrap();
        prop_assert!(without.iter().all(|project| with.contains(&project.key)));
    }
}
