//! Reviewed flags: an account has looked at a file of a patch set, or at a resource of a plan. Only the account sees them.
//!
//! They are rows and no commits, because a person sets thousands of them. The rows are in the database of the server, or
//! in another one that `--reviewed-flags-url` names.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use lockkeeper_accounts::refs::AccountId;

use super::patch_sets::PatchSet;
use super::stars::change_number;
use super::store::{account_id, damaged};
use crate::clock::{Clock, Ids};
use crate::context::ServerCtx;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::model::PlanId;
use crate::store::{DatabaseUrl, Result, Store, execute_alone, on_pool};

/// Maximum number of flags of an account on one patch set or one plan.
const MAX_FLAGS: i64 = 10_000;
/// Maximum number of flags of an account.
const MAX_OF_ACCOUNT: i64 = 100_000;
/// Maximum length of a path or an address in bytes.
pub(super) const MAX_ITEM: usize = 1_024;

/// Setting that names the server to which flags belong, in its database and in that of the flags.
const OWNER: &str = "owner of reviewed flags";

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "reviewed_flags",
    "Removes the reviewed flags of accounts and plans that do not exist any more.",
    Duration::from_hours(1),
    |ctx| Box::pin(tick(ctx)),
);

/// Files or resources that flags are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reviewed {
    /// Files of a patch set.
    Files(PatchSet),
    /// Resources of a plan.
    Resources(PlanId),
}

/// Files of a patch set, or resources of a plan, on which an account has flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagCount {
    pub of: Reviewed,
    /// Number of flags there, of one account.
    pub flags: u64,
}

/// Outcome of setting a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagSet {
    /// The flag is new.
    New,
    /// The flag was set before.
    Same,
    /// The account has the maximum number of flags, there or in all; nothing was changed.
    Full,
}

/// A store of reviewed flags.
#[async_trait]
pub trait ReviewedFlags: Send + Sync {
    /// Sets the flag of a file or resource.
    async fn flag_set(&self, account: AccountId, of: Reviewed, item: &str) -> Result<FlagSet>;

    /// Removes a flag. `false`: it was not set.
    async fn flag_clear(&self, account: AccountId, of: Reviewed, item: &str) -> Result<bool>;

    /// Lists the files or resources with a flag, sorted by bytes.
    async fn flag_list(&self, account: AccountId, of: Reviewed) -> Result<Vec<String>>;

    /// Lists the patch sets and plans on which an account has flags, those of the lowest change first, then plans.
    async fn flag_counts(&self, account: AccountId) -> Result<Vec<FlagCount>>;

    /// Lists the plans on whose resources an account has flags.
    async fn flag_plans(&self, account: AccountId) -> Result<Vec<PlanId>>;

    /// Returns the account with flags that has the lowest number above another one.
    async fn flag_account_after(&self, account: Option<AccountId>) -> Result<Option<AccountId>>;

    /// Removes all flags of an account on one patch set or plan.
    async fn flag_remove(&self, account: AccountId, of: Reviewed) -> Result<()>;

    /// Removes all flags of an account.
    async fn flag_remove_all(&self, account: AccountId) -> Result<()>;
}

impl Reviewed {
    /// Reads the key columns `change_number`, `patch_set` and `plan`. `None`: they stand for nothing.
    fn read(change: i64, patch_set: i64, plan: &str) -> Option<Self> {
        if change == 0 {
            return plan.parse().ok().map(Self::Resources);
        }
        Some(Self::Files(PatchSet {
            change: change_number(change).ok()?,
            number: u32::try_from(patch_set).ok()?,
        }))
    }

    /// Returns the values of the key columns `change_number`, `patch_set` and `plan`.
    fn columns(self) -> (i64, i64, String) {
        match self {
            Self::Files(of) => (
                i64::from(of.change.get()),
                i64::from(of.number),
                String::new(),
            ),
            Self::Resources(plan) => (0, 0, plan.to_string()),
        }
    }
}

