//! `lockkeeper registry tags`: tags of repositories, and what became of them.

use anyhow::Context as _;

use super::super::tags::{CountedRepo, ListedTag, ShownTag, TagState, TaggedRepo};
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, safe, time};
use crate::model::RepoId;
use crate::store::Store;

#[derive(clap::Args)]
pub(in crate::features::registry) struct TagsArgs {
    /// Show each tag of this repository, as in github.com/acme/terraform-aws-vpc
    #[arg(value_name = "REPO")]
    repo: Option<RepoId>,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl TagsArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let store = self.database.open().await?;
        let Some(repo) = &self.repo else {
            return list(&store, self.format, terminal).await;
        };
        let repos = store.registry_tag_repos().await;
        let repos = repos.context("the repositories cannot be read")?;
        let Some(known) = repos.iter().find(|known| known.repo == *repo) else {
            terminal.note(safe(&format!(
                "error: the tags of {repo} were never read. Its owner needs a namespace, and must have claimed it \
                 (`lockkeeper owners list`)"
            )));
            return Ok(ExitStatus::Failure);
        };
        show(&store, known, self.format, terminal).await
    }
}

/// Prints a line for each repository.
async fn list(store: &Store, format: OutputFormat, terminal: &mut Terminal<'_>) -> ExitResult {
    let repos = CountedRepo::all(store).await;
    let repos = repos.context("the tags cannot be read")?;
    if repos.is_empty() && !format.is_json() {
        terminal.line("No tags of repositories were read yet.")?;
    }
    for repo in &repos {
        let text = || {
            format!(
                "{}: {} published, {} not fully published, {} not on the default branch, {} refused, \
                 {} without a version, {} waiting{}",
                repo.known.repo,
                // The numbers are read one after the other.
                (repo.of(TagState::Done) - repo.unpublished).max(0),
                repo.unpublished,
                repo.of(TagState::OffBranch),
                repo.of(TagState::Refused),
                repo.of(TagState::Ignored),
                repo.of(TagState::Waiting),
                failure_of(&repo.known)
            )
        };
        format.print(terminal, || repo.json(), || safe(&text()))?;
    }
    Ok(ExitStatus::Success)
}

/// Prints a line for each tag of a repository, and for each of its versions that is not published.
async fn show(
    store: &Store,
    known: &TaggedRepo,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let tags = ShownTag::all_of(store, &known.repo).await;
    let tags = tags.context("the tags cannot be read")?;
    if !format.is_json() {
        let looked = match known.looked_at {
            Some(at) => format!("read on {}", time(at)),
            None => "not read yet".to_owned(),
        };
        terminal.line(safe(&format!(
            "{}: {} tag{}, {looked}{}",
            known.repo,
            tags.len(),
            if tags.len() == 1 { "" } else { "s" },
            failure_of(known)
        )))?;
    }
    for shown in &tags {
        let is_published = shown.refusals.is_empty();
        let text = || safe(&line(&shown.tag, is_published));
        format.print(terminal, || shown.json(), text)?;
        for refusal in shown.refusals.iter().filter(|_| !format.is_json()) {
            let (version, reason) = (&refusal.version, refusal.version.reason.as_deref());
            let reason = reason.unwrap_or_default();
            terminal.line(safe(&format!(
                "  {}: {}: {reason}",
                version.key, version.outcome
            )))?;
        }
    }
    Ok(ExitStatus::Success)
}

fn failure_of(known: &TaggedRepo) -> String {
    let Some(failure) = &known.failure else {
        return String::new();
    };
    let attempts = match known.failures {
        1 => "The last attempt to read them".to_owned(),
        many => format!("The last {many} attempts to read them"),
    };
    format!(
        ". {attempts} failed ({failure}), and the next one is due on {}",
        time(known.due_at)
    )
}

/// Describes a tag. `is_published`: none of its versions has another outcome.
fn line(tag: &ListedTag, is_published: bool) -> String {
    let state = match tag.state {
        TagState::Waiting if tag.failures > 0 => {
            let failed = match tag.failures {
                1 => "failed once".to_owned(),
                many => format!("failed {many} times"),
            };
            format!("{failed}, next attempt on {}", time(tag.due_at))
        }
        TagState::Waiting => "waiting".to_owned(),
        TagState::OffBranch => "not published".to_owned(),
        TagState::Refused => "refused".to_owned(),
        TagState::Ignored => "names no version".to_owned(),
        TagState::Done if is_published => "published".to_owned(),
        TagState::Done => "not fully published".to_owned(),
    };
    let reason = tag.reason.as_ref().map(|reason| format!(": {reason}"));
    let reason = reason.unwrap_or_default();
    format!("{} ({}) {state}{reason}", tag.tag, tag.commit_sha.short())
}
