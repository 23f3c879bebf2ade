//! Checks that imports between modules only go down (`docs/architecture.md`), that no test file is forgotten, and that
//! the image is built from all files that the build reads.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules by level, the lowest first. A module may use any module of a lower level.
const LEVELS: &[&[&str]] = &[
    &["model", "boxed", "clock", "ids", "errors", "secret"],
    &[
        "command",
        "config",
        "discovery",
        "render",
        "credential",
        "seal",
    ],
    &[
        "telemetry",
        "store",
        "forges",
        "git",
        "process",
        "atlantis",
        "objects",
    ],
    &["claims", "leases", "locks", "queue", "sync", "workflow"],
    &["authz", "context"],
    &["kit"],
    &["features"],
    &["http", "cli", "emulator"],
    &["app"],
];

/// Modules of one level that may use each other: user, used, reason.
const NEIGHBOURS: &[(&str, &str, &str)] = &[
    ("model", "ids", "identifiers come from `Ids`"),
    (
        "clock",
        "ids",
        "a clock and a source of identifiers go together",
    ),
    ("forges", "telemetry", "requests to the forge are counted"),
    ("git", "process", "git is a program"),
    (
        "git",
        "forges",
        "credentials of a forge are what git presents",
    ),
    (
        "discovery",
        "config",
        "projects are found by the configuration of the repository",
    ),
    (
        "config",
        "command",
        "what no comment may hand to Terraform, no flag of the server can allow",
    ),
    (
        "render",
        "discovery",
        "an explanation is shown as it was made",
    ),
    (
        "render",
        "config",
        "samples of explanations are made from files as people write them",
    ),
    ("workflow", "leases", "a mirror is changed under a lease"),
    (
        "workflow",
        "sync",
        "a command and the syncer wait for each other at one gate",
    ),
    ("sync", "leases", "a mirror is changed under a lease"),
    (
        "credential",
        "seal",
        "what a sealed credential belongs to is part of its seal",
    ),
    (
        "authz",
        "context",
        "permissions follow the settings in effect",
    ),
    ("cli", "emulator", "`demo` runs against the emulator"),
];

/// The only imports that go up.
const UPWARDS: &[(&str, &str, &str)] = &[(
    "cli",
    "app",
    "the command line is the entry point of the application: `server` builds and runs it",
)];

#[test]
fn imports_only_go_down() {
    let violations: Vec<String> = sources()
        .iter()
        .flat_map(|src| {
            rust_files(src)
                .into_iter()
                .filter_map(move |file| Some((room_of(file.strip_prefix(src).ok()?)?, file)))
        })
        .flat_map(|(room, file)| violations(&room, &shown(&file), &read(&file)))
        .collect();
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn every_room_has_a_level() {
    let rooms: BTreeSet<String> = sources()
        .iter()
        .flat_map(|src| modules(&read(&src.join("lib.rs"))))
        .chain(["emulator".to_owned()])
        .collect();
    let listed: BTreeSet<String> = LEVELS
        .iter()
        .copied()
        .flatten()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        rooms, listed,
        "the modules of every lib.rs left, the table of this test right"
    );
}

#[test]
fn a_wrong_import_is_found_with_its_file_line_and_rule() {
    let text = "//! crate::app is only mentioned\nuse crate::model::Lock;\nuse crate::{\n    model::{Lock, LockId},\n    \
                http::Api,\n};\nfn f() { crate::forges::x() } // crate::app\n#[cfg(test)]\nmod tests {\n    use crate::app;\n}\n";
    let found = violations("store", "src/store/x.rs", text);
    assert_eq!(
        found,
        [
            "src/store/x.rs:3: `store` (level 2) must not use `http` (level 7): imports only go down",
            "src/store/x.rs:7: `store` must not use `forges`: both are on level 2, and the table in tests/it/architecture.rs \
             does not let them",
        ]
    );
    assert_eq!(
        violations("cli", "x", "use crate::app::run;\nuse crate::emulator;\n"),
        Vec::<String>::new()
    );
    assert_eq!(
        violations("http", "x", "use crate::attic::run;\n"),
        ["x:1: `attic` is no room of src/lib.rs"]
    );
}

/// The compiler keeps other modules out of private ones, and lets nobody re-export them. So a feature whose modules are
/// private can only be used through its `mod.rs`, however an import is written.
#[test]
fn modules_of_a_feature_are_private() {
    let list = root().join("src/features/mod.rs");
    let features = modules(&read(&list));
    assert!(features.len() > 10, "{features:?}");
    for feature in &features {
        let file = module_file(&list, feature);
        let visible = visible_modules(&read(&file));
        assert!(
            visible.is_empty(),
            "{}: {visible:?} must be private, with `pub(crate) use` for what other features need",
            shown(&file)
        );
    }
}

