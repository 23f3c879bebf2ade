//! Reads the file of `--web-accounts-file`.

use std::path::Path;

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use secrecy::zeroize::Zeroizing;

use crate::config::access::WebAccounts;
use crate::config::server::{ServerConfig, WebAccess};
use crate::context::LiveAccounts;
use crate::model::Sha256Digest;
use crate::seal::private_text;

/// Reads the accounts that are limited to owners on the pages and in the API. Errors about the file never repeat a
/// password.
pub fn web_accounts(config: &ServerConfig, now: DateTime<Utc>) -> anyhow::Result<LiveAccounts> {
    let Some(path) = &config.permissions.accounts else {
        return Ok(LiveAccounts::default());
    };
    let shown = || {
        format!(
            "cannot use the accounts of {} (--web-accounts-file)",
            path.display()
        )
    };
    let WebAccess::Basic { username, .. } = &config.web.auth else {
        bail!(
            "{}: the pages do not require a password, so accounts would have no effect",
            shown()
        );
    };
    let text = text(path).with_context(shown)?;
    let accounts = WebAccounts::parse(&text, username).with_context(shown)?;
    tracing::info!(%accounts, "Limited the accounts of the pages and the API to owners");
    for warning in accounts.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(LiveAccounts::of_file(
        accounts,
        path.clone(),
        Sha256Digest::of(text.as_bytes()),
        now,
    ))
}

/// Reads the file. Fails if other users than its owner may read it.
pub(super) fn text(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    private_text(path, "replace its passwords")
}
