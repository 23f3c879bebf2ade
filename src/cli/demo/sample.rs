//! The repository of the story: files as they are on `main`, and the two changes of the pull requests.

use std::path::Path;

use crate::emulator::Change;

/// Its name.
pub(super) const REPO: &str = "acme/infrastructure";

/// A file of the repository: where, and what is in it.
type SampleFile = (&'static str, &'static str);

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

/// Alice wants one more subnet.
pub(super) const DATABASE_SUBNET: SampleFile = (
    "network/terraform.tfvars",
    include_str!("sample/changes/terraform.tfvars"),
);
/// Bob wants names.
pub(super) const DNS_ZONE: SampleFile = ("network/dns.tf", include_str!("sample/changes/dns.tf"));

/// Somebody writes a note, without a pull request.
pub(super) const NOTE: SampleFile = (
    "NOTES.md",
    "# Notes\n\nThe network is Alice's, the names are Bob's.\n",
);

/// The files of `main`. States are kept in a folder outside of every checkout, so they outlive them.
pub(super) fn files(states: &Path) -> Vec<(String, String)> {
    let fixed = FILES
        .iter()
        .map(|(path, content)| ((*path).to_owned(), (*content).to_owned()));
    let backends = PROJECTS
        .iter()
        .map(|project| (format!("{project}/backend.tf"), backend(states, project)));
    fixed.chain(backends).collect()
}

/// A change of one file.
pub(super) fn change((path, content): SampleFile) -> Change {
    Change::Write {
        path: path.to_owned(),
        content: content.to_owned(),
    }
}

/// Where the state of a project is.
pub(super) fn state_file(states: &Path, project: &str) -> std::path::PathBuf {
    states.join(format!("{project}.tfstate"))
}

fn backend(states: &Path, project: &str) -> String {
    let path = hcl_text(&state_file(states, project).to_string_lossy());
    format!(
        "# The state is on this machine; a team would keep it where everybody can reach it.\n\nterraform {{\n  required_version = \">= 1.4\"\n\n  backend \"local\" {{\n    path = {path}\n  }}\n}}\n"
    )
}

/// A text as HCL writes it.
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
