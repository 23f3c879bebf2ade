//! `/repos`: the mirrors of repositories on every disk, failing mirrors first; `/repos/{host}/{path}`: all facts about the
//! mirrors of one repository.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{Redirect, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::actions::{mirrors_of, read_repo, read_state, request_sync};
use crate::kit::web::csrf::Confirmed;
use crate::kit::web::extract::{LenientQuery, Segment, search_text};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{Badge, FutureTime, PastTime, query, shown, size};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{MirrorState, Reason, RepoId, RepoUrl, SyncState, Verification};
use crate::store::{MirrorRow, MirrorSearch};

/// Maximum number of mirrors on one page; a search finds the others.
const SHOWN: i64 = 200;

/// `?q=…&state=…&owner=…&page=…&notice=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MirrorsQuery {
    q: String,
    state: String,
    owner: String,
    /// Number of the page, from 1.
    page: Option<u32>,
    notice: String,
}

#[derive(Serialize)]
struct MirrorsPage {
    q: String,
    state: &'static str,
    states: Vec<StateOption>,
    owner: String,
    /// Owners to choose from.
    owners: Vec<String>,
    found: i64,
    all: i64,
    mirrors: Vec<MirrorLine>,
    /// Number of mirrors before the first one on the page.
    skipped: i64,
    /// Query of the previous page, if there is one.
    before: Option<String>,
    next: Option<String>,
}

/// A state to choose from.
#[derive(Serialize)]
struct StateOption {
    name: &'static str,
    words: &'static str,
    count: i64,
    is_chosen: bool,
}

/// A mirror in the list.
#[derive(Serialize)]
struct MirrorLine {
    repo: String,
    disk: String,
    badge: Badge,
    succeeded: Option<PastTime>,
    retry: Option<FutureTime>,
    retries: u32,
    verification: Badge,
    /// References that the mirror does not have, each with the reason.
    refused: Vec<String>,
    failure: Option<SyncFailureView>,
    asked: Option<SyncRequester>,
}

/// Reason why an attempt failed, and the fix.
#[derive(Serialize)]
struct SyncFailureView {
    message: String,
    fix: &'static str,
}

/// User who requested a sync.
#[derive(Serialize)]
struct SyncRequester {
    at: PastTime,
    by: String,
    reason: Option<String>,
}

/// `GET /repos`
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    LenientQuery(params): LenientQuery<MirrorsQuery>,
) -> Result<Response, WebError> {
    let (now, state, q, owner) = (
        web.clock.now(),
        read_state(&params.state),
        search_text(&params.q)?,
        params.owner.trim(),
    );
    let repos = visible.repos(Some(owner)).await?;
    let page = i64::from(params.page.unwrap_or(1).max(1));
    let skip = (page - 1) * SHOWN;
    let search = MirrorSearch {
        state,
        text: q,
        repos: repos.as_deref(),
        skip,
        limit: SHOWN,
    };
    let found = web.store.mirror_search(search).await?;
    let counts = web.store.mirror_count_all(repos.as_deref()).await?;
    let at = |page: i64| {
        query(&[
            ("q", q),
            ("state", &params.state),
            ("owner", owner),
            ("page", &page.to_string()),
        ])
    };
    let view = MirrorsPage {
        q: shown(q),
        state: state.map_or("", |state| state.as_str()),
        states: choices(&counts, state),
        owner: shown(&owner.to_lowercase()),
        owners: visible.owners_to_choose().await?,
        found: found.count,
        all: counts.iter().map(|(_, count)| count).sum(),
        mirrors: found
            .rows
            .iter()
            .map(|row| MirrorLine::new(row, now))
            .collect(),
        skipped: skip,
        before: (page > 1).then(|| at(page - 1)),
        next: (found.count > skip + SHOWN).then(|| at(page + 1)),
    };
    visitor.page("repos.html", &view)
}

fn choices(counts: &[(SyncState, i64)], chosen: Option<SyncState>) -> Vec<StateOption> {
    let count = |state| {
        counts
            .iter()
            .find(|(known, _)| *known == state)
            .map_or(0, |(_, count)| *count)
    };
    let choice = |state: &SyncState| StateOption {
        name: state.as_str(),
        words: words(*state),
        count: count(*state),
        is_chosen: chosen == Some(*state),
    };
    SyncState::ALL.iter().map(choice).collect()
}

const fn words(state: SyncState) -> &'static str {
    match state {
        SyncState::Pending => "waiting",
        SyncState::Started => "syncing",
        SyncState::Synced => "in sync",
        SyncState::Failed => "failed",
    }
}

fn badge(state: &MirrorState) -> Badge {
    let tone = match state.state {
        _ if state.evicted_at.is_some() => return Badge::new("idle", "removed to free disk space"),
        SyncState::Pending => "idle",
        SyncState::Started => "busy",
        SyncState::Synced => "good",
        SyncState::Failed => "bad",
    };
    Badge::new(tone, words(state.state))
}

const fn verification(state: Verification) -> Badge {
    match state {
        Verification::Unknown => Badge::new("idle", "not compared yet"),
        Verification::Verified => Badge::new("good", "verified"),
        Verification::Mismatch => Badge::new("bad", "differs"),
    }
}

