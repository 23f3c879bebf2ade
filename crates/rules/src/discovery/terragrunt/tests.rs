//! Tests trees with their expected projects, and rules for every tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::select as one_of;

use super::*;

fn path(text: &str) -> RepoPath {
    text.parse().unwrap()
}

/// Returns the directory with one tree per case.
fn trees() -> PathBuf {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|dir| dir.join("tests/trees/terragrunt"));
    above
        .find(|dir| dir.is_dir())
        .expect("the trees are in the repository")
}

/// Collects the files below a directory, except the expected result.
fn files_below(root: &Path, dir: &Path, files: &mut Vec<(RepoPath, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() {
            files_below(root, &entry, files);
        } else if !entry.starts_with(root.join("expected.txt"))
            && !entry.starts_with(root.join("expected.txt.new"))
        {
            let name = entry.strip_prefix(root).unwrap().to_str().unwrap();
            files.push((path(name), fs::read_to_string(&entry).unwrap()));
        }
    }
}

/// A tree in memory, by path and text.
#[derive(Debug, Clone, Default)]
struct World(BTreeMap<RepoPath, String>);

impl World {
    fn of(files: &[(&str, &str)]) -> Self {
        Self(
            files
                .iter()
                .map(|(name, text)| (path(name), (*text).to_owned()))
                .collect(),
        )
    }

    fn tree(&self) -> FileTree {
        FileTree::new(self.0.keys().cloned())
    }

    fn found(&self) -> TerragruntDirs {
        units(&self.tree(), &|file| self.0.get(file).cloned())
    }

    fn concerned(&self, changed: &RepoPath) -> Vec<(RepoPath, Chain)> {
        concerned(&self.found(), &self.tree(), &[changed], &counts)
    }

