//! Generates JSON Schemas (draft 2020-12) for editors. A schema checks less than the readers: it does not know the
//! names of workflows or the permissions of the server.

use serde_json::{Map, Value, json};

use super::{mappings, name_of};
use crate::config::server::HostsFileMapping;
use crate::config::yaml::{DocumentedKey, KeyDoc, KeyShape, Mapping, MappingKeys};
use crate::config::{repo, repos};

/// Returns the schema of the repository's file.
pub(in crate::config) fn repo_schema() -> Value {
    schema(
        repo::RepoFileMapping::KEYS,
        "Lockkeeper: the file of a repository",
        "lockkeeper.yaml or atlantis.yaml",
    )
}

/// Returns the schema of the server's file.
pub(in crate::config) fn server_schema() -> Value {
    schema(
        repos::ServerFileMapping::KEYS,
        "Lockkeeper: the file of the server",
        "--repo-config",
    )
}

/// Returns the schema of the file of hosts.
pub(in crate::config) fn hosts_schema() -> Value {
    schema(
        HostsFileMapping::KEYS,
        "Lockkeeper: the hosts of GitHub",
        "--gh-hosts-file",
    )
}

fn schema(top: &'static MappingKeys, title: &str, description: &str) -> Value {
    let all = mappings(top);
    let inner: Map<String, Value> = all[1..]
        .iter()
        .map(|keys| (name_of(keys), object(keys)))
        .collect();
    let mut schema = object(top);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema["description"] = json!(description);
    schema["$defs"] = Value::Object(inner);
    schema
}

fn object(keys: &MappingKeys) -> Value {
    let properties: Map<String, Value> = keys
        .list
        .iter()
        .map(|key| (key.name.to_owned(), property(key)))
        .collect();
    let required: Vec<&str> = keys
        .list
        .iter()
        .filter(|key| key.doc.default == KeyDoc::REQUIRED)
        .map(|key| key.name)
        .collect();
    let mut object =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if keys.is_choice {
        object["minProperties"] = json!(1);
        object["maxProperties"] = json!(1);
    }
    object
}

/// Returns the schema of a key. A key without a value counts as absent, so `null` is valid unless the key is
/// required.
fn property(key: &DocumentedKey) -> Value {
    let kind = value(&key.shape);
    let mut property = if key.doc.default == KeyDoc::REQUIRED {
        kind
    } else {
        json!({"anyOf": [kind, {"type": "null"}]})
    };
    property["description"] = json!(description(key));
    property
}

fn description(key: &DocumentedKey) -> String {
    match key.doc.default {
        "" => key.doc.meaning.to_owned(),
        KeyDoc::REQUIRED => format!("{} Required.", key.doc.meaning),
        default => format!("{} Default: {default}.", key.doc.meaning),
    }
}

fn value(kind: &KeyShape) -> Value {
    match kind {
        KeyShape::Switch => json!({"enum": [true, false, "yes", "no", "on", "off"]}),
        KeyShape::Integer => json!({"type": "integer"}),
        KeyShape::Text => json!({"type": ["string", "number", "boolean"]}),
        KeyShape::SlashedRegex => json!({"type": "string", "pattern": "^/.+/$"}),
        KeyShape::Words(words) => {
            let numbers = words()
                .into_iter()
                .filter_map(|word| word.parse::<i64>().ok())
                .map(Value::from);
            json!({"enum": words().into_iter().map(Value::from).chain(numbers).collect::<Vec<_>>()})
        }
        KeyShape::List(kind) => json!({"type": "array", "items": value(kind)}),
        KeyShape::Map(keys) => json!({"$ref": format!("#/$defs/{}", name_of(keys))}),
        KeyShape::Named(kind) => {
            json!({"type": "object", "additionalProperties": {"anyOf": [value(kind), {"type": "null"}]}})
        }
        KeyShape::Any(kinds) => json!({"anyOf": kinds.iter().map(value).collect::<Vec<_>>()}),
        KeyShape::WithoutEffect(kind, _) => inline(kind),
        KeyShape::NotYet(_) => json!({"type": "null"}),
    }
}

/// Returns the schema of a value with its mappings inline, for mappings without a definition of their own.
fn inline(kind: &KeyShape) -> Value {
    let KeyShape::Map(keys) = kind else {
        return value(kind);
    };
    let property = |key: &DocumentedKey| {
        (
            key.name.to_owned(),
            json!({"anyOf": [inline(&key.shape), {"type": "null"}]}),
        )
    };
    let properties: Map<String, Value> = keys.list.iter().map(property).collect();
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::generated_docs::compare;

    #[test]
    fn the_published_schemas_are_those_of_the_tables() {
        for (file, schema) in [
            ("lockkeeper.schema.json", repo_schema()),
            ("repos.schema.json", server_schema()),
            ("hosts.schema.json", hosts_schema()),
        ] {
            let text = serde_json::to_string_pretty(&schema).unwrap();
            compare(&format!("docs/schema/{file}"), &format!("{text}\n"));
        }
    }

    #[test]
    fn names_of_mappings_are_not_used_twice() {
        for top in [
            repo::RepoFileMapping::KEYS,
            repos::ServerFileMapping::KEYS,
            HostsFileMapping::KEYS,
        ] {
            let mut names: Vec<String> = mappings(top).into_iter().map(name_of).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{names:?}");
        }
    }
}
