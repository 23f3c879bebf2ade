//! Reads the environment of the process. No other module does.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::config::server::{RawSettings, SettingsFile};

/// Variable by which a server knows that the rest of its variables arrives on standard input.
pub(crate) const WIPED: &str = "LOCKKEEPER_WIPED_ENVIRONMENT";

/// Reads variables, folders and the name of the machine, but no flags. Variables that are not UTF-8 are ignored,
/// because none of ours can be one of them.
pub(crate) fn read() -> anyhow::Result<RawSettings> {
    read_with(BTreeMap::new())
}

/// Reads the environment with more variables, which take precedence over those of the process.
pub(crate) fn read_with(more: BTreeMap<OsString, OsString>) -> anyhow::Result<RawSettings> {
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .filter(|(name, _)| name != WIPED)
        .chain(more)
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok(RawSettings {
        flags: BTreeMap::new(),
        files: BTreeMap::new(),
        secret_files: BTreeMap::new(),
        settings_file: SettingsFile::default(),
        home: variables
            .get("HOME")
            .filter(|home| !home.is_empty())
            .map(PathBuf::from),
        working_dir: std::env::current_dir().context("cannot find out the working folder")?,
        hostname: hostname(&variables),
        variables,
    })
}

/// Returns the host name from the kernel, otherwise from the shell, otherwise an empty text.
fn hostname(variables: &BTreeMap<String, String>) -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = from_kernel.or_else(|| variables.get("HOSTNAME").cloned());
    name.unwrap_or_default().trim().to_owned()
}

/// Returns the environment of git: the variables for programs and the person's settings, but none that would lead git
/// to another repository.
pub(crate) fn for_git(raw: &RawSettings) -> Vec<(OsString, OsString)> {
    const NAMES: [&str; 5] = [
        "PATH",
        "HOME",
        "XDG_CONFIG_HOME",
        "GIT_CONFIG_GLOBAL",
        "GIT_CEILING_DIRECTORIES",
    ];
    let given = NAMES
        .iter()
        .filter_map(|name| Some((name.into(), raw.variables.get(*name)?.into())));
    given.collect()
}

/// Returns the name of the user who runs the program, for the audit log.
pub(crate) fn user() -> String {
    let name = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .ok()
        .flatten()
        .map(|user| user.name);
    name.unwrap_or_else(|| format!("user {}", nix::unistd::geteuid()))
}
