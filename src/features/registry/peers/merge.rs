//! Merges a page of a peer: versions, records, hashes, downloads, conflicts and the last ID are one transaction (R2). Records
//! are decided about one after the other in memory, and then each table gets its rows with one statement.
//! A record that a peer has pushed is merged in the same way, and moves no ID: a page that has it comes later, and says
//! nothing new.
//!
//! The state of a version follows [`merge`](lockkeeper_registry::merge) (R3). Records keep the text and the signature of
//! their maker, and get an ID of this log. A record counts only if its maker is accepted for the name, and for a name that
//! belongs to an owner here only if a pattern names it (R6). Records of this deployment are passed over.
//!
//! Takedowns, versions and bytes are counted by the deployment that has made them, no matter who sends the records. One that
//! makes too many takedowns is braked: none of its records counts until somebody agrees, and then all logs are read again.
//!
//! A version that its maker has fetched from a repository was published by nobody. It never counts in a namespace, is counted
//! apart from those that the maker has published, and comes here only if this deployment would fetch it itself.
//!
//! The states of makers are those of the transaction. Every change of one holds the log as well, so nothing of a peer that
//! was stopped is merged after that.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper_registry::merge::{MergeChanges, PeerPage, merge};
use lockkeeper_registry::names::{NamePattern, NamePrefix, RegistryName};
use lockkeeper_registry::records::{
    DeploymentName, LogAction, Record, RecordChange, VersionContent,
};
use lockkeeper_registry::states::{BaseLocation, KnownVersion, RecordEffect, VersionState};
use lockkeeper_registry::tlog::{TreeEdge, TreeHead};
use lockkeeper_registry::versions::VersionKey;
use url::form_urlencoded::byte_serialize;

use super::super::misses::{FilledCache, repository_lookup};
use super::super::packaging::is_served;
use super::super::rows::{
    conflicts_add_in_tx, contents_remove_in_tx, downloads_add_in_tx, names_add_in_tx,
    packages_add_in_tx, versions_in_tx, versions_write_in_tx,
};
use super::super::store::{
    LogEnd, RegistryVersion, VersionOrigin, broken, cached_in_tx, change_event, log_append_in_tx,
    log_hold_in_tx,
};
use super::super::verify::RecordKeys;
use super::ExchangeSettings;
use super::model::{Peer, PeerState, PeerWalk};
use super::page::{CheckedDiff, PageFault};
use super::store::{kept_error, peers_in_tx, stored, turn_in_tx};
use crate::config::server::{OnMiss, RegistryMisses};
use crate::config::size::shown;
use crate::model::{Cause, OwnerName};
use crate::store::{Result, Store, Tx, execute, kept_time, on_tx};

/// Period in which takedowns are counted. It begins with the first one.
const BRAKE_PERIOD: TimeDelta = TimeDelta::hours(1);

/// Time for which somebody agrees to takedowns. The walk that comes to them begins with the first record.
const AGREED_PERIOD: TimeDelta = TimeDelta::days(1);

/// Part of the limits of versions from elsewhere that other deployments may fill: 1/2. Their records can name any sizes, and
/// must not be the reason why nothing is fetched here any more.
const OF_OTHERS: u64 = 2;

/// A page whose records have valid signatures or do not count.
#[derive(Clone, Debug)]
pub struct VerifiedDiff {
    page: CheckedDiff,
    /// Reason why the record at a place of the page does not count.
    skipped: BTreeMap<usize, String>,
}

/// Outcome of the merge of a page.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The page was merged.
    Merged(MergedPage),
    /// The peer or its walk was changed meanwhile. Nothing was merged.
    Moved,
}

/// Outcome of a record that a peer has pushed.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PushOutcome {
    /// The record was merged. Senders also get this where they may not know the outcome.
    Merged,
    /// The record says nothing new.
    Known,
    /// The version has other content here, which stays.
    Conflict,
    /// The version was taken down.
    Tombstoned,
    /// The record does not count here, for this reason.
    NotAccepted(String),
    /// The push cannot be one of this peer, for this reason.
    Bad(String),
    /// Nothing is exchanged with the peer any more.
    Stopped,
}

/// Changes that a page, or a pushed record, made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedPage {
    /// Number of records that were added to the log here.
    pub records: u64,
    /// Number of versions with two contents.
    pub conflicts: u64,
    /// Number of versions that were taken down.
    pub takedowns: u64,
    /// Deployments that made too many takedowns. Their records after that were passed over.
    pub braked: Vec<DeploymentName>,
    /// True if everything was merged that the peer has.
    pub is_complete: bool,
}

/// Makers whose records count, with their keys and names.
#[derive(Clone, Debug)]
pub struct Makers {
    own: DeploymentName,
    peers: Vec<Peer>,
    /// Patterns of all names for which records count, and `*` if they are too many for a request.
    asked: Vec<String>,
}

