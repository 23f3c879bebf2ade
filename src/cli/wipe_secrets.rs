//! Removes the secrets from the environment variables and the command line that the server's process was started with.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;

use anyhow::Context as _;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::server_args::part_secrets;
use crate::config::server::RawSettings;
use crate::config::variables;
use crate::kit::term::environment;

/// Reads the settings of a server and removes the secrets from its start-up environment and command line.
///
/// Other users can read both (`/proc/PID/environ` and `cmdline`), and a process cannot change them itself. So the
/// program executes itself again in the same process, and passes the removed values on through memory that nobody else
/// can open.
///
/// `words` are those after `server`. The result has all of them, including the removed ones.
pub(super) fn read_and_wipe(mut words: Vec<String>) -> anyhow::Result<(RawSettings, Vec<String>)> {
    let doing = "cannot remove the secrets from the environment and the command line of the server";
    if std::env::var_os(environment::WIPED).is_some() {
        let taken = received().context(doing)?;
        words.extend(taken.words);
        return Ok((environment::read_with(taken.variables)?, words));
    }
    let (kept, variables): (Vec<_>, Vec<_>) =
        std::env::vars_os().partition(|(name, _)| stays(name));
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let own: Vec<OsString> = words.iter().map(OsString::from).collect();
    let (rest, secrets) = part_secrets(words.clone());
    // The words differ from those of this process only in a test.
    if !args.ends_with(&own) || (variables.is_empty() && secrets.is_empty()) {
        return Ok((environment::read()?, words));
    }
    args.truncate(args.len() - own.len());
    args.extend(rest.into_iter().map(OsString::from));
    let taken = RemovedSecrets {
        variables: variables.into_iter().collect(),
        words: secrets,
    };
    Err(start_again(args, &kept, &taken).context(doing))
}

/// Removed variables and words.
struct RemovedSecrets {
    variables: BTreeMap<OsString, OsString>,
    /// Flags with their values. Names of variables never begin with dashes.
    words: Vec<String>,
}

fn stays(name: &OsStr) -> bool {
    name.to_str().is_some_and(variables::stays)
}

/// Returns only if it fails.
#[expect(
    clippy::disallowed_methods,
    reason = "the process continues as the same program; no child is started"
)]
fn start_again(
    args: Vec<OsString>,
    kept: &[(OsString, OsString)],
    taken: &RemovedSecrets,
) -> anyhow::Error {
    let written = || -> anyhow::Result<File> {
        let mut memory = File::from(memfd_create("environment", MFdFlags::MFD_CLOEXEC)?);
        for (name, value) in &taken.variables {
            memory.write_all(&[name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat())?;
        }
        for word in &taken.words {
            memory.write_all(&[word.as_bytes(), b"\0"].concat())?;
        }
        memory.rewind()?;
        Ok(memory)
    };
    let prepared = move || -> anyhow::Result<std::process::Command> {
        let mut args = args.into_iter();
        let mut command = std::process::Command::new(std::env::current_exe()?);
        if let Some(name) = args.next() {
            command.arg0(name);
        }
        command
            .args(args)
            .env_clear()
            .envs(kept.iter().cloned())
            .env(environment::WIPED, "1")
            .stdin(written()?);
        Ok(command)
    };
    match prepared() {
        Ok(mut command) => command.exec().into(),
        Err(error) => error,
    }
}

/// Reads the removed values from standard input, which is empty afterwards for this process and its children.
fn received() -> anyhow::Result<RemovedSecrets> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    let mut taken = RemovedSecrets {
        variables: BTreeMap::new(),
        words: Vec::new(),
    };
    for line in bytes.split(|byte| *byte == 0) {
        let Some(at) = line.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        if line.starts_with(b"--") {
            taken.words.extend(text(line).into_string());
        } else {
            taken
                .variables
                .insert(text(&line[..at]), text(&line[at + 1..]));
        }
    }
    Ok(taken)
}
