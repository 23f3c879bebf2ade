//! Reads YAML files, and reports all mistakes at once, each with its place and a fix.
//!
//! `node` parses text into nodes that know their place. `mapping` declares the keys of each mapping once: as the fields
//! of a struct, from which readers take values, and as a table (`keys`), from which the JSON Schemas and the
//! documentation are generated. `value` converts nodes to values, `reader` collects the problems, and `problem` formats
//! them as one text with excerpts. The files of repositories and of the administrator are both read like this. JSON
//! also works, because it is a subset of YAML.

mod expression;
mod keys;
mod mapping;
mod nearest;
mod node;
mod problem;
mod reader;
mod shape;
mod value;

pub(in crate::config) use keys::{DocumentedKey, KeyDoc, KeyShape, MappingKeys};
pub(in crate::config) use mapping::{
    DeclaredFields, Field, Mapping, as_written, mapping, without_entries,
};
pub use nearest::{nearest, quoted};
pub(in crate::config) use node::{Located, Syntax, YamlNode, YamlValue, read, read_as};
pub(in crate::config) use problem::excerpt;
pub use problem::{FilePosition, YamlErrors, YamlNote, YamlProblem, shown};
pub(in crate::config) use reader::FileReader;
pub(in crate::config) use value::{
    FromYaml, OneOrMany, Shaped, TextOr, ValueName, Vocabulary, words,
};
