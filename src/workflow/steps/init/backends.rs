//! Recognises backends that name no program and no file.
//!
//! Most projects keep their state in a bucket, named by a few attributes. Nothing of the pull request runs when an `init`
//! prepares such a backend, so it needs no part of its own (`mod.rs`), which would read all providers once more.
//!
//! Text is not parsed as the tool does. It is accepted only if every word that may begin a backend is followed by a block in
//! the plainest form: one attribute a line.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::programs::{around, has_key};

/// Types of backends that keep states in a bucket.
const TYPES: [&str; 2] = ["s3", "gcs"];
/// Attributes of these types whose values are neither files nor programs, nor sections of files that name programs, as
/// `profile` is.
const ATTRIBUTES: [&str; 23] = [
    "acl",
    "bucket",
    "dynamodb_table",
    "encrypt",
    "external_id",
    "force_path_style",
    "impersonate_service_account",
    "key",
    "kms_encryption_key",
    "kms_key_id",
    "max_retries",
    "prefix",
    "region",
    "role_arn",
    "session_name",
    "skip_credentials_validation",
    "skip_metadata_api_check",
    "skip_region_validation",
    "skip_requesting_account_id",
    "skip_s3_checksum",
    "use_lockfile",
    "use_path_style",
    "workspace_key_prefix",
];
const BACKEND: &str = "backend";
/// Words that begin a block with a backend.
const BLOCKS: [&str; 2] = [BACKEND, "cloud"];
/// Keys that the tools write into the file about the backend of an `init`.
const SAVED: [&str; 6] = [
    "version",
    "serial",
    "lineage",
    "terraform_version",
    "backend",
    "modules",
];
const OF_SAVED_BACKEND: [&str; 3] = ["type", "config", "hash"];
/// Maximum length of a line in bytes, up to a word.
const MAX_LINE: usize = 256;
/// Maximum length of a plain block in bytes.
const MAX_BLOCK: usize = 16 * 1024;
/// Maximum number of plain blocks in a file. A project has one.
const MAX_BLOCKS: usize = 4;

/// Block behind the word `backend`: its type and its lines.
static BLOCK: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?x)
        \A [\ \t]+ "([a-z0-9]+)" [\ \t]* \{ (
            [\ \t]* \}
            | [\ \t]* (?: (?:\#|//)[^\r\n]* )? \r?\n
              (?:
                [\ \t]*
                (?: [a-z0-9_]+ [\ \t]* = [\ \t]* (?: "[^"\\$%\r\n]*" | [A-Za-z0-9_.]+ ) [\ \t]* )?
                (?: (?:\#|//)[^\r\n]* )? \r?\n
              )*
              [\ \t]* \}
        )"#,
    )
});
static ATTRIBUTE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^[ \t]*([a-z0-9_]+)[ \t]*="));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

/// Returns the word of a configuration that may begin a backend, if any. With `except_plain`, plain ones do not count.
pub(super) fn in_native(text: &str, except_plain: bool) -> Option<&'static str> {
    BLOCKS.into_iter().find(|word| {
        let except = except_plain && *word == BACKEND;
        let mut places = around(text, word).filter(|(before, rest)| may_begin_block(before, rest));
        // Looking at a block takes time, so only a few are looked at.
        let mut left = if except { MAX_BLOCKS } else { 0 };
        places.any(|(_, rest)| {
            let is_plain = left > 0 && is_plain_block(rest);
            left = left.saturating_sub(1);
            !is_plain
        })
    })
}

/// Returns the key of a configuration in JSON that may be a backend, if any.
pub(super) fn in_json(text: &str) -> Option<&'static str> {
    BLOCKS.into_iter().find(|word| has_key(text, word))
}

