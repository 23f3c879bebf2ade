//! Keeps runs from the pages: a connection from this machine is refused if a process of a run has its other end.
//!
//! Landlock can allow ports, but not deny them, so the kernel lets a run connect. But the server is outside of the
//! run, and can ask the kernel who owns the socket at the other end:
//! - The socket is looked up by both addresses (`sock_diag`). If there is none, the other end is on another machine
//!   (or in another network namespace), unless it was closed already. Our end knows if it was closed.
//! - A connection is refused if no process has its other socket open any more: a run could send a request and close
//!   its socket at once.
//! - A socket of the user of runs (`--run-as`) belongs to a run. A socket of any other user but ours does not: runs
//!   cannot change their user.
//! - While any run is under way, a socket of our own user needs an owner: a process that has it and does not belong
//!   to a run. If the owner cannot be determined, the connection is refused. A run could hide its descriptors or pass
//!   them around during the search; it cannot make another process have them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::unistd::geteuid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::warn;

use crate::model::RunUser;
use crate::process::{RunMembership, runs};

/// Minimum time between two log messages about refused connections.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Decides by the process at the other end of a connection.
pub(in crate::app) struct Peers {
    /// Permit to search all processes. A search takes milliseconds, and a run can cause many.
    looks: Semaphore,
    logged_at: Mutex<Option<Instant>>,
    /// User of runs, if it is not the user of the server.
    runner: Option<RunUser>,
}

/// Reason why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerRefusal {
    /// A process of a run has the other end.
    OfRun,
    /// No process has the other end open any more.
    Closed,
    /// No process was found that has it, or the processes that have it cannot be assigned.
    Unknown,
}

impl PeerRefusal {
    const fn why(self) -> &'static str {
        match self {
            Self::OfRun => "the client is a process of a run",
            Self::Closed => "the client closed it at once",
            Self::Unknown => {
                "a run is in progress, and the server cannot determine which process of its own user opened it. A \
                 proxy on this machine must run as another user, or where the server can see it"
            }
        }
    }
}

impl Peers {
    /// Prepares the check. Returns `None`, with a warning, if the kernel does not say who owns a socket.
    pub fn new(listener: &TcpListener, runner: Option<RunUser>) -> io::Result<Option<Self>> {
        let local = listener.local_addr()?;
        let nobody = SocketAddr::new(
            if local.is_ipv4() {
                IpAddr::from([0; 4])
            } else {
                IpAddr::from([0; 16])
            },
            0,
        );
        if !matches!(socket_between(local, nobody), Ok(Some(_))) {
            warn!(
                "The kernel does not report the owners of connections (CONFIG_INET_DIAG), so runs can open the pages"
            );
            return Ok(None);
        }
        Ok(Some(Self {
            looks: Semaphore::new(1),
            logged_at: Mutex::default(),
            runner,
        }))
    }

    /// Checks whether the connection may be answered.
    pub async fn admits(&self, stream: &TcpStream, peer: SocketAddr, local: SocketAddr) -> bool {
        let refusal = match owner(stream, peer, local) {
            Ok(PeerOwner::Elsewhere) => None,
            Ok(PeerOwner::Nobody) => Some(PeerRefusal::Closed),
            Ok(PeerOwner::Other { user }) => self
                .runner
                .filter(|runner| runner.uid == user)
                .map(|_| PeerRefusal::OfRun),
            // Runs have another user.
            Ok(PeerOwner::OurUser { .. }) if self.runner.is_some() => None,
            Ok(PeerOwner::OurUser { .. }) if !runs::any() => None,
            Ok(PeerOwner::OurUser { inode }) => self.check_owner(inode).await,
            Err(_) => Some(PeerRefusal::Unknown),
        };
        if let Some(refusal) = refusal {
            self.log_refusal(refusal, peer);
        }
        refusal.is_none()
    }

    async fn check_owner(&self, inode: u32) -> Option<PeerRefusal> {
        let Ok(_turn) = self.looks.acquire().await else {
            return Some(PeerRefusal::Unknown);
        };
        tokio::task::spawn_blocking(move || refusal_of(inode))
            .await
            .unwrap_or(Some(PeerRefusal::Unknown))
    }