#[test]
fn every_visible_module_is_found() {
    let lines = [
        "//! pub mod a;",
        "mod b;",
        "pub mod c;",
        "pub(crate) mod d;",
        "pub(super) mod e {",
        "    pub fn f() {}",
        "}",
        "pub(in crate::features) mod g;",
        "pub mod h; // with a reason",
        "#[cfg(test)] pub mod i;",
        "pub mod j { pub fn k() {} }",
        "pub(crate) use b::mod_l;",
        "pub use crate::mod_m;",
        "// a pub mod n;",
    ];
    let found = ["c", "d", "e", "g", "h", "i", "j"];
    assert_eq!(visible_modules(&lines.join("\n")), found);
}

#[test]
fn the_world_of_the_emulator_knows_no_wire() {
    let words = ["github::", "serde_json", "axum", "octocrab", "hooks::"];
    for half in ["world", "git"] {
        for file in rust_files(&root().join("crates/emulator/src").join(half)) {
            let text = read(&file);
            for word in words {
                let file = shown(&file);
                assert!(!text.contains(word), "{file} must not use `{word}`");
            }
        }
    }
}

/// A transaction that shares its commit may have seen what is not durable yet, so its function must not answer before
/// the transaction has ended (`src/store/shared_commit.rs`).
#[test]
fn shared_transactions_are_ended_before_an_answer() {
    let mut found = 0;
    for file in rust_files(&root().join("src")) {
        let text = read(&file);
        for (at, _) in text.match_indices("begin_shared(") {
            // Up to the end of the method, which is indented by four spaces.
            let body = text[at..].split("\n    }\n").next().unwrap_or_default();
            let returns = body.match_indices("return ").map(|(at, _)| &body[at..]);
            for answer in returns {
                let is_ended =
                    answer.starts_with("return tx.") || answer.starts_with("return Err(");
                assert!(
                    is_ended,
                    "{}: {}",
                    shown(&file),
                    answer.lines().next().unwrap()
                );
            }
            found += 1;
        }
    }
    assert!(found > 20, "only {found} shared transactions were found");
}

#[test]
fn every_test_file_is_reachable_by_a_mod_line() {
    let tests = root().join("tests/it");
    let mut reachable = BTreeSet::new();
    let mut open = vec![tests.join("main.rs")];
    while let Some(file) = open.pop() {
        open.extend(
            modules(&read(&file))
                .iter()
                .map(|module| module_file(&file, module)),
        );
        reachable.insert(file);
    }
    let forgotten: Vec<_> = rust_files(&tests)
        .into_iter()
        .filter(|file| !reachable.contains(file))
        .collect();
    assert!(
        forgotten.is_empty(),
        "no `mod` line leads to {forgotten:?}: its tests never run"
    );
}

/// `SECURITY.md` names the tests that exclude each class of advisories.
#[test]
fn tests_that_the_security_policy_names_are_there() {
    let policy = read(&root().join("SECURITY.md"));
    let (_, table) = policy
        .split_once("| Excluded by |")
        .expect("the table of advisories");
    let rows: Vec<&str> = table
        .lines()
        .filter(|row| row.starts_with("| ") && row.matches('|').count() == 4)
        .collect();
    assert!(rows.len() >= 5, "{rows:?}");
    let files: String = sources()
        .iter()
        .chain([&root().join("tests/it")])
        .flat_map(|dir| rust_files(dir))
        .map(|file| read(&file))
        .collect();
    for row in rows {
        let proof = row.split('|').nth(3).unwrap_or_default();
        let names: Vec<&str> = proof
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.matches('_').count() > 2)
            .collect();
        assert!(!names.is_empty(), "no test is named in: {row}");
        for name in names {
            assert!(
                files.contains(&format!("fn {name}(")),
                "there is no test `{name}`, which SECURITY.md names"
            );
        }
    }
}

