//! How the demo looks in a terminal. Knows nothing of how it is played.

mod ink;
mod markdown;
mod page;
mod text;

pub(super) use ink::Look;
pub(super) use page::{Addresses, Page};