/// Pattern of all names.
const EVERYTHING: &str = "*";
/// Maximum number of patterns in a request. The other side takes [`NamePatterns::MAX`](super::model::NamePatterns::MAX).
const MAX_ASKED: usize = 64;
/// Maximum length of the patterns in a request as they are written in its address.
const MAX_ASKED_BYTES: usize = 4_000;

/// Reason why a record does not count, no matter who sent it.
enum MakerFault {
    /// The record was made here.
    Own,
    /// The maker may not make it count.
    Skip(String),
    /// No record of this name was requested from anybody.
    NotRequested,
    /// The signature is not one of its maker.
    Signature,
}

impl Makers {
    /// Takes the peers of this deployment.
    pub fn new(own: DeploymentName, peers: Vec<Peer>) -> Self {
        let makers = peers.iter().filter(|peer| peer.state.is_maker());
        let patterns = makers.flat_map(|peer| peer.accepts.iter().map(ToString::to_string));
        let patterns: BTreeSet<String> = patterns.collect();
        let lines = patterns.iter();
        let written =
            lines.flat_map(|line| byte_serialize(line.as_bytes()).chain(byte_serialize(b"\n")));
        let bytes: usize = written.map(str::len).sum();
        let asked = if patterns.len() > MAX_ASKED || bytes > MAX_ASKED_BYTES {
            vec![EVERYTHING.to_owned()]
        } else {
            patterns.into_iter().collect()
        };
        Self { own, peers, asked }
    }

    /// Returns the keys of all deployments whose records may be in the log here.
    pub fn keys(&self) -> RecordKeys {
        let known = self.peers.iter();
        let known = known.filter(|peer| peer.state != PeerState::Proposed);
        RecordKeys::new(known.flat_map(|peer| {
            let old = peer.old_verifiers.iter();
            old.chain([&peer.verifier]).cloned().collect::<Vec<_>>()
        }))
    }

    /// Returns the patterns of all names for which records count, to request only those.
    pub fn accepted(&self) -> &[String] {
        &self.asked
    }

    fn accepts(&self, name: &RegistryName) -> bool {
        let mut makers = self.peers.iter().filter(|peer| peer.state.is_maker());
        makers.any(|peer| peer.accepts.matches(name))
    }

    fn maker(&self, name: &DeploymentName) -> Option<&Peer> {
        let mut makers = self.peers.iter().filter(|peer| peer.state.is_maker());
        makers.find(|peer| peer.name == *name)
    }

    /// Checks maker and signature of a record.
    fn check(&self, record: &Record) -> std::result::Result<(), MakerFault> {
        let (key, name) = (record.key(), record.key().name());
        let maker = &record.maker().deployment;
        if *maker == self.own {
            return Err(MakerFault::Own);
        }
        if !self.accepts(&name) {
            if self.asked == [EVERYTHING] {
                return Err(MakerFault::Skip(not_accepted(key)));
            }
            return Err(MakerFault::NotRequested);
        }
        let Some(peer) = self.maker(maker) else {
            let why = format!(
                "{key}: its record was made by {maker}, which is no peer whose records count"
            );
            return Err(MakerFault::Skip(why));
        };
        if !peer.accepts.matches(&name) {
            let why = format!("{key}: records of {maker} are not accepted for this name");
            return Err(MakerFault::Skip(why));
        }
        if record.verify(std::slice::from_ref(&peer.verifier)).is_err() {
            // Who relays a record cannot tell that its maker has shown another key to somebody else, or has replaced it.
            if record.verify(&peer.old_verifiers).is_ok() {
                let why = format!("{key}: {maker} has replaced the key of its record");
                return Err(MakerFault::Skip(why));
            }
            return Err(MakerFault::Signature);
        }
        // Clients of this release get exactly one package of each version.
        if let RecordChange::Add(content) = record.change() {
            let mut packages = content.packages.iter();
            let first = packages.next().map(|package| &package.name);
            let has_usual_name = first.is_some_and(|name| is_served(key.kind(), name));
            if !has_usual_name || packages.next().is_some() {
                return Err(MakerFault::Skip(format!(
                    "{key}: it has other packages than this release serves"
                )));
            }
        }
        Ok(())
    }

    /// Verifies the records of a page. Waits for many signatures, so it runs on a thread of its own.
    pub fn verify(
        &self,
        page: CheckedDiff,
        sender: &DeploymentName,
    ) -> std::result::Result<VerifiedDiff, PageFault> {
        let mut skipped = BTreeMap::new();
        for (place, item) in page.items.iter().enumerate() {
            let Some(record) = &item.record else { continue };
            let (key, maker) = (record.key(), &record.maker().deployment);
            let why = match self.check(record) {
                Ok(()) => continue,
                Err(MakerFault::Own) => String::new(),
                Err(MakerFault::Skip(why)) => why,
                Err(MakerFault::NotRequested) => {
                    return Err(PageFault::Refused(format!(
                        "it has a record of {key}, and no such name is accepted"
                    )));
                }
                Err(MakerFault::Signature) if maker == sender => {
                    return Err(PageFault::Diverged(format!(
                        "it has a record of {key} with a wrong signature of {maker}"
                    )));
                }
                Err(MakerFault::Signature) => wrong_signature(record),
            };
            skipped.insert(place, why);
        }
        Ok(VerifiedDiff { page, skipped })
    }

