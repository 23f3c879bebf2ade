//! Compares the open pull requests of one repository on the forge with their last known state.

use std::collections::{BTreeMap, BTreeSet};

use chrono::SubsecRound;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::missed::LEFT_TO_COMMANDS;
use super::{ForgePage, WatchedRepo, close_pull, found as handle_found, gone};
use crate::context::Ctx;
use crate::features::renames;
use crate::forges::{ForgeError, ListedPage, ListedPull, OpenPulls, PageQuery, RequestBudget};
use crate::kit::reconcile::TickResult;
use crate::model::{Actor, Origin, Pull, PullHead, PullNumber, PullRef, PullState, Subject};
use crate::queue::JobError;
use crate::store::{Absence, HeadUpdate};

/// Maximum number of pages of a list: 3,000 open pull requests.
const MAX_PAGES: usize = 30;

/// Result of the comparison for a repository.
pub(crate) enum ListingResult {
    /// Compared, as far as the budget allows.
    Done {
        /// Rest of the rate limit.
        budget: Option<RequestBudget>,
        /// True if every open pull request was compared with its last known state.
        complete: bool,
    },
    /// Failed, because the forge answered with an error.
    Failed(ForgeError),
}

/// Reason why the comparison of a repository ends early.
enum ListingStop {
    /// Few requests are left in the rate limit.
    RateLimit,
    /// The forge answered with an error.
    Forge(ForgeError),
    /// The name meant another repository until now, so the known state has to be read again.
    Renamed,
    /// An internal error, such as an error of the database.
    Broken(anyhow::Error),
}

impl From<ForgeError> for ListingStop {
    fn from(error: ForgeError) -> Self {
        Self::Forge(error)
    }
}

impl From<sqlx::Error> for ListingStop {
    fn from(error: sqlx::Error) -> Self {
        Self::Broken(error.into())
    }
}

impl From<JobError> for ListingStop {
    fn from(error: JobError) -> Self {
        Self::Broken(anyhow::anyhow!(error.message()))
    }
}

/// Stored content of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredPage {
    pulls: Vec<ListedPull>,
    more: bool,
}

/// Compares the list with the known state. The known state is read first, so that an event which arrives meanwhile is
/// noticed.
pub(crate) async fn compare_open_pulls(
    ctx: &Ctx,
    watched: &WatchedRepo,
    found: &mut TickResult,
) -> anyhow::Result<ListingResult> {
    let known = ctx.store.head_list(&watched.repo).await?;
    let known: BTreeMap<PullNumber, PullHead> = known
        .into_iter()
        .map(|head| (head.number, head.at))
        .collect();
    let mut list = ListingPages {
        ctx,
        watched,
        known,
        listed: BTreeSet::new(),
        archived: false,
        budget: None,
        found,
    };
    match list.compare().await {
        Ok(complete) => Ok(ListingResult::Done {
            budget: list.budget,
            complete,
        }),
        Err(ListingStop::RateLimit | ListingStop::Renamed) => Ok(ListingResult::Done {
            budget: list.budget,
            complete: false,
        }),
        Err(ListingStop::Forge(error)) => Ok(ListingResult::Failed(error)),
        Err(ListingStop::Broken(error)) => Err(error),
    }
}

struct ListingPages<'a> {
    ctx: &'a Ctx,
    watched: &'a WatchedRepo,
    known: BTreeMap<PullNumber, PullHead>,
    listed: BTreeSet<PullNumber>,
    /// True if the list shows that the repository is archived.
    archived: bool,
    budget: Option<RequestBudget>,
    found: &'a mut TickResult,
}

