//! Peers, invitations and conflicts in the database.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper_registry::names::{NameKind, NamePattern, RegistryName};
use lockkeeper_registry::records::{DeploymentName, LogId};
use lockkeeper_registry::signed_note::NoteVerifier;
use lockkeeper_registry::tlog::{TreeEdge, TreeHead};

use super::super::namespaces::Visibility;
use super::super::state::registry_access_changed_in_tx;
use super::super::store::{broken, key_of, log_hold_in_tx, registry_event};
use super::model::{
    Invitation, InvitationId, NamePatterns, Peer, PeerConflict, PeerLimits, PeerPushes, PeerState,
    PeerUrl, PeerWalk,
};
use crate::model::{Cause, LockEventKind, Sha256Digest};
use crate::seal::{KeyName, SealedText};
use crate::store::{
    Result, Store, Tx, execute, execute_alone, free_text, kept_time, on_pool, on_tx,
};

/// Number of takedowns to which an administrator agrees at once.
const AGREED: i64 = 1_000;

/// Minimum time between two walks that begin because a peer shares something else.
pub(super) const AGAIN_AFTER: TimeDelta = TimeDelta::hours(1);

/// Maximum number of characters of a stored failure, which may quote a peer.
const MAX_ERROR: usize = 500;

/// Maximum number of deployments that are proposed, so that a member cannot fill the list.
const MAX_PROPOSED: i64 = 50;

/// Maximum number of invitations that are not used.
const MAX_INVITATIONS: i64 = 100;

/// A deployment with which keys and tokens were exchanged.
#[derive(Clone, Debug)]
pub struct JoinedPeer {
    pub name: DeploymentName,
    pub url: PeerUrl,
    pub verifier: NoteVerifier,
    /// Token for requests to the peer.
    pub sealed_token: SealedText,
    /// Hash of the token that it presents here.
    pub token_hash: Sha256Digest,
    pub shares: NamePatterns,
    pub accepts: NamePatterns,
    pub visibility: Visibility,
}

/// Outcome of a join.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinOutcome {
    /// Versions are exchanged from now on.
    Joined,
    /// The name is that of a peer with another key, perhaps of one that was removed and whose names are here.
    OtherKey,
    /// The invitation was used meanwhile, or has expired.
    NoInvitation,
    /// The list has [`Peer::MAX`] peers.
    TooMany,
}

/// Change of what is exchanged with a peer. `None` leaves a part as it is.
#[derive(Clone, Debug, Default)]
pub struct PeerTerms {
    pub shares: Option<NamePatterns>,
    pub accepts: Option<NamePatterns>,
    pub visibility: Option<Visibility>,
    pub max_versions: Option<u64>,
    /// Maximum number of bytes of packages.
    pub max_bytes: Option<u64>,
}

impl PeerTerms {
    /// Highest limit of versions that makes sense.
    pub const MAX_VERSIONS: u64 = 1_000_000_000;
}

macro_rules! peer_sql {
    ($rest:literal) => {
        concat!(
            "SELECT name, url, verifier, old_verifiers, state, state_at, token_key, sealed_token, shares, accepts, \
             visibility, closed, last_id, edge, walk, sharing, head, seen_size, succeeded_at, complete_at, error, error_at, \
             skipped, skipped_last, wrong_packages, takedowns, takedowns_at, agreed, agreed_at, met, again_at, versions, \
             bytes, fetched_versions, fetched_bytes, limited, max_versions, max_bytes, pushed_id, push_attempts, push_at, push_error, pushes_given_up, \
             added_by, added_at FROM registry_peers ",
            $rest
        )
    };
}

#[derive(sqlx::FromRow)]
struct PeerRow {
    name: DeploymentName,
    url: PeerUrl,
    verifier: String,
    old_verifiers: String,
    state: PeerState,
    state_at: DateTime<Utc>,
    token_key: Option<KeyName>,
    sealed_token: Option<Vec<u8>>,
    shares: NamePatterns,
    accepts: NamePatterns,
    visibility: Visibility,
    closed: NamePatterns,
    last_id: i64,
    edge: String,
    walk: i64,
    sharing: String,
    head: Option<String>,
    seen_size: i64,
    succeeded_at: Option<DateTime<Utc>>,
    complete_at: Option<DateTime<Utc>>,
    error: Option<String>,
    error_at: Option<DateTime<Utc>>,
    skipped: i64,
    skipped_last: Option<String>,
    wrong_packages: i64,
    takedowns: i64,
    takedowns_at: Option<DateTime<Utc>>,
    agreed: i64,
    agreed_at: Option<DateTime<Utc>>,
    met: Option<String>,
    again_at: Option<DateTime<Utc>>,
    versions: i64,
    bytes: i64,
    fetched_versions: i64,
    fetched_bytes: i64,
    limited: i64,
    max_versions: i64,
    max_bytes: i64,
    pushed_id: i64,
    push_attempts: i64,
    push_at: Option<DateTime<Utc>>,
    push_error: Option<String>,
    pushes_given_up: i64,
    added_by: String,
    added_at: DateTime<Utc>,
}

