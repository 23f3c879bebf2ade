//! Tells peers at once about records that were made here, so that nobody waits for the next reading of the log.
//!
//! There is no queue. Each peer has a place in the log, and everything after it is due. So nothing is lost when a server ends,
//! nothing grows while a peer is away, and a publication writes nothing more than its record. The place moves when the peer
//! has answered, when a record is none for it, and when the peer has read the log up to there. A deployment pushes only
//! records that it has made and that the peer may read.
//!
//! Each peer has a lease and a task of its own, so one that does not answer keeps nobody waiting. After a failure, the next
//! attempt comes later, with a growing pause. After `--registry-push-attempts` in a row, everything that waits is given up
//! and counted: the peer finds it in the log. The result is the same, because a pushed record is checked and merged like one
//! of a page (`merge.rs`).

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use lockkeeper_registry::records::{DeploymentName, LogId, Record};
use lockkeeper_registry::states::{BaseLocation, RecordEffect};
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};

use super::super::service::RegistryError;
use super::PeerExchange;
use super::merge::{Makers, PushOutcome};
use super::model::{NamePatterns, Peer, PeerState, PeerUrl};
use super::server::SharedNames;
use super::store::{kept_error, stored};
use crate::context::ServerCtx;
use crate::errors::describe_error;
use crate::kit::reconcile::{Reconciler, TickResult, WakingNews};
use crate::leases::{LeaseKey, LeaseOutcome};
use crate::store::{Result as StoreResult, Store, execute_alone, kept_time, on_pool};

/// Number of records of the log that are read at a time.
const AT_A_TIME: i64 = 100;

/// Time for the records of a peer in one turn. An answer that is awaited is read.
const TURN_TIME: Duration = Duration::from_secs(30);

/// Time for which a tick waits for the peers. Those that are slower go on, and the tick ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time of the lease of a peer, which is renewed meanwhile.
const LEASE_TIME: Duration = Duration::from_mins(1);

/// First pause after a failure, which doubles up to the longest one. Ten attempts take about nine minutes.
const FIRST_PAUSE: TimeDelta = TimeDelta::seconds(1);
const LONGEST_PAUSE: TimeDelta = TimeDelta::minutes(5);

pub(in crate::features::registry) const PUSH: Reconciler = Reconciler::new(
    "registry_push",
    "Tells other deployments about new records of the registry.",
    Duration::from_secs(5),
    |ctx| Box::pin(tick(ctx)),
)
.on_every_replica()
.woken_by(WakingNews::Registry);

async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    if ctx.store.registry_pushes_due().await?.is_empty() {
        return Ok(TickResult::default());
    }
    let Some(peers) = PeerExchange::of(ctx).await? else {
        return Ok(TickResult::default());
    };
    let report = Arc::new(peers).push_due(PATIENCE).await?;
    Ok(TickResult {
        looked_at: report.peers,
        repaired: report.records,
    })
}

/// Result of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushReport {
    /// Number of peers that had to be told of something.
    pub peers: u64,
    /// Number of records about which a peer has decided.
    pub records: u64,
}

/// A record for a peer, as JSON. It has no ID of the log, because it moves no place in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PushBody {
    /// Kind and name, such as `module acme/vpc/aws`.
    name: String,
    version: String,
    /// Text of the record, which travels unchanged.
    record: String,
    /// Address of the sender. Packages are requested from the address that an administrator has given, so it can be left
    /// out, and another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

impl PushBody {
    fn new(record: &Record, text: String) -> Self {
        let key = record.key();
        Self {
            name: key.name().to_string(),
            version: key.version(),
            record: text,
            address: None,
        }
    }

    /// Returns the record, if everything else fits it and the address of the sender.
    fn read(&self, sender: &PeerUrl) -> Result<Record, String> {
        let address = self.address.as_deref();
        let is_of_sender =
            |address: &str| address.parse::<PeerUrl>().is_ok_and(|url| url == *sender);
        if address.is_some_and(|address| !is_of_sender(address)) {
            return Err("The address is not the one of this deployment.".to_owned());
        }
        let record = Record::parse(self.record.as_bytes());
        let record = record.map_err(|error| format!("The record cannot be read: {error}."))?;
        let key = record.key();
        if key.name().to_string() != self.name || key.version() != self.version {
            return Err(format!(
                "The record is about {key}, and not about this version."
            ));
        }
        Ok(record)
    }
}

/// Error of a push that is not JSON with these fields.
pub(super) const NO_PUSH: &str = "Send JSON with name, version and record.";

