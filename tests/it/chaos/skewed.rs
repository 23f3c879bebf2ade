//! Runs servers whose clocks are wrong. The program is the real one: a library between it and the system changes its
//! time.

#![expect(
    clippy::disallowed_methods,
    reason = "a tool of the test, and the clock that others are compared with"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use chrono::{DateTime, Utc};

use super::post::Postman;
use crate::support::server::Settings;

/// Returns settings of a server whose clock is this many seconds ahead.
pub fn off_by(settings: Settings, seconds: i64) -> Settings {
    if seconds == 0 {
        return settings;
    }
    settings.variable("LD_PRELOAD", &library(seconds).display().to_string())
}

/// Returns how many seconds the clock of a server is ahead, according to the server.
pub async fn clock_of(post: &Postman, server: usize) -> i64 {
    let answer = post
        .client()
        .get(post.url(server) + "/healthz")
        .send()
        .await
        .expect("it has just started");
    let said = answer.headers()["date"].to_str().expect("a time");
    (DateTime::parse_from_rfc2822(said).expect("a time").to_utc() - Utc::now()).num_seconds()
}

/// Builds the library once, with the compiler that the build of this program also needs.
fn library(seconds: i64) -> PathBuf {
    static BUILT: Mutex<()> = Mutex::new(());
    let _alone = BUILT.lock().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes/clock.c");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("clock{seconds:+}-{}.so", std::process::id()));
    if !built.exists() {
        let offset = format!("-DOFFSET={seconds}");
        let compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", &offset, "-o"])
            .arg(&built)
            .arg(source)
            .status();
        assert!(
            compiler.expect("a C compiler").success(),
            "tests/fakes/clock.c cannot be built"
        );
    }
    built
}