    /// Verifies a record that a peer has pushed.
    pub(super) fn verify_pushed(&self, record: &Record) -> std::result::Result<(), PushOutcome> {
        self.check(record).map_err(|fault| match fault {
            MakerFault::Own => PushOutcome::Known,
            MakerFault::Skip(why) => PushOutcome::NotAccepted(why),
            MakerFault::NotRequested => PushOutcome::NotAccepted(not_accepted(record.key())),
            MakerFault::Signature => PushOutcome::Bad(wrong_signature(record)),
        })
    }
}

fn not_accepted(key: &VersionKey) -> String {
    format!("{key}: no such name is accepted")
}

fn wrong_signature(record: &Record) -> String {
    let (key, maker) = (record.key(), &record.maker().deployment);
    format!("{key}: its record has a wrong signature of {maker}")
}

/// Namespaces of owners here, in lower case.
struct OwnedNames(Vec<(NamePrefix, OwnerName)>);

impl OwnedNames {
    async fn read_in_tx(tx: &mut Tx) -> Result<Self> {
        let rows = on_tx!(tx, db => sqlx::query_as::<_, (String, String, OwnerName)>(
            "SELECT n.kind, n.prefix, o.name FROM registry_namespaces n JOIN owners o ON o.id = n.owner").fetch_all(db))?;
        let rows = rows.into_iter();
        let claimed = rows.map(|(kind, prefix, owner)| {
            let prefix = format!("{kind} {}", prefix.to_ascii_lowercase());
            Ok((prefix.parse().map_err(broken)?, owner))
        });
        claimed.collect::<Result<_>>().map(Self)
    }

    /// Returns namespace and owner of a name, whose case does not count: a name in another case could stand in for it.
    fn of(&self, name: &RegistryName) -> Option<&(NamePrefix, OwnerName)> {
        let folded = name.as_str().to_ascii_lowercase();
        let folded = RegistryName::new(name.kind(), &folded).ok();
        let mut claimed = self.0.iter();
        claimed.find(|(prefix, _)| {
            prefix.covers(name) || folded.as_ref().is_some_and(|folded| prefix.covers(folded))
        })
    }

    fn owner_of(&self, name: &RegistryName) -> Option<&OwnerName> {
        self.of(name).map(|(_, owner)| owner)
    }
}

/// Limit of the takedowns of each maker.
#[derive(Clone, Copy)]
struct TakedownBrake {
    /// Maximum number of takedowns of a deployment in [`BRAKE_PERIOD`].
    takedowns: u64,
    now: DateTime<Utc>,
}

/// Versions that nobody has published: the rules for them, and everything of them that is here.
struct FetchedVersions<'a> {
    misses: &'a RegistryMisses,
    cache: FilledCache,
    /// Contents of those that records are about.
    contents: BTreeMap<VersionKey, VersionContent>,
}

impl<'a> FetchedVersions<'a> {
    /// Takes everything that is known of the versions of records.
    async fn read_in_tx(
        tx: &mut Tx,
        misses: &'a RegistryMisses,
        known: &BTreeMap<VersionKey, RegistryVersion>,
    ) -> Result<Self> {
        let row = on_tx!(tx, db => sqlx::query_as::<_, (i64, i64)>(
            "SELECT bytes, versions FROM registry_cache WHERE id = 1").fetch_one(db))?;
        let cache = FilledCache::of_row(row)?;
        let fetched = known
            .iter()
            .filter(|(_, version)| version.origin.is_some_and(VersionOrigin::is_foreign));
        let contents = fetched.filter_map(|(key, version)| {
            let located = version.known.content()?;
            Some((key.clone(), located.content.clone()))
        });
        Ok(Self {
            misses,
            cache,
            contents: contents.collect(),
        })
    }

    /// Returns true if the version was fetched before, with other files. Its tag was moved, or somebody has lied: readers
    /// of two deployments can do that, so it is no conflict.
    fn has_other_files(&self, key: &VersionKey, theirs: &VersionContent) -> bool {
        let ours = self.contents.get(key);
        ours.is_some_and(|ours| !ours.has_same_files(theirs))
    }

    /// Returns the reason if this deployment would not fetch a version of the name.
    fn check(&self, name: &RegistryName) -> std::result::Result<(), String> {
        let action = self.misses.rules.action_for(name);
        if matches!(action, OnMiss::Never | OnMiss::Refuse) {
            return Err(format!("--registry-on-miss is {action} for the name here"));
        }
        match name {
            RegistryName::Go(path) => repository_lookup(&self.misses.hosts, path).map(drop),
            RegistryName::Module(_) => Err("only Go modules are fetched here".to_owned()),
        }
    }

