//! One fetch of each version, however many clients and replicas miss it (R7).
//!
//! - *In one process*, the first request begins a fill, and all others find it.
//! - *Peers first*: the logs of other deployments are read, each under a lease of its own (`peers/pull.rs`).
//! - *Between replicas*, a lease decides who asks a host. Who does not get it looks now and then for the version, or for a
//!   failure, and keeps no permit meanwhile.
//! - *In the queue*, a fill takes the first free permit of any token that wants its version, and looks now and then for
//!   the version. So the token that came first does not decide how long others wait.
//! - *Under the lease*, the version and the last failure are read again, so that nothing that has just ended begins again.
//!
//! A fill goes on when its client leaves. It ends with the server, and the next request begins it again.
//!
//! No token takes all permits: its fills and lists in progress, in the queue and of an hour have limits of their own,
//! and so do its requests that wait. No token fills the quota of everything from elsewhere either: the bytes that its
//! fills have stored in an hour have a limit, which is checked again before a fill leaves the queue.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use lockkeeper_registry::names::{GoPath, RegistryName};
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::VersionKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::super::peers::PeerExchange;
use super::super::service::{Registry, RegistryError};
use super::super::tokens::{Token, TokenAction, TokenId};
use super::decision::{MissFacts, decide};
use super::lists::{KeptList, ListedVersions, RunningList, VersionLists};
use super::refusal::SourceRefusal;
use super::store::FillFault;
use super::version_control::VersionControl;
use crate::config::server::{MissLimits, MissRules, OnMiss};
use crate::errors::describe_error;
use crate::kit::recent::RecentMap;
use crate::leases::{LeaseKey, LeaseOutcome, Leases};
use crate::telemetry::{Metric, Metrics};

const HOUR: Duration = Duration::from_hours(1);
/// Time of the lease, which is renewed while the fill goes on.
const LEASE_TIME: Duration = Duration::from_secs(30);
/// Interval at which a replica looks for the outcome of a fill of another one.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Time for which peers are not asked again for the versions of a name.
const ASKED_TIME: Duration = Duration::from_mins(1);
/// Rough limit in bytes of the names that peers have answered about, and rough size of one.
const ASKED_BYTES: usize = 1 << 20;
const ASKED_SIZE: usize = 300;

/// Outcome of a request for a missing version.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::features::registry) enum MissAnswer {
    /// The version is in the registry now.
    Here,
    /// The version is not there, and may come later.
    NotHere,
    /// The version is not there, and nothing was begun because of this limit.
    Limited(FillLimit),
}

/// Limit that keeps a token from a further fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::features::registry) enum FillLimit {
    /// Too many fills are in progress or in the queue.
    Begun,
    /// The token has begun too many in this hour.
    Fills,
    /// The fills of the token have stored too many bytes in this hour.
    Bytes,
}

impl FillLimit {
    /// Returns the label of the metric of fills.
    fn outcome(self) -> &'static str {
        match self {
            Self::Begun => "busy",
            Self::Fills | Self::Bytes => "over_budget",
        }
    }
}

impl fmt::Display for FillLimit {
    /// Shows the reason, and what to do next.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Begun => {
                "too many modules are being fetched at the moment. Try again in a few minutes"
            }
            Self::Fills => {
                "this token has started as many fetches as a token may in an hour. Try again in an hour"
            }
            Self::Bytes => {
                "the fetches of this token have stored a tenth of --registry-cache-quota in an hour. Try again in an hour, or ask \
                 an administrator for a larger quota"
            }
        })
    }
}

/// Outcome of a fill for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FillEnd {
    Filled,
    NotFilled,
}

/// Everything that decides about missing versions and fetches them. Clones share it.
#[derive(Clone)]
pub(crate) struct Misses(Arc<MissesInner>);

