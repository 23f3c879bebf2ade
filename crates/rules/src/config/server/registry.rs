//! Settings of the registry of modules.

use lockkeeper_registry::records::DeploymentName;

use super::reader::{ReadResult, SettingReader};
use super::section::section;
use super::web::read_public_url;

const REGISTRY: &str = "registry";
const NAME: &str = "registry-name";
const ANONYMOUS_READ: &str = "registry-anonymous-read";
const ENCRYPTION_KEYS: &str = "encryption-key-file";

/// A registry of Terraform and Go modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRegistry {
    /// Name of this deployment and of its log.
    pub name: DeploymentName,
    /// Permits reading names of public namespaces without a token.
    pub is_open: bool,
}

section! {
    /// Settings of the registry of modules.
    pub struct RegistryConfig in Registry {
        /// Registry of this server. `None` without `--registry`.
        pub own: Option<OwnRegistry> = read_registry from {
            /// Publish Terraform and Go modules, and serve them to `terraform`, `tofu` and `go`. Needs
            /// --encryption-key-file for the key that signs the log.
            switch("registry"),

            /// Name of this registry and of its log, such as mods.example.com. It is part of each record, so it cannot
            /// change after the first start. Two registries never have the same name.
            text("registry-name", "NAME").or_derived("the host of --atlantis-url"),

            /// Serve names of public namespaces without a token.
            switch("registry-anonymous-read"),
        },
    }
}

fn read_registry(reader: &mut SettingReader<'_>) -> ReadResult<Option<OwnRegistry>> {
    let is_open = reader.switch(ANONYMOUS_READ);
    if !reader.switch(REGISTRY)? {
        let without_effect = [
            (NAME, reader.given(NAME).is_some()),
            (ANONYMOUS_READ, is_open?),
        ];
        return match without_effect.into_iter().find(|(_, is_set)| *is_set) {
            None => Ok(None),
            Some((flag, _)) => reader.refuse(
                flag,
                "set, but --registry is not, so it would have no effect",
                "set --registry, or remove this setting",
            ),
        };
    }
    if reader.path(ENCRYPTION_KEYS).is_none() {
        return reader.refuse(
            ENCRYPTION_KEYS,
            "missing, but --registry is set: the key that signs the log is encrypted in the database",
            "write the output of `lockkeeper credentials keygen` into a file, and name the file",
        );
    }
    let name = read_name(reader)?;
    let is_open = is_open?;
    Ok(Some(OwnRegistry { name, is_open }))
}

fn read_name(reader: &mut SettingReader<'_>) -> ReadResult<DeploymentName> {
    let fix = "write a name such as `mods.example.com`, in lower case";
    if let Some(name) = reader.parsed(NAME, str::parse, fix)? {
        return Ok(name);
    }
    let url = read_public_url(reader)?;
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    host.parse().or_else(|_| {
        let what = format!("not set, and `{host}`, the host of --atlantis-url, cannot be the name");
        reader.refuse(NAME, what, fix)
    })
}
