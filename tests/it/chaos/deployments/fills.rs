//! Versions that a deployment fetches from a host with repositories, while everything goes wrong (R7).
//!
//! However many clients want a version, a deployment fetches it once, unless something ends the fetch before the version is
//! here. Only this can end one:
//!
//! - Its server is killed, or paused for so long that another one takes the lease. Short pauses can follow each other, so
//!   all of them count.
//! - It fails, or loses its lease for another reason. Its server logs both.
//!
//! Under the lease, a server looks first whether the version has come meanwhile. So each interruption between the first
//! request of a client and the first package that one had lets one more fetch begin, and so does each end in the log. The
//! requests at the host are compared with that number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockkeeper::leases::LeaseKey;
use lockkeeper_registry::versions::VersionKey;
use nix::sys::signal::Signal;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::super::schedule::Halt;
use super::clients::Fetched;
use super::schedule::FillHalt;
use super::world::{PATIENCE, RegistryWorld};
use crate::registry::outside::CODE;
use crate::support::server::LOOK;

/// Requests of one fetch at the host of the repository: for its tags, and for the commit.
pub const FETCH_REQUESTS: usize = 2;
/// Time for which clients of a patient run want a version whose fetch was interrupted.
const AFTERWARDS: Duration = Duration::from_mins(2);
/// Messages of servers after which another fetch may begin.
const ENDS: [&str; 3] = [
    "A missing version was not fetched",
    "Cannot fetch a version that is missing",
    "An exclusive lease was lost",
];
const LEASES: &str = "SELECT key, holder FROM leases WHERE key LIKE 'registry_fill:%'";

/// Returns the path of a repository at the host.
fn repository_of(number: u64) -> String {
    format!("acme/net{number}.git")
}

/// Returns the only version of a repository.
pub fn filled(number: u64) -> VersionKey {
    let key = format!("go {CODE}/{} v1.0.0", repository_of(number));
    key.parse().expect("the version is valid")
}

/// Numbers of the kills and pauses of the servers of a deployment.
#[derive(Debug, Default)]
pub struct Interruptions {
    begun: AtomicUsize,
    over: AtomicUsize,
}

impl Interruptions {
    /// Counts an interruption before it has any effect.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts an interruption that ends no further fetch.
    pub fn end(&self) {
        self.over.fetch_add(1, Ordering::SeqCst);
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn over(&self) -> usize {
        self.over.load(Ordering::SeqCst)
    }
}

/// A version that clients requested from a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedFill {
    /// Number of interruptions that were over before the first request.
    over_before: usize,
    /// Number of interruptions that had begun when a client first had the package.
    begun_until: Option<usize>,
}

impl AskedFill {
    /// Returns the maximum number of fetches that can have begun. `begun` interruptions have begun so far, and so many
    /// fetches have ended by the log.
    fn most_fetches(self, begun: usize, ended: usize) -> usize {
        let until = self.begun_until.unwrap_or(begun);
        1 + until.saturating_sub(self.over_before) + ended
    }
}

/// Versions that clients wanted in a round, by their number and the deployment.
#[derive(Debug, Default)]
pub struct AskedFills(Mutex<BTreeMap<(u64, usize), AskedFill>>);

impl AskedFills {
    fn begin(&self, number: u64, at: usize, interruptions: &Interruptions) {
        let mut asked = self.0.lock().expect("nobody panics with it");
        asked.entry((number, at)).or_insert_with(|| AskedFill {
            over_before: interruptions.over(),
            begun_until: None,
        });
    }

    fn end(&self, number: u64, at: usize, interruptions: &Interruptions) {
        let mut asked = self.0.lock().expect("nobody panics with it");
        if let Some(asked) = asked.get_mut(&(number, at)) {
            let begun = interruptions.begun();
            asked.begun_until.get_or_insert(begun);
        }
    }

    fn take(&self) -> BTreeMap<(u64, usize), AskedFill> {
        std::mem::take(&mut *self.0.lock().expect("nobody panics with it"))
    }
}

impl RegistryWorld {
    /// Creates a repository, unless it is there.
    async fn offer(&self, number: u64) {
        let mut offered = self.offered.lock().await;
        if !offered.insert(number) {
            return;
        }
        let path = repository_of(number);
        let go_mod = format!("module {CODE}/{path}\n\ngo 1.24\n");
        let files = [("go.mod", go_mod.as_str()), ("net.go", "package net\n")];
        // Git is several programs.
        tokio::task::block_in_place(|| self.outside.repository(&path, &files).tag("v1.0.0"));
    }

    /// Reads a version that the deployment has to fetch. Returns true if its package came.
    pub async fn fill(&self, at: usize, number: u64) -> bool {
        self.offer(number).await;
        let interruptions = &self.deployments[at].interruptions;
        self.asked.begin(number, at, interruptions);
        let (_, fetched) = self.read(at, &filled(number)).await;
        let is_here = matches!(fetched, Fetched::Package(_));
        if is_here {
            self.asked.end(number, at, interruptions);
        }
        is_here
    }

