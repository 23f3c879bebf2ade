//! Signs in people and programs with the user name and the HTTP password of an account, for git and the API.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use axum::http::{Extensions, HeaderMap};
use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper_accounts::access::Capability;
use lockkeeper_accounts::external_ids::{ExternalId, ExternalIdKey};
use lockkeeper_accounts::objects::CommitPerson;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};
use tokio::sync::Semaphore;
use tracing::warn;

use super::access::CallerAccess;
use super::all_users::{AccountsActor, AccountsError, AllUsers, SignedInAccount};
use super::flags::ReviewedFlags;
use super::store::AccountRow;
use super::verified::{VerifiedPasswords, pretend};
use crate::kit::web::{WebState, auth};
use crate::model::{Actor, Cause, Origin};
use crate::store::Store;

/// Maximum number of changes of one account in an hour, by the API and by pushes.
const CHANGES: u32 = 300;
/// Maximum number of reviewed flags that an account sets and removes in an hour.
const FLAGS: u32 = 5_000;
/// Maximum number of requests of one account at once, by the API and by git.
const AT_ONCE: usize = 4;
/// Maximum number of searches at once.
const SEARCHES: usize = 2;

/// Sign-in for everything that accounts can use.
pub(crate) struct AccountSignIn {
    pub(super) web: Arc<WebState>,
    pub(super) users: AllUsers,
    /// Name of this server in addresses.
    pub(super) host: String,
    /// Number of requests of each account.
    busy: Arc<std::sync::Mutex<HashMap<AccountId, usize>>>,
    changes: HourlyCounts,
    flag_changes: HourlyCounts,
    pub(super) flags: Arc<dyn ReviewedFlags>,
    verified: VerifiedPasswords,
    /// Searches at once. One of many accounts takes the database a while.
    pub(super) searches: Semaphore,
}

/// Number of changes of each account in the present hour, which began at the time.
struct HourlyCounts {
    max: u32,
    counts: std::sync::Mutex<(DateTime<Utc>, HashMap<AccountId, u32>)>,
}

impl HourlyCounts {
    fn of_at_most(max: u32) -> Self {
        let counts = std::sync::Mutex::default();
        Self { max, counts }
    }

    /// Counts a change by an account.
    fn count(&self, account: AccountId, now: DateTime<Utc>) -> Result<(), SignInRefusal> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if now - counts.0 >= TimeDelta::hours(1) {
            *counts = (now, HashMap::new());
        }
        let ends = counts.0 + TimeDelta::hours(1);
        let many = counts.1.entry(account).or_default();
        if *many >= self.max {
            return Err(SignInRefusal::Later((ends - now).num_seconds() + 1));
        }
        *many += 1;
        Ok(())
    }
}

/// A person or service that has signed in.
#[derive(Clone, Debug)]
pub(super) enum AccountCaller {
    /// The web user (`--web-basic-auth`), who may read and change everything.
    Administrator(String),
    /// An account, which may change itself, and more if the access control permits it.
    Account {
        row: Box<AccountRow>,
        external_ids: Vec<ExternalId>,
        access: CallerAccess,
    },
}

/// Reason why somebody is not let in.
#[derive(Debug)]
pub(super) enum SignInRefusal {
    /// The request has no password, or a wrong one.
    Unauthorized,
    /// The password is right, but the account is not active.
    Inactive,
    /// Too many wrong passwords from the address, or requests or changes of the account: it has to wait for this many
    /// seconds.
    Later(i64),
    Failed(AccountsError),
}

impl From<AccountsError> for SignInRefusal {
    fn from(error: AccountsError) -> Self {
        Self::Failed(error)
    }
}

/// Request of an account, counted for as long as the value exists.
pub(super) struct RequestSlot {
    busy: Arc<std::sync::Mutex<HashMap<AccountId, usize>>>,
    account: AccountId,
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = busy.entry(self.account) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

/// Result of checking a user name and a password.
enum CheckedPassword {
    Right(AccountCaller),
    Inactive,
    Wrong,
}

impl AccountSignIn {
    /// `batch` is the number of account numbers that are taken at a time.
    pub(crate) fn new(
        web: Arc<WebState>,
        store: Store,
        batch: u32,
        flags: Arc<dyn ReviewedFlags>,
    ) -> Self {
        let host = web.public_url.host_str().unwrap_or("localhost").to_owned();
        Self {
            users: AllUsers::new(store, &host).with_batches_of(batch),
            host,
            web,
            verified: VerifiedPasswords::default(),
            busy: Arc::default(),
            changes: HourlyCounts::of_at_most(CHANGES),
            flag_changes: HourlyCounts::of_at_most(FLAGS),
            flags,
            searches: Semaphore::new(SEARCHES),
        }
    }

    pub(crate) fn web(&self) -> &Arc<WebState> {
        &self.web
    }

