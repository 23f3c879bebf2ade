//! Finds the Terraform or OpenTofu that the demo runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::model::Distribution;
use crate::workflow::{ChildEnvironment, FoundTool, Tools};

/// Directory of the program that `make demo` installs, relative to the top of the source tree.
const OWN_TOOLS: &str = ".tools/bin";

/// Prefixes of variables for the person's own projects, which would change the demo.
const FOREIGN: [&str; 3] = ["TF_", "AWS_", "GOOGLE_"];

/// A program, and the directory in which the server finds it under its usual name.
pub(super) struct DemoTerraform {
    pub tool: FoundTool,
    pub bin_dir: PathBuf,
}

impl DemoTerraform {
    /// Returns the directory of a program with several files, by the usual layout: `tools` for `tools/bin/terraform`.
    /// `None` if runs can read the program without it, or the directory has other content too.
    pub fn installed_in(&self) -> Option<PathBuf> {
        let program = self.tool.program.canonicalize().ok()?;
        let folder = program
            .parent()
            .filter(|folder| folder.ends_with("bin"))?
            .parent()?;
        folder.ends_with(".tools").then(|| folder.to_owned())
    }
}

/// Returns the environment of the demo's server, without variables for the person's own projects.
pub(super) fn environment(variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_foreign = |name: &str| FOREIGN.iter().any(|prefix| name.starts_with(prefix));
    let kept = variables.iter().filter(|(name, _)| !is_foreign(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Finds the program and its version, and links it into `bin_dir`.
pub(super) async fn find(
    named: Option<&Path>,
    working_dir: &Path,
    environment: &BTreeMap<String, String>,
    bin_dir: PathBuf,
) -> anyhow::Result<DemoTerraform> {
    let path = environment
        .get("PATH")
        .map(String::as_str)
        .unwrap_or_default();
    let (program, distribution) = match named {
        Some(program) => (working_dir.join(program), distribution_of(program)),
        None => find_program(&places(path, working_dir)).with_context(missing)?,
    };
    if !program.is_file() {
        bail!(
            "the program {} does not exist (--terraform)",
            program.display()
        );
    }
    link(&program, &bin_dir.join(distribution.program()))?;
    let children: ChildEnvironment = environment
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let tool = Tools::new(&[&bin_dir], children)
        .find(distribution, None)
        .await;
    let tool = tool.with_context(|| {
        format!(
            "{} cannot be used as {}",
            program.display(),
            distribution.title()
        )
    })?;
    Ok(DemoTerraform {
        tool: FoundTool { program, ..tool },
        bin_dir,
    })
}

fn missing() -> String {
    format!(
        "found neither `terraform` nor `tofu` on the PATH or in {OWN_TOOLS}. Install one of them, or name it with \
         --terraform PROGRAM. In a checkout of the source, `make demo` downloads one"
    )
}

/// Returns the directories of the `PATH`, then that of `make demo`.
fn places(path: &str, working_dir: &Path) -> Vec<PathBuf> {
    std::env::split_paths(path)
        .chain([working_dir.join(OWN_TOOLS)])
        .filter(|dir| dir.is_absolute())
        .collect()
}

fn find_program(places: &[PathBuf]) -> Option<(PathBuf, Distribution)> {
    let find = |distribution: Distribution| {
        let program = places
            .iter()
            .map(|dir| dir.join(distribution.program()))
            .find(|file| file.is_file());
        program.map(|program| (program, distribution))
    };
    find(Distribution::Terraform).or_else(|| find(Distribution::OpenTofu))
}

fn distribution_of(program: &Path) -> Distribution {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    if name.contains("tofu") {
        Distribution::OpenTofu
    } else {
        Distribution::Terraform
    }
}

fn link(program: &Path, link: &Path) -> anyhow::Result<()> {
    let parent = link.parent().unwrap_or(link);
    let made =
        std::fs::create_dir_all(parent).and_then(|()| std::os::unix::fs::symlink(program, link));
    made.with_context(|| format!("cannot create the link {}", link.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn terraform_goes_before_tofu_and_the_path_before_our_own_tools() {
        let dir = tempfile::tempdir().unwrap();
        let first = dir.path().join("first");
        let places = places(&format!("relative:{}", first.display()), dir.path());
        assert_eq!(places, [first.clone(), dir.path().join(".tools/bin")]);
        assert_eq!(find_program(&places), None);
        let tofu = program(&first, "tofu");
        assert_eq!(find_program(&places), Some((tofu, Distribution::OpenTofu)));
        let own = program(&dir.path().join(".tools/bin"), "terraform");
        assert_eq!(find_program(&places), Some((own, Distribution::Terraform)));
        let on_path = program(&first, "terraform");
        assert_eq!(
            find_program(&places),
            Some((on_path, Distribution::Terraform))
        );
    }

    #[test]
    fn a_named_program_is_what_its_name_says() {
        assert_eq!(
            distribution_of(Path::new("/opt/tofu-1.9/tofu")),
            Distribution::OpenTofu
        );
        assert_eq!(
            distribution_of(Path::new("/opt/tofu/terraform_1.9")),
            Distribution::Terraform
        );
    }

    #[test]
    fn settings_of_the_persons_own_projects_are_left_out() {
        let variables = ["PATH", "HOME", "TF_WORKSPACE", "AWS_PROFILE"]
            .map(|name| (name.to_owned(), String::new()));
        let kept: Vec<String> = environment(&variables.into()).into_keys().collect();
        assert_eq!(kept, ["HOME", "PATH"]);
    }
}
