//! The one place that reads the environment of the process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::config::server::{RawSettings, SettingsFile};

/// Tells a server that the rest of its variables comes by standard input.
pub(crate) const WIPED: &str = "LOCKKEEPER_WIPED_ENVIRONMENT";

/// Variables, folders and the name of the machine; no flags yet. Variables that are not UTF-8 are left out: none
/// of ours can be such.
pub(crate) fn read() -> anyhow::Result<RawSettings> {
    read_with(BTreeMap::new())
}

/// The same with more variables, which count over those of the process.
pub(crate) fn read_with(more: BTreeMap<OsString, OsString>) -> anyhow::Result<RawSettings> {
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .filter(|(name, _)| name != WIPED)
        .chain(more)
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok(RawSettings {
        flags: BTreeMap::new(),
        files: BTreeMap::new(),
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

/// As the kernel says, else as the shell says, else nothing.
fn hostname(variables: &BTreeMap<String, String>) -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = from_kernel.or_else(|| variables.get("HOSTNAME").cloned());
    name.unwrap_or_default().trim().to_owned()
}

/// Who runs the program, for records.
pub(crate) fn user() -> String {
    let name = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .ok()
        .flatten()
        .map(|user| user.name);
    name.unwrap_or_else(|| format!("user {}", nix::unistd::geteuid()))
}
