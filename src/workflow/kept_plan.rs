//! Keeps a plan file where runs only read it.
//!
//! Programs of the pull request run whenever the tool shows or applies a plan: providers, and key providers of OpenTofu. In
//! the directory of the run they could exchange the plan file between the moment when people or policies see it and the
//! moment when it is stored or applied. So the file is read once, right after the steps that made it, and everything after
//! that uses these bytes.

use std::fs::Permissions;
use std::io::Result;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::file_owner;
use crate::model::RunUser;

/// Directory with a plan file, removed on drop.
pub(super) struct KeptPlan {
    dir: TempDir,
}

impl KeptPlan {
    /// Writes the plan file below `parent`. `user` is the one that runs execute as, if it is not the user of the server.
    pub async fn new(parent: &Path, user: Option<RunUser>, plan: &[u8]) -> Result<Self> {
        tokio::fs::create_dir_all(parent).await?;
        let dir = tempfile::Builder::new()
            .prefix("plan-")
            .tempdir_in(parent)?;
        let kept = Self { dir };
        tokio::fs::write(kept.file(), plan).await?;
        tokio::fs::set_permissions(kept.file(), Permissions::from_mode(0o400)).await?;
        if let Some(user) = user {
            file_owner::allow_read(parent, kept.dir(), &kept.file(), user)?;
        }
        Ok(kept)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self) -> PathBuf {
        self.dir().join("plan.tfplan")
    }
}
