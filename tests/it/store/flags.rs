//! Tests of reviewed flags, in the database of the server and in another one, and of patch sets.

use std::sync::Arc;

use futures::future::join_all;
use lockkeeper::clock::RandomIds;
use lockkeeper::features::accounts::{
    AllUsers, FlagCount, FlagSet, FlagTable, NewAccount, PatchSet, PatchSetName, Reviewed,
    ReviewedFlags, open_flags, remove_orphaned_flags,
};
use lockkeeper::model::{AccountId, BranchName, CommitSha, PlanId, PullHead};
use lockkeeper::store::{DatabaseUrl, HeadUpdate, Store};
use lockkeeper_accounts::refs::ChangeNumber;

use super::samples::{open_pull, planned, project, pull};
use crate::support::accounts::by_ops;
use crate::support::db::{Backend, TestDb, execute, store_test};
use crate::support::postgres::{self, Content};

store_test!(
    flags_are_set_listed_and_removed,
    flags_set_by_many_at_once_are_one,
    a_patch_set_has_ten_thousand_flags_at_most,
    an_account_has_a_hundred_thousand_flags_at_most,
    flags_go_with_their_account_and_their_plan,
    another_database_must_be_one_for_flags,
    heads_are_numbered_as_they_come,
    a_head_that_came_before_its_pull_gets_a_number,
    the_last_head_of_a_closed_pull_stays_the_current_one,
    heads_that_are_pushed_and_asked_for_at_once_have_one_number_each,
    a_change_with_two_numbers_has_the_same_heads_under_both,
);

/// Returns the address of another database of the same kind.
async fn other_url(db: &TestDb) -> DatabaseUrl {
    match db.backend {
        Backend::Sqlite => DatabaseUrl::Sqlite(db.dir.path().join("flags.db")),
        Backend::Postgres => postgres::new_database(Content::Empty).await,
    }
}

async fn open(db: &TestDb, url: &DatabaseUrl) -> Result<FlagTable, String> {
    let store = open_flags(url, db.store(), db.clock.clone(), Arc::new(RandomIds)).await;
    store.map(FlagTable::of).map_err(|error| error.to_string())
}

/// Returns both places in which flags can be.
async fn places(db: &TestDb) -> [FlagTable; 2] {
    let other = open(db, &other_url(db).await).await.unwrap();
    [FlagTable::of(db.store().clone()), other]
}

fn account(number: u32) -> AccountId {
    AccountId::new(number).unwrap()
}

fn patch_set(change: u32, number: u32) -> PatchSet {
    let change = ChangeNumber::new(change).unwrap();
    PatchSet { change, number }
}

async fn flags_are_set_listed_and_removed(db: &TestDb) {
    let (kim, lee) = (account(1_000_000), account(1_000_001));
    let (first, second) = (
        Reviewed::Files(patch_set(1, 1)),
        Reviewed::Files(patch_set(1, 2)),
    );
    let plan: PlanId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
    let plan = Reviewed::Resources(plan);
    for flags in places(db).await {
        for (of, item, outcome) in [
            (first, "b.tf", FlagSet::New),
            (first, "Z.tf", FlagSet::New),
            (first, "b.tf", FlagSet::Same),
            (first, "a/ü.tf", FlagSet::New),
            (second, "b.tf", FlagSet::New),
            (plan, "b.tf", FlagSet::New),
            (plan, "module.net.aws_vpc.main[\"a/b\"]", FlagSet::New),
        ] {
            let set = flags.flag_set(kim, of, item).await.unwrap();
            assert_eq!(set, outcome, "{item}");
        }
        let listed = async |account, of| flags.flag_list(account, of).await.unwrap();
        assert_eq!(listed(kim, first).await, ["Z.tf", "a/ü.tf", "b.tf"]);
        assert_eq!(listed(kim, second).await, ["b.tf"]);
        assert_eq!(
            listed(kim, plan).await,
            ["b.tf", "module.net.aws_vpc.main[\"a/b\"]"]
        );
        assert_eq!(listed(lee, first).await, [""; 0]);
        let counts = flags.flag_counts(kim).await.unwrap();
        let count = |of, flags| FlagCount { of, flags };
        assert_eq!(counts, [count(first, 3), count(second, 1), count(plan, 2)]);
        assert_eq!(flags.flag_counts(lee).await.unwrap(), []);
        assert!(flags.flag_clear(kim, first, "b.tf").await.unwrap());
        assert!(!flags.flag_clear(kim, first, "b.tf").await.unwrap());
        assert!(!flags.flag_clear(lee, second, "b.tf").await.unwrap());
        assert_eq!(listed(kim, first).await, ["Z.tf", "a/ü.tf"]);
        assert_eq!(listed(kim, second).await, ["b.tf"]);
        flags.flag_remove(kim, first).await.unwrap();
        let counts = flags.flag_counts(kim).await.unwrap();
        assert_eq!(counts, [count(second, 1), count(plan, 2)]);
        flags.flag_remove_all(kim).await.unwrap();
        assert_eq!(flags.flag_counts(kim).await.unwrap(), []);
    }
}

