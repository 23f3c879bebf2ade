//! Webhook deliveries of GitHub, read without any I/O: whether GitHub really sent them, which delivery it is, and what
//! it means to us (reference 2.2).

mod header;
mod payload;
mod repositories;
mod shape;
mod signature;

pub use header::{BadHeader, DeliveryHeader, delivery};
pub use payload::{PayloadError, identities, parse};
pub use signature::{BadSignature, SignatureCheck};
