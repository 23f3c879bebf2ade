//! `lockkeeper claims (list | show)`: the owners of repositories.

use anyhow::Context as _;
use serde_json::json;

use super::list::{LIST_PART, OwnerFlag, may_go_on};
use super::{AdminFlags, AdminSession};
use crate::features::owners::view::ClaimView;
use crate::kit::term::{
    ExitResult, ExitStatus, OutputFormat, SubcommandArgs, Terminal, block_on, safe, time,
};
use crate::model::RepoUrl;
use crate::store::Claim;

/// Show the owners of repositories
#[derive(clap::Parser)]
pub(in crate::features::owners) enum ClaimsArgs {
    /// Show all claims, with their owners
    List {
        #[command(flatten)]
        filter: OwnerFlag,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        server: AdminFlags,
    },
    /// Show the owner of a repository
    ///
    /// You can write the address of the repository in any form.
    ///
    /// Exit code 1: nobody has claimed it.
    Show {
        /// Address of the repository
        url: String,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        server: AdminFlags,
    },
}

impl SubcommandArgs for ClaimsArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(async {
            match self {
                Self::List {
                    filter,
                    format,
                    server,
                } => run_list(&server.open().await?, &filter, format, terminal).await,
                Self::Show {
                    url,
                    format,
                    server,
                } => run_show(&server.open().await?, &url, format, terminal).await,
            }
        })?
    }
}

async fn run_list(
    session: &AdminSession,
    filter: &OwnerFlag,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let owner = filter.find(session).await?;
    let (mut after, mut is_empty) = (None, true);
    loop {
        let part = session
            .store
            .claim_list(owner, after.as_ref(), LIST_PART)
            .await
            .context("the claims could not be read")?;
        for claim in &part {
            show(claim, format, terminal)?;
        }
        is_empty &= part.is_empty();
        if !may_go_on(&part) {
            break;
        }
        after = part.last().map(|claim| claim.url.clone());
    }
    if is_empty && !format.is_json() {
        terminal.line("Nobody has claimed a repository.")?;
    }
    Ok(ExitStatus::Success)
}

async fn run_show(
    session: &AdminSession,
    url: &str,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let url = match RepoUrl::parse_at(url, &session.forges) {
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
    show(&claim, format, terminal).map(|()| ExitStatus::Success)
}

fn show(claim: &Claim, format: OutputFormat, terminal: &mut Terminal<'_>) -> anyhow::Result<()> {
    Ok(format.print(
        terminal,
        || json!(ClaimView::from(claim)),
        || as_text(claim),
    )?)
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
