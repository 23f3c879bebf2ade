//! Tests of the numbers of changes, of stars, and of the tables of stars and watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lockkeeper::claims::application_add;
use lockkeeper::features::accounts::{
    AccountsError, AllUsers, LabelChanges, NewAccount, StarredChange,
};
use lockkeeper::model::{
    AccountId, ApplicationFields, ForgeHosts, PullRef, PullState, Rights, Subject,
};
use lockkeeper::store::{ImportBatch, ImportMode, Rename, Renamed, Store};
use lockkeeper_accounts::refs::{AllUsersRef, ChangeNumber};
use serde_json::Value;
use tokio::task::JoinSet;

use super::accounts::import;
use super::samples::{URL, open_pull, pull};
use crate::accounts::independent;
use crate::support::accounts::{assert_sound, by_ops};
use crate::support::db::{Backend, TestDb, by, execute, store_test};
use crate::support::program::lockkeeper;

store_test!(
    every_change_has_one_number_however_many_see_it_first,
    applications_and_imported_pulls_are_changes,
    changes_of_an_older_release_get_numbers,
    a_rename_keeps_every_number,
    a_star_is_a_ref_and_rows_and_goes_with_its_last_label,
    labels_and_changes_that_cannot_be_are_refused,
    an_account_has_at_most_ten_thousand_stars,
    stars_at_once_do_not_pass_the_limit,
    stars_on_and_off_at_once_leave_rows_and_refs_alike,
    a_star_does_not_outlive_its_account,
    a_merge_moves_stars,
    stars_and_watches_of_a_copy_are_found_by_the_tables,
    watches_follow_the_branch,
);

const TASKS: usize = 64;

fn at(repo: &str, number: i64) -> PullRef {
    PullRef {
        repo: repo.parse().unwrap(),
        subject: Subject::of_stored(number),
    }
}

async fn number(store: &Store, at: &PullRef) -> u32 {
    let number = store.change_number(at).await.unwrap();
    let number = number.unwrap_or_else(|| panic!("{at} has no number"));
    assert_eq!(store.change_get(number).await.unwrap().as_ref(), Some(at));
    number.get()
}

fn change(number: u32) -> ChangeNumber {
    ChangeNumber::new(number).unwrap()
}

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

async fn account(users: &AllUsers) -> AccountId {
    users
        .create(&by_ops(), &NewAccount::default())
        .await
        .unwrap()
}

/// Adds and removes labels, which are separated by blanks, and returns those that are left.
pub async fn label(
    users: &AllUsers,
    account: AccountId,
    number: u32,
    add: &str,
    remove: &str,
) -> Result<String, AccountsError> {
    let changes = LabelChanges {
        add: words(add),
        remove: words(remove),
    };
    let by = by_ops();
    let left = users.change_labels(&by, account, change(number), &changes);
    Ok(left.await?.into_iter().collect::<Vec<_>>().join(" "))
}

/// Returns the labels of each star, as the refs have them.
async fn refs(store: &Store) -> BTreeMap<(u32, u32), String> {
    let (refs, _) = store.account_refs().await.unwrap();
    let mut stars = BTreeMap::new();
    for (name, id) in refs {
        if let Ok(AllUsersRef::StarredChange(change, account)) = name.parse() {
            let blob = store.account_object(id).await.unwrap().content;
            let text = String::from_utf8(blob).unwrap().replace('\n', " ");
            stars.insert((account.get(), change.get()), text);
        }
    }
    stars
}

/// Returns the labels of each star, as the tables have them.
async fn rows(store: &Store) -> BTreeMap<(u32, u32), String> {
    let stars = store.account_index().await.unwrap().stars.into_iter();
    stars
        .map(|((account, change), labels)| {
            let labels: Vec<String> = labels.iter().cloned().collect();
            ((account.get(), change.get()), labels.join(" "))
        })
        .collect()
}

async fn starred(store: &Store, account: AccountId) -> Vec<StarredChange> {
    store.change_list_starred(account).await.unwrap()
}

