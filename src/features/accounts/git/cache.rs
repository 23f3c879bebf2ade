//! Compares the repositories that git is served from with the database.
//!
//! The need: a request brings its repository up to date, and believes what is there already. After a crash of the machine
//! files can be cut off or missing, and a client would be the first to notice.
//!
//! - *Behind is not damaged*: a repository has the refs of its last request. Each of them has to be where the database has
//!   it, or where it was before.
//! - *No request breaks*: a repository is looked at while no request brings it up to date, and removed while none uses it.
//!   The next request makes it again.
//! - *Not everything at once*: the repository with all objects has a file for each of them. A turn goes on to further
//!   files for [`TURN`], and the next turn begins where it ended.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gix_hash::ObjectId;
use gix_object::Kind;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};
use tracing::warn;

use super::super::access::CallerAccess;
use super::super::all_users::{AccountsError, AllUsers, links};
use super::super::sign_in::AccountCaller;
use super::view::{ALL, ViewError, Views, added_up_to, find_ref};
use crate::context::ServerCtx;
use crate::git::{GitSettings, ServedPlace, ServedRepo};
use crate::kit::reconcile::{Reconciler, TickResult};

/// Time in which a turn begins to look at further repositories and objects.
const TURN: Duration = Duration::from_secs(30);
/// Maximum number of commits by which a ref is followed back. One that is further behind is taken for an older one.
const MAX_BEHIND: usize = 1_000;
/// Time between two looks of the command, in which a server finishes a change of a repository.
const PAUSE: Duration = Duration::from_secs(1);

pub(in super::super) const RECONCILER: Reconciler = Reconciler::new(
    "accounts_cache",
    "Removes repositories for git clients of accounts that differ from the database. The next request makes them again.",
    Duration::from_hours(1),
    |ctx| Box::pin(tick(ctx)),
)
.on_every_replica();

async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let users = AllUsers::new(ctx.store.clone(), "localhost");
    let places = &ctx.server.accounts_served;
    let views = Views::new(&ctx.server.git_of_accounts, places);
    let check = CacheCheck {
        users: &users,
        views: &views,
    };
    let ends_at = Instant::now() + TURN;
    let (mut names, mut first) = (check.names()?, 0);
    if let Some((name, byte)) = places.take_next_check() {
        let at = names.partition_point(|known| *known < name);
        names.rotate_left(at);
        if names.first() == Some(&name) {
            first = byte;
        }
    }
    let (mut done, mut failed) = (TickResult::default(), None);
    for name in names {
        if done.looked_at > 0 && Instant::now() >= ends_at {
            places.keep_next_check((name, 0));
            break;
        }
        done.looked_at += 1;
        match check.turn(&name, std::mem::take(&mut first), ends_at).await {
            Ok(CacheVerdict::Sound) => {}
            Ok(CacheVerdict::Removed(why)) => {
                done.repaired += 1;
                warn!(
                    name,
                    why, "Removed a repository for git clients that differed from the database"
                );
            }
            Ok(CacheVerdict::InUse(why)) => {
                warn!(
                    name,
                    why,
                    "A repository for git clients differs from the database, and is in use now"
                );
            }
            Ok(CacheVerdict::Unfinished(byte)) => {
                places.keep_next_check((name, byte));
                break;
            }
            // A file of one repository is no reason to leave the others.
            Err(error @ ViewError::File(..)) => drop(failed.get_or_insert(error)),
            Err(error) => return Err(error.into()),
        }
    }
    match failed {
        None => Ok(done),
        Some(error) => Err(error.into()),
    }
}

/// Names the repositories of a data directory that differ from the database, with the reasons. Also returns their number in
/// all. Servers may run meanwhile, also on this data directory.
pub(in super::super) async fn cache_faults(
    users: &AllUsers,
    data_dir: &Path,
) -> Result<(usize, Vec<(String, String)>), ViewError> {
    let views = Views::new(&GitSettings::new(data_dir, ""), &Arc::default());
    let check = CacheCheck {
        users,
        views: &views,
    };
    let (names, mut faults) = (check.names()?, Vec::new());
    let many = names.len();
    for name in names {
        // A server may be about to remove it.
        if check.fault(&name).await?.is_some() {
            tokio::time::sleep(PAUSE).await;
            let fault = check.fault(&name).await?;
            faults.extend(fault.map(|why| (name, why)));
        }
    }
    Ok((many, faults))
}

