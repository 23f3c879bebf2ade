//! The repository configuration.
mod dir_glob;
mod node;
mod pattern_syntax;
mod patterns;
mod problem;
