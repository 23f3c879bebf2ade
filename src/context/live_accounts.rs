//! Holds the accounts that are limited to owners on the pages and in the API. The file of `--web-accounts-file` is
//! read again while the server runs.
//!
//! Every check uses the accounts in effect at that moment, so a request that began before a change may be checked by
//! both versions. That lets nobody in: an account that was removed meanwhile is unknown, and reaches nothing.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, Utc};

use super::file_state::{FileCheck, FileState, ReloadResult};
use crate::config::access::WebAccounts;
use crate::model::Sha256Digest;

/// Holder of the current accounts.
#[derive(Default)]
pub struct LiveAccounts(RwLock<AccountsState>);

#[derive(Default)]
struct AccountsState {
    accounts: Arc<WebAccounts>,
    /// State of the file; `None` if there is no file to read again.
    file: Option<FileState>,
}

impl LiveAccounts {
    /// Starts with accounts that were read from a file; `digest` is the digest of its text.
    pub fn of_file(
        accounts: WebAccounts,
        path: PathBuf,
        digest: Sha256Digest,
        now: DateTime<Utc>,
    ) -> Self {
        let file = Some(FileState::new(path, digest, now));
        Self(RwLock::new(AccountsState {
            accounts: Arc::new(accounts),
            file,
        }))
    }

    /// Returns the current accounts.
    pub fn now(&self) -> Arc<WebAccounts> {
        Arc::clone(
            &self
                .0
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .accounts,
        )
    }

    /// Returns the state of the file; `None` if there is none. Its digest must stay in this process: with it,
    /// somebody could try out passwords.
    pub fn file(&self) -> Option<FileState> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .file
            .clone()
    }

    /// Offers the content of the file: its text, or the reason why it cannot be used. It is put into effect as a
    /// whole or not at all.
    pub fn offer(&self, found: Result<&str, String>, now: DateTime<Utc>) -> FileCheck {
        let state = &mut *self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = &mut state.file else {
            return FileCheck::Same;
        };
        let path = file.path.clone();
        let cannot = |why| {
            format!(
                "cannot use the accounts of {} (--web-accounts-file): {why}",
                path.display()
            )
        };
        let parse = |text: &str| {
            state
                .accounts
                .read_again(text)
                .map_err(|error| cannot(error.to_string()))
        };
        match file.offer(found.map_err(cannot), now, parse) {
            ReloadResult::Took(accounts) => {
                state.accounts = Arc::new(accounts);
                FileCheck::Taken(state.accounts.warnings())
            }
            ReloadResult::Kept(look) => look,
        }
    }
}

impl fmt::Debug for LiveAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveAccounts")
            .field("accounts", &self.now().to_string())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::access::AccessScope;

    const KIM: &str = "user=kim owners=net allow=all password=kims-password-of-kim\n";

    fn accounts() -> LiveAccounts {
        let digest = Sha256Digest::of(KIM.as_bytes());
        let accounts = WebAccounts::parse(KIM, "ops").unwrap();
        LiveAccounts::of_file(
            accounts,
            "/etc/accounts".into(),
            digest,
            DateTime::UNIX_EPOCH,
        )
    }

    #[test]
    fn another_text_holds_at_once_and_whoever_is_gone_is_unknown() {
        let (live, now) = (accounts(), DateTime::UNIX_EPOCH);
        assert_eq!(live.offer(Ok(KIM), now), FileCheck::Same);
        assert_eq!(
            live.offer(
                Ok("user=lee owners=dns allow=none password=lees-password-of-lee"),
                now
            ),
            FileCheck::Taken(vec![])
        );
        assert_eq!(live.now().to_string(), "lee@dns");
        let FileCheck::Taken(warnings) =
            live.offer(Ok("user=max owners=dns password=maxs-password-of-max"), now)
        else {
            panic!("it is another text")
        };
        assert!(
            warnings.concat().contains("are read-only: max."),
            "{warnings:?}"
        );
        assert_eq!(live.now().scope_of("kim"), AccessScope::Unknown);
        assert_eq!(live.offer(Ok("# nobody"), now), FileCheck::Taken(vec![]));
        assert_eq!(
            live.now().scope_of("lee"),
            AccessScope::Unknown,
            "a file without accounts makes nobody the whole server"
        );
        assert_eq!(live.now().scope_of("ops"), AccessScope::Whole);
    }

    #[test]
    fn what_is_wrong_changes_nothing_and_is_told_once_by_file_and_line() {
        let (live, now) = (accounts(), DateTime::UNIX_EPOCH);
        let broken = format!("{KIM}user=lee owners=dns password=hunter2\n");
        let error = "cannot use the accounts of /etc/accounts (--web-accounts-file): line 2: the password has fewer than \
                     16 characters";
        assert_eq!(
            live.offer(Ok(&broken), now),
            FileCheck::Refused(error.to_owned())
        );
        assert_eq!(live.offer(Ok(&broken), now), FileCheck::Same);
        assert_eq!(live.now().to_string(), "kim@net");
        assert_eq!(
            live.file()
                .unwrap()
                .refused
                .map(|refused| refused.error)
                .as_deref(),
            Some(error)
        );
        let gone = live.offer(Err("it is not there".to_owned()), now);
        let error =
            "cannot use the accounts of /etc/accounts (--web-accounts-file): it is not there";
        assert_eq!(gone, FileCheck::Refused(error.to_owned()));
        assert_eq!(live.offer(Ok(KIM), now), FileCheck::Back);
        assert_eq!(live.file().unwrap().refused, None);
    }

    #[test]
    fn without_a_file_nothing_is_read() {
        let live = LiveAccounts::default();
        assert_eq!(live.offer(Ok(KIM), DateTime::UNIX_EPOCH), FileCheck::Same);
        assert_eq!(
            (live.now().scope_of("anybody"), live.file()),
            (AccessScope::Whole, None)
        );
    }
}
