//! Reads the module calls of a file that lead to a registry: `source` and `version` as they are written. Also tells if no call
//! leads out of the repository.

use hcl_edit::structure::Body;
use serde_json::Value;

use super::super::code;
use super::calls::{CodeFormat, MAX_FILE_BYTES, MAX_SOURCES, blocks, is_local};
use crate::model::RepoPath;

/// Call of a module with a source that is no directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemoteCall {
    /// Source as written, such as `mods.example.com/acme/vpc/aws//modules/sub`.
    pub source: String,
    /// Version as written, such as `~> 1.2`.
    pub version: Option<String>,
}

/// Returns the calls in a file of code. Sources and versions that are not literal are unknown before they are evaluated. A
/// file that is no code, too large or cannot be parsed has no calls.
pub fn remote_calls(file: &RepoPath, text: &str) -> Vec<RemoteCall> {
    let Some(format) = CodeFormat::of(file.file_name()) else {
        return Vec::new();
    };
    let text = code::unmarked(text);
    if text.len() > MAX_FILE_BYTES || !code::has_word(text, "module") {
        return Vec::new();
    }
    let mut calls = match format {
        CodeFormat::Hcl => code::parse(file, text).map(|body| of_hcl(&body)),
        CodeFormat::Json => code::parse_json(file, text).map(|value| of_json(&value)),
    }
    .unwrap_or_default();
    calls.truncate(MAX_SOURCES);
    calls
}

fn of_hcl(body: &Body) -> Vec<RemoteCall> {
    let literal = |body: &Body, name: &str| {
        let attribute = body.get_attribute(name)?;
        attribute.value.as_str().map(str::to_owned)
    };
    let calls = body.get_blocks("module").filter_map(|module| {
        let source = literal(&module.body, "source").filter(|source| is_remote(source))?;
        Some(RemoteCall {
            source,
            version: literal(&module.body, "version"),
        })
    });
    calls.collect()
}

fn of_json(top: &Value) -> Vec<RemoteCall> {
    let literal = |body: &Value, name: &str| body.get(name)?.as_str().map(str::to_owned);
    let mut calls = Vec::new();
    for top in blocks(top) {
        let modules = top.get("module").into_iter().flat_map(blocks);
        for module in modules.filter_map(Value::as_object) {
            for body in module.values().flat_map(blocks) {
                let source = literal(body, "source").filter(|source| is_remote(source));
                if let Some(source) = source {
                    let version = literal(body, "version");
                    calls.push(RemoteCall { source, version });
                }
            }
        }
    }
    calls
}

/// Returns the sources of the calls in a file of code, if all of them are directories of the repository. `None`: one may lead
/// elsewhere, because it does, or because the file or the source cannot be understood.
pub fn local_sources(file: &RepoPath, text: &str) -> Option<Vec<String>> {
    let Some(format) = CodeFormat::of(file.file_name()) else {
        return Some(Vec::new());
    };
    let text = code::unmarked(text);
    if !code::has_word(text, "module") {
        return Some(Vec::new());
    }
    if text.len() > MAX_FILE_BYTES {
        return None;
    }
    let local = |source: &str| is_local(source).then(|| source.to_owned());
    match format {
        CodeFormat::Hcl => {
            let body = code::parse(file, text).ok()?;
            let source = |body: &Body| local(body.get_attribute("source")?.value.as_str()?);
            let calls = body.get_blocks("module");
            calls.map(|module| source(&module.body)).collect()
        }
        CodeFormat::Json => {
            let top = code::parse_json(file, text).ok()?;
            let modules = blocks(&top).iter().filter_map(|top| top.get("module"));
            let mut sources = Vec::new();
            for module in modules.flat_map(blocks) {
                for body in module.as_object()?.values().flat_map(blocks) {
                    sources.push(local(body.get("source")?.as_str()?)?);
                }
            }
            Some(sources)
        }
    }
}

fn is_remote(source: &str) -> bool {
    !source.starts_with('.') && !source.starts_with('/') && !source.contains("${")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(file: &str, text: &str) -> Vec<String> {
        let calls = remote_calls(&file.parse().unwrap(), text);
        let shown = |call: &RemoteCall| {
            let version = call.version.as_deref().unwrap_or("any");
            format!("{} {version}", call.source)
        };
        calls.iter().map(shown).collect()
    }

    #[test]
    fn sources_and_versions_are_read_as_they_are_written() {
        let hcl = "module \"a\" {\n  source  = \"h.example/acme/a/aws//sub\"\n  version = \"~> 1.2\"\n}\n\
                   module \"b\" {\n  source = \"./b\"\n}\nmodule \"c\" {\n  source = \"h.example/acme/c/aws\"\n  \
                   version = var.version\n}\nmodule \"d\" {\n  source = \"${var.x}/a/b/c\"\n}\n";
        let expected = [
            "h.example/acme/a/aws//sub ~> 1.2",
            "h.example/acme/c/aws any",
        ];
        assert_eq!(calls("live/main.tf", hcl), expected);
        assert_eq!(calls("main.tofu", hcl), expected);
        let json = r#"{"module": {"a": {"source": "h.example/acme/a/aws", "version": "1.0.0"}, "b": [{"source": "../b"}]}}"#;
        assert_eq!(calls("main.tf.json", json), ["h.example/acme/a/aws 1.0.0"]);
    }

    #[test]
    fn sources_are_local_only_if_all_of_them_are() {
        let sources = |file: &str, text: &str| local_sources(&file.parse().unwrap(), text);
        let (local, other) = (
            "module \"a\" {\n  source = \"../a\"\n}\n",
            "module \"b\" {\n  source = \"acme/b/aws\"\n}\n",
        );
        let found = Some(vec!["../a".to_owned()]);
        assert_eq!(sources("main.tf", local), found);
        assert_eq!(sources("main.tf", &format!("{local}{other}")), None);
        assert_eq!(sources("main.tf", "module \"a\" {}\n"), None);
        assert_eq!(sources("main.tf", &local[..30]), None);
        assert_eq!(sources("README.md", other), Some(Vec::new()));
        assert_eq!(sources("main.tf", "x = submodule\n"), Some(Vec::new()));
        let json = r#"{"module": [{"a": {"source": "../a"}}]}"#;
        assert_eq!(sources("main.tf.json", json), found);
        let json = r#"{"module": {"a": {"source": "../a"}, "b": [{"source": "acme/b/aws"}]}}"#;
        assert_eq!(sources("main.tf.json", json), None);
        let large = format!("{local}{}", "# x\n".repeat(MAX_FILE_BYTES / 4));
        assert_eq!(sources("main.tf", &large), None);
    }

    #[test]
    fn files_that_are_no_code_have_no_calls() {
        let none: [&str; 0] = [];
        let text = "module \"a\" {\n  source = \"h.example/acme/a/aws\"\n}\n";
        for file in ["README.md", ".main.tf", "main.tf.json"] {
            assert_eq!(calls(file, text), none, "{file}");
        }
        assert_eq!(calls("main.tf", &text[..40]), none);
        let large = format!("{text}{}", "# x\n".repeat(MAX_FILE_BYTES / 4));
        assert_eq!(calls("main.tf", &large), none);
    }
}