/// Settings and services of the fills of a server.
pub(in crate::features::registry) struct FillParts {
    /// Registry that gets the versions.
    pub registry: Arc<Registry>,
    /// Deployments that may have a version.
    pub peers: Arc<PeerExchange>,
    /// Repositories; `None` if no host is allowed.
    pub hosts: Option<VersionControl>,
    /// Rules of the operator.
    pub rules: MissRules,
    /// Limits that no flag sets.
    pub limits: MissLimits,
    /// Number of bytes after which a token starts no more fetches in an hour.
    pub bytes_of_token: u64,
    /// Leases of this server.
    pub leases: Leases,
    /// Metrics of this server.
    pub metrics: Metrics,
    /// Cancelled when the server begins no more work.
    pub closing: CancellationToken,
}

struct MissesInner {
    parts: FillParts,
    begun: Mutex<HashMap<VersionKey, BegunFill>>,
    lists: VersionLists,
    permits: Semaphore,
    waiting: Semaphore,
    uses: Mutex<HashMap<TokenId, TokenUse>>,
    /// Names about which peers were asked, and when.
    asked: Mutex<RecentMap<RegistryName, Instant>>,
}

/// Everything that a token has begun.
struct TokenUse {
    /// Begin of the hour in which fills and lists are counted.
    since: Instant,
    fills: u32,
    lists: u32,
    /// Number of bytes that its fills have stored in this hour.
    bytes: u64,
    /// Number of fills in progress or in the queue, and of lists that are read.
    begun: usize,
    begun_lists: usize,
    /// Places of requests that wait.
    waiting: Arc<Semaphore>,
    /// Places of the token.
    permits: Arc<Semaphore>,
}

impl TokenUse {
    fn new(limits: &MissLimits, now: Instant) -> Self {
        Self {
            since: now,
            fills: 0,
            lists: 0,
            bytes: 0,
            begun: 0,
            begun_lists: 0,
            waiting: Arc::new(Semaphore::new(limits.waiting_of_token)),
            permits: Arc::new(Semaphore::new(limits.at_once_of_token)),
        }
    }

    /// Counts from zero again after an hour.
    fn begin_hour(&mut self, now: Instant) {
        if now.duration_since(self.since) >= HOUR {
            (self.since, self.fills, self.lists, self.bytes) = (now, 0, 0, 0);
        }
    }

    /// Returns the limit that keeps the token from a further fill.
    fn limit(&self, limits: &MissLimits, most_bytes: u64) -> Option<FillLimit> {
        if self.begun >= limits.begun_of_token {
            Some(FillLimit::Begun)
        } else if self.fills >= limits.of_token {
            Some(FillLimit::Fills)
        } else {
            self.has_stored(most_bytes).then_some(FillLimit::Bytes)
        }
    }

    /// Returns true if the fills of this hour have stored more than this number of bytes.
    fn has_stored(&self, most_bytes: u64) -> bool {
        self.bytes > most_bytes
    }
}

/// A fill that goes on.
struct BegunFill {
    end: watch::Receiver<Option<FillEnd>>,
    /// Tokens whose permits the fill can take.
    tokens: HashSet<TokenId>,
    added: mpsc::UnboundedSender<Arc<Semaphore>>,
}

/// Permits of the tokens that want a version.
struct FillPermits {
    of_tokens: Vec<Arc<Semaphore>>,
    more: mpsc::UnboundedReceiver<Arc<Semaphore>>,
}

impl FillPermits {
    /// Takes the first permit that is free.
    async fn acquire(&mut self) -> Option<OwnedSemaphorePermit> {
        let waits = self.of_tokens.iter();
        let waits = waits.map(|permits| Arc::clone(permits).acquire_owned());
        let mut waits: FuturesUnordered<_> = waits.collect();
        loop {
            tokio::select! {
                Some(permit) = waits.next() => return permit.ok(),
                Some(permits) = self.more.recv() => {
                    waits.push(Arc::clone(&permits).acquire_owned());
                    self.of_tokens.push(permits);
                }
                else => return None,
            }
        }
    }
}

/// A fill, and who may be asked.
struct Fill {
    key: VersionKey,
    asks_peers: bool,
    asks_hosts: bool,
    /// Token whose request has begun it, and the same for the audit log.
    token: TokenId,
    requested_by: String,
}

/// Sources that may have versions of a name.
struct MissSources {
    /// True if clients wait for the answer.
    is_waiting: bool,
    peers: bool,
    hosts: bool,
}

