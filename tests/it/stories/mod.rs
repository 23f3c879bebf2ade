//! Stories: what people do at a pull request and the very comments they read, on both databases.

mod applications;
mod apply;
mod cancel;
mod claims;
mod comments;
mod config_source;
mod crash;
mod disk;
mod door;
mod during;
mod explain;
mod freeze;
mod giving;
mod hooks;
mod idle;
mod import;
mod locks;
mod missed;
mod moves;
mod needs;
mod order;
mod outbox;
mod parts;
mod pending;
mod permission;
mod plan;
mod projects;
mod providers;
mod queue;
mod reconcilers;
mod refusals;
mod replicas;
mod repositories;
mod repositories_faults;
mod search;
mod sparse;
mod standing;
mod supersede;
mod switches;
mod unlock;
mod version;
mod workflows;

/// Three projects as they are on the main branch.
const NETWORK: (&str, &str) = ("network/main.tf", "resource \"terraform_data\" \"it\" {}\n");
const APP: (&str, &str) = ("app/main.tf", "resource \"terraform_data\" \"app\" {}\n");
const DB: (&str, &str) = ("db/main.tf", "resource \"terraform_data\" \"db\" {}\n");
