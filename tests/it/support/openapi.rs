//! Checks recorded exchanges against GitHub's published OpenAPI description (npm `@octokit/openapi`).
//!
//! The description is OpenAPI 3.0.3, whose schemas are almost JSON Schema: `nullable` and the annotations are
//! translated, the rest is used unchanged. Three points that it does not specify are decided here:
//! - Most operations list only some of their errors. An unlisted 4xx or 5xx must have the shape of `basic-error` or
//!   `validation-error`.
//! - `{path}` of contents and `{ref}` of commits may contain slashes.
//! - Every operation on a repository may be redirected to the same one below `/repositories/{id}`. GitHub redirects
//!   there after a rename, although the description does not mention it.
//!
//! One point of the description cannot be right: the list of installations has a copy of the schema `installation` in
//! which an account must be a user *and* an enterprise. The original says *or*, and is used instead.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use jsonschema::{Draft, Validator};
use lockkeeper::emulator::{Exchange, Fault};
use serde_json::{Map, Value, json};

/// GitHub's description, ready to check exchanges.
pub struct OpenApi {
    document: Value,
    /// Validators by schema. Compiling one takes longer than using it.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// An operation that a request matched.
struct Operation<'a> {
    description: &'a Value,
    /// Parameters of the path with their values.
    path: BTreeMap<String, String>,
}

