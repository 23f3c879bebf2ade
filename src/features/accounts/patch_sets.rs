//! Patch sets: the heads of a change, numbered in the order in which they came. Triggers number them (migration 0013).

use lockkeeper_accounts::refs::ChangeNumber;

use super::store::damaged;
use crate::model::CommitSha;
use crate::store::{Result, Store, Tx, execute, on_pool};

/// Maximum number of digits of a patch set.
const MAX_DIGITS: usize = 9;

/// A head of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchSet {
    /// Number of the change.
    pub change: ChangeNumber,
    /// Number of the patch set, from 1.
    pub number: u32,
}

/// Name of a patch set in a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchSetName {
    /// `current`: the head of the pull. After a pull is closed, the last one that it had.
    Current,
    /// Number of the patch set, in plain digits.
    Number(u32),
    /// Commit of the patch set, with all its digits.
    Head(CommitSha),
}

impl PatchSetName {
    /// Reads a name. `None`: it can be none.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "current" {
            return Some(Self::Current);
        }
        let is_number = text.starts_with(|first: char| matches!(first, '1'..='9'))
            && text.len() <= MAX_DIGITS
            && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number {
            text.parse().ok().map(Self::Number)
        } else {
            text.parse().ok().map(Self::Head)
        }
    }
}

impl Store {
    /// Finds a patch set of a change.
    pub async fn patch_set_find(
        &self,
        change: ChangeNumber,
        name: &PatchSetName,
    ) -> Result<Option<PatchSet>> {
        self.patch_set_note_head(change).await?;
        let of = i64::from(change.get());
        let number = match name {
            PatchSetName::Current => on_pool!(self, db => sqlx::query_scalar::<_, i64>(
                "SELECT number FROM patch_sets WHERE change_number = $1 ORDER BY last_turn DESC LIMIT 1")
                .bind(of).fetch_optional(db))?,
            PatchSetName::Number(number) => on_pool!(self, db => sqlx::query_scalar::<_, i64>(
                "SELECT number FROM patch_sets WHERE change_number = $1 AND number = $2")
                .bind(of).bind(i64::from(*number)).fetch_optional(db))?,
            PatchSetName::Head(head) => on_pool!(self, db => sqlx::query_scalar::<_, i64>(
                "SELECT number FROM patch_sets WHERE change_number = $1 AND head = $2")
                .bind(of).bind(head).fetch_optional(db))?,
        };
        let number = number.map(|number| {
            u32::try_from(number)
                .map_err(|_| damaged(format!("the patch set {number} of the change {change}")))
        });
        Ok(number
            .transpose()?
            .map(|number| PatchSet { change, number }))
    }

    /// Numbers the head of a pull if no trigger did: its row and that of the change may have been inserted at the same
    /// moment by two transactions, which did not see each other, or two pulls became one by a rename.
    async fn patch_set_note_head(&self, change: ChangeNumber) -> Result<()> {
        let of = i64::from(change.get());
        let is_missing = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM changes c JOIN pull_heads h ON h.repo = c.repo AND h.number = c.pull \
             WHERE c.number = $1 AND NOT EXISTS (SELECT 1 FROM patch_sets s WHERE s.change_number = c.number \
             AND s.head = h.head \
             AND s.last_turn = (SELECT MAX(t.last_turn) FROM patch_sets t WHERE t.change_number = c.number))")
            .bind(of).fetch_one(db))?;
        if is_missing == 0 {
            return Ok(());
        }
        let mut tx = self.begin_shared().await?;
        if let Tx::Postgres(tx) = &mut tx {
            // A push waits. The row of the head comes before that of the change, as in the triggers.
            for row in [
                "SELECT 1 FROM pull_heads h WHERE EXISTS (SELECT 1 FROM changes c WHERE c.number = $1 \
                 AND c.repo = h.repo AND c.pull = h.number) FOR NO KEY UPDATE",
                "SELECT 1 FROM changes WHERE number = $1 FOR NO KEY UPDATE",
            ] {
                sqlx::query(row).bind(of).execute(&mut **tx).await?;
            }
        }
        execute!(
            &mut tx,
            "INSERT INTO patch_sets (change_number, number, head, last_turn) \
             SELECT c.number, 1 + COALESCE(MAX(s.number), 0), h.head, 1 + COALESCE(MAX(s.last_turn), 0) FROM changes c \
             JOIN pull_heads h ON h.repo = c.repo AND h.number = c.pull \
             LEFT JOIN patch_sets s ON s.change_number = c.number WHERE c.number = $1 GROUP BY c.number, h.head \
             ON CONFLICT (change_number, head) DO UPDATE SET last_turn = excluded.last_turn",
            of
        )?;
        tx.commit().await
    }
}