    /// Counts a version with packages of this size. Returns the reason if there are too many.
    fn add(&mut self, bytes: u64) -> std::result::Result<(), String> {
        let FilledCache { versions, .. } = self.cache;
        if versions >= self.misses.versions / OF_OTHERS {
            return Err(format!(
                "the log has {versions} versions from elsewhere, and others may fill half of --registry-cache-versions, {}",
                self.misses.versions
            ));
        }
        let bytes = self.cache.bytes.saturating_add(bytes);
        let quota = self.misses.quota;
        if bytes > quota.bytes() / OF_OTHERS {
            return Err(format!(
                "the packages from elsewhere would have {}, and others may fill half of --registry-cache-quota, {quota}",
                shown(bytes)
            ));
        }
        self.cache = FilledCache {
            bytes,
            versions: versions + 1,
        };
        Ok(())
    }
}

/// Versions that the records of a deployment have added here.
#[derive(Clone, Copy)]
struct AddedVersions {
    versions: u64,
    /// Number of bytes of their packages.
    bytes: u64,
}

/// A deployment whose records count, with everything that is counted of it.
struct CountedMaker<'a> {
    peer: &'a Peer,
    takedowns: u64,
    since: DateTime<Utc>,
    /// Number of further takedowns to which somebody has agreed.
    agreed: u64,
    versions: u64,
    bytes: u64,
    /// Versions that it has fetched from repositories, which have the same limits.
    fetched: AddedVersions,
    /// Number of records that were passed over because of a limit.
    limited: u64,
    is_braked: bool,
    is_changed: bool,
}

impl<'a> CountedMaker<'a> {
    fn new(peer: &'a Peer, now: DateTime<Utc>) -> Self {
        let is_within = |at: DateTime<Utc>, period: TimeDelta| now - at < period;
        let since = peer
            .takedowns_since
            .filter(|at| is_within(*at, BRAKE_PERIOD));
        let agreed = peer
            .agreed_at
            .filter(|at| is_within(*at, AGREED_PERIOD))
            .map_or(0, |_| peer.agreed);
        Self {
            peer,
            takedowns: since.map_or(0, |_| peer.takedowns),
            since: since.unwrap_or(now),
            agreed,
            versions: peer.versions,
            bytes: peer.bytes,
            fetched: AddedVersions {
                versions: peer.fetched_versions,
                bytes: peer.fetched_bytes,
            },
            limited: 0,
            is_braked: peer.state == PeerState::Braked,
            is_changed: false,
        }
    }

    /// Counts a takedown. Returns false, and brakes the maker, if it is one too many.
    fn take_down(&mut self, brake: TakedownBrake) -> bool {
        if self.takedowns == 0 {
            self.since = brake.now;
        }
        if self.agreed > 0 {
            self.agreed -= 1;
        } else if self.takedowns < brake.takedowns {
            self.takedowns += 1;
        } else {
            self.is_braked = true;
        }
        self.is_changed = true;
        !self.is_braked
    }

    /// Counts versions and bytes of packages. Returns the reason if there are too many.
    fn add(&mut self, versions: u64, bytes: u64) -> std::result::Result<(), String> {
        let (name, limits) = (&self.peer.name, &self.peer.limits);
        let (versions, bytes) = (
            self.versions.saturating_add(versions),
            self.bytes.saturating_add(bytes),
        );
        if versions > limits.versions && versions > self.versions {
            self.pass_over();
            return Err(format!(
                "{name} may add {} versions (change --max-versions)",
                limits.versions
            ));
        }
        if bytes > limits.bytes && bytes > self.bytes {
            self.pass_over();
            return Err(format!(
                "{name} may add {} bytes of packages (change --max-bytes)",
                limits.bytes
            ));
        }
        self.is_changed |= versions > self.versions || bytes > self.bytes;
        (self.versions, self.bytes) = (versions, bytes);
        Ok(())
    }

    /// Returns everything that the maker has fetched, with one more version. The error says why that is too much.
    fn fetched_with(&self, bytes: u64) -> std::result::Result<AddedVersions, String> {
        let limits = &self.peer.limits;
        let fetched = AddedVersions {
            versions: self.fetched.versions.saturating_add(1),
            bytes: self.fetched.bytes.saturating_add(bytes),
        };
        if fetched.versions > limits.versions {
            return Err(format!(
                "it may add {} such versions (change --max-versions)",
                limits.versions
            ));
        }
        if fetched.bytes > limits.bytes {
            return Err(format!(
                "it may add {} bytes of such packages (change --max-bytes)",
                limits.bytes
            ));
        }
        Ok(fetched)
    }

    fn pass_over(&mut self) {
        self.limited += 1;
        self.is_changed = true;
    }
}

/// Decides which records of a page count.
struct RecordCounter<'a> {
    makers: BTreeMap<&'a DeploymentName, CountedMaker<'a>>,
    claimed: &'a OwnedNames,
    known: &'a BTreeMap<VersionKey, KnownVersion>,
    fetched: FetchedVersions<'a>,
    brake: TakedownBrake,
    /// Versions that the page adds as new ones, gives content, or takes away.
    new: BTreeSet<VersionKey>,
    filled: BTreeSet<VersionKey>,
    deleted: BTreeSet<VersionKey>,
}