impl Misses {
    /// Creates the fills of a server.
    pub(in crate::features::registry) fn new(parts: FillParts) -> Self {
        for outcome in OUTCOMES {
            parts.metrics.add(Metric::RegistryFills, &[outcome], 0);
        }
        let limits = parts.limits;
        Self(Arc::new(MissesInner {
            parts,
            begun: Mutex::default(),
            lists: VersionLists::new(),
            permits: Semaphore::new(limits.at_once),
            waiting: Semaphore::new(limits.waiting),
            uses: Mutex::default(),
            asked: Mutex::new(RecentMap::new(ASKED_BYTES)),
        }))
    }

    /// Returns the rule that refuses a missing name in no namespace, if one does.
    pub(in crate::features::registry) fn refusing_rule(
        &self,
        name: &RegistryName,
    ) -> Option<String> {
        let rule = self.0.parts.rules.rule_for(name)?;
        (rule.action == OnMiss::Refuse).then(|| rule.to_string())
    }

    /// Returns the sources to ask for versions of a name. `None`: there is none, or a rule forbids to ask.
    fn sources_of(
        &self,
        token: &Token,
        name: &RegistryName,
        facts: MissFacts<'_>,
    ) -> Option<MissSources> {
        let is_waiting = match decide(name, facts, &self.0.parts.rules).action {
            OnMiss::Background => false,
            OnMiss::Wait => true,
            OnMiss::Never | OnMiss::Refuse => return None,
        };
        let hosts = self.0.parts.hosts.as_ref();
        let sources = MissSources {
            is_waiting,
            peers: facts.is_of_peers,
            // R6: the transaction that adds a version decides about this again.
            hosts: facts.namespace.is_none() && hosts.is_some_and(|hosts| hosts.covers(name)),
        };
        let may_ask = (sources.peers || sources.hosts) && token.allows(TokenAction::Read, name);
        may_ask.then_some(sources)
    }

    /// Answers a request of a token for a version that is not in the registry, and begins a fill if the rules permit it.
    pub(in crate::features::registry) async fn handle_miss(
        &self,
        token: &Token,
        key: &VersionKey,
        facts: MissFacts<'_>,
    ) -> Result<MissAnswer, RegistryError> {
        let Some(sources) = self.sources_of(token, &key.name(), facts) else {
            return Ok(MissAnswer::NotHere);
        };
        let fill = Fill {
            key: key.clone(),
            asks_peers: sources.peers,
            asks_hosts: sources.hosts,
            token: token.id,
            requested_by: format!("token {} ({})", token.id, token.label),
        };
        let begun = match self.0.join(token.id, key) {
            Some(begun) => Some(begun),
            None if self.has_failed(key).await? => None,
            None => match self.begin(fill) {
                Ok(begun) => Some(begun),
                Err(limit) => return Ok(MissAnswer::Limited(limit)),
            },
        };
        let (Some(mut end), true) = (begun, sources.is_waiting) else {
            return Ok(MissAnswer::NotHere);
        };
        let Some(_permits) = self.0.wait(token.id) else {
            return Ok(MissAnswer::NotHere);
        };
        let ended = timeout(self.0.parts.limits.wait, end.wait_for(Option::is_some)).await;
        Ok(match ended.ok().and_then(Result::ok).and_then(|end| *end) {
            Some(FillEnd::Filled) => MissAnswer::Here,
            Some(FillEnd::NotFilled) | None => MissAnswer::NotHere,
        })
    }

    /// Asks peers about a name, if clients wait for such names; for a short time only if there are versions here (R8). Returns
    /// true if they were asked, so that it is worth looking again.
    pub(in crate::features::registry) async fn ask_peers(
        &self,
        token: &Token,
        name: &RegistryName,
        is_here: bool,
        facts: MissFacts<'_>,
    ) -> bool {
        let sources = self.sources_of(token, name, facts);
        if !sources.is_some_and(|sources| sources.peers && sources.is_waiting) {
            return false;
        }
        let asked = lock(&self.0.asked).get(name);
        if asked.is_some_and(|at| at.elapsed() < ASKED_TIME) {
            return false;
        }
        let Some(_permits) = self.0.wait(token.id) else {
            return false;
        };
        let limits = self.0.parts.limits;
        let wait = if is_here {
            limits.list_wait
        } else {
            limits.wait
        };
        // The reading goes on when nobody waits for it any more.
        match timeout(wait, self.0.parts.peers.read_logs(name)).await {
            Ok(Ok(_)) => {
                lock(&self.0.asked).insert(name.clone(), Instant::now(), ASKED_SIZE);
                true
            }
            Ok(Err(error)) => {
                let error = describe_error(&error);
                warn!(error, "Cannot ask peers for a missing version");
                false
            }
            Err(_) => false,
        }
    }

