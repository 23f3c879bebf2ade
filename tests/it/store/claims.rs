//! Tests of owners, claims, applications, and the two collectors, one after another and all at once.

use std::collections::BTreeSet;
use std::slice;

use lockkeeper::claims::{
    ApplicationRemoved, ApplicationSaved, Collection, application_add, application_change,
    application_remove, collect,
};
use lockkeeper::model::{
    ApplicationChange, ApplicationFields, ApplicationId, ApplicationSpec, ClaimId, CommandKind,
    ForgeHosts, LockEventKind, OwnerId, OwnerName, PullRef, PullState, RepoUrl, Rights, RunKind,
    Subject, SyncState,
};
use lockkeeper::store::{
    Acquired, Application, Claim, ClaimCollection, CreateOwner, DatabaseUrl, DeleteOwner,
    MirrorSearch, Owner, Store,
};
use sqlx::{AssertSqlSafe, Connection};
use sqlx_postgres::PgConnection;
use sqlx_sqlite::SqliteConnection;
use tokio::task::JoinSet;

use super::samples::{URL, command, project, run, taken};
use crate::support::db::{TestDb, by, execute, large_races, store_test};

store_test!(
    owners_are_added_listed_and_removed,
    an_owner_with_applications_stays,
    owners_and_the_applications_of_each_have_a_limit,
    who_claims_first_has_it_and_the_second_is_told_whose_it_is,
    every_change_is_on_record_with_its_repository,
    an_application_takes_locks_only_where_it_is_and_its_number_is_never_given_again,
    an_application_of_anothers_repository_is_refused_and_nothing_is_there,
    a_second_application_of_the_same_project_is_refused,
    a_changed_address_moves_the_claim,
    a_change_to_anothers_repository_changes_nothing,
    the_last_application_takes_the_claim_with_it,
    a_claim_that_nothing_refers_to_is_collected,
    a_claim_that_cannot_be_collected_keeps_none_of_the_others,
    an_owner_who_is_gone_claims_nothing,
    lists_are_read_part_by_part,
    lists_of_what_is_in_repositories_are_narrowed_to_those_of_an_owner,
    a_reference_that_comes_in_between_keeps_the_claim,
    an_account_that_is_limited_makes_no_first_claim,
    that_another_branch_is_allowed_is_kept_and_goes_with_what_it_was_said_of,
    a_claim_that_is_being_made_is_waited_for,
    a_claim_cannot_be_deleted_under_its_references,
    of_64_tasks_of_8_owners_that_race_for_one_repository_one_owner_has_it,
);

const INFRA: &str = "https://github.com/acme/infra";
const DNS: &str = "https://github.com/acme/dns";

fn url(text: &str) -> RepoUrl {
    RepoUrl::parse(text).unwrap()
}

fn name(text: &str) -> OwnerName {
    text.parse().unwrap()
}

async fn owner(store: &Store, text: &str) -> Owner {
    match store.owner_create(&name(text), by()).await.unwrap() {
        CreateOwner::Created(owner) => owner,
        refused @ (CreateOwner::AlreadyThere(_) | CreateOwner::TooMany(_)) => panic!("{refused:?}"),
    }
}

fn spec(url: &str, dir: &str) -> ApplicationSpec {
    let fields = ApplicationFields {
        url: Some(url),
        branch: Some("main"),
        dir: Some(dir),
        ..ApplicationFields::default()
    };
    fields.spec(&ForgeHosts::public()).unwrap()
}

async fn add(store: &Store, owner: &str, url: &str, dir: &str) -> ApplicationSaved {
    application_add(store, &name(owner), &spec(url, dir), (Rights::Whole, by()))
        .await
        .unwrap()
}

async fn added(store: &Store, owner: &str, url: &str, dir: &str) -> Application {
    add(store, owner, url, dir).await.or_why().unwrap()
}

fn to_url(text: &str) -> ApplicationChange {
    ApplicationChange {
        url: Some(url(text)),
        ..ApplicationChange::default()
    }
}

async fn claims(store: &Store) -> Vec<Claim> {
    store.claim_list(None, None, 1000).await.unwrap()
}

/// Returns address, owner and number of applications of each claim.
async fn shown(store: &Store) -> Vec<(String, String, i64)> {
    let shown = |claim: Claim| {
        (
            claim.url.to_string(),
            claim.owner.to_string(),
            claim.applications,
        )
    };
    claims(store).await.into_iter().map(shown).collect()
}

fn one(url: &str, owner: &str, applications: i64) -> Vec<(String, String, i64)> {
    vec![(url.to_owned(), owner.to_owned(), applications)]
}

