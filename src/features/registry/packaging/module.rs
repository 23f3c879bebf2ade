//! Rules for packages of Terraform modules.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};

use lockkeeper_registry::records::Checksums;
use lockkeeper_registry::tf_archive::{TF_LIMITS, check_tf_archive};

use super::{CheckedFile, PackagingError};
use crate::discovery::{FileTree, MissingModule, missing_modules};
use crate::model::RepoPath;

/// Endings of files with code.
const ENDINGS: [&str; 4] = [".tf", ".tf.json", ".tofu", ".tofu.json"];
/// Maximum size of a file that is searched for calls of modules.
const MAX_CODE_FILE: u64 = 512 << 10;
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
    /// Modules of the package use others that are not part of it.
    #[error("{}", list(.0))]
    Missing(Vec<MissingModule>),
}

/// Checks a package and returns its checksum.
pub(super) fn check(archive: File) -> Result<CheckedFile, PackagingError> {
    let mut files = Vec::new();
    let mut code = HashMap::new();
    let mut budget = MAX_CODE;
    let contents = check_tf_archive(archive, &TF_LIMITS, |path, content| {
        // The check refuses paths that are too long for a repository only far beyond any real one.
        let Ok(path) = path.parse::<RepoPath>() else {
            return Ok(());
        };
        if is_code(path.as_str())
            && let Some(text) = read_code(content, &mut budget)?
        {
            code.insert(path.clone(), text);
        }
        files.push(path);
        Ok(())
    })?;
    if contents.files == 0 {
        return Err(PackagingError::Empty);
    }
    if !files.iter().any(|path| is_code(path.as_str())) {
        return Err(ModuleFault::NoCode.into());
    }
    let tree = FileTree::new(files);
    // Code beyond the limits of the search is published as it is.
    let missing = missing_modules(&tree, &|path| code.get(path).cloned());
    let missing: Vec<MissingModule> = missing.into_iter().flatten().collect();
    if !missing.is_empty() {
        return Err(ModuleFault::Missing(missing).into());
    }
    Ok(CheckedFile {
        checksums: Checksums::Module {
            files: contents.hash,
        },
        go_mod: None,
    })
}

fn is_code(path: &str) -> bool {
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
            is_outside,
        } = missing;
        let place = if *is_outside {
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
