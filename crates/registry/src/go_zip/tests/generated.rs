//! Many small trees that follow from their numbers alone, and the packages that Go makes of them.
//!
//! `vectors/zip/generated.go` makes the same trees: a change here is one there as well.

use super::{check, expected_of, lines_of, package};
use crate::go_zip::select_go_files;
use crate::tree::{TreeFile, TreeMode};

/// Number of each tree, with the checksum of its package or its faults.
const VECTORS: &str = include_str!("../../../vectors/generated.txt");

const DIRECTORIES: &[&str] = &["", "", "", "", "sub", "a/b", "vendor/x"];
const USUAL_FOLDERS: &[&str] = &["a", "b", "sub", "pkg", "vendor", "internal", "x", "v2"];
const ODD_FOLDERS: &[&str] = &["A", "Vendor", "größe", ".d", "go.mod", "con", "e.", "日本"];
const USUAL_NAMES: &[&str] = &[
    "a.go",
    "b.go",
    "x_test.go",
    "README.md",
    "modules.txt",
    "LICENSE",
    "go.mod",
    "run.sh",
    ".gitignore",
    "vendor",
];
const ODD_NAMES: &[&str] = &[
    "A.go",
    "readme.md",
    "GO.MOD",
    "größe.go",
    "a b.txt",
    "a~1",
    "aux.go",
    "c;d",
    ".hg_archival.txt",
    "☃",
    "x.",
];
const GO_LINES: &[&str] = &[
    "",
    "go 1.21\n",
    "go 1.23\n",
    "go 1.24\n",
    "go 1.25\n",
    "go 1.24\nrequire (\n",
];

/// Generator that makes the same numbers in every language.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: usize) -> usize {
        let state = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = state.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }

    fn pick(&mut self, list: &[&'static str]) -> &'static str {
        list[self.below(list.len())]
    }

    /// Picks from another list, once in so many times.
    fn rarely(
        &mut self,
        times: usize,
        odd: &[&'static str],
        usual: &[&'static str],
    ) -> &'static str {
        if self.below(times) == 0 {
            self.pick(odd)
        } else {
            self.pick(usual)
        }
    }

    fn go_mod(&mut self) -> String {
        format!("module example.com/m\n{}", self.pick(GO_LINES))
    }

    fn content(&mut self, mode: TreeMode, name: &str) -> String {
        match mode {
            TreeMode::Submodule => String::new(),
            TreeMode::Link => "a.go".to_owned(),
            TreeMode::File | TreeMode::Executable if name.eq_ignore_ascii_case("go.mod") => {
                self.go_mod()
            }
            TreeMode::File | TreeMode::Executable => {
                let mut size = self.below(30);
                if self.below(12) == 0 {
                    size = 3000;
                }
                let letters = (0..size).map(|_| u8::try_from(self.below(26)).unwrap() + b'a');
                letters.map(char::from).collect()
            }
        }
    }
}

struct GeneratedTree {
    directory: &'static str,
    entries: Vec<(TreeMode, String, String)>,
}

impl GeneratedTree {
    /// Adds an entry, unless git could not have it beside another one.
    fn add(&mut self, mode: TreeMode, path: String, content: String) {
        let below = format!("{path}/");
        let mut entries = self.entries.iter();
        let has_other = entries.any(|(_, other, _)| {
            *other == path || other.starts_with(&below) || path.starts_with(&format!("{other}/"))
        });
        if !has_other {
            self.entries.push((mode, path, content));
        }
    }

    fn new(number: u64) -> Self {
        let mut state = Lcg(number);
        let mut tree = Self {
            directory: state.pick(DIRECTORIES),
            entries: Vec::new(),
        };
        let top = match tree.directory {
            "" => String::new(),
            directory => format!("{directory}/"),
        };
        let file = TreeMode::File;
        tree.add(file, format!("{top}keep.go"), "package keep\n".to_owned());
        if state.below(4) > 0 {
            tree.add(file, format!("{top}go.mod"), state.go_mod());
        }
        if state.below(3) == 0 {
            tree.add(file, "LICENSE".to_owned(), "MIT\n".to_owned());
        }
        for _ in 0..2 + state.below(12) {
            let mut path = String::new();
            if state.below(4) > 0 {
                path.push_str(&top);
            }
            for _ in 0..state.below(4) {
                path.push_str(state.rarely(40, ODD_FOLDERS, USUAL_FOLDERS));
                path.push('/');
            }
            let name = state.rarely(30, ODD_NAMES, USUAL_NAMES);
            path.push_str(name);
            let mode = match state.below(16) {
                0 => TreeMode::Executable,
                1 => TreeMode::Link,
                2 => TreeMode::Submodule,
                _ => file,
            };
            let content = state.content(mode, name);
            tree.add(mode, path, content);
        }
        tree
    }

    fn files(&self) -> Vec<TreeFile<'_>> {
        let entries = self.entries.iter();
        let files = entries.map(|(mode, path, content)| TreeFile {
            path: path.as_bytes(),
            mode: *mode,
            content: content.as_bytes(),
        });
        files.collect()
    }
}

#[test]
fn packages_of_generated_repositories_are_those_of_go() {
    let (mut packages, mut others) = (0, 0);
    let lines = VECTORS.lines().filter(|line| !line.starts_with('#'));
    for (number, line) in (0..).zip(lines) {
        let tree = GeneratedTree::new(number);
        let result = select_go_files(&tree.files(), tree.directory).map(|module| {
            let (zip, hash) = package(&module);
            assert_eq!(check(&zip).unwrap().hash.to_string(), hash, "{number}");
            (Vec::new(), hash)
        });
        let found = format!("{number} {}", lines_of(&result).join(" "));
        assert_eq!(
            [found].as_slice(),
            expected_of(&[line]),
            "{:?}",
            tree.entries
        );
        if result.is_ok() {
            packages += 1;
        } else {
            others += 1;
        }
    }
    assert!(packages > 300 && others > 30, "{packages} and {others}");
}
