//! Describes the machine on which the figures were measured.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use sqlx::Connection as _;
use sqlx_sqlite::SqliteConnection;

use crate::report::Section;

/// Describes the machine, its disk at `dir`, and the versions of programs.
pub async fn facts(dir: &Path) -> anyhow::Result<Section> {
    let mut section = Section::new(format!("Lockkeeper {}", env!("CARGO_PKG_VERSION")));
    let cores = std::thread::available_parallelism().context("cannot count the processors")?;
    section.note(format!(
        "Processor: {cores} × {}",
        field("/proc/cpuinfo", "model name")
    ));
    section.note(format!(
        "Memory: {}; kernel: {}",
        field("/proc/meminfo", "MemTotal"),
        read("/proc/sys/kernel/osrelease")
    ));
    section.note(format!("Disk: {}", filesystem(dir)));
    section.note(format!(
        "SQLite {}; {}",
        sqlite_version().await?,
        git_version()?
    ));
    section.note(format!("Load of the machine before: {}", load()));
    if cfg!(debug_assertions) {
        section.fail("this is a debug build");
    }
    if filesystem(dir).starts_with("tmpfs") {
        section.fail("the directory is in memory, where nothing has to be written: name another one with --dir");
    }
    Ok(section)
}

/// Returns the notes that are only known at the end.
pub fn afterwards() -> Section {
    let mut section = Section::default();
    section.note(format!("Load of the machine after: {}", load()));
    section
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns the value after the first `name:` of a file in `/proc`.
fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.split_once(':'));
    value.map_or_else(
        || "unknown".to_owned(),
        |(_, value)| value.trim().to_owned(),
    )
}

/// Returns the load averages of one, five and fifteen minutes.
fn load() -> String {
    read("/proc/loadavg")
        .split_whitespace()
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the type of the file system. proc(5), `mountinfo`: mount point in field 5, type and source after the dash.
fn filesystem(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mounts = read("/proc/self/mountinfo");
    let at = |line: &&str| {
        line.split_whitespace()
            .nth(4)
            .is_some_and(|point| dir.starts_with(Path::new(point)))
    };
    let depth = |line: &&str| line.split_whitespace().nth(4).map_or(0, str::len);
    let mount = mounts.lines().filter(at).max_by_key(depth);
    let kind = mount.and_then(|line| line.split_once(" - ")?.1.split_whitespace().next());
    kind.unwrap_or("unknown").to_owned()
}

async fn sqlite_version() -> anyhow::Result<String> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    Ok(sqlx::query_scalar("SELECT sqlite_version()")
        .fetch_one(&mut connection)
        .await?)
}

#[expect(clippy::disallowed_methods, reason = "asks a program for its version")]
fn git_version() -> anyhow::Result<String> {
    let output = Command::new("git")
        .arg("--version")
        .output()
        .context("cannot start git")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
