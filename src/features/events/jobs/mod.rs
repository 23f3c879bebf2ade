//! The jobs of events, one file each.

mod clean_pull;
mod read_delivery;

pub(crate) use clean_pull::CleanPull;
pub(crate) use read_delivery::ReadDelivery;
