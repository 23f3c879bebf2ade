//! Limits the number of connections and decides which one makes room for a new one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::progress::{Deadlines, Progress};
use crate::config::server::TrustedProxies;
use crate::telemetry::{Metric, Metrics};

/// Maximum number of connections, if there are enough descriptors.
const MOST: usize = 1024;
/// Descriptors for everything else: the database, git, runs and their files, requests to the forge. If the limit is
/// below twice this number, half of it is kept.
const KEPT: usize = 256;
/// Additional connections from this machine that are accepted when all slots are taken. `lockkeeper healthcheck` and
/// an administrator then still get an answer.
const FROM_THIS_MACHINE: usize = 16;
/// Minimum time between two log messages about refused connections.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Limits of connections to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::app) struct ConnectionLimits {
    /// Maximum number of concurrent connections.
    pub in_all: usize,
    /// Maximum number of concurrent connections of one address (IPv6: of one /64 network), unless it is a trusted
    /// proxy.
    pub per_address: usize,
    /// Maximum time for the headers of a request.
    pub headers: Duration,
    /// Maximum time between an answer and the next request.
    pub idle: Duration,
    /// Maximum idle time of trusted proxies, which send the requests of others over connections that they keep. It is
    /// longer than the ten minutes of the most patient known load balancer. A balancer loses a request that it sends
    /// at the moment its connection is closed.
    pub idle_of_proxies: Duration,
    /// Maximum time in which the other side accepts no byte of an answer.
    pub blocked: Duration,
    /// Time after which a connection can make room whose client reads nothing of its answer.
    pub unread: Duration,
    /// Maximum time for which the server discards further bytes of the other side after the last answer.
    pub lingering: Duration,
}

impl ConnectionLimits {
    /// Derives the limits from the number of available descriptors.
    pub fn within(descriptors: u64) -> Self {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        Self {
            in_all: (descriptors - KEPT.min(descriptors / 2)).min(MOST),
            per_address: 64,
            headers: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            idle_of_proxies: Duration::from_secs(650),
            blocked: Duration::from_secs(30),
            unread: Duration::from_secs(3),
            lingering: Duration::from_secs(2),
        }
    }

    /// Divides the connections between the public listener and the one for runs, which gets a quarter. Connections of runs
    /// all come from this machine.
    pub fn with_runs(self) -> (Self, Self) {
        let of_runs = (self.in_all / 4).max(1);
        let runs = Self {
            in_all: of_runs,
            per_address: of_runs,
            ..self
        };
        let public = Self {
            in_all: (self.in_all - of_runs).max(1),
            ..self
        };
        (public, runs)
    }
}

/// Decides about new connections, and tracks all open ones.
pub(in crate::app) struct ConnectionAdmission {
    pub(super) limits: ConnectionLimits,
    proxies: TrustedProxies,
    metrics: Metrics,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, Connection>,
    of_network: HashMap<IpAddr, usize>,
    told_at: Option<Instant>,
    untold: u64,
}

struct Connection {
    /// Address that the connection counts for; `None` for a trusted proxy.
    network: Option<IpAddr>,
    progress: Progress,
}

/// Reason why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdmissionRefusal {
    InAll,
    OfAddress,
}

/// Slot of an open connection. Dropping it frees the slot.
pub(super) struct ConnectionSlot {
    admission: Arc<ConnectionAdmission>,
    number: u64,
    pub progress: Progress,
}