/// Outcome of a look at a repository.
enum CacheVerdict {
    Sound,
    /// The repository was removed for this reason.
    Removed(String),
    /// A request uses the repository, which has to be removed for this reason.
    InUse(String),
    /// The time is over. The objects whose ids begin with this byte come next.
    Unfinished(u8),
}

/// People that a repository is for.
enum ServedTo {
    Caller(AccountCaller),
    /// The account is gone, or is served from another repository because its rights have changed.
    Nobody,
    /// Tables do not say what the account may read.
    Unknown,
}

/// Repositories of a data directory, and the database.
struct CacheCheck<'a> {
    users: &'a AllUsers,
    views: &'a Views,
}

impl CacheCheck<'_> {
    /// Returns the names of all repositories, sorted.
    fn names(&self) -> Result<Vec<String>, ViewError> {
        let failed = |error| ViewError::File(self.views.dir.clone(), error);
        let entries = match std::fs::read_dir(&self.views.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_str().map(str::to_owned);
            names.extend(name.filter(|name| name == ALL || account_of(name).is_some()));
        }
        names.sort();
        Ok(names)
    }

    /// Looks at a repository, from the objects with this first byte on, and removes it if it is wrong.
    async fn turn(
        &self,
        name: &str,
        first: u8,
        ends_at: Instant,
    ) -> Result<CacheVerdict, ViewError> {
        let place = self.views.place(name);
        {
            let _turn = place.turn.lock().await;
            if let Some(why) = self.refs_fault(name).await? {
                return self.remove(&place, name, why);
            }
        }
        let mut known = HashSet::new();
        for byte in first..=u8::MAX {
            // Requests get their turn in between.
            let _turn = place.turn.lock().await;
            if let Some(why) = self.objects_fault(name, byte, &mut known).await? {
                return self.remove(&place, name, why);
            }
            if byte < u8::MAX && Instant::now() >= ends_at {
                return Ok(CacheVerdict::Unfinished(byte + 1));
            }
        }
        Ok(CacheVerdict::Sound)
    }

    /// Removes a repository whose turn the caller has, unless a request uses it.
    fn remove(
        &self,
        place: &ServedPlace,
        name: &str,
        why: String,
    ) -> Result<CacheVerdict, ViewError> {
        let Ok(_alone) = place.users.try_write() else {
            return Ok(CacheVerdict::InUse(why));
        };
        self.views.remove_dir(name)?;
        Ok(CacheVerdict::Removed(why))
    }

    /// Looks at all of a repository, and returns what is wrong with it.
    async fn fault(&self, name: &str) -> Result<Option<String>, ViewError> {
        if let Some(why) = self.refs_fault(name).await? {
            return Ok(Some(why));
        }
        let mut known = HashSet::new();
        for byte in 0..=u8::MAX {
            if let Some(why) = self.objects_fault(name, byte, &mut known).await? {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    /// Compares the refs, as git would show them, with those that the database says the caller may read.
    async fn refs_fault(&self, name: &str) -> Result<Option<String>, ViewError> {
        let repo = self.repo(name);
        if !repo.dir().exists() {
            return Ok(None);
        }
        let caller = match self.served_to(name).await? {
            ServedTo::Caller(caller) => caller,
            ServedTo::Nobody => return Ok(Some("nobody is served from it any more".to_owned())),
            ServedTo::Unknown => return Ok(None),
        };
        let refs = match repo.present_refs() {
            Ok(refs) => refs,
            Err(damage) => return Ok(Some(damage.to_string())),
        };
        let wanted = self.views.readable(self.users, &caller).await?;
        for (name, id) in refs {
            let now = find_ref(&wanted, &name);
            if now != Some(id) && !self.was_at(&caller, &name, now, id).await? {
                let why = format!("it has {name} at {id}, where the database never had it");
                return Ok(Some(why));
            }
            // Shared objects are looked at where they are.
            if !caller.shares_objects() && !repo.has(id) {
                return Ok(Some(format!("the object {id} of {name} is missing")));
            }
        }
        Ok(None)
    }

    /// Returns true if a ref that is at `now` was at `id` before, and the caller could read it there.
    async fn was_at(
        &self,
        caller: &AccountCaller,
        name: &str,
        now: Option<ObjectId>,
        id: ObjectId,
    ) -> Result<bool, ViewError> {
        let store = self.users.store();
        let Ok(name) = name.parse::<AllUsersRef>() else {
            return Ok(false);
        };
        let mut objects = store.account_readable_objects([id]).await?;
        let Some(object) = objects.pop().filter(|_| caller.may_read_or_owns(name)) else {
            return Ok(false);
        };
        match name {
            // They have no history.
            AllUsersRef::StarredChange(..) | AllUsersRef::AccountSequence => {
                return Ok(object.kind == Kind::Blob);
            }
            AllUsersRef::User(_)
            | AllUsersRef::UserSelf
            | AllUsersRef::UserDefault
            | AllUsersRef::ExternalIds
            | AllUsersRef::Config => {}
        }
        let Some(mut at) = now else {
            return Ok(object.kind == Kind::Commit);
        };
        for _ in 0..MAX_BEHIND {
            if at == id {
                return Ok(true);
            }
            // A commit that the database has lost is no fault of the repository.
            let Some(commit) = store.account_readable_objects([at]).await?.pop() else {
                return Ok(true);
            };
            match links(&commit)?.get(1) {
                Some(parent) => at = *parent,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Reads the objects whose ids begin with a byte, and looks for those that they lead to.
    async fn objects_fault(
        &self,
        name: &str,
        byte: u8,
        known: &mut HashSet<ObjectId>,
    ) -> Result<Option<String>, ViewError> {
        let repo = self.repo(name);
        if account_of(name).is_some_and(|(_, shares_objects)| shares_objects) {
            return Ok(None);
        }
        let (there, mut found) = (repo.clone(), std::mem::take(known));
        let look = tokio::task::spawn_blocking(move || {
            let missing = there.check_objects(byte, &mut found);
            (missing, found)
        });
        let (missing, found) = match look.await {
            Ok(looked) => looked,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        *known = found;
        let missing = match missing {
            Ok(missing) => missing,
            Err(damage) => return Ok(Some(damage.to_string())),
        };
        for object in missing {
            // A server may have added it by now.
            if repo.has(object.id) || name == ALL && self.is_to_come(&repo, object.id).await? {
                continue;
            }
            let why = format!(
                "the object {} is missing, to which {} leads",
                object.id, object.of
            );
            return Ok(Some(why));
        }
        Ok(None)
    }

    /// Returns true if the next request adds an object to the repository with all of them, because it was not added yet. A
    /// request that failed can have added objects that lead to it.
    async fn is_to_come(&self, repo: &ServedRepo, id: ObjectId) -> Result<bool, ViewError> {
        let update = self.users.store().account_object_update(id).await?;
        let added = added_up_to(self.users, repo).await?;
        Ok(update.is_some_and(|update| (update, id) > added))
    }

    async fn served_to(&self, name: &str) -> Result<ServedTo, AccountsError> {
        let Some((account, _)) = account_of(name) else {
            return Ok(ServedTo::Caller(
                AccountCaller::Administrator(String::new()),
            ));
        };
        let store = self.users.store();
        let Some(row) = store.account_get(account).await? else {
            let branch = AllUsersRef::User(account).to_string();
            return Ok(match store.account_ref(&branch).await? {
                Some(_) => ServedTo::Unknown,
                None => ServedTo::Nobody,
            });
        };
        let caller = AccountCaller::Account {
            row: Box::new(row),
            external_ids: Vec::new(),
            access: CallerAccess::new(self.users.access().await?, account),
        };
        Ok(if caller.view_name() == name {
            ServedTo::Caller(caller)
        } else {
            ServedTo::Nobody
        })
    }

    fn repo(&self, name: &str) -> ServedRepo {
        ServedRepo::at(&self.views.settings, self.views.dir.join(name))
    }
}

/// Returns the account that a repository is for, and whether its objects are those of the one with all of them.
fn account_of(name: &str) -> Option<(AccountId, bool)> {
    let name = name.strip_suffix(".git")?;
    let (number, shares_objects) = match name.strip_suffix("-all") {
        Some(number) => (number, true),
        None => (name, false),
    };
    Some((number.parse().ok()?, shares_objects))
}
