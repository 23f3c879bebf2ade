//! Builds the environment of steps (reference 6.5, 6.6): the variables of the server that the administrator passes on
//! (P8), then variables of the run, and last those that `env` and `multienv` have set.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::Steps;
use crate::workflow::ChildEnvironment;
use crate::workflow::cli_config::CONFIG_FILE;
use crate::workflow::data_dir;

/// Returns the variables of a command of the administrator that do not depend on the run: the environment that the
/// server passes on, with the programs for runs first on the search path. So `terraform` in a command is the program
/// that the built-in steps run.
pub(in crate::workflow) fn base(
    environment: &ChildEnvironment,
    bin_dirs: &[PathBuf],
) -> BTreeMap<OsString, OsString> {
    let mut all: BTreeMap<OsString, OsString> = environment
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    all.insert("PATH".into(), with_dirs(&environment.path(), bin_dirs));
    all
}

/// Builds a search path. Relative directories are left out, because they would be found in the checkout.
fn with_dirs(path: &OsStr, first: &[PathBuf]) -> OsString {
    let dirs = first
        .iter()
        .cloned()
        .chain(std::env::split_paths(path))
        .filter(|dir| dir.is_absolute());
    std::env::join_paths(dirs).unwrap_or_else(|_| path.to_owned())
}

/// Returns the variables that name a home directory, and the directories of configuration and data in it.
fn of_home(home: &Path) -> [(OsString, OsString); 5] {
    [
        ("HOME", ""),
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_DATA_HOME", ".local/share"),
        ("XDG_STATE_HOME", ".local/state"),
    ]
    .map(|(name, below)| {
        let dir = if below.is_empty() {
            home.to_owned()
        } else {
            home.join(below)
        };
        (name.into(), dir.into())
    })
}

impl Steps<'_> {
    /// Returns the environment of built-in steps.
    pub(super) fn of_builtin(&self) -> BTreeMap<OsString, OsString> {
        let mut all: BTreeMap<OsString, OsString> = self
            .environment
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        all.insert("TF_IN_AUTOMATION".into(), "true".into());
        all.insert("CHECKPOINT_DISABLE".into(), "1".into());
        all.extend(self.of_both());
        self.add_set(&mut all);
        all
    }

    /// Adds the variables that steps have set. They choose the configuration of the tools and of `go` as if the server had
    /// not configured the registry.
    fn add_set(&self, all: &mut BTreeMap<OsString, OsString>) {
        let has_set = |name: &str| self.set.contains_key(OsStr::new(name));
        if let Some(access) = self.exec.registry {
            let chooses = ["TERRAFORM_CONFIG", "HOME", "XDG_CONFIG_HOME"]
                .into_iter()
                .any(has_set);
            if chooses && !self.has_named_config {
                all.remove(OsStr::new(CONFIG_FILE));
            }
            let database = self.set.get(OsStr::new("GOSUMDB"));
            let names = all.remove(OsStr::new("GONOSUMDB"));
            let names = match names {
                Some(names) if database.is_some_and(|database| access.is_own_log(database)) => {
                    access.without_go_names(&names)
                }
                names => names,
            };
            let private = self.set.get(OsStr::new("GOPRIVATE"));
            let names = match (names, private) {
                (Some(names), Some(private)) => {
                    Some([private.as_os_str(), &names].join(OsStr::new(",")))
                }
                (names, _) => names,
            };
            if let Some(names) = names {
                all.insert("GONOSUMDB".into(), names);
            }
        }
        all.extend(self.set.clone());
    }

    /// Returns the environment of a command.
    pub(super) fn of_command(&self) -> BTreeMap<OsString, OsString> {
        let mut all = base(self.environment, self.bin_dirs);
        all.extend(self.of_both());
        let project = self.project.name.as_ref().map_or("", |name| name.as_str());
        let own: [(&str, OsString); 6] = [
            (
                "ATLANTIS_TERRAFORM_DISTRIBUTION",
                self.tool.distribution.program().into(),
            ),
            ("PLANFILE", self.files.plan.clone().into()),
            ("SHOWFILE", self.files.show.clone().into()),
            ("POLICYCHECKFILE", self.files.policies.clone().into()),
            ("PROJECT_NAME", project.into()),
            ("REPO_REL_DIR", self.project.dir.as_str().into()),
        ];
        all.extend(
            own.into_iter()
                .chain(self.facts.variables())
                .map(|(name, value)| (name.into(), value)),
        );
        if let Some(home) = &self.home {
            all.extend(of_home(home));
        }
        self.add_set(&mut all);
        all
    }

    fn of_both(&self) -> [(OsString, OsString); 3] {
        [
            (
                "ATLANTIS_TERRAFORM_VERSION".into(),
                self.tool.version.to_string().into(),
            ),
            ("DIR".into(), self.dir.into()),
            ("WORKSPACE".into(), self.project.workspace.as_str().into()),
        ]
    }

    /// Returns the value of a variable for built-in steps.
    pub(super) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.set
            .get(OsStr::new(name))
            .or_else(|| self.environment.get(name))
            .map(OsString::as_os_str)
    }

    /// Returns the data directory of the tool, where it keeps its files beside the code.
    pub(super) fn data_dir(&self) -> PathBuf {
        data_dir::path(self.dir, self.variable("TF_DATA_DIR"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_find_the_programs_for_runs_first_and_none_in_the_checkout() {
        for (path, expected) in [
            ("/usr/bin:/bin", "/srv/bin:/data/bin:/usr/bin:/bin"),
            ("", "/srv/bin:/data/bin"),
            (".:bin::/usr/bin", "/srv/bin:/data/bin:/usr/bin"),
        ] {
            let first = ["/srv/bin", "/data/bin"].map(PathBuf::from);
            assert_eq!(with_dirs(OsStr::new(path), &first), expected, "{path}");
        }
    }

    #[test]
    fn a_command_sees_of_the_server_only_what_is_let_through() {
        let environment = ChildEnvironment::from_iter([("HOME".into(), "/home/us".into())]);
        let all = base(&environment, &["/srv/bin".into()]);
        let names: Vec<&str> = all.keys().filter_map(|name| name.to_str()).collect();
        assert_eq!(names, ["HOME", "PATH"]);
    }
}