impl OpenApi {
    /// Returns the description of github.com, which is read once.
    pub fn github() -> &'static Self {
        static GITHUB: OnceLock<OpenApi> = OnceLock::new();
        GITHUB.get_or_init(|| {
            let mut document = read_package("openapi/generated/api.github.com.json");
            let list = "/paths/~1app~1installations/get/responses/200/content/application~1json/schema/items";
            let copy = document.pointer_mut(list).expect("the list of installations is described");
            *copy = json!({ "$ref": "#/components/schemas/installation" });
            Self { document, validators: Mutex::default() }
        })
    }

    /// Panics with every violation in the exchanges with the REST API. Answers of requested faults are left out,
    /// because the description does not cover them.
    ///
    /// GraphQL is outside of the description, and of the REST API's path on Enterprise Server, so the check searches
    /// for its name: no request may ever use it.
    pub fn check_all(&self, exchanges: &[Exchange]) {
        let graphql = exchanges
            .iter()
            .find(|exchange| exchange.path.to_ascii_lowercase().contains("graphql"));
        assert!(graphql.is_none(), "a request went to GraphQL: {graphql:?}");
        let by_rule =
            |exchange: &&Exchange| matches!(exchange.fault, None | Some(Fault::LoseAnswer));
        let checked: Vec<&Exchange> = exchanges
            .iter()
            .filter(|exchange| exchange.is_api)
            .filter(by_rule)
            .collect();
        assert!(!checked.is_empty(), "no exchange to check");
        let found: Vec<String> = checked
            .iter()
            .flat_map(|exchange| self.violations(exchange))
            .collect();
        assert!(
            found.is_empty(),
            "GitHub's description is violated:\n{}",
            found.join("\n")
        );
    }

    /// Returns the violations in one exchange.
    pub fn violations(&self, exchange: &Exchange) -> Vec<String> {
        let name = format!(
            "{} {} -> {}",
            exchange.method, exchange.path, exchange.status
        );
        let path = exchange
            .path
            .strip_prefix("/repositories/")
            .map(|rest| format!("/repos/owner/{rest}"));
        let found =
            match self.operation(&exchange.method, path.as_deref().unwrap_or(&exchange.path)) {
                None => vec!["no such operation".to_owned()],
                Some(operation) => [
                    self.path_violations(&operation),
                    self.query_violations(&operation, &exchange.query),
                    self.request_violations(&operation, exchange),
                    self.response_violations(&operation, exchange),
                ]
                .concat(),
            };
        found
            .into_iter()
            .map(|violation| format!("{name}: {violation}"))
            .collect()
    }

    /// Finds the operation whose path has the most literal segments in common.
    fn operation(&self, method: &str, path: &str) -> Option<Operation<'_>> {
        let paths = self.document["paths"].as_object()?;
        let matching = paths.iter().filter_map(|(template, operations)| {
            let description = operations.get(method.to_ascii_lowercase())?;
            Some((
                template,
                Operation {
                    description,
                    path: match_path(template, path)?,
                },
            ))
        });
        let literal = |template: &str| {
            template
                .split('/')
                .filter(|part| !part.starts_with('{'))
                .count()
        };
        matching
            .max_by_key(|(template, _)| literal(template))
            .map(|(_, operation)| operation)
    }

    fn parameters<'a>(&'a self, operation: &'a Operation<'_>, place: &str) -> Vec<&'a Value> {
        let all = operation.description["parameters"].as_array();
        let resolved = all
            .into_iter()
            .flatten()
            .map(|parameter| self.resolve(parameter));
        resolved
            .filter(|parameter| parameter["in"] == place)
            .collect()
    }

    fn path_violations(&self, operation: &Operation<'_>) -> Vec<String> {
        let parameters = self.parameters(operation, "path").into_iter();
        parameters
            .flat_map(|parameter| {
                let value = operation
                    .path
                    .get(parameter["name"].as_str().unwrap_or_default());
                value.map_or_else(
                    || vec![format!("path parameter {} is missing", parameter["name"])],
                    |value| {
                        self.validate(
                            "path parameter",
                            &parameter["schema"],
                            &typed(&parameter["schema"], value),
                        )
                    },
                )
            })
            .collect()
    }

    fn query_violations(&self, operation: &Operation<'_>, query: &str) -> Vec<String> {
        let parameters = self.parameters(operation, "query");
        url::form_urlencoded::parse(query.as_bytes())
            .flat_map(|(name, value)| {
                match parameters
                    .iter()
                    .find(|parameter| parameter["name"] == *name)
                {
                    None => vec![format!("query parameter {name} is not described")],
                    Some(parameter) => {
                        let schema = &parameter["schema"];
                        self.validate(
                            &format!("query parameter {name}"),
                            schema,
                            &typed(schema, &value),
                        )
                    }
                }
            })
            .collect()
    }

    /// Returns violations in a request. Only requests that GitHub accepted are checked, because tests send wrong ones
    /// on purpose.
    fn request_violations(&self, operation: &Operation<'_>, exchange: &Exchange) -> Vec<String> {
        let body = &operation.description["requestBody"];
        if exchange.status >= 400 {
            return Vec::new();
        }
        if exchange.request_body.is_empty() {
            let missing = body["required"] == true;
            return if missing {
                vec!["the request has no body".to_owned()]
            } else {
                Vec::new()
            };
        }
        if body.is_null() {
            return vec!["the request has a body, and none is described".to_owned()];
        }
        self.validate_text(
            "request",
            &body["content"]["application/json"]["schema"],
            &exchange.request_body,
        )
    }

    fn response_violations(&self, operation: &Operation<'_>, exchange: &Exchange) -> Vec<String> {
        let response =
            self.resolve(&operation.description["responses"][exchange.status.to_string()]);
        if response.is_null()
            && exchange.status == 301
            && exchange.headers.iter().any(|(name, _)| name == "location")
        {
            return self.validate_text("response", &error_schema(), &exchange.response_body);
        }
        if response.is_null() && exchange.status >= 400 {
            return self.validate_text("response", &error_schema(), &exchange.response_body);
        }
        if response.is_null() {
            return vec![format!("status {} is not described", exchange.status)];
        }
        let Some(content) = response["content"].as_object() else {
            let empty = exchange.response_body.is_empty();
            // GitHub's usual error body also occurs in refusals whose description omits it.
            if exchange.status >= 400 && !empty {
                return self.validate_text("response", &error_schema(), &exchange.response_body);
            }
            return if empty {
                Vec::new()
            } else {
                vec!["the answer has a body, and none is described".to_owned()]
            };
        };
        let kind = exchange
            .headers
            .iter()
            .find(|(name, _)| name == "content-type")
            .map(|(_, value)| value.as_str());
        match content.get("application/json") {
            Some(json) if kind == Some("application/json") => {
                self.validate_text("response", &json["schema"], &exchange.response_body)
            }
            _ => vec![format!("content type {kind:?} is not described")],
        }
    }

    fn validate_text(&self, what: &str, schema: &Value, text: &str) -> Vec<String> {
        match serde_json::from_str(text) {
            Ok(value) => self.validate(what, schema, &value),
            Err(error) => vec![format!("{what} is no JSON: {error}")],
        }
    }

    fn validate(&self, what: &str, schema: &Value, value: &Value) -> Vec<String> {
        let validator = self.validator(schema);
        let errors = validator.iter_errors(value);
        errors
            .map(|error| {
                format!(
                    "{what}{}: {}",
                    error.instance_path(),
                    short(&error.to_string())
                )
            })
            .collect()
    }

    fn validator(&self, schema: &Value) -> Arc<Validator> {
        let mut validators = self.validators.lock().expect("no test panics here");
        let make = || Arc::new(self.make_validator(schema));
        Arc::clone(validators.entry(schema.to_string()).or_insert_with(make))
    }

    /// Compiles a schema and everything it refers to as JSON Schema.
    fn make_validator(&self, schema: &Value) -> Validator {
        let mut names = BTreeSet::new();
        self.collect(schema, &mut names);
        let one = |name: &String| {
            (
                name.clone(),
                translated(&self.document["components"]["schemas"][name]),
            )
        };
        let referred: Map<String, Value> = names.iter().map(one).collect();
        let whole = json!({ "allOf": [translated(schema)], "components": { "schemas": referred } });
        let options = jsonschema::options()
            .with_draft(Draft::Draft4)
            .should_validate_formats(true);
        options
            .build(&whole)
            .expect("GitHub's description has valid schemas")
    }

    fn collect(&self, schema: &Value, names: &mut BTreeSet<String>) {
        match schema {
            Value::Object(fields) => {
                let name = fields
                    .get("$ref")
                    .and_then(Value::as_str)
                    .and_then(|text| text.rsplit('/').next());
                if let Some(name) = name
                    && names.insert(name.to_owned())
                {
                    self.collect(&self.document["components"]["schemas"][name], names);
                }
                fields.values().for_each(|value| self.collect(value, names));
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item, names)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        let pointer = value["$ref"]
            .as_str()
            .and_then(|text| text.strip_prefix('#'));
        pointer.map_or(value, |pointer| {
            self.document
                .pointer(pointer)
                .expect("references lead somewhere")
        })
    }
}

