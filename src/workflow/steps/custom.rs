//! Runs commands of the administrator: `run`, `env` and `multienv` (reference 6.2 to 6.5). Their source comes from
//! the configuration and is passed to the shell unchanged.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::Steps;
use super::builtin::{failed, remove, run_blocking};
use super::error::{StepError, StepFailure, StepName};
use super::filters::filtered;
use super::init::is_plain_init;
use super::multienv::parse;
use crate::config::workflow::{EnvStep, EnvValue, MultienvStep, RunStep, Shell};
use crate::process::Cmd;
use crate::workflow::scratch;

/// Maximum size of a value. The system allows 128 KiB for a variable with its name.
const VALUE_BYTES: u64 = 64 * 1024;

impl Steps<'_> {
    pub(super) async fn run_command(
        &self,
        step: &RunStep,
        name: StepName,
    ) -> Result<String, StepError> {
        let (cmd, shown) = (self.shell(&step.shell, &step.command), &step.command);
        self.renew_plan(&name).await?;
        let ran = if is_plain_init(&step.shell, shown) {
            let disk = |error| failed(name.clone(), StepFailure::Disk(error));
            self.remove_changed().await.map_err(disk)?;
            let packages = self.session_of_command(shown).await.map_err(disk)?;
            Box::pin(self.one_init(cmd, (packages, None), name, shown)).await
        } else {
            self.exec.run(cmd, name, shown, None).await
        };
        match ran {
            Ok(output) => Ok(filtered(output, &step.output, false)),
            Err(error) => Err(StepError {
                output: filtered(error.output, &step.output, true),
                ..error
            }),
        }
    }

    /// Sets a variable. The value may be a secret, so it appears on no page and in no comment.
    pub(super) async fn env(
        &mut self,
        step: &EnvStep,
        name: StepName,
    ) -> Result<String, StepError> {
        let value = match &step.value {
            EnvValue::Literal(value) => OsString::from(value),
            EnvValue::Printed { command, shell } => {
                let mut value = self.printed(shell, command, name).await?;
                while value
                    .last()
                    .is_some_and(|last| matches!(last, b'\n' | b'\r'))
                {
                    value.pop();
                }
                OsString::from_vec(value)
            }
        };
        self.set.insert(OsString::from(&step.name), value);
        Ok(String::new())
    }

    pub(super) async fn multienv(
        &mut self,
        step: &MultienvStep,
        name: StepName,
    ) -> Result<String, StepError> {
        let printed = self
            .printed(&step.shell, &step.command, name.clone())
            .await?;
        let variables = parse(&String::from_utf8_lossy(&printed));
        let variables = variables.map_err(|error| failed(name, StepFailure::Variables(error)))?;
        let names: Vec<String> = variables
            .iter()
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        self.set.extend(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        Ok(match (step.is_shown, names.is_empty()) {
            (false, _) => String::new(),
            (true, true) => "No variables were set.\n".to_owned(),
            (true, false) => format!("Variables were set: {}.\n", names.join(", ")),
        })
    }

    /// Returns the standard output of a command. It is neither stored nor shown.
    async fn printed(
        &self,
        shell: &Shell,
        command: &str,
        name: StepName,
    ) -> Result<Vec<u8>, StepError> {
        let file = &self.files.captured;
        self.renew_plan(&name).await?;
        self.exec
            .run(
                self.shell(shell, command),
                name.clone(),
                command,
                Some(file),
            )
            .await?;
        let bytes = read(file).map_err(|error| failed(name.clone(), StepFailure::Disk(error)))?;
        match bytes {
            Some(mut bytes) => {
                // NUL is dropped, because an environment cannot hold it.
                bytes.retain(|byte| *byte != 0);
                Ok(bytes)
            }
            None => Err(failed(name, StepFailure::Long(VALUE_BYTES))),
        }
    }

    /// Writes the copy of the plan file for commands again. Programs that ran since, such as one that a backend names, could
    /// change it. What a command wrote there is lost on purpose: the plan that people have seen is applied, and no other.
    async fn renew_plan(&self, name: &StepName) -> Result<(), StepError> {
        let Some(kept) = self.kept_plan.clone() else {
            return Ok(());
        };
        let copy = self.files.plan.clone();
        if copy == kept {
            return Ok(());
        }
        let renewing = move || {
            remove(&copy)?;
            let mut from = File::open(kept)?;
            let mut to = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(copy)?;
            io::copy(&mut from, &mut to).map(drop)
        };
        run_blocking(renewing)
            .await
            .map_err(|error| failed(name.clone(), StepFailure::Disk(error)))
    }

    pub(super) fn shell(&self, shell: &Shell, command: &str) -> Cmd {
        let cmd = Cmd::new(&shell.program)
            .args(&shell.args)
            .arg(command)
            .dir(self.dir)
            .envs(self.of_command());
        self.exec.of_command(cmd, &self.tool.program)
    }
}

/// Reads and removes the file; `None` if it is larger than a variable may be.
fn read(file: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let opened = scratch::open(file)?.ok_or(std::io::ErrorKind::NotFound)?;
    opened.take(VALUE_BYTES + 1).read_to_end(&mut bytes)?;
    std::fs::remove_file(file)?;
    Ok((bytes.len() as u64 <= VALUE_BYTES).then_some(bytes))
}
