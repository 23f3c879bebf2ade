//! Reads the workspace that a directory names itself, in `terraform { cloud { workspaces { name = "x" } } }`
//! (reference 3.4, step 6).

use hcl_edit::structure::{Block, Body};

use super::code::{self, CodeBudget, UnreadFile, unlabelled};
use super::{Input, links};
use crate::model::{RepoPath, WorkspaceName};

/// Returns the workspace that the code of a directory names, else `default`. Files that cannot be read, are too large
/// or are not HCL are skipped, because Terraform itself reports their errors.
pub(super) fn workspace(input: &Input<'_>, dir: &RepoPath) -> WorkspaceName {
    bodies(input, dir)
        .filter_map(Result::ok)
        .find_map(|body| named_in(&body))
        .unwrap_or_default()
}

/// Returns the files that may name the workspace, but cannot be read.
pub(super) fn unread(input: &Input<'_>, dir: &RepoPath) -> Vec<UnreadFile> {
    bodies(input, dir).filter_map(Result::err).collect()
}

/// Parses the code of a directory that contains the word `cloud`. Most files have no such block, and parsing is the
/// slow part.
fn bodies(input: &Input<'_>, dir: &RepoPath) -> impl Iterator<Item = Result<Body, UnreadFile>> {
    let mut budget = CodeBudget::of_dir();
    let files = code::native(input.tree.files_in(dir), input.settings.distribution);
    files.filter_map(move |file| {
        let text = budget.text("cloud", || links::read_code(input.tree, file, input.read))?;
        Some(code::parse(file, code::unmarked(&text)))
    })
}

fn named_in(body: &Body) -> Option<WorkspaceName> {
    let cloud = |terraform: &Block| unlabelled(&terraform.body, "cloud").find_map(name_of);
    unlabelled(body, "terraform").find_map(cloud)
}

fn name_of(cloud: &Block) -> Option<WorkspaceName> {
    unlabelled(&cloud.body, "workspaces").find_map(|workspaces| {
        let name = workspaces.body.get_attribute("name")?.value.as_str()?;
        WorkspaceName::new(name).ok().filter(|_| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::code::MAX_FILE_BYTES;
    use super::super::{Autodiscover, FileTree, SearchSettings};
    use super::*;
    use crate::model::Distribution;

    /// Returns the workspace of a root directory with these files.
    fn found(distribution: Distribution, files: &[(&str, &str)]) -> String {
        let tree = FileTree::new(files.iter().map(|(name, _)| name.parse().unwrap()));
        let settings = SearchSettings {
            distribution,
            ..SearchSettings::default()
        };
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
        format!(
            "terraform {{\n  cloud {{\n    workspaces {{\n      name = {name}\n    }}\n  }}\n}}\n"
        )
    }

    #[test]
    fn only_a_literal_name_in_the_right_block_counts() {
        let cases = [
            (cloud("\"prod\""), "prod"),
            (
                format!(
                    "terraform {{\n  required_version = \"1\"\n}}\n{}",
                    cloud("\"prod\"")
                ),
                "prod",
            ),
            (format!("\u{feff}{}", cloud("\"prod\"")), "prod"),
            (cloud("\"${var.x}\""), "default"),
            (cloud("\"a-${var.x}\""), "default"),
            (cloud("local.name"), "default"),
            (cloud("\"\""), "default"),
            (cloud("\"a/b\""), "default"),
            (cloud("3"), "default"),
            (
                cloud("\"prod\"").replace("cloud {", "cloud \"x\" {"),
                "default",
            ),
            (
                cloud("\"prod\"").replace("cloud {", "backend \"remote\" {"),
                "default",
            ),
            (
                cloud("\"prod\"").replace("terraform {", "resource \"a\" \"b\" {"),
                "default",
            ),
            (cloud("\"prod\"").replace("name =", "tags ="), "default"),
            (format!("{}}}", cloud("\"prod\"")), "default"),
            ("# cloud".to_owned(), "default"),
        ];
        for (text, expected) in cases {
            assert_eq!(
                found(Distribution::Terraform, &[("main.tf", &text)]),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn each_tool_reads_its_own_files() {
        let (tf, tofu) = (cloud("\"tf\""), cloud("\"tofu\""));
        let both = [("main.tf", tf.as_str()), ("main.tofu", tofu.as_str())];
        assert_eq!(found(Distribution::Terraform, &both), "tf");
        assert_eq!(found(Distribution::OpenTofu, &both), "tofu");
        assert_eq!(
            found(
                Distribution::OpenTofu,
                &[("a.tf", &tf), ("main.tofu", &tofu)]
            ),
            "tf"
        );
        assert_eq!(
            found(Distribution::Terraform, &[("main.tofu", &tofu)]),
            "default"
        );
        for name in [".hidden.tf", "main.tf~", "#main.tf#", "main.tfvars"] {
            assert_eq!(
                found(Distribution::Terraform, &[(name, &tf)]),
                "default",
                "{name}"
            );
        }
    }

    #[test]
    fn hostile_code_costs_neither_stack_nor_time() {
        for piece in [
            "a {\n",
            "x = [",
            "x = (",
            "x = {a = ",
            "\"${",
            "x = !",
            "x = f(",
            "x = 1 ? ",
            "x = 1 + ",
            "%{if a}",
        ] {
            for prefix in ["", "x = \"", "x = <<A\n"] {
                let text = format!("# cloud\n{prefix}{}", piece.repeat(5_000));
                assert_eq!(
                    found(Distribution::Terraform, &[("main.tf", &text)]),
                    "default",
                    "{piece}"
                );
            }
        }
        let large = format!(
            "{}{}",
            cloud("\"prod\""),
            "# filler\n".repeat(MAX_FILE_BYTES / 8)
        );
        assert_eq!(
            found(Distribution::Terraform, &[("main.tf", &large)]),
            "default"
        );
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
