//! Long lists, read in parts.

use anyhow::Context as _;

use super::AdminSession;
use crate::model::{OwnerId, OwnerName};

/// Number of rows that are read at once.
pub(crate) const LIST_PART: i64 = 500;

/// Owner that a list is limited to.
#[derive(clap::Args)]
pub(crate) struct OwnerFlag {
    /// Only entries of this owner
    #[arg(long, value_name = "NAME")]
    owner: Option<OwnerName>,
}

impl OwnerFlag {
    /// Returns the owner that the list is limited to. Fails if no owner has that name.
    pub async fn find(&self, session: &AdminSession) -> anyhow::Result<Option<OwnerId>> {
        let Some(name) = &self.owner else {
            return Ok(None);
        };
        let owner = session
            .store
            .owner_get(name)
            .await
            .context("the owners could not be read")?;
        let owner = owner.with_context(|| {
            format!("there is no owner `{name}`; `lockkeeper owners list` lists all owners")
        })?;
        Ok(Some(owner.id))
    }
}

/// Returns true if there may be more rows than this part.
pub(crate) fn may_go_on<T>(part: &[T]) -> bool {
    i64::try_from(part.len()).is_ok_and(|count| count >= LIST_PART)
}