/// Reads a push of the deployment with an address. Returns its record, whose signature is still to be verified.
pub fn check_push(body: &[u8], sender: &PeerUrl) -> Result<Record, String> {
    let push = serde_json::from_slice::<PushBody>(body);
    push.map_err(|_| NO_PUSH.to_owned())?.read(sender)
}

/// A record of the log here, in its turn.
struct NextRecord {
    id: u64,
    /// `None`: the record is none for the peer.
    body: Option<PushBody>,
}

/// State after some records.
enum PushStep {
    /// The peer has decided about so many records, and the next ones can follow.
    GoOn(u64),
    /// The peer has decided about so many records, and there are no others now.
    End(u64),
}

impl PeerExchange {
    /// Tells all peers of the records that are due, each in a task of its own. Returns when all were told, or after a time.
    /// Those that are slower go on.
    pub async fn push_due(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<PushReport, RegistryError> {
        let end = Instant::now() + patience;
        let due = self.registry.store().registry_pushes_due().await?;
        let mut report = PushReport {
            peers: due.len() as u64,
            records: 0,
        };
        let tasks = due.into_iter().map(|name| {
            let peers = Arc::clone(self);
            let task = tokio::spawn(async move {
                match Box::pin(peers.push(&name)).await {
                    Ok(records) => records,
                    Err(error) => {
                        let (peer, error) = (name.as_str(), describe_error(&error));
                        warn!(peer, error, "Cannot tell a peer about new records");
                        0
                    }
                }
            });
            timeout_at(end, task)
        });
        for told in join_all(tasks).await {
            if let Ok(Ok(records)) = told {
                report.records += records;
            }
        }
        Ok(report)
    }

    /// Tells a peer about everything that is due, until the time is over. Returns the number of records that it has decided
    /// about.
    async fn push(&self, name: &DeploymentName) -> Result<u64, RegistryError> {
        let key = LeaseKey::registry_push(name.as_str());
        let purpose = "tells a peer of the registry about new records";
        let Some(lease) = self.leases.turn(&key, purpose, LEASE_TIME).await? else {
            return Ok(0);
        };
        match lease.run(Box::pin(self.push_leased(name))).await {
            LeaseOutcome::Done(pushed) => pushed,
            LeaseOutcome::Lost => Ok(0),
        }
    }

    async fn push_leased(&self, name: &DeploymentName) -> Result<u64, RegistryError> {
        let (store, end) = (self.registry.store(), Instant::now() + TURN_TIME);
        let mut pushed = 0;
        while Instant::now() < end {
            let peers = store.registry_peers().await?;
            let peer = peers
                .iter()
                .find(|peer| peer.name == *name && peer.state == PeerState::Joined);
            // Another replica may have failed a moment ago.
            let is_due = |peer: &&Peer| peer.pushes.next_at.is_none_or(|at| at <= store.now());
            let Some(peer) = peer.filter(is_due) else {
                break;
            };
            match self.push_some(peer, &peers, end).await? {
                PushStep::GoOn(records) => pushed += records,
                PushStep::End(records) => return Ok(pushed + records),
            }
        }
        Ok(pushed)
    }

    /// Tells a peer of the next records, one after the other.
    async fn push_some(
        &self,
        peer: &Peer,
        peers: &[Peer],
        end: Instant,
    ) -> Result<PushStep, RegistryError> {
        let next = self.next_records(peer, peers).await?;
        if next.is_empty() {
            return Ok(PushStep::End(0));
        }
        let (mut handled, mut pushed) = (peer.pushes.last_id, 0);
        for NextRecord { id, body } in &next {
            if let Some(body) = body {
                if Instant::now() >= end {
                    break;
                }
                match self.push_record(peer, body).await {
                    Ok(status) => {
                        debug!(peer = peer.name.as_str(), id, %status, "Told a peer about a record");
                        pushed += 1;
                    }
                    Err(why) => {
                        return self.push_failed(peer, &next, (handled, pushed), &why).await;
                    }
                }
            }
            handled = *id;
        }
        let store = self.registry.store();
        store.registry_pushed(&peer.name, handled, pushed).await?;
        Ok(PushStep::GoOn(pushed))
    }

    /// Pushes a record to a peer. The error says why the peer has not decided about it.
    async fn push_record(&self, peer: &Peer, body: &PushBody) -> Result<StatusCode, String> {
        let token = self.token(peer).map_err(|fault| fault.to_string())?;
        let answered = self.client.push(&peer.url, &token, body).await;
        answered.map_err(|fault| fault.to_string())
    }

    /// Reads the next records, with what the peer gets of them.
    async fn next_records(
        &self,
        peer: &Peer,
        peers: &[Peer],
    ) -> Result<Vec<NextRecord>, RegistryError> {
        let damaged = |id: LogId| RegistryError::Damaged(format!("record {id} cannot be read"));
        let (store, own) = (self.registry.store(), self.registry.name());
        let Ok(first) = LogId::new(stored(peer.pushes.last_id).saturating_add(1)) else {
            return Ok(Vec::new());
        };
        let records = store.registry_records(first, AT_A_TIME).await?;
        let Some((last, _)) = records.last() else {
            return Ok(Vec::new());
        };
        let fetched = store.registry_fetched(first, *last).await?;
        let namespaces = store.registry_namespaces().await?;
        let shared = SharedNames::new(peer, NamePatterns::everything(), namespaces, peers);
        let mut next = Vec::new();
        for (id, text) in records {
            let record = Record::parse(text.as_bytes()).map_err(|_| damaged(id))?;
            let name = record.key().name();
            let is_shared = match record.fetched() {
                Some(_) => shared.has_fetched(&name),
                None => !fetched.contains(&id) && shared.has(&name),
            };
            let is_told = is_shared && record.maker().deployment == *own;
            next.push(NextRecord {
                id: u64::try_from(id.get()).map_err(|_| damaged(id))?,
                body: is_told.then(|| PushBody::new(&record, text)),
            });
        }
        Ok(next)
    }

    /// Stores a failure after the records up to `handled`. The peer has decided about `pushed` records before. After the
    /// last attempt, all records that were read are given up.
    async fn push_failed(
        &self,
        peer: &Peer,
        next: &[NextRecord],
        (handled, pushed): (u64, u64),
        why: &str,
    ) -> Result<PushStep, RegistryError> {
        let store = self.registry.store();
        let before = if pushed > 0 { 0 } else { peer.pushes.attempts };
        let attempts = before.saturating_add(1);
        let name = peer.name.as_str();
        if attempts < self.settings.push_attempts {
            info!(
                peer = name,
                attempts, why, "Cannot tell a peer about new records yet"
            );
            let next_at = store.now() + pause(attempts);
            let failed = store.registry_push_failed(&peer.name, handled, (attempts, next_at), why);
            failed.await?;
            return Ok(PushStep::End(pushed));
        }
        let waiting = next
            .iter()
            .filter(|next| next.id > handled && next.body.is_some());
        let given_up = waiting.count() as u64;
        warn!(
            peer = name,
            attempts,
            given_up,
            why,
            "Gave up telling a peer about new records, which it finds in the log"
        );
        let last = next.last().map_or(handled, |next| next.id);
        let ended = store.registry_pushes_give_up(&peer.name, last, given_up, why);
        ended.await?;
        Ok(PushStep::End(pushed))
    }

    /// Takes the record in a push of a peer. Returns the outcome as the peer may know it.
    pub(super) async fn receive(
        &self,
        sender: &Peer,
        push: &[u8],
    ) -> Result<PushOutcome, RegistryError> {
        let record = match check_push(push, &sender.url) {
            Ok(record) => record,
            Err(why) => return Ok(PushOutcome::Bad(why)),
        };
        let store = self.registry.store();
        let makers = Makers::new(self.registry.name().clone(), store.registry_peers().await?);
        if let Err(outcome) = makers.verify_pushed(&record) {
            return Ok(outcome);
        }
        if sender.state != PeerState::Joined {
            return Ok(PushOutcome::Stopped);
        }
        // Nobody waits for the log because of a record that says nothing new.
        if let Some(version) = store.registry_version(record.key()).await? {
            let base = BaseLocation::Peer(sender.name.clone());
            let known = match version.known.apply(record.change(), &base) {
                RecordEffect::Known => Some(PushOutcome::Known),
                RecordEffect::Tombstoned => Some(PushOutcome::Tombstoned),
                RecordEffect::Changed(_) | RecordEffect::Conflict(_) => None,
            };
            if let Some(outcome) = known {
                return self.tellable(sender, &record, outcome).await;
            }
        }
        let (outcome, merged) = {
            let _place = self.registry.recording.acquire().await;
            let settings = &self.settings;
            let merged = store.registry_peer_merge_pushed(&sender.name, &makers, &record, settings);
            merged.await?
        };
        if outcome == PushOutcome::Merged {
            info!(peer = sender.name.as_str(), version = %record.key(), "Merged a record that a peer has pushed");
        }
        self.has_merged(&sender.name, &merged).await;
        self.tellable(sender, &record, outcome).await
    }

    /// Returns the outcome as the sender may know it. Namespaces, limits, and versions that are not shared with it are not its
    /// affair, so everything that depends on them looks like a record that was merged.
    async fn tellable(
        &self,
        sender: &Peer,
        record: &Record,
        outcome: PushOutcome,
    ) -> Result<PushOutcome, RegistryError> {
        let (peer, key) = (sender.name.as_str(), record.key());
        match &outcome {
            PushOutcome::Known | PushOutcome::Conflict | PushOutcome::Tombstoned => {}
            PushOutcome::NotAccepted(why) => {
                debug!(peer, why = why.as_str(), "A pushed record does not count");
                return Ok(PushOutcome::Merged);
            }
            PushOutcome::Merged | PushOutcome::Bad(_) | PushOutcome::Stopped => return Ok(outcome),
        }
        let store = self.registry.store();
        let version = store.registry_version(key).await?;
        let (namespaces, peers) = (
            store.registry_namespaces().await?,
            store.registry_peers().await?,
        );
        let shared = SharedNames::new(sender, NamePatterns::everything(), namespaces, &peers);
        let is_shared = if version.is_some_and(|version| version.is_fetched()) {
            shared.has_fetched(&key.name())
        } else {
            shared.has(&key.name())
        };
        if is_shared {
            Ok(outcome)
        } else {
            debug!(peer, version = %key, ?outcome, "A pushed record is about a version that is not shared");
            Ok(PushOutcome::Merged)
        }
    }
}

/// Returns the pause after so many failures in a row.
fn pause(attempts: u64) -> Duration {
    let exponent = u32::try_from(attempts.saturating_sub(1).min(20)).unwrap_or(20);
    let pause = FIRST_PAUSE.checked_mul(2_i32.pow(exponent));
    let pause = pause.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
    let jitter = 1.0 + 0.2 * rand::random::<f64>();
    pause.to_std().unwrap_or_default().mul_f64(jitter)
}

impl Store {
    /// Lists joined peers that have to be told of records, and whose pause after a failure is over.
    pub async fn registry_pushes_due(&self) -> StoreResult<Vec<DeploymentName>> {
        on_pool!(self, db => sqlx::query_scalar::<_, DeploymentName>(
            "SELECT name FROM registry_peers WHERE state = 'joined' \
             AND pushed_id < (SELECT COALESCE(MAX(id), 0) FROM registry_log) \
             AND (push_at IS NULL OR push_at <= $1) ORDER BY name")
            .bind(kept_time(self.now())).fetch_all(db))
    }

