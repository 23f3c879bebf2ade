//! Tests of the audit log: the events of locks, in a chain that reveals every change to it.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::locks::{
    self, AuditFiles, AuditVerdict, ChainFault, KnownLogState, RangeVerdict, VerifiedMark,
    WholeLog, prune_log,
};
use lockkeeper::model::{
    ApplyScope, ChainedEvent, Concern, LockEvent, LockEventKind, NewLockEvent, PullState,
    Sha256Digest,
};
use lockkeeper::seal::{Checkpoint, Keyring, SigningKey, key_line};
use lockkeeper::store::{DatabaseUrl, LockEventWalk, SealLog};
use sqlx::Connection;

use super::samples::{HOSTILE, URL, open_pull, planned, project, steal, take, taken};
use crate::support::db::{
    Backend, TestDb, applies_in, audit_files, by, execute, seal_log, store_test,
};

store_test!(
    every_change_of_a_lock_is_an_event_in_its_order,
    an_event_comes_back_as_it_was_kept,
    events_that_are_not_sealed_yet_come_first_and_have_no_number,
    a_chain_that_nobody_touched_is_whole,
    a_changed_event_is_found,
    a_part_is_what_concerns_some_newest_first,
    an_event_that_was_given_to_another_owner_is_found,
    a_removed_event_is_found,
    an_event_that_was_changed_together_with_its_hash_is_found,
    a_tail_that_was_cut_off_is_found_and_named,
    a_log_that_was_deleted_whole_is_found_and_named,
    a_log_that_was_cut_with_everything_that_counts_it_is_found_from_outside,
    a_cut_log_is_not_continued,
    events_with_numbers_below_the_beginning_are_found,
    a_made_up_seal_is_found,
    a_beginning_that_was_cut_off_with_everything_that_counts_it_is_not_signed,
    a_log_that_was_written_again_at_the_last_moment_is_not_signed,
    a_log_whose_beginning_is_cut_off_at_the_last_moment_is_not_signed,
    a_made_up_checkpoint_is_found,
    an_end_that_was_written_again_is_found,
    what_is_pruned_leaves_a_signed_seal_and_an_event,
    only_who_has_the_key_prunes,
    a_log_of_an_earlier_release_goes_on,
    events_of_many_at_once_make_one_chain,
    a_key_lies_in_the_database_only_encrypted,
    every_checkpoint_is_exported_and_verifies_the_log_later,
    a_walk_goes_on_where_it_was_and_looks_at_what_is_new,
    a_walk_finds_what_was_cut_off_or_put_in_place_of_the_event_it_stands_at,
    a_walk_that_stands_at_a_pruned_event_begins_at_the_seal,
    how_far_a_walk_came_is_kept,
);

/// Verifies the log as a person who has only the database.
async fn verify(db: &TestDb) -> AuditVerdict {
    locks::verify(db.store(), &KnownLogState::default(), None)
        .await
        .unwrap()
}

/// Verifies the log on the server, which remembers the last checkpoint.
async fn verify_here(db: &TestDb) -> AuditVerdict {
    locks::verify(db.store(), &here(db), None).await.unwrap()
}

fn here(db: &TestDb) -> KnownLogState {
    KnownLogState {
        checkpoints: audit_files(db).checkpoints().unwrap(),
        keys: None,
    }
}

async fn whole(db: &TestDb) -> WholeLog {
    match verify_here(db).await {
        AuditVerdict::Whole(whole) => whole,
        broken @ AuditVerdict::Broken { .. } => panic!("{broken:?}"),
    }
}

async fn kinds(db: &TestDb) -> Vec<LockEventKind> {
    let mut events = db.store().lock_event_list(100).await.unwrap();
    events.reverse();
    events.into_iter().map(|kept| kept.event.kind).collect()
}

async fn every_change_of_a_lock_is_an_event_in_its_order(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let lock = taken(store, &one, &project("a")).await;
    let _again = take(store, &one, &project("a")).await;
    assert!(store.lock_release(&one, &project("a"), by()).await.unwrap());
    assert!(
        !store.lock_release(&one, &project("a"), by()).await.unwrap(),
        "nothing was released"
    );
    let stolen = taken(store, &one, &project("a")).await;
    assert_eq!(steal(store, stolen.id).await, Some(stolen));
    taken(store, &one, &project("b")).await;
    db.clock.advance(Duration::from_hours(2));
    assert_eq!(
        store
            .lock_renew(&one, TimeDelta::hours(1), by())
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        store
            .lock_renew(&one, TimeDelta::hours(1), by())
            .await
            .unwrap(),
        [],
        "it was noted a moment ago"
    );
    store
        .pull_close(&one, PullState::Merged, URL, by(), |_| vec![])
        .await
        .unwrap();
    let expected = [
        "taken", "released", "taken", "stolen", "taken", "renewed", "released",
    ];
    assert_eq!(
        kinds(db)
            .await
            .into_iter()
            .map(LockEventKind::as_str)
            .collect::<Vec<_>>(),
        expected
    );
    let of_lock = store.lock_event_list_of(&lock.key, 100).await.unwrap();
    assert_eq!(of_lock.len(), 4);
    assert_eq!(
        store.lock_event_list_of(&lock.key, 1).await.unwrap(),
        of_lock[..1]
    );
}

