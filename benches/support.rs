//! Includes the parts of the test support that the benchmarks need.

/// Parts of `db` that the module of the PostgreSQL cluster imports.
pub mod db {
    use chrono::{DateTime, Utc};

    /// Returns a fixed time, because any time will do.
    pub fn start_of_time() -> DateTime<Utc> {
        DateTime::UNIX_EPOCH
    }
}

#[expect(
    dead_code,
    reason = "tests also need databases without tables, and more of them than there is room for"
)]
#[path = "../tests/it/support/postgres.rs"]
pub mod postgres;

#[path = "../tests/it/support/installed.rs"]
pub mod installed;

#[expect(dead_code, reason = "tests also need servers that fail")]
#[path = "../tests/it/support/git_http.rs"]
#[expect(
    clippy::unwrap_used,
    reason = "the tests have the same server, and there nothing else is wanted"
)]
pub mod git_http;

#[expect(dead_code, reason = "tests also need pages, and hosts that fail")]
#[path = "../tests/it/registry/outside.rs"]
#[expect(
    clippy::unwrap_used,
    reason = "the tests have the same hosts, and there nothing else is wanted"
)]
pub mod outside;

#[expect(dead_code, reason = "tests also need the proxy")]
#[path = "../tests/it/registry/tunnel.rs"]
#[expect(
    clippy::unwrap_used,
    reason = "the tests have the same certificates, and there nothing else is wanted"
)]
mod tunnel;