    /// Counts a request of an account, which may have few at once. The web user has no limit.
    pub(super) fn enter(
        &self,
        caller: &AccountCaller,
    ) -> Result<Option<RequestSlot>, SignInRefusal> {
        let Some(own) = caller.own() else {
            return Ok(None);
        };
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let many = busy.entry(own.number).or_default();
        if *many >= AT_ONCE {
            return Err(SignInRefusal::Later(1));
        }
        *many += 1;
        Ok(Some(RequestSlot {
            busy: Arc::clone(&self.busy),
            account: own.number,
        }))
    }

    /// Counts a change by an account. All changes are kept in its history, so there is a limit.
    pub(super) fn count_change(&self, caller: &AccountCaller) -> Result<(), SignInRefusal> {
        self.count(&self.changes, caller)
    }

    /// Counts a reviewed flag that an account sets or removes.
    pub(super) fn count_flag(&self, caller: &AccountCaller) -> Result<(), SignInRefusal> {
        self.count(&self.flag_changes, caller)
    }

    /// Administrators have no limit.
    fn count(&self, counts: &HourlyCounts, caller: &AccountCaller) -> Result<(), SignInRefusal> {
        match caller.own() {
            Some(own) if !caller.has(Capability::AdministrateServer) => {
                counts.count(own.number, self.web.clock.now())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks a password with a slow hash, which takes as long if there is no such user name.
    async fn check(
        &self,
        username: Option<&ExternalId>,
        password: &str,
    ) -> Result<CheckedPassword, AccountsError> {
        let Some(username) = username else {
            pretend(password).await;
            return Ok(CheckedPassword::Wrong);
        };
        if self.verified.verify(username, password).await {
            self.users.caller_of(username).await
        } else {
            Ok(CheckedPassword::Wrong)
        }
    }

    /// Finds out who sends a request.
    pub(super) async fn caller(
        &self,
        extensions: &Extensions,
        headers: &HeaderMap,
    ) -> Result<AccountCaller, SignInRefusal> {
        let (user, password) = auth::credentials(headers).ok_or(SignInRefusal::Unauthorized)?;
        let address = auth::client(&self.web, extensions, headers);
        // The pages know people by other names, so a guess there is another one.
        let given = format!("accounts:{user}:{password}");
        let now = self.web.clock.now();
        if let Some(wait) = self.web.parts.sign_in_limiter.wait(address, now) {
            return Err(SignInRefusal::Later(wait.num_seconds() + 1));
        }
        if auth::is_web_user(&self.web, &user, &password) {
            self.web.parts.sign_in_limiter.record_success(address, now);
            return Ok(AccountCaller::Administrator(user));
        }
        if let Some(id) = self.users.username(&user).await?
            && self.verified.recalls(&id, &password)
        {
            let checked = self.users.caller_of(&id).await?;
            return self.conclude(checked, address, &given, now);
        }
        let _turn = self.web.parts.sign_in_limiter.turn(address).await;
        let now = self.web.clock.now();
        if let Some(wait) = self.web.parts.sign_in_limiter.wait(address, now) {
            return Err(SignInRefusal::Later(wait.num_seconds() + 1));
        }
        if self
            .web
            .parts
            .sign_in_limiter
            .was_wrong(address, &given, now)
        {
            return Err(SignInRefusal::Unauthorized);
        }
        // The password may have been replaced during the wait.
        let id = self.users.username(&user).await?;
        let checked = self.check(id.as_ref(), &password).await?;
        self.conclude(checked, address, &given, now)
    }

    /// Counts the outcome of a check.
    fn conclude(
        &self,
        checked: CheckedPassword,
        address: Option<IpAddr>,
        given: &str,
        now: DateTime<Utc>,
    ) -> Result<AccountCaller, SignInRefusal> {
        match checked {
            CheckedPassword::Right(caller) => {
                self.web.parts.sign_in_limiter.record_success(address, now);
                Ok(caller)
            }
            CheckedPassword::Inactive => Err(SignInRefusal::Inactive),
            CheckedPassword::Wrong => {
                if let Some(wrong) = self
                    .web
                    .parts
                    .sign_in_limiter
                    .record_failure(address, given, now)
                {
                    let remote = address.map(tracing::field::display);
                    warn!(remote, wrong, "Wrong user name or password of an account");
                }
                Err(SignInRefusal::Unauthorized)
            }
        }
    }
}

/// Returns the external ID of the user name, which has the password.
fn username_of(external_ids: &[ExternalId]) -> Option<&ExternalId> {
    external_ids
        .iter()
        .find(|id| id.key.as_username().is_some())
}

impl AccountCaller {
    /// Returns the own account.
    pub(super) fn own(&self) -> Option<&AccountRow> {
        match self {
            Self::Administrator(_) => None,
            Self::Account { row, .. } => Some(row),
        }
    }

    /// Returns true if the caller has this power over all accounts.
    pub(super) fn has(&self, capability: Capability) -> bool {
        match self {
            Self::Administrator(_) => true,
            Self::Account { access, .. } => access.has(capability),
        }
    }

    /// Returns true if the caller may fetch a ref.
    pub(super) fn may_read(&self, name: AllUsersRef) -> bool {
        match self {
            Self::Administrator(_) => true,
            Self::Account { row, access, .. } => access.may_read(name, row.number),
        }
    }

    /// Returns true if the caller may push to a ref.
    pub(super) fn may_push(&self, name: AllUsersRef) -> bool {
        match self {
            Self::Administrator(_) => true,
            Self::Account { row, access, .. } => access.may_push(name, row.number),
        }
    }

    /// Returns true if the caller may do to an account what takes a capability. Nobody gets the power of an account by
    /// changing it.
    pub(super) fn may_change(&self, account: AccountId, capability: Capability) -> bool {
        match self {
            Self::Administrator(_) => true,
            Self::Account { access, .. } => access.has(capability) && !access.is_below(account),
        }
    }

    /// Returns the addresses that commits of the caller may have as committer. `host` is the name of this server.
    pub(super) fn addresses(&self, host: &str) -> Vec<String> {
        match self {
            Self::Administrator(name) => vec![format!("{name}@{host}")],
            Self::Account {
                row, external_ids, ..
            } => {
                let emails = external_ids.iter().filter_map(|id| id.email.as_ref());
                let mut emails: Vec<String> =
                    emails.map(|email| email.as_str().to_owned()).collect();
                // The preferred one is the one that a message suggests.
                emails.sort_by_key(|email| Some(email) != row.preferred_email.as_ref());
                emails.dedup();
                if emails.is_empty() {
                    emails.push(format!("{}@{host}", row.number));
                }
                emails
            }
        }
    }

    /// Returns the caller as the author of changes.
    pub(super) fn actor(
        &self,
        host: &str,
        origin: Origin,
        remote: Option<String>,
    ) -> AccountsActor {
        let login = match self {
            Self::Administrator(name) => name.clone(),
            Self::Account { row, .. } => match &row.username {
                Some(name) => name.clone(),
                None => row.number.to_string(),
            },
        };
        let name = match self {
            Self::Account { row, .. } => row.full_name.as_deref().unwrap_or(&login),
            Self::Administrator(_) => &login,
        };
        let address = self.addresses(host).into_iter().next().unwrap_or_default();
        let author = CommitPerson::new(name, &address);
        let actor = Actor::new(&login, origin).with_account(self.own().map(|row| row.number));
        let cause = Cause::new(actor, "").from_address(remote);
        AccountsActor {
            author,
            cause,
            expected: None,
            signed_in: match self {
                Self::Administrator(_) => None,
                Self::Account {
                    row,
                    external_ids,
                    access,
                } => Some(SignedInAccount {
                    account: row.number,
                    password: username_of(external_ids).and_then(|id| id.password.clone()),
                    access: access.commit(),
                }),
            },
        }
    }
}

impl AllUsers {
    /// Returns the external ID of a user name.
    async fn username(&self, user: &str) -> Result<Option<ExternalId>, AccountsError> {
        match ExternalIdKey::username(user) {
            Ok(key) => self.external_id(&key).await,
            Err(_) => Ok(None),
        }
    }

    /// Returns the account of a user name whose password was right. It is wrong by now if it was replaced meanwhile.
    async fn caller_of(&self, username: &ExternalId) -> Result<CheckedPassword, AccountsError> {
        let Some(row) = self.store().account_get(username.account).await? else {
            return Ok(CheckedPassword::Wrong);
        };
        let external_ids = self.external_ids(username.account).await?;
        let access = CallerAccess::new(self.access().await?, row.number);
        let present = username_of(&external_ids).and_then(|id| id.password.as_ref());
        if present != username.password.as_ref() {
            return Ok(CheckedPassword::Wrong);
        }
        if !row.active {
            return Ok(CheckedPassword::Inactive);
        }
        Ok(CheckedPassword::Right(AccountCaller::Account {
            external_ids,
            access,
            row: Box::new(row),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_by_account_and_hour() {
        let [kim, lee] = [1_000_000, 1_000_001].map(|number| AccountId::new(number).unwrap());
        let counts = HourlyCounts::of_at_most(2);
        let begin: DateTime<Utc> = "2026-03-02T09:00:00Z".parse().unwrap();
        let later = |minutes| begin + TimeDelta::minutes(minutes);
        let waits = |account, minutes| match counts.count(account, later(minutes)) {
            Ok(()) => None,
            Err(SignInRefusal::Later(seconds)) => Some(seconds),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!([waits(kim, 0), waits(kim, 1)], [None, None]);
        assert_eq!(waits(kim, 2), Some(58 * 60 + 1));
        assert_eq!(waits(lee, 3), None);
        assert_eq!(waits(kim, 59), Some(61));
        assert_eq!(waits(kim, 60), None);
    }
}