    /// Kills or pauses the server that fetches a version, while clients want it.
    pub async fn halt_fill(self: &Arc<Self>, at: usize, number: u64, halt: FillHalt) {
        self.offer(number).await;
        let (deployment, path) = (&self.deployments[at], repository_of(number));
        // In order, so that no two of these acts wait for each other.
        let mut servers = Vec::new();
        for server in &deployment.servers {
            servers.push(server.lock().await);
        }
        for (n, server) in servers.iter_mut().enumerate() {
            self.check_alive((at, n), server);
        }
        self.outside.hold(&path, true);
        let world = Arc::clone(self);
        let filling = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                // Requests go to the servers in turn, so both of two are asked.
                let (one, other) = tokio::join!(world.fill(at, number), world.fill(at, number));
                if one || other {
                    return;
                }
                sleep(LOOK).await;
            }
        }));
        let begun = Instant::now();
        while self.outside.git_requests_for(&path) == 0 {
            if begun.elapsed() > PATIENCE {
                self.outside.hold(&path, false);
                let key = filled(number);
                return self.broken(&format!("{key} is not fetched within {PATIENCE:?}"));
            }
            sleep(LOOK).await;
        }
        let holder = self.holder(at, number).await.unwrap_or_default();
        let found = servers.iter().position(|server| {
            server
                .replica()
                .is_some_and(|replica| holder.starts_with(&format!("{replica}/")))
        });
        match (found, halt.how) {
            (Some(n), Halt::Kill) if servers[n].is_running() => {
                self.outside.hold(&path, false);
                sleep(halt.soon).await;
                self.count("killed in a fill");
                self.kill((at, n), &mut servers[n], halt.back).await;
            }
            (Some(n), Halt::Pause) if servers[n].is_running() => {
                self.count("paused in a fill");
                deployment.interruptions.begin();
                servers[n].signal(Signal::SIGSTOP);
                self.outside.hold(&path, false);
                sleep(halt.back).await;
                servers[n].signal(Signal::SIGCONT);
                deployment.interruptions.end();
            }
            (Some(_) | None, _) => {
                self.outside.hold(&path, false);
                let key = filled(number);
                self.broken(&format!("R7: {key} is fetched under no lease ({holder:?})"));
            }
        }
        drop(servers);
        // Another server, or the same one, has it after the lease.
        if self.options.patient && timeout(AFTERWARDS, filling).await.is_ok() {
            self.count("filled after an interruption");
        }
    }

    /// Returns the holder of the lease under which a version is fetched.
    async fn holder(&self, at: usize, number: u64) -> Option<String> {
        let wanted = LeaseKey::registry_fill(&filled(number)).to_string();
        let leases = self.deployments[at].look.rows(LEASES).await;
        let mut leases = leases.into_iter();
        let lease = leases.find(|lease| lease.first() == Some(&wanted))?;
        lease.into_iter().nth(1)
    }

    /// Returns the number of fetches of a version that ended without it, by the logs of the servers.
    async fn ended_fills(&self, at: usize, number: u64) -> usize {
        let module = format!("{CODE}/{}", repository_of(number));
        let is_end =
            |line: &&str| line.contains(&module) && ENDS.iter().any(|end| line.contains(end));
        let mut ended = 0;
        for server in &self.deployments[at].servers {
            let log = server.lock().await.log();
            ended += log.lines().filter(is_end).count();
        }
        ended
    }

    /// R7: checks that no version of the round was fetched more often than something has ended its fetches.
    pub async fn check_fills(&self) {
        let mut most = BTreeMap::<u64, usize>::new();
        for ((number, at), asked) in self.asked.take() {
            let ended = self.ended_fills(at, number).await;
            let begun = self.deployments[at].interruptions.begun();
            *most.entry(number).or_default() += asked.most_fetches(begun, ended);
        }
        for (number, most) in most {
            let requests = self.outside.git_requests_for(&repository_of(number));
            if requests > most * FETCH_REQUESTS {
                let key = filled(number);
                self.broken(&format!(
                    "R7: {requests} requests were sent for {key}, which can have been fetched {most} times"
                ));
            }
            if requests > 0 {
                self.count("versions fetched in trouble");
            }
        }
    }
}

#[test]
fn an_interruption_before_the_package_lets_one_more_fetch_begin() {
    let (asked, kills) = (AskedFills::default(), Interruptions::default());
    let kill = || {
        kills.begin();
        kills.end();
    };
    let most = |number: u64, ended: usize| {
        let asked = asked.0.lock().unwrap();
        asked[&(number, 0)].most_fetches(kills.begun(), ended)
    };
    kill();
    asked.begin(1, 0, &kills);
    assert_eq!((most(1, 0), most(1, 2)), (1, 3));
    kill();
    asked.begin(1, 0, &kills);
    assert_eq!(most(1, 0), 2, "a later request changes nothing");
    asked.end(1, 0, &kills);
    kill();
    asked.end(1, 0, &kills);
    assert_eq!(most(1, 0), 2, "nobody fetches a version that is here");
    // Its server is about to be killed.
    kills.begin();
    asked.begin(2, 0, &kills);
    kills.end();
    assert_eq!(most(2, 0), 2);
    assert_eq!(asked.take().len(), 2);
    assert_eq!(asked.take().len(), 0);
}
