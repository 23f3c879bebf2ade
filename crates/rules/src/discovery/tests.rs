//! Tests stories of pull requests: the changed files, and the plans that follow from them.

use proptest::prelude::*;
use proptest::sample::{select as one_of, subsequence};

use std::collections::{BTreeMap, HashSet};

use super::terragrunt::Chain;
use super::*;
use crate::config::repo::RepoPermissions;
use crate::config::server::{Compat, SETTINGS};
use crate::model::ChangeKind;

mod rules;

/// A checkout with its configuration and the settings of the administrator.
#[derive(Debug)]
struct World {
    tree: FileTree,
    config: Option<RepoConfig>,
    autodiscover: Autodiscover,
    /// Base branch of the pull request.
    base: &'static str,
    /// Texts of files by path.
    texts: BTreeMap<String, String>,
    settings: SearchSettings,
}

impl World {
    fn new(files: &[&str]) -> Self {
        let tree = FileTree::new(files.iter().map(|file| path(file)));
        Self {
            tree,
            config: None,
            autodiscover: Autodiscover::default(),
            base: "main",
            texts: BTreeMap::new(),
            settings: SearchSettings::default(),
        }
    }

    /// Adds a configuration file with the entries of `projects`, one per line.
    fn projects(self, entries: &[&str]) -> Self {
        let lines: Vec<_> = entries
            .iter()
            .map(|entry| format!("  - {{{entry}}}"))
            .collect();
        let text = format!("version: 3\nprojects:\n{}", lines.join("\n"));
        let config = RepoConfig::parse("atlantis.yaml", &text, &RepoPermissions::default())
            .unwrap_or_else(|errors| panic!("{errors}"));
        Self {
            config: Some(config),
            ..self
        }
    }

    fn mode(self, mode: AutodiscoverMode) -> Self {
        Self {
            settings: SearchSettings {
                mode,
                ..self.settings
            },
            ..self
        }
    }

    fn at_most(self, max_projects: usize) -> Self {
        Self {
            settings: SearchSettings {
                max_projects,
                ..self.settings
            },
            ..self
        }
    }

