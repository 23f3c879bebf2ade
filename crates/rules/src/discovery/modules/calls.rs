//! Reads the module calls of one directory: `module "x" { source = "./…" }` in each of the four kinds of code files.
//!
//! Only a literal source that begins with `./` or `../` is a directory of the repository. A source with `${…}` is
//! unknown before it is evaluated. Files that do not parse are kept separately, because Terraform reports their
//! errors.

use hcl_edit::structure::Body;
use serde_json::Value;

use super::super::code::{self, UnreadFile, is_editor_file};
use super::{FileTree, links};
use crate::model::RepoPath;

/// Maximum size of one parsed file in bytes; nobody writes larger code by hand.
pub(super) const MAX_FILE_BYTES: usize = 512 << 10;

/// Maximum number of sources of one directory; nobody writes more by hand.
pub(super) const MAX_SOURCES: usize = 5_000;

/// Module sources and state settings in the code of a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// Sources of modules, as written.
    pub sources: Vec<String>,
    /// True if the code says where its state is: `terraform { backend … }` or `terraform { cloud … }`.
    pub has_state: bool,
    /// Files that may use modules, but cannot be read.
    pub unread: Vec<UnreadFile>,
    /// Files that may say where the state is, but cannot be read.
    pub unread_states: Vec<UnreadFile>,
}

impl Calls {
    /// Reads all code files of a directory, including links to code; `None` if the budget of bytes is used up.
    pub fn of_dir(
        tree: &FileTree,
        dir: &RepoPath,
        read: &dyn Fn(&RepoPath) -> Option<String>,
        budget: &mut usize,
    ) -> Option<Self> {
        let mut calls = Self::default();
        for file in tree.files_in(dir) {
            let Some(kind) = CodeFormat::of(file.file_name()) else {
                continue;
            };
            let Some(text) = links::read_code(tree, file, read) else {
                continue;
            };
            *budget = budget.checked_sub(text.len())?;
            if text.len() <= MAX_FILE_BYTES && calls.sources.len() < MAX_SOURCES {
                calls.add(file, kind, code::unmarked(&text));
            }
        }
        Some(calls)
    }

    fn add(&mut self, file: &RepoPath, kind: CodeFormat, text: &str) {
        // Most files have neither word, and parsing is the slow part.
        let has_word = |word: &str| code::has_word(text, word);
        let (may_call, may_have_state) =
            (has_word("module"), has_word("backend") || has_word("cloud"));
        if !may_call && !may_have_state {
            return;
        }
        let added = match kind {
            CodeFormat::Hcl => code::parse(file, text).map(|body| self.add_hcl(&body)),
            CodeFormat::Json => code::parse_json(file, text).map(|value| self.add_json(&value)),
        };
        if let Err(unread) = added {
            self.unread_states
                .extend(may_have_state.then(|| unread.clone()));
            self.unread.extend(may_call.then_some(unread));
        }
    }

    fn add_hcl(&mut self, body: &Body) {
        for module in body.get_blocks("module") {
            let source = module
                .body
                .get_attribute("source")
                .and_then(|source| source.value.as_str());
            self.sources
                .extend(source.filter(|source| is_local(source)).map(str::to_owned));
        }
        let says = |name: &str| {
            body.get_blocks("terraform")
                .any(|block| block.body.has_blocks(name))
        };
        self.has_state |= says("backend") || says("cloud");
    }

    /// Adds the calls of a JSON file, where every block may also be a list of blocks.
    fn add_json(&mut self, top: &Value) {
        for top in blocks(top) {
            for module in top
                .get("module")
                .into_iter()
                .flat_map(blocks)
                .filter_map(Value::as_object)
            {
                let bodies = module.values().flat_map(blocks);
                let sources = bodies.filter_map(|body| body.get("source")?.as_str());
                self.sources
                    .extend(sources.filter(|source| is_local(source)).map(str::to_owned));
            }
            let mut terraform = top.get("terraform").into_iter().flat_map(blocks);
            self.has_state |= terraform.any(|block| {
                block
                    .get("backend")
                    .or_else(|| block.get("cloud"))
                    .is_some()
            });
        }
    }
}

pub(super) fn blocks(value: &Value) -> &[Value] {
    value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice)
}

pub(super) fn is_local(source: &str) -> bool {
    (source.starts_with("./") || source.starts_with("../") || matches!(source, "." | ".."))
        && !source.contains("${")
}

/// Format of a code file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeFormat {
    Hcl,
    Json,
}

