//! `lockkeeper demo [--exit] [--port N] [--data-dir FOLDER] [--terraform PROGRAM] [--verbose]`
//!
//! The demo shows new users how Lockkeeper works before they give it credentials. It plays a story on this machine: the
//! server as `lockkeeper server` runs it, real Terraform, real git, and an emulated GitHub.
//!
//! - [`script`]: every step and every text; [`sample`]: the repository.
//! - [`stage`]: server and forge; [`play`]: performs and checks the steps, without output.
//! - [`show`]: prints the transcript, independent of the player.

mod folder;
mod play;
mod sample;
mod script;
mod show;
mod stage;
mod terraform;

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::app::Signals;
use crate::config::server::RawSettings;
use crate::kit::term::{ExitResult, ExitStatus, Terminal, block_on, environment};
use crate::model::PullNumber;
use crate::telemetry;
use folder::Folder;
use play::DemoPlayer;
use script::{PullRole, STORY, ScriptStep};
use show::{Addresses, TerminalStyle, Transcript};
use stage::{DemoStage, Props};

/// Number of lines of the log that are shown after a failure.
const LOG_LINES: usize = 25;

pub(super) fn command() -> Command {
    let switch = |name, help| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let value = |name, value, help| Arg::new(name).long(name).value_name(value).help(help);
    Command::new("demo")
        .about("Play a story with real Terraform and an emulated GitHub on this machine")
        .arg(switch(
            "exit",
            "Exit after the story; exit code 0 only if every step succeeded",
        ))
        .arg(
            value(
                "port",
                "NUMBER",
                "Port of the server [default: any free port]",
            )
            .value_parser(value_parser!(u16)),
        )
        .arg(
            value(
                "data-dir",
                "FOLDER",
                "New folder for all files [default: a temporary folder]",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            value(
                "terraform",
                "PROGRAM",
                "Terraform or OpenTofu [default: found on the PATH]",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(switch("verbose", "Show the server's log on standard error"))
}

/// Result of the story.
enum Ending {
    Held,
    Failed(&'static ScriptStep),
    Stopped,
}

pub(super) fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    block_on(demo(matches, terminal))?
}

async fn demo(args: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    let mut signals = Signals::new()?;
    let raw = environment::read()?;
    let mut page = Transcript::new(
        terminal,
        TerminalStyle::of_stdout(
            raw.variables.get("NO_COLOR").map(String::as_str),
            TerminalStyle::PROSE,
        ),
    );
    let mut folder = Folder::open(args.get_one::<PathBuf>("data-dir").map(PathBuf::as_path))?;
    // A subscriber that is already installed in this process is good enough.
    drop(telemetry::init_file(
        folder.open_log()?,
        args.get_flag("verbose"),
    ));
    let stage = tokio::select! {
        stage = set(args, raw, &folder, &mut page) => stage?,
        () = signals.next() => return Ok(ExitStatus::Failure),
    };
    let ending = perform(&stage, &mut page, &mut signals, args.get_flag("exit")).await;
    tokio::select! {
        () = stage.strike() => {}
        () = signals.next() => {}
    }
    let problem = match ending {
        Ok(Ending::Held) => return Ok(ExitStatus::Success),
        Ok(Ending::Stopped) => return Ok(ExitStatus::Failure),
        Ok(Ending::Failed(step)) => format!("The step “{}” failed.", step.title),
        // The reader closed the pipe, which is not a failure of the story.
        Err(error) if error.is::<io::Error>() => return Err(error),
        Err(error) => format!("{error:#}."),
    };
    page.failed(&problem, &folder.end_of_log(LOG_LINES), folder.keep())?;
    Ok(ExitStatus::Failure)
}

/// Finds and prints the prerequisites, and starts everything.
async fn set(
    args: &ArgMatches,
    raw: RawSettings,
    folder: &Folder,
    page: &mut Transcript<'_, '_>,
) -> anyhow::Result<DemoStage> {
    let variables = terraform::environment(&raw.variables);
    let named = args.get_one::<PathBuf>("terraform").map(PathBuf::as_path);
    let terraform = terraform::find(
        named,
        &raw.working_dir,
        &variables,
        folder.server().join("bin"),
    )
    .await?;
    let tool = format!(
        "{} {}",
        terraform.tool.distribution.title(),
        terraform.tool.version
    );
    let program = terraform.tool.program.display().to_string();
    let port = args.get_one::<u16>("port").copied().unwrap_or_default();
    let stage = DemoStage::set(
        folder,
        Props {
            port,
            variables,
            hostname: raw.hostname,
            terraform,
            states: folder.states(),
        },
    )
    .await?;
    page.begin(&[
        ("Terraform", format!("{tool}, {program}")),
        ("Server", stage.dashboard()),
        ("Sign in", stage.sign_in()),
        (
            "GitHub",
            format!("emulated, with the repository {}", sample::REPO),
        ),
        ("Sandbox", stage.sandbox()),
        ("Log", folder.log().display().to_string()),
    ])?;
    Ok(stage)
}

/// Plays the story, and then waits until the person stops the demo.
async fn perform(
    stage: &DemoStage,
    page: &mut Transcript<'_, '_>,
    signals: &mut Signals,
    leaves: bool,
) -> anyhow::Result<Ending> {
    let ending = tokio::select! {
        ending = tell(stage, page) => ending?,
        () = signals.next() => page.stopping().map(|()| Ending::Stopped)?,
    };
    if matches!(ending, Ending::Held) && !leaves {
        page.stay(&addresses(stage))?;
        signals.next().await;
        page.stopping()?;
    }
    Ok(ending)
}

/// Plays the steps until one fails.
async fn tell(stage: &DemoStage, page: &mut Transcript<'_, '_>) -> anyhow::Result<Ending> {
    let started = Instant::now();
    let mut player = DemoPlayer::new(stage);
    for (i, step) in STORY.iter().enumerate() {
        page.step(i + 1, STORY.len(), step)?;
        if let Some(delivery) = player.act(step.act).await? {
            page.delivered(&delivery)?;
        }
        let scene = player.watch(step).await?;
        page.scene(&scene)?;
        if !scene.holds() {
            return Ok(Ending::Failed(step));
        }
    }
    page.all_held(STORY.len(), started.elapsed().as_secs())?;
    Ok(Ending::Held)
}

fn addresses(stage: &DemoStage) -> Addresses {
    let page = |role: PullRole| {
        stage
            .github
            .pull_url(sample::REPO, PullNumber(role.number()))
    };
    Addresses {
        dashboard: stage.dashboard(),
        sign_in: stage.sign_in(),
        pulls: [PullRole::Alice, PullRole::Bob].map(page).to_vec(),
    }
}
