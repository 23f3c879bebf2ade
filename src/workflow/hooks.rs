//! Runs one hook: a command of the administrator in the root of a checkout, before or after a command on the pull
//! request (reference 6.9).

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::scratch;
use super::steps::{Deadline, Exec, base};
use super::{PullFacts, RegistryAccess, RunError, RunOutput, StepName, Terraform};
use crate::config::Hook;
use crate::model::{CommandKind, Distribution};
use crate::process::Cmd;

/// Maximum length of the text for a status. A real status line is much shorter.
const LINE_BYTES: u64 = 4096;

/// Place and context of a hook.
pub struct HookPlace<'a> {
    /// Root of the checkout.
    pub root: &'a Path,
    /// Mirror of the repository.
    pub mirror: &'a Path,
    /// Lock file that is held while any process of the hook lives.
    pub hold: &'a Path,
    /// Description of the pull request.
    pub facts: &'a PullFacts,
    /// Command that the hook runs before or after.
    pub command: CommandKind,
    /// Project that the command names, if any.
    pub project: Option<&'a str>,
    /// True if anything of the command failed. Set only for hooks that run after the command.
    pub has_errors: Option<bool>,
    /// Destination of the output.
    pub output: &'a RunOutput,
    /// Token that is cancelled to stop the hook.
    pub stop: &'a CancellationToken,
    /// Time limit of the hook.
    pub timeout: Duration,
    /// Access to the registry of modules, if the hook has any.
    pub registry: Option<&'a RegistryAccess>,
}

impl Terraform {
    /// Runs a hook to its end. Returns the text that the hook wrote into `OUTPUT_STATUS_FILE`, if any, for the
    /// status. That file is new for every hook and lies outside the checkout.
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
            | CommandKind::ApprovePolicies
            | CommandKind::Help => &self.plans,
        };
        // The tool that a hook runs is not known. OpenTofu also reads the files of Terraform.
        let tool = Distribution::Terraform;
        let (scratch, environment) = self.begin(place.registry, tool, setup)?;
        let status = scratch.dir().join("status");
        let cmd = Cmd::new(&hook.shell.program)
            .args(&hook.shell.args)
            .arg(&hook.command)
            .dir(place.root)
            .envs(base(&environment, self.tools.dirs()))
            .envs(variables(place, &status));
        let deadline = Deadline::after(place.timeout);
        let exec = Exec {
            supervisor: &self.supervisor,
            hold: place.hold,
            output: place.output,
            stop: place.stop,
            deadline: &deadline,
            sandbox: &setup.sandbox,
            place: scratch.place(place.root, place.mirror),
            registry: place.registry,
        };
        let cmd = exec.of_command(cmd, Path::new(&hook.shell.program));
        exec.run(cmd, StepName::new(&hook.command, None), &hook.command, None)
            .await?;
        let mut line = line_in(&status);
        if let (Some(line), Some(access)) = (&mut line, place.registry) {
            access.hide(line);
        }
        Ok(line)
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

/// Reads the first bytes of a regular file as one line; `None` if it is empty.
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
