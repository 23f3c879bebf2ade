//! Reads YAML files, and reports all mistakes at once, each with its place and a fix.
//!
//! `node` parses text into nodes that know their place. `reader` converts nodes to values with the tables of `keys`,
//! and collects problems. `problem` formats the problems as one text with excerpts. The files of repositories and of
//! the administrator are both read like this. JSON also works, because it is a subset of YAML.

mod expression;
mod keys;
mod nearest;
mod node;
mod problem;
mod reader;
mod shape;

pub(in crate::config) use keys::{DocumentedKey, KeyShape, MappingKeys, words};
pub use nearest::{nearest, quoted};
pub(in crate::config) use node::{Located, Syntax, YamlNode, YamlValue, read, read_as};
pub(in crate::config) use problem::excerpt;
pub use problem::{FilePosition, YamlErrors, YamlNote, YamlProblem, shown};
pub(in crate::config) use reader::{Fields, FileReader, list_of};