async fn every_change_has_one_number_however_many_see_it_first(db: &TestDb) {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(db.reopen().await);
    }
    let mut tasks = JoinSet::new();
    // Each pull request is seen by three servers at once.
    for task in 0..TASKS * servers.len() {
        let store = servers[task % servers.len()].clone();
        let seen = task / servers.len();
        let repo = ["github.com/acme/infra", "github.com/acme/net"][seen % 2];
        let at = at(repo, i64::try_from(seen / 2 + 1).unwrap());
        tasks.spawn(async move {
            store.pull_seen(&at, PullState::Open, URL).await.unwrap();
            let first = number(&store, &at).await;
            store.pull_seen(&at, PullState::Merged, URL).await.unwrap();
            assert_eq!(number(&store, &at).await, first);
            (at, first)
        });
    }
    let mut numbers: BTreeMap<PullRef, BTreeSet<u32>> = BTreeMap::new();
    for (at, number) in tasks.join_all().await {
        numbers.entry(at).or_default().insert(number);
    }
    assert_eq!(numbers.len(), TASKS);
    assert!(
        numbers.values().all(|of_one| of_one.len() == 1),
        "{numbers:?}"
    );
    let different: BTreeSet<u32> = numbers.into_values().flatten().collect();
    assert_eq!(different.len(), TASKS);
    let unseen = at("github.com/acme/infra", 999);
    let unseen = db.store().change_number(&unseen);
    assert_eq!(unseen.await.unwrap(), None);
    let unseen = db.store().change_get(change(1_000_000));
    assert_eq!(unseen.await.unwrap(), None);
}

async fn applications_and_imported_pulls_are_changes(db: &TestDb) {
    let (store, owner) = (db.store(), "net".parse().unwrap());
    let _owner = store.owner_create(&owner, by()).await.unwrap();
    let fields = ApplicationFields {
        url: Some("https://github.com/acme/infra"),
        branch: Some("main"),
        ..ApplicationFields::default()
    };
    let spec = fields.spec(&ForgeHosts::public()).unwrap();
    let application = application_add(store, &owner, &spec, (Rights::Whole, by()));
    let application = application.await.unwrap().or_why().unwrap().at().unwrap();
    assert!(application.subject.is_application());
    let application = number(store, &application).await;

    let batch = ImportBatch {
        pulls: vec![(pull(7), URL.to_owned())],
        ..ImportBatch::default()
    };
    let imported = store.import(&batch, ImportMode::Write).await.unwrap();
    assert_eq!(imported.pulls.len(), 1);
    assert_ne!(number(store, &pull(7)).await, application);
}

async fn changes_of_an_older_release_get_numbers(db: &TestDb) {
    for number in 1..=3 {
        open_pull(db.store(), number).await;
    }
    let trigger = match db.backend {
        Backend::Sqlite => "DROP TRIGGER pulls_get_numbers",
        Backend::Postgres => "DROP FUNCTION number_change CASCADE",
    };
    for sql in [
        trigger,
        "DROP TABLE changes",
        "DROP TABLE account_stars",
        "DROP TABLE account_watches",
        "DELETE FROM _sqlx_migrations WHERE version = 12",
    ] {
        execute(db, sql).await;
    }
    let store = db.reopen().await;
    open_pull(&store, 4).await;
    let mut numbers = Vec::new();
    for pull in (1..=4).map(pull) {
        numbers.push(number(&store, &pull).await);
    }
    assert_eq!(numbers, [1, 2, 3, 4]);
}

async fn a_rename_keeps_every_number(db: &TestDb) {
    const OLD: &str = "github.com/acme/infra";
    const NEW: &str = "github.com/acme/network";
    let (store, users) = (db.store(), AllUsers::new(db.store().clone(), "localhost"));
    let kim = account(&users).await;
    // Events of the new name come before anybody knows that it is the same repository.
    for (repo, seen) in [(OLD, 1), (OLD, 2), (NEW, 2), (NEW, 3)] {
        let at = at(repo, seen);
        store.pull_seen(&at, PullState::Open, URL).await.unwrap();
    }
    let [one, two, again, three] = [
        number(store, &at(OLD, 1)).await,
        number(store, &at(OLD, 2)).await,
        number(store, &at(NEW, 2)).await,
        number(store, &at(NEW, 3)).await,
    ];
    for starred in [one, again] {
        label(&users, kim, starred, "star", "").await.unwrap();
    }
    let (old, new) = (OLD.parse().unwrap(), NEW.parse().unwrap());
    let rename = Rename {
        id: 7,
        old: &old,
        new: &new,
        cause: by(),
        within: None,
    };
    let never = |_: &_, _: &_| panic!("there are no credentials");
    let renamed = store.repository_rename(&rename, never).await.unwrap();
    assert!(matches!(renamed, Renamed::Done(_)), "{renamed:?}");
    for (pull, expected) in [(1, one), (2, two), (3, three)] {
        assert_eq!(number(store, &at(NEW, pull)).await, expected);
    }
    let found: Vec<Option<PullRef>> = starred(store, kim)
        .await
        .into_iter()
        .map(|change| change.seen.map(|seen| seen.at))
        .collect();
    assert_eq!(found, [Some(at(NEW, 1)), Some(at(NEW, 2))]);
    // Another repository with the old name has other changes.
    let other = at(OLD, 1);
    store.pull_seen(&other, PullState::Open, URL).await.unwrap();
    assert!(number(store, &other).await > three);
}

