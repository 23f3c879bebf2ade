//! `lockkeeper claims (list | show)`: the owners of repositories.

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use serde_json::{Value, json};

use super::list::{PART, may_go_on, owner, owner_arg};
use super::{AdminSession, flags, in_admin_session, json_arg};
use crate::kit::term::{ExitResult, ExitStatus, Subcommand, Terminal, safe, time};
use crate::model::RepoUrl;
use crate::store::Claim;

pub(in crate::features::owners) const CLAIMS: Subcommand = Subcommand {
    name: "claims",
    command,
    run,
};

fn command() -> Command {
    let list = Command::new("list")
        .about("Show all claims")
        .arg(owner_arg())
        .arg(json_arg());
    let show = Command::new("show")
        .about("Show the owner of a repository")
        .long_about(
            "Shows the owner of a repository. You can write its address in any form.\n\nExit code 1: nobody has claimed it.",
        )
        .arg(Arg::new("url").value_name("URL").required(true).help("Address of the repository"))
        .arg(json_arg());
    Command::new("claims")
        .about("Show the owners of repositories")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands([list, show].map(|command| command.args(flags())))
}

fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    let (command, matches) = matches.subcommand().expect("clap demands a subcommand");
    in_admin_session(matches, terminal, async |session, terminal| match command {
        "list" => run_list(session, matches, terminal).await,
        _ => run_show(session, matches, terminal).await,
    })
}

async fn run_list(
    session: &AdminSession,
    matches: &ArgMatches,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let (owner, as_json) = (owner(session, matches).await?, matches.get_flag("json"));
    let (mut after, mut is_empty) = (None, true);
    loop {
        let part = session
            .store
            .claim_list(owner, after.as_ref(), PART)
            .await
            .context("the claims could not be read")?;
        for claim in &part {
            show(claim, as_json, terminal)?;
        }
        is_empty &= part.is_empty();
        if !may_go_on(&part) {
            break;
        }
        after = part.last().map(|claim| claim.url.clone());
    }
    if is_empty && !as_json {
        terminal.line("Nobody has claimed a repository.")?;
    }
    Ok(ExitStatus::Success)
}

async fn run_show(
    session: &AdminSession,
    matches: &ArgMatches,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let asked: &String = matches.get_one("url").expect("clap demands it");
    let url = match RepoUrl::parse_at(asked, &session.forges) {
        Ok(url) => url,
        Err(error) => return Ok(terminal.usage(&format!("error: {error}\n"))),
    };
    let Some(claim) = session
        .store
        .claim_get(&url)
        .await
        .context("the claim could not be read")?
    else {
        terminal.note(format_args!("error: nobody has claimed {url}"));
        return Ok(ExitStatus::Failure);
    };
    show(&claim, matches.get_flag("json"), terminal).map(|()| ExitStatus::Success)
}

fn show(claim: &Claim, as_json: bool, terminal: &mut Terminal<'_>) -> anyhow::Result<()> {
    let line = if as_json {
        as_object(claim).to_string()
    } else {
        as_text(claim)
    };
    Ok(terminal.line(line)?)
}

fn as_text(claim: &Claim) -> String {
    safe(&format!(
        "{}, owned by {} since {}: {} applications, {} credentials",
        claim.url,
        claim.owner,
        time(claim.created_at),
        claim.applications,
        claim.credentials
    ))
}

fn as_object(claim: &Claim) -> Value {
    json!({
        "id": claim.id, "url": claim.url, "owner": claim.owner, "since": time(claim.created_at),
        "applications": claim.applications, "credentials": claim.credentials,
    })
}
