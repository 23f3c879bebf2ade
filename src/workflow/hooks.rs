//! Runs one hook: a command of the operator in the root of a checkout, before or after a command on the pull
//! (reference 6.9).

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::scratch;
use super::steps::{Deadline, Exec, base};
use super::{Facts, RunError, RunOutput, StepName, Terraform};
use crate::config::Hook;
use crate::model::CommandKind;
use crate::process::Cmd;

/// A line of a status is much shorter.
const LINE_BYTES: u64 = 4096;

/// Where and for what a hook runs.
pub struct HookPlace<'a> {
    /// Root of the checkout.
    pub root: &'a Path,
    /// Mirror of the repository.
    pub mirror: &'a Path,
    /// Held for as long as anything of the hook lives.
    pub hold: &'a Path,
    /// What it is told of the pull.
    pub facts: &'a Facts,
    /// Around which command it runs.
    pub command: CommandKind,
    /// The project that the command names, if it does.
    pub project: Option<&'a str>,
    /// After a command: whether anything of it failed.
    pub has_errors: Option<bool>,
    /// Where what is printed goes.
    pub output: &'a RunOutput,
    /// Cancelled when the hook is to stop.
    pub stop: &'a CancellationToken,
    /// How long it may take.
    pub timeout: Duration,
}

impl Terraform {
    /// Runs a hook to its end; what it has written into `OUTPUT_STATUS_FILE`, if anything, is for its status. That file
    /// is new for every hook, and outside of the checkout.
    pub async fn hook(
        &self,
        hook: &Hook,
        place: &HookPlace<'_>,
    ) -> Result<Option<String>, RunError> {
        let setup = match place.command {
            CommandKind::Apply | CommandKind::Import | CommandKind::StateRm => &self.applies,
            CommandKind::Plan
            | CommandKind::Autoplan
            | CommandKind::Unlock
            | CommandKind::Cancel
            | CommandKind::Explain
            | CommandKind::Version
            | CommandKind::Help => &self.plans,
        };
        let scratch = self.scratch()?;
        let status = scratch.dir().join("status");
        let cmd = Cmd::new(&hook.shell.program)
            .args(&hook.shell.args)
            .arg(&hook.command)
            .dir(place.root)
            .envs(base(&setup.environment, self.tools.dirs()))
            .envs(variables(place, &status));
        let exec = Exec {
            supervisor: &self.supervisor,
            hold: place.hold,
            output: place.output,
            stop: place.stop,
            deadline: Deadline::after(place.timeout),
            sandbox: &setup.sandbox,
            place: scratch.place(place.root, place.mirror),
        };
        let cmd = exec.of_command(cmd, Path::new(&hook.shell.program));
        exec.run(cmd, StepName::new(&hook.command, None), &hook.command, None)
            .await?;
        Ok(line_in(&status))
    }
}

fn variables(place: &HookPlace<'_>, status: &Path) -> Vec<(&'static str, OsString)> {
    let mut all = place.facts.variables();
    all.extend([
        ("DIR", place.root.into()),
        ("COMMAND_NAME", place.command.classic_name().into()),
        ("PROJECT_NAME", place.project.unwrap_or_default().into()),
        ("OUTPUT_STATUS_FILE", status.into()),
    ]);
    all.extend(
        place
            .has_errors
            .map(|has_errors| ("COMMAND_HAS_ERRORS", has_errors.to_string().into())),
    );
    all
}

/// The first bytes of a regular file on one line; `None` when there is nothing in it.
fn line_in(file: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    scratch::open(file)
        .ok()??
        .take(LINE_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let words: Vec<&str> = text.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" ").replace(char::is_control, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_file_becomes_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("status");
        assert_eq!(line_in(&file), None);
        for (text, expected) in [
            ("", None),
            (" \n", None),
            ("done\n", Some("done")),
            ("a\nb\u{7}\n\n c", Some("a b c")),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(line_in(&file).as_deref(), expected, "{text:?}");
        }
        std::fs::write(&file, "x".repeat(10_000)).unwrap();
        assert_eq!(line_in(&file).unwrap().len(), 4096);
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "hunter2").unwrap();
        let file = dir.path().join("status");
        std::os::unix::fs::symlink(dir.path().join("secret"), &file).unwrap();
        assert_eq!(line_in(&file), None);
    }
}
