//! Reads names and versions as people write them, on the command line and in requests.
//!
//! The kind of a name need not be given: the first element of the path of a Go module has a dot, and no namespace of
//! Terraform modules does.

use lockkeeper_registry::names::{NameKind, NamePrefix, RegistryName};
use lockkeeper_registry::versions::VersionKey;

/// Returns the kind of a name or prefix, by its form.
pub(super) fn kind_of(text: &str) -> NameKind {
    let first = text.split('/').next().unwrap_or_default();
    if first.contains('.') {
        NameKind::Go
    } else {
        NameKind::Module
    }
}

/// Reads a name such as `acme/vpc/aws`, `example.com/m/v2` or `go example.com/m/v2`.
pub(super) fn read_name(text: &str) -> Result<RegistryName, String> {
    let name = match text.split_once(' ') {
        Some(_) => text.parse(),
        None => RegistryName::new(kind_of(text), text),
    };
    name.map_err(|error| error.to_string())
}

/// Reads the prefix of a namespace, such as `acme`, `example.com/net` or `module acme`.
pub(super) fn read_prefix(text: &str) -> Result<NamePrefix, String> {
    let prefix = match text.split_once(' ') {
        Some(_) => text.parse(),
        None => format!("{} {text}", kind_of(text)).parse(),
    };
    let prefix: Result<NamePrefix, _> = prefix;
    prefix.map_err(|error| error.to_string())
}

/// Reads a version of a name.
pub(super) fn read_version(name: RegistryName, version: &str) -> Result<VersionKey, String> {
    VersionKey::new(name, version).map_err(|error| error.to_string())
}

/// Reads a name with a version, such as `acme/vpc/aws@1.2.3`. No name has the character `@`.
pub(super) fn read_key(text: &str) -> Result<VersionKey, String> {
    match text.split_once('@') {
        Some((name, version)) => read_version(read_name(name)?, version),
        None => Err("write the name and the version, as in acme/vpc/aws@1.2.3".to_owned()),
    }
}

/// A name, or one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameOrVersion {
    Name(RegistryName),
    Version(VersionKey),
}

impl NameOrVersion {
    /// Returns the name, without the version.
    pub fn name(&self) -> RegistryName {
        match self {
            Self::Name(name) => name.clone(),
            Self::Version(key) => key.name(),
        }
    }

    /// Returns the version, if there is one.
    pub fn version(&self) -> Option<&VersionKey> {
        match self {
            Self::Name(_) => None,
            Self::Version(key) => Some(key),
        }
    }
}

/// Reads a name with or without a version.
pub(super) fn read_name_or_version(text: &str) -> Result<NameOrVersion, String> {
    if text.contains('@') {
        read_key(text).map(NameOrVersion::Version)
    } else {
        read_name(text).map(NameOrVersion::Name)
    }
}

/// Reads the version to use instead of another one: another version of the same name, such as `1.2.4`, or one of another
/// name, such as `acme/network/aws@1.0.0`.
pub(super) fn read_replacement(key: &VersionKey, text: &str) -> Result<VersionKey, String> {
    let replacement = if text.contains('@') {
        read_key(text)?
    } else {
        read_version(key.name(), text)?
    };
    if replacement == *key {
        Err("it is the version itself: name another one".to_owned())
    } else if replacement.kind() != key.kind() {
        Err(format!(
            "`{replacement}` cannot be used instead of `{key}`: name a version of the same kind"
        ))
    } else {
        Ok(replacement)
    }
}

/// Writes a version as [`read_key`] reads it.
pub(super) fn shown_key(key: &VersionKey) -> String {
    format!("{}@{}", key.name().as_str(), key.version())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::fixed_seed;

    #[test]
    fn the_form_of_a_name_says_its_kind() {
        for (text, name) in [
            ("acme/vpc/aws", "module acme/vpc/aws"),
            ("module Acme/vpc/aws", "module acme/vpc/aws"),
            ("example.com/m/v2", "go example.com/m/v2"),
            ("go example.com/Net", "go example.com/Net"),
        ] {
            let read = read_name(text);
            assert_eq!(read.map(|name| name.to_string()).as_deref(), Ok(name));
        }
        for (text, part) in [
            ("acme/vpc", "three parts"),
            ("acme.io/vpc/aws/v1", "major version suffix"),
            ("provider acme/x", "`module` or `go`"),
            ("", "three parts"),
        ] {
            let error = read_name(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, prefix) in [
            ("acme", "module acme"),
            ("example.com", "go example.com"),
            ("go example.com/net", "go example.com/net"),
        ] {
            let read = read_prefix(text);
            assert_eq!(read.map(|prefix| prefix.to_string()).as_deref(), Ok(prefix));
        }
    }

    #[test]
    fn a_version_stands_behind_its_name() {
        for text in ["acme/vpc/aws@1.2.3", "example.com/m/v2@v2.0.0"] {
            assert_eq!(
                read_key(text).map(|key| shown_key(&key)).as_deref(),
                Ok(text)
            );
        }
        for (text, part) in [
            ("acme/vpc/aws", "acme/vpc/aws@1.2.3"),
            ("acme/vpc/aws@v1.2.3", "no leading `v`"),
            ("acme/vpc/aws@latest", "SemVer"),
            ("example.com/m@1.2.3", "written as `v1.2.3`"),
            ("example.com/m@v2.0.0", "none of them"),
        ] {
            let error = read_key(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_is_read_with_or_without_a_version() {
        let text = |asked: &str| {
            let read = read_name_or_version(asked).ok()?;
            let version = read.version().map(VersionKey::version);
            Some((read.name().to_string(), version))
        };
        assert_eq!(
            text("acme/vpc/aws@1.2.3"),
            Some(("module acme/vpc/aws".to_owned(), Some("1.2.3".to_owned())))
        );
        assert_eq!(
            text("example.com/m/v2"),
            Some(("go example.com/m/v2".to_owned(), None))
        );
        for asked in ["", "acme", "acme/vpc/aws@x", "../etc", "acme/vpc/aws@"] {
            assert_eq!(text(asked), None, "{asked}");
        }
    }

    #[test]
    fn a_replacement_is_another_version_of_the_same_kind() {
        let key = read_key("acme/vpc/aws@1.2.3").unwrap();
        let read = |text: &str| read_replacement(&key, text).map(|key| shown_key(&key));
        assert_eq!(read("1.2.4").as_deref(), Ok("acme/vpc/aws@1.2.4"));
        assert_eq!(
            read("acme/net/aws@1.0.0").as_deref(),
            Ok("acme/net/aws@1.0.0")
        );
        assert!(read("1.2.3").unwrap_err().contains("itself"));
        assert!(
            read("example.com/m@v1.0.0")
                .unwrap_err()
                .contains("same kind")
        );
        assert!(read("v1.2.4").is_err());
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn a_version_that_is_read_is_shown_alike(text in "((go |module )?[a-zA-Z.]{1,12}(/[a-z0-9]{1,4}){1,3}@v?[0-9]\\.[0-9]\\.0(-rc)?)|.{0,30}") {
            drop((read_prefix(&text), read_name(&text)));
            if let Ok(key) = read_key(&text) {
                prop_assert_eq!(read_key(&shown_key(&key)), Ok(key.clone()));
                drop(read_replacement(&key, &text));
            }
        }
    }
}
