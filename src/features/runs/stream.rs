//! `/jobs/{id}/events`: the output of a run while it is printed, as server-sent events.
//!
//! The stream reads the store, so that any replica can serve a run of any other (P9). News of this replica's runs only
//! shortens the wait. An event is a piece as HTML, and its id is the number of the piece. A browser that lost the
//! connection sends the last id and continues from there. Races, by name:
//! - *news while we read*: the receiver exists before the first read, so no news is lost between the two;
//! - *a removed account sees no more*: before each read the account is checked, and if it may still see the repository,
//!   which may have another owner now. If not, the connection ends. The browser comes back with its password and is
//!   checked again;
//! - *last words*: the state of the run is read before its output. A finished run prints nothing more.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::ansi::AnsiToHtml;
use super::errors::too_many_viewers;
use super::page::{PIECES, find_run};
use crate::authz::Resource;
use crate::kit::web::extract::{LenientQuery, Segment};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState};
use crate::model::{RepoId, RunId};
use crate::store::{OutputPiece, RunState, Store};

/// Time between two reads, because other replicas do not notify this one.
const POLL: Duration = Duration::from_secs(1);
/// Time between two messages that keep the connection open, because proxies close a silent connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Header that stops nginx from holding events back.
const NO_BUFFERING: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");

/// `?after=…`: the number of the last piece on the page.
#[derive(Default, Deserialize)]
pub(super) struct StreamQuery {
    after: Option<i64>,
}

/// Answers with the stream.
pub(super) async fn events(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    Segment(asked): Segment,
    LenientQuery(from): LenientQuery<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, WebError> {
    let news = web.hub.subscribe();
    let run = find_run(&web, &visible, &asked).await?;
    let place = Arc::clone(&web.parts.viewers)
        .try_acquire_owned()
        .map_err(|_| too_many_viewers())?;
    let seq = last_seen(&headers).or(from.after).unwrap_or(0).max(0);
    let mut watch = RunWatcher {
        store: web.store.clone(),
        visible,
        repo: run.pull.repo,
        run: run.id,
        seq: 0,
        converter: AnsiToHtml::default(),
        news,
        stop: web.shutting_down.clone(),
        _place: place,
    };
    watch.skip_to(seq).await?;
    let events = Sse::new(watch.events()).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok(([NO_BUFFERING, (header::CACHE_CONTROL, "no-store")], events).into_response())
}

fn last_seen(headers: &HeaderMap) -> Option<i64> {
    headers.get(LAST_EVENT_ID)?.to_str().ok()?.parse().ok()
}

/// A browser that watches a run.
struct RunWatcher {
    store: Store,
    visible: VisibleScope,
    repo: RepoId,
    run: RunId,
    /// Number of the last piece that was sent.
    seq: i64,
    converter: AnsiToHtml,
    news: Receiver<RunId>,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
}

enum StreamStep {
    Pieces(Vec<OutputPiece>),
    Nothing,
    Over,
}

impl RunWatcher {
    /// Skips the pieces that the page already has. The line numbers and the colours continue from there.
    async fn skip_to(&mut self, seq: i64) -> Result<(), WebError> {
        while self.seq < seq {
            let limit = PIECES.min(seq - self.seq);
            let pieces = self
                .store
                .run_output_after(self.run, self.seq, limit)
                .await?;
            if pieces.is_empty() {
                break;
            }
            for piece in pieces.iter().filter(|piece| piece.seq <= seq) {
                self.converter.convert(&piece.text);
            }
            self.seq = pieces.last().map_or(seq, |last| last.seq.min(seq));
        }
        Ok(())
    }

    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        let batches = stream::unfold(Some(self), |watch| async move { watch?.batch().await });
        futures::StreamExt::flat_map(batches, stream::iter)
    }

    /// Returns the next events. `None` instead of the watch: these were the last.
    async fn batch(mut self) -> Option<(Vec<Result<Event, Infallible>>, Option<Self>)> {
        loop {
            if !self.visible.still_holds().await
                || self
                    .visible
                    .require_access(&Resource::Repository(&self.repo))
                    .await
                    .is_err()
            {
                return None;
            }
            match self.read().await {
                Ok(StreamStep::Pieces(pieces)) => {
                    let events = pieces.iter().map(|piece| Ok(self.event(piece))).collect();
                    return Some((events, Some(self)));
                }
                Ok(StreamStep::Over) => {
                    return Some((vec![Ok(Event::default().event("end").data("over"))], None));
                }
                Ok(StreamStep::Nothing) => self.wait().await?,
                Err(error) => {
                    // The browser reconnects automatically and says where it was.
                    warn!(run = %self.run, %error, "Cannot read the output of a run");
                    return None;
                }
            }
        }
    }

    async fn read(&self) -> Result<StreamStep, sqlx::Error> {
        let state = self.store.run_get(self.run).await?.map(|run| run.state);
        let pieces = self
            .store
            .run_output_after(self.run, self.seq, PIECES)
            .await?;
        Ok(match state {
            _ if !pieces.is_empty() => StreamStep::Pieces(pieces),
            Some(RunState::Finished) | None => StreamStep::Over,
            Some(RunState::Queued | RunState::Running) => StreamStep::Nothing,
        })
    }

    fn event(&mut self, piece: &OutputPiece) -> Event {
        self.seq = piece.seq;
        Event::default()
            .id(piece.seq.to_string())
            .data(self.converter.convert(&piece.text))
    }

    /// Waits until there may be new output. `None`: the server stops.
    async fn wait(&mut self) -> Option<()> {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => None,
            () = self.news_of_the_run() => Some(()),
            () = tokio::time::sleep(POLL) => Some(()),
        }
    }

    async fn news_of_the_run(&mut self) {
        loop {
            match self.news.recv().await {
                Ok(run) if run == self.run => return,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