    /// Moves the place of a peer in the log, after it has decided about `pushed` records.
    async fn registry_pushed(
        &self,
        name: &DeploymentName,
        handled: u64,
        pushed: u64,
    ) -> StoreResult<()> {
        execute_alone!(
            self,
            "UPDATE registry_peers SET pushed_id = $2, push_at = NULL, \
             push_attempts = CASE WHEN $3 = 1 THEN 0 ELSE push_attempts END, \
             push_error = CASE WHEN $3 = 1 THEN NULL ELSE push_error END \
             WHERE name = $1 AND state = 'joined' AND pushed_id < $2",
            name,
            stored(handled),
            i64::from(pushed > 0),
        )
        .map(drop)
    }

    /// Moves the place of a peer that has read the log up to a record.
    pub(super) async fn registry_peer_has_read(
        &self,
        name: &DeploymentName,
        id: u64,
    ) -> StoreResult<()> {
        execute_alone!(
            self,
            "UPDATE registry_peers SET pushed_id = $2 WHERE name = $1 AND pushed_id < $2",
            name,
            stored(id),
        )
        .map(drop)
    }

    /// Stores the number of failed attempts and the time of the next one. The peer has decided about the records up to
    /// `handled`.
    async fn registry_push_failed(
        &self,
        name: &DeploymentName,
        handled: u64,
        (attempts, next_at): (u64, DateTime<Utc>),
        error: &str,
    ) -> StoreResult<()> {
        execute_alone!(
            self,
            "UPDATE registry_peers SET pushed_id = $2, push_attempts = $3, push_at = $4, push_error = $5 \
             WHERE name = $1 AND state = 'joined' AND pushed_id <= $2",
            name,
            stored(handled),
            stored(attempts),
            kept_time(next_at),
            kept_error(error),
        )
        .map(drop)
    }