/// The table `reviewed_flags`, in the database of the server or in another one.
#[derive(Clone)]
pub struct FlagTable {
    store: Store,
}

impl FlagTable {
    /// Uses the table in a database.
    pub fn of(store: Store) -> Self {
        Self { store }
    }
}

/// Opens the database of `--reviewed-flags-url`, and creates its table. Flags name accounts and plans by numbers of one
/// server, so the database belongs to the first server that uses it, and its replicas.
pub async fn open_flags(
    url: &DatabaseUrl,
    server: &Store,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
) -> anyhow::Result<Store> {
    let fresh = ids.next().to_string();
    let flags = Store::open_reviewed_flags(url, clock, ids);
    let flags = flags.await.with_context(|| {
        format!(
            "cannot open the database {url} (--reviewed-flags-url). It must have no tables of anything else, and on a \
             server it has to exist"
        )
    })?;
    let id = server.setting_get_or_insert(OWNER, &fresh).await?;
    let owner = flags.setting_get_or_insert(OWNER, &id).await?;
    ensure!(
        owner == id,
        "the database {url} (--reviewed-flags-url) has the flags of another server. Name an empty database"
    );
    Ok(flags)
}

#[async_trait]
impl ReviewedFlags for FlagTable {
    async fn flag_set(&self, account: AccountId, of: Reviewed, item: &str) -> Result<FlagSet> {
        let (change, patch_set, plan) = of.columns();
        let account = i64::from(account.get());
        loop {
            let rows = execute_alone!(
                self.store,
                "INSERT INTO reviewed_flags (account, change_number, patch_set, plan, item) SELECT $1, $2, $3, $4, $5 \
                 WHERE (SELECT COUNT(*) FROM reviewed_flags WHERE account = $1 AND change_number = $2 \
                 AND patch_set = $3 AND plan = $4) < $6 \
                 AND (SELECT COUNT(*) FROM reviewed_flags WHERE account = $1) < $7 ON CONFLICT DO NOTHING",
                account,
                change,
                patch_set,
                &plan,
                item,
                MAX_FLAGS,
                MAX_OF_ACCOUNT
            )?;
            if rows > 0 {
                return Ok(FlagSet::New);
            }
            let (is_set, there, in_all) = on_pool!(self.store, db => sqlx::query_as::<_, (i64, i64, i64)>(
                "SELECT (SELECT COUNT(*) FROM reviewed_flags WHERE account = $1 AND change_number = $2 \
                 AND patch_set = $3 AND plan = $4 AND item = $5), \
                 (SELECT COUNT(*) FROM reviewed_flags WHERE account = $1 AND change_number = $2 AND patch_set = $3 \
                 AND plan = $4), (SELECT COUNT(*) FROM reviewed_flags WHERE account = $1)")
                .bind(account).bind(change).bind(patch_set).bind(&plan).bind(item).fetch_one(db))?;
            if is_set > 0 {
                return Ok(FlagSet::Same);
            }
            if there >= MAX_FLAGS || in_all >= MAX_OF_ACCOUNT {
                return Ok(FlagSet::Full);
            }
            // It was removed in between.
        }
    }

    async fn flag_clear(&self, account: AccountId, of: Reviewed, item: &str) -> Result<bool> {
        let (change, patch_set, plan) = of.columns();
        let rows = execute_alone!(
            self.store,
            "DELETE FROM reviewed_flags WHERE account = $1 AND change_number = $2 AND patch_set = $3 AND plan = $4 \
             AND item = $5",
            i64::from(account.get()),
            change,
            patch_set,
            &plan,
            item
        )?;
        Ok(rows > 0)
    }

    async fn flag_list(&self, account: AccountId, of: Reviewed) -> Result<Vec<String>> {
        let (change, patch_set, plan) = of.columns();
        let mut items = on_pool!(self.store, db => sqlx::query_scalar::<_, String>(
            "SELECT item FROM reviewed_flags WHERE account = $1 AND change_number = $2 AND patch_set = $3 AND plan = $4")
            .bind(i64::from(account.get())).bind(change).bind(patch_set).bind(&plan).fetch_all(db))?;
        // PostgreSQL sorts texts by the rules of its locale.
        items.sort_unstable();
        Ok(items)
    }

