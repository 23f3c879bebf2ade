//! The state machine of a mirror: the next state after each event, and the events that are not allowed.

use chrono::{DateTime, TimeDelta, Utc};

use super::Verification;
use super::backoff::wait;
use super::{
    AttemptLease, FailureKind, Jitter, MirrorEvent, MirrorState, SyncFacts, SyncFailure,
    SyncRequest, SyncState,
};

/// Maximum interval between checks of a mirror without any reported change.
const REFRESH: TimeDelta = TimeDelta::hours(6);

/// Reason why an event is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// An attempt begins only when one is due.
    #[error("no attempt is due")]
    NotDue,
    /// Another attempt is under way.
    #[error("an attempt is running")]
    UnderWay,
    /// Only an attempt that is under way can end.
    #[error("no attempt is running")]
    NotUnderWay,
    /// Only the holder of an attempt can end it.
    #[error("the running attempt belongs to another holder")]
    NotYours,
}

impl MirrorState {
    /// Returns the state of a mirror that was never synced.
    pub fn new(at: DateTime<Utc>) -> Self {
        Self {
            state: SyncState::Pending,
            pending_at: at,
            started_at: None,
            again_at: None,
            lease: None,
            synced_at: None,
            succeeded_at: None,
            updated_at: None,
            asked: None,
            retry_count: 0,
            retry_at: None,
            failure: None,
            refresh_at: None,
            verification: Verification::Unknown,
            checksum: None,
            refs: None,
            refused: None,
            verified_at: None,
            verification_retry_count: 0,
            verification_failure: None,
            connectivity_at: None,
            maintained_at: None,
            used_at: None,
            evicted_at: None,
            bytes: None,
        }
    }

    /// Returns true if an attempt may begin at this time.
    pub fn is_due(&self, at: DateTime<Utc>) -> bool {
        match self.state {
            SyncState::Pending => self.evicted_at.is_none(),
            SyncState::Failed => self.retry_at.is_none_or(|retry_at| retry_at <= at),
            SyncState::Started | SyncState::Synced => false,
        }
    }

    /// Returns true if the next attempt creates the mirror again instead of fetching into it. That is the case for a
    /// damaged mirror, and at the second, fourth, eighth … failed verification in a row.
    pub fn needs_rebuild(&self) -> bool {
        let is_corrupt = self
            .failure
            .as_ref()
            .is_some_and(|failure| failure.kind == FailureKind::Corrupt);
        is_corrupt
            || (self.verification_retry_count >= 2
                && self.verification_retry_count.is_power_of_two())
    }

    /// Returns the state after an event, or the reason why the event is not allowed.
    pub fn next(&self, event: &MirrorEvent) -> Result<Self, NotAllowed> {
        let new = self.clone();
        match event {
            MirrorEvent::Updated { at } => Ok(new.updated(*at)),
            MirrorEvent::Asked(asked) => Ok(new.asked(asked)),
            MirrorEvent::Due { at } => new.due(*at),
            MirrorEvent::Started { at, lease } => new.started(*at, lease),
            MirrorEvent::Succeeded {
                at,
                holder,
                facts,
                jitter,
            } => self
                .check_holder(holder)
                .map(|()| new.succeeded(*at, facts, *jitter)),
            MirrorEvent::Failed {
                at,
                holder,
                failure,
                jitter,
            } => self
                .check_holder(holder)
                .map(|()| new.failed(*at, failure.clone(), *jitter)),
            MirrorEvent::Orphaned { at, jitter } => new.orphaned(*at, *jitter),
            MirrorEvent::Used { at } => Ok(Self {
                used_at: Some(*at),
                evicted_at: None,
                ..new
            }),
            MirrorEvent::Evicted { at } => new.evicted(*at),
        }
    }

    fn check_holder(&self, holder: &str) -> Result<(), NotAllowed> {
        match &self.lease {
            _ if self.state != SyncState::Started => Err(NotAllowed::NotUnderWay),
            Some(lease) if lease.holder == holder => Ok(()),
            Some(_) | None => Err(NotAllowed::NotYours),
        }
    }

