//! Tests of the dashboard and the API through their router.

pub mod fixture;

mod accounts;
mod api;
pub mod apply_locks;
pub mod apps;
mod audit;
mod changes;
pub mod credentials;
mod guard;
mod health;
pub mod home;
mod hostile;
mod job;
pub mod leases;
pub mod limited;
mod lock;
pub mod operations;
mod owners;
mod permission;
pub mod repos;
mod stream;
mod views;