/// Reads a JSON file from an npm package of `@octokit`.
pub fn read_package(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(".tools/npm/node_modules/@octokit")
        .join(file);
    let text = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: run `make setup`", path.display()));
    serde_json::from_slice(&text).expect("the package contains JSON")
}

fn error_schema() -> Value {
    let shape = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    json!({ "anyOf": [shape("basic-error"), shape("validation-error")], "required": ["message", "documentation_url"] })
}

/// Matches a path against a template and returns the parameters.
fn match_path(template: &str, path: &str) -> Option<BTreeMap<String, String>> {
    let mut segments = path.trim_matches('/').split('/').peekable();
    let mut found = BTreeMap::new();
    let parts: Vec<&str> = template.trim_matches('/').split('/').collect();
    for (at, part) in parts.iter().enumerate() {
        match part
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
        {
            None => (segments.next()? == *part).then_some(())?,
            Some("path") if at + 1 == parts.len() => {
                let rest: Vec<&str> = segments.by_ref().collect();
                found.insert("path".to_owned(), rest.join("/"));
            }
            Some("ref") => {
                let after = parts.len() - at - 1;
                let rest: Vec<&str> = segments.by_ref().collect();
                let (name, tail) = rest.split_at_checked(rest.len().checked_sub(after)?)?;
                (!name.is_empty() && tail == &parts[at + 1..]).then_some(())?;
                found.insert("ref".to_owned(), name.join("/"));
                return Some(found);
            }
            Some(name) => drop(found.insert(name.to_owned(), segments.next()?.to_owned())),
        }
    }
    segments.peek().is_none().then_some(found)
}