    /// Records a change of the repository. After a failure, a change shortens the wait, but never below the first
    /// one. A person who pushes every second does not cause a request every second.
    fn updated(mut self, at: DateTime<Utc>) -> Self {
        self.updated_at = Some(at);
        let waits = self.waits();
        match self.state {
            SyncState::Pending => {}
            SyncState::Started => self.again_at = Some(at),
            SyncState::Synced => self.state = SyncState::Pending,
            SyncState::Failed => {
                let first = self
                    .failure
                    .as_ref()
                    .map_or(FailureKind::Other, |failure| failure.kind)
                    .first_wait();
                self.retry_at = self.retry_at.map(|retry_at| retry_at.min(at + first));
                return self;
            }
        }
        if !waits {
            self.pending_at = at;
        }
        self
    }

    /// Returns true if the mirror is already queued. It keeps its position, so that frequent pushes do not move it to
    /// the end of the queue.
    fn waits(&self) -> bool {
        self.state == SyncState::Pending || self.again_at.is_some()
    }

    /// Records a request for a sync. A request does not wait for the end of a backoff.
    fn asked(mut self, asked: &SyncRequest) -> Self {
        let pending_at = if self.waits() {
            self.pending_at
        } else {
            asked.at
        };
        if self.state == SyncState::Started {
            self.again_at = Some(asked.at);
        } else {
            (self.state, self.retry_at) = (SyncState::Pending, None);
        }
        Self {
            pending_at,
            asked: Some(asked.clone()),
            evicted_at: None,
            ..self
        }
    }

    fn due(self, at: DateTime<Utc>) -> Result<Self, NotAllowed> {
        let is_due = self.refresh_at.is_none_or(|refresh_at| refresh_at <= at);
        match self.state {
            SyncState::Synced if is_due => Ok(Self {
                state: SyncState::Pending,
                pending_at: at,
                ..self
            }),
            SyncState::Synced | SyncState::Pending | SyncState::Failed => Err(NotAllowed::NotDue),
            SyncState::Started => Err(NotAllowed::UnderWay),
        }
    }

    fn started(self, at: DateTime<Utc>, lease: &AttemptLease) -> Result<Self, NotAllowed> {
        if self.state == SyncState::Started {
            return Err(NotAllowed::UnderWay);
        }
        if !self.is_due(at) {
            return Err(NotAllowed::NotDue);
        }
        let (started_at, lease) = (Some(at), Some(lease.clone()));
        Ok(Self {
            state: SyncState::Started,
            started_at,
            lease,
            again_at: None,
            ..self
        })
    }

    /// Ends a successful attempt. A change that arrived meanwhile may be missing from the fetch, so another attempt
    /// follows.
    fn succeeded(self, at: DateTime<Utc>, facts: &SyncFacts, jitter: Jitter) -> Self {
        let state = if self.again_at.is_some() {
            SyncState::Pending
        } else {
            SyncState::Synced
        };
        Self {
            state,
            lease: None,
            asked: self.asked.filter(|_| self.again_at.is_some()),
            again_at: None,
            synced_at: Some(at),
            succeeded_at: Some(at),
            retry_count: 0,
            retry_at: None,
            failure: None,
            refresh_at: Some(at + jitter.spread(REFRESH)),
            verification: Verification::Verified,
            checksum: Some(facts.checksum.clone()),
            refs: Some(facts.refs),
            refused: (!facts.refused.is_empty()).then(|| facts.refused.join("\n")),
            verified_at: Some(at),
            verification_retry_count: 0,
            verification_failure: None,
            connectivity_at: if facts.connectivity {
                Some(at)
            } else {
                self.connectivity_at
            },
            maintained_at: if facts.maintained {
                Some(at)
            } else {
                self.maintained_at
            },
            bytes: facts.bytes.or(self.bytes),
            ..self
        }
    }

