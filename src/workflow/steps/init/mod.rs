//! Runs `init`: the built-in step, and commands of the administrator that are an `init` and nothing else.
//!
//! An `init` may have two things that no plan may have: the cache of providers, which all owners share, and credentials for
//! private modules. So nothing of the pull request may run in it, or have a say in what it leaves for others:
//!
//! - If the configuration names a program in another way than by a backend ([`programs`]), it gets neither. So does an
//!   `init` inside of a repository that the pull request has made ([`local_repos`]).
//! - A backend can name programs as well. With one that is more than a bucket ([`backends`]), the `init` runs in two parts. The
//!   first one fetches everything, with `-backend=false` and without the backend of an earlier `init`, which it would load. The
//!   second one prepares the backend, with nothing that a plan may not have.
//! - Projects of a pull request share a checkout and run at the same time. No program of another project runs there from before
//!   the configuration is checked until an `init` with credentials has ended ([`TrustedInit`]). For the cache alone
//!   nobody waits: if such a program ran meanwhile, fetched packages stay with the project ([`ProgramObserver`]).

mod arguments;
mod backends;
mod local_repos;
mod plain;
mod programs;
mod sources;
mod trust;

use std::ffi::OsString;
use std::io;

use super::Steps;
use super::builtin::{failed, remove, run_blocking};
use super::error::{StepError, StepFailure, StepName};
use super::flags::merged;
use crate::boxed::boxed;
use crate::config::workflow::WorkflowOrigin;
use crate::git::ModuleAccess;
use crate::process::Cmd;
use crate::workflow::data_dir::DataDir;
use crate::workflow::lock_file::{self, LockFile};
use crate::workflow::running::{ProgramObserver, TrustedInit};
use crate::workflow::{CacheSession, InitPlace};
use arguments::{fetching, is_option, names_packages};
use plain::expanded_words;

