//! The one place that reads the environment of the process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::config::server::{RawSettings, SettingsFile};
use crate::config::variables;

/// Tells a server that the rest of its variables comes by standard input.
const WIPED: &str = "LOCKKEEPER_WIPED_ENVIRONMENT";

/// As [`read`], for a server: secrets do not stay in the block of variables that the process was started with. A process
/// cannot change that block itself, so the program starts itself once more, in the same process, and hands itself what it
/// took out through memory that nobody else can open.
pub(super) fn read_and_wipe() -> anyhow::Result<RawSettings> {
    let doing = "cannot take secrets out of the environment of the server";
    if std::env::var_os(WIPED).is_some() {
        return read_with(received().context(doing)?);
    }
    let (kept, taken): (Vec<_>, Vec<_>) = std::env::vars_os().partition(|(name, _)| stays(name));
    if taken.is_empty() {
        return read();
    }
    Err(start_again(&kept, &taken).context(doing))
}

fn stays(name: &OsStr) -> bool {
    name.to_str().is_some_and(variables::stays)
}

/// Does not return unless it fails.
#[expect(clippy::disallowed_methods, reason = "the process goes on as the same program; no child is started")]
fn start_again(kept: &[(OsString, OsString)], taken: &[(OsString, OsString)]) -> anyhow::Error {
    let written = || -> anyhow::Result<File> {
        let mut memory = File::from(memfd_create("environment", MFdFlags::MFD_CLOEXEC)?);
        for (name, value) in taken {
            memory.write_all(&[name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat())?;
        }
        memory.rewind()?;
        Ok(memory)
    };
    let prepared = || -> anyhow::Result<std::process::Command> {
        let mut args = std::env::args_os();
        let mut command = std::process::Command::new(std::env::current_exe()?);
        if let Some(name) = args.next() {
            command.arg0(name);
        }
        command.args(args).env_clear().envs(kept.iter().cloned()).env(WIPED, "1").stdin(written()?);
        Ok(command)
    };
    match prepared() {
        Ok(mut command) => command.exec().into(),
        Err(error) => error,
    }
}

/// What was taken out, from standard input; that is empty afterwards, for this process and all it starts.
fn received() -> anyhow::Result<BTreeMap<OsString, OsString>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    let variables = bytes.split(|byte| *byte == 0).filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'=')?;
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((text(&line[..at]), text(&line[at + 1..])))
    });
    Ok(variables.collect())
}

/// Variables, folders and the name of the machine; no flags yet. Variables that are not UTF-8 are left out: none
/// of ours can be such.
pub(super) fn read() -> anyhow::Result<RawSettings> {
    read_with(BTreeMap::new())
}

fn read_with(more: BTreeMap<OsString, OsString>) -> anyhow::Result<RawSettings> {
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .filter(|(name, _)| name != WIPED)
        .chain(more)
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok(RawSettings {
        flags: BTreeMap::new(),
        files: BTreeMap::new(),
        settings_file: SettingsFile::default(),
        home: variables.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from),
        working_dir: std::env::current_dir().context("cannot find out the working folder")?,
        hostname: hostname(&variables),
        variables,
    })
}

/// As the kernel says, else as the shell says, else nothing.
fn hostname(variables: &BTreeMap<String, String>) -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = from_kernel.or_else(|| variables.get("HOSTNAME").cloned());
    name.unwrap_or_default().trim().to_owned()
}

/// Who runs the program, for records.
pub(super) fn user() -> String {
    let name = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.name);
    name.unwrap_or_else(|| format!("user {}", nix::unistd::geteuid()))
}