impl SyncFailureView {
    fn of(state: &MirrorState) -> Option<Self> {
        let failure = state.failure.as_ref()?;
        Some(Self {
            message: shown(&failure.message),
            fix: failure.kind.fix(),
        })
    }
}

impl SyncRequester {
    fn of(state: &MirrorState, now: DateTime<Utc>) -> Option<Self> {
        let asked = state.asked.as_ref()?;
        let reason = asked.reason.as_deref().map(shown);
        Some(Self {
            at: PastTime::new(asked.at, now),
            by: shown(&asked.by),
            reason,
        })
    }
}

impl MirrorLine {
    fn new(row: &MirrorRow, now: DateTime<Utc>) -> Self {
        let state = &row.state;
        Self {
            repo: row.repo.to_string(),
            disk: row.data_dir_id.to_string(),
            badge: badge(state),
            succeeded: state.succeeded_at.map(|at| PastTime::new(at, now)),
            retry: state.retry_at.map(|at| FutureTime::new(at, now)),
            retries: state.retry_count,
            verification: verification(state.verification),
            refused: state
                .refused
                .iter()
                .flat_map(|lines| lines.lines())
                .map(shown)
                .collect(),
            failure: SyncFailureView::of(state),
            asked: SyncRequester::of(state, now),
        }
    }
}

#[derive(Serialize)]
struct Detail {
    repo: String,
    /// Owner that has claimed it.
    owner: Option<String>,
    notice: Option<&'static str>,
    mirrors: Vec<MirrorView>,
    most_chars: usize,
}

/// All facts about a mirror.
#[derive(Serialize)]
struct MirrorView {
    #[serde(flatten)]
    line: MirrorLine,
    started: Option<PastTime>,
    is_under_way: bool,
    holder: Option<String>,
    tried: Option<PastTime>,
    updated: Option<PastTime>,
    refresh: Option<FutureTime>,
    verified: Option<PastTime>,
    checksum: Option<String>,
    refs: Option<u64>,
    mismatches: u32,
    mismatch: Option<String>,
    connected: Option<PastTime>,
    maintained: Option<PastTime>,
    used: Option<PastTime>,
    evicted: Option<PastTime>,
    size: Option<String>,
}

impl MirrorView {
    fn new(row: &MirrorRow, now: DateTime<Utc>) -> Self {
        let (state, stamp) = (&row.state, |at: Option<DateTime<Utc>>| {
            at.map(|at| PastTime::new(at, now))
        });
        Self {
            line: MirrorLine::new(row, now),
            started: stamp(state.started_at),
            is_under_way: state.state == SyncState::Started,
            holder: state.lease.as_ref().map(|lease| shown(&lease.holder)),
            tried: stamp(state.synced_at),
            updated: stamp(state.updated_at),
            refresh: state
                .refresh_at
                .filter(|at| *at > now)
                .map(|at| FutureTime::new(at, now)),
            verified: stamp(state.verified_at),
            checksum: state.checksum.as_ref().map(ToString::to_string),
            refs: state.refs,
            mismatches: state.verification_retry_count,
            mismatch: state.verification_failure.as_deref().map(shown),
            connected: stamp(state.connectivity_at),
            maintained: stamp(state.maintained_at),
            used: stamp(state.used_at),
            evicted: stamp(state.evicted_at),
            size: state.bytes.map(size),
        }
    }
}

/// `GET /repos/{host}/{path}`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    Segment(asked): Segment,
    LenientQuery(params): LenientQuery<MirrorsQuery>,
) -> Result<Response, WebError> {
    let (now, repo) = (web.clock.now(), read_repo(&asked)?);
    let owner = owner_of(&web, &repo).await?;
    let mirrors = mirrors_of(&web, &visible, &repo)
        .await?
        .iter()
        .map(|row| MirrorView::new(row, now))
        .collect();
    let notice = (params.notice == "asked")
        .then_some("Sync requested. Each server starts its own in a moment.");
    let view = Detail {
        repo: repo.to_string(),
        owner,
        notice,
        mirrors,
        most_chars: Reason::MAX_CHARS,
    };
    visitor.page("repo.html", &view)
}

async fn owner_of(web: &WebState, repo: &RepoId) -> Result<Option<String>, WebError> {
    let Ok(url) = RepoUrl::of(repo) else {
        return Ok(None);
    };
    Ok(web
        .store
        .claim_owner(&url)
        .await?
        .map(|owner| owner.to_string()))
}

/// Form that requests a sync.
#[derive(Deserialize)]
pub(super) struct MirrorForm {
    #[serde(default)]
    reason: String,
}

/// `POST /repos/{host}/{path}`
pub(super) async fn sync(
    State(web): State<Arc<WebState>>,
    Segment(asked): Segment,
    form: Confirmed<MirrorForm>,
) -> Result<Redirect, WebError> {
    let repo = read_repo(&asked)?;
    request_sync(&web, &repo, &form.fields.reason, &form.who.at_page()).await?;
    Ok(Redirect::to(
        &web.link(&format!("/repos/{repo}?notice=asked")),
    ))
}
