//! Runs the steps of a project: which program, with which environment, in which checkout, and what becomes of the
//! plan file. Decides nothing about pulls; that is `handlers/`.

mod artifacts;
mod environment;
mod output;

pub use artifacts::{ArtifactError, Artifacts};
pub use environment::ChildEnvironment;
pub use output::{OutputHub, RunOutput};