    /// Lists the versions of a Go module that its repository has. `None`: nobody may be asked, or nobody answers in time.
    ///
    /// Where clients do not wait, only a module that is here is looked up (`is_here`): its list would otherwise hide newer
    /// versions from clients that ask nobody else after it.
    pub(in crate::features::registry) async fn versions(
        &self,
        token: &Token,
        path: &GoPath,
        is_here: bool,
        facts: MissFacts<'_>,
    ) -> ListedVersions {
        let name = RegistryName::Go(path.clone());
        let sources = self.sources_of(token, &name, facts);
        let sources = sources.filter(|sources| sources.hosts && (sources.is_waiting || is_here))?;
        let before = match self.0.lists.kept(path) {
            KeptList::New(versions) => return versions,
            KeptList::Old(versions) => versions,
        };
        let Some(mut running) = self.begin_list(token.id, path, before.clone()) else {
            return before;
        };
        let limits = self.0.parts.limits;
        let wait = if is_here || before.is_some() || !sources.is_waiting {
            limits.list_wait
        } else {
            limits.wait
        };
        let left = wait.saturating_sub(running.begun.elapsed());
        let Some(_permits) = self.0.wait(token.id) else {
            return before;
        };
        let ended = timeout(left, running.end.wait_for(Option::is_some)).await;
        match ended.ok().and_then(Result::ok) {
            Some(end) => (*end).clone().flatten(),
            None => before,
        }
    }

    async fn has_failed(&self, key: &VersionKey) -> Result<bool, RegistryError> {
        let store = self.0.parts.registry.store();
        let failure = store.registry_fill_failure(key).await?;
        Ok(failure.is_some_and(|failure| failure.is_in_effect(store.now())))
    }

    /// Begins a fill, or finds the one that goes on.
    fn begin(&self, fill: Fill) -> Result<watch::Receiver<Option<FillEnd>>, FillLimit> {
        let (limits, token) = (self.0.parts.limits, fill.token);
        let mut begun = lock(&self.0.begun);
        if let Some(fill) = begun.get_mut(&fill.key) {
            return Ok(self.0.add_token(token, fill));
        }
        let permits = if begun.len() >= limits.begun {
            Err(FillLimit::Begun)
        } else {
            self.0.with_use(token, |used| {
                if let Some(limit) = used.limit(&limits, self.0.parts.bytes_of_token) {
                    return Err(limit);
                }
                used.fills += 1;
                used.begun += 1;
                Ok(Arc::clone(&used.permits))
            })
        };
        let permits = permits.inspect_err(|limit| self.0.count(limit.outcome()))?;
        let (told, end) = watch::channel(None);
        let (added, more) = mpsc::unbounded_channel();
        let entry = BegunFill {
            end: end.clone(),
            tokens: HashSet::from([token]),
            added,
        };
        begun.insert(fill.key.clone(), entry);
        drop(begun);
        let mut permits = FillPermits {
            of_tokens: vec![permits],
            more,
        };
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            let entry = FillEntry {
                inner: Arc::clone(&inner),
                key: fill.key.clone(),
                token,
            };
            let filled = tokio::select! {
                () = inner.parts.closing.cancelled() => false,
                filled = inner.fill(&fill, &mut permits) => filled,
            };
            drop(entry);
            let end = if filled {
                FillEnd::Filled
            } else {
                FillEnd::NotFilled
            };
            // Nobody needs to wait.
            let _nobody = told.send(Some(end));
        });
        Ok(end)
    }

    /// Begins to read a list, or finds the reading that goes on. `None`: too many have begun.
    fn begin_list(
        &self,
        token: TokenId,
        path: &GoPath,
        before: ListedVersions,
    ) -> Option<RunningList> {
        let limits = self.0.parts.limits;
        let mut running = self.0.lists.running();
        if let Some(list) = running.get(path) {
            return Some(list.clone());
        }
        if running.len() >= limits.begun {
            self.0.count("busy");
            return None;
        }
        let refused = self.0.with_use(token, |used| {
            if used.begun_lists >= limits.begun_of_token {
                return Some("busy");
            }
            if used.lists >= limits.lists_of_token {
                return Some("over_budget");
            }
            used.lists += 1;
            used.begun_lists += 1;
            None
        });
        if let Some(refused) = refused {
            self.0.count(refused);
            return None;
        }
        let (told, end) = watch::channel(None);
        let list = RunningList {
            begun: Instant::now(),
            end,
        };
        running.insert(path.clone(), list.clone());
        drop(running);
        let (inner, path) = (Arc::clone(&self.0), path.clone());
        tokio::spawn(async move {
            let entry = BegunList {
                inner: Arc::clone(&inner),
                path: path.clone(),
                token,
            };
            let versions = tokio::select! {
                () = inner.parts.closing.cancelled() => None,
                versions = inner.list(&path, before) => versions,
            };
            inner.lists.keep(&path, versions.clone());
            drop(entry);
            // Nobody needs to wait.
            let _nobody = told.send(Some(versions));
        });
        Some(list)
    }
}

