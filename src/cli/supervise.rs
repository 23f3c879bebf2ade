//! ```text
//! lockkeeper supervise --grace SECONDS [--hold FILE] [--lease SECONDS]
//!   [--landlock|--bubblewrap PROGRAM [--read PATH]… [--write PATH]…]
//!   [--run-as UID:GID] [--memory BYTES] [--processes NUMBER] [--file-size BYTES] [--disk BYTES [--place PATH]…]
//!   [--cpu SECONDS] -- PROGRAM [ARG…]
//! ```
//!
//! The server starts this for every Terraform run; people have no use for it. [`crate::process::supervise`] documents
//! what it does. It is parsed by hand and without a runtime because it must be small, fast and single-threaded at its
//! start.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::model::RunUser;
use crate::process::supervise::{SuperviseError, SupervisedProgram, supervise};
use crate::process::{Mechanism, RunLimits, Sandbox};

/// Exit code for an invalid command line (as `EX_USAGE`).
const USAGE: u8 = 64;
/// Exit code when the environment did not allow to start the program (as `env` and `timeout` use it).
const REFUSED: u8 = 125;
/// Exit code when the program could not be started (as shells use it).
const CANNOT_START: u8 = 126;

/// Runs the subcommand if `args`, without the program's own name, name it.
pub fn main(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    (args.next()? == "supervise").then(|| ExitCode::from(run(args)))
}

fn run(args: impl Iterator<Item = OsString>) -> u8 {
    let order = match parse(args) {
        Ok(order) => order,
        Err(problem) => return complain(USAGE, &problem),
    };
    match supervise(&order) {
        Ok(code) => code,
        Err(error) => complain(
            exit_code(&error),
            &format!("{:#}", anyhow::Error::new(error)),
        ),
    }
}

fn exit_code(error: &SuperviseError) -> u8 {
    match error {
        SuperviseError::Start { .. } => CANNOT_START,
        SuperviseError::Hold(_) | SuperviseError::Os { .. } => REFUSED,
    }
}

/// Prints a problem on standard error and returns the exit code. Standard error belongs to the program, so our lines
/// have a prefix.
fn complain(code: u8, problem: &str) -> u8 {
    writeln!(std::io::stderr(), "lockkeeper supervise: {problem}").ok();
    code
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<SupervisedProgram, String> {
    let (mut grace, mut hold, mut lease) = (None, None, None);
    let (mut sandbox, mut limits, mut run_as) = (None, RunLimits::default(), None);
    let mut places = Vec::new();
    loop {
        let option = args
            .next()
            .ok_or("expected `-- PROGRAM [ARG…]` at the end")?;
        match option.to_str() {
            Some("--grace") => grace = Some(seconds("--grace", args.next().as_deref())?),
            Some("--lease") => lease = Some(seconds("--lease", args.next().as_deref())?),
            Some("--hold") => hold = Some(args.next().ok_or("`--hold` needs a file")?.into()),
            Some("--landlock") => sandbox = Some(Sandbox::new(Mechanism::Landlock)),
            Some("--bubblewrap") => {
                sandbox = Some(Sandbox::new(Mechanism::Bubblewrap(path(
                    "--bubblewrap",
                    args.next(),
                )?)));
            }
            Some("--read") => {
                sandbox = Some(confined(sandbox, "--read")?.reads([path("--read", args.next())?]));
            }
            Some("--write") => {
                sandbox =
                    Some(confined(sandbox, "--write")?.writes([path("--write", args.next())?]));
            }
            Some("--run-as") => run_as = Some(user(args.next().as_deref())?),
            Some("--memory") => limits.memory = Some(number("--memory", args.next().as_deref())?),
            Some("--processes") => {
                limits.processes = Some(number("--processes", args.next().as_deref())?);
            }
            Some("--file-size") => {
                limits.file_size = Some(number("--file-size", args.next().as_deref())?);
            }
            Some("--disk") => limits.disk = Some(number("--disk", args.next().as_deref())?),
            Some("--place") => places.push(path("--place", args.next())?),
            Some("--cpu") => limits.cpu = Some(seconds("--cpu", args.next().as_deref())?),
            Some("--") => break,
            Some(_) | None => return Err(format!("unknown option {}", option.display())),
        }
    }
    let grace = grace.ok_or("`--grace SECONDS` is missing")?;
    let program = args.next().ok_or("expected a program after `--`")?;
    Ok(SupervisedProgram {
        grace,
        lease,
        hold,
        sandbox,
        limits,
        places,
        user: run_as,
        program,
        args: args.collect(),
    })
}

fn confined(sandbox: Option<Sandbox>, option: &str) -> Result<Sandbox, String> {
    sandbox.ok_or_else(|| format!("`{option}` needs `--landlock` or `--bubblewrap` before it"))
}

fn path(option: &str, path: Option<OsString>) -> Result<PathBuf, String> {
    path.map(PathBuf::from)
        .ok_or_else(|| format!("`{option}` needs a path"))
}

fn user(text: Option<&OsStr>) -> Result<RunUser, String> {
    let user = text
        .and_then(OsStr::to_str)
        .and_then(|text| text.parse().ok());
    user.ok_or_else(|| "`--run-as` needs a user and a group that are not root".to_owned())
}

fn number(option: &str, text: Option<&OsStr>) -> Result<u64, String> {
    let number = text
        .and_then(OsStr::to_str)
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("`{option}` needs a whole number"))
}

