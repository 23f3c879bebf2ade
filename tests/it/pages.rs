//! The dashboard and the API, asked over their router.

#![expect(clippy::unwrap_used, reason = "helpers of tests may stop a test where it stands, like the tests do")]

mod fixture;

mod api;
mod changes;
mod guard;
mod health;
mod home;
mod hostile;
mod job;
mod lock;
mod stream;
