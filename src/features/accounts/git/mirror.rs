//! Pushes all accounts to the repository of `--accounts-mirror-to`.
//!
//! The need: after each update, a copy on another server has the same refs, and no crash and no failure of that server
//! may leave it behind for good.
//!
//! - *Nothing is remembered on the disk*: the newest update is compared with the one that this process has pushed. A
//!   server that starts, or gets the turn from another one, compares its refs with those of the copy.
//! - *No older state*: the refs of the copy are read first, then those of the database, and each ref is moved only from
//!   where it was read. A server that was paused in between moves nothing that another one has moved meanwhile. Only a
//!   ref that has come back to the object it had before, as a star can, looks as if nobody had moved it; the comparison
//!   of every hour corrects that.
//! - *Only what is ours*: other refs of the repository, such as `refs/heads/main`, stay as they are.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::{Context, bail};
use gix_hash::ObjectId;
use lockkeeper_accounts::refs::AllUsersRef;
use tracing::warn;

use super::super::all_users::AllUsers;
use super::super::sign_in::AccountCaller;
use super::view::{View, Views};
use crate::config::server::{AccountsMirrorAccess, AccountsMirrorConfig};
use crate::context::{AccountsMirror, MirroredAccounts, ServerCtx};
use crate::credential::SshAccess;
use crate::forges::{GitCredentials, SshLogin};
use crate::git::{GitError, RefName, Remote, RemoteMove, ServedRepo};
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::secret::Secret;

/// Time after which the copy is compared although no account was changed, because somebody may have changed the copy.
const COMPARE_EVERY: Duration = Duration::from_hours(1);
/// Refs and directories of refs that the copy has from this server.
const OURS: [&str; 5] = [
    "refs/users/",
    "refs/meta/external-ids",
    "refs/meta/config",
    "refs/starred-changes/",
    "refs/sequences/accounts",
];
/// Directory of the branches of accounts.
const BRANCHES: &str = "refs/users/";
/// Number of refs that a warning names.
const NAMED: usize = 3;

pub(in super::super) const RECONCILER: Reconciler = Reconciler::new(
    "accounts_mirror",
    "Pushes changes of accounts to the repository of --accounts-mirror-to.",
    Duration::from_secs(10),
    |ctx| Box::pin(tick(ctx)),
)
.backing_off();

async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let Some(mirror) = &ctx.server.accounts_mirror else {
        return Ok(TickResult::default());
    };
    let newest = *mirror.newest.lock().unwrap_or_else(PoisonError::into_inner);
    let now = MirroredAccounts {
        number: ctx.store.account_update_number().await?,
        compared_at: ctx.clock.now(),
    };
    let is_fresh = |newest: MirroredAccounts| {
        newest.number == now.number && now.compared_at < newest.compared_at + COMPARE_EVERY
    };
    if newest.is_some_and(is_fresh) {
        return Ok(TickResult::default());
    }
    let done = push(ctx, mirror, newest, now.number).await?;
    *mirror.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    Ok(done)
}

/// Makes the refs of the copy equal to ours.
async fn push(
    ctx: &ServerCtx,
    mirror: &AccountsMirror,
    newest: Option<MirroredAccounts>,
    number: i64,
) -> anyhow::Result<TickResult> {
    let (settings, config) = (&ctx.server.git_of_accounts, &mirror.config);
    let failed = || {
        let by = match &config.access {
            AccountsMirrorAccess::Open => String::new(),
            AccountsMirrorAccess::Token { file, .. } => {
                format!(" with the token in {}", file.display())
            }
            AccountsMirrorAccess::Ssh {
                key, known_hosts, ..
            } => format!(
                " with the key in {} and the known hosts in {}",
                key.display(),
                known_hosts.display()
            ),
        };
        format!(
            "cannot push the accounts to {} (--accounts-mirror-to){by}",
            config.url
        )
    };
    let credentials = credentials(mirror).await.with_context(failed)?;
    let url = git_url(config);
    let remote = Remote {
        url: &url,
        credentials: credentials.as_ref(),
        deadline: ctx.settings.sync.fetch_timeout,
    };
    let mut theirs = remote.refs(settings).await.with_context(failed)?;
    theirs.retain(|name, _| is_ours(name));

    let users = AllUsers::new(ctx.store.clone(), "localhost");
    let views = Views::new(settings, &ctx.server.accounts_served);
    let caller = AccountCaller::Administrator(String::new());
    let view = views.of(&users, &caller).await?;
    if newest.is_none() && is_foreign(&theirs, &view.repo) {
        bail!(
            "{}: it has accounts that this server has never had. Use an empty repository, or fill this server from it \
             (`lockkeeper accounts import git`). If the accounts there may be replaced, remove their branches below \
             {BRANCHES} first",
            failed()
        );
    }
    let moves = moves(&view, &theirs)?;
    let is_pushed = newest.is_some_and(|newest| newest.number == number);
    let is_quiet = is_pushed && ctx.store.account_update_number().await? == number;
    warn_of_changes(&moves, |id| {
        is_quiet || id.is_some_and(|id| !view.repo.has(id))
    });
    match view.repo.push(&remote, &moves).await {
        Err(error @ GitError::Corrupt { .. }) => {
            warn!("The copy of All-Users that is pushed is damaged and is made again");
            drop(view);
            views.anew(&users, &caller).await?;
            return Err(error).with_context(failed);
        }
        pushed => pushed.with_context(failed)?,
    }
    Ok(TickResult {
        looked_at: view.refs.len() as u64,
        repaired: moves.len() as u64,
    })
}