/// The page names the invariants of the registry, with the code that keeps each and the tests that show it. All of these files
/// cite the number.
#[test]
fn invariants_of_the_registry_are_kept_and_shown_where_the_page_says() {
    let invariants = read(&root().join("crates/registry/src/lib.rs"));
    let invariants = invariants.lines().filter_map(|line| {
        let (number, _) = line.strip_prefix("//! - **R")?.split_once("**")?;
        Some(format!("R{number}"))
    });
    let page = read(&root().join("docs/design/registry.md"));
    let (_, table) = page
        .split_once("## Invariants")
        .expect("the table of invariants");
    let rows: Vec<&str> = table
        .lines()
        .skip_while(|line| !line.starts_with("| R"))
        .take_while(|line| line.starts_with("| R"))
        .collect();
    let numbers: Vec<&str> = rows
        .iter()
        .filter_map(|row| row.split([' ', '|']).find(|word| word.starts_with('R')))
        .collect();
    assert_eq!(numbers, invariants.collect::<Vec<_>>());
    for (number, row) in numbers.iter().zip(rows) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [_, _, kept, shown] = cells[..] else {
            panic!("the row has four cells: {row}");
        };
        for (cell, below) in [(kept, "src/features/registry"), (shown, "tests/it")] {
            let files: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            assert!(!files.is_empty(), "no file is named in: {cell}");
            for file in files {
                let below = if file.starts_with("crates/") {
                    ""
                } else {
                    below
                };
                let text = read(&root().join(below).join(file));
                assert!(text.contains(number), "{file} does not cite {number}");
            }
        }
    }
}

/// The first layer of the image is built from manifests and empty files, the rest from what `.dockerignore` lets in.
#[test]
fn the_image_is_built_from_all_files_that_the_build_reads() {
    let dockerfile = read(&root().join("Dockerfile"));
    let (first_layer, _) = dockerfile
        .split_once("\nCOPY . .\n")
        .expect("a line that copies all sources");
    let first_layer: BTreeSet<&str> = first_layer.split_whitespace().collect();
    let copied = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter(|operands| !operands.starts_with("--from=") && *operands != ". .")
        .filter_map(|operands| Some(operands.rsplit_once(' ')?.0))
        .flat_map(str::split_whitespace);
    let mut used: Vec<PathBuf> = copied.map(|file| root().join(file)).collect();
    for package in packages() {
        let manifest = package.join("Cargo.toml");
        let text = read(&manifest);
        let targets = text
            .lines()
            .filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
        for needed in targets.map(|file| package.join(file)).chain([manifest]) {
            let needed = shown(&needed);
            assert!(
                first_layer.contains(needed.as_str()),
                "the first layer of the Dockerfile does not have {needed}"
            );
        }
        for file in rust_files(&package.join("src")) {
            used.extend(compiled_in(&package, &file));
            used.push(file);
        }
    }
    let dockerignore = read(&root().join(".dockerignore"));
    let let_in: Vec<&str> = dockerignore
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .collect();
    let top = canonical(root());
    let used: Vec<PathBuf> = used.iter().map(|file| canonical(file)).collect();
    let used: Vec<&Path> = used
        .iter()
        .map(|file| file.strip_prefix(&top).expect("a path of this repository"))
        .collect();
    for file in &used {
        assert!(
            let_in.iter().any(|tree| file.starts_with(tree)),
            "the build reads {}, which .dockerignore keeps out",
            file.display()
        );
    }
    for tree in ["migrations", "templates/comments", "templates/web"] {
        assert!(
            used.iter().any(|file| file.starts_with(tree)),
            "{tree} was not found in the sources"
        );
    }
}

/// Returns everything in `text` that the table forbids to `room`.
fn violations(room: &str, file: &str, text: &str) -> Vec<String> {
    imports(text)
        .into_iter()
        .filter_map(|(line, used)| Some(format!("{file}:{line}: {}", broken_rule(room, &used)?)))
        .collect()
}

fn broken_rule(room: &str, used: &str) -> Option<String> {
    let listed = |table: &[(&str, &str, &str)]| {
        table
            .iter()
            .any(|(who, whom, _)| *who == room && *whom == used)
    };
    let (Some(from), Some(to)) = (level(room), level(used)) else {
        return Some(format!(
            "`{}` is no room of src/lib.rs",
            if level(used).is_none() { used } else { room }
        ));
    };
    if room == used || to < from || listed(NEIGHBOURS) || listed(UPWARDS) {
        return None;
    }
    Some(if to > from {
        format!("`{room}` (level {from}) must not use `{used}` (level {to}): imports only go down")
    } else {
        let law = "and the table in tests/it/architecture.rs does not let them";
        format!("`{room}` must not use `{used}`: both are on level {from}, {law}")
    })
}

fn level(room: &str) -> Option<usize> {
    LEVELS.iter().position(|rooms| rooms.contains(&room))
}

/// Returns line and module of every path that starts with `crate::`, except in comments and in the tests at the end
/// of a file. A fragment of a macro is not a module: it is checked where the macro is used.
fn imports(text: &str) -> Vec<(usize, String)> {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: Vec<&str> = product
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$')) {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        found.extend(
            first_segments(&code[at + "crate::".len()..])
                .into_iter()
                .map(|room| (line, room)),
        );
    }
    found.retain(|(_, room)| !matches!(room.as_str(), "" | "self") && !is_macro(room, &code));
    found
}

