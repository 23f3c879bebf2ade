//! Numbers for new accounts. A process takes several at a time from the sequence (`refs/sequences/accounts`), and gives
//! them from memory. A crash leaves a gap, and never a number that is given twice.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use lockkeeper_accounts::refs::AccountId;

/// Numbers that this process has taken from the sequence.
pub(super) struct AccountNumbers {
    /// Number of those that are taken at a time.
    pub(super) batch: u32,
    left: Mutex<Range<u32>>,
}

impl AccountNumbers {
    pub(super) fn new(batch: u32) -> Self {
        Self {
            batch: batch.max(1),
            left: Mutex::new(0..0),
        }
    }

    /// Takes the next number. If the update that needs it is refused, nobody gets it.
    pub(super) fn take(&self) -> Option<AccountId> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        AccountId::new(left.next()?)
    }

    /// Keeps numbers that an update has taken from the sequence and not used.
    pub(super) fn keep(&self, taken: Range<u32>) {
        if !taken.is_empty() {
            *self.left.lock().unwrap_or_else(PoisonError::into_inner) = taken;
        }
    }

    /// Forgets all numbers, because the sequence is not where it was when they were taken.
    pub(super) fn forget(&self) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = 0..0;
    }
}