    /// Returns the unresolved facts, one per line.
    fn unresolved(&self) -> String {
        self.found()
            .unresolved
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn counts(file: &RepoPath) -> bool {
    let name = file.file_name();
    source::is_code(name)
        || [".tfvars", ".hcl"]
            .iter()
            .any(|ending| name.ends_with(ending))
}

/// Describes the projects of a tree and, for each of its files and each path in `asked`, what a change of it
/// concerns.
fn told(world: &World, asked: &str) -> String {
    let found = world.found();
    let mut lines = Vec::new();
    for Unit {
        dir,
        kind,
        depends_on,
        order,
        ..
    } in &found.units
    {
        let needs: Vec<_> = depends_on.iter().map(ToString::to_string).collect();
        let needs = if needs.is_empty() {
            String::new()
        } else {
            format!(" after {}", needs.join(", "))
        };
        lines.push(format!("{order} {kind:?} {dir}{needs}"));
    }
    for (dir, why) in &found.passed_over {
        lines.push(format!("no project: {dir}: {why}"));
    }
    for unresolved in &found.unresolved {
        lines.push(format!("not known: {unresolved}"));
    }
    let gone = asked
        .lines()
        .filter_map(|line| line.strip_prefix("== "))
        .map(path);
    for file in world.0.keys().cloned().chain(gone).collect::<BTreeSet<_>>() {
        lines.push(format!("\n== {file}"));
        for (dir, chain) in world.concerned(&file) {
            lines.push(format!("{dir}: {chain}"));
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn every_tree_has_the_projects_that_are_expected() {
    let mut wrong = Vec::new();
    let mut cases: Vec<PathBuf> = fs::read_dir(trees())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(cases.len() >= 12);
    for case in cases {
        let mut files = Vec::new();
        files_below(&case, &case, &mut files);
        let expected = fs::read_to_string(case.join("expected.txt")).unwrap_or_default();
        let told = told(&World(files.into_iter().collect()), &expected);
        if told != expected {
            fs::write(case.join("expected.txt.new"), &told).unwrap();
            wrong.push(format!("{}:\n{told}", case.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "what was found instead is in expected.txt.new of\n{}",
        wrong.join("\n")
    );
}

fn unit(text: &str) -> World {
    let more = "\nterraform { source = \"tfr:///example/x/aws?version=1.0.0\" }\n";
    World::of(&[
        ("live/a/terragrunt.hcl", &format!("{text}{more}")),
        ("live/data.yaml", "a: {b: [x, y]}\nn: 2\n"),
    ])
}

/// Checks the values of expressions. Each value names a module, so that the test can see it.
#[test]
fn expressions_have_the_values_that_terragrunt_gives_them() {
    let cases = [
        ("\"m\"", "m"),
        ("\"${\"m\"}-${1 + 2}\"", "m-3"),
        ("true ? \"yes\" : \"no\"", "yes"),
        ("!(1 < 2) || false ? \"yes\" : \"no\"", "no"),
        ("[\"a\", \"b\"][1]", "b"),
        ("{ a = { b = \"c\" } }.a[\"b\"]", "c"),
        (
            "join(\"-\", [for x in [\"a\", \"b\", \"c\"] : upper(x) if x != \"b\"])",
            "A-C",
        ),
        (
            "{ for k, v in { a = \"x\", b = \"y\" } : v => k }[\"y\"]",
            "b",
        ),
        (
            "join(\"\", { for v in [\"a1\", \"a2\", \"b1\"] : substr(v, 0, 1) => v... }[\"a\"])",
            "a1a2",
        ),
        ("join(\"\", [{ n = \"p\" }, { n = \"q\" }][*].n)", "pq"),
        ("\"%{if 1 == 1}yes%{else}no%{endif}\"", "yes"),
        ("\"%{for x in [\"a\", \"b\"]}${x}.%{endfor}\"", "a.b."),
        ("yamldecode(file(\"../data.yaml\")).a.b[1]", "y"),
        ("\"v${yamldecode(file(\"../data.yaml\")).n}\"", "v2"),
        ("jsondecode(\"[1, \\\"z\\\"]\")[1]", "z"),
        ("basename(get_terragrunt_dir())", "a"),
        ("basename(dirname(get_terragrunt_dir()))", "live"),
        ("get_path_from_repo_root()", "live/a"),
        ("replace(get_path_to_repo_root(), \"..\", \"up\")", "up/up"),
        ("path_relative_to_include()", "."),
        ("replace(\"a.b.c\", \".\", \"-\")", "a-b-c"),
        ("replace(\"a1b22\", \"/[0-9]+/\", \"_\")", "a_b_"),
        ("format(\"%s-%d%%\", \"x\", 3)", "x-3%"),
        ("split(\"/\", \"a/b/c\")[2]", "c"),
        ("element([\"a\", \"b\"], 3)", "b"),
        ("lookup({ a = \"x\" }, \"b\", \"d\")", "d"),
        ("merge({ a = \"1\" }, { a = \"2\" }).a", "2"),
        ("concat([\"a\"], [\"b\"])[1]", "b"),
        ("join(\",\", toset([\"b\", \"a\", \"b\"]))", "a,b"),
        ("flatten([[\"a\"], [[\"b\"]]])[1]", "b"),
        ("length([1, 2, 3])", "3"),
        ("keys({ z = 1, y = 2 })[0]", "y"),
        ("contains([\"a\"], \"a\") ? \"in\" : \"out\"", "in"),
        (
            "regex(\"live/([a-z]+)\", get_path_from_repo_root())[0]",
            "a",
        ),
        ("regex(\"(?P<last>[^/]+)$\", \"x/y\").last", "y"),
        ("trimsuffix(trimprefix(\"abc\", \"a\"), \"c\")", "b"),
        ("lower(upper(trimspace(\" aB \")))", "ab"),
        ("try(local.nothing, [][0], \"ok\")", "ok"),
        ("can(local.nothing) ? \"can\" : \"cannot\"", "cannot"),
        ("coalesce(null, \"\", \"c\")", "c"),
        (
            "startswith(\"ab\", \"a\") && endswith(\"ab\", \"b\") && strcontains(\"abc\", \"b\") ? \"y\" : \"n\"",
            "y",
        ),
        ("merge([{ a = \"x\" }, { b = \"y\" }]...).b", "y"),
        (
            "fileexists(\"../data.yaml\") ? \"there\" : \"not\"",
            "there",
        ),
        (
            "find_in_parent_folders(\"nothing\", \"fallback\")",
            "fallback",
        ),
        (
            "get_env(\"X\", \"same\") == \"a\" ? \"same\" : \"same\"",
            "same",
        ),
        ("false && run_cmd(\"x\") == \"y\" ? \"a\" : \"b\"", "b"),
        ("<<-E\n    text\n  E\n", "text\n"),
    ];
    for (expression, expected) in cases {
        let world = unit(&format!(
            "locals {{\n  x = {expression}\n}}\ndependency \"d\" {{\n  config_path = \"/[${{local.x}}]\"\n}}"
        ));
        let told = world.unresolved();
        let shown = expected.replace('\n', "?");
        assert!(
            told.contains(&format!("`/[{shown}]` is not in this repository")),
            "{expression}: {told}"
        );
    }
}

#[test]
fn what_needs_something_from_outside_is_not_known() {
    for expression in [
        "get_env(\"X\", \"d\")",
        "run_cmd(\"x\")",
        "get_aws_account_id()",
        "timestamp()",
        "dependency.x.outputs.y",
        "\"a-${get_env(\"X\")}\"",
        "merge({ a = \"x\" }, jsondecode(run_cmd(\"x\"))).a",
        "[for x in run_cmd(\"x\") : \"a\"][0]",
        "get_env(\"X\") == \"a\" ? \"b\" : \"c\"",
        "try(get_env(\"X\"), \"b\")",
        "format(\"%05d\", 3)",
        "provider::x::y(1)",
        "feature.x.value",
        "{ (get_env(\"X\")) = \"a\" }.b",
        "sops_decrypt_file(\"../data.yaml\")",
    ] {
        let world = unit(&format!(
            "dependency \"d\" {{\n  config_path = {expression}\n}}"
        ));
        let told = world.unresolved();
        assert!(
            told.contains(
                "live/a/terragrunt.hcl:2: the `config_path` of a dependency is not known: "
            ),
            "{expression}: {told}"
        );
    }
}

#[test]
fn what_is_wrong_is_reported_where_it_is_written() {
    let world = unit(
        "locals {\n  a = local.b\n  c = {}.d\n  e = [1][2]\n  f = 1 / 0\n  g = \"x\" + 1\n  h = file(\"no\")\n  i = var.x\n  \
         j = values.x\n  k = include.x\n  l = true ? {} : []\n  m = \"${[]}\"\n}\n",
    );
    insta::assert_snapshot!(world.unresolved(), @"
    live/a/terragrunt.hcl:2: there is no `local.b`
    live/a/terragrunt.hcl:3: there is no attribute `d`
    live/a/terragrunt.hcl:4: there is no element 2
    live/a/terragrunt.hcl:5: the result is not a number
    live/a/terragrunt.hcl:6: a text is not a number
    live/a/terragrunt.hcl:7: there is no `live/a/no`
    live/a/terragrunt.hcl:8: there is no such variable
    live/a/terragrunt.hcl:9: there are no `values`: no `terragrunt.values.hcl` is here
    live/a/terragrunt.hcl:10: there is no such `include`
    ");
}

#[test]
fn one_byte_order_mark_is_no_part_of_a_configuration() {
    let world = |mark: &str| {
        World::of(&[
            ("root.hcl", &format!("{mark}locals {{\n  x = \"y\"\n}}\n")),
            (
                "live/a/terragrunt.hcl",
                &format!(
                    "{mark}include \"root\" {{\n  path = find_in_parent_folders(\"root.hcl\")\n}}\n"
                ),
            ),
            (
                "live/a/main.tf",
                &format!("{mark}module \"m\" {{\n  source = \"../../net\"\n}}\n"),
            ),
            ("net/main.tf", mark),
        ])
    };
    let found = world("\u{feff}").found();
    assert_eq!(found, world("").found());
    assert_eq!(found.unresolved, []);
    let unit = found.unit(&path("live/a")).unwrap();
    assert_eq!(unit.reads.get(&path("root.hcl")), Some(&FileUse::Include));
    assert_eq!(unit.watches.get(&path("net")), Some(&UnitCode::Module));
    let told = world("\u{feff}\u{feff}").unresolved();
    assert!(
        told.starts_with("live/a/terragrunt.hcl:1: it is not valid: "),
        "{told}"
    );
}

#[test]
fn code_of_units_that_cannot_be_read_is_known() {
    let world = World::of(&[
        (
            "live/a/terragrunt.hcl",
            "terraform {\n  source = \"../../net\"\n}\n",
        ),
        ("live/b/terragrunt.hcl", "skip = true\n"),
        ("live/b/main.tf", "module {"),
        ("net/calls.tf", "module \"m\" {\n  source = \"../mod\"\n}\n"),
        ("mod/main.tf", "# module\nresource \"a\" {\n"),
        ("mod/.hidden.tf", "module {"),
        ("mod/names.tf", "x = submodule\n}\n"),
        ("other/main.tf", "module {"),
    ]);
    let TerragruntDirs {
        unread, unresolved, ..
    } = world.found();
    let told: Vec<String> = unread
        .iter()
        .map(|one| format!("{}:{}", one.file, one.line))
        .collect();
    assert_eq!(told, ["mod/main.tf:2"]);
    assert_eq!(unresolved, []);
}

#[test]
fn what_a_unit_looks_for_concerns_it_even_if_it_is_gone() {
    let world = unit(
        "locals {\n  x = try(file(\"gone.txt\"), \"\")\n  y = find_in_parent_folders(\"env.hcl\", \"\")\n}",
    );
    for gone in ["live/a/gone.txt", "live/env.hcl", "env.hcl"] {
        assert_eq!(world.concerned(&path(gone)).len(), 1, "{gone}");
    }
}

#[test]
fn hostile_configurations_cost_neither_stack_nor_time() {
    let lines =
        |count: usize, line: fn(usize) -> String| (1..count).map(line).collect::<Vec<_>>().concat();
    let doubled = lines(60, |n| {
        format!("  l{n} = [local.l{0}, local.l{0}]\n", n - 1)
    });
    let texts = lines(60, |n| {
        format!("  t{n} = \"${{local.t{0}}}${{local.t{0}}}\"\n", n - 1)
    });
    let deep = lines(5_000, |n| format!("  d{n} = local.d{}\n", n - 1));
    let nested = lines(5_000, |n| format!("  n{n:05} = [local.n{:05}]\n", n - 1));
    let loops =
        "  big = [for a in range : [for b in range : [for c in range : [for d in range : a]]]]\n";
    let range = format!("  range = [{}]\n", "1,".repeat(2_000));
    for locals in [
        format!("  l0 = []\n{doubled}  f = flatten(local.l59)\n  g = local.l59 == local.l59\n"),
        format!("  t0 = \"x\"\n{texts}"),
        format!("  d0 = 1\n{deep}"),
        format!("  n00000 = 1\n{nested}"),
        format!("{}{range}", loops.replace("range", "local.range")),
        "  r = replace(join(\"\", [for x in split(\"\", file(\"../data.yaml\")) : x]), \"\", file(\"../data.yaml\"))\n"
            .to_owned(),
        "  x = regex(\"(a{1000}){1000}\", \"a\")\n".to_owned(),
        "  y = yamldecode(\"a: &a [x,x,x,x]\\nb: &b [*a,*a,*a,*a]\\nc: &c [*b,*b,*b,*b]\")\n".to_owned(),
    ] {
        let found = unit(&format!("locals {{\n{locals}}}\n")).found();
        assert_eq!(found.units.len(), 1);
    }
    let chain: Vec<(String, String)> = (0..500)
        .map(|n| {
            (
                format!("c{n}/terragrunt.hcl"),
                format!(
                    "locals {{\n  x = read_terragrunt_config(\"../c{}\")\n}}",
                    n + 1
                ),
            )
        })
        .collect();
    let chain: Vec<(&str, &str)> = chain
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    assert!(World::of(&chain).found().units.len() < 500);
}

#[test]
fn a_thousand_units_are_no_trouble() {
    let mut world = World::of(&[
        (
            "root.hcl",
            "locals {\n  env = read_terragrunt_config(find_in_parent_folders(\"env.hcl\")).locals.env\n}\n",
        ),
        (
            "modules/app/main.tf",
            "module \"x\" {\n  source = \"../x\"\n}\n",
        ),
        ("modules/x/main.tf", ""),
    ]);
    for n in 0..1_000 {
        let env = n / 100;
        world.0.insert(
            path(&format!("live/{env}/env.hcl")),
            format!("locals {{\n  env = \"{env}\"\n}}\n"),
        );
        let needs = if n == 0 {
            String::new()
        } else {
            format!(
                "dependency \"d\" {{\n  config_path = \"${{get_repo_root()}}/live/{}/{}\"\n}}\n",
                (n - 1) / 100,
                n - 1
            )
        };
        let text = "include \"root\" {\n  path = find_in_parent_folders(\"root.hcl\")\n}\nterraform {\n  source = \"${get_repo_root()}/modules//app\"\n}\n";
        world.0.insert(
            path(&format!("live/{env}/{n}/terragrunt.hcl")),
            format!("{text}{needs}"),
        );
    }
    let found = world.found();
    assert_eq!(found.unresolved, []);
    assert_eq!(found.units.len(), 1_000);
    assert_eq!(found.unit(&path("live/9/999")).unwrap().order, 999);
    let told = |changed: &str| concerned(&found, &world.tree(), &[&path(changed)], &counts).len();
    assert_eq!(told("root.hcl"), 1_000);
    assert_eq!(told("modules/x/main.tf"), 1_000);
    assert_eq!(told("live/9/env.hcl"), 100);
    assert_eq!(told("live/9/999/terragrunt.hcl"), 1);
}

/// Generates a piece of a configuration, which may be valid or invalid.
fn piece() -> impl Strategy<Value = String> {
    let expression = one_of(vec![
        "find_in_parent_folders()",
        "find_in_parent_folders(\"root.hcl\")",
        "get_terragrunt_dir()",
        "get_repo_root()",
        "\"../b\"",
        "\"../../../..\"",
        "\"/\"",
        "\"${get_repo_root()}/a\"",
        "local.x",
        "local.y",
        "include.r.locals.x",
        "read_terragrunt_config(\"../a/terragrunt.hcl\")",
        "read_terragrunt_config(local.x).locals.y",
        "file(\"../x.yaml\")",
        "run_cmd(\"x\")",
        "[local.x, local.y]",
        "{ a = local.x }",
        "try(local.y, include.r)",
        "[for x in local.y : x]",
        "(",
    ]);
    let template = one_of(vec![
        "include \"r\" {\n  path = E\n}",
        "include {\n  path = E\n}",
        "terraform {\n  source = E\n}",
        "locals {\n  x = E\n}",
        "locals {\n  y = E\n}",
        "dependency \"d\" {\n  config_path = E\n}",
        "dependencies {\n  paths = [E]\n}",
        "inputs = E",
        "skip = E",
        "unit \"u\" {\n  source = E\n  path = \"u\"\n}",
        "stack \"s\" {\n  source = E\n  path = \"s\"\n  values = { a = E }\n}",
    ]);
    (template, expression)
        .prop_map(|(template, expression)| format!("{}\n", template.replace('E', expression)))
}

fn world() -> impl Strategy<Value = World> {
    let name = one_of(vec![
        "terragrunt.hcl",
        "a/terragrunt.hcl",
        "a/b/terragrunt.hcl",
        "b/terragrunt.hcl",
        "root.hcl",
        "b/terragrunt.stack.hcl",
        "a/c/terragrunt.stack.hcl",
        "a/terragrunt.values.hcl",
        "a/main.tf",
        "x.yaml",
    ]);
    let text = proptest::collection::vec(piece(), 0..5).prop_map(|pieces| pieces.concat());
    proptest::collection::btree_map(name.prop_map(path), text, 0..8).prop_map(World)
}

proptest! {
    #[test]
    fn every_tree_comes_to_an_end_and_the_same_one(world in world()) {
        let found = world.found();
        let reversed = FileTree::new(world.0.keys().rev().cloned());
        prop_assert_eq!(&units(&reversed, &|file| world.0.get(file).cloned()), &found);
        prop_assert!(found.units.windows(2).all(|pair| pair[0].dir < pair[1].dir));
        for unit in &found.units {
            prop_assert!(world.tree().dir_exists(&unit.dir));
            prop_assert!(unit.depends_on.iter().all(|dir| found.unit(dir).is_some()));
        }
    }

    #[test]
    fn nothing_is_read_that_is_not_listed(world in world()) {
        let tree = world.tree();
        let read = |file: &RepoPath| {
            assert!(tree.has_file(file), "{file} was read");
            world.0.get(file).cloned()
        };
        let found = units(&tree, &read);
        for unit in &found.units {
            let mut paths = unit.reads.keys().chain(unit.watches.keys());
            prop_assert!(paths.all(|path| !path.as_str().starts_with('/') && !path.as_str().contains("..")));
        }
    }

    #[test]
    fn a_unit_is_concerned_by_what_it_reads_and_runs(world in world()) {
        let (found, tree) = (world.found(), world.tree());
        for unit in &found.units {
            for file in unit.reads.keys() {
                let told = concerned(&found, &tree, &[file], &counts);
                prop_assert!(told.iter().any(|(dir, chain)| *dir == unit.dir && chain.through.is_empty()));
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in r"(?s).{0,60}", signs in r#"[a-c{}=\[\]"$%()<\n !?:+#/*.,~-]{0,60}"#) {
        for text in [text, signs] {
            let _found = World::of(&[("a/terragrunt.hcl", &text), ("b/terragrunt.stack.hcl", &text)]).found();
        }
    }
}