async fn an_account_that_is_limited_makes_no_first_claim(db: &TestDb) {
    let store = db.store();
    let (net, limited) = (owner(store, "net").await, (Rights::Limited, by()));
    owner(store, "dns").await;
    let unclaimed = || ApplicationSaved::Unclaimed(url(INFRA));
    let before = store.lock_event_list(99).await.unwrap();
    assert_eq!(
        application_add(store, &net.name, &spec(INFRA, "a"), limited)
            .await
            .unwrap(),
        unclaimed()
    );
    let why = unclaimed().or_why().unwrap_err();
    assert!(
        why.starts_with(
            "Nobody has claimed https://github.com/acme/infra, and only the account of the whole"
        ),
        "{why}"
    );
    assert_eq!(
        (
            claims(store).await,
            store.application_list(None, None, 9).await.unwrap()
        ),
        (vec![], vec![])
    );
    assert_eq!(
        store.lock_event_list(99).await.unwrap(),
        before,
        "nothing was claimed"
    );
    let first = added(store, "net", INFRA, "a").await;
    let second = application_add(store, &net.name, &spec(INFRA, "b"), limited)
        .await
        .unwrap();
    let second = second.or_why().unwrap();
    assert_eq!(shown(store).await, one(INFRA, "net", 2));
    let moved = application_change(store, second.id, &to_url(DNS), limited)
        .await
        .unwrap();
    assert_eq!(moved, ApplicationSaved::Unclaimed(url(DNS)));
    assert_eq!(
        shown(store).await,
        one(INFRA, "net", 2),
        "nothing was moved"
    );
    let other = application_add(store, &name("dns"), &spec(INFRA, "c"), limited)
        .await
        .unwrap();
    assert_eq!(other, ApplicationSaved::OwnedBy(url(INFRA), name("net")));
    for id in [first.id, second.id] {
        application_remove(store, id, by())
            .await
            .unwrap()
            .or_why()
            .unwrap();
    }
    let again = application_add(store, &net.name, &spec(INFRA, "a"), limited)
        .await
        .unwrap();
    assert_eq!(again, unclaimed(), "the claim went with the last reference");
}

