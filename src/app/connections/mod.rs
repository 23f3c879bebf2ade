//! Serves the connections of the web server, with or without TLS: their number, the time that each may take, their
//! end.
//!
//! A server that reads every request for as long as it takes is stopped by anybody who opens connections and sends
//! nothing. So:
//! - *bounded*: there are at most [`ConnectionLimits::in_all`] connections, and [`ConnectionLimits::per_address`] of one address.
//!   Descriptors are left for the database and for git.
//! - *incomplete requests give way*: when all slots are taken, a new connection gets the slot of the one that has
//!   gone longest without completing a request. A connection that is being answered keeps its slot.
//! - *deadlines*: headers, the time between requests, and an answer that nobody reads each have a deadline. Bodies
//!   have theirs where they are read (`http/intake.rs`, and the time limit of every page).
//! - *no runs*: code of a pull request does not reach the pages from this machine (`peers.rs`).
//! - *an answer arrives*: a request may be answered before its body has arrived. Closing a socket with unread bytes
//!   resets the connection, and the answer can get lost. So the server discards incoming bytes for
//!   [`ConnectionLimits::lingering`] first.

mod admission;
mod peers;
mod progress;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use futures::FutureExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

pub(super) use admission::{ConnectionAdmission, ConnectionLimits};
pub(super) use peers::Peers;

use self::admission::ConnectionSlot;
use self::progress::{AnswerBody, EndReason, Observed, Progress, RequestBody};
use super::tls::Certificate;
use crate::kit::web::LocalAddress;

/// Maximum size of the headers of a request, and of the part of its body that is buffered before it is read, in
/// bytes.
const BUFFER: usize = 64 * 1024;
/// Time until the next attempt to accept after an error of the socket (too many open files).
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Everything that a connection needs.
pub(super) struct WebServer {
    router: Router,
    certificate: Option<Arc<Certificate>>,
    admission: Arc<ConnectionAdmission>,
    /// Check that refuses connections of runs; `None` if runs are not refused.
    peers: Option<Peers>,
}

impl WebServer {
    /// Answers with the router, over TLS if there is a certificate.
    pub fn new(
        router: Router,
        certificate: Option<Arc<Certificate>>,
        admission: Arc<ConnectionAdmission>,
    ) -> Self {
        Self {
            router,
            certificate,
            admission,
            peers: None,
        }
    }

    /// Refuses connections of runs.
    pub fn keeping_away_runs(self, peers: Option<Peers>) -> Self {
        Self { peers, ..self }
    }

    /// Accepts connections until `ended`, and then waits for pending requests. Dropping the future aborts all
    /// connections.
    pub async fn serve(self, listener: TcpListener, ended: CancellationToken) {
        let server = Arc::new(self);
        let watching = server
            .certificate
            .clone()
            .map(|certificate| tokio::spawn(certificate.watch()));
        let _watching = watching.map(AbortOnDropHandle::new);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = ended.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        if let Some(place) = server.admission.admit(peer.ip()) {
                            connections.spawn(Arc::clone(&server).connection(stream, peer, place, ended.clone()));
                        }
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        warn!(%error, "Could not accept a connection");
                        tokio::time::sleep(AFTER_ERROR).await;
                    }
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        place: ConnectionSlot,
        ended: CancellationToken,
    ) {
        tokio::select! {
            end = place.progress.overdue() => {
                debug!(%peer, ?end, "Closed a connection");
                if end == EndReason::TooSlow {
                    self.admission.closed("too_slow");
                }
            }
            () = self.talk(stream, peer, &place.progress, ended) => {}
        }
    }

    async fn talk(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        progress: &Progress,
        ended: CancellationToken,
    ) {
        let Ok(local) = stream.local_addr() else {
            return;
        };
        // Answers are written in large pieces. The end of one must not wait until the other side confirms the piece before.
        stream.set_nodelay(true).ok();
        if let Some(peers) = &self.peers
            && !peers.admits(&stream, peer, local).await
        {
            return self.admission.closed("run");
        }
        let ends = PeerAddresses { peer, local };
        match &self.certificate {
            None => self.answer(stream, ends, progress, ended).await,
            Some(certificate) => match certificate.handshake(stream).await {
                Ok(stream) => self.answer(stream, ends, progress, ended).await,
                Err(error) => debug!(%error, %peer, "The TLS handshake of a connection failed"),
            },
        }
    }

    /// Answers requests until one side closes the connection.
    async fn answer<Io>(
        &self,
        io: Io,
        ends: PeerAddresses,
        progress: &Progress,
        ended: CancellationToken,
    ) where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(Observed::new(io, progress.clone()));
        let respond = service_fn(|request| {
            respond(self.router.clone(), request, ends, progress.clone()).boxed()
        });
        // `Progress` has the deadline of headers, because it distinguishes waiting for a request from receiving one.
        let mut http = http1::Builder::new();
        let mut connection = http
            .header_read_timeout(None)
            .max_buf_size(BUFFER)
            .serve_connection(io, respond);
        let mut ended = Box::pin(ended.cancelled_owned().fuse());
        loop {
            tokio::select! {
                // Not the connection's own future, which would close the socket.
                served = poll_fn(|cx| connection.poll_without_shutdown(cx)) => match served {
                    Ok(()) => break,
                    Err(error) => return debug!(%error, peer = %ends.peer, "A connection ended early"),
                },
                () = &mut ended => std::pin::Pin::new(&mut connection).graceful_shutdown(),
            }
        }
        linger(
            connection.into_parts().io.into_inner(),
            self.admission.limits.lingering,
        )
        .await;
    }
}

/// Addresses of both ends of a connection.
#[derive(Clone, Copy)]
struct PeerAddresses {
    peer: SocketAddr,
    local: SocketAddr,
}

async fn respond(
    router: Router,
    request: Request<Incoming>,
    ends: PeerAddresses,
    progress: Progress,
) -> Result<Response<AnswerBody>, Infallible> {
    let mut request = request.map(|body| Body::new(RequestBody::new(body, progress.clone())));
    request.extensions_mut().insert(ConnectInfo(ends.peer));
    request.extensions_mut().insert(LocalAddress(ends.local));
    let response = TowerToHyperService::new(router).call(request).await?;
    Ok(response.map(|body| AnswerBody::new(body, progress)))
}

/// Shuts down the sending side, and discards the bytes of the other side until it has closed the connection.
async fn linger(mut io: impl AsyncRead + AsyncWrite + Unpin, time: Duration) {
    let lingering = async {
        io.shutdown().await?;
        let mut thrown_away = [0; 4096];
        while io.read(&mut thrown_away).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    if let Ok(Err(error)) = tokio::time::timeout(time, lingering).await {
        debug!(%error, "A connection ended early");
    }
}

/// Checks for an error of a connection that was gone before it was accepted. The next one can be accepted at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

#[cfg(test)]
mod tests;
