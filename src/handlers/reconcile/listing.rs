//! One repository: its open pulls by the forge, beside where they stood when that was last taken up.

use std::collections::{BTreeMap, BTreeSet};

use chrono::SubsecRound;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::Tally;
use super::missed::LEFT_TO_COMMANDS;
use crate::context::Ctx;
use crate::handlers::events::{self, close_pull};
use crate::model::{Actor, Origin, PullHead, PullNumber, PullRef, PullState};
use crate::queue::JobError;
use crate::store::{ForgePage, WatchedRepo};
use crate::vcs::{Budget, ForgeError, ListedPage, ListedPull, OpenPulls, PageAsk};

/// Most pages of a list: 3,000 open pulls.
const MAX_PAGES: usize = 30;

/// How the look at a repository ended.
pub(super) enum Look {
    /// As far as the budget allows.
    Done(Option<Budget>),
    /// The forge did not answer as it should.
    Failed(ForgeError),
}

/// What is kept of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    pulls: Vec<ListedPull>,
    more: bool,
}

/// Compares the list with what is known. What is known is read first, so that an event which comes meanwhile is noticed.
pub(super) async fn look(ctx: &Ctx, watched: &WatchedRepo, tally: &mut Tally) -> anyhow::Result<Look> {
    let known = ctx.store.head_list(&watched.repo).await?;
    let known: BTreeMap<PullNumber, PullHead> = known.into_iter().map(|head| (head.number, head.at)).collect();
    let mut list = List { ctx, watched, known, listed: BTreeSet::new(), budget: None };
    match list.read(tally).await? {
        Ok(complete) => {
            let rest = if complete { list.unlisted(tally).await? } else { Ok(()) };
            Ok(rest.map_or_else(Look::Failed, |()| Look::Done(list.budget)))
        }
        Err(error) => Ok(Look::Failed(error)),
    }
}

struct List<'a> {
    ctx: &'a Ctx,
    watched: &'a WatchedRepo,
    known: BTreeMap<PullNumber, PullHead>,
    listed: BTreeSet<PullNumber>,
    budget: Option<Budget>,
}

impl List<'_> {
    /// Reads page after page; says whether that was all of them. A page is kept after everything in it was seen to: what
    /// a crash leaves undone is found again.
    async fn read(&mut self, tally: &mut Tally) -> anyhow::Result<Result<bool, ForgeError>> {
        let repo = &self.watched.repo;
        let pages = self.ctx.store.forge_page_list(repo).await?;
        for number in 1..=MAX_PAGES {
            let kept = pages.iter().find(|page| usize::try_from(page.page) == Ok(number));
            let kept = kept.and_then(|page| Some((page.etag.as_str(), serde_json::from_str(&page.content).ok()?)));
            let (page, etag) = match self.page(number, kept).await {
                Ok(found) => found,
                Err(error) => return Ok(Err(error)),
            };
            if let Err(error) = self.see_to(&page, tally).await? {
                return Ok(Err(error));
            }
            self.keep(number, &page, etag).await?;
            if !page.more {
                self.ctx.store.forge_page_forget(repo, i64::try_from(number).unwrap_or(i64::MAX) + 1).await?;
                return Ok(Ok(true));
            }
            if self.budget.is_some_and(|budget| budget.is_below(LEFT_TO_COMMANDS)) {
                return Ok(Ok(false));
            }
        }
        warn!(%repo, "There are more than {} open pull requests; those beyond are not looked after", MAX_PAGES * 100);
        Ok(Ok(false))
    }

    /// A page, and its tag if it is not the one we have.
    async fn page(
        &mut self,
        number: usize,
        kept: Option<(&str, Kept)>,
    ) -> Result<(Kept, Option<String>), ForgeError> {
        let (repo, via) = (&self.watched.repo, self.watched.installation);
        let ask = PageAsk { number, etag: kept.as_ref().map(|(etag, _)| *etag) };
        let OpenPulls { page, budget } = self.ctx.forge.open_pulls(repo, via, ask).await?;
        self.budget = budget.or(self.budget);
        match (page, kept) {
            (ListedPage::Fresh { pulls, more, etag }, _) => Ok((Kept { pulls, more }, etag)),
            (ListedPage::Unchanged, Some((_, kept))) => Ok((kept, None)),
            (ListedPage::Unchanged, None) => Err(ForgeError::Unavailable {
                what: format!("the open pull requests of {}", repo.full_name()),
                host: repo.host().clone(),
                message: "it says that nothing has changed although it was not told since when".to_owned(),
            }),
        }
    }

    async fn keep(&self, number: usize, page: &Kept, etag: Option<String>) -> anyhow::Result<()> {
        let Some(etag) = etag else { return Ok(()) };
        let page = ForgePage { page: i64::try_from(number)?, etag, content: serde_json::to_string(page)? };
        self.ctx.store.forge_page_keep(&self.watched.repo, &page).await?;
        Ok(())
    }

    async fn see_to(&mut self, page: &Kept, tally: &mut Tally) -> anyhow::Result<Result<(), ForgeError>> {
        for pull in &page.pulls {
            self.listed.insert(pull.number);
            let known = self.known.get(&pull.number);
            if known == Some(&pull.at) {
                continue;
            }
            if known.is_none() && pull.updated_at < self.watched.known_at.trunc_subsecs(0) {
                self.ctx.store.head_note_first(&self.at(pull.number), &pull.at).await?;
            } else if let Err(error) = self.ask(pull.number, tally).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Pulls that were open and are not listed any more.
    async fn unlisted(&self, tally: &mut Tally) -> anyhow::Result<Result<(), ForgeError>> {
        for number in self.known.keys().filter(|number| !self.listed.contains(number)) {
            if let Err(error) = self.ask(*number, tally).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// A list may be behind, so the forge is asked for the one pull; then the same is done as if an event had told it.
    async fn ask(&self, number: PullNumber, tally: &mut Tally) -> anyhow::Result<Result<(), ForgeError>> {
        let (ctx, at, via) = (self.ctx, self.at(number), self.watched.installation);
        tally.seen += 1;
        let pull = match ctx.forge.pull(&at, via).await {
            Ok(pull) => pull,
            Err(error @ (ForgeError::NotFound { .. } | ForgeError::Rejected { .. })) => {
                warn!(pull = %at, %error, "Where a pull request stands cannot be told");
                return Ok(Ok(()));
            }
            Err(error) => return Ok(Err(error)),
        };
        let known = self.known.get(&number);
        let repaired = if pull.state == PullState::Open {
            known != Some(&pull.standing()) && events::found(ctx, &pull, known, via).await.map_err(in_words)?
        } else {
            close_pull(ctx, &pull, via, &Actor::lockkeeper(Origin::Reconciler)).await.map_err(in_words)?;
            true
        };
        if repaired {
            tally.repaired += 1;
            info!(pull = %at, state = %pull.state, head = pull.head.short(), "Found what no event had told of a pull request");
            ctx.nudge.nudge();
        }
        Ok(Ok(()))
    }

    fn at(&self, number: PullNumber) -> PullRef {
        PullRef { repo: self.watched.repo.clone(), number }
    }
}

fn in_words(error: JobError) -> anyhow::Error {
    anyhow::anyhow!(error.message())
}
