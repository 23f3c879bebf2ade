//! Shared parts of features. No part imports `features`. Errors that do not belong to a feature yet are still in
//! `web`.

pub(crate) mod jobs;
pub(crate) mod recent;
pub mod reconcile;
pub(crate) mod term;
pub mod web;
