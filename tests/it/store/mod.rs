//! Every public method of the store, on both databases (P11). A file per resource, as in `src/store`.

mod apply;
mod apply_locks;
mod commands;
mod deliveries;
mod fence;
mod import;
mod jobs;
mod leases;
mod lock_events;
mod lock_names;
mod locks;
mod open;
mod operations;
mod plan_files;
mod plans;
mod pulls;
mod reconcilers;
mod replicas;
mod retention;
mod runs;
mod samples;
mod schema;
mod settings;
mod time;
mod waiters;
