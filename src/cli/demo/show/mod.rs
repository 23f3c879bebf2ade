//! Output of the demo in a terminal, independent of the player.

mod markdown;
mod page;

pub(super) use crate::cli::style::TerminalStyle;
pub(super) use page::{Addresses, Transcript};
