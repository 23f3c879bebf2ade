//! The command line: a file per subcommand. Only this room reads arguments and the environment.
//!
//! Exit codes: 0 everything went well, 1 something failed, 2 the command line or the configuration is wrong.

mod check;
mod demo;
mod healthcheck;
mod import;
mod ink;
mod replay;
mod server;
mod server_args;
pub mod supervise;
mod text;
mod version;
mod wiped;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Command;
use nix::sys::stat::{Mode, umask};

use crate::features;
use crate::kit::term::{ExitStatus, Subcommand, Terminal};

/// Subcommands that belong to no feature, in the order of the help. The first two run a server.
const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "server",
        command: server::command,
        run: server::run,
    },
    Subcommand {
        name: "demo",
        command: demo::command,
        run: demo::run,
    },
    check::SUBCOMMAND,
    Subcommand {
        name: "replay",
        command: replay::command,
        run: replay::run,
    },
    Subcommand {
        name: "import",
        command: import::command,
        run: import::run,
    },
    Subcommand {
        name: "healthcheck",
        command: healthcheck::command,
        run: healthcheck::run,
    },
    Subcommand {
        name: "version",
        command: version::command,
        run: version::run,
    },
];

/// All subcommands: those that run a server, those of features, and the others.
fn subcommands() -> impl Iterator<Item = &'static Subcommand> {
    let (servers, others) = SUBCOMMANDS.split_at(2);
    servers.iter().chain(features::subcommands()).chain(others)
}

/// Runs the program with these arguments. The first argument is the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Before any thread starts: files of this process and its children (database, checkouts, plans, states) are private
    // to their user.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    run_on(
        args.into_iter().collect(),
        &mut Terminal::new(&mut out, &mut err),
    )
    .into()
}

fn run_on(args: Vec<OsString>, terminal: &mut Terminal<'_>) -> ExitStatus {
    let matches = match command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(stop) if stop.use_stderr() => return terminal.usage(&stop.render().to_string()),
        Err(help) => return terminal.shown(&help.render().to_string()),
    };
    let (name, matches) = matches.subcommand().expect("clap demands a subcommand");
    let subcommand = subcommands().find(|subcommand| subcommand.name == name);
    let run = subcommand
        .expect("clap knows only the subcommands of the table")
        .run;
    run(matches, terminal).unwrap_or_else(|error| terminal.failed(&error))
}

fn command() -> Command {
    Command::new("lockkeeper")
        .about("Runs Terraform and OpenTofu from pull requests, and keeps the locks.")
        .version(version::version())
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .term_width(100)
        .subcommands(subcommands().map(|subcommand| (subcommand.command)()))
}

#[cfg(test)]
pub(crate) mod tests {
    use insta::assert_snapshot;

    use super::*;

    /// Exit code, standard output and standard error of a call.
    pub(crate) fn call(args: &[&str]) -> (ExitStatus, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = std::iter::once("lockkeeper")
            .chain(args.iter().copied())
            .map(OsString::from)
            .collect();
        let exit = run_on(args, &mut Terminal::new(&mut out, &mut err));
        (
            exit,
            String::from_utf8(out).unwrap(),
            String::from_utf8(err).unwrap(),
        )
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn help_shows_every_subcommand() {
        let (exit, out, _) = call(&["--help"]);
        assert_eq!(exit, ExitStatus::Success);
        assert_snapshot!(out, @"
        Runs Terraform and OpenTofu from pull requests, and keeps the locks.

        Usage: lockkeeper <COMMAND>

        Commands:
          server       Receive webhooks and run what they ask for
          demo         Play a story with real Terraform and an emulated GitHub, on this machine alone
          locks        Look at locks, release them, hand them over
          apply-lock   Stop applies, everywhere or somewhere, and allow them again
          repos        Look at the mirrors of repositories, and ask for a sync
          owners       Add, show and remove owners: the teams or tenants of a server
          claims       Show who drives which repository
          apps         Register, change, show, plan, apply, cancel and remove projects of owners
          credentials  Keep, change and remove what repositories are reached with
          audit        Look through the log of what happened to locks
          leases       Look at exclusive work, and take a lease away
          check        Check the configuration here, and say what would be planned and why
          replay       Send recorded webhooks to a server once more
          import       Take over what another tool holds
          healthcheck  Ask the server on this machine whether it lives
          version      Show the version

        Options:
          -h, --help     Print help
          -V, --version  Print version
        ");
    }

    #[test]
    fn a_wrong_subcommand_is_a_usage_error() {
        let (exit, out, err) = call(&["sever"]);
        assert_eq!((exit, out), (ExitStatus::Usage, String::new()));
        assert!(err.contains("server"), "{err}");
    }

    #[test]
    fn help_of_the_server_shows_its_settings() {
        let (exit, out, _) = call(&["server", "--help"]);
        assert_eq!(exit, ExitStatus::Success);
        let start: String = out.lines().take(30).collect::<Vec<_>>().join("\n");
        assert_snapshot!(start, @"
        Receives webhooks and runs what they ask for.

        Every flag can be given as a variable instead: --gh-user is read from LOCKKEEPER_GH_USER, then from
        ATLANTIS_GH_USER, then from the key gh-user of the YAML file that --config names. An empty value
        counts as not given.

        Usage: lockkeeper server [FLAGS]

        Options:
          -h, --help  Print help

        Repositories:
              --repo-allowlist <LIST>         Repositories to serve, as host/owner/name; `*` stands for
                                              anything, `!` in front excludes. Required.
              --require-claims                Serve only repositories that an owner has claimed
                                              (docs/ownership.md); deliveries for others are refused.
              --allow-fork-prs                Also serve pull requests from forks: anybody may then run
                                              code.
              --allow-draft-prs               Also plan draft pull requests by itself.
              --checkout-strategy <STRATEGY>  What is planned: the head of the pull request, or its merge
                                              into the base branch. A head lacks what was merged after it
                                              was made, and its plan would undo that. [branch, merge]
                                              [default: merge]
              --mirror-filter <FILTER>        What new mirrors leave at the forge until it is needed:
                                              `blob:none` the content of all files, `blob:limit=1m` that of
                                              files of 1 MiB or more. Not set: mirrors are whole.
              --sparse-checkout               Check out only the directories of the projects and what their
                                              code reaches, such as modules; everything where hooks run
                                              (docs/repositories.md).
              --checkout-submodules           Check out submodules too, and theirs: of repositories on the
        ");
        for setting in crate::config::server::SETTINGS {
            assert!(
                out.contains(&format!("--{}", setting.flag)),
                "--{}",
                setting.flag
            );
        }
    }

    #[test]
    fn what_is_wrong_with_the_settings_is_a_usage_error() {
        let (exit, out, err) = call(&[
            "server",
            "--prot",
            "80",
            "--log-level=trace",
            "--repo-config=x",
            "stray",
            "--port",
        ]);
        assert_eq!((exit, out), (ExitStatus::Usage, String::new()));
        for part in [
            "did you mean --port?",
            "`trace`",
            "--repo-config",
            "`stray`",
            "--port: no value",
        ] {
            assert!(err.contains(part), "{part}: {err}");
        }
        assert!(
            !err.contains("`80`"),
            "the value of an unknown flag is not a stray word: {err}"
        );
    }
}