impl ConnectionAdmission {
    pub fn new(limits: ConnectionLimits, proxies: TrustedProxies, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self {
            limits,
            proxies,
            metrics,
            open: Mutex::default(),
        })
    }

    /// Gives a slot to a connection. If all are taken, the connection that has gone longest without completing a
    /// request is ended. If all connections are being answered, there is no slot.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        let peer = peer.to_canonical();
        let is_proxy = self.proxies.trusts(peer);
        let network = (!is_proxy).then(|| network(peer));
        let ConnectionLimits {
            headers,
            idle,
            idle_of_proxies,
            blocked,
            ..
        } = self.limits;
        let progress = Progress::new(Deadlines {
            headers,
            idle: if is_proxy { idle_of_proxies } else { idle },
            blocked,
        });
        let mut open = self.open();
        if let Err(full) = self.make_room(&mut open, network, peer.is_loopback()) {
            self.refuse(&mut open, full, peer);
            return None;
        }
        open.next += 1;
        let number = open.next;
        if let Some(network) = network {
            *open.of_network.entry(network).or_default() += 1;
        }
        open.connections.insert(
            number,
            Connection {
                network,
                progress: progress.clone(),
            },
        );
        self.metrics.change(Metric::HttpConnections, &[], 1.0);
        Some(ConnectionSlot {
            admission: Arc::clone(self),
            number,
            progress,
        })
    }

    fn make_room(
        &self,
        open: &mut Open,
        network: Option<IpAddr>,
        is_here: bool,
    ) -> Result<(), AdmissionRefusal> {
        let of_network = network
            .and_then(|network| open.of_network.get(&network))
            .copied()
            .unwrap_or_default();
        if of_network >= self.limits.per_address {
            return self
                .dismiss(open, network)
                .ok_or(AdmissionRefusal::OfAddress);
        }
        let most = self.limits.in_all + if is_here { FROM_THIS_MACHINE } else { 0 };
        if open.connections.len() >= most {
            return self.dismiss(open, None).ok_or(AdmissionRefusal::InAll);
        }
        Ok(())
    }

    /// Ends the connection, of one network or of all, that has gone longest without completing a request. If all have completed
    /// one, ends that whose client has read nothing of its answer for the longest time.
    fn dismiss(&self, open: &mut Open, network: Option<IpAddr>) -> Option<()> {
        let candidates = open
            .connections
            .iter()
            .filter(|(_, other)| network.is_none() || other.network == network);
        let waiting = candidates
            .clone()
            .filter_map(|(number, other)| Some((other.progress.incomplete_since()?, *number)));
        let unread = candidates
            .filter_map(|(number, other)| Some((other.progress.unread_since()?, *number)))
            .filter(|(since, _)| since.elapsed() >= self.limits.unread);
        let (_, number) = waiting.min().or_else(|| unread.min())?;
        if let Some(dismissed) = self.remove(open, number) {
            dismissed.progress.give_way();
        }
        self.closed("made_room");
        Some(())
    }

    fn remove(&self, open: &mut Open, number: u64) -> Option<Connection> {
        let connection = open.connections.remove(&number)?;
        if let Some(network) = connection.network
            && let Some(count) = open.of_network.get_mut(&network)
        {
            *count -= 1;
            if *count == 0 {
                open.of_network.remove(&network);
            }
        }
        self.metrics.change(Metric::HttpConnections, &[], -1.0);
        Some(connection)
    }

    fn refuse(&self, open: &mut Open, full: AdmissionRefusal, peer: IpAddr) {
        self.closed(match full {
            AdmissionRefusal::InAll => "full",
            AdmissionRefusal::OfAddress => "address",
        });
        open.untold += 1;
        if open.told_at.is_some_and(|at| at.elapsed() < TELL_EVERY) {
            return;
        }
        let refused = std::mem::take(&mut open.untold);
        open.told_at = Some(Instant::now());
        let ConnectionLimits {
            in_all,
            per_address,
            ..
        } = self.limits;
        match full {
            AdmissionRefusal::InAll => warn!(
                refused, most = in_all, %peer,
                "Connections are refused: the server has reached its limit of connections. The limit depends on that \
                 of open files (docs/operations.md, Connections)"
            ),
            AdmissionRefusal::OfAddress => warn!(
                refused, most = per_address, %peer,
                "Connections are refused: one address has reached its limit of connections. If it is a proxy or a \
                 load balancer, add it to --trusted-proxies (docs/operations.md, Connections)"
            ),
        }
    }

    /// Counts a connection that the server ended.
    pub(super) fn closed(&self, reason: &str) {
        self.metrics.count(Metric::HttpConnectionsClosed, &[reason]);
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.admission.open();
        drop(self.admission.remove(&mut open, self.number));
    }
}