impl<'a> RecordCounter<'a> {
    /// Takes the peers of the transaction. Signatures were verified with the keys of `makers`.
    fn new(
        peers: &'a [Peer],
        makers: &Makers,
        claimed: &'a OwnedNames,
        known: &'a BTreeMap<VersionKey, KnownVersion>,
        fetched: FetchedVersions<'a>,
        brake: TakedownBrake,
    ) -> Self {
        let counted = peers.iter().filter(|peer| {
            let verified = makers.maker(&peer.name);
            let has_same_key = verified.is_some_and(|verified| verified.verifier == peer.verifier);
            peer.state.is_maker() && has_same_key
        });
        Self {
            makers: counted
                .map(|peer| (&peer.name, CountedMaker::new(peer, brake.now)))
                .collect(),
            claimed,
            known,
            fetched,
            brake,
            new: BTreeSet::new(),
            filled: BTreeSet::new(),
            deleted: BTreeSet::new(),
        }
    }

    /// Counts a record with a valid signature. Returns the reason if it does not count.
    fn count(&mut self, record: &Record) -> std::result::Result<(), String> {
        let (key, name) = (record.key(), record.key().name());
        let maker = &record.maker().deployment;
        let Some(counted) = self.makers.get_mut(maker) else {
            return Err(format!(
                "{key}: records of {maker} do not count any more, since a moment ago"
            ));
        };
        let accepts = &counted.peer.accepts;
        if !accepts.matches(&name) {
            return Err(format!(
                "{key}: records of {maker} are not accepted for this name"
            ));
        }
        let is_fetched = record.fetched().is_some();
        if let Some((namespace, owner)) = self.claimed.of(&name) {
            if is_fetched {
                return Err(format!(
                    "{key}: the name belongs to {owner} here, and {maker} has fetched the version from a repository"
                ));
            }
            if !accepts.name_it(&name, &NamePattern::from(namespace.clone())) {
                return Err(format!(
                    "{key}: the name belongs to {owner} here, and no pattern of {maker} names it"
                ));
            }
        }
        let waits =
            || format!("{key}: {maker} made too many takedowns, and nobody has agreed to them yet");
        if counted.is_braked {
            return Err(waits());
        }
        let known = self.known.get(key);
        let state = known.map_or(VersionState::Absent, KnownVersion::state);
        if state == VersionState::Deleted {
            return Ok(());
        }
        let is_new = state == VersionState::Absent && !self.new.contains(key);
        let bytes = match record.change() {
            // Nothing is taken away from anybody, but the version takes a place.
            RecordChange::Delete(..) if state == VersionState::Absent => None,
            RecordChange::Delete(..) => {
                let is_first = self.deleted.insert(key.clone());
                return if is_first && !counted.take_down(self.brake) {
                    Err(waits())
                } else {
                    Ok(())
                };
            }
            RecordChange::Deprecate(_) => None,
            RecordChange::Add(content) => {
                if is_fetched {
                    let checked = self.fetched.check(&name);
                    checked.map_err(|why| not_fetched(key, maker, &why))?;
                    if self.fetched.has_other_files(key, content) {
                        let why = "it was fetched before with other files, which stay";
                        return Err(not_fetched(key, maker, why));
                    }
                }
                let has_content = known.is_some_and(|known| known.content().is_some());
                let sizes = content.packages.iter().map(|package| package.size);
                let size = sizes.fold(0, u64::saturating_add);
                (!has_content && !self.filled.contains(key)).then_some(size)
            }
        };
        match bytes {
            Some(bytes) if is_fetched => {
                let fetched = counted
                    .fetched_with(bytes)
                    .and_then(|fetched| self.fetched.add(bytes).map(|()| fetched));
                match fetched {
                    Ok(fetched) => (counted.fetched, counted.is_changed) = (fetched, true),
                    Err(why) => {
                        counted.pass_over();
                        return Err(not_fetched(key, maker, &why));
                    }
                }
            }
            Some(_) | None => {
                let added = counted.add(u64::from(is_new), bytes.unwrap_or(0));
                added.map_err(|why| format!("{key}: {why}"))?;
            }
        }
        if is_new {
            self.new.insert(key.clone());
        }
        if bytes.is_some() {
            self.filled.insert(key.clone());
            if is_fetched && let RecordChange::Add(content) = record.change() {
                self.fetched.contents.insert(key.clone(), content.clone());
            }
        }
        Ok(())
    }

    fn is_braked(&self, maker: &DeploymentName) -> bool {
        let counted = self.makers.get(maker);
        counted.is_some_and(|counted| counted.is_braked)
    }