async fn a_star_is_a_ref_and_rows_and_goes_with_its_last_label(db: &TestDb) {
    let (store, users) = (db.store(), AllUsers::new(db.store().clone(), "localhost"));
    let (kim, zoe) = (account(&users).await, account(&users).await);
    for number in 1..=3 {
        open_pull(store, number).await;
    }
    let before = store.account_get(kim).await.unwrap();
    assert_eq!(label(&users, kim, 3, "star", "").await.unwrap(), "star");
    let both = label(&users, kim, 3, "öl blue", "").await.unwrap();
    assert_eq!(both, "blue star öl");
    let left = label(&users, kim, 3, "red", "star none").await.unwrap();
    assert_eq!(left, "blue red öl");
    label(&users, kim, 1, "star", "").await.unwrap();
    label(&users, zoe, 1, "star", "").await.unwrap();
    label(&users, zoe, 2, "ignore", "").await.unwrap();
    let expected = [
        ((kim.get(), 1), "star"),
        ((kim.get(), 3), "blue red öl"),
        ((zoe.get(), 1), "star"),
        ((zoe.get(), 2), "ignore"),
    ];
    let expected: BTreeMap<_, _> = expected.map(|(star, text)| (star, text.to_owned())).into();
    assert_eq!(refs(store).await, expected);
    assert_eq!(rows(store).await, expected);
    let name = format!("refs/starred-changes/03/3/{kim}");
    assert!(store.account_ref(&name).await.unwrap().is_some());

    let by_account = starred(store, kim).await;
    let by_account: Vec<_> = by_account
        .iter()
        .map(|star| (star.number.get(), star.seen.as_ref().unwrap().at.clone()))
        .collect();
    assert_eq!(by_account, [(1, pull(1)), (3, pull(3))]);
    assert_eq!(
        store.account_star(kim, change(1)).await.unwrap(),
        words("star")
    );

    // Stars have no history.
    assert_eq!(store.account_get(kim).await.unwrap(), before);
    assert_eq!(label(&users, kim, 3, "", "blue red öl").await.unwrap(), "");
    assert_eq!(store.account_ref(&name).await.unwrap(), None);
    let (_, update) = store.account_refs().await.unwrap();
    assert_eq!(label(&users, kim, 3, "", "blue").await.unwrap(), "");
    assert_eq!(label(&users, kim, 1, "star", "").await.unwrap(), "star");
    let unchanged = store.account_refs().await.unwrap().1;
    assert_eq!(unchanged, update, "nothing differed");
    assert_sound(db);
}

async fn labels_and_changes_that_cannot_be_are_refused(db: &TestDb) {
    let (store, users) = (db.store(), AllUsers::new(db.store().clone(), "localhost"));
    let kim = account(&users).await;
    open_pull(store, 1).await;
    let (long, cut) = ("x".repeat(101), "x".repeat(80));
    let many: Vec<String> = (0..51).map(|n| format!("label{n}")).collect();
    let star = format!("refs/starred-changes/01/1/{kim}");
    for (number, add, reason) in [
        (
            2,
            "star",
            "there is no change 2; the page of a lock shows the number of its change".to_owned(),
        ),
        (
            1,
            &many.join(" "),
            format!("error: {star}: there are 51 labels; keep at most 50"),
        ),
        (
            1,
            &long,
            format!("error: {star}: the label `{cut}…` is too long; use at most 100 characters"),
        ),
        (
            1,
            "star ignore",
            format!("error: {star}: `star` and `ignore` exclude each other; remove one of them"),
        ),
    ] {
        let refused = label(&users, kim, number, add, "").await.unwrap_err();
        assert_eq!(refused.to_string(), reason);
    }
    let blank = LabelChanges {
        add: BTreeSet::from(["a b".to_owned()]),
        ..LabelChanges::default()
    };
    let by = by_ops();
    let refused = users.change_labels(&by, kim, change(1), &blank);
    let refused = refused.await.unwrap_err().to_string();
    assert!(refused.contains("`a b` is not a label"), "{refused}");
    let nobody = AccountId::new(7).unwrap();
    let refused = label(&users, nobody, 1, "star", "").await.unwrap_err();
    assert_eq!(refused.to_string(), "there is no account 7");
    assert_eq!(refs(store).await, BTreeMap::new());
    let fifty = many[..50].join(" ");
    label(&users, kim, 1, &fifty, "").await.unwrap();
    assert_sound(db);
}

