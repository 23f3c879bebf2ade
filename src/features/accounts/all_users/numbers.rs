//! Numbers for new accounts. A process takes several at a time from the sequence (`refs/sequences/accounts`), and gives
//! them from memory. A crash, or an update that is made again, leaves a gap, and never a number that is given twice.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use gix_hash::ObjectId;
use lockkeeper_accounts::blobs::AccountSequence;
use lockkeeper_accounts::findings::Problem;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};

use super::AccountsError;
use super::edit::AccountsEdit;

/// Maximum number of account numbers that a push to the sequence leaves out. They cannot be had back.
const MAX_SKIPPED: u32 = 1_000_000;

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

impl AccountsEdit<'_> {
    /// Returns a number that no account has had: one that was taken before, or the first of those that this update takes
    /// from the sequence.
    pub(super) async fn next_number(&mut self) -> Result<AccountId, AccountsError> {
        if let Some(number) = self.taken.next().and_then(AccountId::new) {
            return Ok(number);
        }
        if self.next_account.is_none()
            && let Some(number) = self.number_taken_before().await?
        {
            return Ok(number);
        }
        let first = match self.next_account {
            Some(next) => next,
            None => self.next_free().await?,
        };
        let end = first.get().checked_add(self.numbers.batch);
        let end = end.and_then(AccountId::new).or_else(|| first.next());
        let end = end.ok_or_else(|| {
            let fix = "no number is left";
            AccountsError::Sequence(Problem::error(None, "the last number was given", fix))
        })?;
        self.next_account = Some(end);
        self.taken = first.get() + 1..end.get();
        Ok(first)
    }

    /// Returns a number that this process has taken before. If a backup was restored since, the sequence may lead to the
    /// same number again, so it must be above it.
    async fn number_taken_before(&self) -> Result<Option<AccountId>, AccountsError> {
        let Some(number) = self.numbers.take() else {
            return Ok(None);
        };
        let name = AllUsersRef::AccountSequence.to_string();
        let sequence = match self.store.account_ref(&name).await? {
            None => None,
            Some(id) => AccountSequence::parse(&self.objects.get(id).await?.content).ok(),
        };
        if sequence.is_some_and(|next| next.0 > number) {
            return Ok(Some(number));
        }
        self.numbers.forget();
        Ok(None)
    }

    async fn next_free(&mut self) -> Result<AccountId, AccountsError> {
        let sequence = AllUsersRef::AccountSequence;
        loop {
            // Before the sequence, which another update may move in between: then it is above this number all the more.
            let mut highest = self.store.account_highest().await?;
            let next = if let Some(id) = self.read_ref(sequence).await? {
                AccountSequence::parse(&self.objects.get(id).await?.content)
                    .map_err(AccountsError::Sequence)?
                    .0
            } else {
                // A server with accounts has a sequence. Without it, rows may be missing as well.
                highest = highest.max(self.store.account_highest_branch().await?);
                if highest.is_some()
                    && self
                        .store
                        .account_ref(&sequence.to_string())
                        .await?
                        .is_some()
                {
                    // Another server has created the first account, and the sequence with it, since the sequence was read.
                    self.refs.remove(&sequence);
                    continue;
                }
                AccountId::FIRST
            };
            return match highest.filter(|highest| *highest >= next) {
                None => Ok(next),
                Some(highest) => Err(AccountsError::Sequence(Problem::error(
                    None,
                    format!("the next number would be {next}, but account {highest} exists"),
                    format!("write a number above {highest} into {sequence}"),
                ))),
            };
        }
    }

    /// Writes a pushed number into the sequence, unless another update has moved the sequence since the client fetched it.
    /// No number is given twice, so the sequence never goes back.
    pub(in super::super) async fn push_sequence(
        &mut self,
        seen: Option<ObjectId>,
        next: AccountSequence,
    ) -> Result<(), AccountsError> {
        // Before the sequence, which another update may move in between: then the ref is not where it was seen. An account
        // whose row is missing has its number, too.
        let rows = self.store.account_highest().await?;
        let highest = rows.max(self.store.account_highest_branch().await?);
        if self.read_ref(AllUsersRef::AccountSequence).await? != seen {
            return Err(AccountsError::Moved);
        }
        let present = match seen {
            None => None,
            Some(id) => AccountSequence::parse(&self.objects.get(id).await?.content).ok(),
        };
        let above = highest.map(|highest| highest.get() + 1);
        let lowest = above.max(present.map(|present| present.0.get()));
        if let Some(lowest) = lowest.filter(|lowest| next.0.get() < *lowest) {
            let what = format!(
                "{} was given already, or is below a number that was",
                next.0
            );
            let fix = match AccountId::new(lowest) {
                Some(lowest) => format!("write {lowest} or more"),
                None => "no number is left".to_owned(),
            };
            return Err(AccountsError::Sequence(Problem::error(None, what, fix)));
        }
        let most = lowest.unwrap_or(AccountId::FIRST.get()) + MAX_SKIPPED;
        if next.0.get() > most {
            let what = format!(
                "{} leaves out more than {MAX_SKIPPED} numbers forever",
                next.0
            );
            let fix = format!("write {most} or less");
            return Err(AccountsError::Sequence(Problem::error(None, what, fix)));
        }
        self.next_account = Some(next.0);
        Ok(())
    }
}