impl ListingPages<'_> {
    /// Compares all pages. Returns true if that was the whole list.
    async fn compare(&mut self) -> Result<bool, ListingStop> {
        if !self.read().await? {
            return Ok(false);
        }
        if self.archived {
            self.found.repaired += gone::archived(self.ctx, &self.watched.repo)
                .await
                .map_err(ListingStop::Broken)?;
        }
        // Pull requests that were open and are not listed any more.
        let gone: Vec<PullNumber> = self
            .known
            .keys()
            .filter(|number| !self.listed.contains(number))
            .copied()
            .collect();
        for number in gone {
            self.fetch_and_fix(number).await?;
        }
        Ok(true)
    }

    /// Reads page after page. Returns true if all pages were read. A page is stored only after everything in it was
    /// handled, so the next tick finds the rest after a crash.
    async fn read(&mut self) -> Result<bool, ListingStop> {
        let repo = &self.watched.repo;
        let pages = self.ctx.store.forge_page_list(repo).await?;
        for number in 1..=MAX_PAGES {
            let kept = pages
                .iter()
                .find(|page| usize::try_from(page.page) == Ok(number));
            let kept = kept.and_then(|page| {
                Some((
                    page.etag.as_str(),
                    serde_json::from_str(&page.content).ok()?,
                ))
            });
            let (page, etag) = self.page(number, kept).await?;
            for pull in &page.pulls {
                self.check_listed(pull).await?;
            }
            self.keep(number, &page, etag).await?;
            if !page.more {
                return Ok(true);
            }
            self.check_budget()?;
        }
        warn!(%repo, "There are more than {} open pull requests; the others are not checked", MAX_PAGES * 100);
        Ok(false)
    }

    /// Fetches a page. Returns its tag if it differs from the stored one.
    async fn page(
        &mut self,
        number: usize,
        kept: Option<(&str, StoredPage)>,
    ) -> Result<(StoredPage, Option<String>), ListingStop> {
        let repo = &self.watched.repo;
        let ask = PageQuery {
            number,
            etag: kept.as_ref().map(|(etag, _)| *etag),
        };
        let OpenPulls { page, budget } = self.ctx.forges.of(repo)?.open_pulls(repo, ask).await?;
        self.budget = budget.or(self.budget);
        match (page, kept) {
            (ListedPage::Fresh { pulls, more, etag }, _) => Ok((StoredPage { pulls, more }, etag)),
            (ListedPage::Unchanged, Some((_, kept))) => Ok((kept, None)),
            (ListedPage::Unchanged, None) => Err(ListingStop::Forge(ForgeError::Unavailable {
                what: format!("the open pull requests of {}", repo.full_name()),
                host: repo.host().clone(),
                message:
                    "it reported that nothing has changed, although the request was unconditional"
                        .to_owned(),
            })),
        }
    }

    async fn keep(
        &self,
        number: usize,
        page: &StoredPage,
        etag: Option<String>,
    ) -> Result<(), ListingStop> {
        let (store, repo) = (&self.ctx.store, &self.watched.repo);
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        if let Some(etag) = etag {
            let content = serde_json::to_string(page).expect("texts and numbers make JSON");
            store
                .forge_page_keep(
                    repo,
                    &ForgePage {
                        page: number,
                        etag,
                        content,
                    },
                )
                .await?;
            if !page.more {
                store.forge_page_forget(repo, number + 1).await?;
            }
        }
        Ok(())
    }

    async fn check_listed(&mut self, pull: &ListedPull) -> Result<(), ListingStop> {
        self.listed.insert(pull.number);
        self.archived |= pull.archived;
        let known = self.known.get(&pull.number);
        if known == Some(&pull.at) {
            return Ok(());
        }
        if known.is_none() && pull.updated_at < self.watched.known_at.trunc_subsecs(0) {
            return Ok(self
                .ctx
                .store
                .head_note_first(&self.at(pull.number), &pull.at)
                .await?);
        }
        self.fetch_and_fix(pull.number).await
    }

    /// Asks the forge for one pull request, because a list may be outdated. Then it handles a change as if an event
    /// had reported it.
    async fn fetch_and_fix(&mut self, number: PullNumber) -> Result<(), ListingStop> {
        self.check_budget()?;
        let (ctx, at) = (self.ctx, self.at(number));
        self.found.looked_at += 1;
        let pull = match ctx.forges.of(&at.repo)?.pull(&at).await {
            Ok(pull) => pull,
            Err(ForgeError::NotFound { .. }) => {
                self.found.repaired += gone::pull(ctx, &at).await.map_err(ListingStop::Broken)?;
                return Ok(());
            }
            Err(error @ ForgeError::Rejected { .. }) => {
                warn!(pull = %at, %error, "The state of a pull request cannot be determined");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        ctx.store.absence_forget(Absence::Pull(&at)).await?;
        if self.fix(&pull).await? {
            self.found.repaired += 1;
            info!(pull = %at, state = %pull.state, head = pull.head.short(), "Found a change of a pull request that no event had reported");
            ctx.wake_up.send();
        }
        Ok(())
    }

    /// Handles one pull request. Returns true if there was anything to do.
    async fn fix(&self, pull: &Pull) -> Result<bool, ListingStop> {
        let ctx = self.ctx;
        let known = match pull.at.subject {
            Subject::Pull(number) => self.known.get(&number),
            Subject::Application(_) => None,
        };
        if !renames::is_settled(ctx, pull, None).await? {
            return Err(ListingStop::Renamed);
        }
        if pull.archived && pull.state == PullState::Open {
            // Nobody could do anything with a plan of it.
            ctx.store
                .head_note(
                    &pull.at,
                    HeadUpdate::Forge {
                        known,
                        at: &pull.pull_head(),
                    },
                )
                .await?;
            return Ok(gone::archived(ctx, &pull.at.repo)
                .await
                .map_err(ListingStop::Broken)?
                > 0);
        }
        if pull.state != PullState::Open {
            close_pull(ctx, pull, &Actor::lockkeeper(Origin::Reconciler)).await?;
            return Ok(true);
        }
        Ok(known != Some(&pull.pull_head()) && handle_found(ctx, pull, known).await?)
    }

    /// Stops if few requests are left in the rate limit. Otherwise it counts the next request.
    fn check_budget(&mut self) -> Result<(), ListingStop> {
        let Some(budget) = &mut self.budget else {
            return Ok(());
        };
        if budget.is_below(LEFT_TO_COMMANDS) {
            return Err(ListingStop::RateLimit);
        }
        budget.remaining = budget.remaining.saturating_sub(1);
        Ok(())
    }

    fn at(&self, number: PullNumber) -> PullRef {
        PullRef {
            repo: self.watched.repo.clone(),
            subject: number.into(),
        }
    }
}
