//! Parts that features are made with. No part knows a feature.

pub(crate) mod term;
pub mod web;