/// Outcomes of fills, as the metric has them.
const OUTCOMES: [&str; 7] = [
    "filled",
    "not_found",
    "refused",
    "failed",
    "internal",
    "busy",
    "over_budget",
];

/// Entry of a fill that goes on, removed in every case.
struct FillEntry {
    inner: Arc<MissesInner>,
    key: VersionKey,
    token: TokenId,
}

impl Drop for FillEntry {
    fn drop(&mut self) {
        lock(&self.inner.begun).remove(&self.key);
        self.inner.with_use(self.token, |used| {
            used.begun = used.begun.saturating_sub(1);
        });
    }
}

/// Entry of a list that is read, removed in every case.
struct BegunList {
    inner: Arc<MissesInner>,
    path: GoPath,
    token: TokenId,
}

impl Drop for BegunList {
    fn drop(&mut self) {
        self.inner.lists.running().remove(&self.path);
        self.inner.with_use(self.token, |used| {
            used.begun_lists = used.begun_lists.saturating_sub(1);
        });
    }
}

/// A fill in the metric of those in progress, taken out in every case.
struct RunningFill<'a>(&'a Metrics);

impl<'a> RunningFill<'a> {
    fn begin(metrics: &'a Metrics) -> Self {
        metrics.change(Metric::RegistryFillsRunning, &[], 1.0);
        Self(metrics)
    }
}

impl Drop for RunningFill<'_> {
    fn drop(&mut self) {
        self.0.change(Metric::RegistryFillsRunning, &[], -1.0);
    }
}

/// State of a version, as it is read under the lease and while another replica has it.
enum Known {
    Here,
    Failed,
    Missing,
}

impl MissesInner {
    fn count(&self, outcome: &'static str) {
        self.parts.metrics.count(Metric::RegistryFills, &[outcome]);
    }

    /// Finds a fill that goes on, and adds the permits of a token that wants its version too.
    fn join(&self, token: TokenId, key: &VersionKey) -> Option<watch::Receiver<Option<FillEnd>>> {
        let mut begun = lock(&self.begun);
        begun.get_mut(key).map(|fill| self.add_token(token, fill))
    }

    fn add_token(&self, token: TokenId, fill: &mut BegunFill) -> watch::Receiver<Option<FillEnd>> {
        if fill.tokens.insert(token) {
            let permits = self.with_use(token, |used| Arc::clone(&used.permits));
            // A fill that has ended needs none.
            fill.added.send(permits).ok();
        }
        fill.end.clone()
    }

    /// Takes the permits of a waiting request. `None`: too many wait.
    fn wait(&self, token: TokenId) -> Option<(SemaphorePermit<'_>, OwnedSemaphorePermit)> {
        let of_all = self.waiting.try_acquire().ok()?;
        let of_token = self.with_use(token, |used| Arc::clone(&used.waiting));
        Some((of_all, of_token.try_acquire_owned().ok()?))
    }

