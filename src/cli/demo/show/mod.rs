//! Output of the demo in a terminal, independent of the player.

mod markdown;
mod page;

pub(super) use crate::cli::ink::Look;
pub(super) use page::{Addresses, Page};