async fn an_event_comes_back_as_it_was_kept(db: &TestDb) {
    let lock = taken(db.store(), &open_pull(db.store(), 1).await, &project("a")).await;
    let mut cause = by().clone().from_address(Some("192.0.2.7".to_owned()));
    HOSTILE.clone_into(&mut cause.reason);
    let event = NewLockEvent {
        kind: LockEventKind::Denied,
        key: Some(lock.key.clone()),
        scope: None,
        pull: Some(lock.pull.clone()),
        concern: None,
        cause: cause.clone(),
    };
    let bare = |kind, scope| NewLockEvent {
        kind,
        key: None,
        scope,
        pull: None,
        concern: None,
        cause: cause.clone(),
    };
    let about = |kind, text: &str| NewLockEvent {
        concern: Some(text.parse().unwrap()),
        ..bare(kind, None)
    };
    let events = [
        event,
        bare(LockEventKind::Denied, None),
        NewLockEvent {
            pull: Some(lock.pull.clone()),
            ..bare(LockEventKind::Denied, None)
        },
        bare(LockEventKind::ApplyLocked, Some(ApplyScope::Server)),
        bare(
            LockEventKind::ApplyUnlocked,
            Some(applies_in("github.com/acme/infra", ".")),
        ),
        bare(
            LockEventKind::Denied,
            Some(applies_in("github.com/acme/infra", "network")),
        ),
        about(LockEventKind::Denied, "github.com/acme/infra"),
        about(LockEventKind::Registered, "net"),
    ];
    for event in &events {
        db.store().lock_event_append(event.clone()).await.unwrap();
    }
    let listed = db.reopen().await.lock_event_list(8).await.unwrap();
    assert_eq!(
        listed
            .iter()
            .rev()
            .map(|kept| kept.event.clone())
            .collect::<Vec<_>>(),
        events
    );
    assert_eq!(seal_log(db).await, 9);
    let kept = db.reopen().await.lock_event_after(1, 10).await.unwrap();
    assert_eq!(
        kept.iter()
            .map(|kept| kept.event.clone())
            .collect::<Vec<_>>(),
        events
    );
    assert!(kept.iter().all(ChainedEvent::is_intact));
    assert_eq!(
        (kept[0].seq, kept[0].at, &kept[1].previous),
        (2, db.now(), &kept[0].hash)
    );
}

async fn events_that_are_not_sealed_yet_come_first_and_have_no_number(db: &TestDb) {
    six(db).await;
    let store = db.store();
    let lock = taken(store, &open_pull(store, 2).await, &project("a")).await;
    taken(store, &open_pull(store, 3).await, &project("b")).await;
    let seqs = |events: Vec<LockEvent>| events.iter().map(LockEvent::seq).collect::<Vec<_>>();
    let newest = store.lock_event_list(4).await.unwrap();
    assert_eq!(
        newest[0].event.pull.as_ref().unwrap().subject.stored(),
        3,
        "the newest is the first"
    );
    assert_eq!(seqs(newest.clone()), [None, None, Some(6), Some(5)]);
    let older = store
        .lock_event_part(None, Some(newest[0].place), 3)
        .await
        .unwrap();
    assert_eq!(older, newest[1..], "pages fit together");
    assert_eq!(
        seqs(store.lock_event_part(None, Some(6), 2).await.unwrap()),
        [Some(5), Some(4)]
    );
    assert_eq!(
        seqs(store.lock_event_list_of(&lock.key, 3).await.unwrap()),
        [None, Some(6), Some(5)]
    );
    assert_eq!(whole(db).await.unsigned, 2);
    assert_eq!(seal_log(db).await, 2);
    assert_eq!(
        seqs(store.lock_event_list(3).await.unwrap()),
        [Some(8), Some(7), Some(6)]
    );
    assert_eq!(whole(db).await.unsigned, 0);
    assert_eq!(seal_log(db).await, 0, "there is nothing left");
}

/// Creates six events, sealed two at a time.
async fn six(db: &TestDb) -> Vec<ChainedEvent> {
    let one = open_pull(db.store(), 1).await;
    for _ in 0..3 {
        planned(db, &one, &project("a")).await;
        assert!(
            db.store()
                .lock_release(&one, &project("a"), by())
                .await
                .unwrap()
        );
        assert_eq!(seal_log(db).await, 2);
        db.clock.advance(Duration::from_hours(24));
    }
    db.store().lock_event_after(0, 10).await.unwrap()
}

fn broken(seq: i64, fault: ChainFault) -> AuditVerdict {
    AuditVerdict::Broken { seq, fault }
}

async fn a_chain_that_nobody_touched_is_whole(db: &TestDb) {
    let (genesis, unknown) = (ChainedEvent::genesis(), Sha256Digest::of(b"somewhere else"));
    let empty = WholeLog {
        events: 0,
        removed: 0,
        head: genesis,
        known: true,
        checkpoint: None,
        unsigned: 0,
    };
    assert_eq!(verify(db).await, AuditVerdict::Whole(empty));
    let events = six(db).await;
    let AuditVerdict::Whole(whole) = verify(db).await else {
        panic!("nobody touched it")
    };
    let last = whole.checkpoint.unwrap();
    assert_eq!((whole.events, whole.removed, whole.unsigned), (6, 0, 0));
    assert_eq!(
        (&whole.head, last.seq, &last.hash),
        (&events[5].hash, 6, &events[5].hash)
    );
    assert!(last.is_authentic());
    for (wanted, expected) in [(&events[2].hash, true), (&unknown, false)] {
        let verdict = locks::verify(db.store(), &KnownLogState::default(), Some(wanted))
            .await
            .unwrap();
        assert!(matches!(verdict, AuditVerdict::Whole(whole) if whole.known == expected));
    }
}

async fn a_changed_event_is_found(db: &TestDb) {
    six(db).await;
    execute(db, "UPDATE lock_events SET actor = 'nobody' WHERE seq = 3").await;
    assert_eq!(verify(db).await, broken(3, ChainFault::Changed));
}

