//! The program itself, as people run it on the database of a server.

use std::process::Command;

use lockkeeper::store::DatabaseUrl;
use serde_json::Value;

/// What the program said.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// `lockkeeper COMMAND… --database-url … ARGS…`, with no variables but these.
#[expect(clippy::disallowed_methods, reason = "the program under test is run as people run it")]
pub fn lockkeeper(command: &[&str], on: &DatabaseUrl, args: &[&str], variables: &[(&str, &str)]) -> Said {
    let url = match on {
        DatabaseUrl::Sqlite(_) => on.to_string(),
        DatabaseUrl::Postgres(_) => on.to_string().replace("://", "://postgres@"),
    };
    let data = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    program.args(command).args(["--database-url", &url, "--data-dir"]).arg(data.path()).args(args);
    let output = program.env_clear().envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}