    /// Ends a failed attempt. The next attempt also syncs the changes that arrived meanwhile.
    fn failed(mut self, at: DateTime<Utc>, failure: SyncFailure, jitter: Jitter) -> Self {
        self.retry_count = self.retry_count.saturating_add(1);
        if failure.kind == FailureKind::Verification {
            self.verification = Verification::Mismatch;
            self.verification_retry_count = self.verification_retry_count.saturating_add(1);
            self.verification_failure = Some(failure.message.clone());
        }
        let retry_at = Some(at + wait(failure.kind, self.retry_count, jitter));
        let (synced_at, failure) = (Some(at), Some(failure));
        Self {
            state: SyncState::Failed,
            lease: None,
            again_at: None,
            synced_at,
            retry_at,
            failure,
            ..self
        }
    }

    fn orphaned(self, at: DateTime<Utc>, jitter: Jitter) -> Result<Self, NotAllowed> {
        if self.state != SyncState::Started {
            return Err(NotAllowed::NotUnderWay);
        }
        let message = match &self.lease {
            Some(lease) => format!(
                "the attempt of {} was interrupted: nobody holds its lease any more",
                lease.holder
            ),
            None => "the attempt was interrupted".to_owned(),
        };
        Ok(self.failed(
            at,
            SyncFailure {
                kind: FailureKind::Interrupted,
                message,
            },
            jitter,
        ))
    }

