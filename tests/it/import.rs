//! Tests the migration from Atlantis: the program itself, on files and a Redis in Atlantis' formats.

mod redis;
mod story;

use std::path::PathBuf;

use lockkeeper::store::DatabaseUrl;
use serde_json::Value;

use crate::support::program::{ProgramOutput, lockkeeper};

/// Returns a file of `tests/fixtures/bolt`.
fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/bolt")
        .join(name)
}

/// Returns `outcome key` of each lock.
fn locks(said: &ProgramOutput) -> Vec<String> {
    let word = |lock: &Value, name: &str| lock[name].as_str().unwrap_or_default().to_owned();
    let json = said.json();
    let locks = json["locks"].as_array().unwrap();
    locks
        .iter()
        .map(|lock| format!("{} {}", word(lock, "outcome"), word(lock, "atlantis_key")))
        .collect()
}

/// Runs `lockkeeper import atlantis …` into a database.
fn import(into: &DatabaseUrl, args: &[&str], variables: &[(&str, &str)]) -> ProgramOutput {
    lockkeeper(&["import", "atlantis"], into, args, variables)
}
