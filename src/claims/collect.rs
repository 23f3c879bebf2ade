//! Removes claims that nothing refers to.
//!
//! Normally there are none. If somebody acquired a claim and nothing refers to it, the claim keeps other owners from the
//! repository until it is removed here.

use tracing::warn;

use crate::store::{ClaimCollection, Store};

/// Maximum number of claims checked in one round. The next round takes the rest.
const MOST: i64 = 1000;

/// Result of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    /// Claims that nothing referred to at first.
    pub unused: u64,
    /// Number of claims that are gone. The others got a reference in the meantime.
    pub removed: u64,
}

/// Runs one round. Each claim has its own transaction, so that a claim that must stay or cannot be removed does not
/// prevent the removal of others.
///
/// # Errors
///
/// The error of the first claim that could not be removed, with the number of further failures.
pub async fn collect(store: &Store) -> anyhow::Result<Collection> {
    let (mut done, mut failures) = (Collection::default(), Vec::new());
    for id in store.claim_list_unused(MOST).await? {
        done.unused += 1;
        match store.claim_collect(id).await {
            Ok(collected) => done.removed += u64::from(collected == ClaimCollection::Gone),
            Err(error) => {
                warn!(claim = %id, %error, "Cannot remove a claim that nothing refers to");
                failures.push(
                    anyhow::Error::new(error)
                        .context(format!("cannot remove the unused claim {id}")),
                );
            }
        }
    }
    let others = failures.len().saturating_sub(1);
    match failures.into_iter().next() {
        None => Ok(done),
        Some(first) if others == 0 => Err(first),
        Some(first) => Err(first.context(format!("cannot remove {others} more claims"))),
    }
}
