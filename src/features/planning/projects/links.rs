//! Finds symbolic links out of a checkout: a project that reaches one does not run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use super::Work;
use crate::discovery::ProjectReach;
use crate::features::planning::CommandCx;
use crate::git::{Checkout, DirError, LinkOut};
use crate::model::{CommitSha, ProjectKey, RepoPath};
use crate::workflow::{CheckoutError, Source};

/// Links out of each checkout, by its root and commit.
type LinksByCheckout = HashMap<(PathBuf, CommitSha), Arc<[LinkOut]>>;

/// Known links out of the checkouts of a command.
#[derive(Default)]
pub(super) struct KnownLinks(Mutex<LinksByCheckout>);

impl Work {
    /// Refuses a project with a link out of its checkout in its directory, or in the files that its code reaches.
    /// Most repositories have no such link, so the search for reached files is rare.
    pub(in crate::features::planning) async fn check_links(
        &self,
        cx: &CommandCx<'_>,
        source: &Source,
        checkout: &Checkout,
        project: &ProjectKey,
    ) -> Result<(), CheckoutError> {
        let links = self.links_out(cx, checkout).await?;
        if links.is_empty() {
            return Ok(());
        }
        let real = checkout.resolve_dir(&project.dir)?;
        let root = checkout
            .path
            .canonicalize()
            .unwrap_or_else(|_| checkout.path.clone());
        let below = real.strip_prefix(&root).unwrap_or(Path::new(""));
        let is_in_dir = |out: &&LinkOut| {
            out.link.starts_with(below) || out.link.starts_with(path(&project.dir))
        };
        if let Some(out) = links.iter().find(is_in_dir) {
            return Err(refusal(&project.dir, out));
        }
        let reached = self.reached_by(cx, source, project).await?;
        let is_reached = |out: &&LinkOut| match (&reached, out.path()) {
            (ProjectReach::Everything, _) | (ProjectReach::These { .. }, None) => true,
            (ProjectReach::These { dirs, files }, Some(link)) => {
                files.contains(&link) || dirs.iter().any(|dir| out.link.starts_with(path(dir)))
            }
        };
        links
            .iter()
            .find(is_reached)
            .map_or(Ok(()), |out| Err(refusal(&project.dir, out)))
    }

    async fn links_out(
        &self,
        cx: &CommandCx<'_>,
        checkout: &Checkout,
    ) -> Result<Arc<[LinkOut]>, CheckoutError> {
        let key = (checkout.path.clone(), checkout.commit.clone());
        let mut known = self.links.0.lock().await;
        if let Some(links) = known.get(&key) {
            return Ok(Arc::clone(links));
        }
        let links: Arc<[LinkOut]> = cx
            .ctx
            .checkouts
            .links_out(&cx.pull.at.repo, checkout)
            .await?
            .into();
        known.insert(key, Arc::clone(&links));
        Ok(links)
    }
}

fn path(dir: &RepoPath) -> &Path {
    Path::new(if dir.is_root() { "" } else { dir.as_str() })
}

/// Builds the error. Its paths are text of others, so they are cut and cleaned.
fn refusal(dir: &RepoPath, LinkOut { link, target }: &LinkOut) -> CheckoutError {
    let shown = |path: &Path| {
        let text: String = path.to_string_lossy().chars().take(200).collect();
        text.replace(|c: char| c.is_control() || c == '`', "\u{fffd}")
    };
    DirError::LinkOut {
        dir: dir.clone(),
        link: shown(link),
        target: shown(target),
    }
    .into()
}