/// Returns false if a word is part of a comment, a string, an attribute or a reference.
fn may_begin_block(before: &str, rest: &str) -> bool {
    // A comment of several lines can end in a line that looks like a comment of its own.
    let is_comment = line_of(before).is_some_and(|line| {
        let line = line.trim_ascii_start();
        (line.starts_with(b"#") || line.starts_with(b"//"))
            && !line.windows(2).any(|two| two == b"*/")
    });
    // No block begins directly behind one of these.
    let is_continued = before.ends_with(['"', '.']);
    let is_attribute = rest.trim_start_matches([' ', '\t']).starts_with('=');
    !is_comment && !is_continued && !is_attribute
}

/// Returns the line that a text ends in, up to a limit, because a file can be one line with a million such words.
fn line_of(before: &str) -> Option<&[u8]> {
    let start = before.len().saturating_sub(MAX_LINE);
    let end = &before.as_bytes()[start..];
    match end.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => Some(&end[at + 1..]),
        None => (start == 0).then_some(end),
    }
}

fn is_plain_block(rest: &str) -> bool {
    let block = &rest[..rest.floor_char_boundary(MAX_BLOCK)];
    let Some(block) = BLOCK.captures(block) else {
        return false;
    };
    let mut names = ATTRIBUTE.captures_iter(&block[2]);
    TYPES.contains(&&block[1]) && names.all(|name| ATTRIBUTES.contains(&&name[1]))
}

/// Returns true if an argument of `init` that is about backends gives no more than a plain attribute.
pub(super) fn is_plain_argument(arg: &str) -> bool {
    let option = arg.strip_prefix('-').unwrap_or(arg);
    let option = option.strip_prefix('-').unwrap_or(option);
    // A shell makes several arguments of one with a variable.
    let attribute = option
        .strip_prefix("backend-config=")
        .filter(|attribute| !attribute.contains('$'));
    let name = attribute.and_then(|attribute| attribute.split_once('='));
    ["backend=true", "backend=false"].contains(&option)
        || name.is_some_and(|(name, _)| ATTRIBUTES.contains(&name))
}

