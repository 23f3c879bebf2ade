//! The rules of Lockkeeper: the grammar of commands, the configuration languages, the discovery of projects, and the
//! texts of comments. Nothing here reads a file, asks the network or looks at a clock, so the rules build and are tested
//! without the server.

pub mod command;
pub mod config;
pub mod discovery;
pub mod render;

use lockkeeper_model::{model, secret};
