//! `lockkeeper server [FLAGS]`: reads the settings, starts logging, and runs the server.

use std::path::Path;

use tracing::warn;

use super::server_args::{ServerArgs, help};
use super::wipe_secrets;
use crate::app::{self, ProcessFacts};
use crate::config::server::{
    RawSettings, SETTINGS, ServerConfig, Setting, StartupProblem, StartupWarning,
};
use crate::kit::term::{
    ExitResult, ExitStatus, SubcommandArgs, Terminal, block_on, config_files, settings_file,
};
use crate::telemetry;

/// Receive webhooks and run the requested commands
#[derive(clap::Parser)]
#[command(disable_help_flag = true)]
pub(super) struct ServerWords {
    /// All words, unchanged; `ServerArgs` parses them
    #[arg(value_name = "FLAGS", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl SubcommandArgs for ServerWords {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        run(self.words, terminal)
    }
}

fn run(words: Vec<String>, terminal: &mut Terminal<'_>) -> ExitResult {
    if ServerArgs::parse(words.iter().cloned()).wants_help {
        return Ok(terminal.shown(&help()));
    }
    let (raw, words) = wipe_secrets::read_and_wipe(words)?;
    let args = ServerArgs::parse(words);
    let (raw, of_file) = settings_file::add(RawSettings {
        flags: args.flags,
        ..raw
    });
    let raw = config_files::add_secrets(config_files::add(raw));
    let mut problems = args.problems;
    problems.extend(of_file);
    problems.extend(missing_files(&raw));
    match ServerConfig::from_raw(&raw, problems) {
        Ok((config, warnings)) => start(
            config,
            ProcessFacts {
                variables: raw.variables,
                hostname: raw.hostname,
            },
            &warnings,
        ),
        Err(errors) => Ok(terminal.usage(&format!("error: {errors}\n"))),
    }
}

fn start(
    config: ServerConfig,
    surroundings: ProcessFacts,
    warnings: &[StartupWarning],
) -> ExitResult {
    // A subscriber that is already installed in this process is good enough.
    drop(telemetry::init(config.logging.level, config.logging.format));
    for warning in warnings {
        warn!("{warning}");
    }
    block_on(app::serve(config, surroundings))?.map(|()| ExitStatus::Success)
}

/// Returns a problem for each file that must exist at the start and cannot be read.
fn missing_files(raw: &RawSettings) -> Vec<StartupProblem> {
    SETTINGS
        .iter()
        .filter(|setting| setting.must_exist)
        .filter_map(|setting| missing_file(raw, setting))
        .collect()
}

fn missing_file(raw: &RawSettings, setting: &Setting) -> Option<StartupProblem> {
    let path = raw.absolute(raw.given(setting)?.text.trim());
    let reason = unreadable(&path)?;
    let what = format!("`{}` cannot be read: {reason}", path.display());
    Some(StartupProblem::with(
        setting.flag,
        what,
        "check the path, and check that the user account of the server can read the file",
    ))
}

fn unreadable(path: &Path) -> Option<String> {
    match std::fs::File::open(path).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_dir() => Some("it is a directory".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn files_that_cannot_be_read_are_problems() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "ghp_x").unwrap();
        for (file, expected) in [("token", 0), ("absent", 1), (".", 1)] {
            let flags = BTreeMap::from([("gh-token-file".to_owned(), vec![file.to_owned()])]);
            let raw = RawSettings {
                flags,
                working_dir: dir.path().to_owned(),
                ..RawSettings::default()
            };
            assert_eq!(missing_files(&raw).len(), expected, "{file}");
        }
    }
}