/// Returns true if the backend that an earlier `init` has saved is a plain one.
pub(super) fn is_plain_saved(text: &str) -> bool {
    let has_only = |value: &Value, keys: &[&str]| {
        let object = value.as_object();
        object.is_some_and(|object| object.keys().all(|key| keys.contains(&key.as_str())))
    };
    let Ok(saved) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let backend = &saved["backend"];
    let (Some(kind), Some(config)) = (backend["type"].as_str(), backend["config"].as_object())
    else {
        return false;
    };
    let mut given = config.iter().filter(|(_, value)| !value.is_null());
    has_only(&saved, &SAVED)
        && has_only(backend, &OF_SAVED_BACKEND)
        && TYPES.contains(&kind)
        && given.all(|(name, _)| ATTRIBUTES.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = r#"
# The backend of all environments.
terraform {
  required_version = "~> 1.5"
  backend "s3" { # state
    bucket         = "acme-state"
    key            = "network/terraform.tfstate" // of this project
    region         = "eu-central-1"
    encrypt        = true

    // No two runs at once.
    dynamodb_table = "locks"
    role_arn = var.role
  }
}
"#;

    #[test]
    fn a_bucket_is_a_plain_backend() {
        for text in [
            PLAIN,
            &PLAIN.replace('\n', "\r\n"),
            "terraform {\n  backend \"gcs\" {}\n}\n",
            "terraform { backend \"gcs\" { } }",
            "terraform {\n  backend \"gcs\" {\n    bucket = \"a b } # c\"\n    prefix = \"x\"\n  }\n}\n",
            "data \"terraform_remote_state\" \"x\" {\n  backend = \"local\"\n}\n",
            "resource \"aws_instance\" \"backend\" {}\nmodule \"cloud\" {}\n",
            "locals {\n  x = var.backend\n  cloud = 1\n}\n",
            "# cloud {}\n  // backend \"local\" {}\n",
            "resource \"azurerm_lb_backend_address_pool\" \"x\" {}\n",
        ] {
            assert_eq!(in_native(text, true), None, "{text}");
        }
    }

    #[test]
    fn a_plain_backend_is_a_backend() {
        assert_eq!(in_native(PLAIN, false), Some("backend"));
        assert_eq!(in_native("module \"backend\" {}\n", false), None);
    }

    #[test]
    fn anything_else_may_name_a_program() {
        let with = |line: &str| PLAIN.replace("encrypt        = true", line);
        for text in [
            &with("profile = \"x\""),
            &with("shared_config_files = [\"./aws\"]"),
            &with("assume_role = { role_arn = \"x\" }"),
            &with("assume_role {\n}"),
            &with("key = \"${path.module}\""),
            &with("key = \"a\\\"\""),
            &with("/*"),
            &with("key = <<E\nE"),
            &with("region = \"x\", profile = \"y\""),
            &with("region = \"x\" profile = \"y\""),
            &with("region = \"x\"\rprofile = \"y\""),
            &with("\"profile\" = \"y\""),
            &PLAIN.replace("s3", "local"),
            &PLAIN.replace("\"s3\"", "s3"),
            &PLAIN.replace("\"s3\"", "/**/ \"s3\""),
            "terraform {\n  cloud {\n  }\n}\n",
            "terraform { cloud{} }",
            "terraform { cloud \"s3\" {} }",
            "terraform {\n  backend \"s3\" {}\n  backend \"http\" {}\n}\n",
            "/*\n# */ terraform { backend \"local\" {} }\n",
            "terraform { backend \"s3\" { profile = \"x\" } }",
            "terraform {\n  backend\n=\n}\n",
            &with(&"acl=1#backend \"s3\" {\n".repeat(5)),
            &with(&"# of all\n".repeat(2000)),
            &format!("#{}backend \"local\" {{}}\n", " ".repeat(MAX_LINE)),
        ] {
            assert!(in_native(text, true).is_some(), "{text}");
        }
        for text in [
            r#"{"terraform": {"backend": {"s3": {}}}}"#,
            r#"{"terraform": {"\u0062ackend": {}}}"#,
            r#"{"terraform": {"cloud": {}}}"#,
        ] {
            assert!(in_json(text).is_some(), "{text}");
        }
        assert_eq!(in_json(r#"{"resource": {}}"#), None);
    }

    #[test]
    fn an_argument_may_give_a_plain_attribute() {
        for arg in [
            "-backend=false",
            "--backend=true",
            "-backend-config=key=a=b",
            "--backend-config=region=x",
        ] {
            assert!(is_plain_argument(arg), "{arg}");
        }
        for arg in [
            "-backend-config",
            "-backend-config=prod.hcl",
            "-backend-config=profile=x",
            "-backend-config= key=x",
            "-backend-config=\"key=x\"",
            "-upgrade -backend-config=key=x",
            "-backend",
            "-backend-config=key=$REPO_REL_DIR",
        ] {
            assert!(!is_plain_argument(arg), "{arg}");
        }
    }

    #[test]
    fn what_an_init_has_saved_can_be_plain() {
        let saved = r#"{"version": 3, "terraform_version": "1.15.5", "backend": {"type": "s3", "config":
            {"bucket": "b", "encrypt": true, "profile": null, "assume_role": null}, "hash": 1}}"#;
        assert!(is_plain_saved(saved));
        for (from, to) in [
            ("\"profile\": null", "\"profile\": \"x\""),
            ("\"assume_role\": null", "\"assume_role\": {}"),
            ("s3", "local"),
            ("\"version\"", "\"state_store\""),
            ("\"hash\"", "\"CONFIG\""),
            ("\"version\"", "\"Backend\""),
            ("\"backend\"", "\"other\""),
            ("}}", "}"),
        ] {
            let changed = saved.replacen(from, to, 1);
            assert_ne!(changed, saved);
            assert!(!is_plain_saved(&changed), "{changed}");
        }
    }
}
