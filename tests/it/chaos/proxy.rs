//! A wire that can be in trouble: a TCP proxy in front of PostgreSQL, GitHub or another deployment.
//!
//! Bytes that a connection held back are lost when it is cut. The exception is the fault in which comments and
//! statuses arrive late: their sender gets no answer, and they take effect all the same, after the sender has retried
//! or sent a newer one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use regex::bytes::Regex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::schedule::Trouble;

/// Time within which the emulated GitHub has carried out a request.
const CARRIED_OUT: Duration = Duration::from_secs(1);

/// A proxy on loopback. It accepts no more connections after it is dropped.
pub struct Wire {
    /// Address on which the proxy listens.
    pub address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    /// Number of requests that have not arrived yet.
    late: Arc<watch::Sender<usize>>,
    _listening: AbortOnDropHandle<()>,
}

/// Present state of the wire. Connections of another `era` are cut.
#[derive(Clone, Copy, Debug)]
struct State {
    upstream: SocketAddr,
    trouble: Option<Trouble>,
    era: u64,
}

impl Wire {
    /// Creates a wire to an address.
    pub async fn to(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let state = Arc::new(watch::Sender::new(State {
            upstream,
            trouble: None,
            era: 0,
        }));
        let late = Arc::new(watch::Sender::new(0));
        let listening = tokio::spawn(listen(listener, Arc::clone(&state), Arc::clone(&late)));
        Self {
            address,
            state,
            late,
            _listening: AbortOnDropHandle::new(listening),
        }
    }

    /// Leads new connections to another address.
    pub fn lead_to(&self, upstream: SocketAddr) {
        self.state.send_modify(|state| state.upstream = upstream);
    }

    /// Waits until all late requests have arrived.
    pub async fn nothing_is_late(&self) {
        // The sender belongs to this wire, so the channel is open.
        self.late.subscribe().wait_for(|late| *late == 0).await.ok();
    }

    /// Begins a fault. It replaces an earlier one.
    pub fn trouble(&self, trouble: Trouble) {
        self.state.send_modify(|state| {
            state.era += u64::from(matches!(trouble, Trouble::Refused | Trouble::Cut));
            state.trouble = Some(trouble).filter(|trouble| *trouble != Trouble::Cut);
        });
    }

    /// Ends the fault. Connections on which nothing got through are cut.
    pub fn heal(&self) {
        self.state.send_modify(|state| {
            state.era += u64::from(state.trouble == Some(Trouble::Silent));
            state.trouble = None;
        });
    }
}

async fn listen(
    listener: TcpListener,
    state: Arc<watch::Sender<State>>,
    late: Arc<watch::Sender<usize>>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let now = *state.borrow();
        if now.trouble == Some(Trouble::Refused) {
            drop(client);
            continue;
        }
        tokio::spawn(connect(
            client,
            now.upstream,
            state.subscribe(),
            now.era,
            Arc::clone(&late),
        ));
    }
}

async fn connect(
    client: TcpStream,
    upstream: SocketAddr,
    state: watch::Receiver<State>,
    era: u64,
    late: Arc<watch::Sender<usize>>,
) {
    let Ok(server) = TcpStream::connect(upstream).await else {
        return;
    };
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let mut cut = state.clone();
    tokio::select! {
        () = pump(from_client, to_server, state.clone(), false, &late) => {}
        () = pump(from_server, to_client, state, true, &late) => {}
        _ = cut.wait_for(|state| state.era != era) => {}
    }
}