    /// Stores what was counted. Returns the makers that are braked from now on.
    async fn write_in_tx(&self, tx: &mut Tx) -> Result<Vec<DeploymentName>> {
        let mut braked = Vec::new();
        for counted in self.makers.values().filter(|counted| counted.is_changed) {
            let name = &counted.peer.name;
            execute!(
                tx,
                "UPDATE registry_peers SET takedowns = $2, takedowns_at = $3, agreed = $4, versions = $5, bytes = $6, \
                 fetched_versions = $7, fetched_bytes = $8, limited = limited + $9 WHERE name = $1",
                name,
                stored(counted.takedowns),
                counted.since,
                stored(counted.agreed),
                stored(counted.versions),
                stored(counted.bytes),
                stored(counted.fetched.versions),
                stored(counted.fetched.bytes),
                stored(counted.limited),
            )?;
            if counted.is_braked {
                turn_in_tx(tx, name, PeerState::Braked, self.brake.now).await?;
                braked.push(name.clone());
            }
        }
        Ok(braked)
    }
}

/// Says why a version that a deployment has fetched does not come here.
fn not_fetched(key: &VersionKey, maker: &DeploymentName, why: &str) -> String {
    format!("{key}: {maker} has fetched it from a repository, and {why}")
}

/// Records of a page that are merged, and the tree of the walk with all of them.
struct MergedPart<'a> {
    edge: TreeEdge,
    records: Vec<&'a Record>,
    skipped: u64,
    skipped_last: Option<String>,
}

impl Store {
    /// Merges a page that follows the walk of a peer.
    pub(super) async fn registry_peer_merge(
        &self,
        sender: &DeploymentName,
        walk: &PeerWalk,
        makers: &Makers,
        diff: &VerifiedDiff,
        settings: &ExchangeSettings,
    ) -> Result<MergeOutcome> {
        let mut tx = self.begin_shared().await?;
        log_hold_in_tx(&mut tx).await?;
        let peers = peers_in_tx(&mut tx).await?;
        let mut joined = peers.iter().filter(|peer| peer.state == PeerState::Joined);
        let Some(peer) = joined.find(|peer| peer.name == *sender && peer.walk == *walk) else {
            return tx.roll_back().await.map(|()| MergeOutcome::Moved);
        };
        let now = kept_time(self.now());
        let claimed = OwnedNames::read_in_tx(&mut tx).await?;
        let items = diff.page.items.iter();
        let sent: Vec<&Record> = items.filter_map(|item| item.record.as_ref()).collect();
        let versions = versions_in_tx(&mut tx, &sent).await?;
        let brake = TakedownBrake {
            takedowns: settings.takedown_brake,
            now,
        };
        let known = known_of(&versions);
        let fetched = FetchedVersions::read_in_tx(&mut tx, &settings.misses, &versions).await?;
        let mut counter = RecordCounter::new(&peers, makers, &claimed, &known, fetched, brake);
        let part = part(&peer.walk.edge, diff, &mut counter).map_err(broken)?;
        let before = (&known, versions, &claimed);
        let changes = Box::pin(self.merge_in_tx(&mut tx, sender, &part.records, before));
        let changes = changes.await?;
        let is_whole = part.edge.size() == diff.page.head.size;
        let is_complete = is_whole && !counter.is_braked(sender);
        if !peer_write_in_tx(&mut tx, peer, &part, &diff.page, is_complete, now).await? {
            return tx.roll_back().await.map(|()| MergeOutcome::Moved);
        }
        let merged = MergedPage {
            braked: counter.write_in_tx(&mut tx).await?,
            is_complete,
            ..MergedPage::of(&changes)
        };
        tx.commit().await.map(|()| MergeOutcome::Merged(merged))
    }

    /// Merges a record that a peer has pushed. Its signature was verified. Only a record that changes something, a conflict
    /// and a brake are stored: what is passed over is counted with the page that has it.
    pub(super) async fn registry_peer_merge_pushed(
        &self,
        sender: &DeploymentName,
        makers: &Makers,
        record: &Record,
        settings: &ExchangeSettings,
    ) -> Result<(PushOutcome, MergedPage)> {
        let mut tx = self.begin_shared().await?;
        log_hold_in_tx(&mut tx).await?;
        let nothing = MergedPage::default();
        let peers = peers_in_tx(&mut tx).await?;
        let is_sender = |peer: &Peer| peer.name == *sender && peer.state == PeerState::Joined;
        if !peers.iter().any(is_sender) {
            let stopped = (PushOutcome::Stopped, nothing);
            return tx.roll_back().await.map(|()| stopped);
        }
        let claimed = OwnedNames::read_in_tx(&mut tx).await?;
        let versions = versions_in_tx(&mut tx, &[record]).await?;
        let known = known_of(&versions);
        let brake = TakedownBrake {
            takedowns: settings.takedown_brake,
            now: kept_time(self.now()),
        };
        let fetched = FetchedVersions::read_in_tx(&mut tx, &settings.misses, &versions).await?;
        let mut counter = RecordCounter::new(&peers, makers, &claimed, &known, fetched, brake);
        if let Err(why) = counter.count(record) {
            let refused = PushOutcome::NotAccepted(why);
            if !counter.is_braked(&record.maker().deployment) {
                return tx.roll_back().await.map(|()| (refused, nothing));
            }
            let merged = MergedPage {
                braked: counter.write_in_tx(&mut tx).await?,
                ..nothing
            };
            return tx.commit().await.map(|()| (refused, merged));
        }
        let base = BaseLocation::Peer(sender.clone());
        let before = known.get(record.key());
        let before = before.unwrap_or(&KnownVersion::Absent);
        let outcome = match before.apply(record.change(), &base) {
            RecordEffect::Changed(_) => PushOutcome::Merged,
            RecordEffect::Conflict(_) => PushOutcome::Conflict,
            RecordEffect::Known => {
                let known = (PushOutcome::Known, nothing);
                return tx.roll_back().await.map(|()| known);
            }
            RecordEffect::Tombstoned => {
                let tombstoned = (PushOutcome::Tombstoned, nothing);
                return tx.roll_back().await.map(|()| tombstoned);
            }
        };
        let (records, before) = ([record], (&known, versions, &claimed));
        let changes = Box::pin(self.merge_in_tx(&mut tx, sender, &records, before));
        let changes = changes.await?;
        let merged = MergedPage {
            braked: counter.write_in_tx(&mut tx).await?,
            ..MergedPage::of(&changes)
        };
        tx.commit().await.map(|()| (outcome, merged))
    }

