//! The files of a directory that Terraform or OpenTofu reads, and how they are looked into.

use hcl_edit::structure::{Block, Body};

use crate::model::{Distribution, RepoPath};

/// Bytes of one file that are parsed; code of this size is not written by hand.
pub(super) const MAX_FILE_BYTES: usize = 512 << 10;

/// Bytes of one directory that are parsed.
pub(super) const MAX_DIR_BYTES: usize = 4 << 20;

/// The HCL files of a directory among its sorted `files`: Terraform reads `*.tf`; OpenTofu also `*.tofu`, and there
/// `x.tofu` hides `x.tf` (reference 12.2).
pub(super) fn native(files: &[RepoPath], distribution: Distribution) -> impl Iterator<Item = &RepoPath> {
    read_by(files, distribution, "")
}

/// The same of the files in JSON: `*.tf.json`, `*.tofu.json`.
pub(super) fn json(files: &[RepoPath], distribution: Distribution) -> impl Iterator<Item = &RepoPath> {
    read_by(files, distribution, ".json")
}

fn read_by<'a>(
    files: &'a [RepoPath],
    distribution: Distribution,
    format: &'static str,
) -> impl Iterator<Item = &'a RepoPath> {
    let tofu = distribution == Distribution::OpenTofu;
    let exists = move |path: &str| files.binary_search_by(|file| file.as_str().cmp(path)).is_ok();
    files.iter().filter(move |file| {
        let Some((stem, ending)) = file.as_str().strip_suffix(format).and_then(|path| path.rsplit_once('.')) else {
            return false;
        };
        match ending {
            _ if is_editor_file(file.file_name()) => false,
            "tf" => !(tofu && exists(&format!("{stem}.tofu{format}"))),
            "tofu" => tofu,
            _ => false,
        }
    })
}

/// Files that the tools pass over: hidden ones and what editors leave behind.
pub(super) fn is_editor_file(name: &str) -> bool {
    name.starts_with('.') || name.ends_with('~') || name.starts_with('#') && name.ends_with('#')
}

/// The blocks of a name that have no labels.
pub(super) fn unlabelled<'a>(body: &'a Body, name: &'a str) -> impl Iterator<Item = &'a Block> {
    body.get_blocks(name).filter(|block| !block.is_labeled())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_reads_its_own_files() {
        let names = [
            "#a.tf#",
            ".a.tf",
            "a.tf",
            "a.tf.json",
            "a.tf~",
            "a.tfvars",
            "b.json",
            "b.tf",
            "b.tf.json",
            "b.tofu",
            "c.tf.json",
            "c.tofu.json",
            "d.tofu",
            "e",
            "tf",
        ];
        let files: Vec<RepoPath> = names.iter().map(|name| format!("x/{name}").parse().unwrap()).collect();
        let shown = |files: Vec<&RepoPath>| {
            let names: Vec<&str> = files.iter().map(|file| file.file_name()).collect();
            names.join(" ")
        };
        let both =
            |distribution| (shown(native(&files, distribution).collect()), shown(json(&files, distribution).collect()));
        assert_eq!(both(Distribution::Terraform), ("a.tf b.tf".into(), "a.tf.json b.tf.json c.tf.json".into()));
        assert_eq!(
            both(Distribution::OpenTofu),
            ("a.tf b.tofu d.tofu".into(), "a.tf.json b.tf.json c.tofu.json".into())
        );
    }
}