pub(super) use plain::is_plain_init;

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
        let mut programs = ProgramObserver::begin(self.exec.hold);
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
        let check = || self.init_runs_programs(Some(self.tool.distribution), &args);
        let mut why_alone = check().await.map_err(disk)?;
        let mut access = None;
        if let Some(modules) = self.modules.filter(|_| why_alone.is_none())
            && self.may_fetch_modules(&args).await.map_err(disk)?
        {
            // Programs of other projects may change the configuration during the wait, so it is checked again after
            // that.
            drop(programs);
            let trusted = self.exec.trusted_init().await;
            let trusted = trusted.map_err(|why| failed(name.clone(), why))?;
            programs = ProgramObserver::begin(self.exec.hold);
            why_alone = check().await.map_err(disk)?;
            access = why_alone.is_none().then_some((modules, trusted));
        }
        // The notice explains why `init` takes longer, or cannot read private modules.
        let told = why_alone.as_ref().filter(|_| self.providers.is_some() || self.modules.is_some()).map(|why| {
            format!(
                "`init` may run a program of the pull request: {why}. Therefore `init` gets neither the shared \
                 provider cache nor credentials for private modules."
            )
        });
        if let Some(told) = &told {
            self.exec.output.push_line(told).await;
        }
        self.remove_changed().await.map_err(disk)?;
        let may_share = why_alone.is_none();
        let packages = if !may_share || args.iter().any(|arg| names_packages(arg)) {
            None
        } else {
            self.provider_session(programs).await.map_err(disk)?
        };
        let shares = packages.is_some() || access.is_some();
        let ended = if shares && self.backend_may_name_program(&args).await.map_err(disk)? {
            boxed(|| self.init_in_two(args, (packages, access), name)).await
        } else {
            let shown = self.shown(&args);
            let mut cmd = self.command(args);
            if shares {
                cmd = self.with_vcs_config(cmd, access.as_ref().map(|(modules, _)| *modules));
            }
            let trusted = access.as_ref().map(|(_, trusted)| trusted);
            boxed(|| self.one_init(cmd, (packages, trusted), name, &shown)).await
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
        (packages, access): (Option<SharedPackages>, Option<(&ModuleAccess, TrustedInit)>),
        name: StepName,
    ) -> Result<String, StepError> {
        let disk = |error| failed(name.clone(), StepFailure::Disk(error));
        let data_dir = self.init_dir();
        let (old, dir, is_tracked) = (
            data_dir.clone(),
            self.dir.to_owned(),
            self.lock_file_tracked,
        );
        let before = run_blocking(move || {
            old.remove_backend()?;
            Ok(LockFile::read(&dir).filter(|_| is_tracked))
        });
        let before = before.await.map_err(disk)?;
        let is_read_only = args.iter().any(|arg| is_option(arg, "lockfile"));
        let first = fetching(&args);
        let shown = self.shown(&first);
        let modules = access.as_ref().map(|(modules, _)| *modules);
        let cmd = self.with_vcs_config(self.command(first), modules);
        let trusted = access.as_ref().map(|(_, trusted)| trusted);
        boxed(|| self.one_init(cmd, (packages, trusted), name.clone(), &shown)).await?;
        // The second part may run programs, so it is one of those that this one keeps out.
        drop(access);
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
            run_blocking(complete).await.map_err(disk)?;
        }
        let ended = self
            .init_backend(self.preparing(args), data_dir, name.clone())
            .await;
        if let Some(before) = before.filter(|_| is_read_only) {
            // The first part was allowed to add checksums, which the second one needs.
            let dir = self.dir.to_owned();
            run_blocking(move || before.restore(&dir))
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
        let before = run_blocking(move || fetched.without_backend()).await;
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
        run_blocking(note).await.map_err(disk)?;
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
        (packages, trusted): (Option<SharedPackages>, Option<&TrustedInit>),
        name: StepName,
        shown: &str,
    ) -> Result<String, StepError> {
        let disk = |error| failed(name.clone(), StepFailure::Disk(error));
        let data_dir = self.init_dir();
        let output = match packages {
            None if trusted.is_none() => self.exec.run(cmd, name.clone(), shown, None).await?,
            None => {
                self.exec
                    .run_init(cmd, name.clone(), shown, trusted)
                    .await?
            }
            Some(SharedPackages { session, programs }) => {
                let cmd = cmd.envs(session.variables()).writes(session.dir());
                let ran = self.exec.run_init(cmd, name.clone(), shown, trusted);
                let output = ran.await?;
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
        run_blocking(move || data_dir.note()).await.map_err(disk)?;
        self.note_modules().await;
        Ok(output)
    }

    /// Removes a data directory that is not as an `init` has left it.
    pub(super) async fn remove_changed(&self) -> io::Result<()> {
        let old = self.init_dir();
        if run_blocking(move || old.remove_changed()).await? {
            let line = format!(
                "Removed {}: it was changed after the last `init`.",
                self.data_dir_shown()
            );
            self.exec.output.push_line(&line).await;
        }
        Ok(())
    }

    fn init_dir(&self) -> DataDir {
        let checkout = (self.exec.place.root, self.dir, self.exec.hold);
        DataDir::new(self.data_dir(), checkout, self.facts.head_commit())
    }

    /// Configures git and Mercurial for an `init`: with access to modules, and without repositories that a program makes in
    /// the checkout meanwhile.
    fn with_vcs_config(&self, cmd: Cmd, modules: Option<&ModuleAccess>) -> Cmd {
        let before = self
            .variable("GIT_CONFIG_COUNT")
            .and_then(|count| count.to_str()?.parse().ok());
        let before: usize = before.unwrap_or(0);
        let (key, value) = local_repos::IGNORE_BARE;
        let cmd = cmd
            .env("GIT_CONFIG_COUNT", (before + 1).to_string())
            .env(format!("GIT_CONFIG_KEY_{before}"), key)
            .env(format!("GIT_CONFIG_VALUE_{before}"), value)
            // The settings of a Mercurial repository in the checkout can name programs, which `hg` runs when it clones from it.
            .env("HGRCSKIPREPO", "1");
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