/// Creates events of two owners, of two repositories by lock and by name, and of the whole server.
async fn events_of_many(db: &TestDb) -> Vec<i64> {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let event = |concern: Option<&str>, scope| NewLockEvent {
        kind: LockEventKind::Denied,
        key: None,
        scope,
        pull: None,
        concern: concern.map(|text| text.parse().unwrap()),
        cause: by().clone(),
    };
    taken(store, &one, &project("a")).await;
    store
        .lock_event_append(event(Some("net"), None))
        .await
        .unwrap();
    store
        .lock_event_append(event(Some("dns"), None))
        .await
        .unwrap();
    store
        .lock_event_append(event(Some("github.com/acme/infra"), None))
        .await
        .unwrap();
    store
        .lock_event_append(event(Some("github.com/acme/other"), None))
        .await
        .unwrap();
    store
        .lock_event_append(event(None, Some(ApplyScope::Server)))
        .await
        .unwrap();
    store
        .lock_event_append(event(None, Some(applies_in("github.com/acme/infra", "."))))
        .await
        .unwrap();
    store
        .lock_event_append(event(None, Some(applies_in("github.com/acme/other", "."))))
        .await
        .unwrap();
    assert_eq!(seal_log(db).await, 8);
    store
        .lock_event_after(0, 100)
        .await
        .unwrap()
        .iter()
        .map(|event| event.seq)
        .collect()
}

fn numbers(events: &[LockEvent]) -> Vec<i64> {
    events.iter().map(|event| event.seq().unwrap()).collect()
}

async fn a_part_is_what_concerns_some_newest_first(db: &TestDb) {
    assert_eq!(events_of_many(db).await, (1..=8).collect::<Vec<_>>());
    let part = async |of: Option<&[&str]>, before, limit| {
        let of = of.map(|of| {
            of.iter()
                .map(|text| text.parse().unwrap())
                .collect::<Vec<Concern>>()
        });
        numbers(
            &db.store()
                .lock_event_part(of.as_deref(), before, limit)
                .await
                .unwrap(),
        )
    };
    assert_eq!(part(None, None, 3).await, [8, 7, 6]);
    assert_eq!(part(None, Some(6), 3).await, [5, 4, 3]);
    let net = ["net", "github.com/acme/infra"];
    assert_eq!(part(Some(&net), None, 100).await, [7, 4, 2, 1]);
    assert_eq!(
        part(Some(&net), None, 3).await,
        [7, 4, 2],
        "from all of them, the newest"
    );
    assert_eq!(part(Some(&net), Some(4), 3).await, [2, 1]);
    assert_eq!(part(Some(&["dns"]), None, 100).await, [3]);
    assert_eq!(
        part(Some(&["github.com/acme/other", "dns"]), None, 100).await,
        [8, 5, 3]
    );
    assert_eq!(
        part(Some(&["nobody", "github.com/acme/none"]), None, 100).await,
        [0; 0]
    );
    assert_eq!(
        part(Some(&[]), None, 100).await,
        [0; 0],
        "nobody's is nothing"
    );
}

async fn an_event_that_was_given_to_another_owner_is_found(db: &TestDb) {
    events_of_many(db).await;
    assert_eq!(whole(db).await.events, 8);
    execute(db, "UPDATE lock_events SET concern = NULL WHERE seq = 3").await;
    assert_eq!(verify(db).await, broken(3, ChainFault::Changed));
    execute(db, "UPDATE lock_events SET concern = 'net' WHERE seq = 1").await;
    assert_eq!(verify(db).await, broken(1, ChainFault::Changed));
}

async fn a_removed_event_is_found(db: &TestDb) {
    six(db).await;
    execute(db, "DELETE FROM lock_events WHERE seq = 4").await;
    assert_eq!(verify(db).await, broken(4, ChainFault::Missing));
    execute(db, "DELETE FROM lock_events WHERE seq = 1").await;
    assert_eq!(verify(db).await, broken(1, ChainFault::Missing));
}

async fn an_event_that_was_changed_together_with_its_hash_is_found(db: &TestDb) {
    let mut event = six(db).await.remove(1);
    "nobody".clone_into(&mut event.event.cause.actor.login);
    let hash = ChainedEvent::hash_of(event.seq, event.at, &event.event, &event.previous);
    execute(db, "DELETE FROM audit_checkpoints WHERE seq < 6").await;
    execute(
        db,
        &format!("UPDATE lock_events SET actor = 'nobody', hash = '{hash}' WHERE seq = 2"),
    )
    .await;
    assert_eq!(verify(db).await, broken(3, ChainFault::Unlinked));
}

async fn a_tail_that_was_cut_off_is_found_and_named(db: &TestDb) {
    six(db).await;
    execute(db, "DELETE FROM lock_events WHERE seq = 6").await;
    assert_eq!(verify(db).await, broken(6, ChainFault::Missing));
    execute(db, "DELETE FROM lock_events WHERE seq >= 4").await;
    assert_eq!(verify(db).await, broken(4, ChainFault::MissingTo(6)));
    // The checkpoints of the removed events are gone, too, but the counter remains.
    execute(db, "DELETE FROM audit_checkpoints WHERE seq > 2").await;
    assert_eq!(verify(db).await, broken(4, ChainFault::MissingTo(6)));
    assert_eq!(
        ChainFault::MissingTo(6).says(),
        "and all after it up to event 6 are missing"
    );
}

async fn a_log_that_was_deleted_whole_is_found_and_named(db: &TestDb) {
    six(db).await;
    execute(db, "DELETE FROM lock_events").await;
    assert_eq!(verify(db).await, broken(1, ChainFault::MissingTo(6)));
    execute(db, "DELETE FROM audit_checkpoints").await;
    assert_eq!(verify(db).await, broken(1, ChainFault::MissingTo(6)));
}