/// Forwards bytes until one side ends or the wire is cut. When one direction ends, so does the other, because neither
/// PostgreSQL nor HTTP continues with half a connection.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: watch::Receiver<State>,
    is_answer: bool,
    late: &Arc<watch::Sender<usize>>,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut left = None;
    loop {
        let Ok(count) = from.read(&mut buffer).await else {
            return;
        };
        let trouble = state.borrow().trouble;
        let mut end = count;
        match trouble {
            Some(Trouble::Slow(time)) => tokio::time::sleep(time).await,
            Some(Trouble::Silent) => std::future::pending::<()>().await,
            Some(Trouble::Late(time)) if !is_answer && writes(&buffer[..count]) => {
                let mut request = buffer[..count].to_vec();
                let whole = length(&request);
                while request.len() < whole
                    && from.read_buf(&mut request).await.is_ok_and(|read| read > 0)
                {
                }
                if request.len() == whole {
                    late.send_modify(|late| *late += 1);
                    tokio::spawn(arrive_late(request, to, time, Arc::clone(late)));
                }
                return;
            }
            Some(Trouble::CutAfter(bytes)) if is_answer => {
                let rest = left.get_or_insert(bytes);
                end = count.min(*rest);
                *rest -= end;
            }
            Some(Trouble::CutAfter(_) | Trouble::Refused | Trouble::Cut | Trouble::Late(_))
            | None => left = None,
        }
        if to.write_all(&buffer[..end]).await.is_err() || count == 0 || end < count {
            return;
        }
    }
}

/// Returns true if these bytes begin a request that posts a comment or sets a status.
fn writes(bytes: &[u8]) -> bool {
    Regex::new(r"^POST \S*/(issues/\d+/comments|statuses/\w+) ")
        .expect("it is a pattern")
        .is_match(bytes)
}

/// Returns the length of the request that begins with these bytes. Its headers are in the first piece.
fn length(begin: &[u8]) -> usize {
    let headers = Regex::new(r"(?is)^(.*?)\r\n\r\n").expect("it is a pattern");
    let body = Regex::new(r"(?i)\r\ncontent-length: (\d+)").expect("it is a pattern");
    let Some(headers) = headers.find(begin) else {
        return begin.len();
    };
    let body = body
        .captures(&begin[..headers.end()])
        .and_then(|found| std::str::from_utf8(&found[1]).ok()?.parse().ok());
    headers.end() + body.unwrap_or(0)
}

/// Sends a request after its sender is gone. Nobody reads the answer.
async fn arrive_late(
    request: Vec<u8>,
    mut to: OwnedWriteHalf,
    time: Duration,
    late: Arc<watch::Sender<usize>>,
) {
    tokio::time::sleep(time).await;
    if to.write_all(&request).await.is_ok() {
        // A server that finds its client gone may not even begin.
        tokio::time::sleep(CARRIED_OUT).await;
    }
    late.send_modify(|late| *late -= 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a question through the wire and returns the answer, or `None` when the wire is cut.
    async fn ask(stream: &mut TcpStream) -> Option<[u8; 5]> {
        let mut answer = [0; 5];
        stream.write_all(b"hello").await.ok()?;
        stream.read_exact(&mut answer).await.ok().map(|_| answer)
    }

    #[tokio::test]
    async fn a_wire_passes_on_what_it_is_told_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = Wire::to(listener.local_addr().unwrap()).await;
        let _echo = AbortOnDropHandle::new(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        }));
        let connect = || async { TcpStream::connect(wire.address).await.unwrap() };
        let mut line = connect().await;
        assert_eq!(ask(&mut line).await, Some(*b"hello"));
        wire.trouble(Trouble::CutAfter(3));
        assert_eq!(ask(&mut line).await, None);
        wire.heal();
        let mut line = connect().await;
        assert_eq!(ask(&mut line).await, Some(*b"hello"));
        wire.trouble(Trouble::Refused);
        assert_eq!(ask(&mut line).await, None);
        assert_eq!(ask(&mut connect().await).await, None);
        wire.trouble(Trouble::Silent);
        let mut line = connect().await;
        let waiting = tokio::spawn(async move { ask(&mut line).await });
        tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>())
            .await
            .unwrap_err();
        wire.heal();
        assert_eq!(waiting.await.unwrap(), None, "what was held back is lost");
        assert_eq!(ask(&mut connect().await).await, Some(*b"hello"));
    }
}