    /// Gives up telling a peer of the records up to one, and counts them.
    async fn registry_pushes_give_up(
        &self,
        name: &DeploymentName,
        last: u64,
        given_up: u64,
        error: &str,
    ) -> StoreResult<()> {
        execute_alone!(
            self,
            "UPDATE registry_peers SET pushed_id = $2, push_attempts = 0, push_at = NULL, push_error = $3, \
             pushes_given_up = pushes_given_up + $4 WHERE name = $1 AND state = 'joined' AND pushed_id < $2",
            name,
            stored(last),
            kept_error(error),
            stored(given_up),
        )
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_registry::records::{RecordChange, RecordMaker, RecordNotice, UnsignedRecord};
    use lockkeeper_registry::signed_note::NoteSigner;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::features::registry::testing::{fixed_seed, texts_of};
    use crate::model::Reason;

    #[test]
    fn pauses_double_up_to_the_longest_one() {
        for (attempt, seconds) in [
            (1, 1),
            (2, 2),
            (5, 16),
            (9, 256),
            (10, 300),
            (u64::MAX, 300),
        ] {
            let pause = pause(attempt).as_secs_f64();
            let shortest = f64::from(seconds);
            assert!(
                (shortest..=1.2 * shortest).contains(&pause),
                "{attempt}: {pause}"
            );
        }
    }

    const SENDER: &str = "https://two.example.com";

    /// Returns a push of a record about this version, as JSON.
    fn sent(version: &str) -> (Record, Value) {
        let signer = NoteSigner::from_seed("two.example.com", &[7; 32]).unwrap();
        let maker = RecordMaker {
            deployment: "two.example.com".parse().unwrap(),
            id: LogId::FIRST,
        };
        let change = RecordChange::Deprecate(RecordNotice {
            reason: Reason::read("old").unwrap().unwrap(),
            replacement: None,
        });
        let time = "2026-11-03T10:00:00Z".parse().unwrap();
        let record = UnsignedRecord::new(version.parse().unwrap(), change, time, maker);
        let record = record.unwrap().sign(&signer);
        let body = PushBody::new(&record, record.to_string());
        (record, serde_json::to_value(&body).unwrap())
    }

    fn read(sent: &Value) -> Result<String, String> {
        let body: PushBody = serde_json::from_value(sent.clone()).unwrap();
        let record = body.read(&SENDER.parse().unwrap())?;
        Ok(record.to_string())
    }

    #[test]
    fn a_push_is_read_as_it_was_written_and_not_otherwise() {
        let (record, sent) = sent("go example.com/m v1.0.0");
        assert_eq!(read(&sent), Ok(record.to_string()));
        for (field, value, part) in [
            ("name", "go example.com/n", "not about this version"),
            ("name", "module example.com/m", "not about this version"),
            ("version", "v1.0.1", "not about this version"),
            ("version", "", "not about this version"),
            ("record", "", "cannot be read"),
            ("address", "https://three.example.com", "not the one"),
            ("address", "", "not the one"),
        ] {
            let mut changed = sent.clone();
            changed[field] = value.into();
            let why = read(&changed).unwrap_err();
            assert!(why.contains(part), "{field} {value}: {why}");
        }
        let mut with_address = sent;
        with_address["address"] = format!("{SENDER}/").into();
        assert_eq!(read(&with_address), Ok(record.to_string()));
    }

    /// Pieces of what others send.
    const PIECES: &[&str] = &[
        "{",
        "}",
        ",",
        "\"",
        "\\u0000",
        "\\n",
        "\"name\":",
        "\"version\":",
        "\"record\":",
        "\"address\":",
        "\"go example.com/m\"",
        "\"v1.0.0\"",
        "null",
    ];

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn no_text_is_a_push_or_makes_its_reader_panic(text in texts_of(PIECES)) {
            if let Ok(body) = serde_json::from_str::<PushBody>(&text) {
                prop_assert!(body.read(&SENDER.parse().unwrap()).is_err());
            }
        }

        #[test]
        fn a_record_with_another_byte_is_no_other_push(at in any::<proptest::sample::Index>(), byte in 1..=127_u8) {
            let (record, mut sent) = sent("go example.com/m v1.0.0");
            let mut text = record.to_string().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            sent["record"] = String::from_utf8(text.clone()).unwrap().into();
            // The signature is checked later, so the text may say something else about the same version.
            if let Ok(read) = read(&sent) {
                prop_assert_eq!(read.as_bytes(), text.as_slice());
                prop_assert!(read.contains("go example.com/m v1.0.0"), "{read}");
            }
        }
    }
}
