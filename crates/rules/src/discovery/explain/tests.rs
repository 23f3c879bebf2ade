//! Tests explanations: each test has a checkout and a change, and checks the text about it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::super::{DirSelector, FileTree, ModuleGraph, Patterns, SearchSettings};
use super::*;
use crate::config::repos::ServerRepos;
use crate::model::{ChangeKind, ChangedFile, RepoPath};

/// A checkout with its configuration and the rules of the administrator.
struct World {
    tree: FileTree,
    config: Option<RepoConfig>,
    settings: SearchSettings,
    server: ServerRepos,
    base: &'static str,
}

/// Returns the text of a file by its name.
///
/// A file `uses.tf` uses the module `../mod`. `versions.tf` requires a version, and `odd.tf` a text that is not a
/// version. `broken.tf` cannot be read, and neither can `lost.tf`, which uses no modules. Units of Terragrunt include
/// the `root.hcl` next to their directory, and the one in `off` is excluded.
fn read(file: &RepoPath) -> Option<String> {
    let text = match file.file_name() {
        "terragrunt.hcl" if file.as_str().starts_with("off/") => "skip = true\n",
        "terragrunt.hcl" if file.as_str() == "terragrunt.hcl" => "locals {\n  region = \"eu\"\n}\n",
        "terragrunt.hcl" => "include \"root\" {\n  path = find_in_parent_folders()\n}\n",
        "uses.tf" => "module \"m\" {\n  source = \"../mod\"\n}\n",
        "versions.tf" => "terraform {\n  required_version = \"~> 1.9.0\"\n}\n",
        "odd.tf" => "terraform {\n  required_version = \"about 1.9\"\n}\n",
        "broken.tf" => {
            "terraform {\n  required_version = \"~> 1.9.0\"\n  cloud {}\n}\nmodule \"m\" {\n"
        }
        "lost.tf" => "terraform {\n  cloud {}\n}\nx {\n",
        _ => return None,
    };
    Some(text.to_owned())
}

fn path(text: &str) -> RepoPath {
    text.parse().unwrap()
}

fn changed(files: &[&str]) -> Vec<ChangedFile> {
    files
        .iter()
        .map(|file| ChangedFile {
            path: path(file),
            previous: None,
            kind: ChangeKind::Modified,
        })
        .collect()
}

