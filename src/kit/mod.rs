//! Shared parts of features. No part imports `features`. `web` has the failures that several features answer with; each
//! feature has its own.

pub(crate) mod jobs;
pub(crate) mod recent;
pub mod reconcile;
pub(crate) mod term;
pub mod web;
