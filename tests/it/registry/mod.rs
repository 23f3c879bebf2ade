//! The registry of modules: its answers, and stories with the real `terraform` and `go`.

mod access;
mod archives;
mod deployments;
mod go;
mod go_imports;
mod lists;
mod misses;
pub mod outside;
mod pages;
mod peer_limits;
mod peer_pages;
mod peers;
mod people_api;
mod publishing;
mod pushes;
mod real_modules;
mod runs;
mod serving;
mod site;
mod stores;
mod tag_to_init;
mod tags;
mod takedowns;
mod terraform;
mod tunnel;
mod uploads;
pub mod world;
