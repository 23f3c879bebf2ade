//! `lockkeeper registry tags`: tags of repositories, and what became of them.

use anyhow::Context as _;
use serde_json::json;

use super::super::tags::{ListedTag, TagRefusal, TagState, TaggedRepo};
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
        let repos = store.registry_tag_repos().await;
        let repos = repos.context("the repositories cannot be read")?;
        let Some(repo) = &self.repo else {
            return list(&store, &repos, self.format, terminal).await;
        };
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
async fn list(
    store: &Store,
    repos: &[TaggedRepo],
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let counts = store.registry_tag_counts().await;
    let counts = counts.context("the tags cannot be read")?;
    let unpublished = store.registry_tags_unpublished().await;
    let unpublished = unpublished.context("the versions of the tags cannot be read")?;
    if repos.is_empty() && !format.is_json() {
        terminal.line("No tags of repositories were read yet.")?;
    }
    for known in repos {
        let of = |state: TagState| {
            let mut counts = counts.iter();
            let found = counts.find(|(repo, of, _)| (repo, *of) == (&known.repo, state));
            found.map_or(0, |(_, _, count)| *count)
        };
        let mut unpublished = unpublished.iter();
        let unpublished = unpublished.find(|(repo, _)| *repo == known.repo);
        let unpublished = unpublished.map_or(0, |(_, count)| *count);
        let json = || {
            let states = TagState::ALL
                .iter()
                .map(|state| (state.as_str(), of(*state)));
            json!({
                "repo": known.repo,
                "tags": states.collect::<std::collections::BTreeMap<_, _>>(),
                "not_fully_published": unpublished,
                "looked_at": known.looked_at.map(time),
                "next_look_at": time(known.due_at),
                "failures": known.failures,
                "failure": known.failure,
            })
        };
        let text = || {
            format!(
                "{}: {} published, {unpublished} not fully published, {} not on the default branch, {} refused, \
                 {} without a version, {} waiting{}",
                known.repo,
                // The numbers are read one after the other.
                (of(TagState::Done) - unpublished).max(0),
                of(TagState::OffBranch),
                of(TagState::Refused),
                of(TagState::Ignored),
                of(TagState::Waiting),
                failure_of(known)
            )
        };
        format.print(terminal, json, || safe(&text()))?;
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
    let tags = store.registry_tags_of(&known.repo).await;
    let tags = tags.context("the tags cannot be read")?;
    let refusals = store.registry_tag_refusals(&known.repo).await;
    let refusals = refusals.context("the versions of the tags cannot be read")?;
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
    for tag in &tags {
        let refused =
            |refusal: &&TagRefusal| refusal.tag == tag.tag && refusal.commit == tag.commit_sha;
        let refused: Vec<&TagRefusal> = refusals.iter().filter(refused).collect();
        let is_waiting = tag.state == TagState::Waiting;
        let json = || {
            let versions = refused.iter().map(|refusal| {
                let version = &refusal.version;
                json!({
                    "version": version.key.to_string(),
                    "outcome": version.outcome,
                    "reason": version.reason,
                })
            });
            json!({
                "tag": tag.tag,
                "commit": tag.commit_sha,
                "state": tag.state,
                "reason": tag.reason,
                "failures": tag.failures,
                "next_attempt_at": is_waiting.then(|| time(tag.due_at)),
                "not_published": versions.collect::<Vec<_>>(),
            })
        };
        format.print(terminal, json, || safe(&line(tag, refused.is_empty())))?;
        for refusal in refused.into_iter().filter(|_| !format.is_json()) {
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
