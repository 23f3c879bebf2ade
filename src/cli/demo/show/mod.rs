//! How the demo looks in a terminal. Knows nothing of how it is played.

mod markdown;
mod page;

pub(super) use crate::cli::ink::Look;
pub(super) use page::{Addresses, Page};