async fn flags_set_by_many_at_once_are_one(db: &TestDb) {
    let of = Reviewed::Files(patch_set(1, 1));
    for flags in places(db).await {
        let tasks = (0..64).map(|_| flags.flag_set(account(1_000_000), of, "main.tf"));
        let outcomes = join_all(tasks).await;
        let new = outcomes
            .into_iter()
            .filter(|outcome| *outcome.as_ref().unwrap() == FlagSet::New);
        assert_eq!(new.count(), 1);
    }
}

async fn a_patch_set_has_ten_thousand_flags_at_most(db: &TestDb) {
    let flags = FlagTable::of(db.store().clone());
    execute(
        db,
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 9999) \
         INSERT INTO reviewed_flags (account, change_number, patch_set, plan, item) \
         SELECT 1000000, 1, 1, '', 'f' || x FROM n",
    )
    .await;
    let kim = account(1_000_000);
    let of = Reviewed::Files(patch_set(1, 1));
    let set = async |of, item| flags.flag_set(kim, of, item).await.unwrap();
    assert_eq!(set(of, "last").await, FlagSet::New);
    assert_eq!(set(of, "more").await, FlagSet::Full);
    assert_eq!(set(of, "last").await, FlagSet::Same);
    assert_eq!(
        set(Reviewed::Files(patch_set(1, 2)), "more").await,
        FlagSet::New
    );
    assert!(flags.flag_clear(kim, of, "f7").await.unwrap());
    assert_eq!(set(of, "more").await, FlagSet::New);
}

async fn an_account_has_a_hundred_thousand_flags_at_most(db: &TestDb) {
    let flags = FlagTable::of(db.store().clone());
    execute(
        db,
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100000) \
         INSERT INTO reviewed_flags (account, change_number, patch_set, plan, item) \
         SELECT 1000000, x, 1, '', 'f' FROM n",
    )
    .await;
    let set = async |number, of| flags.flag_set(account(number), of, "f").await.unwrap();
    let of = Reviewed::Files(patch_set(1, 2));
    assert_eq!(set(1_000_000, of).await, FlagSet::Full);
    assert_eq!(
        set(1_000_000, Reviewed::Files(patch_set(1, 1))).await,
        FlagSet::Same
    );
    assert_eq!(set(1_000_001, of).await, FlagSet::New);
}

async fn flags_go_with_their_account_and_their_plan(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    let by = by_ops();
    let kim = users.create(&by, &NewAccount::default()).await.unwrap();
    let at = open_pull(db.store(), 1).await;
    let plan = planned(db, &at, &project("net")).await;
    let of_plan = Reviewed::Resources(plan.id);
    let gone: PlanId = "00000000-0000-7000-8000-0000000000ff".parse().unwrap();
    let of = Reviewed::Files(patch_set(1, 1));
    for flags in places(db).await {
        for account in [kim, account(7), account(9)] {
            for of in [
                of,
                Reviewed::Files(patch_set(2, 5)),
                of_plan,
                Reviewed::Resources(gone),
            ] {
                let set = flags.flag_set(account, of, "a.b").await.unwrap();
                assert_eq!(set, FlagSet::New);
            }
        }
        let done = remove_orphaned_flags(&flags, db.store()).await.unwrap();
        // Three accounts and two plans; two of the accounts and one of the plans are gone.
        assert_eq!((done.looked_at, done.repaired), (5, 3));
        let done = remove_orphaned_flags(&flags, db.store()).await.unwrap();
        assert_eq!((done.looked_at, done.repaired), (2, 0));
        for (account, of, left) in [
            (kim, of, 1),
            (kim, of_plan, 1),
            (kim, Reviewed::Resources(gone), 0),
            (account(7), of, 0),
            (account(9), of_plan, 0),
        ] {
            let listed = flags.flag_list(account, of).await.unwrap();
            assert_eq!(listed.len(), left, "{account}: {of:?}");
        }
    }
}

async fn another_database_must_be_one_for_flags(db: &TestDb) {
    let other = other_url(db).await;
    let of = Reviewed::Files(patch_set(1, 1));
    let kim = account(1_000_000);
    let first = open(db, &other).await.unwrap();
    assert_eq!(first.flag_set(kim, of, "a.tf").await.unwrap(), FlagSet::New);
    drop(first);
    let again = open(db, &other).await.unwrap();
    assert_eq!(again.flag_list(kim, of).await.unwrap(), ["a.tf"]);

    let refused = open(db, &db.url).await.err().unwrap();
    let expected = format!(
        "cannot open the database {} (--reviewed-flags-url). It must have no tables of anything else, and on a server it \
         has to exist",
        db.url
    );
    assert_eq!(refused, expected);
    let second_server = TestDb::new(db.backend).await;
    let refused = open(&second_server, &other).await.err().unwrap();
    let expected = format!(
        "the database {other} (--reviewed-flags-url) has the flags of another server. Name an empty database"
    );
    assert_eq!(refused, expected);
}

