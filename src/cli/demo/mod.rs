//! `lockkeeper demo [--exit] [--port N] [--data-dir FOLDER] [--terraform PROGRAM] [--verbose]`
//!
//! The demo shows new users how Lockkeeper works before they give it credentials. It plays a story on this machine: the
//! server as `lockkeeper server` runs it, real Terraform, real git, and an emulated GitHub.
//!
//! - [`script`]: every step and every text; [`sample`]: the repositories.
//! - [`stage`]: servers and forge; [`accounts`]: a person with git; [`modules`]: a module of the registry; [`play`]:
//!   performs and checks the steps, without output.
//! - [`show`]: prints the transcript, independent of the player.

mod accounts;
mod folder;
mod modules;
mod play;
mod sample;
mod script;
mod show;
mod stage;
mod terraform;

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use crate::app::Signals;
use crate::config::server::RawSettings;
use crate::kit::term::{ExitResult, ExitStatus, SubcommandArgs, Terminal, block_on, environment};
use crate::model::PullNumber;
use crate::telemetry;
use folder::Folder;
use play::DemoPlayer;
use script::{PullRole, STORY, ScriptStep};
use show::{Addresses, TerminalStyle, Transcript};
use stage::{DemoStage, Props};

/// Number of lines of the log that are shown after a failure.
const LOG_LINES: usize = 25;

/// Play a story with real Terraform and an emulated GitHub on this machine
#[derive(clap::Parser)]
pub(super) struct DemoArgs {
    /// Exit after the story; exit code 0 only if every step succeeded
    #[arg(long)]
    exit: bool,
    /// Port of the server [default: any free port]
    #[arg(long, value_name = "NUMBER")]
    port: Option<u16>,
    /// New folder for all files [default: a temporary folder]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Terraform or OpenTofu [default: found on the PATH]
    #[arg(long, value_name = "PROGRAM")]
    terraform: Option<PathBuf>,
    /// Show the server's log on standard error
    #[arg(long)]
    verbose: bool,
}

impl SubcommandArgs for DemoArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(demo(&self, terminal))?
    }
}

/// Result of the story.
enum Ending {
    Held,
    Failed(&'static ScriptStep),
    Stopped,
}

async fn demo(args: &DemoArgs, terminal: &mut Terminal<'_>) -> ExitResult {
    let mut signals = Signals::new()?;
    let raw = environment::read()?;
    let mut page = Transcript::new(
        terminal,
        TerminalStyle::of_stdout(
            raw.variables.get("NO_COLOR").map(String::as_str),
            TerminalStyle::PROSE,
        ),
    );
    let mut folder = Folder::open(args.data_dir.as_deref())?;
    // A subscriber that is already installed in this process is good enough.
    drop(telemetry::init_file(folder.open_log()?, args.verbose));
    let stage = tokio::select! {
        stage = set(args, raw, &folder, &mut page) => stage?,
        () = signals.next() => return Ok(ExitStatus::Failure),
    };
    let ending = perform(&stage, &mut page, &mut signals, args.exit).await;
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
    args: &DemoArgs,
    raw: RawSettings,
    folder: &Folder,
    page: &mut Transcript<'_, '_>,
) -> anyhow::Result<DemoStage> {
    let variables = terraform::environment(&raw.variables);
    let terraform = terraform::find(
        args.terraform.as_deref(),
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
    let port = args.port.unwrap_or_default();
    let props = Props {
        port,
        variables,
        hostname: raw.hostname,
        terraform,
        states: folder.states(),
    };
    let stage = Box::pin(DemoStage::set(folder, props)).await?;
    page.begin(&[
        ("Terraform", format!("{tool}, {program}")),
        ("Server", stage.dashboard()),
        ("Sign in", stage.sign_in()),
        (
            "GitHub",
            format!(
                "emulated, with the repositories {} and {}",
                sample::REPO,
                sample::MODULE_REPO
            ),
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
        ending = play_story(stage, page) => ending?,
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
async fn play_story(stage: &DemoStage, page: &mut Transcript<'_, '_>) -> anyhow::Result<Ending> {
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
        modules: [
            format!("{}registry", stage.dashboard()),
            stage.other_modules(),
        ],
        pulls: [PullRole::Alice, PullRole::Bob, PullRole::Dave]
            .map(page)
            .to_vec(),
    }
}