    /// Calls `act` with everything that a token has begun in this hour.
    fn with_use<T>(&self, token: TokenId, act: impl FnOnce(&mut TokenUse) -> T) -> T {
        let mut tokens = lock(&self.uses);
        tokens.retain(|_, used| used.begun + used.begun_lists > 0 || used.since.elapsed() < HOUR);
        let now = Instant::now();
        let limits = &self.parts.limits;
        let used = tokens
            .entry(token)
            .or_insert_with(|| TokenUse::new(limits, now));
        used.begin_hour(now);
        act(used)
    }

    /// Fetches a version, or waits for another replica to do so. Returns true if the version is there afterwards.
    async fn fill(&self, fill: &Fill, permits: &mut FillPermits) -> bool {
        match Box::pin(self.fill_or_wait(fill, permits)).await {
            Ok(filled) => filled,
            Err(error) => {
                self.count("internal");
                let error = describe_error(&error);
                warn!(error, version = %fill.key, "Cannot fetch a version that is missing");
                false
            }
        }
    }

    async fn fill_or_wait(
        &self,
        fill: &Fill,
        permits: &mut FillPermits,
    ) -> Result<bool, RegistryError> {
        let (key, parts) = (&fill.key, &self.parts);
        let mut all_were_asked = true;
        if fill.asks_peers {
            // It may have come between the request and the fill.
            if let Known::Here = self.known(key).await? {
                return Ok(true);
            }
            all_were_asked = parts.peers.read_logs(&key.name()).await?;
            if let Known::Here = self.known(key).await? {
                return self.filled(key).await;
            }
        }
        if !fill.asks_hosts {
            let refusal = if all_were_asked {
                SourceRefusal::not_found("no other deployment has it")
            } else {
                SourceRefusal::failed("another deployment that may have it did not answer")
            };
            return self.not_filled(key, &refusal).await;
        }
        let lease = LeaseKey::registry_fill(key);
        let purpose = "fetches a version that the registry does not have";
        loop {
            match self.known(key).await? {
                Known::Here => return Ok(true),
                Known::Failed => return Ok(false),
                Known::Missing => {}
            }
            {
                let mut queue = pin!(async {
                    let of_token = permits.acquire().await?;
                    Some((of_token, self.permits.acquire().await.ok()?))
                });
                // A pull, or another replica, can bring the version meanwhile.
                let taken = loop {
                    match timeout(parts.limits.look, &mut queue).await {
                        Ok(taken) => break taken,
                        Err(_) => match self.known(key).await? {
                            Known::Here => return Ok(true),
                            Known::Failed => return Ok(false),
                            Known::Missing => {}
                        },
                    }
                };
                let Some(_permits) = taken else {
                    return Ok(false);
                };
                // Other fills of the token may have ended while this one was in the queue.
                let most = parts.bytes_of_token;
                if self.with_use(fill.token, |used| used.has_stored(most)) {
                    let limit = FillLimit::Bytes;
                    self.count(limit.outcome());
                    info!(version = %key, why = %limit, "A missing version was not fetched");
                    return Ok(false);
                }
                let turn = parts.leases.turn(&lease, purpose, LEASE_TIME).await?;
                if let Some(held) = turn {
                    let _running = RunningFill::begin(&parts.metrics);
                    let work = timeout(parts.limits.fill_time, self.fill_now(fill));
                    match held.run(Box::pin(work)).await {
                        LeaseOutcome::Done(Ok(filled)) => return filled,
                        LeaseOutcome::Done(Err(_)) => {
                            let refusal = SourceRefusal::failed("it takes too long");
                            return self.not_filled(key, &refusal).await;
                        }
                        LeaseOutcome::Lost => {}
                    }
                }
            }
            // Another replica has the lease.
            sleep(LOOK_INTERVAL).await;
        }
    }

