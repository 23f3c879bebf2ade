//! YAML that a person wrote, read so that all of its mistakes can be told at once, each with its place and a way out.
//!
//! Text becomes nodes that know where they stand (`node`), nodes become values while problems are collected
//! (`reader`, by the tables of `keys`), and the problems become one text with excerpts (`problem`). Both the file of a
//! repository and the one of the operator are read this way; JSON is YAML too.

mod expression;
mod keys;
mod nearest;
mod node;
mod problem;
mod reader;
mod shape;

pub(in crate::config) use keys::{Key, Keys, Kind, words};
pub use nearest::{nearest, quoted};
pub(in crate::config) use node::{Located, Node, Syntax, Value, read, read_as};
pub(in crate::config) use problem::excerpt;
pub use problem::{ConfigErrors, Place, Problem, Remark, shown};
pub(in crate::config) use reader::{Fields, Reader, list_of};
