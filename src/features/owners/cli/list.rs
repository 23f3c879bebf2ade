//! Long lists, read in parts.

use anyhow::Context as _;
use clap::{Arg, ArgMatches, value_parser};

use super::AdminSession;
use crate::model::{OwnerId, OwnerName};

/// Number of rows that are read at once.
pub(crate) const PART: i64 = 500;

pub(crate) fn owner_arg() -> Arg {
    Arg::new("owner")
        .long("owner")
        .value_name("NAME")
        .value_parser(value_parser!(OwnerName))
        .help("Only entries of this owner")
}

/// Returns the owner that the list is limited to. Fails if no owner has that name.
pub(crate) async fn owner(
    session: &AdminSession,
    matches: &ArgMatches,
) -> anyhow::Result<Option<OwnerId>> {
    let Some(name) = matches.get_one::<OwnerName>("owner") else {
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

/// Returns true if there may be more rows than this part.
pub(crate) fn may_go_on<T>(part: &[T]) -> bool {
    i64::try_from(part.len()).is_ok_and(|count| count >= PART)
}
