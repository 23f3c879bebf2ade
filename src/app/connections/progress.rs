//! Tracks how far a connection has come with its request, and its next deadline.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Shortest time between two looks at a connection.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);

/// Deadlines of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// Time from the first byte of a request (of the first request: from the beginning of the connection) to its last
    /// header.
    pub headers: Duration,
    /// Time from an answer to the next request.
    pub idle: Duration,
    /// Time from the moment the other side accepts no more bytes until it accepts some.
    pub blocked: Duration,
}

/// Reason why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// A deadline passed within a request or an answer.
    TooSlow,
    /// No further request arrived in time.
    Idle,
    /// Another connection got its slot.
    MadeRoom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionStage {
    Idle,
    Headers,
    Body,
    Answer,
}

#[derive(Clone, Copy, Debug)]
struct ProgressState {
    stage: ConnectionStage,
    since: Instant,
    blocked_since: Option<Instant>,
}

/// State of a connection. Clones refer to the same connection.
#[derive(Clone)]
pub(super) struct Progress(Arc<ProgressInner>);

struct ProgressInner {
    state: Mutex<ProgressState>,
    gives_way: Notify,
    deadlines: Deadlines,
}

impl Progress {
    /// Begins to track a new connection, which waits for its first headers.
    pub fn new(deadlines: Deadlines) -> Self {
        let state = ProgressState {
            stage: ConnectionStage::Headers,
            since: Instant::now(),
            blocked_since: None,
        };
        Self(Arc::new(ProgressInner {
            state: Mutex::new(state),
            gives_way: Notify::new(),
            deadlines,
        }))
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time since which a request has been incomplete. `None` while one is answered.
    pub fn incomplete_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.stage != ConnectionStage::Answer && state.blocked_since.is_none())
            .then_some(state.since)
    }

    /// Returns the time since which the client has read nothing of an answer. `None` while it reads.
    pub fn unread_since(&self) -> Option<Instant> {
        self.state().blocked_since
    }

    /// Ends the connection to make room for another one.
    pub fn give_way(&self) {
        self.0.gives_way.notify_one();
    }

    /// Waits until the connection has to be ended.
    ///
    /// Requests do not wake it: that would cost more than many an answer. A deadline that begins after a look is at least
    /// as far away as the shortest one, so the next look is early enough for it.
    pub async fn overdue(&self) -> EndReason {
        let Deadlines {
            headers,
            idle,
            blocked,
        } = self.0.deadlines;
        let shortest = headers.min(idle).min(blocked).max(SHORTEST_LOOK);
        loop {
            let (state, now) = (*self.state(), Instant::now());
            let mut next_look = now + shortest;
            if let Some((deadline, end)) = self.deadline(state) {
                if deadline <= now {
                    return end;
                }
                next_look = next_look.min(deadline);
            }
            tokio::select! {
                () = sleep_until(next_look) => {}
                () = self.0.gives_way.notified() => return EndReason::MadeRoom,
            }
        }
    }

    fn deadline(&self, state: ProgressState) -> Option<(Instant, EndReason)> {
        let Deadlines {
            headers,
            idle,
            blocked,
        } = self.0.deadlines;
        let of_stage = match state.stage {
            ConnectionStage::Idle => Some((state.since + idle, EndReason::Idle)),
            ConnectionStage::Headers => Some((state.since + headers, EndReason::TooSlow)),
            // Bodies and answers have their deadlines in the modules that process them.
            ConnectionStage::Body | ConnectionStage::Answer => None,
        };
        let of_writing = state
            .blocked_since
            .map(|since| (since + blocked, EndReason::TooSlow));
        of_stage
            .into_iter()
            .chain(of_writing)
            .min_by_key(|(deadline, _)| *deadline)
    }

    /// Notes that the headers of a request have arrived.
    pub fn request_begins(&self, has_body: bool) {
        self.go_on(
            &[ConnectionStage::Idle, ConnectionStage::Headers],
            if has_body {
                ConnectionStage::Body
            } else {
                ConnectionStage::Answer
            },
        );
    }

    fn bytes_arrived(&self) {
        self.go_on(&[ConnectionStage::Idle], ConnectionStage::Headers);
    }

    fn body_ends(&self) {
        self.go_on(&[ConnectionStage::Body], ConnectionStage::Answer);
    }

    fn answer_ends(&self) {
        self.go_on(
            &[
                ConnectionStage::Headers,
                ConnectionStage::Body,
                ConnectionStage::Answer,
            ],
            ConnectionStage::Idle,
        );
    }

    fn go_on(&self, from: &[ConnectionStage], to: ConnectionStage) {
        let mut state = self.state();
        if from.contains(&state.stage) {
            (state.stage, state.since) = (to, Instant::now());
        }
    }

    pub(super) fn wrote<T>(&self, poll: Poll<T>) -> Poll<T> {
        let mut state = self.state();
        if poll.is_pending() != state.blocked_since.is_some() {
            state.blocked_since = poll.is_pending().then(Instant::now);
        }
        poll
    }
}

/// A socket that reports its reads and writes to [`Progress`].
pub(super) struct Observed<Io> {
    io: Io,
    progress: Progress,
}

impl<Io> Observed<Io> {
    pub fn new(io: Io, progress: Progress) -> Self {
        Self { io, progress }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Observed<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.progress.bytes_arrived();
        }
        poll
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Observed<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write(cx, buf);
        self.progress.wrote(poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.progress.wrote(poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.io).poll_flush(cx);
        self.progress.wrote(poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.io).poll_shutdown(cx);
        self.progress.wrote(poll)
    }
}

/// Body of a request, which reports its end to [`Progress`]. Dropping it counts as the end.
pub(super) struct RequestBody {
    body: Incoming,
    progress: Progress,
}

impl RequestBody {
    pub fn new(body: Incoming, progress: Progress) -> Self {
        progress.request_begins(!body.is_end_stream());
        Self { body, progress }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let poll = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(poll, Poll::Ready(None)) || self.body.is_end_stream() {
            self.progress.body_ends();
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.progress.body_ends();
    }
}

/// Body of an answer, which reports its end to [`Progress`].
pub(super) struct AnswerBody {
    body: Body,
    progress: Progress,
}

impl AnswerBody {
    pub fn new(body: Body, progress: Progress) -> Self {
        Self { body, progress }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.progress.answer_ends();
    }
}