impl World {
    fn new(files: &[&str]) -> Self {
        let tree = FileTree::new(files.iter().map(|file| path(file)));
        Self {
            tree,
            config: None,
            settings: SearchSettings::default(),
            server: ServerRepos::default(),
            base: "main",
        }
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

    fn config(self, text: &str) -> Self {
        let permissions = self.rules().permissions().clone();
        let config = RepoConfig::parse("lockkeeper.yaml", text, &permissions)
            .unwrap_or_else(|errors| panic!("{errors}"));
        Self {
            config: Some(config),
            ..self
        }
    }

    fn projects(self, entries: &[&str]) -> Self {
        let lines: Vec<_> = entries
            .iter()
            .map(|entry| format!("  - {{{entry}}}"))
            .collect();
        self.config(&format!("version: 3\nprojects:\n{}", lines.join("\n")))
    }

    fn server(self, text: &str) -> Self {
        let server =
            ServerRepos::parse("/etc/repos.yaml", text).unwrap_or_else(|errors| panic!("{errors}"));
        Self { server, ..self }
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

    fn base(self, base: &'static str) -> Self {
        Self { base, ..self }
    }

    /// Turns on the flag `--autoplan-modules`.
    fn modules(self) -> Self {
        let modules = Some(Patterns::new(["**/*.tf"]).unwrap());
        Self {
            settings: SearchSettings {
                modules,
                ..self.settings
            },
            ..self
        }
    }

    fn rules(&self) -> RepoRules {
        self.server.rules(&"github.com/acme/infra".parse().unwrap())
    }

    fn ask<T>(&self, files: &[&str], then: impl FnOnce(&ExplainInput<'_>) -> T) -> T {
        let Self {
            tree,
            config,
            settings,
            ..
        } = self;
        let (changed, rules) = (changed(files), self.rules());
        let base = self.base.parse().unwrap();
        let config = config
            .as_ref()
            .map(|config| config.for_base(&base).unwrap());
        let graph = settings
            .modules
            .as_ref()
            .map(|from| ModuleGraph::build(tree, from, &read).unwrap());
        let input = Input {
            tree,
            changed: &changed,
            config: config.as_ref(),
            base: &base,
            autodiscover: &rules.autodiscover(config.as_ref()),
            modules: graph.as_ref(),
            settings,
            read: &read,
        };
        let tool = ExplainedTool::of_server(Distribution::Terraform, None);
        then(&ExplainInput {
            input: &input,
            rules: &rules,
            tool,
            autoplan: true,
        })
    }

    fn explained(&self, files: &[&str]) -> PlanExplanation {
        let explanation = self.ask(files, |question| explain(question).unwrap());
        let planned: BTreeSet<_> = explanation
            .planned
            .iter()
            .map(|planned| planned.key.clone())
            .collect();
        let discovered = self.ask(files, |question| discover(question.input).unwrap());
        assert_eq!(explanation.planned.len(), discovered.len());
        let discovered: BTreeSet<_> = discovered.into_iter().map(|project| project.key).collect();
        assert_eq!(planned, discovered, "an explanation says what a plan does");
        explanation
    }

    /// Returns the whole explanation as text, one item per line.
    fn told(&self, files: &[&str]) -> String {
        let explanation = self.explained(files);
        let mut text = String::new();
        for group in groups(&explanation.planned) {
            for planned in &group.projects {
                let asked = planned
                    .only_asked
                    .as_ref()
                    .map(|by| format!(" [only asked: {by}]"))
                    .unwrap_or_default();
                writeln!(
                    text,
                    "plan {}: {}{asked}",
                    planned.key.status_id(),
                    planned.why
                )
                .unwrap();
            }
            for row in &group.rows {
                writeln!(text, "     {}: {row}", row.label).unwrap();
            }
        }
        for group in skipped_groups(&explanation.skipped) {
            let ids: Vec<_> = group
                .projects
                .iter()
                .map(|one| one.key.status_id())
                .collect();
            writeln!(text, "not  {}: {}", ids.join(" "), group.reason).unwrap();
        }
        for (file, reason) in explanation.idle_files() {
            writeln!(text, "file {}: {reason}", file.path).unwrap();
        }
        text
    }
}

#[test]
fn discovered_directories_and_all_that_is_none_are_explained() {
    let world = World::new(&[
        "main.tf",
        "app/main.tf",
        "app/modules/x/main.tf",
        "docs/x.md",
        "idle/main.tf",
        "noted/main.tf",
        "shared/modules/y/main.tf",
    ]);
    let files = [
        "app/modules/x/main.tf",
        "app/vars.tfvars",
        "docs/x.tfvars",
        "gone/main.tf",
        "lockkeeper.yaml",
        "main.tf",
        "noted/README.md",
        "shared/modules/y/main.tf",
        "app/terraform.tfstate",
    ];
    insta::assert_snapshot!(world.told(&files), @"
    plan ./default: `main.tf` changed
    plan app/default: `app/modules/x/main.tf` changed, and `modules` belongs to the directory above it
         workflow: `default` (the default)
         needs: nothing for plan, apply or import
         tool: terraform (the default), any version of the server
         lock: `on_plan`, scope `workspace`, no time limit (the default)
    not  shared/modules/y/default: it is below `modules`, and there is no directory with code above it
    not  app/modules/x/default: it is below `modules`, which belongs to `app`
    not  noted/default: its changed files do not count: it is not in `--autoplan-file-list`
    not  idle/default: no file in it changed
    file app/terraform.tfstate: it contains state or settings of a tool, but no code
    file docs/x.tfvars: there is no Terraform code in `docs`
    file gone/main.tf: there is no Terraform code in `gone`
    file lockkeeper.yaml: it is the configuration, which does not concern a project on its own
    file noted/README.md: it is not in `--autoplan-file-list`
    file shared/modules/y/main.tf: it is in `modules` of a directory without code
    ");
}

#[test]
fn what_terragrunt_passes_over_is_told_with_the_reason() {
    let world = World::new(&[
        "terragrunt.hcl",
        "net/terragrunt.hcl",
        "net/main.tf",
        "off/terragrunt.hcl",
        "off/main.tf",
        "bare/terragrunt.hcl",
    ]);
    insta::assert_snapshot!(world.told(&["net/main.tf", "off/main.tf"]), @"
    plan net/default: `net/main.tf` changed
         workflow: `default` (the default)
         needs: nothing for plan, apply or import
         tool: terraform (the default), any version of the server
         lock: `on_plan`, scope `workspace`, no time limit (the default)
    not  off/default: it is not a Terragrunt unit: `skip` or `exclude` in its `terragrunt.hcl` excludes it
    not  bare/default: it is not a Terragrunt unit: it has no code, and its `terragrunt.hcl` neither names a `source` nor generates code
    not  ./default: it is not a Terragrunt unit: its `terragrunt.hcl` is included by others and names no `source`, and it has no code itself
    file off/main.tf: `off` is not a Terragrunt unit: `skip` or `exclude` in its `terragrunt.hcl` excludes it
    ");
    let disabled = world.mode(AutodiscoverMode::Disabled);
    assert!(
        !disabled.told(&["off/main.tf"]).contains("Terragrunt"),
        "nothing is looked for"
    );
}

#[test]
fn hooks_before_a_plan_are_told_to_have_not_been_run() {
    const HOOKS: &str = "repos:\n- id: /.*/\n  branch: /main/\n  pre_workflow_hooks:\n  - run: one\n  - run: two\n    \
                         commands: plan\n  - run: other\n    commands: apply\n  post_workflow_hooks:\n  - run: after\n";
    let world = World::new(&["a/main.tf"]);
    assert_eq!(hooks_not_run(world.explained(&["a/main.tf"]).hooks), None);
    let world = world.server(HOOKS);
    let hooks = world.explained(&["a/main.tf"]).hooks;
    insta::assert_snapshot!(hooks_not_run(hooks).unwrap(), @"Hooks were not run. Before a plan, the server runs 2 hooks. Without them, this explanation may differ from a plan, because hooks may make or change files.");
    insta::assert_snapshot!(hooks_not_run(1).unwrap(), @"Hooks were not run. Before a plan, the server runs 1 hook. Without it, this explanation may differ from a plan, because hooks may make or change files.");
    assert_eq!(
        world.base("release").explained(&["a/main.tf"]).hooks,
        0,
        "the entry is for another branch"
    );
}

#[test]
fn configured_projects_are_explained_with_the_lines_that_decide() {
    let world = World::new(&["net/main.tf", "db/main.tf", "app/main.tf", "off/main.tf", "none/main.tf", "free/main.tf"])
        .server("repos:\n- id: /.*/\n  allowed_overrides: [repo_locks]\n- id: /.*infra/\n  repo_locks: {mode: on_apply, ttl: 72h}\n")
        .projects(&[
            "dir: net, name: net, terraform_version: 1.9.8",
            "dir: db, name: db, terraform_version: 1.9.8",
            "dir: app, repo_locks: {mode: disabled}, autoplan: {when_modified: ['*.tf', '../net/*.md']}",
            "dir: off, autoplan: {enabled: false}",
            "dir: none, autoplan: {when_modified: []}",
            "dir: gone",
        ]);
    insta::assert_snapshot!(world.told(&["net/main.tf", "net/README.md", "db/x.tf", "off/x.tf", "none/x.tf"]), @"
    plan app/default: `net/README.md` changed and matches `../net/*.md` of `when_modified`
         workflow: `default` (the default)
         needs: nothing for plan, apply or import
         tool: terraform (the default), any version of the server
         lock: `disabled` (line 5 of `lockkeeper.yaml`)
    plan db: `db/x.tf` changed and matches `**/*.tf*` of `when_modified`
    plan net: `net/main.tf` changed and matches `**/*.tf*` of `when_modified`
         workflow: `default` (the default)
         needs: nothing for plan, apply or import
         tool: terraform (the default), version 1.9.8 (lines 3, 4 of `lockkeeper.yaml`)
         lock: `on_apply` (line 4 of the server's `repos.yaml`, for `/.*infra/`), scope `workspace` (the default), 72 h without activity (line 4 of the server's `repos.yaml`, for `/.*infra/`)
    plan off/default: `off/x.tf` changed and matches `**/*.tf*` of `when_modified` [only asked: line 6 of `lockkeeper.yaml`]
         workflow: `default` (the default)
         needs: nothing for plan, apply or import
         tool: terraform (the default), any version of the server
         lock: `on_apply` (line 4 of the server's `repos.yaml`, for `/.*infra/`), scope `workspace` (the default), 72 h without activity (line 4 of the server's `repos.yaml`, for `/.*infra/`)
    not  none/default: its `when_modified` is empty, so no file concerns it
    not  gone/default: its directory does not exist
    not  free/default: the configuration lists projects, and this directory is not among them
    file none/x.tf: it matches `when_modified` of no project
    ");
    insta::assert_snapshot!(world.told(&["free/main.tf"]), @"
    not  db net off/default: no Terraform file in its directory changed (the default of `when_modified`)
    not  none/default: its `when_modified` is empty, so no file concerns it
    not  gone/default: its directory does not exist
    not  app/default: no changed file matches its `when_modified`: `*.tf`, `../net/*.md`
    not  free/default: the configuration lists projects, and this directory is not among them
    file free/main.tf: it matches `when_modified` of no project
    ");
}

#[test]
fn a_directory_that_is_a_link_is_told_with_where_it_leads() {
    let world = World::new(&["a/main.tf", "b/c/main.tf"])
        .linked(&[("lnk", "a"), ("out", "../.."), ("up", "b")])
        .projects(&["dir: lnk", "dir: out", "dir: up/c"]);
    insta::assert_snapshot!(world.told(&["a/main.tf"]), @"
    not  a/default b/c/default: the configuration lists projects, and this directory is not among them
    not  out/default: its directory does not exist
    not  lnk/default: its directory is a symbolic link to `a`, and projects behind links are not run: write `dir: a`
    not  up/c/default: its directory is a symbolic link to `b/c`, and projects behind links are not run: write `dir: b/c`
    file a/main.tf: it matches `when_modified` of no project
    file lnk/main.tf: it matches `when_modified` of no project
    ");
    let explanation = world.explained(&["a/main.tf"]);
    let words: Vec<_> = explanation
        .skipped
        .iter()
        .map(|skipped| skipped.why_not.word())
        .collect();
    assert_eq!(
        words,
        [
            "not_configured",
            "not_configured",
            "dir_is_link",
            "dir_missing",
            "dir_is_link"
        ]
    );
    let warnings = world.ask(&[], |question| warnings(question, None).unwrap());
    let told: Vec<_> = warnings
        .iter()
        .map(|warning| format!("{warning} => {}", warning.help))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    the directory `lnk` is a symbolic link to `a`, and no project runs behind a link => write `dir: a`, or remove the project
    the directory `out` does not exist => correct `dir`, or remove the project
    the directory `up/c` is a symbolic link to `b/c`, and no project runs behind a link => write `dir: b/c`, or remove the project
    ");
}

#[test]
fn modes_of_discovery_give_their_reasons() {
    let world = || World::new(&["a/main.tf", "b/main.tf"]);
    insta::assert_snapshot!(world().mode(AutodiscoverMode::Disabled).told(&["a/main.tf"]), @"
    not  a/default b/default: it is not configured, and `autodiscover` is `disabled` (`--autodiscover-mode` of the server)
    file a/main.tf: it matches `when_modified` of no project
    ");
    let enabled = world()
        .projects(&["dir: a, autoplan: {when_modified: [x]}"])
        .mode(AutodiscoverMode::Enabled);
    insta::assert_snapshot!(enabled.told(&["a/main.tf", "b/main.tf"]), @"
    plan b/default: `b/main.tf` changed
         workflow: `default` (the default)
         needs: nothing for plan, apply or import
         tool: terraform (the default), any version of the server
         lock: `on_plan`, scope `workspace`, no time limit (the default)
    not  a/default: no changed file matches its `when_modified`: `x`
    file a/main.tf: it matches `when_modified` of no project, and `a` is configured
    ");
}

#[test]
fn every_file_names_all_projects_it_concerns() {
    let world = World::new(&["a/main.tf", "b/main.tf", "shared.tf"]).projects(&[
        "dir: a, name: one, autoplan: {when_modified: [../shared.tf, '*.tf']}",
        "dir: a, name: two, workspace: w, autoplan: {when_modified: ['../**']}",
        "dir: b",
    ]);
    let explanation = world.explained(&["shared.tf", "a/main.tf", "b/main.tf", "x.md"]);
    let told = |file: &FileVerdict| {
        let ids: Vec<_> = file.concerns.iter().map(ProjectKey::status_id).collect();
        format!("{}: {}", file.path, ids.join(" "))
    };
    let files: Vec<_> = explanation.files.iter().map(told).collect();
    insta::assert_snapshot!(files.join("\n"), @"
    a/main.tf: one two
    b/main.tf: two b/default
    shared.tf: one two
    x.md: two
    ");
}

#[test]
fn projects_are_listed_in_the_order_in_which_they_would_run() {
    let world = World::new(&["a/main.tf", "b/main.tf", "c/main.tf", "d/main.tf"]).projects(&[
        "dir: a, name: a, depends_on: [b]",
        "dir: b, name: b, execution_order_group: 1",
        "dir: c, name: c, depends_on: [d]",
        "dir: d, name: d",
    ]);
    let listed = |explanation: &PlanExplanation| {
        explanation
            .planned
            .iter()
            .map(|planned| planned.key.status_id())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        listed(&world.explained(&["a/x.tf", "b/x.tf", "c/x.tf", "d/x.tf"])),
        "d c b a"
    );
    let all = RequestedProjects::Place {
        dir: DirSelector::Glob("*".to_owned()),
        workspace: None,
    };
    assert_eq!(
        listed(&world.ask(&[], |question| explain_target(&all, question).unwrap())),
        "d c b a"
    );
}

#[test]
fn what_is_asked_for_is_explained_alone() {
    let world = World::new(&["a/main.tf", "b/main.tf"]).projects(&["dir: a, name: a"]);
    let by_name = |name: &str| {
        world.ask(&[], |question| {
            explain_target(&RequestedProjects::Project(name.to_owned()), question)
        })
    };
    let explanation = by_name("a").unwrap();
    assert_eq!(
        (
            explanation.planned.len(),
            explanation.skipped.len(),
            explanation.files.len()
        ),
        (1, 0, 0)
    );
    assert_eq!(explanation.planned[0].why, ProjectReason::ByName);
    assert!(by_name("b").is_err());
}

#[test]
fn lines_that_say_the_same_are_named_together() {
    let entries: Vec<String> = (0..9)
        .map(|n| format!("dir: d{n}, terraform_version: 1.9.{}", n / 5))
        .collect();
    let files: Vec<String> = (0..9).map(|n| format!("d{n}/main.tf")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let world =
        World::new(&files).projects(&entries.iter().map(String::as_str).collect::<Vec<_>>());
    let explanation = world.explained(&files);
    let tools: Vec<_> = groups(&explanation.planned)
        .iter()
        .map(|group| {
            let tool = group
                .rows
                .iter()
                .find(|row| row.label == "tool")
                .unwrap()
                .to_string();
            format!("{} projects: {tool}", group.projects.len())
        })
        .collect();
    insta::assert_snapshot!(tools.join("\n"), @"
    5 projects: terraform (the default), version 1.9.0 (lines 3, 4, 5, … of `lockkeeper.yaml`)
    4 projects: terraform (the default), version 1.9.1 (lines 8, 9, 10, … of `lockkeeper.yaml`)
    ");
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let world = World::new(&["a/main.tf", "b/c/main.tf", "b/d/main.tf", "b/d/x.md"])
        .server("repos:\n- id: /acme/\n  repo_locks: {mode: on_apply}\n")
        .projects(&[
            "dir: a, autoplan: {when_modified: ['*.tf', '../modules/**', '!x']}",
            "dir: 'b/*', autoplan: {when_modified: ['*.md', '*.py']}",
            "dir: gone, autoplan: {when_modified: ['*.py']}",
            "dir: 'none/*'",
            "dir: b/c, workspace: w",
        ]);
    let warnings = world.ask(&[], |question| warnings(question, None).unwrap());
    let told: Vec<_> = warnings
        .iter()
        .map(|warning| {
            format!(
                "{}:{}: {warning}",
                warning.file,
                warning.line.unwrap_or_default()
            )
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    lockkeeper.yaml:5: the directory `gone` does not exist
    lockkeeper.yaml:6: `none/*` matches no directory with code that is not a project already
    repos.yaml:2: `/acme/` matches only a part of the name of this repository, so the entry does not apply to it
    ");
}

/// Returns the warnings about unknown facts for a change of these files, one per line.
fn not_known(world: &World, files: &[&str]) -> String {
    let line = |warning: &ConfigWarning| {
        let (what, rest) = warning.what.split_once(" (").unwrap_or((&warning.what, ""));
        let lost = rest.rsplit_once("), ").map_or(rest, |(_, lost)| lost);
        format!(
            "{}:{}: {what}, {lost}",
            warning.file,
            warning.line.unwrap_or_default()
        )
    };
    world.ask(files, |question| {
        let explanation = explain(question).unwrap();
        let warnings = warnings(question, Some(&explanation)).unwrap();
        warnings.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

#[test]
fn code_that_cannot_be_read_is_a_warning_where_it_decides_something() {
    let files = ["a/broken.tf", "b/main.tf", "idle/broken.tf"];
    let world = || World::new(&files);
    let version = "a/broken.tf:5: this code could not be read, so its required version is unknown";
    let workspace = "a/broken.tf:5: this code could not be read, so the workspace of its `cloud` block is unknown";
    assert_eq!(
        not_known(&world(), &["a/x.tf", "b/main.tf"]),
        format!("{version}\n{workspace}")
    );
    assert_eq!(
        not_known(&world().projects(&["dir: a"]), &["a/x.tf"]),
        version,
        "it names the workspace"
    );
    assert_eq!(
        not_known(
            &world().projects(&["dir: a, terraform_version: 1.9.8"]),
            &["a/x.tf"]
        ),
        ""
    );
    assert_eq!(
        not_known(&world(), &["b/main.tf"]),
        "",
        "nothing is planned there"
    );
    let warnings = world().ask(&["a/x.tf"], |question| {
        warnings(question, Some(&explain(question).unwrap())).unwrap()
    });
    insta::assert_snapshot!(warnings[0].help, @"correct the code if the tool also refuses it; otherwise name the version with `terraform_version`");
    insta::assert_snapshot!(warnings[0].what, @"this code could not be read (invalid block body; expected `}`, newline or identifier), so its required version is unknown");
}

#[test]
fn modules_that_are_not_known_are_a_warning_of_whatever_may_use_them() {
    let modules = "a/broken.tf:5: this code could not be read, so its modules are unknown";
    let world = World::new(&["a/broken.tf", "b/main.tf"]).modules();
    assert_eq!(not_known(&world, &["b/main.tf"]), modules);
    let world = World::new(&[
        "a/broken.tf",
        "a/terragrunt.hcl",
        "terragrunt.hcl",
        "b/main.tf",
    ]);
    assert_eq!(not_known(&world, &["b/main.tf"]), modules);
    assert_eq!(not_known(&world.modules(), &["b/main.tf"]), modules, "once");
}

/// Only the first warnings are shown, and the code may have many.
#[test]
fn what_the_configuration_says_comes_before_code() {
    let world = World::new(&["a/broken.tf"])
        .server("repos:\n- id: /acme/\n  repo_locks: {mode: on_apply}\n")
        .projects(&["dir: a", "dir: gone"])
        .modules();
    let warnings = world.ask(&[], |question| warnings(question, None).unwrap());
    let files: Vec<_> = warnings
        .iter()
        .map(|warning| warning.file.as_str())
        .collect();
    assert_eq!(files, ["lockkeeper.yaml", "repos.yaml", "a/broken.tf"]);
}

#[test]
fn a_module_that_may_have_a_state_of_its_own_is_a_warning() {
    let world = || World::new(&["app/uses.tf", "mod/lost.tf"]).modules();
    let state = "mod/lost.tf:4: this code could not be read, so it is unknown whether this module has its own state";
    assert_eq!(not_known(&world(), &["app/uses.tf"]), state);
    let configured = world().projects(&["dir: mod"]);
    assert_eq!(
        not_known(&configured, &["app/uses.tf"]),
        "",
        "nothing is looked for"
    );
    assert_eq!(
        not_known(
            &configured.mode(AutodiscoverMode::Enabled),
            &["app/uses.tf"]
        ),
        "",
        "it is a project"
    );
    assert_eq!(
        not_known(
            &World::new(&["b/main.tf", "mod/lost.tf"]).modules(),
            &["b/main.tf"]
        ),
        "",
        "it is no module"
    );
}

#[test]
fn programs_get_the_same_with_stable_keys() {
    let world = World::new(&["a/main.tf", "b/main.tf"])
        .server("repos:\n- id: github.com/acme/infra\n  repo_locks: {mode: on_plan, ttl: 90m}\n")
        .projects(&["dir: a, name: a, terraform_version: 1.9.8", "dir: b"]);
    let explanation = world.explained(&["a/main.tf", "x.md"]);
    insta::assert_snapshot!(serde_json::to_string_pretty(&ExplanationJson::of(&explanation)).unwrap(), @r#"
    {
      "not_served": null,
      "autodiscover": {
        "mode": {
          "value": "auto",
          "by": {
            "who": "default"
          }
        },
        "active": false
      },
      "hooks_not_run": 0,
      "projects": [
        {
          "name": "a",
          "dir": "a",
          "workspace": "default",
          "autoplan": true,
          "autoplan_by": null,
          "configured": {
            "who": "repo",
            "file": "lockkeeper.yaml",
            "line": 3
          },
          "why": {
            "rule": "when_modified",
            "file": "a/main.tf",
            "text": "`a/main.tf` changed and matches `**/*.tf*` of `when_modified`"
          },
          "workflow": {
            "value": "default",
            "by": {
              "who": "default"
            }
          },
          "requirements": {
            "plan": [],
            "apply": [],
            "import": []
          },
          "tool": {
            "distribution": {
              "value": "terraform",
              "by": {
                "who": "default"
              }
            },
            "version": {
              "value": "1.9.8",
              "by": {
                "who": "repo",
                "file": "lockkeeper.yaml",
                "line": 3
              }
            },
            "code": []
          },
          "lock": {
            "mode": {
              "value": "on_plan",
              "by": {
                "who": "server",
                "file": "repos.yaml",
                "line": 2,
                "id": "github.com/acme/infra"
              }
            },
            "scope": {
              "value": "workspace",
              "by": {
                "who": "default"
              }
            },
            "ttl": {
              "value": 5400,
              "by": {
                "who": "server",
                "file": "repos.yaml",
                "line": 2,
                "id": "github.com/acme/infra"
              }
            }
          },
          "execution_order_group": 0,
          "depends_on": [],
          "silenced": {
            "value": [],
            "by": {
              "who": "default"
            }
          }
        }
      ],
      "skipped": [
        {
          "name": null,
          "dir": "b",
          "workspace": "default",
          "configured": {
            "who": "repo",
            "file": "lockkeeper.yaml",
            "line": 4
          },
          "reason": "no_match",
          "text": "no Terraform file in its directory changed (the default of `when_modified`)",
          "patterns": [
            "**/*.tf*",
            "**/*.tofu",
            "**/*.tofu.json",
            "**/terragrunt.hcl",
            "**/.terraform.lock.hcl"
          ]
        }
      ],
      "files": [
        {
          "path": "a/main.tf",
          "projects": [
            {
              "name": "a",
              "dir": "a",
              "workspace": "default"
            }
          ],
          "reason": null,
          "text": null
        },
        {
          "path": "x.md",
          "projects": [],
          "reason": "not_listed",
          "text": "it matches `when_modified` of no project"
        }
      ]
    }
    "#);
}

#[test]
fn other_branches_ignored_directories_and_modules_are_told_apart() {
    let world = World::new(&["a/main.tf", "b/main.tf", "old/x/main.tf"]).base("release/1").config(
        "version: 3\nautodiscover: {mode: enabled, ignore_paths: ['old/**']}\nprojects:\n- {dir: a, branch: /^main$/}\n",
    );
    insta::assert_snapshot!(world.told(&["a/main.tf", "old/x/main.tf"]), @"
    not  old/x/default: it matches `old/**` of `ignore_paths` (line 2 of `lockkeeper.yaml`)
    not  a/default: its `branch` (`/^main$/`) does not match `release/1`
    not  b/default: no file in it changed
    file a/main.tf: it matches `when_modified` of no project, and `a` is configured
    file old/x/main.tf: its directory matches `old/**` of `ignore_paths` (line 2 of `lockkeeper.yaml`)
    ");
    let world = World::new(&["app/uses.tf", "mod/main.tf", "idle/main.tf"]).modules();
    insta::assert_snapshot!(world.told(&["mod/main.tf"]), @"
    plan app/default: `mod/main.tf` changed, in a module that it uses: `mod`
    plan mod/default: `mod/main.tf` changed
         workflow: `default` (the default)
         needs: nothing for plan, apply or import
         tool: terraform (the default), any version of the server
         lock: `on_plan`, scope `workspace`, no time limit (the default)
    not  idle/default: no file in it changed
    ");
}

#[test]
fn what_the_operator_and_the_repository_say_is_told_with_its_place() {
    let world = World::new(&["a/main.tf", "b/main.tf"])
        .server(
            "repos:\n- id: /.*/\n  apply_requirements: [approved]\n  allowed_overrides: [workflow, apply_requirements]\n  \
             environment_profile: [{dir: b, profile: prod}]\nenvironment_profiles: {prod: {}}\n\
             workflows:\n  custom:\n    plan:\n      steps: [init, plan]\n",
        )
        .projects(&[
            "dir: a, name: a, workflow: custom, apply_requirements: [mergeable], execution_order_group: 1, depends_on: [b]",
            "dir: b, name: b, terraform_distribution: opentofu",
        ]);
    insta::assert_snapshot!(world.told(&["a/main.tf", "b/main.tf"]), @"
    plan b: `b/main.tf` changed and matches `**/*.tf*` of `when_modified`
         workflow: `default` (the default)
         plan needs: nothing
         apply needs: `approved` (line 2 of the server's `repos.yaml`, for `/.*/`)
         import needs: `approved` (line 2 of the server's `repos.yaml`, for `/.*/`)
         tool: opentofu (line 4 of `lockkeeper.yaml`), any version of the server
         lock: `on_plan`, scope `workspace`, no time limit (the default)
         environment: profile `prod` (line 2 of the server's `repos.yaml`, for `/.*/`)
    plan a: `a/main.tf` changed and matches `**/*.tf*` of `when_modified`
         workflow: `custom` (line 3 of `lockkeeper.yaml`)
         plan needs: nothing
         apply needs: `approved` (line 2 of the server's `repos.yaml`, for `/.*/`), `mergeable` (line 3 of `lockkeeper.yaml`)
         import needs: `approved` (line 2 of the server's `repos.yaml`, for `/.*/`), `mergeable` (line 3 of `lockkeeper.yaml`)
         tool: terraform (the default), any version of the server
         lock: `on_plan`, scope `workspace`, no time limit (the default)
         order: in group 1, after `b` (line 3 of `lockkeeper.yaml`)
    ");
}

#[test]
fn pulls_into_a_branch_that_is_not_served_are_explained() {
    let world = World::new(&["a/main.tf"])
        .server("repos:\n- id: /.*/\n  branch: /^main$/\n")
        .base("develop");
    let explanation = world.explained(&["a/main.tf"]);
    let told = explanation
        .not_served
        .as_ref()
        .map(|branch| format!("{} {}", branch.value.as_str(), branch.by));
    assert_eq!(
        told.as_deref(),
        Some("^main$ line 2 of the server's `repos.yaml`, for `/.*/`")
    );
    assert!(explanation.summary().contains("not served"));
}

#[test]
fn the_version_is_that_of_the_files_then_of_the_code_then_of_the_flag() {
    let world =
        World::new(&["a/versions.tf", "b/versions.tf", "c/main.tf", "d/odd.tf"]).projects(&[
            "dir: a",
            "dir: b, terraform_version: 1.8.0",
            "dir: c",
            "dir: d",
        ]);
    let tool = ExplainedTool::of_server(Distribution::Terraform, Some(Version::new(1, 10, 5)));
    let told = world.ask(
        &["a/versions.tf", "b/versions.tf", "c/main.tf", "d/odd.tf"],
        |question| {
            let explanation = explain(&ExplainInput {
                tool: tool.clone(),
                ..*question
            })
            .unwrap();
            let row = |planned: &Planned| {
                rows(planned)
                    .into_iter()
                    .find(|row| row.label == "tool")
                    .unwrap()
                    .to_string()
            };
            explanation
                .planned
                .iter()
                .map(row)
                .collect::<Vec<_>>()
                .join("\n")
        },
    );
    insta::assert_snapshot!(told, @"
    terraform (the default), the newest version that matches: line 2 of `a/versions.tf` says `~> 1.9.0`
    terraform (the default), version 1.8.0 (line 4 of `lockkeeper.yaml`)
    terraform (the default), version 1.10.5 (`--default-tf-version` of the server)
    terraform (the default), no version: line 2 of `d/odd.tf`: `about 1.9` is not a version constraint: write a comma between conditions, not only a space, in `about 1.9`
    ");
}

#[test]
fn policy_sets_of_a_project_are_named_with_their_engine_and_origin() {
    let sets = "
- {name: basics, path: /etc/policies, owners: {users: [ada]}}
- {name: ours, source: branch, branch: main, path: policies, engine: embedded, owners: {users: [ada]}}
- {name: shared, source: repository, repository: github.com/acme/policies, ref: v1.0.0, path: rego, owners: {users: [ada]}}
- {name: labelled, path: /etc/labelled, when: {labels: [production]}, owners: {users: [ada]}}
- {name: elsewhere, path: /etc/elsewhere, when: {dirs: [other]}, owners: {users: [ada]}}
";
    let text = format!("policies:\n  policy_sets:{}", sets.replace('\n', "\n  "));
    let world = World::new(&["app/main.tf"]).server(text.trim_end());
    let checked = World {
        server: world.server.clone().with_policy_checks().unwrap(),
        ..world
    };
    let told = checked.told(&["app/main.tf"]);
    let row = told
        .lines()
        .find(|line| line.trim_start().starts_with("policies:"))
        .unwrap_or_else(|| panic!("{told}"));
    insta::assert_snapshot!(row.trim_start(), @"policies: `basics` (`conftest`, `/etc/policies`), `ours` (`embedded`, `policies` on the branch `main`), `shared` (`conftest`, `rego` of `github.com/acme/policies` at `v1.0.0`), `labelled` (`conftest`, `/etc/labelled`, if the pull request has one of its labels) (`--enable-policy-checks` of the server)");
    let json = checked.ask(&["app/main.tf"], |question| {
        let explanation = explain(question).unwrap();
        serde_json::to_value(ExplanationJson::of(&explanation)).unwrap()
    });
    let labelled = &json["projects"][0]["policies"]["value"][3];
    assert_eq!(labelled["name"], "labelled");
    assert_eq!(labelled["needs_label"], true);
}
