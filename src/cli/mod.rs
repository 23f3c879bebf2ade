//! The command line: a file per subcommand. Only this module reads arguments and the environment.
//!
//! Exit codes: 0 everything went well, 1 something failed, 2 the command line or the configuration is wrong.

mod check;
mod demo;
mod healthcheck;
mod import;
pub mod policy_engine;
mod replay;
mod server;
mod server_args;
mod style;
pub mod supervise;
mod text;
mod version;
mod wipe_secrets;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Command;
use nix::sys::stat::{Mode, umask};

use crate::features;
use crate::kit::term::{ExitStatus, Subcommand, Terminal};

/// Subcommands that belong to no feature, in the order of the help. The first two run a server.
const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand::of::<server::ServerWords>("server"),
    Subcommand::of::<demo::DemoArgs>("demo"),
    Subcommand::of::<check::CheckArgs>("check"),
    Subcommand::of::<replay::ReplayArgs>("replay"),
    Subcommand::of::<import::ImportArgs>("import"),
    Subcommand::of::<healthcheck::HealthcheckArgs>("healthcheck"),
    Subcommand::of::<version::VersionArgs>("version"),
];

/// Returns all subcommands: those that run a server, those of features, and the others.
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
    subcommand
        .expect("clap knows only the subcommands of the table")
        .run(matches, terminal)
        .unwrap_or_else(|error| terminal.failed(&error))
}

fn command() -> Command {
    Command::new("lockkeeper")
        .about("Runs Terraform and OpenTofu from pull requests, and keeps the locks.")
        .version(version::version())
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .term_width(100)
        .subcommands(subcommands().map(Subcommand::command))
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
          server       Receive webhooks and run the requested commands
          demo         Play a story with real Terraform and an emulated GitHub on this machine
          locks        Show locks, release them, and hand them over
          apply-lock   Stop applies, and allow them again
          repos        Show the mirrors of repositories, and sync them
          owners       Add, show and remove owners: the teams or tenants of a server
          claims       Show the owners of repositories
          apps         Register, change, show, plan, apply, cancel and remove projects of owners
          credentials  Add, change and remove credentials of repositories
          accounts     Keep accounts of people in Git
          reindex      Make tables again that are derived from something else
          registry     Publish Terraform and Go modules, and manage their names and tokens
          policy       Run the tests of policies, and evaluate policies on a plan
          audit        Show, verify and prune the audit log
          leases       Show leases, and release one
          check        Check the local configuration, and show what would be planned and why
          replay       Send recorded webhooks to a server again
          import       Import the locks of another tool
          healthcheck  Check that the server on this machine is alive
          version      Show the version of this program

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
        Receives webhooks and runs the requested commands.

        Every flag can also be set by an environment variable or in a file: without --gh-user, the server
        reads LOCKKEEPER_GH_USER, then ATLANTIS_GH_USER, then the key gh-user of the YAML file that --config
        names. An empty value counts as not set.

        Usage: lockkeeper server [FLAGS]

        Options:
          -h, --help  Print help

        Repositories:
              --repo-allowlist <LIST>         Repositories to serve, as host/owner/name; `*` matches
                                              anything, `!` in front excludes. Required.
              --require-claims                Serve only repositories that an owner has claimed
                                              (docs/ownership.md); refuse deliveries for others.
              --allow-fork-prs                Also serve pull requests from forks. Anybody can then run code
                                              on the server.
              --allow-draft-prs               Also plan draft pull requests automatically.
              --checkout-strategy <STRATEGY>  Commit to plan: the head of the pull request (branch), or its
                                              merge into the base branch (merge). The head lacks newer
                                              commits of the base branch, and its plan would undo their
                                              changes. [branch, merge] [default: merge]
              --mirror-filter <FILTER>        Files that new mirrors do not fetch until they are needed: all
                                              files with `blob:none`, files of 1 MiB or more with
                                              `blob:limit=1m`. Not set: mirrors are complete.
              --sparse-checkout               Check out only the directories of the projects and the code
                                              that they use, such as modules. Repositories with hooks are
                                              checked out completely (docs/repositories.md).
              --checkout-submodules           Check out submodules and their submodules, if they are on the
        ");
        for setting in crate::config::server::SETTINGS.iter() {
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
