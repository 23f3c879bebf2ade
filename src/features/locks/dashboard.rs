//! `/` and `/locks`: the locks, the switch for applies, and the recent commands.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::features::apply_locks;
use crate::features::runs::{CommandLine, recent_commands};
use crate::kit::web::cursor::is_full;
use crate::kit::web::extract::LenientQuery;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{PastTime, PullName, SearchWords, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{Lock, RepoId};
use crate::store::{MOST_LISTED, Store};

/// Maximum number of locks on the page; a search finds the others.
const LOCKS_SHOWN: i64 = 300;
/// Number of locks that are read at once in a search.
const SEARCH_PART: i64 = 2_000;
/// Maximum number of locks that are counted, because a database reads every row that it counts.
const MOST_COUNTED: i64 = 10_000;

/// `?q=…&owner=…&notice=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct DashboardQuery {
    q: String,
    /// Owner of the repositories to show.
    owner: String,
    notice: String,
}

/// Message after a change. The address carries a code and not a text, so that nobody can make the page show other
/// texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    Released,
    TakenAway,
    HandedOver,
}

impl Notice {
    const ALL: [Self; 3] = [Self::Released, Self::TakenAway, Self::HandedOver];

    /// Returns the code in the address.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::TakenAway => "taken-away",
            Self::HandedOver => "handed-over",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Released => {
                "The lock was released, and its plans were discarded. Lockkeeper posts a comment on the pull request."
            }
            Self::TakenAway => {
                "The lock was taken away, and its plans were discarded. Lockkeeper posts a comment on the pull request."
            }
            Self::HandedOver => {
                "The lock was handed over, and its plans were discarded. Lockkeeper posts a comment on both pull requests."
            }
        }
    }

    fn find(code: &str) -> Option<&'static str> {
        Self::ALL
            .into_iter()
            .find(|notice| notice.code() == code)
            .map(Self::text)
    }
}

#[derive(Serialize)]
struct DashboardPage {
    q: String,
    owner: String,
    /// Link to the page with the search and without the message.
    here: String,
    notice: Option<&'static str>,
    apply_lock: Option<apply_locks::ApplyLockEntry>,
    /// Number of apply locks besides that one.
    other_apply_locks: usize,
    locks: Vec<LockLine>,
    /// Number of all locks.
    held: LockCount,
    /// Number of locks that the search found.
    found: LockCount,
    commands: Vec<CommandLine>,
    /// True if the locks are on several hosts, so that names of repositories need the host.
    several_hosts: bool,
}

/// A lock in the list.
#[derive(Serialize)]
pub(super) struct LockLine {
    id: String,
    pull: PullName,
    dir: String,
    workspace: String,
    name: Option<String>,
    holder: String,
    reason: String,
    since: PastTime,
}

impl LockLine {
    fn host(&self) -> &str {
        &self.pull.host
    }

    /// Formats a lock as of now.
    pub fn new(lock: &Lock, now: DateTime<Utc>) -> Self {
        Self {
            id: lock.id.to_string(),
            pull: PullName::titled(&lock.pull, &lock.pull_url, lock.title.as_deref()),
            dir: shown(lock.key.dir.as_str()),
            workspace: shown(lock.key.workspace.as_str()),
            name: lock.project.name.as_ref().map(|name| shown(name.as_str())),
            holder: shown(&lock.holder.to_string()),
            reason: shown(&lock.reason),
            since: PastTime::new(lock.taken_at, now),
        }
    }
}

/// Shows the dashboard, with a search.
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    LenientQuery(params): LenientQuery<DashboardQuery>,
) -> Result<Response, WebError> {
    let (now, search) = (web.clock.now(), SearchWords::new(&params.q));
    let repos = visible.repos(Some(&params.owner)).await?;
    let found = if search.is_empty() {
        newest(&web.store, repos.as_deref()).await?
    } else {
        searched(&web.store, repos.as_deref(), &search).await?
    };
    let commands = recent_commands(&web, repos.as_deref(), &search, now).await?;
    let locks: Vec<LockLine> = found
        .shown
        .iter()
        .map(|lock| LockLine::new(lock, now))
        .collect();
    let stopped = apply_locks::seen(&web, &visible, None).await?;
    let (apply_lock, other_apply_locks) = apply_locks::of_dashboard(&stopped);
    let view = DashboardPage {
        several_hosts: are_several(
            locks
                .iter()
                .map(LockLine::host)
                .chain(commands.iter().map(CommandLine::host)),
        ),
        here: here(&web, &params.q, &params.owner),
        notice: Notice::find(&params.notice).or_else(|| apply_locks::notice(&params.notice)),
        other_apply_locks,
        apply_lock,
        locks,
        held: found.held,
        found: found.found,
        commands,
        q: params.q,
        owner: shown(params.owner.trim()),
    };
    visitor.page("home.html", &view)
}

