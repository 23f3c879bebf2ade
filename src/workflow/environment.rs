//! What a child process may see of the server's environment: only what is on a list (P8).
//!
//! A plan runs code from a pull request, so whatever the child can read, anybody who can open a pull request can read.
//! The server's own secrets are therefore never passed on, whatever the list says.

use std::collections::BTreeMap;
use std::ffi::OsString;

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Variables that programs need to find themselves, their configuration, and the cloud.
const ALWAYS: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_*", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "TF_*", "TFE_*", "TOFU_*", "AWS_*", "ARM_*", "AZURE_*", "GOOGLE_*", "GCLOUD_*", "CLOUDSDK_*", "KUBE_*",
    "KUBECONFIG", "VAULT_*", "CONSUL_*", "NOMAD_*", "OCI_*", "ALICLOUD_*", "DIGITALOCEAN_*", "HCLOUD_*",
];

/// Never passed on, even when the operator's list would match.
const NEVER: &[&str] = &["LOCKKEEPER_*", "ATLANTIS_*", "DATABASE_URL", "PGPASSWORD"];

/// The environment every child starts from.
#[derive(Clone)]
pub struct ChildEnvironment(BTreeMap<OsString, OsString>);

impl ChildEnvironment {
    /// Picks from the server's environment what is on the built-in list or on the operator's (`--pass-environment`,
    /// names or globs such as `DATADOG_*`).
    pub fn select(
        server: impl IntoIterator<Item = (OsString, OsString)>,
        operator: &[String],
    ) -> Result<Self, globset::Error> {
        let allowed = set(ALWAYS.iter().copied().chain(operator.iter().map(String::as_str)))?;
        let never = set(NEVER.iter().copied())?;
        let picked = server.into_iter().filter(|(name, _)| allowed.is_match(name) && !never.is_match(name));
        Ok(Self(picked.collect()))
    }

    /// The search path.
    pub fn path(&self) -> OsString {
        self.0.get(&OsString::from("PATH")).cloned().unwrap_or_default()
    }

    /// One variable.
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.0.get(&OsString::from(name))
    }

    /// Every variable.
    pub fn iter(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }
}

impl std::fmt::Debug for ChildEnvironment {
    /// Names only: values may be cloud credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn set<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<GlobSet, globset::Error> {
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        builder.add(Glob::new(pattern)?);
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_secrets_are_never_passed_on() {
        let server = [
            ("PATH", "/bin"),
            ("AWS_PROFILE", "prod"),
            ("DD_API_KEY", "k"),
            ("LOCKKEEPER_GH_TOKEN", "t"),
            ("ATLANTIS_GH_WEBHOOK_SECRET", "s"),
            ("DATABASE_URL", "postgres://"),
            ("SECRET_OF_ANOTHER_PROGRAM", "x"),
        ]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let child = ChildEnvironment::select(server, &["DD_*".to_owned(), "*GH_TOKEN".to_owned()]).unwrap();
        assert_eq!(format!("{child:?}"), r#"{"AWS_PROFILE", "DD_API_KEY", "PATH"}"#);
    }
}
