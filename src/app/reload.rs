//! Reads the files of `--repo-config` and `--web-accounts-file` again, on SIGHUP and every few seconds. Only their
//! content counts: Kubernetes changes a `ConfigMap` by switching a link, and editors replace the old file with a new
//! one.

use std::path::Path;
use std::time::Duration;

use tracing::{info, warn};

use super::accounts;
use crate::config::read_text;
use crate::config::repos::ServerRepos;
use crate::context::{FileCheck, FileState, ServerCtx};
use crate::telemetry::Metric;

/// Time between two looks at the files.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Reads the file of `--repo-config`. Its new content is in effect for every command that begins from now on. An
/// error in it is logged, counted, and shown on the page of operations, and the previous content stays in effect.
pub(super) async fn reload_repo_config(ctx: &ServerCtx) -> anyhow::Result<FileCheck> {
    let Some(before) = ctx.live.file() else {
        return Ok(FileCheck::Same);
    };
    let path = before.path().to_owned();
    let found = tokio::task::spawn_blocking(move || read(&path)).await?;
    let look = ctx
        .live
        .offer(found.as_deref().map_err(Clone::clone), ctx.clock.now());
    let path = before.path().display();
    match &look {
        FileCheck::Same => {}
        FileCheck::Back => {
            info!(%path, "The file of --repo-config has its last accepted content again");
        }
        FileCheck::Taken(warnings) => {
            ctx.metrics.count(Metric::RepoConfigLoads, &["taken"]);
            info!(%path, "The file of --repo-config has changed and is in effect for new commands");
            for warning in warnings {
                warn!("{warning}");
            }
        }
        FileCheck::Refused(error) => {
            ctx.metrics.count(Metric::RepoConfigLoads, &["refused"]);
            warn!(%path, "The file of --repo-config is refused; the previous content stays in effect:\n{error}");
        }
    }
    show(ctx);
    Ok(look)
}

/// Reads the file of `--web-accounts-file` in the same way. Its new content is in effect for every request from now
/// on.
pub(super) async fn reload_accounts(ctx: &ServerCtx) -> anyhow::Result<FileCheck> {
    let live = &ctx.settings.web_accounts;
    let Some(before) = live.file() else {
        return Ok(FileCheck::Same);
    };
    let path = before.path().to_owned();
    let found = tokio::task::spawn_blocking(move || accounts::text(&path)).await?;
    let found = found
        .as_ref()
        .map(|text| text.as_str())
        .map_err(|error| format!("{error:#}"));
    let look = live.offer(found, ctx.clock.now());
    let path = before.path().display();
    match &look {
        FileCheck::Same => {}
        FileCheck::Back => {
            info!(%path, "The file of --web-accounts-file has its last accepted content again");
        }
        FileCheck::Taken(warnings) => {
            ctx.metrics.count(Metric::WebAccountsLoads, &["taken"]);
            let accounts = live.now();
            info!(%path, %accounts, "The file of --web-accounts-file has changed and is in effect for new requests");
            for warning in warnings {
                warn!("{warning}");
            }
        }
        FileCheck::Refused(error) => {
            ctx.metrics.count(Metric::WebAccountsLoads, &["refused"]);
            warn!(%path, "The file of --web-accounts-file is refused; the previous content stays in effect: {error}");
        }
    }
    show(ctx);
    Ok(look)
}

/// Updates the metrics of both files.
pub(super) fn show(ctx: &ServerCtx) {
    let refused = |state: &FileState| if state.refused.is_some() { 1.0 } else { 0.0 };
    if let Some(state) = ctx.live.file() {
        ctx.metrics
            .set(Metric::RepoConfigRefused, &[], refused(&state));
        ctx.metrics
            .set(Metric::RepoConfigDigest, &[], number(&state));
    }
    if let Some(state) = ctx.settings.web_accounts.file() {
        ctx.metrics
            .set(Metric::WebAccountsRefused, &[], refused(&state));
    }
}

/// Logs the result of a requested reload that found no change or failed. `reload_repo_config` and `reload_accounts`
/// log all other results.
pub(super) fn log_result(flag: &str, look: anyhow::Result<FileCheck>, state: Option<FileState>) {
    match (look, state) {
        (
            Ok(FileCheck::Same),
            Some(FileState {
                refused: Some(_), ..
            }),
        ) => {
            warn!("Reload of {flag} requested: the file is still refused, see /operations");
        }
        (Ok(FileCheck::Same), Some(_)) => info!("Reload of {flag} requested: nothing has changed"),
        (Ok(FileCheck::Same), None) => {
            info!("Reload of {flag} requested: there is no such file, so nothing can change");
        }
        (Ok(FileCheck::Taken(_) | FileCheck::Refused(_) | FileCheck::Back), _) => {}
        (Err(error), _) => warn!(
            error = format!("{error:#}"),
            "Could not check the file of {flag}"
        ),
    }
}

/// Returns the first 48 bits of the digest, which fit into the numbers of monitors.
fn number(state: &FileState) -> f64 {
    let bits = |range| {
        state
            .digest()
            .as_str()
            .get(range)
            .and_then(|hex| u32::from_str_radix(hex, 16).ok())
    };
    f64::from(bits(0..4).unwrap_or_default()) * 4_294_967_296.0
        + f64::from(bits(4..12).unwrap_or_default())
}

fn read(path: &Path) -> Result<String, String> {
    let text = std::fs::File::open(path).and_then(|file| read_text(file, ServerRepos::MAX_BYTES));
    text.map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}
