//! Removes claims that nothing refers to.
//!
//! None should ever be left over; one that was, because somebody acquired it and never made anything refer to it, keeps
//! other owners from the repository until it is removed here.

use crate::store::{Collected, Result, Store};

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

/// One round. Each claim is a transaction of its own, so that one that must stay keeps none of the others.
pub async fn collect(store: &Store) -> Result<Collection> {
    let mut done = Collection::default();
    for id in store.claim_list_unused(MOST).await? {
        done.unused += 1;
        done.removed += u64::from(store.claim_collect(id).await? == Collected::Gone);
    }
    Ok(done)
}