/// The row of a peer contradicts itself.
#[derive(Debug, thiserror::Error)]
#[error("the row of the peer {0} is damaged")]
struct DamagedPeer(DeploymentName);

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Returns a number as databases have it.
pub(super) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl PeerRow {
    fn peer(self) -> Result<Peer> {
        let edge: TreeEdge = self.edge.parse().map_err(broken)?;
        if stored(edge.size()) != self.last_id {
            return Err(broken(DamagedPeer(self.name)));
        }
        let head: Option<TreeHead> = self
            .head
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(broken)?;
        let met: Option<TreeHead> = self
            .met
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(broken)?;
        let old_verifiers: std::result::Result<Vec<NoteVerifier>, _> =
            self.old_verifiers.lines().map(str::parse).collect();
        Ok(Peer {
            name: self.name,
            url: self.url,
            verifier: self.verifier.parse().map_err(broken)?,
            old_verifiers: old_verifiers.map_err(broken)?,
            state: self.state,
            state_since: self.state_at,
            sealed_token: self
                .token_key
                .zip(self.sealed_token)
                .map(|(key, bytes)| SealedText { key, bytes }),
            shares: self.shares,
            accepts: self.accepts,
            visibility: self.visibility,
            closed: self.closed,
            walk: PeerWalk {
                number: self.walk,
                edge,
                head,
                met,
                sharing: self.sharing,
            },
            seen_size: count(self.seen_size),
            succeeded_at: self.succeeded_at,
            complete_at: self.complete_at,
            error: self.error.zip(self.error_at),
            skipped: count(self.skipped),
            skipped_last: self.skipped_last,
            wrong_packages: count(self.wrong_packages),
            takedowns: count(self.takedowns),
            takedowns_since: self.takedowns_at,
            agreed: count(self.agreed),
            agreed_at: self.agreed_at,
            again_at: self.again_at,
            versions: count(self.versions),
            bytes: count(self.bytes),
            fetched_versions: count(self.fetched_versions),
            fetched_bytes: count(self.fetched_bytes),
            limited: count(self.limited),
            limits: PeerLimits {
                versions: count(self.max_versions),
                bytes: count(self.max_bytes),
            },
            pushes: PeerPushes {
                last_id: count(self.pushed_id),
                attempts: count(self.push_attempts),
                next_at: self.push_at,
                error: self.push_error,
                given_up: count(self.pushes_given_up),
            },
            added_by: self.added_by,
            added_at: self.added_at,
        })
    }
}

macro_rules! invitation_sql {
    ($rest:literal) => {
        concat!(
            "SELECT hash, url, shares, accepts, visibility, created_by, created_at, expires_at \
             FROM registry_invitations ",
            $rest
        )
    };
}

#[derive(sqlx::FromRow)]
struct InvitationRow {
    hash: Sha256Digest,
    url: PeerUrl,
    shares: NamePatterns,
    accepts: NamePatterns,
    visibility: Visibility,
    created_by: String,
    created_at: Option<DateTime<Utc>>,
    expires_at: DateTime<Utc>,
}

impl InvitationRow {
    fn invitation(self) -> Invitation {
        Invitation {
            id: InvitationId::of(&self.hash),
            url: self.url,
            shares: self.shares,
            accepts: self.accepts,
            visibility: self.visibility,
            created_by: self.created_by,
            created_at: self.created_at,
            expires_at: self.expires_at,
        }
    }
}

#[derive(sqlx::FromRow)]
struct ConflictRow {
    kind: NameKind,
    name: String,
    version: String,
    peer: DeploymentName,
    record: String,
    since: DateTime<Utc>,
}

impl ConflictRow {
    fn conflict(self) -> Result<PeerConflict> {
        Ok(PeerConflict {
            key: key_of(self.kind, &self.name, &self.version)?,
            peer: self.peer,
            record: self.record,
            since: self.since,
        })
    }
}

/// Formats a failure as it is stored and shown: one line without control characters.
pub(super) fn kept_error(error: &str) -> String {
    let shown = error
        .chars()
        .map(|c| if crate::model::is_hidden(c) { ' ' } else { c });
    shown.take(MAX_ERROR).collect()
}

/// Formats patterns of names for the audit log.
fn on_a_line(patterns: &NamePatterns) -> String {
    let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    if patterns.is_empty() {
        "nothing".to_owned()
    } else {
        patterns.join(", ")
    }
}

/// Formats what is exchanged with a deployment for people, in the words of the command line.
pub(in crate::features::registry) fn terms_text(
    shares: &NamePatterns,
    accepts: &NamePatterns,
    visibility: Visibility,
) -> String {
    format!(
        "share {}; accept {}; visibility {visibility}",
        on_a_line(shares),
        on_a_line(accepts)
    )
}

