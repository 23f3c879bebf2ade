//! What people see on a pull.
pub mod escape;
pub mod machine;
pub mod plan_output;
pub mod split;
pub mod status;
