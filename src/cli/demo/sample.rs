//! The repositories of the demo: their files on `main`, and the changes of the pull requests.

use std::path::Path;

use crate::emulator::Change;

/// Name of the repository.
pub(super) const REPO: &str = "acme/infrastructure";

/// Name of the repository with the module.
pub(super) const MODULE_REPO: &str = "acme/terraform-aws-vpc";
/// Host in the addresses of modules of the registry. The registry has it as its name.
pub(super) const MODULE_HOST: &str = "modules.acme.example";

/// Path and content of a file of a repository.
pub(super) type SampleFile = (&'static str, &'static str);

const FILES: [SampleFile; 10] = [
    ("README.md", include_str!("sample/README.md")),
    ("atlantis.yaml", include_str!("sample/atlantis.yaml")),
    ("network/main.tf", include_str!("sample/network/main.tf")),
    (
        "network/variables.tf",
        include_str!("sample/network/variables.tf"),
    ),
    (
        "network/outputs.tf",
        include_str!("sample/network/outputs.tf"),
    ),
    (
        "network/terraform.tfvars",
        include_str!("sample/network/terraform.tfvars"),
    ),
    ("app/main.tf", include_str!("sample/app/main.tf")),
    ("app/variables.tf", include_str!("sample/app/variables.tf")),
    ("app/outputs.tf", include_str!("sample/app/outputs.tf")),
    (
        "app/terraform.tfvars",
        include_str!("sample/app/terraform.tfvars"),
    ),
];

/// The projects that `atlantis.yaml` names.
const PROJECTS: [&str; 2] = ["network", "app"];

/// Alice's change: one more subnet.
pub(super) const DATABASE_SUBNET: SampleFile = (
    "network/terraform.tfvars",
    include_str!("sample/changes/terraform.tfvars"),
);
/// Bob's change: a DNS zone for the network.
pub(super) const DNS_ZONE: SampleFile = ("network/dns.tf", include_str!("sample/changes/dns.tf"));

/// Dave's change: the service uses the module.
pub(super) const MODULE_USE: SampleFile = ("app/vpc.tf", include_str!("sample/changes/vpc.tf"));

/// Files of the module.
pub(super) const MODULE_FILES: [SampleFile; 2] = [
    ("README.md", include_str!("sample/vpc/README.md")),
    ("main.tf", include_str!("sample/vpc/main.tf")),
];
/// Emil's change of the module: services run in another subnet.
pub(super) const MODULE_FIX: SampleFile = ("main.tf", include_str!("sample/changes/main.tf"));

/// A note that is pushed without a pull request.
pub(super) const NOTE: SampleFile = (
    "NOTES.md",
    "# Notes\n\nThe network is Alice's, the names are Bob's.\n",
);

/// Returns the files of `main`. The states are in a folder outside of every checkout, so they outlive the checkouts.
pub(super) fn files(states: &Path) -> Vec<(String, String)> {
    let fixed = FILES
        .iter()
        .map(|(path, content)| ((*path).to_owned(), (*content).to_owned()));
    let backends = PROJECTS
        .iter()
        .map(|project| (format!("{project}/backend.tf"), backend(states, project)));
    fixed.chain(backends).collect()
}

/// Returns a change of one file.
pub(super) fn change((path, content): SampleFile) -> Change {
    Change::Write {
        path: path.to_owned(),
        content: content.to_owned(),
    }
}

/// Returns the path of the state of a project.
pub(super) fn state_file(states: &Path, project: &str) -> std::path::PathBuf {
    states.join(format!("{project}.tfstate"))
}

fn backend(states: &Path, project: &str) -> String {
    let path = hcl_text(&state_file(states, project).to_string_lossy());
    format!(
        "# The state is on this machine; a team would store it in a shared backend.\n\nterraform {{\n  required_version = \">= 1.4\"\n\n  backend \"local\" {{\n    path = {path}\n  }}\n}}\n"
    )
}

/// Quotes a text for HCL.
fn hcl_text(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace("${", "$${")
        .replace("%{", "%%{");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_an_odd_name_stays_a_text() {
        let text = backend(Path::new("/tmp/a\"b${c}"), "network");
        assert!(
            text.contains(r#"path = "/tmp/a\"b$${c}/network.tfstate""#),
            "{text}"
        );
    }

    #[test]
    fn the_module_is_used_from_the_registry_of_the_demo() {
        let (path, content) = MODULE_USE;
        assert!(path.starts_with("app/"));
        let source = format!("\"{MODULE_HOST}/{}\"", super::super::modules::MODULE);
        assert!(content.contains(&source), "{content}");
        assert!(MODULE_FILES.iter().all(|file| *file != MODULE_FIX));
    }

    #[test]
    fn each_change_is_about_the_same_project() {
        let files = files(Path::new("/tmp"));
        assert!(
            files
                .iter()
                .any(|(path, content)| *path == DATABASE_SUBNET.0 && content != DATABASE_SUBNET.1)
        );
        assert!(files.iter().all(|(path, _)| path != DNS_ZONE.0));
        assert!(
            [DATABASE_SUBNET, DNS_ZONE]
                .iter()
                .all(|(path, _)| path.starts_with("network/"))
        );
    }
}
