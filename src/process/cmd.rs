//! Describes a command before it runs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tracing::debug;

use super::group::ChildGroup;
use super::hold;
use super::inherit::{self, Inherited};
use super::sandbox::confined;
use super::secret::SecretWriter;
use super::{ProcessError, RunLimits, Sandbox};
use crate::model::RunUser;
use crate::secret::Secret;

/// Program with arguments, a directory and an explicit environment; it inherits nothing from the server.
#[derive(Clone)]
#[must_use = "a command does nothing until it is run"]
pub struct Cmd {
    program: OsString,
    args: Vec<OsString>,
    operands: Vec<OsString>,
    dir: Option<PathBuf>,
    env: BTreeMap<OsString, OsString>,
    pub(super) input: Option<Vec<u8>>,
    pub(super) secret: Option<Secret>,
    pub(super) deadline: Duration,
    pub(super) cap: usize,
    pub(super) sandbox: Option<Sandbox>,
    pub(super) limits: RunLimits,
    pub(super) places: Vec<PathBuf>,
    pub(super) user: Option<RunUser>,
    hold: Option<PathBuf>,
}

impl Cmd {
    /// Default deadline of a command.
    pub const DEADLINE: Duration = Duration::from_mins(1);
    /// Default cap of the output in bytes, per stream when captured and for both together when streamed.
    pub const CAP: usize = 16 * 1024 * 1024;