    /// Merges records that count: versions, records of the log, downloads and conflicts. `before` is everything that is
    /// known of their versions.
    async fn merge_in_tx(
        &self,
        tx: &mut Tx,
        sender: &DeploymentName,
        records: &[&Record],
        before: (
            &BTreeMap<VersionKey, KnownVersion>,
            BTreeMap<VersionKey, RegistryVersion>,
            &OwnedNames,
        ),
    ) -> Result<MergeChanges> {
        let (known, versions, claimed) = before;
        let now = kept_time(self.now());
        let list = |action| {
            let records = records.iter();
            let records = records.filter(|record| record.change().action() == action);
            records.map(|record| (*record).clone()).collect()
        };
        let page = PeerPage::new(
            sender.clone(),
            list(LogAction::Add),
            list(LogAction::Deprecate),
            list(LogAction::Delete),
        );
        let changes = merge(known, &page.map_err(broken)?);
        let base = BaseLocation::Peer(sender.clone());
        self.merge_write_in_tx(tx, &changes.records, &base, versions, claimed)
            .await?;
        downloads_add_in_tx(tx, &changes.downloads, sender, now).await?;
        conflicts_add_in_tx(tx, &changes.conflicts, sender, now).await?;
        Ok(changes)
    }

    /// Writes versions and appends records, which all change something. The changes are collected first, so that each table
    /// needs one statement, however many records there are.
    async fn merge_write_in_tx(
        &self,
        tx: &mut Tx,
        records: &[Record],
        base: &BaseLocation,
        mut versions: BTreeMap<VersionKey, RegistryVersion>,
        claimed: &OwnedNames,
    ) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let now = kept_time(self.now());
        let (mut new_names, mut changed) = (BTreeSet::new(), BTreeSet::new());
        let (mut added, mut fetched, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        let (mut appended, mut events) = (Vec::new(), Vec::new());
        for record in records {
            let key = record.key();
            let Some(version) = versions.get_mut(key) else {
                continue;
            };
            let RecordEffect::Changed(known) = version.known.apply(record.change(), base) else {
                continue;
            };
            if version.known.state() == VersionState::Absent {
                new_names.insert(key.name());
            }
            *version = version.clone().merged(known, record);
            changed.insert(key);
            match record.change() {
                RecordChange::Add(content) => {
                    added.push((key, content));
                    if record.fetched().is_some() {
                        fetched.push(content);
                    }
                }
                RecordChange::Deprecate(_) => {}
                RecordChange::Delete(..) => deleted.push(key),
            }
            appended.push(record);
            let cause = Cause::new(
                super::by_peer(&record.maker().deployment),
                "merged from a peer",
            );
            let owner = claimed.owner_of(&key.name()).cloned();
            events.push(change_event(key, record.change(), owner, &cause));
        }
        let new_names: Vec<&RegistryName> = new_names.iter().collect();
        names_add_in_tx(tx, &new_names).await?;
        packages_add_in_tx(tx, &added).await?;
        let changed = changed.into_iter().filter_map(|key| versions.get(key));
        let changed: Vec<&RegistryVersion> = changed.collect();
        versions_write_in_tx(tx, &changed).await?;
        cached_in_tx(tx, &fetched).await?;
        // The same records may have added the version, so everything of it is there before it is taken away again.
        contents_remove_in_tx(tx, &deleted, now).await?;
        let end = LogEnd::read_in_tx(tx).await?;
        log_append_in_tx(tx, end, &appended, now).await?;
        self.lock_events_in_tx(tx, events).await
    }
}

impl MergedPage {
    /// Counts changes that are not complete and brake nobody, as far as they tell.
    fn of(changes: &MergeChanges) -> Self {
        let mut takedowns = 0;
        for record in &changes.records {
            takedowns += u64::from(record.change().action() == LogAction::Delete);
        }
        Self {
            records: changes.records.len() as u64,
            conflicts: changes.conflicts.len() as u64,
            takedowns,
            ..Self::default()
        }
    }
}