    async fn flag_counts(&self, account: AccountId) -> Result<Vec<FlagCount>> {
        let rows = on_pool!(self.store, db => sqlx::query_as::<_, (i64, i64, String, i64)>(
            "SELECT change_number, patch_set, plan, COUNT(*) FROM reviewed_flags WHERE account = $1 \
             GROUP BY change_number, patch_set, plan ORDER BY change_number = 0, change_number, patch_set, plan")
            .bind(i64::from(account.get())).fetch_all(db))?;
        let counts = rows.into_iter().map(|(change, patch_set, plan, flags)| {
            let of = Reviewed::read(change, patch_set, &plan).ok_or_else(|| {
                damaged(format!(
                    "a flag is on the patch set {patch_set} of the change {change} and the plan `{plan}`"
                ))
            })?;
            let flags = u64::try_from(flags).unwrap_or_default();
            Ok(FlagCount { of, flags })
        });
        counts.collect()
    }

    async fn flag_plans(&self, account: AccountId) -> Result<Vec<PlanId>> {
        on_pool!(self.store, db => sqlx::query_scalar::<_, PlanId>(
            "SELECT DISTINCT plan FROM reviewed_flags WHERE account = $1 AND change_number = 0 AND patch_set = 0")
            .bind(i64::from(account.get())).fetch_all(db))
    }

    async fn flag_account_after(&self, account: Option<AccountId>) -> Result<Option<AccountId>> {
        let after = account.map_or(0, |account| i64::from(account.get()));
        let next = on_pool!(self.store, db => sqlx::query_scalar::<_, Option<i64>>(
            "SELECT MIN(account) FROM reviewed_flags WHERE account > $1")
            .bind(after).fetch_one(db))?;
        next.map(account_id).transpose()
    }

    async fn flag_remove(&self, account: AccountId, of: Reviewed) -> Result<()> {
        let (change, patch_set, plan) = of.columns();
        execute_alone!(
            self.store,
            "DELETE FROM reviewed_flags WHERE account = $1 AND change_number = $2 AND patch_set = $3 AND plan = $4",
            i64::from(account.get()),
            change,
            patch_set,
            &plan
        )
        .map(drop)
    }

    async fn flag_remove_all(&self, account: AccountId) -> Result<()> {
        // Not all at once, because others wait to write.
        for count in self.flag_counts(account).await? {
            self.flag_remove(account, count.of).await?;
        }
        Ok(())
    }
}

async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    // Flags from before --reviewed-flags-url may still be in the database of the server.
    let mut done = TickResult::default();
    for store in [&ctx.store].into_iter().chain(&ctx.server.flag_store) {
        let flags = FlagTable::of(store.clone());
        let more = remove_orphaned_flags(&flags, &ctx.store).await?;
        done.looked_at += more.looked_at;
        done.repaired += more.repaired;
    }
    Ok(done)
}

/// Removes the flags of accounts that were deleted, whose numbers are never given again, and those on resources of plans
/// whose records are gone. Counts accounts and plans.
pub async fn remove_orphaned_flags(
    flags: &dyn ReviewedFlags,
    store: &Store,
) -> anyhow::Result<TickResult> {
    let mut done = TickResult::default();
    let mut last = None;
    while let Some(account) = flags.flag_account_after(last).await? {
        last = Some(account);
        done.looked_at += 1;
        if store.account_get(account).await?.is_none() {
            flags.flag_remove_all(account).await?;
            done.repaired += 1;
            continue;
        }
        for plan in flags.flag_plans(account).await? {
            done.looked_at += 1;
            if !store.plan_is_stored(plan).await? {
                flags
                    .flag_remove(account, Reviewed::Resources(plan))
                    .await?;
                done.repaired += 1;
            }
        }
    }
    Ok(done)
}