fn seconds(option: &str, text: Option<&OsStr>) -> Result<Duration, String> {
    let number = text
        .and_then(OsStr::to_str)
        .and_then(|text| text.parse().ok());
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("`{option}` needs a number of seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<SupervisedProgram, String> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn what_follows_the_dashes_is_not_ours() {
        let order = parsed("--grace 1.5 --hold /tmp/x --lease 45 -- prog --grace 3 -- a").unwrap();
        assert_eq!(order.grace, Duration::from_millis(1500));
        assert_eq!(order.lease, Some(Duration::from_secs(45)));
        assert_eq!(order.hold.unwrap().to_str(), Some("/tmp/x"));
        assert_eq!((order.sandbox, order.limits), (None, RunLimits::default()));
        assert_eq!(
            (order.program, order.args),
            (
                "prog".into(),
                ["--grace", "3", "--", "a"].map(OsString::from).to_vec()
            )
        );
    }

    #[test]
    fn a_sandbox_and_limits_are_understood_as_the_server_writes_them() {
        let order = parsed(
            "--grace 1 --landlock --read /usr --write /w --memory 9 --processes 8 --file-size 7 --disk 5 --place /c --cpu 6 -- p",
        );
        let order = order.unwrap();
        assert_eq!(
            order.sandbox,
            Some(
                Sandbox::new(Mechanism::Landlock)
                    .reads(["/usr"])
                    .writes(["/w"])
            )
        );
        let cpu = Some(Duration::from_secs(6));
        assert_eq!(
            order.limits,
            RunLimits {
                memory: Some(9),
                processes: Some(8),
                file_size: Some(7),
                disk: Some(5),
                cpu
            }
        );
        assert_eq!(order.places, [PathBuf::from("/c")]);
        let order = parsed("--grace 1 --bubblewrap /b --read /usr --run-as 43:44 -- p").unwrap();
        assert_eq!(order.user, Some(RunUser { uid: 43, gid: 44 }));
        assert_eq!(
            order.sandbox,
            Some(Sandbox::new(Mechanism::Bubblewrap("/b".into())).reads(["/usr"]))
        );
    }

    #[test]
    fn a_wrong_command_line_says_what_is_wrong() {
        for (line, problem) in [
            ("--grace x -- a", "number of seconds"),
            ("--grace -1 -- a", "number of seconds"),
            ("-- a", "missing"),
            ("--grace 1 --", "after `--`"),
            ("--grace 1", "at the end"),
            ("--what", "unknown option --what"),
            (
                "--read /x --grace 1 -- a",
                "`--landlock` or `--bubblewrap` before it",
            ),
            ("--grace 1 --bubblewrap", "needs a path"),
            ("--grace 1 --run-as 0:0 -- a", "not root"),
            ("--grace 1 --landlock --write", "needs a path"),
            ("--grace 1 --memory 1GiB -- a", "whole number"),
        ] {
            assert!(parsed(line).unwrap_err().contains(problem), "{line}");
        }
    }
}