/// Formats a change of what is exchanged with a peer for the audit log.
fn changes_text(old: &Peer, new: &Peer) -> String {
    let parts = [
        ("share", [on_a_line(&old.shares), on_a_line(&new.shares)]),
        ("accept", [on_a_line(&old.accepts), on_a_line(&new.accepts)]),
        (
            "visibility",
            [old.visibility.to_string(), new.visibility.to_string()],
        ),
        (
            "max_versions",
            [
                old.limits.versions.to_string(),
                new.limits.versions.to_string(),
            ],
        ),
        (
            "max_bytes",
            [old.limits.bytes.to_string(), new.limits.bytes.to_string()],
        ),
    ];
    let changed = parts.iter().filter(|(_, [before, after])| before != after);
    let changed: Vec<String> = changed
        .map(|(what, [before, after])| format!("{what} {before} -> {after}"))
        .collect();
    if changed.is_empty() {
        "to what it was".to_owned()
    } else {
        changed.join("; ")
    }
}

impl Store {
    /// Adds an invitation with the hash of its word. Returns false if there are too many.
    pub async fn registry_invite(
        &self,
        word: &Sha256Digest,
        invitation: &Invitation,
        cause: &Cause,
    ) -> Result<bool> {
        let mut tx = self.begin().await?;
        let now = kept_time(self.now());
        execute!(
            &mut tx,
            "DELETE FROM registry_invitations WHERE expires_at <= $1",
            now
        )?;
        let open = on_tx!(&mut tx, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM registry_invitations").fetch_one(db))?;
        if open >= MAX_INVITATIONS {
            return tx.roll_back().await.map(|()| false);
        }
        execute!(
            &mut tx,
            "INSERT INTO registry_invitations (hash, url, shares, accepts, visibility, created_by, created_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            word,
            &invitation.url,
            &invitation.shares,
            &invitation.accepts,
            invitation.visibility,
            free_text(&invitation.created_by).as_ref(),
            invitation.created_at.map(kept_time),
            kept_time(invitation.expires_at),
        )?;
        let terms = terms_text(
            &invitation.shares,
            &invitation.accepts,
            invitation.visibility,
        );
        let what = format!("invited {}: {terms}", invitation.url);
        let event = registry_event(LockEventKind::RegistryPeerChanged, None, &what, cause);
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        tx.commit().await.map(|()| true)
    }

    /// Returns the invitation with this word, unless it was used or has expired.
    pub async fn registry_invitation(&self, word: &Sha256Digest) -> Result<Option<Invitation>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, InvitationRow>(
            invitation_sql!("WHERE hash = $1 AND expires_at > $2"))
            .bind(word).bind(kept_time(self.now())).fetch_optional(db))?;
        Ok(row.map(InvitationRow::invitation))
    }

    /// Lists the invitations that nobody has used and that have not expired, the one that ends first first.
    pub async fn registry_invitations(&self) -> Result<Vec<Invitation>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, InvitationRow>(
            invitation_sql!("WHERE expires_at > $1 ORDER BY expires_at, hash"))
            .bind(kept_time(self.now())).fetch_all(db))?;
        Ok(rows.into_iter().map(InvitationRow::invitation).collect())
    }

    /// Ends an invitation that nobody has used. Returns it, or `None` if there is no such one.
    pub async fn registry_invitation_withdraw(
        &self,
        id: &InvitationId,
        cause: &Cause,
    ) -> Result<Option<Invitation>> {
        let mut tx = self.begin().await?;
        let row = on_tx!(&mut tx, db => sqlx::query_as::<_, InvitationRow>(
            invitation_sql!("WHERE SUBSTR(hash, 1, 16) = $1 AND expires_at > $2 ORDER BY hash LIMIT 1"))
            .bind(id.as_str()).bind(kept_time(self.now())).fetch_optional(db))?;
        let Some(row) = row else {
            return tx.roll_back().await.map(|()| None);
        };
        let withdrawn = execute!(
            &mut tx,
            "DELETE FROM registry_invitations WHERE hash = $1",
            &row.hash
        )?;
        if withdrawn == 0 {
            // The deployment has joined meanwhile.
            return tx.roll_back().await.map(|()| None);
        }
        let what = format!("withdrew the invitation of {}", row.url);
        let event = registry_event(LockEventKind::RegistryPeerChanged, None, &what, cause);
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        tx.commit().await.map(|()| Some(row.invitation()))
    }

    /// Returns true if the list has a place for the deployment at an address, or has it already.
    pub(super) async fn registry_peer_has_place(&self, url: &PeerUrl) -> Result<bool> {
        let mut peers = self.registry_peers().await?;
        // Proposals and removed peers take no place.
        peers.retain(|peer| is_known(peer.state));
        let is_there = peers.iter().any(|peer| peer.url == *url);
        let count = i64::try_from(peers.len()).unwrap_or(i64::MAX);
        Ok(is_there || count < Peer::MAX)
    }

    /// Adds a peer, or gives a peer with the same key other tokens. With `invitation`: uses the one with this word.
    pub async fn registry_peer_join(
        &self,
        new: &JoinedPeer,
        invitation: Option<&Sha256Digest>,
        cause: &Cause,
    ) -> Result<JoinOutcome> {
        let mut tx = self.begin().await?;
        log_hold_in_tx(&mut tx).await?;
        let now = kept_time(self.now());
        if let Some(word) = invitation {
            let used = execute!(
                &mut tx,
                "DELETE FROM registry_invitations WHERE hash = $1 AND expires_at > $2",
                word,
                now,
            )?;
            if used == 0 {
                return tx.roll_back().await.map(|()| JoinOutcome::NoInvitation);
            }
        }
        let old = peer_in_tx(&mut tx, &new.name).await?;
        let is_other = |old: &Peer| old.verifier != new.verifier;
        // The row of a removed peer says who reads its versions, so nobody else takes it over.
        if old
            .as_ref()
            .is_some_and(|old| is_other(old) && (is_known(old.state) || has_names(old)))
        {
            return tx.roll_back().await.map(|()| JoinOutcome::OtherKey);
        }
        // Proposals and removed peers take no place, so a member that makes up deployments keeps nobody out.
        let peers = on_tx!(&mut tx, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM registry_peers WHERE state NOT IN ('proposed', 'removed')").fetch_one(db))?;
        let is_new = old.as_ref().is_none_or(|old| !is_known(old.state));
        if is_new && peers >= Peer::MAX {
            return tx.roll_back().await.map(|()| JoinOutcome::TooMany);
        }
        // Versions that are here stay private until an administrator opens them, no matter what the invitation says.
        let visibility = match &old {
            Some(old) if old.visibility == Visibility::Owner && has_names(old) => Visibility::Owner,
            Some(_) | None => new.visibility,
        };
        let closed = match &old {
            Some(old) => still_closed(old, &new.accepts, visibility, false),
            None => NamePatterns::default(),
        };
        // Records in the log may be signed with the key that an administrator has removed.
        let old_verifiers = match &old {
            Some(old) if is_other(old) && old.state == PeerState::Removed => {
                let keys = old.old_verifiers.iter().chain([&old.verifier]);
                keys.map(|key| format!("{key}\n"))
                    .collect::<Vec<_>>()
                    .concat()
            }
            Some(old) => {
                let keys = old.old_verifiers.iter();
                keys.map(|key| format!("{key}\n"))
                    .collect::<Vec<_>>()
                    .concat()
            }
            None => String::new(),
        };
        execute!(
            &mut tx,
            "INSERT INTO registry_peers (name, url, verifier, old_verifiers, state, state_at, token_key, sealed_token, \
             token_hash, shares, accepts, visibility, last_id, edge, walk, sharing, seen_size, skipped, wrong_packages, \
             takedowns, added_by, added_at, closed) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, '0', 1, '', 0, 0, 0, 0, $13, $6, $14) \
             ON CONFLICT (name) DO UPDATE SET url = excluded.url, verifier = excluded.verifier, \
             old_verifiers = excluded.old_verifiers, state = excluded.state, state_at = excluded.state_at, \
             token_key = excluded.token_key, sealed_token = excluded.sealed_token, token_hash = excluded.token_hash, \
             shares = excluded.shares, accepts = excluded.accepts, visibility = excluded.visibility, \
             closed = excluded.closed, error = NULL, error_at = NULL",
            &new.name,
            &new.url,
            new.verifier.to_string(),
            old_verifiers.as_str(),
            PeerState::Joined,
            now,
            &new.sealed_token.key,
            new.sealed_token.bytes.as_slice(),
            &new.token_hash,
            &new.shares,
            &new.accepts,
            visibility,
            free_text(&cause.actor.login).as_ref(),
            &closed,
        )?;
        if old.as_ref().is_some_and(is_other) {
            forget_log_in_tx(&mut tx, &new.name).await?;
        }
        walk_again_in_tx(&mut tx).await?;
        pushes_begin_in_tx(&mut tx, &new.name).await?;
        self.downloads_again_in_tx(&mut tx, &new.name).await?;
        registry_access_changed_in_tx(&mut tx).await?;
        let terms = terms_text(&new.shares, &new.accepts, visibility);
        let what = format!("joined: {terms}");
        self.peer_event_in_tx(&mut tx, &new.name, &what, cause)
            .await?;
        tx.commit().await.map(|()| JoinOutcome::Joined)
    }

    /// Lists all peers by name, also proposed and removed ones.
    pub async fn registry_peers(&self) -> Result<Vec<Peer>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, PeerRow>(peer_sql!("ORDER BY name")).fetch_all(db))?;
        rows.into_iter().map(PeerRow::peer).collect()
    }

    /// Returns a peer in any state.
    pub async fn registry_peer(&self, name: &DeploymentName) -> Result<Option<Peer>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, PeerRow>(peer_sql!("WHERE name = $1"))
            .bind(name).fetch_optional(db))?;
        row.map(PeerRow::peer).transpose()
    }

    /// Returns the peer that presents the token with this hash.
    pub async fn registry_peer_by_token(&self, token: &Sha256Digest) -> Result<Option<Peer>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, PeerRow>(peer_sql!("WHERE token_hash = $1"))
            .bind(token).fetch_optional(db))?;
        row.map(PeerRow::peer).transpose()
    }

    /// Adds deployments that a member knows, as proposals. Known names stay as they are.
    pub async fn registry_peers_propose(
        &self,
        from: &DeploymentName,
        proposed: &[(PeerUrl, NoteVerifier)],
    ) -> Result<u64> {
        let mut tx = self.begin().await?;
        let now = kept_time(self.now());
        let mut there = on_tx!(&mut tx, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM registry_peers WHERE state = 'proposed'").fetch_one(db))?;
        let mut added = 0;
        for (url, verifier) in proposed {
            let Ok(name) = verifier.name().parse::<DeploymentName>() else {
                continue;
            };
            if there >= MAX_PROPOSED {
                break;
            }
            let new = execute!(
                &mut tx,
                "INSERT INTO registry_peers (name, url, verifier, old_verifiers, state, state_at, shares, accepts, \
                 visibility, last_id, edge, walk, sharing, seen_size, skipped, wrong_packages, takedowns, added_by, \
                 added_at) \
                 VALUES ($1, $2, $3, '', $4, $5, '', '', $6, 0, '0', 1, '', 0, 0, 0, 0, $7, $5) \
                 ON CONFLICT (name) DO NOTHING",
                &name,
                url,
                verifier.to_string(),
                PeerState::Proposed,
                now,
                Visibility::Owner,
                from.as_str(),
            )?;
            there += i64::try_from(new).unwrap_or(0);
            added += new;
        }
        tx.commit().await.map(|()| added)
    }

    /// Changes the state of a peer. Returns the peer, or `None` if there is none in one of the states `from`. No page is
    /// merged meanwhile, and none that was checked before counts for a peer that was stopped.
    pub async fn registry_peer_turn(
        &self,
        name: &DeploymentName,
        from: &[PeerState],
        to: PeerState,
        cause: &Cause,
    ) -> Result<Option<Peer>> {
        let mut tx = self.begin().await?;
        log_hold_in_tx(&mut tx).await?;
        let Some(peer) = peer_in_tx(&mut tx, name).await? else {
            return tx.roll_back().await.map(|()| None);
        };
        if !from.contains(&peer.state) {
            return tx.roll_back().await.map(|()| None);
        }
        turn_in_tx(&mut tx, name, to, self.now()).await?;
        match to {
            PeerState::Removed => {
                execute!(
                    &mut tx,
                    "UPDATE registry_peers SET token_key = NULL, sealed_token = NULL, token_hash = NULL, shares = '', \
                     error = NULL, error_at = NULL WHERE name = $1",
                    name,
                )?;
                others_walk_again_in_tx(&mut tx, name).await?;
            }
            PeerState::Joined | PeerState::Approved => {
                execute!(
                    &mut tx,
                    "UPDATE registry_peers SET error = NULL, error_at = NULL WHERE name = $1",
                    name,
                )?;
                match peer.state {
                    PeerState::Braked => agree_in_tx(&mut tx, name, self.now()).await?,
                    PeerState::Diverged => forget_log_in_tx(&mut tx, name).await?,
                    PeerState::Proposed
                    | PeerState::Approved
                    | PeerState::Joined
                    | PeerState::Suspended
                    | PeerState::Removed => {}
                }
                // Others may have relayed records of it, which did not count.
                walk_again_in_tx(&mut tx).await?;
                pushes_begin_in_tx(&mut tx, name).await?;
                self.downloads_again_in_tx(&mut tx, name).await?;
            }
            PeerState::Proposed
            | PeerState::Suspended
            | PeerState::Braked
            | PeerState::Diverged => others_walk_again_in_tx(&mut tx, name).await?,
        }
        self.peer_event_in_tx(&mut tx, name, to.as_str(), cause)
            .await?;
        let peer = peer_in_tx(&mut tx, name).await?;
        tx.commit().await.map(|()| peer)
    }

    /// Lets the records of a proposed deployment count for these names. Returns the peer, or `None` if there is no such
    /// proposal.
    pub async fn registry_peer_approve(
        &self,
        name: &DeploymentName,
        accepts: &NamePatterns,
        cause: &Cause,
    ) -> Result<Option<Peer>> {
        let mut tx = self.begin().await?;
        log_hold_in_tx(&mut tx).await?;
        let peer = peer_in_tx(&mut tx, name).await?;
        if peer.is_none_or(|peer| peer.state != PeerState::Proposed) {
            return tx.roll_back().await.map(|()| None);
        }
        turn_in_tx(&mut tx, name, PeerState::Approved, self.now()).await?;
        execute!(
            &mut tx,
            "UPDATE registry_peers SET accepts = $2 WHERE name = $1",
            name,
            accepts,
        )?;
        walk_again_in_tx(&mut tx).await?;
        let what = format!("{}: accept {}", PeerState::Approved, on_a_line(accepts));
        self.peer_event_in_tx(&mut tx, name, &what, cause).await?;
        let peer = peer_in_tx(&mut tx, name).await?;
        tx.commit().await.map(|()| peer)
    }

    /// Changes what is exchanged with a peer. All logs are read again, because more records may count.
    pub async fn registry_peer_change(
        &self,
        name: &DeploymentName,
        terms: &PeerTerms,
        cause: &Cause,
    ) -> Result<Option<Peer>> {
        let mut tx = self.begin().await?;
        log_hold_in_tx(&mut tx).await?;
        let Some(old) = peer_in_tx(&mut tx, name).await? else {
            return tx.roll_back().await.map(|()| None);
        };
        let accepts = terms.accepts.as_ref().unwrap_or(&old.accepts);
        let visibility = terms.visibility.unwrap_or(old.visibility);
        let is_opened = terms.visibility == Some(Visibility::Public);
        let closed = still_closed(&old, accepts, visibility, is_opened);
        execute!(
            &mut tx,
            "UPDATE registry_peers SET shares = $2, accepts = $3, visibility = $4, max_versions = $5, max_bytes = $6, \
             closed = $7 WHERE name = $1",
            name,
            terms.shares.as_ref().unwrap_or(&old.shares),
            accepts,
            visibility,
            stored(terms.max_versions.unwrap_or(old.limits.versions)),
            stored(terms.max_bytes.unwrap_or(old.limits.bytes)),
            &closed,
        )?;
        walk_again_in_tx(&mut tx).await?;
        self.downloads_again_in_tx(&mut tx, name).await?;
        registry_access_changed_in_tx(&mut tx).await?;
        let peer = peer_in_tx(&mut tx, name).await?;
        let what = match &peer {
            Some(new) => format!("changed: {}", changes_text(&old, new)),
            None => "changed".to_owned(),
        };
        self.peer_event_in_tx(&mut tx, name, &what, cause).await?;
        tx.commit().await.map(|()| peer)
    }

    /// Begins a walk through the log of a peer again, because it shares something else. Returns false if the walk is
    /// another one by now, or if such a walk began less than [`AGAIN_AFTER`] ago: the peer decides what it shares, and must
    /// not keep this server busy.
    pub(super) async fn registry_peer_walk_again(
        &self,
        name: &DeploymentName,
        walk: i64,
        sharing: &str,
    ) -> Result<bool> {
        let now = self.now();
        let changed = execute_alone!(
            self,
            "UPDATE registry_peers SET last_id = 0, edge = '0', walk = walk + 1, sharing = $3, skipped = 0, \
             skipped_last = NULL, again_at = $4 WHERE name = $1 AND walk = $2 AND (again_at IS NULL OR again_at <= $5)",
            name,
            walk,
            sharing,
            kept_time(now),
            kept_time(now - AGAIN_AFTER),
        )?;
        Ok(changed > 0)
    }

    /// Records a failed exchange with a peer.
    pub(super) async fn registry_peer_failed(
        &self,
        name: &DeploymentName,
        error: &str,
    ) -> Result<()> {
        execute_alone!(
            self,
            "UPDATE registry_peers SET error = $2, error_at = COALESCE(error_at, $3) \
             WHERE name = $1 AND state = 'joined'",
            name,
            kept_error(error),
            kept_time(self.now()),
        )
        .map(drop)
    }

    /// Stops the exchange with a peer whose log is not the one that was seen, unless another walk began.
    pub(super) async fn registry_peer_diverged(
        &self,
        name: &DeploymentName,
        walk: i64,
        error: &str,
        cause: &Cause,
    ) -> Result<bool> {
        let mut tx = self.begin().await?;
        log_hold_in_tx(&mut tx).await?;
        let now = kept_time(self.now());
        let changed = execute!(
            &mut tx,
            "UPDATE registry_peers SET state = $3, state_at = $4, error = $5, error_at = $4 \
             WHERE name = $1 AND walk = $2 AND state = 'joined'",
            name,
            walk,
            PeerState::Diverged,
            now,
            kept_error(error),
        )?;
        if changed > 0 {
            registry_access_changed_in_tx(&mut tx).await?;
            others_walk_again_in_tx(&mut tx, name).await?;
            let what = format!("diverged: {}", kept_error(error));
            self.peer_event_in_tx(&mut tx, name, &what, cause).await?;
        }
        tx.commit().await.map(|()| changed > 0)
    }

    /// Counts a package of a peer that is not the recorded one.
    pub(super) async fn registry_peer_wrong_package(&self, name: &DeploymentName) -> Result<()> {
        execute_alone!(
            self,
            "UPDATE registry_peers SET wrong_packages = wrong_packages + 1 WHERE name = $1",
            name,
        )
        .map(drop)
    }

    /// Lists versions with two contents, the newest conflict first.
    pub async fn registry_conflicts(&self, limit: i64) -> Result<Vec<PeerConflict>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, ConflictRow>(
            "SELECT kind, name, version, peer, record, since FROM registry_conflicts \
             ORDER BY since DESC, kind, name, version, peer LIMIT $1").bind(limit).fetch_all(db))?;
        rows.into_iter().map(ConflictRow::conflict).collect()
    }

    /// Lists versions whose other content came from a peer, the newest conflict first. A peer with many conflicts hides
    /// none of another one.
    pub async fn registry_conflicts_with(
        &self,
        peer: &DeploymentName,
        limit: i64,
    ) -> Result<Vec<PeerConflict>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, ConflictRow>(
            "SELECT kind, name, version, peer, record, since FROM registry_conflicts WHERE peer = $1 \
             ORDER BY since DESC, kind, name, version LIMIT $2").bind(peer).bind(limit).fetch_all(db))?;
        rows.into_iter().map(ConflictRow::conflict).collect()
    }

    /// Returns the number of versions with two contents.
    pub async fn registry_conflict_count(&self) -> Result<i64> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM registry_conflicts").fetch_one(db))
    }

    /// Returns names with a version that has this package, and true if all of these came from repositories: the first
    /// names, or those after one.
    pub(super) async fn registry_names_of_package(
        &self,
        digest: &Sha256Digest,
        after: Option<&RegistryName>,
    ) -> Result<Vec<(RegistryName, bool)>> {
        // Kinds are in the order of their names.
        let (kind, name) = after.map_or(("", ""), |after| (after.kind().as_str(), after.as_str()));
        let rows = on_pool!(self, db => sqlx::query_as::<_, (NameKind, String, i64)>(
            "SELECT p.kind, p.name, CAST(MIN(CASE WHEN v.origin IN ('version_control', 'peer_version_control') THEN 1 \
             ELSE 0 END) AS BIGINT) FROM registry_packages p JOIN registry_versions v ON v.kind = p.kind \
             AND v.name = p.name AND v.version = p.version WHERE p.digest = $1 AND v.base = '' \
             AND (p.kind > $2 OR (p.kind = $2 AND p.name > $3)) GROUP BY p.kind, p.name ORDER BY p.kind, p.name LIMIT 1000")
            .bind(digest).bind(kind).bind(name).fetch_all(db))?;
        let rows = rows.into_iter();
        rows.map(|(kind, name, fetched)| {
            let name = RegistryName::new(kind, &name).map_err(broken)?;
            Ok((name, fetched == 1))
        })
        .collect()
    }

    /// Lists the records between two IDs, these included, that are about versions which this deployment has fetched from
    /// elsewhere.
    pub(super) async fn registry_fetched(
        &self,
        first: LogId,
        last: LogId,
    ) -> Result<BTreeSet<LogId>> {
        let ids = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            "SELECT l.id FROM registry_log l JOIN registry_versions v ON v.kind = l.kind AND v.name = l.name \
             AND v.version = l.version WHERE l.id >= $1 AND l.id <= $2 AND v.origin = 'version_control'")
            .bind(first.get()).bind(last.get()).fetch_all(db))?;
        ids.into_iter()
            .map(|id| LogId::new(id).map_err(broken))
            .collect()
    }

    /// Stores the token for a peer again, sealed with another key.
    pub(in crate::features::registry) async fn registry_peer_reseal(
        &self,
        name: &DeploymentName,
        old: &SealedText,
        new: &SealedText,
    ) -> Result<()> {
        execute_alone!(
            self,
            "UPDATE registry_peers SET token_key = $3, sealed_token = $4 WHERE name = $1 AND sealed_token = $2",
            name,
            old.bytes.as_slice(),
            &new.key,
            new.bytes.as_slice(),
        )
        .map(drop)
    }

    async fn peer_event_in_tx(
        &self,
        tx: &mut Tx,
        name: &DeploymentName,
        what: &str,
        cause: &Cause,
    ) -> Result<()> {
        let what = format!("{name} {what}");
        let event = registry_event(LockEventKind::RegistryPeerChanged, None, &what, cause);
        self.lock_events_in_tx(tx, vec![event]).await
    }
}

