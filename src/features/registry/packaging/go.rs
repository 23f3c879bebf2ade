//! Rules for packages of Go modules.

use std::fs::File;
use std::io::{BufReader, Read as _};

use lockkeeper_registry::dirhash::hash_go_mod;
use lockkeeper_registry::go_mod::{InvalidGoMod, MAX_GO_MOD, parse_go_mod};
use lockkeeper_registry::go_zip::{GO_LIMITS, check_go_zip, synthetic_go_mod};
use lockkeeper_registry::names::GoPath;
use lockkeeper_registry::records::Checksums;
use lockkeeper_registry::versions::{GoVersion, InvalidPseudoVersion};

use super::leaks::LeakReader;
use super::{CheckedFile, PackagingError};

/// Files that are not the Go module that is published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoModFault {
    /// The file has more bytes than a registry keeps.
    #[error(
        "the go.mod file has more than {MAX_GO_MOD} bytes. Remove requirements and comments that the module does not need"
    )]
    TooLarge,
    /// The `go` command cannot read the file.
    #[error(transparent)]
    Unreadable(#[from] InvalidGoMod),
    /// The file does not name a module.
    #[error("the go.mod file has no `module` line. Write `module {0}`")]
    NoModule(GoPath),
    /// The file names another module.
    #[error(
        "the go.mod file is that of the module `{found}`, and the version is one of `{path}`. Write `module {path}`, or \
         publish it under the other name"
    )]
    OtherModule {
        /// Module of the file.
        found: String,
        /// Module of the version.
        path: GoPath,
    },
    /// The module has a major version in its path, and no file says so.
    #[error(
        "a module with a major version in its path has a go.mod file. Write one with `module {0}`"
    )]
    Missing(GoPath),
    /// The version is one of a module without the file.
    #[error(
        "`{version}` is a version of a module without a go.mod file, and the package has one. Publish it as \
         `{path}/{major}`, and write `module {path}/{major}`"
    )]
    Incompatible {
        /// Module of the version.
        path: GoPath,
        /// Version, which ends in `+incompatible`.
        version: GoVersion,
        /// Major version, as the end of the path has it.
        major: String,
    },
    /// The pseudo-version contradicts itself.
    #[error("`{version}`: {fault}")]
    PseudoVersion {
        /// Version in the form of a pseudo-version.
        version: GoVersion,
        /// Contradiction between its parts.
        fault: InvalidPseudoVersion,
    },
}

/// Checks a package and returns its checksums, and the `go.mod` file as clients get it.
pub(super) fn check(
    path: &GoPath,
    version: &GoVersion,
    zip: File,
) -> Result<CheckedFile, PackagingError> {
    if let Err(fault) = version.pseudo() {
        let version = version.clone();
        return Err(GoModFault::PseudoVersion { version, fault }.into());
    }
    let (mut go_mod, mut token_in) = (None, None);
    let zip = BufReader::new(zip);
    let contents = check_go_zip(path, version, zip, &GO_LIMITS, |name, content| {
        let mut content = LeakReader::new(content);
        if name == "go.mod" {
            // One byte more than allowed is enough to know that the file is too large.
            let mut bytes = Vec::new();
            let mut head = content.by_ref().take(MAX_GO_MOD + 1);
            head.read_to_end(&mut bytes)?;
            go_mod = Some(bytes);
        }
        if content.finish()? && token_in.is_none() {
            token_in = Some(name.to_owned());
        }
        Ok(())
    })?;
    if contents.files == 0 {
        return Err(PackagingError::Empty);
    }
    let go_mod = served_go_mod(path, version, go_mod)?;
    Ok(CheckedFile {
        checksums: Checksums::Go {
            zip: contents.hash,
            go_mod: hash_go_mod(&go_mod),
        },
        go_mod: Some(go_mod),
        token_in,
    })
}

/// Returns the `go.mod` file that clients get: that of the package, or one that names the module alone. The rules are
/// those of the `go` command for modules that it finds in repositories.
fn served_go_mod(
    path: &GoPath,
    version: &GoVersion,
    go_mod: Option<Vec<u8>>,
) -> Result<Vec<u8>, GoModFault> {
    let Some(content) = go_mod else {
        // The suffix of gopkg.in is part of the name of the repository.
        if path.major_suffix().starts_with("/v") {
            return Err(GoModFault::Missing(path.clone()));
        }
        return Ok(synthetic_go_mod(path).into_bytes());
    };
    if content.len() as u64 > MAX_GO_MOD {
        return Err(GoModFault::TooLarge);
    }
    let Some(found) = parse_go_mod(&content)?.module else {
        return Err(GoModFault::NoModule(path.clone()));
    };
    if found != path.as_str() {
        let path = path.clone();
        return Err(GoModFault::OtherModule { found, path });
    }
    if version.is_incompatible() {
        let text = version.to_string();
        let (major, _) = text.split_once('.').unwrap_or((&text, ""));
        return Err(GoModFault::Incompatible {
            path: path.clone(),
            version: version.clone(),
            major: major.to_owned(),
        });
    }
    Ok(content)
}
