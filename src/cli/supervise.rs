//! `lockkeeper supervise --grace SECONDS [--hold FILE] [--lease SECONDS] -- PROGRAM [ARG…]`
//!
//! The server starts this for every Terraform run; it is of no use to people. What it does is told in
//! [`crate::process::supervise`]. It is parsed by hand and without starting a runtime because it must be small, quick
//! and single-threaded at its start.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use crate::process::supervise::{Order, SuperviseError, supervise};

/// Exit code for a command line that cannot be understood (as `EX_USAGE`).
const USAGE: u8 = 64;
/// Exit code when the program was not started because of its surroundings (as `env` and `timeout` use it).
const REFUSED: u8 = 125;
/// Exit code when the program could not be started (as shells use it).
const CANNOT_START: u8 = 126;

/// Runs the subcommand if `args`, without the program's own name, ask for it.
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
        Err(error) => complain(exit_code(&error), &format!("{:#}", anyhow::Error::new(error))),
    }
}

fn exit_code(error: &SuperviseError) -> u8 {
    match error {
        SuperviseError::Start { .. } => CANNOT_START,
        SuperviseError::Hold(_) | SuperviseError::Os { .. } => REFUSED,
    }
}

/// Standard error belongs to the program; a line of ours must say so.
fn complain(code: u8, problem: &str) -> u8 {
    writeln!(std::io::stderr(), "lockkeeper supervise: {problem}").ok();
    code
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Order, String> {
    let (mut grace, mut hold, mut lease) = (None, None, None);
    loop {
        let option = args.next().ok_or("expected `-- PROGRAM [ARG…]` at the end")?;
        match option.to_str() {
            Some("--grace") => grace = Some(seconds("--grace", args.next().as_deref())?),
            Some("--lease") => lease = Some(seconds("--lease", args.next().as_deref())?),
            Some("--hold") => hold = Some(args.next().ok_or("`--hold` needs a file")?.into()),
            Some("--") => break,
            Some(_) | None => return Err(format!("unknown option {}", option.display())),
        }
    }
    let grace = grace.ok_or("`--grace SECONDS` is missing")?;
    let program = args.next().ok_or("expected a program after `--`")?;
    Ok(Order { grace, lease, hold, program, args: args.collect() })
}

fn seconds(option: &str, text: Option<&OsStr>) -> Result<Duration, String> {
    let number = text.and_then(OsStr::to_str).and_then(|text| text.parse().ok());
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("`{option}` needs a number of seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Order, String> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn what_follows_the_dashes_is_not_ours() {
        let order = parsed("--grace 1.5 --hold /tmp/x --lease 45 -- prog --grace 3 -- a").unwrap();
        assert_eq!(order.grace, Duration::from_millis(1500));
        assert_eq!(order.lease, Some(Duration::from_secs(45)));
        assert_eq!(order.hold.unwrap().to_str(), Some("/tmp/x"));
        assert_eq!(
            (order.program, order.args),
            ("prog".into(), ["--grace", "3", "--", "a"].map(OsString::from).to_vec())
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
        ] {
            assert!(parsed(line).unwrap_err().contains(problem), "{line}");
        }
    }
}