/// Returns the refs of the copy that differ from ours. Branches of accounts come first: if the push has so many refs
/// that it is made in parts, no external ID is there before its account.
fn moves(view: &View, theirs: &BTreeMap<RefName, ObjectId>) -> anyhow::Result<Vec<RemoteMove>> {
    let mut ours = BTreeMap::new();
    for (name, id) in view.refs.iter() {
        ours.insert(RefName::new(name)?, *id);
    }
    ours.retain(|name, _| is_ours(name));
    let gone = theirs.keys().filter(|name| !ours.contains_key(name));
    let differing = ours.keys().chain(gone).map(|name| RemoteMove {
        name: name.clone(),
        from: theirs.get(name).copied(),
        to: ours.get(name).copied(),
    });
    let mut moves: Vec<RemoteMove> = differing.filter(|one| one.from != one.to).collect();
    moves.sort_by(|a, b| b.name.cmp(&a.name));
    Ok(moves)
}

/// Logs refs of the copy that somebody else has changed, and which are replaced now.
fn warn_of_changes(moves: &[RemoteMove], is_changed: impl Fn(Option<ObjectId>) -> bool) {
    let changed = moves.iter().filter(|one| is_changed(one.from));
    let refs: Vec<String> = changed
        .map(|one| match one.from {
            Some(id) => format!("{} at {id}", one.name),
            None => format!("{}, removed", one.name),
        })
        .collect();
    if !refs.is_empty() {
        warn!(
            count = refs.len(),
            refs = refs[..refs.len().min(NAMED)].join("; "),
            "Somebody else has changed the copy of the accounts; their changes are replaced"
        );
    }
}

/// Returns true if the copy has branches of accounts, and this server knows none of them.
fn is_foreign(theirs: &BTreeMap<RefName, ObjectId>, repo: &ServedRepo) -> bool {
    let branches = theirs
        .iter()
        .filter(|(name, _)| name.as_str().starts_with(BRANCHES));
    let mut branches = branches.peekable();
    branches.peek().is_some() && branches.all(|(_, id)| !repo.has(*id))
}

fn is_ours(name: &RefName) -> bool {
    let name = name.as_str();
    let is_below = |ours: &str| match ours.strip_suffix('/') {
        Some(_) => name.starts_with(ours),
        None => name == ours,
    };
    // A Lockkeeper or a Gerrit server lists it, but nobody can move it there.
    name != AllUsersRef::UserSelf.to_string() && OURS.into_iter().any(is_below)
}

/// Returns the URL for git. With a key, git uses SSH for it (`git/ssh.rs`).
fn git_url(config: &AccountsMirrorConfig) -> String {
    match &config.access {
        AccountsMirrorAccess::Open | AccountsMirrorAccess::Token { .. } => config.url.to_string(),
        AccountsMirrorAccess::Ssh { .. } => {
            format!("https://{}{}", host(config), config.url.path())
        }
    }
}

fn host(config: &AccountsMirrorConfig) -> &str {
    config.url.host_str().unwrap_or_default()
}

/// Reads the credentials from their files.
async fn credentials(mirror: &AccountsMirror) -> anyhow::Result<Option<GitCredentials>> {
    match &mirror.config.access {
        AccountsMirrorAccess::Open => Ok(None),
        AccountsMirrorAccess::Token { user, file } => {
            let token = Secret::new(&read(file).await?);
            Ok(Some(GitCredentials::new(user.clone(), token)))
        }
        AccountsMirrorAccess::Ssh {
            user,
            port,
            key,
            known_hosts,
        } => {
            let access = SshAccess {
                user: user.clone(),
                port: *port,
                key: Secret::new(&read(key).await?),
                known_hosts: read(known_hosts).await?,
            };
            let login = SshLogin::new(&access, host(&mirror.config), &mirror.scratch)
                .context("cannot store the key for the time of the push")?;
            Ok(Some(GitCredentials {
                of_owner: false,
                ..GitCredentials::by_ssh(login)
            }))
        }
    }
}

async fn read(file: &Path) -> anyhow::Result<String> {
    let text = tokio::fs::read_to_string(file).await;
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    if text.trim().is_empty() {
        bail!("the file {} is empty", file.display());
    }
    Ok(text)
}