    fn log_refusal(&self, refusal: PeerRefusal, peer: SocketAddr) {
        let mut logged_at = self
            .logged_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_none_or(|logged_at| logged_at.elapsed() >= LOG_EVERY) {
            *logged_at = Some(Instant::now());
            warn!(%peer, "Refused a connection from this machine: {}", refusal.why());
        }
    }
}

/// Owner of the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerOwner {
    /// On another machine, or in another network namespace.
    Elsewhere,
    /// A process of another user on this machine.
    Other { user: u32 },
    /// A process of the server's user on this machine.
    OurUser { inode: u32 },
    /// No process: the other end is closed.
    Nobody,
}

fn owner(stream: &TcpStream, peer: SocketAddr, local: SocketAddr) -> io::Result<PeerOwner> {
    Ok(
        match socket_between(peer, local)?.filter(|socket| socket.is_connected) {
            Some(Socket { inode: 0, .. }) => PeerOwner::Nobody,
            Some(Socket { user, .. }) if user != geteuid().as_raw() => PeerOwner::Other { user },
            Some(Socket { inode, .. }) => PeerOwner::OurUser { inode },
            // Checked after the lookup: as long as our end has not received the end of the stream, the other end
            // exists, and it is not on this machine.
            None if is_closed_by_peer(stream)? => PeerOwner::Nobody,
            None => PeerOwner::Elsewhere,
        },
    )
}

fn is_closed_by_peer(stream: &TcpStream) -> io::Result<bool> {
    let stream = stream.as_fd();
    let mut looked = [PollFd::new(&stream, PollFlags::RDHUP)];
    poll(
        &mut looked,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )?;
    Ok(looked[0]
        .revents()
        .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR))
}

/// Searches all processes for those that have a socket. Returns `None` if its owner is not a run.
fn refusal_of(inode: u32) -> Option<PeerRefusal> {
    let whose: BTreeSet<_> = holders(inode)
        .into_iter()
        .map(|id| runs::belongs(id) as u8)
        .collect();
    let is_there = |belongs: RunMembership| whose.contains(&(belongs as u8));
    if is_there(RunMembership::ToRun) {
        Some(PeerRefusal::OfRun)
    } else if whose.is_empty() || is_there(RunMembership::Unknown) {
        Some(PeerRefusal::Unknown)
    } else {
        None
    }
}

