//! The dashboard and the API, asked over their router.

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