    fn evicted(self, at: DateTime<Utc>) -> Result<Self, NotAllowed> {
        if self.state == SyncState::Started {
            return Err(NotAllowed::UnderWay);
        }
        // A requested sync is done all the same.
        let evicted_at = Some(at).filter(|_| self.asked.is_none());
        Ok(Self {
            succeeded_at: self.succeeded_at,
            updated_at: self.updated_at,
            asked: self.asked,
            used_at: self.used_at,
            evicted_at,
            ..Self::new(at)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::model::Sha256Digest;

    const SECOND: TimeDelta = TimeDelta::seconds(1);

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_000_000 + seconds, 0).unwrap()
    }

    fn lease(holder: &str) -> AttemptLease {
        AttemptLease {
            key: "repository_sync:home:github.com/acme/infra".to_owned(),
            holder: holder.to_owned(),
        }
    }

    fn asked(seconds: i64) -> MirrorEvent {
        MirrorEvent::Asked(SyncRequest {
            at: at(seconds),
            by: "ada".to_owned(),
            reason: Some("new branch".to_owned()),
        })
    }

    fn started(seconds: i64, holder: &str) -> MirrorEvent {
        MirrorEvent::Started {
            at: at(seconds),
            lease: lease(holder),
        }
    }

    fn succeeded(seconds: i64, holder: &str) -> MirrorEvent {
        let checksum = Sha256Digest::of(b"refs");
        let facts = SyncFacts {
            checksum,
            refs: 3,
            refused: Vec::new(),
            bytes: Some(1 << 20),
            connectivity: true,
            maintained: false,
        };
        MirrorEvent::Succeeded {
            at: at(seconds),
            holder: holder.to_owned(),
            facts,
            jitter: Jitter(0),
        }
    }

    fn failed(seconds: i64, holder: &str, kind: FailureKind) -> MirrorEvent {
        let failure = SyncFailure {
            kind,
            message: "it is away".to_owned(),
        };
        MirrorEvent::Failed {
            at: at(seconds),
            holder: holder.to_owned(),
            failure,
            jitter: Jitter(0),
        }
    }

    fn after(state: &MirrorState, events: &[MirrorEvent]) -> MirrorState {
        events.iter().fold(state.clone(), |state, event| {
            state
                .next(event)
                .unwrap_or_else(|why| panic!("{} {}: {why}", state.state, event.name()))
        })
    }

    fn in_state(state: SyncState) -> MirrorState {
        let new = MirrorState::new(at(0));
        match state {
            SyncState::Pending => new,
            SyncState::Started => after(&new, &[started(1, "a")]),
            SyncState::Synced => after(&new, &[started(1, "a"), succeeded(2, "a")]),
            SyncState::Failed => after(
                &new,
                &[started(1, "a"), failed(2, "a", FailureKind::Unreachable)],
            ),
        }
    }

    #[test]
    fn every_state_meets_every_event() {
        let later = 100_000;
        let events = [
            MirrorEvent::Updated { at: at(later) },
            asked(later),
            MirrorEvent::Due { at: at(later) },
            started(later, "b"),
            succeeded(later, "a"),
            failed(later, "a", FailureKind::Other),
            MirrorEvent::Orphaned {
                at: at(later),
                jitter: Jitter(0),
            },
            MirrorEvent::Used { at: at(later) },
            MirrorEvent::Evicted { at: at(later) },
        ];
        let mut table = String::new();
        for state in SyncState::ALL {
            for event in &events {
                let follows = match in_state(*state).next(event) {
                    Ok(next) => next.state.to_string(),
                    Err(why) => format!("({why})"),
                };
                writeln!(table, "{state} + {} -> {follows}", event.name()).unwrap();
            }
        }
        insta::assert_snapshot!(table, @"
        pending + updated -> pending
        pending + asked -> pending
        pending + due -> (no attempt is due)
        pending + started -> started
        pending + succeeded -> (no attempt is running)
        pending + failed -> (no attempt is running)
        pending + orphaned -> (no attempt is running)
        pending + used -> pending
        pending + evicted -> pending
        started + updated -> started
        started + asked -> started
        started + due -> (an attempt is running)
        started + started -> (an attempt is running)
        started + succeeded -> synced
        started + failed -> failed
        started + orphaned -> failed
        started + used -> started
        started + evicted -> (an attempt is running)
        synced + updated -> pending
        synced + asked -> pending
        synced + due -> pending
        synced + started -> (no attempt is due)
        synced + succeeded -> (no attempt is running)
        synced + failed -> (no attempt is running)
        synced + orphaned -> (no attempt is running)
        synced + used -> synced
        synced + evicted -> pending
        failed + updated -> failed
        failed + asked -> pending
        failed + due -> (no attempt is due)
        failed + started -> started
        failed + succeeded -> (no attempt is running)
        failed + failed -> (no attempt is running)
        failed + orphaned -> (no attempt is running)
        failed + used -> failed
        failed + evicted -> pending
        ");
    }

    #[test]
    fn an_attempt_is_made_when_it_is_due_and_not_before() {
        let failed = in_state(SyncState::Failed);
        let due = failed.retry_at.unwrap();
        assert_eq!(
            failed.next(&MirrorEvent::Started {
                at: due - SECOND,
                lease: lease("b")
            }),
            Err(NotAllowed::NotDue)
        );
        assert!(
            failed
                .next(&MirrorEvent::Started {
                    at: due,
                    lease: lease("b")
                })
                .is_ok()
        );
        let synced = in_state(SyncState::Synced);
        assert_eq!(
            synced.next(&MirrorEvent::Due { at: at(60) }),
            Err(NotAllowed::NotDue)
        );
        assert_eq!(synced.refresh_at, Some(at(2) + REFRESH * 3 / 4));
    }

    #[test]
    fn a_stranger_does_not_end_an_attempt() {
        let running = in_state(SyncState::Started);
        assert_eq!(running.next(&succeeded(5, "b")), Err(NotAllowed::NotYours));
        assert_eq!(
            running.next(&failed(5, "b", FailureKind::Other)),
            Err(NotAllowed::NotYours)
        );
    }

    #[test]
    fn an_update_during_an_attempt_leads_to_another_even_at_the_same_moment() {
        let running = in_state(SyncState::Started);
        let same_moment = MirrorEvent::Updated {
            at: running.started_at.unwrap(),
        };
        let ended = after(&running, &[same_moment, succeeded(2, "a")]);
        assert_eq!((ended.state, ended.again_at), (SyncState::Pending, None));
        let ended = after(&ended, &[started(3, "b"), succeeded(4, "b")]);
        assert_eq!(ended.state, SyncState::Synced);
    }

    #[test]
    fn whoever_pushes_all_the_time_keeps_its_place_in_the_line() {
        let waiting = after(
            &in_state(SyncState::Synced),
            &[MirrorEvent::Updated { at: at(10) }],
        );
        let pushed = after(&waiting, &[MirrorEvent::Updated { at: at(20) }, asked(30)]);
        assert_eq!(
            (pushed.pending_at, pushed.updated_at),
            (at(10), Some(at(20)))
        );
        let running = after(
            &pushed,
            &[started(40, "b"), MirrorEvent::Updated { at: at(41) }],
        );
        let again = after(
            &running,
            &[
                MirrorEvent::Updated { at: at(42) },
                asked(43),
                succeeded(44, "b"),
            ],
        );
        assert_eq!(
            (again.state, again.pending_at),
            (SyncState::Pending, at(41))
        );
    }

    #[test]
    fn what_somebody_asked_for_is_made_although_it_was_removed_to_make_room() {
        let removed = after(
            &in_state(SyncState::Synced),
            &[asked(10), MirrorEvent::Evicted { at: at(11) }],
        );
        assert!(removed.is_due(at(12)) && removed.asked.is_some());
        let unasked = after(
            &in_state(SyncState::Synced),
            &[MirrorEvent::Evicted { at: at(11) }],
        );
        assert!(!unasked.is_due(at(12)));
    }

    #[test]
    fn who_asked_is_remembered_until_an_attempt_that_began_later_succeeds() {
        let running = after(&in_state(SyncState::Failed), &[asked(10), started(11, "b")]);
        assert_eq!(
            running.asked.as_ref().map(|asked| asked.by.as_str()),
            Some("ada")
        );
        assert!(
            after(&running, &[failed(12, "b", FailureKind::Other)])
                .asked
                .is_some()
        );
        assert_eq!(after(&running, &[succeeded(12, "b")]).asked, None);
        let again = after(&running, &[asked(12), succeeded(13, "b")]);
        assert_eq!(
            (again.state, again.asked.is_some()),
            (SyncState::Pending, true)
        );
    }

    #[test]
    fn failures_are_counted_until_one_attempt_succeeds() {
        let mut state = in_state(SyncState::Pending);
        for (n, kind) in [
            (1, FailureKind::Unreachable),
            (2, FailureKind::Verification),
            (3, FailureKind::Verification),
        ] {
            let now = state.retry_at.unwrap_or(at(0));
            state = after(
                &state,
                &[
                    MirrorEvent::Started {
                        at: now,
                        lease: lease("a"),
                    },
                    failed(n, "a", kind),
                ],
            );
            assert_eq!(
                (state.retry_count, state.verification_retry_count),
                (u32::try_from(n).unwrap(), state.retry_count - 1)
            );
        }
        assert_eq!(
            (state.verification, state.needs_rebuild()),
            (Verification::Mismatch, true)
        );
        assert_eq!(state.verification_failure.as_deref(), Some("it is away"));
        let now = state.retry_at.unwrap();
        let ended = after(
            &state,
            &[
                MirrorEvent::Started {
                    at: now,
                    lease: lease("a"),
                },
                succeeded(9_999, "a"),
            ],
        );
        assert_eq!(
            (
                ended.retry_count,
                ended.verification_retry_count,
                ended.retry_at
            ),
            (0, 0, None)
        );
        assert_eq!(
            (
                ended.failure,
                ended.verification_failure,
                ended.verification
            ),
            (None, None, Verification::Verified)
        );
    }

    #[test]
    fn news_shorten_a_long_wait_but_not_below_the_first() {
        let mut state = in_state(SyncState::Pending);
        for n in 0..6 {
            let now = state.retry_at.unwrap_or(at(0));
            let fails = SyncFailure {
                kind: FailureKind::NotFound,
                message: n.to_string(),
            };
            let end = MirrorEvent::Failed {
                at: now,
                holder: "a".to_owned(),
                failure: fails,
                jitter: Jitter(0),
            };
            state = after(
                &state,
                &[
                    MirrorEvent::Started {
                        at: now,
                        lease: lease("a"),
                    },
                    end,
                ],
            );
        }
        let now = state.synced_at.unwrap();
        assert!(state.retry_at.unwrap() - now > TimeDelta::hours(3));
        let told = after(
            &state,
            &[
                MirrorEvent::Updated { at: now },
                MirrorEvent::Updated { at: now + SECOND },
            ],
        );
        assert_eq!(
            (told.state, told.retry_at),
            (
                SyncState::Failed,
                Some(now + FailureKind::NotFound.first_wait())
            )
        );
    }

    #[test]
    fn what_was_removed_to_make_room_waits_until_somebody_uses_it() {
        let gone = after(
            &in_state(SyncState::Synced),
            &[
                MirrorEvent::Evicted { at: at(5) },
                MirrorEvent::Updated { at: at(6) },
            ],
        );
        assert_eq!(
            (gone.state, gone.checksum.is_none(), gone.is_due(at(9))),
            (SyncState::Pending, true, false)
        );
        assert!(after(&gone, &[MirrorEvent::Used { at: at(7) }]).is_due(at(9)));
        assert!(after(&gone, &[asked(7)]).is_due(at(9)));
    }

    /// Generates an event at a time.
    fn any_event() -> impl Strategy<Value = MirrorEvent> {
        (
            0..9_usize,
            0..4000_i64,
            prop::sample::select(FailureKind::ALL),
            any::<u8>(),
            "[ab]",
        )
            .prop_map(|(which, seconds, kind, jitter, holder)| match which {
                0 => MirrorEvent::Updated { at: at(seconds) },
                1 => asked(seconds),
                2 => MirrorEvent::Due {
                    at: at(seconds * 10),
                },
                3 => started(seconds, &holder),
                4 => succeeded(seconds, &holder),
                5 | 6 => failed(seconds, &holder, kind),
                7 => MirrorEvent::Orphaned {
                    at: at(seconds),
                    jitter: Jitter(jitter),
                },
                _ if jitter < 64 => MirrorEvent::Evicted { at: at(seconds) },
                _ => MirrorEvent::Used { at: at(seconds) },
            })
    }

    fn check(state: &MirrorState) -> Result<(), TestCaseError> {
        prop_assert_eq!(state.lease.is_some(), state.state == SyncState::Started);
        prop_assert!(state.again_at.is_none() || state.state == SyncState::Started);
        prop_assert!(state.verification_retry_count <= state.retry_count);
        match state.state {
            SyncState::Failed => {
                prop_assert!(
                    state.retry_at.is_some() && state.failure.is_some() && state.retry_count > 0
                );
            }
            SyncState::Synced => {
                prop_assert!(
                    state.retry_count == 0 && state.asked.is_none() && state.failure.is_none()
                );
            }
            SyncState::Pending | SyncState::Started => {}
        }
        Ok(())
    }

    proptest! {
        /// `owed` is true while a change arrived that no later attempt has synced.
        #[test]
        fn an_update_is_never_lost(events in prop::collection::vec(any_event(), 1..80)) {
            let (mut state, mut owed, mut failures) = (MirrorState::new(at(0)), true, 0);
            for event in &events {
                let Ok(next) = state.next(event) else { continue };
                match event {
                    MirrorEvent::Updated { .. } | MirrorEvent::Asked(_) | MirrorEvent::Evicted { .. } => owed = true,
                    MirrorEvent::Started { .. } => owed = false,
                    MirrorEvent::Failed { at, failure, .. } => {
                        (owed, failures) = (true, failures + 1);
                        let wait = next.retry_at.unwrap() - *at;
                        prop_assert!(wait <= failure.kind.longest_wait() && wait >= failure.kind.first_wait() / 2);
                    }
                    MirrorEvent::Orphaned { .. } => (owed, failures) = (true, failures + 1),
                    MirrorEvent::Succeeded { .. } => failures = 0,
                    MirrorEvent::Due { .. } | MirrorEvent::Used { .. } => {}
                }
                if let MirrorEvent::Evicted { .. } = event {
                    failures = 0;
                }
                state = next;
                check(&state)?;
                prop_assert_eq!(state.retry_count, failures);
                prop_assert!(!(owed && state.state == SyncState::Synced), "{:?}", state);
            }
        }
    }
}
