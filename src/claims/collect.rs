//! Removes claims that nothing refers to.
//!
//! None should ever be left over; one that was, because somebody acquired it and never made anything refer to it, keeps
//! other owners from the repository until it is removed here.

use tracing::warn;

use crate::store::{Collected, Store};

/// Claims looked at in one round. What is left over waits for the next.
const MOST: i64 = 1000;

/// What a round came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    /// Claims that nothing referred to at first sight.
    pub unused: u64,
    /// Those of them that are gone. Something came to refer to the others in between, or somebody else removed them.
    pub removed: u64,
}

/// One round. Each claim is a transaction of its own, so that one that must stay, or cannot be removed, keeps none of the
/// others.
///
/// # Errors
///
/// The first of the claims that could not be looked after, and how many more there are.
pub async fn collect(store: &Store) -> anyhow::Result<Collection> {
    let (mut done, mut failures) = (Collection::default(), Vec::new());
    for id in store.claim_list_unused(MOST).await? {
        done.unused += 1;
        match store.claim_collect(id).await {
            Ok(collected) => done.removed += u64::from(collected == Collected::Gone),
            Err(error) => {
                warn!(claim = %id, %error, "Cannot remove a claim that nothing refers to");
                failures.push(
                    anyhow::Error::new(error)
                        .context(format!("the claim {id} could not be looked after")),
                );
            }
        }
    }
    let others = failures.len().saturating_sub(1);
    match failures.into_iter().next() {
        None => Ok(done),
        Some(first) if others == 0 => Err(first),
        Some(first) => Err(first.context(format!("{others} more claims failed as well"))),
    }
}
