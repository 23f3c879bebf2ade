//! Coming from Atlantis: the program itself, on files and a Redis in Atlantis' formats.

mod redis;
mod story;

use std::path::PathBuf;
use std::process::Command;

use lockkeeper::store::DatabaseUrl;
use serde_json::Value;

/// A file of `tests/fixtures/bolt`.
fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bolt").join(name)
}

/// What the program said.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    /// `outcome key` of each lock.
    fn locks(&self) -> Vec<String> {
        let word = |lock: &Value, name: &str| lock[name].as_str().unwrap_or_default().to_owned();
        let json = self.json();
        let locks = json["locks"].as_array().unwrap();
        locks.iter().map(|lock| format!("{} {}", word(lock, "outcome"), word(lock, "atlantis_key"))).collect()
    }
}

/// `lockkeeper import atlantis …` into a database.
#[expect(clippy::disallowed_methods, reason = "the program under test is run as people run it")]
fn import(into: &DatabaseUrl, args: &[&str], variables: &[(&str, &str)]) -> Said {
    let url = match into {
        DatabaseUrl::Sqlite(_) => into.to_string(),
        DatabaseUrl::Postgres(_) => into.to_string().replace("://", "://postgres@"),
    };
    let data = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(["import", "atlantis", "--database-url", &url, "--data-dir"]).arg(data.path()).args(args);
    let output = command.env_clear().envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}