async fn a_log_that_was_cut_with_everything_that_counts_it_is_found_from_outside(db: &TestDb) {
    six(db).await;
    execute(db, "DELETE FROM lock_events WHERE seq > 2").await;
    execute(db, "DELETE FROM audit_checkpoints WHERE seq > 2").await;
    execute(
        db,
        "UPDATE settings SET value = '2' WHERE key = 'audit_highest'",
    )
    .await;
    assert!(
        matches!(verify(db).await, AuditVerdict::Whole(_)),
        "nothing in the database tells of it any more"
    );
    assert_eq!(verify_here(db).await, broken(3, ChainFault::MissingTo(6)));
    for table in ["lock_events", "audit_checkpoints", "audit_keys", "settings"] {
        execute(db, &format!("DELETE FROM {table}")).await;
    }
    assert_eq!(verify_here(db).await, broken(1, ChainFault::MissingTo(6)));
}

async fn a_cut_log_is_not_continued(db: &TestDb) {
    six(db).await;
    let before = audit_files(db).mark().unwrap();
    execute(db, "DELETE FROM lock_events WHERE seq > 2").await;
    execute(db, "DELETE FROM audit_checkpoints WHERE seq > 2").await;
    execute(
        db,
        "UPDATE settings SET value = '2' WHERE key = 'audit_highest'",
    )
    .await;
    taken(db.store(), &open_pull(db.store(), 2).await, &project("b")).await;
    let files = audit_files(db);
    let error = locks::seal_log(db.store(), &files)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("event 3 and all after it up to event 6 are missing"),
        "{error}"
    );
    assert_eq!(
        files.mark().unwrap(),
        before,
        "what proves it is still there"
    );
    assert_eq!(
        db.store().lock_event_list(1).await.unwrap()[0].seq(),
        None,
        "the event waits"
    );
    // An administrator who knows the reason removes the mark.
    std::fs::remove_file(files.mark_path()).unwrap();
    assert_eq!(seal_log(db).await, 1);
    assert_eq!(whole(db).await.events, 3);
}

async fn events_with_numbers_below_the_beginning_are_found(db: &TestDb) {
    six(db).await;
    for seq in [0, -7] {
        execute(
            db,
            &format!(
                "INSERT INTO lock_events (seq, at, kind, actor, origin, reason, previous, hash) \
                 SELECT {seq}, at, kind, 'mallory', origin, reason, previous, hash FROM lock_events WHERE seq = 1"
            ),
        )
        .await;
        assert_eq!(verify(db).await, broken(seq, ChainFault::Stray));
    }
    execute(db, "DELETE FROM lock_events WHERE seq <= 0").await;
    assert_eq!(whole(db).await.events, 6);
}

/// Writes a record that the events up to this one were pruned.
async fn made_up_seal(db: &TestDb, last: &ChainedEvent) {
    let (seq, hash) = (last.seq, &last.hash);
    let insert =
        "INSERT INTO lock_event_seals (last_seq, last_hash, last_at, events, actor, sealed_at)";
    execute(
        db,
        &format!("{insert} SELECT {seq}, '{hash}', at, {seq}, 'ada', at FROM lock_events WHERE seq = {seq} + 1"),
    )
    .await;
}

async fn a_made_up_seal_is_found(db: &TestDb) {
    let events = six(db).await;
    execute(db, "DELETE FROM lock_events WHERE seq <= 4").await;
    assert_eq!(verify(db).await, broken(1, ChainFault::Missing));
    made_up_seal(db, &events[3]).await;
    assert_eq!(verify(db).await, broken(4, ChainFault::UnsignedSeal));
    let forged = SigningKey::generate();
    let mut seal = db.store().lock_event_seals().await.unwrap().remove(0);
    seal.key = Some(forged.public());
    let signature = seal.statement().sign(&forged);
    let sign = format!(
        "UPDATE lock_event_seals SET key = '{}', signature = '{signature}'",
        forged.public()
    );
    execute(db, &sign).await;
    assert_eq!(verify(db).await, broken(4, ChainFault::UnsignedSeal));
}

async fn a_beginning_that_was_cut_off_with_everything_that_counts_it_is_not_signed(db: &TestDb) {
    let events = six(db).await;
    execute(db, "DELETE FROM lock_events WHERE seq < 6").await;
    made_up_seal(db, &events[4]).await;
    for table in ["audit_checkpoints", "settings"] {
        execute(db, &format!("DELETE FROM {table}")).await;
    }
    assert_eq!(verify(db).await, broken(5, ChainFault::UnsignedSeal));
    let error = locks::seal_log(db.store(), &audit_files(db))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no key of the log has signed that"),
        "{error}"
    );
    assert!(
        error.ends_with("Restore a backup of the database from before the damage"),
        "{error}"
    );
    assert_eq!(
        db.store().lock_event_seals().await.unwrap()[0].signature,
        None
    );
}

async fn a_log_that_was_written_again_at_the_last_moment_is_not_signed(db: &TestDb) {
    let mut event = six(db).await.remove(5);
    let (files, store) = (audit_files(db), db.store());
    let (key, mark) = (
        files.key(store).await.unwrap().unwrap(),
        files.mark().unwrap(),
    );
    // This happens after the sealer has looked, and before it has locked the log.
    "nobody".clone_into(&mut event.event.cause.actor.login);
    let hash = ChainedEvent::hash_of(event.seq, event.at, &event.event, &event.previous);
    execute(
        db,
        &format!("UPDATE lock_events SET actor = 'nobody', hash = '{hash}' WHERE seq = 6"),
    )
    .await;
    for table in ["audit_checkpoints", "settings"] {
        execute(db, &format!("DELETE FROM {table}")).await;
    }
    let sealed = store
        .lock_event_seal(&key, mark.as_ref(), 500)
        .await
        .unwrap();
    assert!(matches!(sealed, SealLog::Torn(torn) if Some(&torn) == mark.as_ref()));
    assert_eq!(store.audit_checkpoint_last().await.unwrap(), None);
}

