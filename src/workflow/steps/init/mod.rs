//! Runs `init`: the built-in step, and commands of the administrator that are an `init` and nothing else.
//!
//! An `init` may have two things that no plan may have: the cache of providers, which all owners share, and credentials for
//! private modules. So nothing of the pull request may run in it, or have a say in what it leaves for others:
//!
//! - If the configuration names a program in another way than by a backend ([`init_programs`]), it gets neither. So does an
//!   `init` inside of a repository that the pull request has made ([`local_repos`]).
//! - A backend can name programs as well. With one that is more than a bucket ([`backends`]), the `init` runs in two parts. The
//!   first one fetches everything, with `-backend=false` and without the backend of an earlier `init`, which it would load. The
//!   second one prepares the backend, with nothing that a plan may not have.
//! - Projects of a pull request share a checkout and run at the same time. If one of their programs ran since before the
//!   configuration was looked at, fetched packages stay with the project ([`ProgramObserver`]).

use std::ffi::{OsStr, OsString};
use std::fs::DirEntry;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::builtin::{apart, failed, remove};
use super::error::{StepError, StepFailure, StepName};
use super::flags::merged;
use super::plain_init::expanded_words;
use super::{Steps, backends, init_programs, local_repos};
use crate::config::workflow::WorkflowOrigin;
use crate::git::ModuleAccess;
use crate::model::Distribution;
use crate::process::Cmd;
use crate::workflow::data_dir::DataDir;
use crate::workflow::lock_file::{self, LockFile};
use crate::workflow::running::ProgramObserver;
use crate::workflow::{CacheSession, InitPlace};

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

/// Variables with arguments for `init`.
const ARGUMENTS: [&str; 2] = ["TF_CLI_ARGS", "TF_CLI_ARGS_init"];

/// Directory in the home directory with configuration of the tools.
const TOOL_HOME: &str = ".terraform.d";

/// Option that makes `init` fetch a configuration first.
const FROM_MODULE: &str = "-from-module";

/// Options whose value can be a word of its own.
const WITH_VALUE: [&str; 8] = [
    "backend-config",
    "from-module",
    "lock-timeout",
    "lockfile",
    "plugin-dir",
    "test-directory",
    "var",
    "var-file",
];

/// A session of the cache, with an observer that is older than all checks of the configuration.
pub(super) struct SharedPackages {
    session: CacheSession,
    programs: ProgramObserver,
}

