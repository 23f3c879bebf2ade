//! Reads webhook deliveries of GitHub without any I/O: checks that GitHub really sent them, identifies the delivery,
//! and parses its meaning (reference 2.2).

mod header;
mod payload;
mod repositories;
mod shape;
mod signature;

pub use header::{BadHeader, DeliveryHeader, delivery};
pub use payload::{PayloadError, identities, parse};
pub use signature::{BadSignature, SignatureCheck};