/// Returns true if an administrator has compared the key of a peer in this state.
fn is_known(state: PeerState) -> bool {
    match state {
        PeerState::Proposed | PeerState::Removed => false,
        PeerState::Approved
        | PeerState::Joined
        | PeerState::Suspended
        | PeerState::Braked
        | PeerState::Diverged => true,
    }
}

/// Returns the names of a peer that stay private although it is accepted for others, or for public ones, from now on.
/// Too many patterns become the one of all names.
///
/// `is_opened`: an administrator gives the names for which the peer is accepted to everyone. Other names that were
/// private would belong to no set without their pattern, and who guesses one would learn of its takedown.
fn still_closed(
    old: &Peer,
    accepts: &NamePatterns,
    visibility: Visibility,
    is_opened: bool,
) -> NamePatterns {
    let was_private = old.visibility == Visibility::Owner;
    let accepted = old.accepts.iter().filter(|_| was_private);
    let mut closed: Vec<NamePattern> = Vec::new();
    for pattern in old.closed.iter().chain(accepted) {
        let mut accepts = accepts.iter();
        let is_accepted = match visibility {
            // A wider pattern does not replace a narrower one: the scope of a reader has to be within each.
            Visibility::Owner => accepts.any(|accepted| accepted == pattern),
            Visibility::Public => {
                is_opened && accepts.any(|accepted| pattern.is_covered_by(accepted))
            }
        };
        if !is_accepted && !closed.contains(pattern) {
            closed.push(pattern.clone());
        }
    }
    NamePatterns::new(closed).unwrap_or_else(|_| NamePatterns::everything())
}