async fn a_log_whose_beginning_is_cut_off_at_the_last_moment_is_not_signed(db: &TestDb) {
    let events = six(db).await;
    let (files, store) = (audit_files(db), db.store());
    let (key, mark) = (
        files.key(store).await.unwrap().unwrap(),
        files.mark().unwrap(),
    );
    // This happens after the sealer has looked: only one event is left, and a seal that explains it.
    taken(store, &open_pull(store, 2).await, &project("b")).await;
    execute(db, "UPDATE lock_events SET seq = 8 WHERE seq = 6").await;
    let seal = ChainedEvent {
        seq: 7,
        ..events[5].clone()
    };
    made_up_seal(db, &seal).await;
    execute(db, "DELETE FROM lock_events WHERE seq < 8").await;
    let sealed = store.lock_event_seal(&key, None, 500).await.unwrap();
    assert!(
        matches!(sealed, SealLog::Torn(_)),
        "the event of the last checkpoint is gone"
    );
    for table in ["audit_checkpoints", "settings"] {
        execute(db, &format!("DELETE FROM {table}")).await;
    }
    let sealed = store
        .lock_event_seal(&key, mark.as_ref(), 500)
        .await
        .unwrap();
    assert!(
        matches!(sealed, SealLog::Torn(torn) if Some(&torn) == mark.as_ref()),
        "nobody signed that it was pruned"
    );
    // The seal is signed, but not by the server.
    let forged = SigningKey::generate();
    let mut seal = store.lock_event_seals().await.unwrap().remove(0);
    seal.key = Some(forged.public());
    let signature = seal.statement().sign(&forged);
    let sign = format!(
        "UPDATE lock_event_seals SET key = '{}', signature = '{signature}'",
        forged.public()
    );
    execute(db, &sign).await;
    let sealed = store
        .lock_event_seal(&key, mark.as_ref(), 500)
        .await
        .unwrap();
    assert!(matches!(sealed, SealLog::Torn(_)), "{sealed:?}");
    assert_eq!(store.audit_checkpoint_last().await.unwrap(), None);
}

async fn a_made_up_checkpoint_is_found(db: &TestDb) {
    let events = six(db).await;
    let server = db.store().audit_keys().await.unwrap()[0].public;
    let forged = Checkpoint::sign(&SigningKey::generate(), 5, events[4].hash.clone(), db.now());
    let insert = |key| {
        format!(
            "INSERT INTO audit_checkpoints (seq, hash, signed_at, key, signature) SELECT 5, '{}', signed_at, '{key}', '{}' \
             FROM audit_checkpoints WHERE seq = 6",
            forged.hash, forged.signature
        )
    };
    for key in [forged.key, server] {
        execute(db, &insert(key)).await;
        assert_eq!(verify(db).await, broken(5, ChainFault::UnsignedCheckpoint));
        execute(db, "DELETE FROM audit_checkpoints WHERE seq = 5").await;
    }
    // A person with access to the database adds the key, too. A verifier who knows the right key is not deceived.
    let add = "INSERT INTO audit_keys (public, created_at) SELECT ";
    execute(
        db,
        &format!(
            "{add} '{}', signed_at FROM audit_checkpoints WHERE seq = 6",
            forged.key
        ),
    )
    .await;
    let again = Checkpoint::sign(&SigningKey::generate(), 6, events[5].hash.clone(), db.now());
    execute(
        db,
        &format!(
            "{add} '{}', signed_at FROM audit_checkpoints WHERE seq = 6",
            again.key
        ),
    )
    .await;
    let at = db
        .store()
        .audit_checkpoint_last()
        .await
        .unwrap()
        .unwrap()
        .signed_at;
    execute(db, "DELETE FROM audit_checkpoints WHERE seq < 6").await;
    let stranger = SigningKey::generate();
    let again = Checkpoint::sign(&stranger, 6, events[5].hash.clone(), at);
    execute(
        db,
        &format!(
            "{add} '{}', signed_at FROM audit_checkpoints WHERE seq = 6",
            again.key
        ),
    )
    .await;
    execute(
        db,
        &format!(
            "UPDATE audit_checkpoints SET key = '{}', signature = '{}'",
            again.key, again.signature
        ),
    )
    .await;
    assert!(matches!(verify(db).await, AuditVerdict::Whole(_)));
    let known = KnownLogState {
        checkpoints: Vec::new(),
        keys: Some(vec![server]),
    };
    assert_eq!(
        locks::verify(db.store(), &known, None).await.unwrap(),
        broken(6, ChainFault::UnsignedCheckpoint)
    );
}

async fn an_end_that_was_written_again_is_found(db: &TestDb) {
    let mut event = six(db).await.remove(5);
    "nobody".clone_into(&mut event.event.cause.actor.login);
    let hash = ChainedEvent::hash_of(event.seq, event.at, &event.event, &event.previous);
    execute(
        db,
        &format!("UPDATE lock_events SET actor = 'nobody', hash = '{hash}' WHERE seq = 6"),
    )
    .await;
    assert_eq!(verify(db).await, broken(6, ChainFault::Replaced));
    execute(db, "DELETE FROM audit_checkpoints WHERE seq = 6").await;
    execute(
        db,
        "UPDATE settings SET value = '4' WHERE key = 'audit_highest'",
    )
    .await;
    assert!(
        matches!(verify(db).await, AuditVerdict::Whole(_)),
        "nothing in the database tells of it any more"
    );
    assert_eq!(verify_here(db).await, broken(6, ChainFault::Replaced));
}