/// Adds rows of stars of changes from 101 on, which have no refs.
async fn add_star_rows(db: &TestDb, account: AccountId, many: u32) {
    let last = 100 + many;
    let rows = format!(
        "WITH RECURSIVE n(x) AS (SELECT 101 UNION ALL SELECT x + 1 FROM n WHERE x < {last}) \
         INSERT INTO account_stars (account, change_number, label) SELECT {account}, x, 'star' FROM n"
    );
    execute(db, &rows).await;
}

async fn an_account_has_at_most_ten_thousand_stars(db: &TestDb) {
    let (store, users) = (db.store(), AllUsers::new(db.store().clone(), "localhost"));
    let kim = account(&users).await;
    open_pull(store, 1).await;
    open_pull(store, 2).await;
    label(&users, kim, 1, "star", "").await.unwrap();
    add_star_rows(db, kim, 9_999).await;
    let refused = label(&users, kim, 2, "star", "").await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the account has starred 10000 changes; remove one of these stars first"
    );
    // It is no limit for the changes that it has starred.
    assert_eq!(
        label(&users, kim, 1, "blue", "").await.unwrap(),
        "blue star"
    );
}

async fn stars_at_once_do_not_pass_the_limit(db: &TestDb) {
    let store = db.store();
    let servers: Vec<Arc<AllUsers>> = (0..4)
        .map(|_| Arc::new(AllUsers::new(store.clone(), "localhost")))
        .collect();
    let kim = account(&servers[0]).await;
    add_star_rows(db, kim, 9_998).await;
    for number in 1..=16 {
        open_pull(store, number).await;
    }
    let mut tasks = JoinSet::new();
    for (number, users) in (1..=16).zip(servers.iter().cloned().cycle()) {
        tasks.spawn(async move { label(&users, kim, number, "star", "").await });
    }
    let outcomes = tasks.join_all().await;
    let added = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(added, 2);
    for refused in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert_eq!(
            refused.to_string(),
            "the account has starred 10000 changes; remove one of these stars first"
        );
    }
    assert_eq!(rows(store).await.len(), 10_000);
    assert_eq!(refs(store).await.len(), 2);
}