impl Steps<'_> {
    /// Runs `init`. Its output matters only if it fails. A lock file that is not part of the repository was left by
    /// an earlier `init` and would pin old providers, so it is removed first.
    pub(super) async fn init(
        &self,
        extra: Vec<OsString>,
        name: StepName,
    ) -> Result<String, StepError> {
        let programs = ProgramObserver::begin(self.exec.hold);
        let disk = |error| failed(name.clone(), StepFailure::Disk(error));
        let own: &[&str] = if self.lock_file_tracked {
            &["-input=false"]
        } else {
            remove(&self.dir.join(lock_file::NAME)).map_err(disk)?;
            &["-input=false", "-upgrade"]
        };
        let args: Vec<OsString> = [OsString::from("init")]
            .into_iter()
            .chain(merged(own, extra))
            .collect();
        let why_alone = self
            .init_runs_programs(Some(self.tool.distribution), &args)
            .await
            .map_err(disk)?;
        // The notice explains why `init` takes longer, or cannot read private modules.
        let told = why_alone.as_ref().filter(|_| self.providers.is_some() || self.modules.is_some()).map(|why| {
            format!(
                "`init` may run a program of the pull request: {why}. Therefore `init` gets neither the shared \
                 provider cache nor credentials for private modules."
            )
        });
        if let Some(told) = &told {
            self.exec.output.say(told).await;
        }
        self.remove_changed().await.map_err(disk)?;
        let may_share = why_alone.is_none();
        let packages = if !may_share || args.iter().any(|arg| names_packages(arg)) {
            None
        } else {
            self.provider_session(programs).await.map_err(disk)?
        };
        let modules = self.modules.filter(|_| may_share);
        let shares = packages.is_some() || modules.is_some();
        let ended = if shares && self.backend_may_name_program(&args).await.map_err(disk)? {
            Box::pin(self.init_in_two(args, (packages, modules), name)).await
        } else {
            let shown = self.shown(&args);
            let mut cmd = self.command(args);
            if shares {
                cmd = self.with_git_config(cmd, modules);
            }
            Box::pin(self.one_init(cmd, packages, name, &shown)).await
        };
        match ended {
            Ok(_) => Ok(String::new()),
            Err(error) => Err(match told {
                // The notice may explain the failure.
                Some(told) => StepError {
                    output: format!("{told}\n{}", error.output),
                    ..error
                },
                None => error,
            }),
        }
    }

    /// Runs an `init` that fetches, and one that prepares the backend.
    async fn init_in_two(
        &self,
        args: Vec<OsString>,
        (packages, modules): (Option<SharedPackages>, Option<&ModuleAccess>),
        name: StepName,
    ) -> Result<String, StepError> {
        let disk = |error| failed(name.clone(), StepFailure::Disk(error));
        let data_dir = self.init_dir();
        let (old, dir, is_tracked) = (
            data_dir.clone(),
            self.dir.to_owned(),
            self.lock_file_tracked,
        );
        let before = apart(move || {
            old.remove_backend()?;
            Ok(LockFile::read(&dir).filter(|_| is_tracked))
        });
        let before = before.await.map_err(disk)?;
        let is_read_only = args.iter().any(|arg| is_option(arg, "lockfile"));
        let first = fetching(&args);
        let shown = self.shown(&first);
        let cmd = self.with_git_config(self.command(first), modules);
        Box::pin(self.one_init(cmd, packages, name.clone(), &shown)).await?;
        if let Some(before) = before.clone() {
            let dir = self.dir.to_owned();
            let complete = move || {
                let now = LockFile::read(&dir).unwrap_or_default();
                // Without the backend, `init` does not know which providers the state needs.
                let is_complete = now.has_all_of(&before);
                let is_allowed = !is_read_only || now.selects_the_same_as(&before);
                if is_complete && is_allowed {
                    Ok(())
                } else {
                    before.restore(&dir)
                }
            };
            apart(complete).await.map_err(disk)?;
        }
        let ended = self
            .init_backend(self.preparing(args), data_dir, name.clone())
            .await;
        if let Some(before) = before.filter(|_| is_read_only) {
            // The first part was allowed to add checksums, which the second one needs.
            let dir = self.dir.to_owned();
            apart(move || before.restore(&dir))
                .await
                .map_err(|error| failed(name, StepFailure::Disk(error)))?;
        }
        ended
    }

    /// Runs the second part. Programs that the backend names run now. What the first part has left is noted only if it is
    /// unchanged.
    async fn init_backend(
        &self,
        args: Vec<OsString>,
        data_dir: DataDir,
        name: StepName,
    ) -> Result<String, StepError> {
        let disk = |error| failed(name.clone(), StepFailure::Disk(error));
        let fetched = data_dir.clone();
        let before = apart(move || fetched.without_backend()).await;
        let before = before.map_err(disk)?;
        let output = self.tool(args, name.clone(), None).await?;
        self.exec
            .sandbox
            .hand_over(self.exec.place)
            .await
            .map_err(disk)?;
        let note = move || {
            if data_dir.without_backend()? == before {
                data_dir.note()
            } else {
                // The next `init` makes the directory again.
                data_dir.forget()
            }
        };
        apart(note).await.map_err(disk)?;
        Ok(output)
    }

    /// Returns the session for a command of the administrator that is one `init` and nothing else. The name of the program
    /// does not tell which tool runs, and the command cannot run in two parts.
    pub(super) async fn session_of_command(
        &self,
        command: &str,
    ) -> io::Result<Option<SharedPackages>> {
        let programs = ProgramObserver::begin(self.exec.hold);
        // A pull request that writes its own workflow could name a program of its own.
        if self.origin == WorkflowOrigin::Repository {
            return Ok(None);
        }
        let Some(words) = expanded_words(command, &self.of_command()) else {
            return Ok(None);
        };
        if self.init_runs_programs(None, &words[1..]).await?.is_some()
            || self.backend_may_name_program(&words[1..]).await?
            || words.iter().any(|word| names_packages(word))
        {
            return Ok(None);
        }
        self.provider_session(programs).await
    }

    /// Runs a command that does one `init` in the directory of the project and nothing else. The caller has called
    /// [`Self::remove_changed`].
    pub(super) async fn one_init(
        &self,
        cmd: Cmd,
        packages: Option<SharedPackages>,
        name: StepName,
        shown: &str,
    ) -> Result<String, StepError> {
        let disk = |error| failed(name.clone(), StepFailure::Disk(error));
        let data_dir = self.init_dir();
        let output = match packages {
            None => self.exec.run(cmd, name.clone(), shown, None).await?,
            Some(SharedPackages { session, programs }) => {
                let cmd = cmd.envs(session.variables()).writes(session.dir());
                let output = self.exec.run_init(cmd, name.clone(), shown).await?;
                session.finish(programs).await.map_err(disk)?;
                output
            }
        };
        // Hand over before the note is written: a later change of owner would count as a change of the files.
        self.exec
            .sandbox
            .hand_over(self.exec.place)
            .await
            .map_err(disk)?;
        apart(move || data_dir.note()).await.map_err(disk)?;
        self.note_modules().await;
        Ok(output)
    }

    /// Removes a data directory that is not as an `init` has left it.
    pub(super) async fn remove_changed(&self) -> io::Result<()> {
        let old = self.init_dir();
        if apart(move || old.remove_changed()).await? {
            let line = format!(
                "Removed {}: it was changed after the last `init`.",
                self.data_dir_shown()
            );
            self.exec.output.say(&line).await;
        }
        Ok(())
    }

    fn init_dir(&self) -> DataDir {
        let checkout = (self.exec.place.root, self.dir, self.exec.hold);
        DataDir::new(self.data_dir(), checkout, self.facts.head_commit())
    }

    /// Configures git for an `init`: with access to modules, and without bare repositories that a program makes around the
    /// project meanwhile.
    fn with_git_config(&self, cmd: Cmd, modules: Option<&ModuleAccess>) -> Cmd {
        let before = self
            .variable("GIT_CONFIG_COUNT")
            .and_then(|count| count.to_str()?.parse().ok());
        let before: usize = before.unwrap_or(0);
        let (key, value) = local_repos::IGNORE_BARE;
        let cmd = cmd
            .env("GIT_CONFIG_COUNT", (before + 1).to_string())
            .env(format!("GIT_CONFIG_KEY_{before}"), key)
            .env(format!("GIT_CONFIG_VALUE_{before}"), value);
        match modules {
            Some(access) => access.give(cmd, before + 1),
            None => cmd,
        }
    }

    /// Returns the data directory as people of the repository know it.
    fn data_dir_shown(&self) -> String {
        let dir = self.data_dir();
        format!("`{}`", dir.strip_prefix(self.dir).unwrap_or(&dir).display())
    }

    /// Returns the reason that an `init` may run a program that the pull request names in another way than by a backend, if
    /// any, or that it cannot be told. Such an `init` gets nothing that a plan may not have.
    async fn init_runs_programs(
        &self,
        tool: Option<Distribution>,
        args: &[OsString],
    ) -> io::Result<Option<String>> {
        if let Some(name) = CONFIGURE_TOOLS
            .iter()
            .find(|name| self.set.contains_key(OsStr::new(name)))
        {
            return Ok(Some(format!("a step sets `{name}`")));
        }
        let is_path_of_checkout = |name: &&&str| **name != ENCRYPTION && self.is_relative(name);
        if let Some(name) = CONFIGURE_TOOLS.iter().find(is_path_of_checkout) {
            return Ok(Some(format!(
                "`{name}` is not an absolute path, so it leads into the checkout"
            )));
        }
        let texts = args.iter().map(OsString::as_os_str);
        if texts
            .chain(self.args_of_variables())
            .any(|arg| arg.to_string_lossy().contains(FROM_MODULE))
        {
            return Ok(Some(format!(
                "`{FROM_MODULE}` copies files that cannot be checked before"
            )));
        }
        if let Some(file) = self.left_in_home()? {
            return Ok(Some(format!(
                "an earlier step left `{}` in the home directory of the run",
                file.to_string_lossy().escape_debug()
            )));
        }
        if let Some(word) = operand(args) {
            return Ok(Some(format!(
                "the argument `{}` can name another directory",
                word.to_string_lossy().escape_debug()
            )));
        }
        if self
            .args_of_variables()
            .any(|arg| arg.to_string_lossy().contains("-cloud"))
        {
            return Ok(Some(
                "a variable with arguments has `-cloud`, so the backend cannot be prepared alone"
                    .to_owned(),
            ));
        }
        if !self.init_dir().is_in_checkout() {
            return Ok(Some(
                "`TF_DATA_DIR` is outside of the checkout, where nothing is removed".to_owned(),
            ));
        }
        if let Some(name) = self.set_by_repository() {
            return Ok(Some(format!(
                "the workflow of the repository sets `{}`",
                name.to_string_lossy().escape_debug()
            )));
        }
        if let Some(name) = ARGUMENTS.iter().find(|name| {
            self.set
                .get(OsStr::new(name))
                .is_some_and(|args| !are_plain(args))
        }) {
            return Ok(Some(format!(
                "a step sets `{name}` to words that are not options, or have quotes"
            )));
        }
        let [dir, root, mirror] =
            [self.dir, self.exec.place.root, self.exec.place.mirror].map(Path::to_owned);
        apart(move || match local_repos::why(&dir, &root, &mirror)? {
            None => init_programs::why(&dir, tool),
            why => Ok(why),
        })
        .await
    }

    /// Returns true if an `init` may prepare a backend that names a program, because of the configuration, of arguments, of
    /// variables, or of the last `init`.
    async fn backend_may_name_program(&self, args: &[OsString]) -> io::Result<bool> {
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
        let (dir, data_dir) = (self.dir.to_owned(), self.init_dir());
        apart(move || {
            let is_saved = match data_dir.backend() {
                Ok(None) => false,
                Ok(Some(saved)) => !(is_plain && backends::is_plain_saved(&saved)),
                // A link, for example.
                Err(_) => true,
            };
            Ok(is_saved || init_programs::may_have_backend(&dir, is_plain)?)
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
    fn args_of_variables(&self) -> impl Iterator<Item = &OsStr> {
        ARGUMENTS.into_iter().filter_map(|name| self.variable(name))
    }

    /// Returns the arguments of the second part, which fetches nothing again.
    fn preparing(&self, mut args: Vec<OsString>) -> Vec<OsString> {
        args.retain(|arg| !is_option(arg, "upgrade"));
        if self
            .args_of_variables()
            .any(|arg| arg.to_string_lossy().contains("-upgrade"))
        {
            args.push("-upgrade=false".into());
        }
        args
    }

    /// Begins a session of the provider cache for one `init`. Returns `None` if the administrator disabled the cache
    /// or set a cache directory for all, or if the arguments say where packages come from: those packages may be of
    /// the pull request.
    async fn provider_session(
        &self,
        programs: ProgramObserver,
    ) -> io::Result<Option<SharedPackages>> {
        let Some(cache) = self.providers else {
            return Ok(None);
        };
        if self.args_of_variables().any(names_packages) {
            return Ok(None);
        }
        let place = InitPlace {
            dir: self.dir.to_owned(),
            data_dir: self.data_dir(),
            lock_file_tracked: self.lock_file_tracked,
        };
        let session = cache
            .enter(place, self.variable("TF_PLUGIN_CACHE_DIR"))
            .await?;
        Ok(session.map(|session| SharedPackages { session, programs }))
    }
}

/// Returns the arguments of the first part. The last option counts. Left out are `-cloud`, which contradicts it, and
/// `-lockfile`, which would refuse what the second part puts right.
fn fetching(args: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "-lockfile" || arg == "--lockfile" {
            // Its value is the next word.
            args.next();
        } else if !is_option(arg, "lockfile") && !is_option(arg, "cloud") {
            kept.push(arg.clone());
        }
    }
    kept.push("-backend=false".into());
    kept
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

/// Returns true for an option with or without a value, such as `-upgrade` and `--upgrade=true`.
fn is_option(arg: &OsStr, name: &str) -> bool {
    let arg = arg.to_string_lossy();
    let option = arg.strip_prefix('-').unwrap_or_default();
    let option = option.strip_prefix('-').unwrap_or(option);
    option
        .strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// Returns the first argument behind `init` that is neither an option nor the value of one.
fn operand(args: &[OsString]) -> Option<&OsStr> {
    let mut is_value = true;
    for arg in args {
        let is_free = !is_value && !arg.to_string_lossy().starts_with('-');
        if is_free || arg == "-" || arg == "--" {
            return Some(arg);
        }
        is_value = WITH_VALUE.iter().any(|name| {
            let text = arg.to_string_lossy();
            is_option(arg, name) && !text.contains('=')
        });
    }
    None
}

/// Returns true if the tool reads the arguments of a variable as they stand: as options without quotes.
fn are_plain(args: &OsStr) -> bool {
    args.to_str().is_some_and(|args| {
        let is_option = |word: &str| word.starts_with('-') && word != "-" && word != "--";
        !args.contains(['\'', '"', '\\', '`', '$', '#']) && args.split_whitespace().all(is_option)
    })
}

/// Returns true if arguments of `init` say where packages come from, or where the configuration itself comes from.
fn names_packages(args: &OsStr) -> bool {
    let args = args.to_string_lossy();
    args.contains("-plugin-dir") || args.contains(FROM_MODULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_first_part_has_no_backend_whatever_the_arguments_say() {
        for (given, expected) in [
            (
                "init -input=false -upgrade",
                "init -input=false -upgrade -backend=false",
            ),
            (
                "init -backend=true -backend-config=key=x-backend=false",
                "init -backend=true -backend-config=key=x-backend=false -backend=false",
            ),
            (
                "init --cloud=false -lockfile=readonly",
                "init -backend=false",
            ),
            (
                "init -lockfile readonly -upgrade",
                "init -upgrade -backend=false",
            ),
        ] {
            assert_eq!(fetching(&words(given)), words(expected), "{given}");
        }
    }

    #[test]
    fn an_argument_that_is_no_option_can_be_a_directory() {
        for (given, expected) in [
            ("init -input=false", None),
            ("init -backend-config prod.hcl -upgrade", None),
            ("init ../other", Some("../other")),
            ("init -upgrade ../other", Some("../other")),
            ("init -backend-config=prod.hcl other", Some("other")),
            ("init --", Some("--")),
            ("init -upgrade -", Some("-")),
        ] {
            let found = operand(&words(given)).map(|word| word.to_str().unwrap().to_owned());
            assert_eq!(found.as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn arguments_of_a_variable_hide_nothing() {
        for (given, expected) in [
            ("", true),
            ("-no-color -upgrade=false", true),
            ("-plug\"in-dir\"=./m", false),
            ("-from-m\\odule=x", false),
            ("-cl'oud'=true", false),
            ("-backend-config prod.hcl", false),
            ("--", false),
            ("-upgrade -", false),
        ] {
            assert_eq!(are_plain(OsStr::new(given)), expected, "{given}");
        }
    }
}