/// Returns an IPv4 address as it is, and the first half of an IPv6 address: a provider gives the other half to one
/// customer.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::super::progress::EndReason;
    use super::*;

    fn admission(in_all: usize, per_address: usize, proxies: &[&str]) -> Arc<ConnectionAdmission> {
        let limits = ConnectionLimits {
            in_all,
            per_address,
            ..ConnectionLimits::within(1024)
        };
        ConnectionAdmission::new(
            limits,
            TrustedProxies::new(proxies).unwrap(),
            Metrics::default(),
        )
    }

    fn admit(admission: &Arc<ConnectionAdmission>, peer: &str) -> Option<ConnectionSlot> {
        admission.admit(peer.parse().unwrap())
    }

    /// Admits a connection whose request is being answered.
    fn busy(admission: &Arc<ConnectionAdmission>, peer: &str) -> Option<ConnectionSlot> {
        let place = admit(admission, peer)?;
        place.progress.request_begins(false);
        Some(place)
    }

    fn counted(admission: &Arc<ConnectionAdmission>) -> Vec<String> {
        let text = admission.metrics.render();
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("lockkeeper_http_connections"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    #[test]
    fn descriptors_are_kept_for_the_database_and_git() {
        for (descriptors, expected) in [
            (0, 0),
            (64, 32),
            (256, 128),
            (1024, 768),
            (4096, 1024),
            (u64::MAX, 1024),
        ] {
            assert_eq!(
                ConnectionLimits::within(descriptors).in_all,
                expected,
                "{descriptors}"
            );
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_its_answer_makes_room() {
        let limits = ConnectionLimits {
            in_all: 2,
            unread: Duration::ZERO,
            ..ConnectionLimits::within(1024)
        };
        let proxies = TrustedProxies::default();
        let admission = ConnectionAdmission::new(limits, proxies, Metrics::default());
        let read = busy(&admission, "192.0.2.1").unwrap();
        let unread = busy(&admission, "192.0.2.2").unwrap();
        assert!(admit(&admission, "192.0.2.3").is_none(), "both read");
        let pending = unread.progress.wrote(Poll::<()>::Pending);
        assert!(pending.is_pending());
        assert!(admit(&admission, "192.0.2.3").is_some());
        assert_eq!(unread.progress.overdue().await, EndReason::MadeRoom);
        drop((read, unread));
    }

    #[tokio::test]
    async fn an_address_has_so_many_connections_and_a_trusted_proxy_has_more() {
        let admission = admission(100, 2, &["10.0.0.0/8"]);
        let _open = [
            "192.0.2.1",
            "::ffff:192.0.2.1",
            "2001:db8::1",
            "2001:db8::2:1",
            "10.0.0.1",
            "10.0.0.1",
            "10.0.0.1",
        ]
        .map(|peer| busy(&admission, peer).unwrap_or_else(|| panic!("{peer} is let in")));
        for full in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::3:1"] {
            assert!(admit(&admission, full).is_none(), "{full}");
        }
        for other in ["192.0.2.2", "2001:db8:0:1::1", "10.0.0.1"] {
            assert!(admit(&admission, other).is_some(), "{other}");
        }
        assert_eq!(
            counted(&admission),
            [" 7", "_closed_total{reason=\"address\"} 3"]
        );
    }

    #[tokio::test]
    async fn a_request_that_is_not_complete_gives_way_and_one_that_is_answered_does_not() {
        let admission = admission(3, 3, &[]);
        let answered = busy(&admission, "192.0.2.1").unwrap();
        let (older, newer) = (
            admit(&admission, "192.0.2.2").unwrap(),
            admit(&admission, "192.0.2.2").unwrap(),
        );
        let third = busy(&admission, "192.0.2.3").unwrap();
        assert_eq!(older.progress.overdue().await, EndReason::MadeRoom);
        drop(older);
        let fourth = busy(&admission, "192.0.2.4").unwrap();
        assert_eq!(newer.progress.overdue().await, EndReason::MadeRoom);
        assert!(
            admit(&admission, "192.0.2.5").is_none(),
            "all are being answered"
        );
        let here: Vec<_> = (0..FROM_THIS_MACHINE)
            .map_while(|_| busy(&admission, "127.0.0.1"))
            .collect();
        assert_eq!(here.len(), 3, "an address has its limit here, too");
        let closed = [
            "_closed_total{reason=\"full\"} 1",
            "_closed_total{reason=\"made_room\"} 2",
        ];
        let address = "_closed_total{reason=\"address\"} 1";
        assert_eq!(counted(&admission), [" 6", address, closed[0], closed[1]]);
        drop((answered, newer, third, fourth, here));
        assert_eq!(counted(&admission)[0], " 0");
        let open = admission.open();
        assert!(
            open.connections.is_empty() && open.of_network.is_empty(),
            "nothing is kept of connections that ended"
        );
    }
}