async fn what_is_pruned_leaves_a_signed_seal_and_an_event(db: &TestDb) {
    let events = six(db).await;
    let (store, files) = (db.store(), audit_files(db));
    assert_eq!(
        prune_log(store, &files, events[0].at, "ada").await.unwrap(),
        None,
        "nothing is older"
    );
    let seal = prune_log(store, &files, events[2].at, "ada")
        .await
        .unwrap()
        .expect("two events are older");
    assert_eq!(
        (seal.last_seq, seal.events, &seal.last_hash),
        (2, 2, &events[1].hash)
    );
    assert_eq!(
        (seal.last_at, seal.actor.as_str(), seal.sealed_at),
        (events[1].at, "ada", db.now())
    );
    assert_eq!(
        store.lock_event_seals().await.unwrap(),
        slice::from_ref(&seal)
    );
    let event = store.lock_event_list(1).await.unwrap().remove(0).event;
    assert_eq!(
        (event.kind, event.cause.actor.login.as_str()),
        (LockEventKind::Pruned, "ada")
    );
    assert_eq!(
        event.cause.reason,
        format!(
            "2 events up to number 2 were removed (hash {})",
            seal.last_hash
        )
    );
    assert_eq!(seal_log(db).await, 1);
    let AuditVerdict::Whole(left) = locks::verify(store, &here(db), Some(&seal.last_hash))
        .await
        .unwrap()
    else {
        panic!("the chain continues the seal")
    };
    assert_eq!((left.events, left.removed, left.known), (5, 2, true));
    // The event of the last checkpoint stays, regardless of its age.
    let all = prune_log(store, &files, db.now() + TimeDelta::days(100), "ada")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(all.last_seq, 6);
    assert_eq!(whole(db).await.events, 1);
    execute(
        db,
        "UPDATE lock_event_seals SET events = 3 WHERE last_seq = 6",
    )
    .await;
    assert_eq!(verify(db).await, broken(6, ChainFault::UnsignedSeal));
    execute(
        db,
        "UPDATE lock_event_seals SET events = 4 WHERE last_seq = 6",
    )
    .await;
    assert_eq!(whole(db).await.removed, 6);
}

async fn only_who_has_the_key_prunes(db: &TestDb) {
    let events = six(db).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let files = AuditFiles::new(elsewhere.path(), "another machine", None, None);
    let error = prune_log(db.store(), &files, events[2].at, "ada")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the key that signs it is not here"),
        "{error}"
    );
    execute(db, "UPDATE lock_events SET actor = 'nobody' WHERE seq = 1").await;
    let error = prune_log(db.store(), &audit_files(db), events[2].at, "ada")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("event 1 was changed after it was written"),
        "{error}"
    );
    assert_eq!(db.store().lock_event_after(0, 10).await.unwrap().len(), 6);
}

/// The state of an earlier release: a chain without checkpoints, with a pruned beginning, verified to its end.
async fn a_log_of_an_earlier_release_goes_on(db: &TestDb) {
    let events = six(db).await;
    for table in ["audit_checkpoints", "audit_keys", "settings"] {
        execute(db, &format!("DELETE FROM {table}")).await;
    }
    std::fs::remove_dir_all(db.dir.path().join("audit")).unwrap();
    let walk = walk_to(db, "new", 6, None);
    db.store().lock_event_walk_set(&walk).await.unwrap();
    assert!(
        matches!(verify(db).await, AuditVerdict::Whole(whole) if whole.unsigned == 6),
        "nothing is signed"
    );
    assert_eq!(seal_log(db).await, 0, "there is nothing new");
    let log = whole(db).await;
    assert_eq!((log.events, log.unsigned), (6, 0));
    assert_eq!(log.checkpoint.unwrap().hash, events[5].hash);
    // A server of the earlier release that has not stopped yet writes an event.
    let event = &events[5].event;
    let at = db.now();
    let hash = ChainedEvent::hash_of(7, at, event, &events[5].hash);
    execute(
        db,
        &format!(
            "INSERT INTO lock_events (seq, at, kind, repo, dir, workspace, scope, pull, actor, origin, remote, reason, \
             concern, previous, hash) SELECT 7, '{}', kind, repo, dir, workspace, scope, pull, actor, origin, remote, \
             reason, concern, hash, '{hash}' FROM lock_events WHERE seq = 6",
            at.to_rfc3339()
        ),
    )
    .await;
    taken(db.store(), &open_pull(db.store(), 2).await, &project("b")).await;
    assert_eq!(seal_log(db).await, 1);
    assert_eq!(
        (
            whole(db).await.events,
            db.store().audit_reach().await.unwrap().head
        ),
        (8, 8)
    );
}

async fn events_of_many_at_once_make_one_chain(db: &TestDb) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=8 {
        let store = db.reopen().await;
        tasks.spawn(async move {
            let (pull, own) = (
                open_pull(&store, number).await,
                project(&format!("p{number}")),
            );
            for _ in 0..10 {
                taken(&store, &pull, &own).await;
                assert!(store.lock_release(&pull, &own, by()).await.unwrap());
            }
        });
    }
    let mut sealed = 0;
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
        sealed += seal_log(db).await;
    }
    assert_eq!(sealed, 160);
    assert_eq!(whole(db).await.events, 160);
    let events = db.store().lock_event_after(0, 160).await.unwrap();
    for dir in (1..=8).map(|number| format!("p{number}")) {
        let of_dir = events
            .iter()
            .filter(|event| event.event.dir().is_some_and(|of| of.to_string() == dir));
        let kinds: Vec<_> = of_dir.map(|event| event.event.kind).collect();
        assert_eq!(
            kinds,
            [LockEventKind::Taken, LockEventKind::Released].repeat(10),
            "each lock in its order"
        );
    }
}

