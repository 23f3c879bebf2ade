//! Parts that features are made with. No part imports `features`; errors of what is no feature yet still lie in `web`.

pub(crate) mod term;
pub mod web;