async fn stars_on_and_off_at_once_leave_rows_and_refs_alike(db: &TestDb) {
    let store = db.store();
    let servers: Vec<Arc<AllUsers>> = (0..4)
        .map(|_| Arc::new(AllUsers::new(store.clone(), "localhost")))
        .collect();
    let (kim, zoe) = (account(&servers[0]).await, account(&servers[0]).await);
    for number in 1..=2 {
        open_pull(store, number).await;
    }
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let users = Arc::clone(&servers[task % servers.len()]);
        tasks.spawn(async move {
            let account = if task % 3 == 0 { kim } else { zoe };
            let number = 1 + u32::from(task % 5 == 0);
            let own = format!("task{}", task % 40);
            label(&users, account, number, &format!("star {own}"), "")
                .await
                .unwrap();
            label(&users, account, number, "", "star").await.unwrap();
            if task % 2 == 0 {
                label(&users, account, number, "", &own).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let refs = refs(store).await;
    assert_eq!(rows(store).await, refs);
    // Only labels of odd tasks are left, and those of tasks 40 to 63 are those of 0 to 23.
    let odd = (0..40).filter(|task| task % 2 == 1);
    let expected: BTreeSet<String> = odd.map(|task| format!("task{task}")).collect();
    let left: BTreeSet<String> = refs.values().flat_map(|text| words(text)).collect();
    assert_eq!(left, expected);
    assert_sound(db);
}

async fn a_star_does_not_outlive_its_account(db: &TestDb) {
    let store = db.store();
    let users = Arc::new(AllUsers::new(store.clone(), "localhost"));
    // Another server, so that no queue of one process keeps them apart.
    let other = Arc::new(AllUsers::new(store.clone(), "localhost"));
    for number in 1..=8 {
        open_pull(store, number).await;
    }
    for _ in 0..4 {
        let kim = account(&users).await;
        label(&users, kim, 1, "star", "").await.unwrap();
        let mut tasks = JoinSet::new();
        for number in 2..=8 {
            let other = Arc::clone(&other);
            tasks.spawn(async move {
                match label(&other, kim, number, "star", "").await {
                    Ok(_) | Err(AccountsError::NoAccount(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            });
        }
        users.delete(&by_ops(), kim).await.unwrap();
        tasks.join_all().await;
        assert_eq!(refs(store).await, BTreeMap::new());
        assert_eq!(rows(store).await, BTreeMap::new());
    }
    assert_sound(db);
}

async fn a_merge_moves_stars(db: &TestDb) {
    let (store, users) = (db.store(), AllUsers::new(db.store().clone(), "localhost"));
    let (from, into) = (account(&users).await, account(&users).await);
    for number in 1..=3 {
        open_pull(store, number).await;
    }
    label(&users, from, 1, "star blue", "").await.unwrap();
    label(&users, from, 2, "ignore red", "").await.unwrap();
    label(&users, from, 3, "star", "").await.unwrap();
    label(&users, into, 2, "star", "").await.unwrap();
    label(&users, into, 3, "ignore", "").await.unwrap();
    let merge = ["accounts", "merge"];
    let names = [from.to_string(), into.to_string()];
    let merged = lockkeeper(&merge, &db.url, &[&names[0], &names[1]], &[]);
    assert_eq!(merged.code, 0, "{}", merged.err);
    let expected = [
        ((into.get(), 1), "blue star"),
        ((into.get(), 2), "red star"),
        ((into.get(), 3), "ignore"),
    ];
    let expected: BTreeMap<_, _> = expected.map(|(star, text)| (star, text.to_owned())).into();
    assert_eq!(refs(store).await, expected);
    assert_eq!(rows(store).await, expected);
    assert_sound(db);
}

async fn stars_and_watches_of_a_copy_are_found_by_the_tables(db: &TestDb) {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.git");
    let copy = copy.to_str().unwrap();
    independent(&["write", copy, "60", "7"]);
    let theirs = independent(&["show", copy]).json();
    let said = import(db, copy.as_ref());
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (mut stars, mut watches) = (BTreeMap::new(), BTreeMap::new());
    for account in list(&theirs["accounts"]) {
        let id = u32::try_from(account["_account_id"].as_u64().unwrap()).unwrap();
        for star in list(&account["starred_changes"]) {
            let number = u32::try_from(star["change"].as_u64().unwrap()).unwrap();
            let labels: Vec<String> = list(&star["labels"]).iter().map(text).collect();
            stars.insert((id, number), labels.join(" "));
        }
        let projects = list(&account["watches"]).into_iter();
        let projects: BTreeSet<String> = projects
            .map(|watch| text(&watch["project"]).to_lowercase())
            .collect();
        if !projects.is_empty() {
            watches.insert(id, projects);
        }
    }
    assert!(stars.len() > 9 && watches.len() > 9);
    assert_eq!(rows(db.store()).await, stars);
    let index = db.store().account_index().await.unwrap();
    let ours = index.watches.into_iter();
    let ours: BTreeMap<u32, _> = ours.map(|(id, projects)| (id.get(), projects)).collect();
    assert_eq!(ours, watches);
    // What the command shows of an account of the server is what the other program reads in the copy.
    for account in list(&theirs["accounts"]) {
        if account["starred_changes"] != Value::Null {
            let name = account["_account_id"].to_string();
            let shown = lockkeeper(&["accounts", "show"], &db.url, &[&name, "--json"], &[]);
            let shown = shown.json();
            assert_eq!(shown["starred_changes"], account["starred_changes"]);
        }
    }
}

async fn watches_follow_the_branch(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    let (kim, zoe) = (account(&users).await, account(&users).await);
    let found = |query: &str| {
        let said = lockkeeper(&["accounts", "query"], &db.url, &[query], &[]);
        assert_eq!(said.code, 0, "{}", said.err);
        said.out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    execute(
        db,
        &format!(
            "INSERT INTO account_watches (account, project) VALUES ({zoe}, 'github.com/acme/infra')"
        ),
    )
    .await;
    assert_eq!(found("watches:github.com/Acme/Infra"), zoe.to_string());
    assert_eq!(found("-watches:github.com/acme/infra"), kim.to_string());
    assert_eq!(
        found("watches:github.com/acme"),
        "",
        "the whole name counts"
    );
    assert_eq!(found("watches:x'--"), "");
    // The branch has no watch.
    let reindexed = lockkeeper(&["reindex", "accounts"], &db.url, &[], &[]);
    assert_eq!(reindexed.code, 0, "{}", reindexed.err);
    assert_eq!(found("watches:github.com/acme/infra"), "");
    assert_sound(db);
}
