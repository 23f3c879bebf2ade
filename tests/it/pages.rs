//! The dashboard and the API, asked over their router.

pub mod fixture;

mod api;
pub mod apply_locks;
mod changes;
mod guard;
mod health;
pub mod home;
mod hostile;
mod job;
pub mod leases;
mod lock;
pub mod operations;
pub mod owners;
mod owners_api;
mod permission;
pub mod repos;
mod stream;
