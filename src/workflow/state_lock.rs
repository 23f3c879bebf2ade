//! Reads the lock file that Terraform and OpenTofu leave beside a local state when they are killed.

use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;

use super::scratch;
use crate::model::{RepoPath, WorkspaceName};
use crate::render::StateLock;

/// Maximum size of the lock file. Real ones have some hundred bytes.
const MAX_BYTES: u64 = 16 * 1024;

/// Content of the file (`statemgr.LockInfo` in the sources of the tool).
#[derive(Deserialize)]
struct StateLockInfo {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Who")]
    who: Option<String>,
    #[serde(rename = "Created")]
    created: Option<String>,
    #[serde(rename = "Operation")]
    operation: Option<String>,
}

/// Returns the lock that was left beside the local state of a project, if any; `root` is the checkout. A state that
/// is stored elsewhere has its lock there, and the next plan reports it.
///
/// A pull request can bring such a file, or a link in its place. So nothing outside of the checkout is read, and the
/// shown text is untrusted.
pub(super) fn left_in(root: &Path, dir: &RepoPath, workspace: &WorkspaceName) -> Option<StateLock> {
    let name = ".terraform.tfstate.lock.info";
    let beside = if workspace.is_default() {
        Path::new(name).to_owned()
    } else {
        Path::new("terraform.tfstate.d")
            .join(workspace.as_str())
            .join(name)
    };
    let root = root.canonicalize().ok()?;
    let file = root.join(dir.as_str()).join(beside).canonicalize().ok()?;
    if !file.starts_with(&root) || !file.is_file() {
        return None;
    }
    let mut text = String::new();
    scratch::open(&file)
        .ok()??
        .take(MAX_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    let info: StateLockInfo = serde_json::from_str(&text).ok()?;
    StateLock::new(info.id, info.who, info.created, info.operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = r#"{"ID":"9db590f1-b6fe-c5f2-2678-8804f089deba","Operation":"OperationTypeApply","Info":"",
        "Who":"root@keeper-0","Version":"1.11.4","Created":"2026-03-02T09:00:00Z","Path":"terraform.tfstate"}"#;

    fn left(root: &Path, workspace: &str) -> Option<StateLock> {
        left_in(
            root,
            &RepoPath::new("network").unwrap(),
            &workspace.parse().unwrap(),
        )
    }

    #[test]
    fn the_lock_beside_the_state_of_each_workspace_is_found() {
        let root = tempfile::tempdir().unwrap();
        let of_prod = root.path().join("network/terraform.tfstate.d/prod");
        std::fs::create_dir_all(&of_prod).unwrap();
        assert_eq!(left(root.path(), "default"), None);
        std::fs::write(of_prod.join(".terraform.tfstate.lock.info"), INFO).unwrap();
        assert_eq!(left(root.path(), "default"), None);
        let found = left(root.path(), "prod").unwrap();
        assert_eq!(
            (found.id.as_str(), found.who.as_deref()),
            (
                "9db590f1-b6fe-c5f2-2678-8804f089deba",
                Some("root@keeper-0")
            )
        );
        std::fs::rename(
            of_prod.join(".terraform.tfstate.lock.info"),
            root.path().join("network/.terraform.tfstate.lock.info"),
        )
        .unwrap();
        assert_eq!(left(root.path(), "default"), Some(found));
    }

    #[test]
    fn what_is_no_such_lock_or_lies_elsewhere_is_not_shown() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = root.path().join("network/.terraform.tfstate.lock.info");
        std::fs::create_dir(root.path().join("network")).unwrap();
        for text in [
            "",
            "{}",
            "[]",
            r#"{"ID": "$(reboot)"}"#,
            r#"{"ID": "a b"}"#,
            r#"{"ID": ""}"#,
            r#"{"ID": "-force"}"#,
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(left(root.path(), "default"), None, "{text}");
        }
        std::fs::remove_file(&file).unwrap();
        std::fs::write(outside.path().join("info"), INFO).unwrap();
        std::os::unix::fs::symlink(outside.path().join("info"), &file).unwrap();
        assert_eq!(
            left(root.path(), "default"),
            None,
            "a link out of the checkout"
        );
    }
}
