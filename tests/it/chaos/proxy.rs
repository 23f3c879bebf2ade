//! A wire that can be in trouble: a TCP proxy in front of PostgreSQL or GitHub.
//!
//! What a connection held back when it is cut is lost; it never arrives late. (A request that arrives after its sender
//! has died and its successor has asked again is beyond what any client can do without the help of the server.)

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::schedule::Trouble;

/// A proxy on loopback; it takes no more connections when it is dropped.
pub struct Wire {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    _listening: AbortOnDropHandle<()>,
}

/// How the wire is now. Connections of another `era` are cut.
#[derive(Clone, Copy, Debug)]
struct State {
    trouble: Option<Trouble>,
    era: u64,
}

impl Wire {
    /// A wire to an address.
    pub async fn to(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let state = Arc::new(watch::Sender::new(State { trouble: None, era: 0 }));
        let listening = tokio::spawn(listen(listener, upstream, Arc::clone(&state)));
        Self { address, state, _listening: AbortOnDropHandle::new(listening) }
    }

    /// The trouble begins. A later one takes the place of an earlier one.
    pub fn trouble(&self, trouble: Trouble) {
        self.state.send_modify(|state| {
            state.era += u64::from(matches!(trouble, Trouble::Refused | Trouble::Cut));
            state.trouble = Some(trouble).filter(|trouble| *trouble != Trouble::Cut);
        });
    }

    /// All is well again. Connections on which nothing got through are cut.
    pub fn heal(&self) {
        self.state.send_modify(|state| {
            state.era += u64::from(state.trouble == Some(Trouble::Silent));
            state.trouble = None;
        });
    }
}

async fn listen(listener: TcpListener, upstream: SocketAddr, state: Arc<watch::Sender<State>>) {
    while let Ok((client, _)) = listener.accept().await {
        let now = *state.borrow();
        if now.trouble == Some(Trouble::Refused) {
            drop(client);
            continue;
        }
        tokio::spawn(connect(client, upstream, state.subscribe(), now.era));
    }
}

async fn connect(client: TcpStream, upstream: SocketAddr, state: watch::Receiver<State>, era: u64) {
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let mut cut = state.clone();
    tokio::select! {
        () = pump(from_client, to_server, state.clone(), false) => {}
        () = pump(from_server, to_client, state, true) => {}
        _ = cut.wait_for(|state| state.era != era) => {}
    }
}

/// Passes bytes on until one side ends or the wire is cut. When one direction ends, so does the other: neither
/// PostgreSQL nor HTTP goes on with half a connection.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: watch::Receiver<State>, is_answer: bool) {
    let mut buffer = vec![0; 16 * 1024];
    let mut left = None;
    loop {
        let Ok(count) = from.read(&mut buffer).await else { return };
        let trouble = state.borrow().trouble;
        let mut end = count;
        match trouble {
            Some(Trouble::Slow(time)) => tokio::time::sleep(time).await,
            Some(Trouble::Silent) => std::future::pending::<()>().await,
            Some(Trouble::CutAfter(bytes)) if is_answer => {
                let rest = left.get_or_insert(bytes);
                end = count.min(*rest);
                *rest -= end;
            }
            Some(Trouble::CutAfter(_) | Trouble::Refused | Trouble::Cut) | None => left = None,
        }
        if to.write_all(&buffer[..end]).await.is_err() || count == 0 || end < count {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes back through the wire for a question, or `None` when it is cut.
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
        tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await.unwrap_err();
        wire.heal();
        assert_eq!(waiting.await.unwrap(), None, "what was held back is lost");
        assert_eq!(ask(&mut connect().await).await, Some(*b"hello"));
    }
}