    /// Creates a command for a program: an absolute path, a path relative to the directory it runs in, or a name for
    /// the `PATH` of the command's own environment.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            operands: Vec::new(),
            dir: None,
            env: BTreeMap::new(),
            input: None,
            secret: None,
            deadline: Self::DEADLINE,
            cap: Self::CAP,
            sandbox: None,
            limits: RunLimits::default(),
            places: Vec::new(),
            user: None,
            hold: None,
        }
    }

    /// Adds an argument. Must never be a secret: arguments are visible to everybody on the machine.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn args<I: IntoIterator<Item: Into<OsString>>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds operands. They follow all arguments and a `--`, so that none of them can be read as an option.
    pub fn operands<I: IntoIterator<Item: Into<OsString>>>(mut self, operands: I) -> Self {
        self.operands.extend(operands.into_iter().map(Into::into));
        self
    }

    /// Sets the working directory.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets a variable; a later value replaces an earlier one.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    pub fn envs<I, N, V>(mut self, variables: I) -> Self
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<OsString>,
        V: Into<OsString>,
    {
        self.env.extend(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        self
    }

    /// Sets a variable unless it has a value.
    pub fn env_unless_set(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.entry(name.into()).or_insert_with(|| value.into());
        self
    }

    /// Removes a variable from the environment.
    pub fn without_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.remove(name.as_ref());
        self
    }

    /// Sets the standard input of a short call ([`Self::output`]), for long lists and for data that nobody else may
    /// see. By default standard input is empty; that of a supervised run always is.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Sets the time limit of the command.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the number of output bytes to keep, see [`Self::CAP`].
    pub fn cap(mut self, bytes: usize) -> Self {
        self.cap = bytes;
        self
    }

    /// Confines the program and its children to a sandbox. With `None` they may do what the server may.
    pub fn sandbox(mut self, sandbox: Option<Sandbox>) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// Gives the program full access to one more directory and everything below it, as one of its own. Without a sandbox
    /// it already has the access.
    pub fn writes(mut self, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        self.sandbox = self.sandbox.map(|sandbox| sandbox.writes([dir.clone()]));
        self.owns([dir])
    }

    /// Names directories of a supervised run. Their files count for its limit of disk space.
    pub fn owns<P: Into<PathBuf>>(mut self, dirs: impl IntoIterator<Item = P>) -> Self {
        self.places.extend(dirs.into_iter().map(Into::into));
        self
    }

    /// Limits the resources of a supervised run, or those of a short call ([`Self::output`]) from before it gets its input.
    pub fn limits(mut self, limits: RunLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the user of a supervised run; `None` selects that of the server.
    pub fn user(mut self, user: Option<RunUser>) -> Self {
        self.user = user;
        self
    }

    /// Names an empty file that a short call ([`Self::output`]) or a [`Self::dialogue`] locks, shared, until it has
    /// ended, even if the server is killed meanwhile; see [`super::FileHold::by_force`]. A supervised run has its own
    /// hold ([`super::Supervised::hold`]).
    pub fn holds(mut self, file: impl Into<PathBuf>) -> Self {
        self.hold = Some(file.into());
        self
    }

    /// Returns the program name as given.
    pub(super) fn program(&self) -> &OsStr {
        &self.program
    }

    /// Returns the arguments, `--` and the operands.
    pub(super) fn argv(&self) -> impl Iterator<Item = &OsStr> {
        let dashes = (!self.operands.is_empty()).then_some(OsStr::new("--"));
        self.args
            .iter()
            .map(OsString::as_os_str)
            .chain(dashes)
            .chain(self.operands.iter().map(OsString::as_os_str))
    }

    /// Builds the command that starts `program` with this command's directory and environment, and nothing of the
    /// server. Standard input is empty. The child leads its own process group, so that signals for the server do not
    /// reach it.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that starts child processes"
    )]
    pub(super) fn prepare(&self, program: &Path) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(program);
        command.env_clear().envs(&self.env).process_group(0);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }

    /// Starts the program in its sandbox as the leader of a group. The child can read its secret while the caller
    /// keeps the second value.
    pub(super) fn start(
        &self,
        program: &Path,
        piped_input: bool,
    ) -> io::Result<(ChildGroup, Option<SecretWriter>)> {
        debug!(command = ?self, "Starting a program");
        let (program, before) = match &self.sandbox {
            None => (program.as_os_str().to_owned(), Vec::new()),
            Some(sandbox) => sandbox.wrap(program.as_os_str(), self.dir.as_deref(), None)?,
        };
        let mut command = self.prepare(Path::new(&program));
        command.args(before).args(self.argv());
        let hold = self.hold.as_deref().map(hold::for_child).transpose()?;
        let hold = if piped_input {
            command.stdin(Stdio::piped());
            hold
        } else {
            // An empty file reads like no input.
            if let Some(hold) = hold {
                command.stdin(hold);
            }
            None
        };
        let (secret, teller) = self.secret_for_child(&mut command)?;
        let inherited = Inherited { hold, secret };
        let (sandbox, runtime) = (self.sandbox.as_ref(), tokio::runtime::Handle::current());
        let group = confined(sandbox, None, move || {
            let _runtime = runtime.enter();
            let has_namespaces = sandbox.is_some_and(Sandbox::has_namespaces);
            inherit::start_with(inherited, || ChildGroup::start(command, has_namespaces))
        })?;
        if self.limits != RunLimits::default() {
            group.limit(self.limits)?;
        }
        Ok((group, teller))
    }

    /// Finds the program, so that the error "not found" names the searched path and differs from a missing directory.
    pub(super) fn resolve(&self) -> Result<PathBuf, ProcessError> {
        if let Some(dir) = self.dir.as_ref().filter(|dir| !dir.is_dir()) {
            return Err(ProcessError::NoDirectory {
                program: self.program.clone(),
                dir: dir.clone(),
            });
        }
        let program = Path::new(&self.program);
        if program.components().count() > 1 || program.is_absolute() {
            let path = self
                .dir
                .as_ref()
                .map_or_else(|| program.to_owned(), |dir| dir.join(program));
            return is_executable(&path)
                .then_some(path)
                .ok_or_else(|| self.not_found("that path only".to_owned()));
        }
        let Some(search) = self.env.get(OsStr::new("PATH")) else {
            return Err(self.not_found("nothing, the command has no PATH".to_owned()));
        };
        // Relative entries would find programs in the working directory, which may be a checkout.
        let mut candidates = std::env::split_paths(search)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join(program));
        candidates
            .find(|path| is_executable(path))
            .ok_or_else(|| self.not_found(search.to_string_lossy().into_owned()))
    }

    fn not_found(&self, searched: String) -> ProcessError {
        ProcessError::NotFound {
            program: self.program.clone(),
            searched,
        }
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

impl fmt::Debug for Cmd {
    /// Shows names only: `Cmd { program: "terraform", args: ["plan", "-var", "…"], env: ["PATH"] }`. Hides everything
    /// that does not look like a subcommand or the name of an option.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args: Vec<String> = self
            .argv()
            .enumerate()
            .map(|(at, arg)| argument_name(at, arg))
            .collect();
        f.debug_struct("Cmd")
            .field("program", &self.program)
            .field("args", &args)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

fn argument_name(at: usize, arg: &OsStr) -> String {
    let text = arg.to_string_lossy();
    let name = text.split('=').next().unwrap_or_default();
    let is_word = |word: &str| {
        word.len() <= 40 && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let is_shown = is_word(name) && (name.starts_with('-') || (at == 0 && name == text));
    if is_shown {
        name.to_owned()
    } else {
        "…".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_names_and_no_value() {
        let cmd = Cmd::new("terraform")
            .args([
                "plan",
                "-var=token=hunter2",
                "-var",
                "password=hunter2",
                "hunter2",
            ])
            .operands(["hunter2"])
            .env("TF_TOKEN", "hunter2");
        insta::assert_snapshot!(
            format!("{cmd:?}"),
            @r#"Cmd { program: "terraform", args: ["plan", "-var", "-var", "…", "…", "--", "…"], env: ["TF_TOKEN"], .. }"#
        );
    }

    #[test]
    fn a_missing_program_is_named_with_the_path_searched() {
        let cases = [
            (
                Cmd::new("no-such-thing").env("PATH", "/nowhere:/bin"),
                "/nowhere:/bin",
            ),
            (Cmd::new("no-such-thing"), "no PATH"),
            (Cmd::new("/etc/passwd"), "that path only"),
        ];
        for (cmd, searched) in cases {
            let error = cmd.resolve().unwrap_err().to_string();
            assert!(
                error.contains(searched) && error.contains("not found"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_program_in_the_working_directory_is_not_found_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let tool = dir.path().join("tool");
        std::fs::write(&tool, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(
            Cmd::new("tool")
                .dir(dir.path())
                .env("PATH", ".::/bin")
                .resolve()
                .is_err()
        );
        assert_eq!(
            Cmd::new("./tool").dir(dir.path()).resolve().unwrap(),
            dir.path().join("./tool")
        );
    }

    #[test]
    fn a_missing_directory_is_not_blamed_on_the_program() {
        let error = Cmd::new("sh")
            .env("PATH", "/bin")
            .dir("/nowhere")
            .resolve()
            .unwrap_err();
        assert!(matches!(error, ProcessError::NoDirectory { .. }), "{error}");
    }
}