async fn that_another_branch_is_allowed_is_kept_and_goes_with_what_it_was_said_of(db: &TestDb) {
    let store = db.store();
    let net = owner(store, "net").await;
    let any = |spec: ApplicationSpec| ApplicationSpec {
        any_branch: true,
        ..spec
    };
    let allowed = any(spec(INFRA, "a"));
    let app = application_add(store, &net.name, &allowed, (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap();
    assert!(
        store
            .application_get(app.id)
            .await
            .unwrap()
            .unwrap()
            .spec
            .any_branch
    );
    let limited = application_add(
        store,
        &net.name,
        &any(spec(INFRA, "b")),
        (Rights::Limited, by()),
    )
    .await
    .unwrap();
    let limited = limited.or_why().unwrap();
    assert!(
        !limited.spec.any_branch
            && !store
                .application_get(limited.id)
                .await
                .unwrap()
                .unwrap()
                .spec
                .any_branch
    );
    let nothing = ApplicationChange::default();
    let same = application_change(store, app.id, &nothing, (Rights::Limited, by()))
        .await
        .unwrap();
    assert!(same.or_why().unwrap().spec.any_branch, "it is what it was");
    let other = ApplicationChange {
        dir: Some("c".parse().unwrap()),
        ..nothing
    };
    let other = application_change(store, app.id, &other, (Rights::Limited, by()))
        .await
        .unwrap();
    assert!(
        !other.or_why().unwrap().spec.any_branch,
        "nobody allowed it of another directory"
    );
    assert!(
        !store
            .application_get(app.id)
            .await
            .unwrap()
            .unwrap()
            .spec
            .any_branch
    );
}

async fn owners_are_added_listed_and_removed(db: &TestDb) {
    let store = db.store();
    let (net, dns) = (owner(store, "net").await, owner(store, "DNS").await);
    assert_eq!(
        store.owner_create(&name("Net"), by()).await.unwrap(),
        CreateOwner::AlreadyThere(net.clone())
    );
    assert_eq!(
        store.owner_list().await.unwrap(),
        [dns.clone(), net.clone()]
    );
    assert_eq!(
        store.owner_part(None, 1).await.unwrap(),
        slice::from_ref(&dns)
    );
    assert_eq!(
        store.owner_part(Some(&name("dns")), 9).await.unwrap(),
        slice::from_ref(&net)
    );
    assert_eq!(
        store.owner_part(Some(&name("e")), 9).await.unwrap(),
        slice::from_ref(&net),
        "from a name that is none"
    );
    assert_eq!(store.owner_part(Some(&name("net")), 9).await.unwrap(), []);
    assert_eq!(
        db.reopen().await.owner_get(&name("net")).await.unwrap(),
        Some(net.clone())
    );
    assert_eq!((net.created_by.as_str(), net.created_at), ("ada", db.now()));
    assert_eq!(
        store.owner_delete(&name("net"), by()).await.unwrap(),
        DeleteOwner::Deleted(net)
    );
    assert_eq!(
        store.owner_delete(&name("net"), by()).await.unwrap(),
        DeleteOwner::NotFound
    );
    assert_eq!(store.owner_get(&name("net")).await.unwrap(), None);
}

/// The rows are inserted by SQL, because ten thousand transactions take too long.
async fn owners_and_the_applications_of_each_have_a_limit(db: &TestDb) {
    const NUMBERS: &str =
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n <";
    let (store, time) = (db.store(), "2026-03-04 05:06:07+00:00");
    let (net, dns) = (owner(store, "net").await, owner(store, "dns").await);
    let (owners, applications) = (Store::MAX_OWNERS - 3, Store::MAX_APPLICATIONS - 1);
    let more_owners = format!(
        "{NUMBERS} {owners}) INSERT INTO owners (id, name, created_by, created_at) \
         SELECT 'owner-' || n, 'team-' || n, 'ada', '{time}' FROM numbers"
    );
    let more_applications = format!(
        "{NUMBERS} {applications}) INSERT INTO applications \
         (id, owner, url, branch, dir, workspace, number, created_by, created_at, updated_at) \
         SELECT 'app-' || n, '{}', '{INFRA}', 'main', 'dir-' || n, 'default', -1000000 - n, 'ada', '{time}', '{time}' \
         FROM numbers",
        net.id
    );
    for sql in [more_owners, more_applications] {
        execute(db, &sql).await;
    }
    owner(store, "last").await;
    assert_eq!(
        store.owner_create(&name("more"), by()).await.unwrap(),
        CreateOwner::TooMany(Store::MAX_OWNERS)
    );
    assert_eq!(store.owner_get(&name("more")).await.unwrap(), None);
    assert_eq!(
        store.owner_create(&name("dns"), by()).await.unwrap(),
        CreateOwner::AlreadyThere(dns)
    );
    let last = added(store, "net", INFRA, "last").await;
    let refused = add(store, "net", INFRA, "more").await;
    assert_eq!(refused, ApplicationSaved::TooMany(name("net")));
    let why = refused.or_why().unwrap_err();
    assert!(
        why.starts_with("`net` has 10000 applications, which is the maximum. Remove applications"),
        "{why}"
    );
    assert!(matches!(
        add(store, "net", INFRA, "last").await,
        ApplicationSaved::AlreadyThere(_)
    ));
    assert_eq!(
        add(store, "net", DNS, "more").await,
        ApplicationSaved::TooMany(name("net"))
    );
    assert_eq!(
        shown(store).await,
        one(INFRA, "net", 1),
        "what is refused claims nothing"
    );
    added(store, "dns", DNS, "more").await;
    drop(application_remove(store, last.id, by()).await.unwrap());
    added(store, "net", INFRA, "more").await;
}

async fn an_owner_with_applications_stays(db: &TestDb) {
    let store = db.store();
    let net = owner(store, "net").await;
    let app = added(store, "net", INFRA, ".").await;
    let refused = store.owner_delete(&name("net"), by()).await.unwrap();
    assert_eq!(
        refused,
        DeleteOwner::InUse {
            applications: 1,
            credentials: 0,
            namespaces: 0
        }
    );
    assert_eq!(
        application_remove(store, app.id, by()).await.unwrap(),
        ApplicationRemoved::Removed(Box::new(app))
    );
    // A claim that only the collector would have removed is deleted with its owner.
    let _claimed = store.claim_acquire(net.id, &url(DNS), by()).await.unwrap();
    assert_eq!(
        store.owner_delete(&name("net"), by()).await.unwrap(),
        DeleteOwner::Deleted(net)
    );
    assert_eq!(shown(store).await, []);
}

async fn who_claims_first_has_it_and_the_second_is_told_whose_it_is(db: &TestDb) {
    let store = db.store();
    let (net, dns) = (owner(store, "net").await, owner(store, "dns").await);
    let first = store
        .claim_acquire(net.id, &url("git@github.com:Acme/infra.git"), by())
        .await
        .unwrap();
    let Acquired::Claimed(id) = first else {
        panic!("{first:?}")
    };
    for spelling in [
        INFRA,
        "ssh://git@github.com:22/acme/infra",
        "https://GITHUB.com/acme/infra/",
    ] {
        let other = db.reopen().await;
        assert_eq!(
            other
                .claim_acquire(net.id, &url(spelling), by())
                .await
                .unwrap(),
            Acquired::Claimed(id)
        );
        assert_eq!(
            other
                .claim_acquire(dns.id, &url(spelling), by())
                .await
                .unwrap(),
            Acquired::OwnedBy(name("net"))
        );
    }
    let claim = store.claim_get(&url(INFRA)).await.unwrap().unwrap();
    assert_eq!(
        (claim.id, claim.owner, claim.created_at),
        (id, name("net"), db.now())
    );
    assert_eq!((claim.applications, claim.credentials), (0, 0));
    assert_eq!(store.claim_get(&url(DNS)).await.unwrap(), None);
}

async fn an_application_takes_locks_only_where_it_is_and_its_number_is_never_given_again(
    db: &TestDb,
) {
    let store = db.store();
    owner(store, "net").await;
    let first = added(store, "net", INFRA, "a").await;
    let changed = application_change(store, first.id, &to_url(DNS), (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap();
    let (before, after) = (first.at().unwrap(), changed.at().unwrap());
    assert_eq!(
        store.application_of(first.number).await.unwrap(),
        Some(changed)
    );
    let state = async |at: &PullRef| store.pull_state(at).await.unwrap();
    assert_eq!(
        (state(&before).await, state(&after).await),
        (Some(PullState::Closed), Some(PullState::Open))
    );
    drop(application_remove(store, first.id, by()).await.unwrap());
    assert_eq!(state(&after).await, Some(PullState::Closed));
    let second = added(store, "net", INFRA, "a").await;
    assert_eq!(
        [first.number, second.number],
        [1, 2].map(Subject::Application)
    );
    assert_eq!(store.application_of(first.number).await.unwrap(), None);
}

async fn every_change_is_on_record_with_its_repository(db: &TestDb) {
    let store = db.store();
    owner(store, "net").await;
    let app = added(store, "net", INFRA, "a").await;
    let changed = application_change(store, app.id, &to_url(DNS), (Rights::Whole, by()))
        .await
        .unwrap();
    assert!(matches!(changed, ApplicationSaved::Saved(_)));
    let removed = application_remove(store, app.id, by()).await.unwrap();
    assert!(matches!(removed, ApplicationRemoved::Removed(_)));
    let id = app.id.to_string();
    let mut events = store.lock_event_list(20).await.unwrap();
    events.reverse();
    let lines = events.iter().map(|kept| {
        format!(
            "{}: {}",
            kept.event.kind,
            kept.event.cause.reason.replace(&id, "ID")
        )
    });
    insta::allow_duplicates! {
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @"
        registered: owner net: as the test wants it
        claimed: https://github.com/acme/infra for net: as the test wants it
        registered: application ID of net, https://github.com/acme/infra branch main dir a workspace default: as the test wants it
        claimed: https://github.com/acme/dns for net: as the test wants it
        unclaimed: https://github.com/acme/infra of net: as the test wants it
        registered: application ID of net, https://github.com/acme/dns branch main dir a workspace default: as the test wants it
        unregistered: application ID of net, https://github.com/acme/dns branch main dir a workspace default: as the test wants it
        unclaimed: https://github.com/acme/dns of net: as the test wants it
        ");
    }
    assert!(
        events
            .iter()
            .all(|kept| kept.event.cause.actor.login == "ada")
    );
}

async fn an_application_of_anothers_repository_is_refused_and_nothing_is_there(db: &TestDb) {
    let store = db.store();
    owner(store, "net").await;
    owner(store, "dns").await;
    let app = added(store, "net", INFRA, ".").await;
    let before = store.lock_event_list(50).await.unwrap();
    let refused = add(store, "dns", "git@github.com:acme/infra.git", "other").await;
    assert_eq!(refused, ApplicationSaved::OwnedBy(url(INFRA), name("net")));
    assert_eq!(
        refused.or_why().unwrap_err(),
        "https://github.com/acme/infra is owned by `net`. Ask that owner to remove its applications and credentials for the repository; \
         `lockkeeper claims show https://github.com/acme/infra` shows how many there are."
    );
    assert_eq!(
        add(store, "nobody", DNS, ".").await,
        ApplicationSaved::NoOwner(name("nobody"))
    );
    assert_eq!(store.application_list(None, None, 50).await.unwrap(), [app]);
    assert_eq!(shown(store).await, one(INFRA, "net", 1));
    assert_eq!(store.lock_event_list(50).await.unwrap(), before);
}

async fn a_second_application_of_the_same_project_is_refused(db: &TestDb) {
    let store = db.store();
    owner(store, "net").await;
    let first = added(store, "net", INFRA, "a").await;
    let second = added(store, "net", INFRA, "b").await;
    let there = || ApplicationSaved::AlreadyThere(Box::new(first.clone()));
    assert_eq!(
        add(store, "net", "git@github.com:acme/infra", "./a/").await,
        there()
    );
    let onto = ApplicationChange {
        dir: Some("a".parse().unwrap()),
        ..ApplicationChange::default()
    };
    assert_eq!(
        application_change(store, second.id, &onto, (Rights::Whole, by()))
            .await
            .unwrap(),
        there()
    );
    assert_eq!(
        store.application_get(second.id).await.unwrap(),
        Some(second)
    );
    assert_eq!(shown(store).await, one(INFRA, "net", 2));
}

async fn a_changed_address_moves_the_claim(db: &TestDb) {
    let store = db.store();
    owner(store, "net").await;
    let [a, b] = [
        added(store, "net", INFRA, "a").await,
        added(store, "net", INFRA, "b").await,
    ];
    let moved = application_change(store, a.id, &to_url(DNS), (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap();
    assert_eq!(moved.spec, spec(DNS, "a"));
    assert_eq!(
        shown(store).await,
        [one(DNS, "net", 1), one(INFRA, "net", 1)].concat()
    );
    let moved = application_change(store, b.id, &to_url(DNS), (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap();
    assert_eq!(store.application_get(b.id).await.unwrap(), Some(moved));
    assert_eq!(
        shown(store).await,
        one(DNS, "net", 2),
        "the last reference took the old claim with it"
    );
    let gone: ApplicationId = "00000000-0000-7000-8000-0000ffffffff".parse().unwrap();
    let missing = application_change(store, gone, &to_url(DNS), (Rights::Whole, by()))
        .await
        .unwrap();
    assert_eq!(missing, ApplicationSaved::NotFound(gone));
}

async fn a_change_to_anothers_repository_changes_nothing(db: &TestDb) {
    let store = db.store();
    owner(store, "net").await;
    owner(store, "dns").await;
    let ours = added(store, "net", INFRA, ".").await;
    added(store, "dns", DNS, ".").await;
    let refused = application_change(store, ours.id, &to_url(DNS), (Rights::Whole, by()))
        .await
        .unwrap();
    assert_eq!(refused, ApplicationSaved::OwnedBy(url(DNS), name("dns")));
    assert_eq!(store.application_get(ours.id).await.unwrap(), Some(ours));
    assert_eq!(
        shown(store).await,
        [one(DNS, "dns", 1), one(INFRA, "net", 1)].concat()
    );
}

async fn the_last_application_takes_the_claim_with_it(db: &TestDb) {
    let store = db.store();
    owner(store, "net").await;
    owner(store, "dns").await;
    let [a, b] = [
        added(store, "net", INFRA, "a").await,
        added(store, "net", INFRA, "b").await,
    ];
    assert_eq!(
        application_remove(store, a.id, by()).await.unwrap(),
        ApplicationRemoved::Removed(Box::new(a.clone()))
    );
    assert_eq!(shown(store).await, one(INFRA, "net", 1));
    assert_eq!(
        application_remove(store, b.id, by()).await.unwrap(),
        ApplicationRemoved::Removed(Box::new(b))
    );
    assert_eq!(
        application_remove(store, a.id, by()).await.unwrap(),
        ApplicationRemoved::NotFound(a.id)
    );
    assert_eq!(shown(store).await, []);
    added(store, "dns", INFRA, "a").await;
    assert_eq!(shown(store).await, one(INFRA, "dns", 1));
}

async fn a_claim_that_nothing_refers_to_is_collected(db: &TestDb) {
    let store = db.store();
    let net = owner(store, "net").await;
    added(store, "net", INFRA, ".").await;
    let _claimed = store.claim_acquire(net.id, &url(DNS), by()).await.unwrap();
    assert_eq!(
        collect(store).await.unwrap(),
        Collection {
            unused: 1,
            removed: 1
        }
    );
    assert_eq!(shown(store).await, one(INFRA, "net", 1));
    assert_eq!(collect(store).await.unwrap(), Collection::default());
    let newest = &store.lock_event_list(1).await.unwrap()[0].event;
    assert_eq!(newest.kind, LockEventKind::Unclaimed);
    assert_eq!(
        newest.cause.reason,
        "https://github.com/acme/dns of net: nothing refers to the claim"
    );
}

/// The rows are inserted by SQL, with addresses that no claim can have.
async fn a_claim_that_cannot_be_collected_keeps_none_of_the_others(db: &TestDb) {
    let store = db.store();
    let net = owner(store, "net").await;
    for address in [INFRA, DNS, "https://github.com/acme/labs"] {
        let _claimed = store
            .claim_acquire(net.id, &url(address), by())
            .await
            .unwrap();
    }
    for (name, wrong) in [("dns", "0"), ("infra", "1")] {
        let sql = format!(
            "UPDATE repository_claims SET url = '{wrong}' WHERE url = 'https://github.com/acme/{name}'"
        );
        execute(db, &sql).await;
    }
    let failed = format!("{:#}", collect(store).await.unwrap_err());
    assert!(
        failed.starts_with("cannot remove 1 more claims: cannot remove the unused claim "),
        "{failed}"
    );
    assert_eq!(
        store
            .claim_get(&url("https://github.com/acme/labs"))
            .await
            .unwrap(),
        None
    );
}

async fn an_owner_who_is_gone_claims_nothing(db: &TestDb) {
    let nobody: OwnerId = "00000000-0000-7000-8000-0000ffffffff".parse().unwrap();
    let refused = db.store().claim_acquire(nobody, &url(INFRA), by()).await;
    assert!(
        matches!(refused, Err(sqlx::Error::RowNotFound)),
        "{refused:?}"
    );
    assert_eq!(shown(db.store()).await, []);
}

async fn lists_are_read_part_by_part(db: &TestDb) {
    let store = db.store();
    let (net, dns) = (owner(store, "net").await, owner(store, "dns").await);
    // The addresses are in the order of their bytes, which is not that of a dictionary.
    let addresses =
        ["a-b", "a.c", "a0", "a_c", "ab"].map(|name| format!("https://github.com/acme/{name}"));
    for address in &addresses {
        added(store, "net", address, ".").await;
    }
    added(store, "dns", DNS, ".").await;
    let part = store
        .claim_list(Some(net.id), Some(&url(&addresses[1])), 2)
        .await
        .unwrap();
    assert_eq!(
        part.iter()
            .map(|claim| claim.url.as_str())
            .collect::<Vec<_>>(),
        addresses[2..4]
    );
    let first = store.application_list(Some(net.id), None, 2).await.unwrap();
    let rest = store
        .application_list(Some(net.id), Some(first[1].id), 50)
        .await
        .unwrap();
    let all: BTreeSet<String> = first
        .iter()
        .chain(&rest)
        .map(|app| app.spec.url.to_string())
        .collect();
    assert_eq!(all, addresses.into_iter().collect());
    assert_eq!(
        store
            .application_list(Some(dns.id), None, 50)
            .await
            .unwrap()
            .len(),
        1
    );
}

async fn lists_of_what_is_in_repositories_are_narrowed_to_those_of_an_owner(db: &TestDb) {
    let store = db.store();
    let net = owner(store, "net").await;
    owner(store, "dns").await;
    for (owner, address) in [
        ("net", INFRA),
        ("net", "https://github.com/acme/other"),
        ("dns", DNS),
    ] {
        added(store, owner, address, ".").await;
    }
    assert_eq!(
        store.claim_owner(&url(DNS)).await.unwrap(),
        Some("dns".parse().unwrap())
    );
    assert_eq!(
        store
            .claim_owner(&url("https://github.com/acme/nobodys"))
            .await
            .unwrap(),
        None
    );
    let repos = store.claim_repos(net.id).await.unwrap();
    let infra = url(INFRA).repo_id().unwrap();
    assert_eq!(
        repos,
        [infra.clone(), "github.com/acme/other".parse().unwrap()]
    );
    let mut own = None;
    for (repo, number) in [(infra.clone(), 1), (url(DNS).repo_id().unwrap(), 2)] {
        let pull = PullRef {
            repo,
            subject: Subject::pull(number),
        };
        store.pull_seen(&pull, PullState::Open, URL).await.unwrap();
        taken(store, &pull, &project("hot")).await;
        command(store, CommandKind::Plan, &pull).await;
        run(store, RunKind::Plan, &pull, &project("hot")).await;
        store
            .mirror_know(&"home".parse().unwrap(), &pull.repo)
            .await
            .unwrap();
        own.get_or_insert(pull);
    }
    let own = own.unwrap();
    let locks = store.lock_list_of_repos(&repos).await.unwrap();
    assert_eq!(
        locks.into_iter().map(|lock| lock.pull).collect::<Vec<_>>(),
        std::slice::from_ref(&own)
    );
    let commands = store.command_list_of_repos(&repos, 9).await.unwrap();
    assert!(!commands.is_empty() && commands.iter().all(|command| command.pull == own));
    let search = MirrorSearch {
        repos: Some(&repos),
        limit: 9,
        ..MirrorSearch::default()
    };
    let mirrors = store.mirror_search(search).await.unwrap();
    assert_eq!((mirrors.count, &mirrors.rows[0].repo), (1, &infra));
    assert_eq!(
        store
            .mirror_search(MirrorSearch { skip: 1, ..search })
            .await
            .unwrap()
            .rows,
        []
    );
    assert_eq!(
        store.mirror_count_all(Some(&repos)).await.unwrap(),
        [(SyncState::Pending, 1)]
    );
    assert_eq!(store.lock_list_of_repos(&[]).await.unwrap(), []);
}

/// A foreign transaction, statement by statement.
enum Other {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Other {
    async fn begin(db: &TestDb) -> Self {
        match &db.url {
            DatabaseUrl::Sqlite(path) => {
                let options = sqlx_sqlite::SqliteConnectOptions::new().filename(path);
                let mut other =
                    Self::Sqlite(SqliteConnection::connect_with(&options).await.unwrap());
                other.say("BEGIN IMMEDIATE").await.unwrap();
                other
            }
            DatabaseUrl::Postgres(options) => {
                let mut other = Self::Postgres(PgConnection::connect_with(options).await.unwrap());
                other.say("BEGIN").await.unwrap();
                other
            }
        }
    }

    async fn say(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(connection) => sqlx::raw_sql(sql).execute(connection).await.map(drop),
            Self::Postgres(connection) => sqlx::raw_sql(sql).execute(connection).await.map(drop),
        }
    }

    /// Waits until another transaction waits for this one. SQLite cannot report that, and there it makes no
    /// difference.
    async fn is_waited_for(&mut self) {
        let Self::Postgres(connection) = self else {
            return;
        };
        let sql = "SELECT COUNT(*) FROM pg_locks l JOIN pg_database d ON d.datname = current_database() \
                   WHERE NOT l.granted AND pg_backend_pid() = ANY (pg_blocking_pids(l.pid))";
        while sqlx::query_scalar::<_, i64>(sql)
            .fetch_one(&mut *connection)
            .await
            .unwrap()
            == 0
        {
            tokio::task::yield_now().await;
        }
    }
}

async fn a_reference_that_comes_in_between_keeps_the_claim(db: &TestDb) {
    let store = db.store();
    let net = owner(store, "net").await;
    let app = added(store, "net", INFRA, ".").await;
    let Acquired::Claimed(left) = store.claim_acquire(net.id, &url(DNS), by()).await.unwrap()
    else {
        panic!("free")
    };
    assert_eq!(store.claim_list_unused(9).await.unwrap(), [left]);
    let mut other = Other::begin(db).await;
    let refer = format!(
        "UPDATE claim_applications SET claim = '{left}' WHERE application = '{}'",
        app.id
    );
    other.say(&refer).await.unwrap();
    let collecting = tokio::spawn({
        let store = store.clone();
        async move { store.claim_collect(left).await }
    });
    other.is_waited_for().await;
    other.say("COMMIT").await.unwrap();
    assert_eq!(collecting.await.unwrap().unwrap(), ClaimCollection::Kept);
    // Nothing refers to the claim on the address of the application any more.
    let unused = store.claim_list_unused(9).await.unwrap();
    assert!(unused.len() == 1 && unused != [left], "{unused:?}");
    assert_eq!(
        store.claim_collect(left).await.unwrap(),
        ClaimCollection::Kept,
        "what is referred to is kept at any time"
    );
    assert_eq!(
        store.claim_collect(unused[0]).await.unwrap(),
        ClaimCollection::Gone
    );
    assert_eq!(
        store.claim_collect(unused[0]).await.unwrap(),
        ClaimCollection::Kept,
        "somebody else was faster"
    );
}

async fn a_claim_that_is_being_made_is_waited_for(db: &TestDb) {
    let store = db.store();
    let (net, dns) = (owner(store, "net").await, owner(store, "dns").await);
    for (end, expected) in [("ROLLBACK", None), ("COMMIT", Some("dns"))] {
        let id: ClaimId = "00000000-0000-7000-8000-0000eeeeeeee".parse().unwrap();
        let mut other = Other::begin(db).await;
        let values = format!("('{id}', '{INFRA}', '{}', '2026-03-02T09:00:00Z')", dns.id);
        other
            .say(&format!(
                "INSERT INTO repository_claims (id, url, owner, created_at) VALUES {values}"
            ))
            .await
            .unwrap();
        let acquiring = tokio::spawn({
            let (store, net) = (store.clone(), net.id);
            async move { store.claim_acquire(net, &url(INFRA), by()).await }
        });
        other.is_waited_for().await;
        other.say(end).await.unwrap();
        match (acquiring.await.unwrap().unwrap(), expected) {
            (Acquired::Claimed(mine), None) => {
                assert_eq!(
                    store.claim_collect(mine).await.unwrap(),
                    ClaimCollection::Gone
                );
            }
            (Acquired::OwnedBy(winner), Some(expected)) => assert_eq!(winner.as_str(), expected),
            other @ ((Acquired::Claimed(_), Some(_))
            | (Acquired::OwnedBy(_), None)
            | (Acquired::Unclaimed, _)) => {
                panic!("{end}: {other:?}")
            }
        }
    }
}

async fn a_claim_cannot_be_deleted_under_its_references(db: &TestDb) {
    owner(db.store(), "net").await;
    added(db.store(), "net", INFRA, ".").await;
    for table in ["repository_claims", "owners"] {
        let refused = Other::begin(db)
            .await
            .say(&format!("DELETE FROM {table}"))
            .await;
        let Err(sqlx::Error::Database(refused)) = refused else {
            panic!("{table} could be emptied")
        };
        assert!(refused.is_foreign_key_violation(), "{refused}");
    }
}

const OWNERS: usize = 8;
const RIVALS: usize = 64;

/// Returns several spellings of the repository of a race.
fn spellings(race: usize) -> Vec<RepoUrl> {
    let spellings = [
        "https://github.com/acme/rN",
        "https://github.com/acme/rN.git",
        "https://github.com/acme/rN/",
        "https://github.com/acme/rN.git/",
        "https://GitHub.com/Acme/RN",
        "https://github.com:443/acme/rN",
        "https://github.com./acme/rN",
        "https://www.github.com/acme/rN",
        "https://ann@github.com/acme/rN.git",
        "https://github.com/%61cme/rN",
        "http://github.com/acme/rN",
        "http://github.com:80/ACME/rN.git",
        "ssh://git@github.com/acme/rN.git",
        "ssh://github.com:22/acme/rN",
        "ssh://git@ssh.github.com:443/acme/rN.git",
        "git+ssh://git@github.com/acme/rN",
        "git@github.com:acme/rN.git",
        "git@github.com:/acme/rN",
        "github.com:Acme/rN",
        "git://github.com/acme/rN.git",
    ];
    spellings
        .map(|spelling| url(&spelling.replace('N', &race.to_string())))
        .to_vec()
}

async fn of_64_tasks_of_8_owners_that_race_for_one_repository_one_owner_has_it(db: &TestDb) {
    let stores = [db.store().clone(), db.reopen().await];
    let mut owners = Vec::new();
    for n in 0..OWNERS {
        owners.push(owner(db.store(), &format!("team-{n}")).await);
    }
    let mut winners = BTreeSet::new();
    let races = large_races(db.backend);
    for race in 0..races {
        let spellings = spellings(race);
        let (told, id) = race_once(&stores, &owners, &spellings).await;
        assert_eq!(told.len(), 1, "race {race}: {told:?}");
        let claim = db.store().claim_get(&spellings[0]).await.unwrap().unwrap();
        assert_eq!(
            (&claim.owner, claim.id),
            (told.first().unwrap(), id),
            "race {race}"
        );
        winners.extend(told);
    }
    assert!(
        winners.len() > 1,
        "the same owner was first every time: that is no race"
    );
    assert_eq!(
        db.store().claim_list(None, None, 2000).await.unwrap().len(),
        races
    );
}

/// Returns all owners that were told that they have the claim, and the claim.
async fn race_once(
    stores: &[Store; 2],
    owners: &[Owner],
    spellings: &[RepoUrl],
) -> (BTreeSet<OwnerName>, ClaimId) {
    let mut rivals = JoinSet::new();
    for rival in 0..RIVALS {
        let (store, owner) = (
            stores[rival % 2].clone(),
            owners[rival * 5 % OWNERS].clone(),
        );
        let url = spellings[rival % spellings.len()].clone();
        rivals.spawn(async move {
            (
                store.claim_acquire(owner.id, &url, by()).await.unwrap(),
                owner.name,
            )
        });
    }
    let (mut told, mut ids) = (BTreeSet::new(), BTreeSet::new());
    while let Some(answer) = rivals.join_next().await {
        match answer.unwrap() {
            (Acquired::Claimed(id), mine) => {
                told.insert(mine);
                ids.insert(id);
            }
            (Acquired::OwnedBy(winner), mine) => {
                assert_ne!(
                    winner, mine,
                    "an owner was told that the claim is their own, and somebody else's"
                );
                told.insert(winner);
            }
            (Acquired::Unclaimed, mine) => panic!("{mine} has the right to claim it"),
        }
    }
    assert_eq!(ids.len(), 1, "{ids:?}");
    (told, *ids.first().unwrap())
}
