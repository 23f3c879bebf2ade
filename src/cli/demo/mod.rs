//! `lockkeeper demo [--exit] [--port N] [--data-dir FOLDER] [--terraform PROGRAM] [--verbose]`
//!
//! Somebody who meets Lockkeeper wants to see it work before giving it credentials. The demo plays a story on this
//! machine alone: the server as `lockkeeper server` runs it, real Terraform, real git, and an emulated GitHub.
//!
//! - [`script`]: every step and every word; [`sample`]: the repository.
//! - [`stage`]: server and forge; [`play`]: does the steps and judges them, prints nothing.
//! - [`show`]: prints, knows nothing of how it is played.

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
use crate::kit::term::{Exit, Outcome, Terminal, block_on, environment};
use crate::model::PullNumber;
use crate::telemetry;
use folder::Folder;
use play::Player;
use script::{Role, STORY, Step};
use show::{Addresses, Look, Page};
use stage::{Props, Stage};

/// How much of the log is shown when something fails.
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
        .about("Play a story with real Terraform and an emulated GitHub, on this machine alone")
        .arg(switch(
            "exit",
            "End after the story; exit code 0 only if every step held",
        ))
        .arg(
            value(
                "port",
                "NUMBER",
                "Port of the server; a free one unless given",
            )
            .value_parser(value_parser!(u16)),
        )
        .arg(
            value(
                "data-dir",
                "FOLDER",
                "New folder for everything; a temporary one unless given",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            value(
                "terraform",
                "PROGRAM",
                "Terraform or OpenTofu; the one on the PATH unless given",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(switch("verbose", "Show the server's log on standard error"))
}

/// How the story ended.
enum Ending {
    Held,
    Failed(&'static Step),
    Stopped,
}

pub(super) fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    block_on(demo(matches, terminal))?
}

async fn demo(args: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let mut signals = Signals::new()?;
    let raw = environment::read()?;
    let mut page = Page::new(
        terminal,
        Look::of_stdout(
            raw.variables.get("NO_COLOR").map(String::as_str),
            Look::PROSE,
        ),
    );
    let mut folder = Folder::open(args.get_one::<PathBuf>("data-dir").map(PathBuf::as_path))?;
    // Somebody else's subscriber in this process is as good as ours.
    drop(telemetry::init_file(
        folder.open_log()?,
        args.get_flag("verbose"),
    ));
    let stage = tokio::select! {
        stage = set(args, raw, &folder, &mut page) => stage?,
        () = signals.next() => return Ok(Exit::Failure),
    };
    let ending = perform(&stage, &mut page, &mut signals, args.get_flag("exit")).await;
    tokio::select! {
        () = stage.strike() => {}
        () = signals.next() => {}
    }
    let problem = match ending {
        Ok(Ending::Held) => return Ok(Exit::Success),
        Ok(Ending::Stopped) => return Ok(Exit::Failure),
        Ok(Ending::Failed(step)) => format!("“{}” did not hold.", step.title),
        // Nobody reads what is printed: that is not the story's fault.
        Err(error) if error.is::<io::Error>() => return Err(error),
        Err(error) => format!("{error:#}."),
    };
    page.failed(&problem, &folder.end_of_log(LOG_LINES), folder.keep())?;
    Ok(Exit::Failure)
}

/// Finds what is needed, says so, and starts everything.
async fn set(
    args: &ArgMatches,
    raw: RawSettings,
    folder: &Folder,
    page: &mut Page<'_, '_>,
) -> anyhow::Result<Stage> {
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
    let stage = Stage::set(
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

/// Plays the story, and stays until somebody has had enough.
async fn perform(
    stage: &Stage,
    page: &mut Page<'_, '_>,
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

/// Plays every step, until one does not hold.
async fn tell(stage: &Stage, page: &mut Page<'_, '_>) -> anyhow::Result<Ending> {
    let started = Instant::now();
    let mut player = Player::new(stage);
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

fn addresses(stage: &Stage) -> Addresses {
    let page = |role: Role| {
        stage
            .github
            .pull_url(sample::REPO, PullNumber(role.number()))
    };
    Addresses {
        dashboard: stage.dashboard(),
        sign_in: stage.sign_in(),
        pulls: [Role::Alice, Role::Bob].map(page).to_vec(),
    }
}
