//! The nouns of Lockkeeper as types, and the few things below them: clocks, secrets, texts of errors. Everything else is
//! built on this crate.

#[cfg(feature = "tokio")]
pub mod clock;
pub mod errors;
pub mod ids;
pub mod model;
pub mod secret;

/// Traits of columns, for the macros of [`model`].
#[cfg(feature = "sqlx")]
#[doc(hidden)]
pub use sqlx;
