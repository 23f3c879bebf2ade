//! Limits the environment of child processes to the variables that `config::server::PassEnvironment` picked (P8).

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::RunSandbox;

/// Environment and sandbox for the programs of a stage. Plans and applies may have different credentials.
#[derive(Clone, Debug)]
pub struct StageSetup {
    pub environment: ChildEnvironment,
    /// Sandbox around the programs.
    pub sandbox: RunSandbox,
}

impl StageSetup {
    /// Combines an environment and a sandbox.
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

/// Variable with the path of the git configuration that replaces the one of the user.
pub(super) const GIT_CONFIG: &str = "GIT_CONFIG_GLOBAL";

/// Environment that every child process starts with.
#[derive(Clone, Default)]
pub struct ChildEnvironment(BTreeMap<OsString, OsString>);

impl FromIterator<(OsString, OsString)> for ChildEnvironment {
    fn from_iter<T: IntoIterator<Item = (OsString, OsString)>>(picked: T) -> Self {
        Self(picked.into_iter().collect())
    }
}

impl ChildEnvironment {
    /// Returns the search path (`PATH`), empty if unset.
    pub fn path(&self) -> OsString {
        self.0
            .get(&OsString::from("PATH"))
            .cloned()
            .unwrap_or_default()
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn with(mut self, name: &str, value: OsString) -> Self {
        self.0.insert(name.into(), value);
        self
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.0.get(&OsString::from(name))
    }

    /// Iterates over all variables.
    pub fn iter(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }
}

impl std::fmt::Debug for ChildEnvironment {
    /// Prints only names, because values may be cloud credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
