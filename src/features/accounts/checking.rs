//! Checks all accounts from time to time, and makes the tables again if they differ from the branches.

use std::time::Duration;

use anyhow::bail;
use lockkeeper_accounts::objects::CommitPerson;
use tracing::{info, warn};

use super::all_users::{AccountsActor, AllUsers};
use super::check::CheckedCopy;
use super::cli::counted;
use super::reindex::BranchesAndTables;
use crate::context::ServerCtx;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::model::{Actor, Cause, Origin};

/// Number of problems that a failure names.
const NAMED: usize = 3;

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "accounts",
    "Checks all accounts by every rule, and makes their tables again if they differ from the branches.",
    Duration::from_hours(1),
    |ctx| Box::pin(tick(ctx)),
);

async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let users = AllUsers::new(ctx.store.clone(), "localhost");
    users.check().await
}

impl AllUsers {
    /// Checks all accounts. The branches decide: tables that differ from them are made again, and a problem of a branch is
    /// a failure until somebody has corrected it. It does not keep the tables of others from being made again.
    pub async fn check(&self) -> anyhow::Result<TickResult> {
        let state = self.branches_and_tables().await?;
        if state.tables.refs.is_empty() {
            return Ok(TickResult::default());
        }
        let (state, branches, tables) = tokio::task::spawn_blocking(move || checked(state)).await?;
        let mut done = TickResult {
            looked_at: state.copy.users.len() as u64,
            repaired: 0,
        };
        if tables.errors().next().is_some() {
            for error in tables.errors().take(NAMED) {
                let line = error.to_string();
                // The way out is what happens now.
                let problem = line.split("; ").next();
                warn!(problem, "The tables of accounts differ from the branches");
            }
            // An account that has changed in between is checked again by the next turn.
            let reindexed = self.reindex(&reconciler(), &state).await?;
            done.repaired = reindexed.written as u64;
            info!(
                accounts = reindexed.written,
                "Made tables of accounts again"
            );
        }
        let broken = branches.errors().count();
        if broken > 0 {
            let first = branches.errors().take(NAMED);
            let first: Vec<String> = first.map(ToString::to_string).collect();
            bail!(
                "the accounts break {}: {}. `lockkeeper accounts check` names all",
                counted(broken, "rule"),
                first.join(". ")
            );
        }
        Ok(done)
    }
}

/// Returns the state, and the problems of the branches and of the tables.
fn checked(state: BranchesAndTables) -> (BranchesAndTables, CheckedCopy, CheckedCopy) {
    let branches = CheckedCopy::of_server(&state.copy);
    let tables = CheckedCopy::of_tables(&state.copy, &state.tables);
    (state, branches, tables)
}

fn reconciler() -> AccountsActor {
    AccountsActor {
        author: CommitPerson::new("Lockkeeper", "lockkeeper@localhost"),
        cause: Cause::new(Actor::lockkeeper(Origin::Reconciler), ""),
        expected: None,
        signed_in: None,
    }
}