/// PostgreSQL numbers the rows of the inbox before the commit.
#[tokio::test]
async fn an_event_that_is_committed_late_is_sealed_later() {
    let db = &TestDb::new(Backend::Postgres).await;
    let DatabaseUrl::Postgres(options) = &db.url else {
        panic!("asked for PostgreSQL")
    };
    let mut slow = sqlx_postgres::PgConnection::connect_with(options)
        .await
        .unwrap();
    let mut tx = slow.begin().await.unwrap();
    let insert = "INSERT INTO lock_event_inbox (at, kind, actor, origin, reason) \
                  VALUES ('2026-03-02T09:00:00Z', 'denied', 'slow', 'comment', 'because')";
    sqlx::query(insert).execute(&mut *tx).await.unwrap();
    taken(db.store(), &open_pull(db.store(), 1).await, &project("a")).await;
    assert_eq!(seal_log(db).await, 1);
    tx.commit().await.unwrap();
    assert_eq!(seal_log(db).await, 1);
    let actors: Vec<_> = db
        .store()
        .lock_event_after(0, 9)
        .await
        .unwrap()
        .into_iter()
        .map(|kept| kept.event.cause.actor.login)
        .collect();
    assert_eq!(actors, ["ada", "slow"]);
    assert_eq!(whole(db).await.events, 2);
}

/// The test locks the chain as the sealer does.
#[tokio::test]
async fn no_change_of_a_lock_waits_for_the_chain() {
    let db = &TestDb::new(Backend::Postgres).await;
    let DatabaseUrl::Postgres(options) = &db.url else {
        panic!("asked for PostgreSQL")
    };
    let mut sealer = sqlx_postgres::PgConnection::connect_with(options)
        .await
        .unwrap();
    sqlx::query("SELECT pg_advisory_lock(hashtextextended('lock_events', 0))")
        .execute(&mut sealer)
        .await
        .unwrap();
    let one = open_pull(db.store(), 1).await;
    let work = async {
        taken(db.store(), &one, &project("a")).await;
        db.store()
            .lock_release(&one, &project("a"), by())
            .await
            .unwrap()
    };
    // No change waits, so this limit only ends a test that would run forever.
    assert!(
        tokio::time::timeout(Duration::from_mins(2), work)
            .await
            .expect("it waits for the chain")
    );
}

async fn a_key_lies_in_the_database_only_encrypted(db: &TestDb) {
    let line = |fill: u8, name: &str| {
        let key = std::array::from_fn(|n| fill.wrapping_add(u8::try_from(n).unwrap()));
        key_line(&name.parse().unwrap(), &key).expose().to_owned()
    };
    let keyring = |fill: u8, name: &str| Arc::new(Keyring::parse(&line(fill, name)).unwrap());
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let files =
        |dir: usize, keys| AuditFiles::new(dirs[dir].path(), "one database", None, Some(keys));
    let one = open_pull(db.store(), 1).await;
    let mut signed_by = Vec::new();
    for (dir, keys) in [
        (0, keyring(1, "a")),
        (1, keyring(1, "a")),
        (1, keyring(2, "b")),
        (0, keyring(1, "a")),
    ] {
        taken(db.store(), &one, &project("a")).await;
        assert!(
            db.store()
                .lock_release(&one, &project("a"), by())
                .await
                .unwrap()
        );
        assert!(
            locks::seal_log(db.store(), &files(dir, keys))
                .await
                .unwrap()
                >= 2
        );
        signed_by.push(
            db.store()
                .audit_checkpoint_last()
                .await
                .unwrap()
                .unwrap()
                .key,
        );
    }
    assert_eq!(
        (signed_by[0], signed_by[0]),
        (signed_by[1], signed_by[3]),
        "servers with one file share the key"
    );
    assert_ne!(
        signed_by[0], signed_by[2],
        "who cannot open it makes another"
    );
    let keys = db.store().audit_keys().await.unwrap();
    assert!(keys.len() == 2 && keys.iter().all(|key| key.sealed.is_some()));
    assert!(!dirs[0].path().join("audit/signing-key").exists());
    // The administrator replaces the file of encryption keys.
    let text = format!("{}\n{}\n", line(3, "c"), line(1, "a"));
    assert_eq!(
        locks::reseal_audit_keys(db.store(), &Keyring::parse(&text).unwrap())
            .await
            .unwrap(),
        1
    );
    taken(db.store(), &one, &project("a")).await;
    assert_eq!(
        locks::seal_log(db.store(), &files(0, keyring(3, "c")))
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        db.store()
            .audit_checkpoint_last()
            .await
            .unwrap()
            .unwrap()
            .key,
        signed_by[0],
        "it is the same key"
    );
    let events = db.store().lock_event_list(99).await.unwrap();
    let told: Vec<_> = events
        .iter()
        .filter(|event| event.event.kind == LockEventKind::KeyAdded)
        .collect();
    assert_eq!(told.len(), 1, "the second key is an event");
    assert!(
        told[0]
            .event
            .cause
            .reason
            .contains("which is not in the file of --encryption-key-file")
    );
    assert!(matches!(verify(db).await, AuditVerdict::Whole(_)));
}

