//! Rules for packages of Terraform modules.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};

use lockkeeper_registry::records::{Checksums, PackageFileName};
use lockkeeper_registry::tf_archive::{TF_LIMITS, check_tf_archive};

use super::leaks::LeakReader;
use super::reach::{MAX_DIRS, MAX_SEARCHED};
use super::{CheckedFile, PackagingError};
use crate::discovery::{FileTree, MissingModule, missing_modules};
use crate::model::RepoPath;

/// Endings of files with code.
const ENDINGS: [&str; 4] = [".tf", ".tf.json", ".tofu", ".tofu.json"];
/// Maximum size of a file that is searched for calls of modules.
pub(super) const MAX_CODE_FILE: u64 = 512 << 10;
/// Maximum number of bytes that are searched in a package.
const MAX_CODE: u64 = 64 << 20;
/// Maximum number of faults in a message.
const MAX_SHOWN: usize = 10;

/// Files that are no Terraform module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModuleFault {
    /// No file has code.
    #[error(
        "the package has no file with code: none of its names ends with `.tf`, `.tf.json`, `.tofu` or `.tofu.json`"
    )]
    NoCode,
    /// The directory of the module has no code.
    #[error("the package has no file with code in `{0}`, which is the directory of the module")]
    NoCodeIn(RepoPath),
    /// The path of the directory cannot be part of the name of the package.
    #[error(
        "the module in `{0}` uses modules outside of its directory, so its path becomes part of the package. It can have \
         only letters, digits and `-._`, and at most 114 bytes. Rename the directory, or use published modules"
    )]
    Unnameable(RepoPath),
    /// The module uses modules in too many directories.
    #[error(
        "the module uses modules in more than {MAX_DIRS} directories outside of its own. Move it to the directory above \
         them, or use published modules"
    )]
    FarReaching,
    /// The module and the modules that it uses have too much code.
    #[error(
        "the module uses modules outside of its directory with too much code: the search for all of them reads more than {} \
         MiB. Move the module to the directory above them, or use published modules",
        MAX_SEARCHED >> 20
    )]
    TooMuchCode,
    /// Modules of the package use others that are not part of it.
    #[error("{}", list(.0))]
    Missing(Vec<MissingModule>),
}

/// Returns the name of the package of a module in this directory.
pub(super) fn file_name(dir: &RepoPath) -> Result<PackageFileName, ModuleFault> {
    PackageFileName::of_module_in(dir).ok_or_else(|| ModuleFault::Unnameable(dir.clone()))
}

/// Checks a package and returns its checksum. `dir` is the directory of the module in the package.
pub(super) fn check(archive: File, dir: &RepoPath) -> Result<CheckedFile, PackagingError> {
    let mut files = Vec::new();
    let mut code = HashMap::new();
    let mut budget = MAX_CODE;
    let mut token_in = None;
    let contents = check_tf_archive(archive, &TF_LIMITS, |name, content| {
        let mut content = LeakReader::new(content);
        // The check refuses paths that are too long for a repository only far beyond any real one.
        if let Ok(path) = name.parse::<RepoPath>() {
            if is_code(path.as_str())
                && let Some(text) = read_code(&mut content, &mut budget)?
            {
                code.insert(path.clone(), text);
            }
            files.push(path);
        }
        if content.finish()? && token_in.is_none() {
            token_in = Some(name.to_owned());
        }
        Ok(())
    })?;
    if contents.files == 0 {
        return Err(PackagingError::Empty);
    }
    let mut code_files = files.iter().filter(|path| is_code(path.as_str()));
    if !code_files.any(|path| dir.contains(path)) {
        let fault = if dir.is_root() {
            ModuleFault::NoCode
        } else {
            ModuleFault::NoCodeIn(dir.clone())
        };
        return Err(fault.into());
    }
    let tree = FileTree::new(files);
    // Code beyond the limits of the search is published as it is.
    let missing = missing_modules(&tree, dir, &|path| code.get(path).cloned());
    let missing: Vec<MissingModule> = missing.into_iter().flatten().collect();
    if !missing.is_empty() {
        return Err(ModuleFault::Missing(missing).into());
    }
    Ok(CheckedFile {
        checksums: Checksums::Module {
            files: contents.hash,
        },
        go_mod: None,
        token_in,
    })
}

pub(super) fn is_code(path: &str) -> bool {
    ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// Reads the text of a file, if it is text and not too large.
fn read_code(content: &mut dyn Read, budget: &mut u64) -> io::Result<Option<String>> {
    let most = MAX_CODE_FILE.min(*budget);
    let mut bytes = Vec::new();
    content.take(most + 1).read_to_end(&mut bytes)?;
    let size = bytes.len() as u64;
    *budget = budget.saturating_sub(size);
    Ok(String::from_utf8(bytes).ok().filter(|_| size <= most))
}

fn list(missing: &[MissingModule]) -> String {
    let shown = missing.iter().take(MAX_SHOWN).map(|missing| {
        let MissingModule {
            dir,
            source,
            module,
        } = missing;
        let place = if module.is_none() {
            "outside of the package"
        } else {
            "not in the package"
        };
        let user = if dir.is_root() {
            "the module".to_owned()
        } else {
            format!("the module in `{dir}`")
        };
        format!("{user} uses `{source}`, which is {place}")
    });
    let shown: Vec<String> = shown.collect();
    format!(
        "{}. Publish a directory that has all modules which it uses, or use published ones",
        shown.join("; ")
    )
}