/// Returns true if names of a peer may be here, whose readers its row decides. A proposal that nobody has approved has none.
fn has_names(peer: &Peer) -> bool {
    let mut accepted = peer.accepts.iter().chain(&peer.closed);
    accepted.next().is_some() || peer.versions > 0 || peer.fetched_versions > 0
}

/// Returns a peer in any state.
pub(super) async fn peer_in_tx(tx: &mut Tx, name: &DeploymentName) -> Result<Option<Peer>> {
    let row = on_tx!(tx, db => sqlx::query_as::<_, PeerRow>(peer_sql!("WHERE name = $1"))
        .bind(name).fetch_optional(db))?;
    row.map(PeerRow::peer).transpose()
}

/// Lists all peers by name. Every change of their terms or states holds the log.
pub(super) async fn peers_in_tx(tx: &mut Tx) -> Result<Vec<Peer>> {
    let rows =
        on_tx!(tx, db => sqlx::query_as::<_, PeerRow>(peer_sql!("ORDER BY name")).fetch_all(db))?;
    rows.into_iter().map(PeerRow::peer).collect()
}

/// Changes the state of a peer. Servers keep the peers that are joined in memory, so they have to read them again.
pub(super) async fn turn_in_tx(
    tx: &mut Tx,
    name: &DeploymentName,
    to: PeerState,
    now: DateTime<Utc>,
) -> Result<()> {
    execute!(
        tx,
        "UPDATE registry_peers SET state = $2, state_at = $3 WHERE name = $1",
        name,
        to,
        kept_time(now),
    )?;
    registry_access_changed_in_tx(tx).await
}