fn known_of(
    versions: &BTreeMap<VersionKey, RegistryVersion>,
) -> BTreeMap<VersionKey, KnownVersion> {
    let versions = versions.iter();
    let known = versions.map(|(key, version)| (key.clone(), version.known.clone()));
    known.collect()
}

/// Chooses the records of a page that count.
fn part<'a>(
    edge: &TreeEdge,
    diff: &'a VerifiedDiff,
    counter: &mut RecordCounter<'_>,
) -> std::result::Result<MergedPart<'a>, lockkeeper_registry::tlog::TlogError> {
    let mut part = MergedPart {
        edge: edge.clone(),
        records: Vec::new(),
        skipped: 0,
        skipped_last: None,
    };
    for (place, item) in diff.page.items.iter().enumerate() {
        part.edge.add(item.leaf)?;
        let Some(record) = &item.record else { continue };
        let outcome = match diff.skipped.get(&place) {
            Some(why) => Err(why.clone()),
            None => counter.count(record),
        };
        match outcome {
            Ok(()) => part.records.push(record),
            // Records of this deployment come back from everybody.
            Err(why) if why.is_empty() => {}
            Err(why) => {
                part.skipped += 1;
                part.skipped_last = Some(why);
            }
        }
    }
    Ok(part)
}

/// Stores the progress of a walk. Returns false if an administrator has stopped the exchange, or let the log be read again,
/// since the peer was read.
async fn peer_write_in_tx(
    tx: &mut Tx,
    peer: &Peer,
    part: &MergedPart<'_>,
    page: &CheckedDiff,
    is_complete: bool,
    now: DateTime<Utc>,
) -> Result<bool> {
    // A head stays the one to meet until the walk has come there.
    let head: TreeHead = match peer.walk.head {
        Some(seen) if seen.size > part.edge.size() => seen,
        Some(_) | None => page.head,
    };
    let met = match peer.walk.met {
        Some(met) if met.size > part.edge.size() => met,
        Some(_) | None => part.edge.head(),
    };
    let met = Some(met).filter(|met| met.size > 0);
    // Only a walk from the first record has everything that is shared now.
    let sharing = if peer.walk.last_id() == 0 {
        &page.sharing
    } else {
        &peer.walk.sharing
    };
    let written = execute!(
        tx,
        "UPDATE registry_peers SET last_id = $2, edge = $3, head = $4, met = $5, seen_size = $6, sharing = $7, \
         succeeded_at = $8, complete_at = CASE WHEN $9 = 1 THEN $8 ELSE complete_at END, error = NULL, error_at = NULL, \
         skipped = skipped + $10, skipped_last = COALESCE($11, skipped_last) \
         WHERE name = $1 AND state = 'joined' AND walk = $12",
        &peer.name,
        stored(part.edge.size()),
        part.edge.to_string(),
        head.to_string(),
        met.map(|met| met.to_string()),
        stored(page.head.size),
        sharing.as_str(),
        now,
        i64::from(is_complete),
        stored(part.skipped),
        part.skipped_last.as_deref().map(kept_error),
        peer.walk.number,
    )?;
    Ok(written > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::{MissLimits, MissRules, VcsHosts};

    #[test]
    fn a_fetched_version_comes_only_where_it_would_be_fetched() {
        let misses = RegistryMisses {
            hosts: VcsHosts::new(vec!["github.com/acme".parse().unwrap()]),
            rules: MissRules::new(vec![
                "go github.com/acme/never/...=never".parse().unwrap(),
                "go github.com/acme/refuse/...=refuse".parse().unwrap(),
            ]),
            quota: "2KiB".parse().unwrap(),
            versions: 6,
            limits: MissLimits::DEFAULT,
        };
        let mut fetched = FetchedVersions {
            misses: &misses,
            cache: FilledCache {
                bytes: 1000,
                versions: 1,
            },
            contents: BTreeMap::new(),
        };
        let check = |name: &str| fetched.check(&name.parse().unwrap());
        assert_eq!(check("go github.com/acme/net"), Ok(()));
        for (name, part) in [
            (
                "go github.com/acme/never/net",
                "--registry-on-miss is never",
            ),
            (
                "go github.com/acme/refuse/net",
                "--registry-on-miss is refuse",
            ),
            ("go github.com/other/net", "--registry-vcs-allowlist"),
            ("go example.com/net", "--registry-vcs-allowlist"),
            ("module acme/vpc/aws", "only Go modules"),
        ] {
            let why = check(name).unwrap_err();
            assert!(why.contains(part), "{name}: {why}");
        }
        let full = fetched.add(25).unwrap_err();
        assert!(
            full.contains("half of --registry-cache-quota, 2 KiB"),
            "{full}"
        );
        assert_eq!(fetched.add(24), Ok(()));
        assert_eq!(fetched.add(0), Ok(()));
        let full = fetched.add(0).unwrap_err();
        assert!(full.contains("3 versions"), "{full}");
    }
}