impl CodeFormat {
    /// Returns the format by the name of the file; `None`: no code, or a file that the tools skip.
    pub fn of(name: &str) -> Option<Self> {
        if is_editor_file(name) {
            return None;
        }
        let ends = |ending: &str| name.ends_with(ending);
        if ends(".tf") || ends(".tofu") {
            Some(Self::Hcl)
        } else {
            (ends(".tf.json") || ends(".tofu.json")).then_some(Self::Json)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(files: &[(&str, &str)], budget: &mut usize) -> Option<Calls> {
        let tree = FileTree::new(files.iter().map(|(name, _)| name.parse().unwrap()));
        let text = |file: &RepoPath| {
            files
                .iter()
                .find(|(name, _)| *name == file.as_str())
                .map(|(_, text)| (*text).to_owned())
        };
        Calls::of_dir(&tree, &RepoPath::root(), &text, budget)
    }

    fn sources(name: &str, text: &str) -> String {
        read(&[(name, text)], &mut 10_000_000)
            .unwrap()
            .sources
            .join(" ")
    }

    #[test]
    fn all_four_kinds_of_files_are_read() {
        let hcl = "module \"a\" {\n  source = \"./a\"\n}\nmodule \"b\" {\n  source = \"../b\"\n  x = 1\n}\n";
        for name in ["main.tf", "main.tofu"] {
            assert_eq!(sources(name, hcl), "./a ../b", "{name}");
            assert_eq!(
                sources(name, &format!("\u{feff}{hcl}")),
                "./a ../b",
                "{name} with a byte order mark"
            );
        }
        for name in ["main.tf.json", "main.tofu.json"] {
            for json in [
                r#"{"module": {"a": {"source": "./a"}, "b": {"source": "../b"}}}"#,
                r#"{"module": [{"a": {"source": "./a"}}, {"b": [{"source": "../b"}]}]}"#,
                r#"[{"module": {"a": {"source": "./a"}}}, {"module": {"b": {"source": "../b"}}}]"#,
            ] {
                assert_eq!(sources(name, json), "./a ../b", "{name} {json}");
                assert_eq!(
                    sources(name, &format!("\u{feff}{json}")),
                    "./a ../b",
                    "{name} {json}"
                );
            }
        }
        for name in [".main.tf", "main.tf~", "#main.tf#", "main.hcl", "main.json"] {
            assert_eq!(sources(name, hcl), "", "{name}");
        }
    }

    #[test]
    fn only_literal_sources_in_the_repository_count() {
        for (source, counts) in [
            ("\"./a\"", true),
            ("\"..\"", true),
            ("\".\"", true),
            ("\"a\"", false),
            ("\"/a\"", false),
            ("\"hashicorp/consul/aws\"", false),
            ("\"git::https://example.com/x.git//a\"", false),
            ("\"./${var.x}\"", false),
            ("var.x", false),
            ("3", false),
        ] {
            let text = format!("module \"a\" {{\n  source = {source}\n}}\n");
            assert_eq!(!sources("main.tf", &text).is_empty(), counts, "{source}");
        }
        assert_eq!(
            sources(
                "main.tf.json",
                r#"{"module": {"a": {"source": "./${var.x}"}}}"#
            ),
            ""
        );
    }

    #[test]
    fn whoever_says_where_the_state_is_has_one() {
        for (name, text, expected) in [
            ("main.tf", "terraform {\n  backend \"s3\" {}\n}\n", true),
            ("main.tf", "terraform {\n  cloud {}\n}\n", true),
            (
                "main.tf",
                "terraform {\n  required_version = \"1\" # cloud\n}\n",
                false,
            ),
            (
                "main.tf",
                "resource \"a\" \"backend\" {\n  backend {}\n}\n",
                false,
            ),
            (
                "main.tf.json",
                r#"{"terraform": {"backend": {"s3": {}}}}"#,
                true,
            ),
            ("main.tf.json", r#"{"terraform": [{"cloud": {}}]}"#, true),
            ("main.tf.json", r#"{"x": {"cloud": {}}}"#, false),
        ] {
            assert_eq!(
                read(&[(name, text)], &mut 10_000).unwrap().has_state,
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn files_that_are_no_code_are_known_if_they_may_say_something() {
        let files = [
            ("a.tf", "module \"a\" {\n  source = \"./a\"\n}\n"),
            ("b.tf", "module \"b\" {\n"),
            ("c.tf", "}\n"),
            ("d.tf.json", "{\"module\": }"),
            ("e.md", "module {"),
            ("f.tf", "x = submodule\n}\n"),
            ("g.tf", "x = \"cloud\"\n}\n"),
            ("h.tf", "module {}\nterraform { backend\n"),
            ("i.tf", "resource \"google_cloud_run_service\" {\n"),
        ];
        let calls = read(&files, &mut 10_000).unwrap();
        assert_eq!(calls.sources, ["./a"]);
        let names = |unread: &[UnreadFile]| {
            unread
                .iter()
                .map(|one| one.file.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(names(&calls.unread), "b.tf d.tf.json h.tf");
        assert_eq!(names(&calls.unread_states), "g.tf h.tf");
    }

    #[test]
    fn bytes_are_counted() {
        let text = "# filler\n".repeat(10);
        assert!(read(&[("a.tf", &text), ("b.tf", &text)], &mut 180).is_some());
        assert!(read(&[("a.tf", &text), ("b.tf", &text)], &mut 179).is_none());
    }

    #[test]
    fn hostile_code_costs_neither_stack_nor_time() {
        for piece in [
            "module \"a\" {\n",
            "{\"module\":",
            "[",
            "x = [",
            "\"${",
            "x = !",
            "%{if a}",
        ] {
            let text = format!("# module\n{}", piece.repeat(5_000));
            assert_eq!(sources("main.tf", &text), "", "{piece}");
            assert_eq!(
                sources(
                    "main.tf.json",
                    &format!("{{\"module\":{}", piece.repeat(5_000))
                ),
                "",
                "{piece}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_code_makes_it_panic(text in r"(?s).{0,60}", signs in r#"[a{}=\[\]"$%()<\n !?:+#/*.,~-]{0,60}"#) {
            for text in [text, signs] {
                for name in ["main.tf", "main.tf.json"] {
                    let _sources = sources(name, &format!("{text}\n# module"));
                }
            }
        }
    }
}
