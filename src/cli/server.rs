//! `lockkeeper server [FLAGS]`: reads the settings, starts logging, and runs the server.

use std::path::Path;

use tracing::warn;

use super::server_args::{ServerArgs, help};
use super::wiped;
use crate::app::{self, ProcessFacts};
use crate::config::read_text;
use crate::config::server::{
    RawSettings, SETTINGS, ServerConfig, ServerRepos, Setting, StartupProblem, StartupWarning,
};
use crate::kit::term::{ExitResult, ExitStatus, SubcommandArgs, Terminal, block_on, settings_file};
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
    let (raw, words) = wiped::read_and_wipe(words)?;
    let args = ServerArgs::parse(words);
    let (raw, of_file) = settings_file::add(RawSettings {
        flags: args.flags,
        ..raw
    });
    let raw = with_files(raw);
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

/// Settings that name a file which is part of the configuration, with its maximum size in bytes.
const PARTS: [(&str, usize); 1] = [("repo-config", ServerRepos::MAX_BYTES)];

/// Reads the files that are part of the configuration.
pub(super) fn with_files(mut raw: RawSettings) -> RawSettings {
    for (flag, most) in PARTS {
        let setting = SETTINGS.iter().find(|setting| setting.flag == flag);
        if let Some(given) = setting.and_then(|setting| raw.given(setting)) {
            let text = read_file(&raw.absolute(given.text.trim()), most)
                .map_err(|error| error.to_string());
            raw.files.insert(flag.to_owned(), text);
        }
    }
    raw
}

fn read_file(path: &Path, most: usize) -> std::io::Result<String> {
    read_text(std::fs::File::open(path)?, most)
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

    #[test]
    fn files_that_are_part_of_the_configuration_are_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("repos.yaml"), "repos: []\n").unwrap();
        std::fs::write(
            dir.path().join("large.yaml"),
            " ".repeat(ServerRepos::MAX_BYTES * 2),
        )
        .unwrap();
        std::fs::write(dir.path().join("binary.yaml"), [0xff, 0xfe]).unwrap();
        let length = |file: &str| {
            let flags = BTreeMap::from([("repo-config".to_owned(), vec![file.to_owned()])]);
            let raw = RawSettings {
                flags,
                working_dir: dir.path().to_owned(),
                ..RawSettings::default()
            };
            with_files(raw).files["repo-config"]
                .as_ref()
                .map(String::len)
                .map_err(String::clone)
        };
        assert_eq!(length("repos.yaml"), Ok(10));
        assert_eq!(length("large.yaml"), Ok(ServerRepos::MAX_BYTES + 1));
        assert_eq!(
            length("binary.yaml"),
            Err("line 1 is not UTF-8; save the file as UTF-8".to_owned())
        );
        for file in ["absent.yaml", "."] {
            assert!(length(file).is_err(), "{file}");
        }
        assert!(with_files(RawSettings::default()).files.is_empty());
    }
}
