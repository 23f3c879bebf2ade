//! The workspace that a directory names itself, in `terraform { cloud { workspaces { name = "x" } } }` (reference 3.4,
//! step 6).

use hcl_edit::structure::{Block, Body};

use super::Input;
use crate::model::{Distribution, RepoPath, WorkspaceName};

/// Bytes of one file that are parsed; code of this size is not written by hand.
const MAX_FILE_BYTES: usize = 512 << 10;

/// Bytes of one directory that are parsed.
const MAX_DIR_BYTES: usize = 4 << 20;

/// The workspace named in the code of a directory, else `default`. Files that cannot be read, are too large or no HCL
/// are passed over: Terraform itself will say what is wrong with them.
pub(super) fn workspace(input: &Input<'_>, dir: &RepoPath) -> WorkspaceName {
    let mut budget = MAX_DIR_BYTES;
    for file in code_files(input, dir) {
        let Some(text) = (input.read)(file) else { continue };
        // Most files have no such block, and parsing is the slow part.
        if text.len() > MAX_FILE_BYTES.min(budget) || !text.contains("cloud") {
            continue;
        }
        budget -= text.len();
        if let Some(workspace) = named_in(&text) {
            return workspace;
        }
    }
    WorkspaceName::default()
}

/// The files a tool reads: Terraform `*.tf`; OpenTofu also `*.tofu`, and there `x.tofu` hides `x.tf`.
fn code_files<'a>(input: &'a Input<'_>, dir: &RepoPath) -> impl Iterator<Item = &'a RepoPath> {
    let files = input.tree.files_in(dir);
    let tofu = input.settings.distribution == Distribution::OpenTofu;
    let exists = move |path: &str| files.binary_search_by(|file| file.as_str().cmp(path)).is_ok();
    files.iter().filter(move |file| match file.as_str().rsplit_once('.') {
        _ if is_editor_file(file.file_name()) => false,
        Some((stem, "tf")) => !(tofu && exists(&format!("{stem}.tofu"))),
        Some((_, "tofu")) => tofu,
        _ => false,
    })
}

/// Files that the tools pass over: hidden ones and what editors leave behind.
pub(super) fn is_editor_file(name: &str) -> bool {
    name.starts_with('.') || name.ends_with('~') || name.starts_with('#') && name.ends_with('#')
}

fn named_in(text: &str) -> Option<WorkspaceName> {
    let body: Body = text.parse().ok()?;
    let cloud = |terraform: &Block| unlabelled(&terraform.body, "cloud").find_map(name_of);
    unlabelled(&body, "terraform").find_map(cloud)
}

fn name_of(cloud: &Block) -> Option<WorkspaceName> {
    unlabelled(&cloud.body, "workspaces").find_map(|workspaces| {
        let name = workspaces.body.get_attribute("name")?.value.as_str()?;
        WorkspaceName::new(name).ok().filter(|_| !name.is_empty())
    })
}

fn unlabelled<'a>(body: &'a Body, name: &'a str) -> impl Iterator<Item = &'a Block> {
    body.get_blocks(name).filter(|block| !block.is_labeled())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Autodiscover, Settings, Tree};
    use super::*;

    /// The workspace of a root directory with these files.
    fn found(distribution: Distribution, files: &[(&str, &str)]) -> String {
        let tree = Tree::new(files.iter().map(|(name, _)| name.parse().unwrap()));
        let settings = Settings { distribution, ..Settings::default() };
        let read = |file: &RepoPath| {
            let text = files.iter().find(|(name, _)| *name == file.as_str());
            text.map(|(_, text)| (*text).to_owned())
        };
        let (base, autodiscover) = ("main".parse().unwrap(), Autodiscover::default());
        let input = Input {
            tree: &tree,
            changed: &[],
            config: None,
            base: &base,
            autodiscover: &autodiscover,
            modules: None,
            settings: &settings,
            read: &read,
        };
        workspace(&input, &RepoPath::root()).to_string()
    }

    fn cloud(name: &str) -> String {
        format!("terraform {{\n  cloud {{\n    workspaces {{\n      name = {name}\n    }}\n  }}\n}}\n")
    }

    #[test]
    fn only_a_literal_name_in_the_right_block_counts() {
        let cases = [
            (cloud("\"prod\""), "prod"),
            (format!("terraform {{\n  required_version = \"1\"\n}}\n{}", cloud("\"prod\"")), "prod"),
            (cloud("\"${var.x}\""), "default"),
            (cloud("\"a-${var.x}\""), "default"),
            (cloud("local.name"), "default"),
            (cloud("\"\""), "default"),
            (cloud("\"a/b\""), "default"),
            (cloud("3"), "default"),
            (cloud("\"prod\"").replace("cloud {", "cloud \"x\" {"), "default"),
            (cloud("\"prod\"").replace("cloud {", "backend \"remote\" {"), "default"),
            (cloud("\"prod\"").replace("terraform {", "resource \"a\" \"b\" {"), "default"),
            (cloud("\"prod\"").replace("name =", "tags ="), "default"),
            (format!("{}}}", cloud("\"prod\"")), "default"),
            ("# cloud".to_owned(), "default"),
        ];
        for (text, expected) in cases {
            assert_eq!(found(Distribution::Terraform, &[("main.tf", &text)]), expected, "{text}");
        }
    }

    #[test]
    fn each_tool_reads_its_own_files() {
        let (tf, tofu) = (cloud("\"tf\""), cloud("\"tofu\""));
        let both = [("main.tf", tf.as_str()), ("main.tofu", tofu.as_str())];
        assert_eq!(found(Distribution::Terraform, &both), "tf");
        assert_eq!(found(Distribution::OpenTofu, &both), "tofu");
        assert_eq!(found(Distribution::OpenTofu, &[("a.tf", &tf), ("main.tofu", &tofu)]), "tf");
        assert_eq!(found(Distribution::Terraform, &[("main.tofu", &tofu)]), "default");
        for name in [".hidden.tf", "main.tf~", "#main.tf#", "main.tfvars"] {
            assert_eq!(found(Distribution::Terraform, &[(name, &tf)]), "default", "{name}");
        }
    }

    #[test]
    fn hostile_code_costs_neither_stack_nor_time() {
        for piece in
            ["a {\n", "x = [", "x = (", "x = {a = ", "\"${", "x = !", "x = f(", "x = 1 ? ", "x = 1 + ", "%{if a}"]
        {
            for prefix in ["", "x = \"", "x = <<A\n"] {
                let text = format!("# cloud\n{prefix}{}", piece.repeat(5_000));
                assert_eq!(found(Distribution::Terraform, &[("main.tf", &text)]), "default", "{piece}");
            }
        }
        let large = format!("{}{}", cloud("\"prod\""), "# filler\n".repeat(MAX_FILE_BYTES / 8));
        assert_eq!(found(Distribution::Terraform, &[("main.tf", &large)]), "default");
    }

    proptest! {
        #[test]
        fn no_code_makes_it_panic(text in r"(?s).{0,60}", signs in r#"[a{}=\[\]"$%()<\n !?:+#/*.,~-]{0,60}"#) {
            for text in [text, signs] {
                let _workspace = found(Distribution::OpenTofu, &[("main.tf", &format!("{text}\n# cloud"))]);
            }
        }
    }
}
