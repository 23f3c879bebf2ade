//! What a child process may see of the server's environment (P8): what `config::server::PassEnvironment` picked.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::RunSandbox;

/// What the programs of a stage are given: plans and applies may have credentials of their own.
#[derive(Clone, Debug)]
pub struct StageSetup {
    /// Their environment.
    pub environment: ChildEnvironment,
    /// The boundary around them.
    pub sandbox: RunSandbox,
}

impl StageSetup {
    /// Programs with this environment, within this boundary.
    pub fn new(environment: ChildEnvironment, sandbox: RunSandbox) -> Self {
        let environment = match sandbox.git_config(&environment) {
            Some(file) => environment.with(GIT_CONFIG, file.into()),
            None => environment,
        };
        Self {
            environment,
            sandbox,
        }
    }
}

/// Names the file that git reads in place of those of its user.
pub(super) const GIT_CONFIG: &str = "GIT_CONFIG_GLOBAL";

/// The environment every child starts from.
#[derive(Clone, Default)]
pub struct ChildEnvironment(BTreeMap<OsString, OsString>);

impl FromIterator<(OsString, OsString)> for ChildEnvironment {
    fn from_iter<T: IntoIterator<Item = (OsString, OsString)>>(picked: T) -> Self {
        Self(picked.into_iter().collect())
    }
}

impl ChildEnvironment {
    /// The search path.
    pub fn path(&self) -> OsString {
        self.0
            .get(&OsString::from("PATH"))
            .cloned()
            .unwrap_or_default()
    }

    /// The same with one more variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: OsString) -> Self {
        self.0.insert(name.into(), value);
        self
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