async fn every_checkpoint_is_exported_and_verifies_the_log_later(db: &TestDb) {
    let export = db.dir.path().join("checkpoints");
    let files = AuditFiles::new(db.dir.path(), "this", Some(export.clone()), None);
    let one = open_pull(db.store(), 1).await;
    for _ in 0..3 {
        taken(db.store(), &one, &project("a")).await;
        assert!(
            db.store()
                .lock_release(&one, &project("a"), by())
                .await
                .unwrap()
        );
        assert_eq!(locks::seal_log(db.store(), &files).await.unwrap(), 2);
    }
    let lines = std::fs::read_to_string(&export).unwrap();
    assert_eq!(lines.lines().count(), 3);
    let inside: Vec<_> = db
        .store()
        .audit_checkpoints()
        .await
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), inside);
    // Another machine has a copy of the exported file, and everything else was removed.
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = AuditFiles::new(elsewhere.path(), "copy", Some(export.clone()), None);
    execute(db, "DELETE FROM lock_events WHERE seq > 2").await;
    execute(db, "DELETE FROM audit_checkpoints WHERE seq > 2").await;
    execute(db, "DELETE FROM settings").await;
    let evidence = KnownLogState {
        checkpoints: copy.checkpoints().unwrap(),
        keys: None,
    };
    assert_eq!(
        locks::verify(db.store(), &evidence, None).await.unwrap(),
        broken(3, ChainFault::MissingTo(6))
    );
    std::fs::write(&export, lines.replacen(" 4 ", " 5 ", 1)).unwrap();
    let error = copy.checkpoints().unwrap_err().to_string();
    assert!(
        error.ends_with("line 2 was changed: its signature does not match"),
        "{error}"
    );
}

async fn verify_on(db: &TestDb, from: Option<&VerifiedMark>, pieces: usize) -> RangeVerdict {
    locks::verify_on(db.store(), &KnownLogState::default(), from, pieces)
        .await
        .unwrap()
}

fn mark(event: &ChainedEvent) -> VerifiedMark {
    VerifiedMark {
        seq: event.seq,
        hash: event.hash.clone(),
    }
}

async fn a_walk_goes_on_where_it_was_and_looks_at_what_is_new(db: &TestDb) {
    let nothing = VerifiedMark {
        seq: 0,
        hash: ChainedEvent::genesis(),
    };
    let empty = RangeVerdict::Whole {
        mark: nothing.clone(),
        events: 0,
        at_end: true,
    };
    assert_eq!(verify_on(db, None, 5).await, empty);
    let events = six(db).await;
    let whole = |count, at_end| RangeVerdict::Whole {
        mark: mark(&events[5]),
        events: count,
        at_end,
    };
    assert_eq!(verify_on(db, Some(&nothing), 5).await, whole(6, true));
    assert_eq!(
        verify_on(db, Some(&mark(&events[3])), 5).await,
        whole(2, true)
    );
    assert_eq!(
        verify_on(db, Some(&mark(&events[3])), 1).await,
        whole(2, false),
        "one piece was read"
    );
    execute(db, "UPDATE lock_events SET actor = 'nobody' WHERE seq = 3").await;
    assert_eq!(
        verify_on(db, Some(&mark(&events[3])), 5).await,
        whole(2, true),
        "that was verified before"
    );
    let found = RangeVerdict::Broken {
        seq: 3,
        fault: ChainFault::Changed,
    };
    assert_eq!(verify_on(db, Some(&mark(&events[1])), 5).await, found);
}

async fn a_walk_finds_what_was_cut_off_or_put_in_place_of_the_event_it_stands_at(db: &TestDb) {
    let events = six(db).await;
    let stands = mark(&events[5]);
    execute(db, "DELETE FROM lock_events WHERE seq = 6").await;
    let missing = RangeVerdict::Broken {
        seq: 6,
        fault: ChainFault::Missing,
    };
    assert_eq!(verify_on(db, Some(&stands), 5).await, missing);
    // The log of this walk was never signed.
    for table in ["audit_checkpoints", "audit_keys", "settings"] {
        execute(db, &format!("DELETE FROM {table}")).await;
    }
    std::fs::remove_dir_all(db.dir.path().join("audit")).unwrap();
    taken(db.store(), &open_pull(db.store(), 2).await, &project("b")).await;
    assert_eq!(seal_log(db).await, 1);
    let changed = RangeVerdict::Broken {
        seq: 6,
        fault: ChainFault::Changed,
    };
    assert_eq!(
        verify_on(db, Some(&stands), 5).await,
        changed,
        "the chain itself is whole again"
    );
}

async fn a_walk_that_stands_at_a_pruned_event_begins_at_the_seal(db: &TestDb) {
    let events = six(db).await;
    prune_log(db.store(), &audit_files(db), events[4].at, "ada")
        .await
        .unwrap()
        .expect("four events are older");
    for from in [1, 3] {
        let stretch = verify_on(db, Some(&mark(&events[from])), 5).await;
        assert_eq!(
            stretch,
            RangeVerdict::Whole {
                mark: mark(&events[5]),
                events: 2,
                at_end: true
            }
        );
    }
}

fn walk_to(db: &TestDb, name: &str, seq: i64, broken: Option<i64>) -> LockEventWalk {
    LockEventWalk {
        name: name.to_owned(),
        seq,
        hash: Sha256Digest::of(name.as_bytes()),
        broken_seq: broken,
        fault: broken.map(|_| "is missing".to_owned()),
        walked_at: db.now(),
    }
}

async fn how_far_a_walk_came_is_kept(db: &TestDb) {
    assert_eq!(db.store().lock_event_walks().await.unwrap(), []);
    let walk = |name: &str, seq, broken: Option<i64>| walk_to(db, name, seq, broken);
    for (name, seq, broken) in [("new", 5, None), ("again", 2, None), ("new", 5, Some(6))] {
        db.store()
            .lock_event_walk_set(&walk(name, seq, broken))
            .await
            .unwrap();
    }
    assert_eq!(
        db.reopen().await.lock_event_walks().await.unwrap(),
        [walk("again", 2, None), walk("new", 5, Some(6))]
    );
}