    async fn known(&self, key: &VersionKey) -> Result<Known, RegistryError> {
        let store = self.parts.registry.store();
        // A version that a peer has deprecated before anybody added it is not here.
        let known = store
            .registry_version(key)
            .await?
            .map(|version| version.known);
        let is_here = known.is_some_and(|known| {
            known.content().is_some() || known.state() == VersionState::Deleted
        });
        if is_here {
            return Ok(Known::Here);
        }
        let failure = store.registry_fill_failure(key).await?;
        let has_failed = failure.is_some_and(|failure| failure.is_in_effect(store.now()));
        Ok(if has_failed {
            Known::Failed
        } else {
            Known::Missing
        })
    }

    /// Asks the host of a version. The caller holds the lease.
    async fn fill_now(&self, fill: &Fill) -> Result<bool, RegistryError> {
        let key = &fill.key;
        match self.known(key).await? {
            Known::Here => return Ok(true),
            Known::Failed => return Ok(false),
            Known::Missing => {}
        }
        let filled = match &self.parts.hosts {
            Some(hosts) => hosts.fill(key, &fill.requested_by).await,
            None => Err(SourceRefusal::not_found("nobody can be asked")),
        };
        match filled {
            Ok(bytes) => {
                self.with_use(fill.token, |used| {
                    used.bytes = used.bytes.saturating_add(bytes);
                });
                self.filled(key).await
            }
            Err(refusal) => self.not_filled(key, &refusal).await,
        }
    }

    async fn filled(&self, key: &VersionKey) -> Result<bool, RegistryError> {
        let store = self.parts.registry.store();
        store.registry_fill_succeeded(key).await?;
        self.count("filled");
        Ok(true)
    }

    async fn not_filled(
        &self,
        key: &VersionKey,
        refusal: &SourceRefusal,
    ) -> Result<bool, RegistryError> {
        let store = self.parts.registry.store();
        let failed = store
            .registry_fill_failed(key, refusal.fault, &refusal.why)
            .await?;
        self.count(refusal.fault.as_str());
        info!(version = %key, why = refusal.why, until = %failed.retry_at, "A missing version was not fetched");
        Ok(false)
    }

    /// Reads the list of a module.
    async fn list(&self, path: &GoPath, before: ListedVersions) -> ListedVersions {
        let hosts = self.parts.hosts.as_ref()?;
        match hosts.versions(path).await {
            Ok(versions) => Some(Arc::new(versions)),
            Err(refusal) => {
                debug!(%path, why = refusal.why, "Cannot list the versions");
                before.filter(|_| refusal.fault == FillFault::Failed)
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits of a token, and the number of bytes that it may fetch.
    const LIMITS: MissLimits = MissLimits {
        begun_of_token: 2,
        of_token: 3,
        ..MissLimits::DEFAULT
    };
    const MOST: u64 = 1_000;

    #[test]
    fn a_token_fetches_only_so_many_bytes_in_an_hour() {
        let now = Instant::now();
        let mut used = TokenUse::new(&LIMITS, now);
        assert_eq!(used.limit(&LIMITS, MOST), None);
        used.bytes = MOST;
        assert_eq!(used.limit(&LIMITS, MOST), None);
        used.bytes = MOST + 1;
        assert_eq!(used.limit(&LIMITS, MOST), Some(FillLimit::Bytes));
        used.begin_hour(now + HOUR - Duration::from_secs(1));
        assert_eq!(used.limit(&LIMITS, MOST), Some(FillLimit::Bytes));
        used.begin_hour(now + HOUR);
        assert_eq!((used.limit(&LIMITS, MOST), used.bytes), (None, 0));
    }

    #[test]
    fn fetches_of_a_token_have_limits_of_their_own() {
        let mut used = TokenUse::new(&LIMITS, Instant::now());
        used.bytes = MOST + 1;
        used.fills = 3;
        assert_eq!(used.limit(&LIMITS, MOST), Some(FillLimit::Fills));
        used.begun = 2;
        assert_eq!(used.limit(&LIMITS, MOST), Some(FillLimit::Begun));
        assert_eq!(FillLimit::Begun.outcome(), "busy");
        assert_eq!(FillLimit::Fills.outcome(), "over_budget");
        assert_eq!(FillLimit::Bytes.outcome(), "over_budget");
    }
}
