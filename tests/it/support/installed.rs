//! Finds the programs of this machine.

use std::path::PathBuf;

/// Returns the path of an installed program. If a program has only a name, and a `PATH` that differs, the standard library
/// starts it with `fork`. That copies the page tables of this process, which is large.
pub fn on_path(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|dir| dir.join(name));
    files
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed"))
}