/// Lets all logs be read again from the first record, because other records count from now on. What was merged is passed
/// over. Failures are those of the walk before, apart from the reason why a log has diverged.
async fn walk_again_in_tx(tx: &mut Tx) -> Result<()> {
    execute!(
        tx,
        "UPDATE registry_peers SET last_id = 0, edge = '0', walk = walk + 1, skipped = 0, limited = 0, \
         skipped_last = NULL, error = CASE WHEN state = 'diverged' THEN error END, \
         error_at = CASE WHEN state = 'diverged' THEN error_at END"
    )
    .map(drop)
}

/// Lets the logs of all other peers be read again, because the state of a peer decides which names are requested from them.
/// They would else seem to share something else, for which an hour has to pass.
async fn others_walk_again_in_tx(tx: &mut Tx, name: &DeploymentName) -> Result<()> {
    execute!(
        tx,
        "UPDATE registry_peers SET last_id = 0, edge = '0', walk = walk + 1, skipped = 0, limited = 0, \
         skipped_last = NULL WHERE name <> $1",
        name,
    )
    .map(drop)
}

/// Tells a peer about the records that come from now on. It reads the log up to here on its own.
async fn pushes_begin_in_tx(tx: &mut Tx, name: &DeploymentName) -> Result<()> {
    execute!(
        tx,
        "UPDATE registry_peers SET pushed_id = (SELECT COALESCE(MAX(id), 0) FROM registry_log), push_attempts = 0, \
         push_at = NULL, push_error = NULL WHERE name = $1",
        name,
    )
    .map(drop)
}

/// Agrees to the next [`AGREED`] takedowns of a deployment, for a day. The takedowns that are too many after that need another
/// agreement.
async fn agree_in_tx(tx: &mut Tx, name: &DeploymentName, now: DateTime<Utc>) -> Result<()> {
    execute!(
        tx,
        "UPDATE registry_peers SET agreed = $2, agreed_at = $3, takedowns = 0, takedowns_at = NULL WHERE name = $1",
        name,
        AGREED,
        kept_time(now),
    )
    .map(drop)
}

/// Forgets everything that was seen of the log of a peer.
async fn forget_log_in_tx(tx: &mut Tx, name: &DeploymentName) -> Result<()> {
    execute!(
        tx,
        "UPDATE registry_peers SET last_id = 0, edge = '0', walk = walk + 1, sharing = '', head = NULL, met = NULL, \
         again_at = NULL, seen_size = 0, skipped = 0, skipped_last = NULL WHERE name = $1",
        name,
    )
    .map(drop)
}