fn sha(digit: &str) -> CommitSha {
    CommitSha::new(&digit.repeat(40)).unwrap()
}

/// Tells the server of a head of the first pull.
async fn pushed(store: &Store, digit: &str) {
    let at = PullHead {
        head: sha(digit),
        base_branch: BranchName::new("main").unwrap(),
        draft: false,
    };
    let news = HeadUpdate::Event(Some(&at));
    assert!(store.head_note(&pull(1), news).await.unwrap());
}

/// Returns the number of a patch set of the first change.
async fn find(store: &Store, name: &str) -> Option<u32> {
    let change = ChangeNumber::new(1).unwrap();
    let name = PatchSetName::parse(name).unwrap();
    let found = store.patch_set_find(change, &name).await.unwrap();
    found.map(|found| {
        assert_eq!(found.change, change);
        found.number
    })
}

async fn heads_are_numbered_as_they_come(db: &TestDb) {
    let store = db.store();
    open_pull(store, 1).await;
    assert_eq!(find(store, "current").await, None);
    assert_eq!(find(store, "1").await, None);
    for (digit, number) in [("a", 1), ("b", 2), ("b", 2), ("a", 1), ("c", 3)] {
        pushed(store, digit).await;
        assert_eq!(find(store, "current").await, Some(number), "{digit}");
        assert_eq!(find(store, &digit.repeat(40)).await, Some(number));
    }
    assert_eq!(find(store, "2").await, Some(2));
    assert_eq!(find(store, "4").await, None);
    assert_eq!(find(store, &"d".repeat(40)).await, None);
    for text in [
        "",
        "Current",
        "-1",
        "+1",
        "01",
        "0",
        "1.0",
        "4294967296",
        "abc",
        "edit",
    ] {
        assert_eq!(PatchSetName::parse(text), None, "{text}");
    }
}

async fn a_head_that_came_before_its_pull_gets_a_number(db: &TestDb) {
    let store = db.store();
    pushed(store, "a").await;
    open_pull(store, 1).await;
    pushed(store, "b").await;
    for (name, number) in [("current", 2), ("1", 1), (&*"a".repeat(40), 1)] {
        assert_eq!(find(store, name).await, Some(number), "{name}");
    }
    // No trigger saw both rows.
    execute(db, "DELETE FROM patch_sets").await;
    let found = join_all((0..32).map(|_| find(store, "current"))).await;
    assert_eq!(found, [Some(1); 32]);
    pushed(store, "c").await;
    assert_eq!(find(store, "current").await, Some(2));
}

async fn the_last_head_of_a_closed_pull_stays_the_current_one(db: &TestDb) {
    let store = db.store();
    open_pull(store, 1).await;
    for digit in ["a", "b", "a"] {
        pushed(store, digit).await;
    }
    execute(db, "DELETE FROM pull_heads").await;
    assert_eq!(find(store, "current").await, Some(1));
    assert_eq!(find(store, "2").await, Some(2));
}

async fn heads_that_are_pushed_and_asked_for_at_once_have_one_number_each(db: &TestDb) {
    let store = db.store();
    open_pull(store, 1).await;
    pushed(store, "0").await;
    for digit in ["a", "b", "c", "d", "e", "f"] {
        // As if the rows of the head and the change had been inserted at once.
        execute(db, "DELETE FROM patch_sets").await;
        let ((), _) = tokio::join!(
            pushed(store, digit),
            join_all((0..8).map(|_| find(store, "current")))
        );
        let number = find(store, "current").await;
        assert!(matches!(number, Some(1 | 2)), "{digit}: {number:?}");
        assert_eq!(find(store, &digit.repeat(40)).await, number);
        assert!(find(store, "1").await.is_some());
        assert_eq!(find(store, "3").await, None);
    }
}

async fn a_change_with_two_numbers_has_the_same_heads_under_both(db: &TestDb) {
    let store = db.store();
    open_pull(store, 1).await;
    pushed(store, "a").await;
    // A rename has brought a pull together that had a row under both names.
    execute(
        db,
        "INSERT INTO changes (repo, pull) SELECT repo, pull FROM changes",
    )
    .await;
    pushed(store, "b").await;
    for change in [1, 2] {
        let change = ChangeNumber::new(change).unwrap();
        for (name, number) in [("current", 2), ("1", 1), (&*"b".repeat(40), 2)] {
            let name = PatchSetName::parse(name).unwrap();
            let found = store.patch_set_find(change, &name).await.unwrap();
            assert_eq!(found, Some(PatchSet { change, number }), "{name:?}");
        }
    }
}
