//! Races for accounts, and the tables that are derived from them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use lockkeeper::features::accounts::{AccountsError, AllUsers, NewAccount};
use lockkeeper::git::LocalCopy;
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::ExternalIdKey;
use tokio::task::JoinSet;

use crate::accounts::independent;
use crate::support::accounts::by_ops;
use crate::support::db::{TestDb, store_test};
use crate::support::program::{Said, lockkeeper};

store_test!(
    of_many_arrivals_of_one_external_id_one_makes_an_account,
    of_many_who_take_one_address_one_gets_it,
    no_number_is_given_twice,
    a_copy_of_a_thousand_accounts_is_imported_once,
    a_copy_with_an_error_is_not_imported,
    a_copy_without_a_sequence_is_imported_and_goes_on_after_its_highest_number,
);

const TASKS: usize = 64;

/// Creates accounts from many tasks of several servers at once.
async fn create_at_once(
    db: &TestDb,
    new: impl Fn(usize) -> NewAccount,
) -> Vec<Result<u32, AccountsError>> {
    let servers: Vec<Arc<AllUsers>> = (0..4)
        .map(|_| Arc::new(AllUsers::new(db.store().clone(), "localhost")))
        .collect();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (users, new) = (Arc::clone(&servers[task % servers.len()]), new(task));
        tasks.spawn(async move {
            let created = users.create(&by_ops(), &new).await;
            created.map(lockkeeper_accounts::refs::AccountId::get)
        });
    }
    tasks.join_all().await
}

/// Checks every rule, and the derived tables.
fn assert_sound(db: &TestDb) {
    let checked = lockkeeper(&["accounts", "check"], &db.url, &[], &[]);
    // Unknown keys of a copy are warnings.
    let errors = checked
        .out
        .lines()
        .find(|line| !line.contains(": warning: "));
    assert_eq!((checked.code, errors), (0, None), "{}", checked.err);
}

async fn of_many_arrivals_of_one_external_id_one_makes_an_account(db: &TestDb) {
    let key: ExternalIdKey = "github:583231".parse().unwrap();
    let outcomes = create_at_once(db, |_| NewAccount {
        external_ids: vec![key.clone()],
        ..NewAccount::default()
    })
    .await;
    let created = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(created, 1);
    for refused in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert_eq!(
            refused.to_string(),
            "`github:583231` belongs to account 1000000; remove it there first"
        );
    }
    assert_sound(db);
}

async fn of_many_who_take_one_address_one_gets_it(db: &TestDb) {
    let email: AccountEmail = "Kim@example.com".parse().unwrap();
    let outcomes = create_at_once(db, |task| NewAccount {
        username: Some(ExternalIdKey::username(&format!("kim{task}")).unwrap()),
        // The same address in another case is the same address, but another external ID.
        email: Some(if task % 2 == 0 {
            email.clone()
        } else {
            "kim@EXAMPLE.com".parse().unwrap()
        }),
        ..NewAccount::default()
    })
    .await;
    let created: Vec<u32> = outcomes.into_iter().filter_map(Result::ok).collect();
    assert_eq!(created, [1_000_000]);
    assert_sound(db);
}

async fn no_number_is_given_twice(db: &TestDb) {
    let outcomes = create_at_once(db, |task| NewAccount {
        username: Some(ExternalIdKey::username(&format!("kim{task}")).unwrap()),
        ..NewAccount::default()
    })
    .await;
    let numbers: BTreeSet<u32> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(numbers.len(), TASKS);
    assert_eq!(numbers.first(), Some(&1_000_000));
    assert_sound(db);
}

/// Imports a copy, and returns what the program says.
fn import(db: &TestDb, dir: &Path) -> Said {
    let dir = dir.to_str().unwrap();
    lockkeeper(&["accounts", "import", "git"], &db.url, &[dir], &[])
}

async fn a_copy_of_a_thousand_accounts_is_imported_once(db: &TestDb) {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.git");
    let written = independent(&["write", copy.to_str().unwrap(), "1000", "7"]);
    assert_eq!(written.code, 0, "{}", written.out);

    let imported = import(db, &copy);
    assert_eq!(imported.code, 0, "{}{}", imported.out, imported.err);
    assert_eq!(imported.err, "Imported 1000 accounts.\n");
    let there = LocalCopy::open(&copy).unwrap();
    let there: Vec<(String, String)> = there
        .refs()
        .filter(|(name, _)| *name != "refs/meta/config")
        .map(|(name, id)| (name.to_owned(), id.to_string()))
        .collect();
    let (refs, update) = db.store().account_refs().await.unwrap();
    let refs = refs.into_iter().map(|(name, id)| (name, id.to_string()));
    assert_eq!(refs.collect::<Vec<_>>(), there);
    assert_sound(db);

    let again = import(db, &copy);
    assert_eq!(again.code, 1, "{}", again.err);
    assert!(
        again
            .err
            .contains("accounts are imported into a server without any"),
        "{}",
        again.err
    );
    assert_eq!(db.store().account_refs().await.unwrap().1, update);
}

async fn a_copy_without_a_sequence_is_imported_and_goes_on_after_its_highest_number(db: &TestDb) {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.git");
    independent(&["write", copy.to_str().unwrap(), "3", "7"]);
    let packed = copy.join("packed-refs");
    let refs = std::fs::read_to_string(&packed).unwrap();
    let others = refs
        .split_inclusive('\n')
        .filter(|line| !line.ends_with("refs/sequences/accounts\n"));
    let others: String = others.collect();
    assert_ne!(others, refs);
    std::fs::write(&packed, others).unwrap();

    let imported = import(db, &copy);
    assert_eq!(imported.code, 0, "{}{}", imported.out, imported.err);
    let highest = db.store().account_highest().await.unwrap().unwrap();
    let users = AllUsers::new(db.store().clone(), "localhost");
    let created = users.create(&by_ops(), &NewAccount::default()).await;
    assert_eq!(created.unwrap(), highest.next().unwrap());
    assert_sound(db);
}

async fn a_copy_with_an_error_is_not_imported(db: &TestDb) {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.git");
    independent(&["write", copy.to_str().unwrap(), "3", "7"]);
    // The account stays in external IDs, so they name one that does not exist.
    let packed = copy.join("packed-refs");
    let refs = std::fs::read_to_string(&packed).unwrap();
    let is_account = |line: &str| line.contains(" refs/users/") && !line.ends_with("default");
    let first = refs.lines().position(is_account).unwrap();
    let others = refs.lines().enumerate().filter(|(line, _)| *line != first);
    let others = others.map(|(_, line)| format!("{line}\n"));
    std::fs::write(&packed, others.collect::<String>()).unwrap();

    let imported = import(db, &copy);
    assert_eq!(imported.code, 1, "{}", imported.out);
    assert!(
        imported.err.contains("Nothing was imported."),
        "{}",
        imported.err
    );
    assert_eq!(db.store().account_refs().await.unwrap().0, []);
}