/// Converts a parameter to the type of its schema, if possible.
fn typed(schema: &Value, text: &str) -> Value {
    let kinds =
        [schema, &schema["oneOf"][0], &schema["oneOf"][1]].map(|schema| schema["type"].as_str());
    let number = kinds
        .contains(&Some("integer"))
        .then(|| text.parse::<i64>().ok())
        .flatten();
    number.map_or_else(|| json!(text), |number| json!(number))
}

/// Translates OpenAPI 3.0.3 to JSON Schema: `nullable` becomes an alternative, annotations are removed.
fn translated(schema: &Value) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(translated).collect(),
        Value::Object(fields) => {
            let dropped = [
                "nullable",
                "example",
                "examples",
                "discriminator",
                "xml",
                "externalDocs",
                "x-github",
            ];
            let is_schema = fields.get("nullable").is_some_and(Value::is_boolean);
            let kept = fields.iter().filter(|(name, value)| {
                !dropped.contains(&name.as_str()) || describes(name, value)
            });
            let rest: Value = kept
                .map(|(name, value)| (name.clone(), translated(value)))
                .collect::<Map<_, _>>()
                .into();
            let nullable = is_schema && fields["nullable"] == true;
            if nullable {
                json!({ "anyOf": [rest, { "type": "null" }] })
            } else {
                rest
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

/// Returns true if the value is a schema: a property may have the name of an annotation.
fn describes(name: &str, value: &Value) -> bool {
    name == "nullable" && value.is_object()
        || value.get("type").is_some() && name != "example" && name != "examples"
}

fn short(text: &str) -> String {
    let first: String = text.chars().take(160).collect();
    let last: String = text
        .chars()
        .rev()
        .take(120)
        .collect::<Vec<char>>()
        .into_iter()
        .rev()
        .collect();
    if text.chars().count() > 300 {
        format!("{first} … {last}")
    } else {
        text.to_owned()
    }
}

#[test]
fn paths_are_matched_as_github_writes_them() {
    let path = |template, path| {
        match_path(template, path).map(|found| found.into_values().collect::<Vec<_>>())
    };
    assert_eq!(
        path("/repos/{owner}/{repo}", "/repos/a/b"),
        Some(vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(path("/repos/{owner}/{repo}", "/repos/a/b/pulls"), None);
    assert_eq!(path("/c/{path}", "/c/x/y"), Some(vec!["x/y".to_owned()]));
    assert_eq!(
        path("/c/{ref}/status", "/c/heads/x/status"),
        Some(vec!["heads/x".to_owned()])
    );
    assert_eq!(path("/c/{ref}/status", "/c/heads/x/statuses"), None);
}

#[test]
fn an_answer_that_lacks_a_field_or_has_it_in_another_type_is_found() {
    let exchange = |path: &str, status, response_body: &str| Exchange {
        method: "GET".to_owned(),
        path: path.to_owned(),
        query: String::new(),
        is_api: true,
        request_body: String::new(),
        status,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        response_body: response_body.to_owned(),
        fault: None,
    };
    let found = |path, status, body| OpenApi::github().violations(&exchange(path, status, body));
    assert!(
        found("/repos/a/b/issues/comments/1", 200, r#"{"id":"1"}"#)
            .iter()
            .any(|text| text.contains("\"1\""))
    );
    assert_eq!(
        found("/nowhere", 200, "{}"),
        ["GET /nowhere -> 200: no such operation"]
    );
    assert_eq!(found("/app", 500, "{}").len(), 2);
    assert_eq!(
        found(
            "/user",
            418,
            r#"{"message":"no","documentation_url":"https://x"}"#
        ),
        [""; 0]
    );
}