/// Returns true for a `macro_rules!` of the crate root, which is not a module.
fn is_macro(name: &str, code: &str) -> bool {
    code.contains(&format!("crate::{name}!"))
}

/// Returns `model` of `model::Lock`; `model` and `store` of `{model::{Lock, LockId}, store}`.
fn first_segments(path: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let Some(group) = path.strip_prefix('{') else {
        return vec![word(path)];
    };
    let (mut depth, mut start, mut words) = (1, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            words.push(word(&group[start..at]));
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    words
}

/// Returns the source folders whose modules are modules of the library. The compiler keeps the crates apart, and this
/// file the modules in each. The emulator is one module to the library.
fn sources() -> Vec<PathBuf> {
    ["crates/model", "crates/rules", "."]
        .map(|package| root().join(package).join("src"))
        .to_vec()
}

/// Returns the folders of all packages that the program consists of.
fn packages() -> Vec<PathBuf> {
    let crates = root().join("crates");
    let crates = fs::read_dir(&crates).unwrap_or_else(|e| panic!("{}: {e}", crates.display()));
    crates
        .map(|entry| entry.expect("the directory stays while it is read").path())
        .chain([root().to_owned()])
        .collect()
}

/// Returns the files and folders that a source file compiles into the program. Those of its tests are not among them.
fn compiled_in(package: &Path, file: &Path) -> Vec<PathBuf> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    if stem.ends_with("tests") {
        return Vec::new();
    }
    let text = read(file);
    let tests = text.match_indices("#[cfg(test)]\n").find(|(at, line)| {
        let next = text[at + line.len()..].lines().next().unwrap_or_default();
        next.contains("mod ") && next.ends_with('{')
    });
    let product = &text[..tests.map_or(text.len(), |(at, _)| at)];
    let beside = file.parent().expect("a file is in a directory");
    let openings = [
        ("include_bytes!(\"", beside),
        ("include_str!(\"", beside),
        ("migrate!(\"", package),
        ("#[folder = \"", package),
    ];
    let mut found = Vec::new();
    for (opening, base) in openings {
        for (at, _) in product.match_indices(opening) {
            let path = product[at + opening.len()..].split('"').next();
            found.extend(path.map(|path| base.join(path)));
        }
    }
    found
}

/// Returns the top-level module of a file of `src`. `lib.rs` and `main.rs` have none and may use everything.
fn room_of(file: &Path) -> Option<String> {
    let first = file.components().next()?.as_os_str().to_str()?;
    let room = first.strip_suffix(".rs").unwrap_or(first);
    let is_tests = file.file_stem().is_some_and(|stem| stem == "tests");
    (!matches!(room, "lib" | "main") && !is_tests).then(|| room.to_owned())
}

/// Returns the names in lines like `mod x;` and `pub mod x;`.
fn modules(text: &str) -> Vec<String> {
    let name = |line: &str| {
        Some(line.trim().strip_suffix(';')?.rsplit_once("mod ")?)
            .map(|(before, name)| (before.to_owned(), name.to_owned()))
    };
    text.lines()
        .filter_map(name)
        .filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
        .map(|(_, name)| name)
        .collect()
}

/// Returns the names in lines like `pub mod x;` and `pub(crate) mod x {`.
fn visible_modules(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let (code, _) = line.split_once("//").unwrap_or((line, ""));
        let (before, rest) = code.split_once(" mod ")?;
        let is_visible = before
            .rsplit(']')
            .next()
            .is_some_and(|words| words.trim().starts_with("pub"));
        let name = rest.split([';', '{']).next()?.trim();
        is_visible.then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// Returns the file of the module `name` of `parent`.
fn module_file(parent: &Path, name: &str) -> PathBuf {
    let dir = parent.parent().expect("a file is in a directory");
    let stem = parent.file_stem().expect("a file has a name");
    let dir = if stem == "main" || stem == "mod" {
        dir.to_owned()
    } else {
        dir.join(stem)
    };
    let flat = dir.join(format!("{name}.rs"));
    if flat.exists() {
        flat
    } else {
        dir.join(name).join("mod.rs")
    }
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.expect("the directory stays while it is read").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// Returns a path without `..` and symbolic links.
fn canonical(file: &Path) -> PathBuf {
    fs::canonicalize(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root())
        .unwrap_or(file)
        .display()
        .to_string()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