/// Lists the processes that have a socket, as far as they can be inspected.
fn holders(inode: u32) -> Vec<i32> {
    let name = format!("socket:[{inode}]");
    let has_it = |id: &i32| {
        let descriptors = fs::read_dir(format!("/proc/{id}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        descriptors
            .map(|entry| fs::read_link(entry.path()))
            .any(|link| link.is_ok_and(|link| link.as_os_str() == &*name))
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(has_it)
        .collect()
}

/// A socket of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    user: u32,
    /// Inode number; 0 if no process has the socket.
    inode: u32,
    /// True for one end of a connection, false for a listening socket.
    is_connected: bool,
}

// Numbers of the kernel's interface: linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, net/tcp_states.h.
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP: u8 = 6;
const TCP_LISTEN: u8 = 10;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const ENOENT: i32 = 2;
/// Length of the header of a message, and of a request.
const HEAD: usize = 16;
const QUESTION: u32 = 72;
/// Offsets of the state, the user and the inode in an answer, which ends with the last two.
const STATE_AT: usize = HEAD + 1;
const USER_AT: usize = HEAD + 64;
const INODE_AT: usize = HEAD + 68;

/// Finds the socket at `near` whose other end is `far`, if it is on this machine.
fn socket_between(near: SocketAddr, far: SocketAddr) -> io::Result<Option<Socket>> {
    let asked = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&asked, &question(near, far), SendFlags::empty())?;
    let mut answer = [0; 1024];
    // The kernel has answered once the request has been sent.
    let (length, _) = recv(&asked, &mut answer, RecvFlags::DONTWAIT)?;
    read_answer(&answer[..length.min(answer.len())])
}

fn question(near: SocketAddr, far: SocketAddr) -> Vec<u8> {
    let (near_ip, far_ip) = (near.ip().to_canonical(), far.ip().to_canonical());
    let family = if near_ip.is_ipv4() { AF_INET } else { AF_INET6 };
    let address = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => [&ip.octets()[..], &[0; 12]].concat(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    // A link-local address is only meaningful together with its link.
    let link = match near {
        SocketAddr::V6(near) => near.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    [
        &QUESTION.to_ne_bytes()[..],
        &SOCK_DIAG_BY_FAMILY.to_ne_bytes(),
        &NLM_F_REQUEST.to_ne_bytes(),
        &[0; 8],
        // Sockets of all states, without extensions.
        &[family, TCP, 0, 0],
        &u32::MAX.to_ne_bytes(),
        &near.port().to_be_bytes(),
        &far.port().to_be_bytes(),
        &address(near_ip),
        &address(far_ip),
        &link.to_ne_bytes(),
        // No cookie: any socket with these addresses.
        &[0xff; 8],
    ]
    .concat()
}

fn read_answer(answer: &[u8]) -> io::Result<Option<Socket>> {
    let odd = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "cannot read the answer of the kernel about a socket",
        )
    };
    let number = |at: usize| {
        let bytes = answer
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or_else(odd)
    };
    let kind = answer
        .get(4..6)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u16::from_ne_bytes)
        .ok_or_else(odd)?;
    match kind {
        NLMSG_ERROR => match number(HEAD)?.cast_signed().saturating_neg() {
            ENOENT => Ok(None),
            code => Err(io::Error::from_raw_os_error(code)),
        },
        SOCK_DIAG_BY_FAMILY => {
            let state = *answer.get(STATE_AT).ok_or_else(odd)?;
            let (user, inode) = (number(USER_AT)?, number(INODE_AT)?);
            Ok(Some(Socket {
                user,
                inode,
                is_connected: state != TCP_LISTEN,
            }))
        }
        _ => Err(odd()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Opens a connection on loopback. Returns the end of the client, the end of the server, and their addresses.
    async fn connected(
        bind: &str,
        from: &str,
    ) -> (std::net::TcpStream, TcpStream, SocketAddr, SocketAddr) {
        let listener = TcpListener::bind((bind, 0)).await.unwrap();
        assert!(Peers::new(&listener, None).unwrap().is_some(), "{bind}");
        let client =
            std::net::TcpStream::connect((from, listener.local_addr().unwrap().port())).unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let local = stream.local_addr().unwrap();
        (client, stream, peer, local)
    }

    #[tokio::test]
    async fn the_process_at_the_other_end_is_found_whatever_the_addresses_are() {
        for (bind, from) in [
            ("127.0.0.1", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.3"),
            ("::1", "::1"),
            ("::", "::1"),
            ("::", "127.0.0.1"),
        ] {
            let (_client, stream, peer, local) = connected(bind, from).await;
            let owner = owner(&stream, peer, local).unwrap();
            let PeerOwner::OurUser { inode } = owner else {
                panic!("{bind} {from}: {owner:?}")
            };
            let me = i32::try_from(std::process::id()).unwrap();
            // Another test may be starting a child process, which has all open descriptors of this one until it
            // executes its program.
            assert!(holders(inode).contains(&me), "{bind} {from}");
            assert_eq!(refusal_of(inode), None);
        }
    }

    #[tokio::test]
    async fn what_nobody_has_open_any_more_is_refused() {
        let (mut client, stream, peer, local) = connected("127.0.0.1", "127.0.0.1").await;
        client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        drop(client);
        assert_eq!(owner(&stream, peer, local).unwrap(), PeerOwner::Nobody);
        assert_eq!(
            refusal_of(u32::MAX),
            Some(PeerRefusal::Unknown),
            "no process has that socket"
        );
    }

    #[tokio::test]
    async fn what_is_not_on_this_machine_is_nobodys_here() {
        let (_client, stream, peer, local) = connected("127.0.0.1", "127.0.0.1").await;
        // An address for documentation, which nobody has.
        let far = SocketAddr::new([192, 0, 2, 7].into(), peer.port());
        assert_eq!(owner(&stream, far, local).unwrap(), PeerOwner::Elsewhere);
        let (client, stream, ..) = connected("127.0.0.1", "127.0.0.1").await;
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(
            owner(&stream, far, local).unwrap(),
            PeerOwner::Nobody,
            "it was closed, perhaps by somebody here"
        );
    }

    #[test]
    fn odd_answers_of_the_kernel_are_errors() {
        for answer in [&[][..], &[0; 16], &[0; 100], &[255; 20]] {
            assert!(read_answer(answer).is_err(), "{answer:?}");
        }
    }
}