    fn with_input<T>(&self, changed: &[ChangedFile], then: impl FnOnce(&Input<'_>) -> T) -> T {
        let Self {
            tree,
            config,
            autodiscover,
            base,
            texts,
            settings,
        } = self;
        // A file named `cloud.tf` names the last segment of its directory as the workspace.
        let read = |file: &RepoPath| {
            let name = file.parent().file_name().to_owned();
            let cloud = || {
                format!(
                    "terraform {{\n cloud {{\n workspaces {{\n name = \"{name}\"\n }}\n }}\n}}\n"
                )
            };
            texts
                .get(file.as_str())
                .cloned()
                .or_else(|| (file.file_name() == "cloud.tf").then(cloud))
        };
        let modules = settings
            .modules
            .as_ref()
            .map(|from| ModuleGraph::build(tree, from, &read).unwrap());
        let base = base.parse().unwrap();
        let config = config
            .as_ref()
            .map(|config| config.for_base(&base).unwrap());
        then(&Input {
            tree,
            changed,
            config: config.as_ref(),
            base: &base,
            autodiscover,
            modules: modules.as_ref(),
            settings,
            read: &read,
        })
    }

    fn discover(&self, changed: &[ChangedFile]) -> Result<Vec<Project>, LimitExceeded> {
        self.with_input(changed, discover)
    }

    /// Plans by changed files and returns the projects as text: `dir/workspace` or the name, in order.
    fn planned(&self, changed: &[&str]) -> String {
        let changed: Vec<_> = changed.iter().map(|file| modified(file)).collect();
        ids(&self.discover(&changed).unwrap())
    }
}

fn ids(projects: &[Project]) -> String {
    projects
        .iter()
        .map(|project| project.key.status_id())
        .collect::<Vec<_>>()
        .join(" ")
}

fn path(text: &str) -> RepoPath {
    text.parse().unwrap()
}

fn modified(file: &str) -> ChangedFile {
    ChangedFile {
        path: path(file),
        previous: None,
        kind: ChangeKind::Modified,
    }
}

fn moved(from: &str, to: &str) -> ChangedFile {
    ChangedFile {
        path: path(to),
        previous: Some(path(from)),
        kind: ChangeKind::Renamed,
    }
}

#[test]
fn directories_with_changed_code_are_discovered() {
    let world = World::new(&[
        "main.tf",
        "a/main.tf",
        "a/README.md",
        "b/main.tofu",
        "c/terragrunt.hcl",
        "docs/x.md",
    ]);
    for (changed, expected) in [
        (&["main.tf"][..], "./default"),
        (
            &["a/main.tf", "main.tf", "a/vars.tfvars"],
            "./default a/default",
        ),
        (
            &["b/.terraform.lock.hcl", "c/terragrunt.hcl"],
            "b/default c/default",
        ),
        (&["a/README.md", "docs/x.md"], ""),
        (&["gone/main.tf"], ""),
        (&["docs/x.tfvars"], ""),
        (
            &[
                "a/terraform.tfstate",
                "a/terraform.tfstate.backup.tf",
                "a/.tflint.hcl",
                "a/my.tflint.hcl.tf",
            ],
            "",
        ),
        (&[], ""),
    ] {
        assert_eq!(world.planned(changed), expected, "{changed:?}");
    }
}

#[test]
fn units_of_terragrunt_go_by_what_they_read() {
    let mut world = World::new(&[
        "live/app/terragrunt.hcl",
        "live/terragrunt.hcl",
        "code/app/main.tf",
        "plain/main.tf",
    ]);
    let texts = [
        (
            "live/app/terragrunt.hcl",
            "include {\n  path = find_in_parent_folders()\n}\nterraform {\n  source = \"../../code/app\"\n}\n",
        ),
        ("live/terragrunt.hcl", "inputs = {}\n"),
    ];
    world.texts = texts
        .map(|(file, text)| (file.to_owned(), text.to_owned()))
        .into();
    for (changed, expected) in [
        ("live/app/terragrunt.hcl", "live/app/default"),
        ("live/terragrunt.hcl", "live/app/default"),
        ("live/app/own.hcl", "live/app/default"),
        ("code/app/main.tf", "live/app/default"),
        ("plain/main.tf", "plain/default"),
        ("live/README.md", ""),
    ] {
        assert_eq!(world.planned(&[changed]), expected, "{changed}");
    }
    let why = world.discover(&[modified("live/terragrunt.hcl")]).unwrap()[0]
        .why
        .to_string();
    insta::assert_snapshot!(why, @"`live/terragrunt.hcl` changed, which it includes");
    let configured = world
        .projects(&["dir: live/app"])
        .mode(AutodiscoverMode::Enabled);
    assert_eq!(
        configured.planned(&["live/terragrunt.hcl"]),
        "",
        "whoever configures a project says what concerns it"
    );
}

#[test]
fn directories_env_and_modules_speak_for_the_one_above() {
    let world = World::new(&[
        "main.tf",
        "app/main.tf",
        "app/env/prod.tfvars",
        "app/modules/x/main.tf",
        "app/modules/x/modules/y/main.tf",
        "shared/modules/x/main.tf",
        "env/prod.tfvars",
        "app/my-modules/main.tf",
        "app/modules.d/main.tf",
        "lib/env/main.tf",
    ]);
    for (changed, expected) in [
        ("app/env/prod.tfvars", "app/default"),
        ("env/prod.tfvars", "./default"),
        ("lib/env/main.tf", ""),
        ("app/modules/x/main.tf", "app/default"),
        ("app/modules/x/modules/y/main.tf", "app/default"),
        ("modules/z/main.tf", "./default"),
        ("shared/modules/x/main.tf", ""),
        ("app/my-modules/main.tf", "app/my-modules/default"),
        ("app/modules.d/main.tf", "app/modules.d/default"),
    ] {
        assert_eq!(world.planned(&[changed]), expected, "{changed}");
    }
}

#[test]
fn a_cloud_block_names_the_workspace() {
    let world = World::new(&["prod/cloud.tf", "stage/main.tf"]);
    assert_eq!(
        world.planned(&["prod/x.tf", "stage/x.tf"]),
        "prod/prod stage/default"
    );
}

#[test]
fn removed_and_moved_files_count_where_they_were_and_where_they_are() {
    let world = World::new(&["a/main.tf", "b/main.tf", "b/moved.tf"]);
    let removed = ChangedFile {
        kind: ChangeKind::Removed,
        ..modified("a/old.tf")
    };
    assert_eq!(ids(&world.discover(&[removed]).unwrap()), "a/default");
    assert_eq!(
        ids(&world
            .discover(&[moved("a/moved.tf", "b/moved.tf")])
            .unwrap()),
        "a/default b/default"
    );
    assert_eq!(
        ids(&world
            .discover(&[moved("gone/moved.tf", "b/moved.tf")])
            .unwrap()),
        "b/default"
    );

    let world = world.projects(&["dir: a, name: a", "dir: b, name: b"]);
    assert_eq!(
        ids(&world
            .discover(&[moved("a/moved.tf", "docs/moved.tf")])
            .unwrap()),
        "a"
    );
}

#[test]
fn configured_projects_are_chosen_by_when_modified() {
    let world = World::new(&["a/main.tf", "b/main.tf", "modules/net/main.tf", "c/main.tf"])
        .projects(&[
            "dir: a",
            "dir: b, autoplan: {when_modified: ['*.tf', '../modules/**/*.tf', '!ignored.tf']}",
            "dir: c, autoplan: {when_modified: []}",
            "dir: gone",
        ]);
    for (changed, expected) in [
        (&["a/main.tf"][..], "a/default"),
        (&["a/deep/x.tfvars"], "a/default"),
        (&["a/README.md"], ""),
        (&["modules/net/main.tf"], "b/default"),
        (&["b/ignored.tf"], ""),
        (&["b/ignored.tf", "b/main.tf"], "b/default"),
        (&["b/deep/main.tf"], ""),
        (&["c/main.tf", "gone/main.tf"], ""),
        (&["d/main.tf"], ""),
    ] {
        assert_eq!(world.planned(changed), expected, "{changed:?}");
    }
}

#[test]
fn autoplan_off_only_takes_a_project_out_of_autoplan() {
    let world = World::new(&["a/main.tf", "b/main.tf"])
        .projects(&["dir: a, autoplan: {enabled: false}", "dir: b"]);
    let projects = world
        .discover(&[modified("a/main.tf"), modified("b/main.tf")])
        .unwrap();
    assert_eq!(
        projects
            .iter()
            .map(|project| project.autoplan)
            .collect::<Vec<_>>(),
        [false, true]
    );
}

#[test]
fn the_mode_decides_who_is_discovered_beside_configured_projects() {
    use AutodiscoverMode as M;
    let changed = &["a/main.tf", "b/main.tf"];
    for (mode, with_config, with_empty_config, without) in [
        (M::Auto, "a/w", "a/default b/default", "a/default b/default"),
        (
            M::Enabled,
            "a/w b/default",
            "a/default b/default",
            "a/default b/default",
        ),
        (M::Disabled, "a/w", "", ""),
    ] {
        let world = || World::new(&["a/main.tf", "b/main.tf"]).mode(mode);
        assert_eq!(
            world().projects(&["dir: a, workspace: w"]).planned(changed),
            with_config,
            "{mode}"
        );
        assert_eq!(
            world().projects(&[]).planned(changed),
            with_empty_config,
            "{mode}"
        );
        assert_eq!(world().planned(changed), without, "{mode}");
    }
}

#[test]
fn a_pattern_as_dir_is_a_project_per_directory_with_code() {
    let files = &[
        "i/a/main.tf",
        "i/b/main.tf",
        "i/b/deep/main.tf",
        "i/docs/README.md",
        "main.tf",
    ];
    let all = &[
        "i/a/x.tf",
        "i/b/x.tf",
        "i/b/deep/x.tf",
        "i/docs/x.tf",
        "x.tf",
    ];
    for (entries, expected) in [
        (&["dir: 'i/*'"][..], "i/a/default i/b/default"),
        (
            &["dir: '**'"],
            "./default i/a/default i/b/default i/b/deep/default",
        ),
        (&["dir: 'nothing/*'"], ""),
        (
            &["dir: 'i/*', workspace: w", "dir: 'i/*'"],
            "i/a/default i/a/w i/b/default i/b/w",
        ),
        (
            &["dir: 'i/*', autoplan: {when_modified: ['../../x.tf']}"],
            "i/a/default i/b/default",
        ),
        (
            &["dir: 'i/*'", "dir: 'i/[ab]'", "dir: i/a, name: first"],
            "first i/b/default",
        ),
    ] {
        assert_eq!(
            World::new(files).projects(entries).planned(all),
            expected,
            "{entries:?}"
        );
    }
}

#[test]
fn several_projects_of_one_directory_come_in_order() {
    let world = World::new(&["a/main.tf"]).projects(&[
        "dir: a, name: z",
        "dir: a, name: b",
        "dir: a, workspace: c, name: a",
        "dir: a, workspace: b, terraform_version: 1.5",
    ]);
    assert_eq!(world.planned(&["a/main.tf"]), "a/b a b z");
    let projects = world.discover(&[modified("a/main.tf")]).unwrap();
    assert_eq!(projects[0].terraform_version, Some(Version::new(1, 5, 0)));
}

#[test]
fn every_project_tells_why() {
    let world = World::new(&["a/main.tf", "b/main.tf", "c/main.tf", "d/main.tf"])
        .projects(&["dir: a"])
        .mode(AutodiscoverMode::Enabled);
    let changed = [
        "a/z.tf",
        "a/main.tf",
        "b/x.tf",
        "c/env/x.tfvars",
        "d/modules/m/`x`.tf",
    ]
    .map(modified);
    let projects = world.discover(&changed).unwrap();
    let told: Vec<_> = projects
        .iter()
        .map(|project| format!("{}: {}", project.key.dir, project.why))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    a: `a/main.tf` changed and matches `**/*.tf*` of `when_modified`
    b: `b/x.tf` changed
    c: `c/env/x.tfvars` changed, and `env` belongs to the directory above it
    d: `d/modules/m/'x'.tf` changed, and `modules` belongs to the directory above it
    ");
}

#[test]
fn limits_are_refused_with_the_way_out() {
    let files: Vec<String> = (0..60_000).map(|n| format!("d{n}/main.tf")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let all = |count: usize| {
        files[..count]
            .iter()
            .map(|file| modified(file))
            .collect::<Vec<_>>()
    };
    let patterns = vec!["'../*/x'"; 100].join(", ");
    let greedy = format!("dir: 'd1*', autoplan: {{when_modified: [{patterns}]}}");
    let refusals = [
        World::new(&files).at_most(3).discover(&all(4)),
        World::new(&files)
            .projects(&["dir: 'd?'"])
            .at_most(9)
            .discover(&all(10)),
        World::new(&files).projects(&["dir: '*'"]).discover(&all(1)),
        World::new(&files)
            .projects(&[&greedy])
            .discover(&all(3_000)),
    ];
    let told = refusals.map(|refusal| refusal.unwrap_err().to_string());
    insta::assert_snapshot!(told.join("\n"), @"
    this command concerns 4 projects, and 3 are allowed at once: change fewer of them in one pull request, or choose some with `-d` or `-p`; an administrator can allow more with `--max-projects`
    this command concerns 10 projects, and 9 are allowed at once: change fewer of them in one pull request, or choose some with `-d` or `-p`; an administrator can allow more with `--max-projects`
    the patterns of `dir` in the configuration file match more than 50000 directories: write narrower patterns
    too many files changed for the number of patterns in `when_modified`, so the search for projects was given up: use fewer patterns, or choose projects with `-d` or `-p`
    ");
    assert_eq!(
        World::new(&files)
            .at_most(3)
            .discover(&all(3))
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn defaults_are_those_of_the_flags() {
    let flag = |name: &str| {
        let setting = SETTINGS
            .iter()
            .find(|setting| setting.flag == name)
            .unwrap();
        setting.default_text(Compat::None).unwrap()
    };
    assert_eq!(
        SearchSettings::default().file_list,
        Patterns::from_flag(flag("autoplan-file-list")).unwrap()
    );
    assert_eq!(
        SearchSettings::DEFAULT_MAX_PROJECTS.to_string(),
        flag("max-projects")
    );
}

fn chosen(world: &World, target: &RequestedProjects) -> String {
    match world.with_input(&[], |input| select(target, input)) {
        Ok(projects) => {
            let told: Vec<_> = projects
                .iter()
                .map(|one| format!("{} ({})", one.key.status_id(), one.why))
                .collect();
            told.join(", ")
        }
        Err(error) => format!("error: {error}"),
    }
}

fn named(name: &str) -> RequestedProjects {
    RequestedProjects::Project(name.to_owned())
}

fn placed(dir: &str, workspace: &str) -> RequestedProjects {
    let workspace = (!workspace.is_empty()).then(|| workspace.parse().unwrap());
    RequestedProjects::Place {
        dir: DirSelector::Path(path(dir)),
        workspace,
    }
}

fn globbed(glob: &str, workspace: &str) -> RequestedProjects {
    let workspace = (!workspace.is_empty()).then(|| workspace.parse().unwrap());
    RequestedProjects::Place {
        dir: DirSelector::Glob(glob.to_owned()),
        workspace,
    }
}

#[test]
fn targets_choose_among_configured_projects() {
    let files = &[
        "net/main.tf",
        "app/a/main.tf",
        "app/b/main.tf",
        "other/main.tf",
        "docs/x.md",
        "main.tf",
    ];
    let world = World::new(files).projects(&[
        "dir: net, name: net-prod, workspace: prod",
        "dir: net, name: net-stage, workspace: stage",
        "dir: app/a, name: one, autoplan: {enabled: false}",
        "dir: app/a, name: two",
        "dir: app/b",
        "dir: app/b, name: three",
        "dir: gone, name: gone",
    ]);
    let targets = [
        named("net-prod"),
        named("net-prd"),
        named("something"),
        named("`@team`\n"),
        named("gone"),
        placed("net", "prod"),
        placed("net", ""),
        placed("app/a", ""),
        placed("app/b", ""),
        placed("app/a", "w"),
        placed("other", ""),
        placed("other", "w"),
        placed(".", ""),
        placed("othr", ""),
        placed("nowhere/at/all", ""),
        placed("gone", ""),
        globbed("app/*", ""),
        globbed("**", "stage"),
        globbed("nowhere/*", ""),
        globbed("gone*", ""),
        globbed("a[", ""),
        globbed("../*", ""),
    ];
    let told: Vec<_> = targets
        .iter()
        .map(|target| format!("{target:?}\n  {}", chosen(&world, target)))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    Project("net-prod")
      net-prod (it was requested by name)
    Project("net-prd")
      error: there is no project `net-prd` in the configuration file. Did you mean `net-prod`?
    Project("something")
      error: there is no project `something` in the configuration file. These exist: `gone`, `net-prod`, `net-stage`, `one`, `three`, `two`.
    Project("`@team`\n")
      error: there is no project `'@team'�` in the configuration file. These exist: `gone`, `net-prod`, `net-stage`, `one`, `three`, `two`.
    Project("gone")
      error: the directory `gone` does not exist in this pull request. Write the path from the root of the repository.
    Place { dir: Path(RepoPath("net")), workspace: Some(WorkspaceName("prod")) }
      net-prod (it was requested by directory and workspace)
    Place { dir: Path(RepoPath("net")), workspace: None }
      error: workspace `default` is not configured for the directory `net`: choose one of these with `-w`: `prod`, `stage`
    Place { dir: Path(RepoPath("app/a")), workspace: None }
      error: 2 projects are in the directory `app/a` with the workspace `default`: choose one by its name with `-p one`, `-p two`
    Place { dir: Path(RepoPath("app/b")), workspace: None }
      error: 2 projects are in the directory `app/b` with the workspace `default`: choose one by its name with `-p three` (one has no `name` in the configuration file: add one)
    Place { dir: Path(RepoPath("app/a")), workspace: Some(WorkspaceName("w")) }
      error: workspace `w` is not configured for the directory `app/a`: choose one of these with `-w`: `default`
    Place { dir: Path(RepoPath("other")), workspace: None }
      other/default (it was requested by directory and workspace)
    Place { dir: Path(RepoPath("other")), workspace: Some(WorkspaceName("w")) }
      other/w (it was requested by directory and workspace)
    Place { dir: Path(RepoPath(".")), workspace: None }
      ./default (it was requested by directory and workspace)
    Place { dir: Path(RepoPath("othr")), workspace: None }
      error: the directory `othr` does not exist in this pull request. Did you mean `other`?
    Place { dir: Path(RepoPath("nowhere/at/all")), workspace: None }
      error: the directory `nowhere/at/all` does not exist in this pull request. Write the path from the root of the repository.
    Place { dir: Path(RepoPath("gone")), workspace: None }
      error: the directory `gone` does not exist in this pull request. Write the path from the root of the repository.
    Place { dir: Glob("app/*"), workspace: None }
      one (its directory matches `app/*`), two (its directory matches `app/*`), app/b/default (its directory matches `app/*`), three (its directory matches `app/*`)
    Place { dir: Glob("**"), workspace: Some(WorkspaceName("stage")) }
      net-stage (its directory matches `**`)
    Place { dir: Glob("nowhere/*"), workspace: None }
      error: no configured project matches the directory pattern `nowhere/*` and the workspace `default`. Patterns match configured projects only: change the pattern, or name one directory
    Place { dir: Glob("gone*"), workspace: None }
      error: no configured project matches the directory pattern `gone*` and the workspace `default`. Patterns match configured projects only: change the pattern, or name one directory
    Place { dir: Glob("a["), workspace: None }
      error: `a[` is not a valid pattern of directories: unclosed character class; missing ']'
    Place { dir: Glob("../*"), workspace: None }
      error: `../*` has `..`, which is not allowed in a pattern of directories
    "#);
}

#[test]
fn targets_without_a_configuration_are_directories() {
    let world = World::new(&["a/main.tf"]);
    let targets = [
        named("a"),
        placed("a", "w"),
        placed("b", ""),
        globbed("*", ""),
    ];
    let told: Vec<_> = targets
        .iter()
        .map(|target| chosen(&world, target))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    error: there is no project `a`, because this repository has no configuration file that names projects: choose a directory with `-d`
    a/w (it was requested by directory and workspace)
    error: the directory `b` does not exist in this pull request. Write the path from the root of the repository.
    error: no configured project matches the directory pattern `*` and the workspace `default`. Patterns match configured projects only: change the pattern, or name one directory
    ");
}

#[test]
fn a_pattern_that_chooses_too_much_is_refused() {
    let world = World::new(&["a/x.tf", "b/x.tf"])
        .projects(&["dir: '*'"])
        .at_most(1);
    let refusal = world.with_input(&[], |input| select(&globbed("*", ""), input));
    assert_eq!(
        refusal,
        Err(SelectError::Limit(LimitExceeded::Projects {
            found: 2,
            allowed: 1
        }))
    );
}

/// Generates files that make odd trees: nested code, modules, `env` directories, files without code.
fn file() -> impl Strategy<Value = String> {
    let dir = one_of(vec!["a", "b", "env", "modules", "a-b"]);
    let name = one_of(vec![
        "main.tf",
        "x.tfvars",
        "README.md",
        "terragrunt.hcl",
        "cloud.tf",
        "x.tofu",
        "terraform.tfstate",
    ]);
    (proptest::collection::vec(dir, 0..4), name).prop_map(|(dirs, name)| {
        dirs.iter()
            .map(|dir| format!("{dir}/"))
            .chain([name.to_owned()])
            .collect()
    })
}

fn world() -> impl Strategy<Value = (Vec<String>, World)> {
    let entries = vec![
        "dir: a",
        "dir: b, workspace: w",
        "dir: a, name: n",
        "dir: '*/*'",
        "dir: ., autoplan: {when_modified: ['*.tf']}",
        "dir: a/b, autoplan: {when_modified: ['../**', '!README.md']}",
    ];
    let count = entries.len();
    let mode = one_of(AutodiscoverMode::ALL.to_vec());
    (
        proptest::collection::vec(file(), 0..20),
        subsequence(entries, 0..=count),
        mode,
    )
        .prop_map(|(files, entries, mode)| {
            let refs: Vec<&str> = files.iter().map(String::as_str).collect();
            (
                files.clone(),
                World::new(&refs).projects(&entries).mode(mode),
            )
        })
}

fn changes() -> impl Strategy<Value = Vec<ChangedFile>> {
    let change = prop_oneof![
        file().prop_map(|file| modified(&file)),
        (file(), file()).prop_map(|(from, to)| moved(&from, &to)),
    ];
    proptest::collection::vec(change, 0..10)
}

proptest! {
    #[test]
    fn order_and_repetition_of_the_input_change_nothing((files, world) in world(), changed in changes()) {
        let expected = world.discover(&changed).unwrap();
        let reversed: Vec<_> = changed.iter().rev().chain(&changed).cloned().collect();
        let tree = FileTree::new(files.iter().rev().chain(&files).map(|file| path(file)));
        prop_assert_eq!(World { tree, ..world }.discover(&reversed).unwrap(), expected);
    }

    #[test]
    fn projects_are_sorted_exist_and_are_there_once((_files, world) in world(), changed in changes()) {
        let projects = world.discover(&changed).unwrap();
        prop_assert!(projects.windows(2).all(|pair| pair[0].key < pair[1].key));
        for Project { key, why, .. } in &projects {
            prop_assert!(world.tree.dir_exists(&key.dir));
            let (ProjectReason::WhenModified { file, .. } | ProjectReason::Terragrunt(Chain { file, .. }) | ProjectReason::OwnDir(file) | ProjectReason::EnvDir(file) | ProjectReason::Modules(file)) = why else {
                return Err(TestCaseError::fail(format!("{why} is not about a changed file")));
            };
            prop_assert!(changed.iter().any(|one| one.path == *file || one.previous.as_ref() == Some(file)));
            if !matches!(why, ProjectReason::WhenModified { .. }) {
                prop_assert!(world.tree.has_code(&key.dir));
                prop_assert!(key.name.is_none());
                prop_assert!(key.dir.contains(file));
            }
        }
    }

    #[test]
    fn a_file_that_concerns_nobody_changes_nothing((_files, world) in world(), changed in changes(), file in file()) {
        prop_assume!(world.planned(&[&file]).is_empty());
        let before = world.discover(&changed).unwrap();
        let more: Vec<_> = changed.into_iter().chain([modified(&file)]).collect();
        prop_assert_eq!(world.discover(&more).unwrap(), before);
    }

    #[test]
    fn more_changes_never_mean_fewer_projects((_files, world) in world(), changed in changes(), more in changes()) {
        let keys = |projects: Vec<Project>| projects.into_iter().map(|project| project.key).collect::<HashSet<_>>();
        let before = keys(world.discover(&changed).unwrap());
        let after = keys(world.discover(&[changed, more].concat()).unwrap());
        prop_assert!(before.is_subset(&after));
    }

    #[test]
    fn what_is_discovered_can_be_asked_for((_files, world) in world(), changed in changes()) {
        for project in world.discover(&changed).unwrap() {
            let target = match &project.key.name {
                Some(name) => named(name.as_str()),
                None => placed(project.key.dir.as_str(), project.key.workspace.as_str()),
            };
            match world.with_input(&[], |input| select(&target, input)) {
                Ok(chosen) => prop_assert_eq!(&chosen[0].key, &project.key),
                Err(SelectError::Several { matches, .. }) => prop_assert!(matches.contains(&project.key)),
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
    }
}
