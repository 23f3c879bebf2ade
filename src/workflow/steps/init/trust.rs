//! Checks what of a pull request may run in an `init`, or have a say in what it leaves for others.

use std::ffi::{OsStr, OsString};
use std::fs::DirEntry;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::super::Steps;
use super::super::builtin::run_blocking;
use super::arguments::{ARGUMENTS, FROM_MODULE, are_plain, operand};
use super::{backends, local_repos, programs};
use crate::config::workflow::WorkflowOrigin;
use crate::model::Distribution;

/// Variables that decide which programs the tool and git run and where packages come from. An `env` step can set them.
const CONFIGURE_TOOLS: [&str; 6] = [
    "TF_CLI_CONFIG_FILE",
    "TERRAFORM_CONFIG",
    ENCRYPTION,
    "GIT_CONFIG_GLOBAL",
    "HOME",
    "XDG_CONFIG_HOME",
];

/// Variable with a configuration, where the others have paths.
const ENCRYPTION: &str = "TF_ENCRYPTION";

/// Directory in the home directory with configuration of the tools.
const TOOL_HOME: &str = ".terraform.d";

impl Steps<'_> {
    /// Returns the reason that an `init` may run a program that the pull request names in another way than by a backend, if
    /// any, or that it cannot be told. Such an `init` gets nothing that a plan may not have.
    pub(super) async fn init_runs_programs(
        &self,
        tool: Option<Distribution>,
        args: &[OsString],
    ) -> io::Result<Option<String>> {
        let why = self.why_of_arguments(args);
        if let Some(why) = why.or_else(|| self.why_of_variables()) {
            return Ok(Some(why));
        }
        if let Some(file) = self.left_in_home()? {
            return Ok(Some(format!(
                "an earlier step left `{}` in the home directory of the run",
                file.to_string_lossy().escape_debug()
            )));
        }
        let [dir, root, mirror] =
            [self.dir, self.exec.place.root, self.exec.place.mirror].map(Path::to_owned);
        run_blocking(move || match local_repos::why(&dir, &root, &mirror)? {
            None => programs::why(&root, &dir, tool),
            why => Ok(why),
        })
        .await
    }

    /// Checks variables that decide which programs run, and where packages come from.
    fn why_of_variables(&self) -> Option<String> {
        let is_set = |name: &&&str| self.set.contains_key(OsStr::new(name));
        if let Some(name) = CONFIGURE_TOOLS.iter().find(is_set) {
            return Some(format!("a step sets `{name}`"));
        }
        let is_path_of_checkout = |name: &&&str| **name != ENCRYPTION && self.is_relative(name);
        if let Some(name) = CONFIGURE_TOOLS.iter().find(is_path_of_checkout) {
            return Some(format!(
                "`{name}` is not an absolute path, so it leads into the checkout"
            ));
        }
        if !self.init_dir().is_in_checkout() {
            let why = "`TF_DATA_DIR` is outside of the checkout, where nothing is removed";
            return Some(why.to_owned());
        }
        if let Some(name) = self.set_by_repository() {
            return Some(format!(
                "the workflow of the repository sets `{}`",
                name.to_string_lossy().escape_debug()
            ));
        }
        let is_unsure = |name: &&&str| {
            let args = self.set.get(OsStr::new(name));
            args.is_some_and(|args| !are_plain(args))
        };
        ARGUMENTS.iter().find(is_unsure).map(|name| {
            format!("a step sets `{name}` to words that are not options, or have quotes")
        })
    }

    /// Checks the arguments, and those that variables add.
    fn why_of_arguments(&self, args: &[OsString]) -> Option<String> {
        let in_variables = |text: &str| {
            self.args_of_variables()
                .any(|args| args.to_string_lossy().contains(text))
        };
        let in_arguments = |text: &str| args.iter().any(|arg| arg.to_string_lossy().contains(text));
        if in_arguments(FROM_MODULE) || in_variables(FROM_MODULE) {
            return Some(format!(
                "`{FROM_MODULE}` copies files that cannot be checked before"
            ));
        }
        if let Some(word) = operand(args) {
            return Some(format!(
                "the argument `{}` can name another directory",
                word.to_string_lossy().escape_debug()
            ));
        }
        if in_variables("-cloud") {
            let why =
                "a variable with arguments has `-cloud`, so the backend cannot be prepared alone";
            return Some(why.to_owned());
        }
        None
    }

    /// Returns true if an `init` may prepare a backend that names a program, because of the configuration, of arguments, of
    /// variables, or of the last `init`.
    pub(super) async fn backend_may_name_program(&self, args: &[OsString]) -> io::Result<bool> {
        let is_plain = !self.variables_may_name_program();
        let in_argument = |arg: &OsString| {
            let arg = arg.to_string_lossy();
            arg.contains("-backend") && !(is_plain && backends::is_plain_argument(&arg))
        };
        let mut of_variables = self.args_of_variables();
        if args.iter().any(in_argument)
            || of_variables.any(|args| args.to_string_lossy().contains("-backend"))
        {
            return Ok(true);
        }
        let [dir, root] = [self.dir, self.exec.place.root].map(Path::to_owned);
        let data_dir = self.init_dir();
        run_blocking(move || {
            let is_saved = match data_dir.backend() {
                Ok(None) => false,
                Ok(Some(saved)) => !(is_plain && backends::is_plain_saved(&saved)),
                // A link, for example.
                Err(_) => true,
            };
            Ok(is_saved || programs::may_have_backend(&root, &dir, is_plain)?)
        })
        .await
    }

    /// Returns true if variables may lead to a program of the pull request when a bucket is prepared. Libraries of AWS and
    /// Google read files that variables name, and others in the home directory. Without one, they look in the checkout.
    fn variables_may_name_program(&self) -> bool {
        let has_home = match (self.variable("HOME"), self.exec.sandbox.user()) {
            (Some(home), None) => Path::new(home).is_absolute(),
            (None, Some(_)) => true,
            // Runs of another user may be able to write to a directory that the administrator has named.
            (None, None) | (Some(_), Some(_)) => false,
        };
        let is_in_checkout = |value: &OsStr| {
            !value.is_empty()
                && Path::new(value).is_relative()
                && self.dir.join(value).symlink_metadata().is_ok()
        };
        // The tools read these themselves, and the data directory is checked (`init_runs_programs`).
        let is_of_tool = |name: &OsStr| is_of_configuration(name) || name == "TF_DATA_DIR";
        let mut variables = self.environment.iter();
        !has_home
            || !self.set.keys().all(|name| is_of_configuration(name))
            || variables.any(|(name, value)| !is_of_tool(name) && is_in_checkout(value))
    }

    /// Returns true if a variable has a path that is not absolute. Programs look for it in the checkout.
    fn is_relative(&self, name: &str) -> bool {
        let value = self.variable(name);
        value.is_some_and(|value| !value.is_empty() && Path::new(value).is_relative())
    }

    /// Returns a variable, other than those of the configuration, that a workflow of the repository sets. With many, such as
    /// `PATH` and `HTTPS_PROXY`, the pull request decides what runs in an `init` and where packages come from.
    fn set_by_repository(&self) -> Option<&OsStr> {
        let is_own = self.origin == WorkflowOrigin::Repository;
        let mut names = self.set.keys().filter(|_| is_own);
        names
            .find(|name| !is_of_configuration(name))
            .map(OsString::as_os_str)
    }

    /// Returns a file in the home directory of a run that programs may read their configuration from, if earlier steps could
    /// have made it. Runs as another user have a directory of their own, which is empty at first, or one of their user.
    fn left_in_home(&self) -> io::Result<Option<OsString>> {
        let Some(user) = self.exec.sandbox.user() else {
            return Ok(None);
        };
        let home = match self.variable("HOME") {
            None => self.exec.place.tmp,
            Some(named) => {
                let named = Path::new(named);
                let is_own = named.metadata().is_ok_and(|found| found.uid() == user.uid);
                if !is_own {
                    return Ok(None);
                }
                named
            }
        };
        for entry in std::fs::read_dir(home)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_harmless = match name.to_str() {
                Some(".cache") => true,
                Some(TOOL_HOME) => has_only_checks(&entry)?,
                _ => !name.as_encoded_bytes().starts_with(b"."),
            };
            if !is_harmless {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns the arguments that variables add to `init`.
    pub(super) fn args_of_variables(&self) -> impl Iterator<Item = &OsStr> {
        ARGUMENTS.into_iter().filter_map(|name| self.variable(name))
    }
}

/// Returns true for a directory with nothing but what the tool keeps of its search for a newer version.
fn has_only_checks(dir: &DirEntry) -> io::Result<bool> {
    if !dir.file_type()?.is_dir() {
        return Ok(false);
    }
    for entry in std::fs::read_dir(dir.path())? {
        // Files with other names can be configuration (`*.tfrc`).
        let name = entry?.file_name();
        if name != "checkpoint_cache" && name != "checkpoint_signature" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true for a variable that only the configuration reads.
fn is_of_configuration(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"TF_VAR_")
}