/// Locks for the page.
struct FoundLocks {
    shown: Vec<Lock>,
    found: LockCount,
    held: LockCount,
}

/// A number of locks, perhaps not counted to the end.
#[derive(Clone, Copy, Serialize)]
struct LockCount {
    number: usize,
    /// True if there may be more.
    at_least: bool,
}

impl LockCount {
    const fn exactly(number: usize) -> Self {
        Self {
            number,
            at_least: false,
        }
    }
}

async fn newest(store: &Store, repos: Option<&[RepoId]>) -> Result<FoundLocks, WebError> {
    let shown = store.lock_part(repos, None, LOCKS_SHOWN).await?;
    let held = if is_full(shown.len(), LOCKS_SHOWN) {
        let number = store.lock_count(repos, MOST_COUNTED).await?;
        LockCount {
            number: usize::try_from(number).unwrap_or_default(),
            at_least: number >= MOST_COUNTED,
        }
    } else {
        LockCount::exactly(shown.len())
    };
    Ok(FoundLocks {
        shown,
        found: held,
        held,
    })
}

/// Reads the locks in parts, at most [`MOST_LISTED`]. A database does not compare the case of all letters as
/// [`SearchWords`] does.
async fn searched(
    store: &Store,
    repos: Option<&[RepoId]>,
    search: &SearchWords,
) -> Result<FoundLocks, WebError> {
    let (mut shown, mut found, mut held) = (Vec::new(), 0, 0);
    let mut before: Option<Lock> = None;
    loop {
        let part = store.lock_part(repos, before.as_ref(), SEARCH_PART).await?;
        let is_last = !is_full(part.len(), SEARCH_PART);
        held += part.len();
        for lock in part.iter().filter(|lock| is_found(search, lock)) {
            found += 1;
            if !is_full(shown.len(), LOCKS_SHOWN) {
                shown.push(lock.clone());
            }
        }
        before = part.into_iter().last();
        let at_least = !is_last && held >= MOST_LISTED;
        if is_last || at_least {
            let count = |number| LockCount { number, at_least };
            return Ok(FoundLocks {
                shown,
                found: count(found),
                held: count(held),
            });
        }
    }
}

fn are_several<'a>(mut hosts: impl Iterator<Item = &'a str>) -> bool {
    hosts
        .next()
        .is_some_and(|first| hosts.any(|other| other != first))
}

fn here(web: &WebState, query: &str, owner: &str) -> String {
    let said = [("q", query), ("owner", owner)]
        .into_iter()
        .filter(|(_, text)| !text.is_empty());
    let said: Vec<String> = said
        .map(|(name, text)| format!("{name}={}", utf8_percent_encode(text, NON_ALPHANUMERIC)))
        .collect();
    let mark = if said.is_empty() { "" } else { "?" };
    web.link(&format!("/{mark}{}", said.join("&")))
}

fn is_found(search: &SearchWords, lock: &Lock) -> bool {
    let name = lock.project.name.as_ref().map_or("", |name| name.as_str());
    search.finds(&[
        &lock.key.repo.to_string(),
        &lock.key.to_string(),
        &lock.pull.to_string(),
        lock.title.as_deref().unwrap_or_default(),
        name,
        &lock.holder.to_string(),
        &lock.reason,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notice_is_found_by_its_code_and_nothing_else_is() {
        for notice in Notice::ALL {
            assert_eq!(Notice::find(notice.code()), Some(notice.text()));
        }
        assert_eq!(Notice::find("<script>"), None);
    }
}
