//! Configuration: what repositories and operators may say, read strictly and with errors a person can act on.

pub mod repo;
