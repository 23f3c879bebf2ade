//! What several stories need.

pub mod openapi;
