//! Races for accounts, and the tables that are derived from them.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use futures::future::poll_immediate;
use gix_object::Kind;
use lockkeeper::features::accounts::{AccountsError, AllUsers, NewAccount, WebPasswords};
use lockkeeper::git::LocalCopy;
use lockkeeper::kit::reconcile::TickResult;
use lockkeeper::kit::web::{AccountPasswords, PasswordVerdict};
use lockkeeper::model::AccountId;
use lockkeeper::store::DatabaseUrl;
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::ExternalIdKey;
use lockkeeper_accounts::objects::GitObject;
use serde_json::json;
use tokio::task::JoinSet;

use super::samples::open_pull;
use super::stars::label;
use crate::accounts::independent;
use crate::support::accounts::{assert_sound, by_ops};
use crate::support::db::{Backend, TestDb, execute, store_test};
use crate::support::log;
use crate::support::program::{ProgramOutput, lockkeeper, problem_lines};

store_test!(
    of_many_arrivals_of_one_external_id_one_makes_an_account,
    of_many_who_take_one_address_one_gets_it,
    an_address_stays_with_an_account_until_its_last_external_id_goes,
    no_number_is_given_twice,
    no_number_of_a_batch_is_given_twice,
    numbers_from_before_a_restored_backup_are_not_given,
    a_copy_of_a_thousand_accounts_is_imported_once,
    an_account_that_is_gone_takes_nothing_along,
    a_copy_without_accounts_is_not_imported,
    a_query_finds_the_same_on_both_databases,
    tables_that_differ_from_the_branches_are_named_and_made_again,
    what_cannot_be_read_keeps_no_other_tables_from_being_made_again,
    unreadable_external_ids_stay_and_everything_else_is_made_again,
    no_number_is_given_without_a_sequence_as_long_as_there_are_accounts,
    stars_on_changes_that_the_server_has_never_seen_are_warnings,
    accounts_are_checked_while_they_change,
    a_check_reads_no_old_files,
    tables_are_made_again_while_accounts_change,
    two_accounts_of_one_person_become_one,
    a_deleted_account_leaves_nothing_and_its_number_is_not_given_again,
    an_earlier_state_is_restored_but_nobody_gets_back_in,
    a_copy_without_a_sequence_is_imported_and_goes_on_after_its_highest_number,
    users_of_the_pages_become_accounts_with_the_passwords_that_they_know,
    users_that_cannot_become_accounts_are_named_and_nobody_is_imported,
    an_account_has_one_user_name,
    a_new_password_counts_at_once_at_the_pages,
);

const TASKS: usize = 64;

/// Creates accounts from many tasks of several servers at once.
async fn create_at_once(
    db: &TestDb,
    new: impl Fn(usize) -> NewAccount,
) -> Vec<Result<u32, AccountsError>> {
    create_at_once_in_batches(db, &[1; 4], new).await
}

/// Creates accounts from many tasks at once, on a server for each size of a batch of numbers.
async fn create_at_once_in_batches(
    db: &TestDb,
    batches: &[u32],
    new: impl Fn(usize) -> NewAccount,
) -> Vec<Result<u32, AccountsError>> {
    let servers: Vec<Arc<AllUsers>> = batches
        .iter()
        .map(|batch| {
            let users = AllUsers::new(db.store().clone(), "localhost");
            Arc::new(users.with_batches_of(*batch))
        })
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

async fn an_address_stays_with_an_account_until_its_last_external_id_goes(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    let by = by_ops();
    let with_address = |address: &str| NewAccount {
        email: Some(address.parse().unwrap()),
        ..NewAccount::default()
    };
    let new = with_address("kim@example.com");
    let kim = users.create(&by, &new).await.unwrap();
    let key: ExternalIdKey = "github:583231".parse().unwrap();
    let in_capitals: AccountEmail = "KIM@example.com".parse().unwrap();
    users
        .link(&by, kim, &key, Some(&in_capitals))
        .await
        .unwrap();
    for gone in ["github:583231", "mailto:kim@example.com"] {
        assert_sound(db);
        let taken = users.create(&by, &with_address("Kim@Example.com")).await;
        let taken = taken.unwrap_err().to_string();
        assert_eq!(
            taken,
            "`Kim@Example.com` belongs to account 1000000; remove it there first"
        );
        let gone = [gone.parse().unwrap()];
        users.unlink(&by, kim, &gone).await.unwrap();
    }
    let new = with_address("Kim@Example.com");
    users.create(&by, &new).await.unwrap();
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

async fn no_number_of_a_batch_is_given_twice(db: &TestDb) {
    // Started twice: what the first servers had in memory is a gap.
    let mut numbers = BTreeSet::new();
    for round in 0..2 {
        let outcomes = create_at_once_in_batches(db, &[1, 7, 100], |task| NewAccount {
            username: Some(ExternalIdKey::username(&format!("kim{round}-{task}")).unwrap()),
            ..NewAccount::default()
        })
        .await;
        numbers.extend(outcomes.into_iter().map(Result::unwrap));
    }
    assert_eq!(numbers.len(), 2 * TASKS);
    assert_sound(db);
}

async fn numbers_from_before_a_restored_backup_are_not_given(db: &TestDb) {
    let create = async |users: &AllUsers| {
        let created = users.create(&by_ops(), &NewAccount::default()).await;
        created.unwrap().get()
    };
    let single = AllUsers::new(db.store().clone(), "localhost");
    assert_eq!(create(&single).await, 1_000_000);
    let batched = AllUsers::new(db.store().clone(), "localhost").with_batches_of(10);
    assert_eq!(create(&batched).await, 1_000_001);
    assert_eq!(create(&batched).await, 1_000_002);
    // The database is again what it was after the first account.
    let sequence = GitObject::new(Kind::Blob, b"1000001".to_vec()).id;
    let back = format!(
        "UPDATE account_refs SET object_id = {} WHERE name = 'refs/sequences/accounts'",
        bytes(db, &sequence.to_string())
    );
    execute(db, &back).await;
    execute(db, "DELETE FROM account_refs WHERE name LIKE 'refs/users/%' AND name <> 'refs/users/00/1000000'").await;
    execute(db, "DELETE FROM accounts WHERE number > 1000000").await;
    assert_eq!(create(&batched).await, 1_000_001);
    assert_eq!(create(&batched).await, 1_000_002);
    assert_eq!(create(&single).await, 1_000_011);
}

/// Imports a copy, and returns what the program says.
pub fn import(db: &TestDb, dir: &Path) -> ProgramOutput {
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

async fn an_account_that_is_gone_takes_nothing_along(db: &TestDb) {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.git");
    independent(&["write", copy.to_str().unwrap(), "3", "7"]);
    // External IDs and stars still name the account.
    let packed = copy.join("packed-refs");
    let refs = std::fs::read_to_string(&packed).unwrap();
    let is_account = |line: &str| line.contains(" refs/users/") && !line.ends_with("default");
    let first = refs.lines().position(is_account).unwrap();
    let others = refs.lines().enumerate().filter(|(line, _)| *line != first);
    let others = others.map(|(_, line)| format!("{line}\n"));
    std::fs::write(&packed, others.collect::<String>()).unwrap();

    let imported = import(db, &copy);
    assert_eq!(
        (imported.code, imported.err.as_str()),
        (0, "Imported 2 accounts.\n"),
        "{}",
        imported.out
    );
    let gone = refs.lines().nth(first).unwrap().rsplit('/').next().unwrap();
    let what = format!(": account {gone} does not exist; ");
    let named = imported.out.lines().filter(|line| line.contains(&what));
    assert!(named.clone().count() > 0, "{}", imported.out);
    for line in named {
        assert!(line.contains(": left out: "), "{line}");
    }
    let index = db.store().account_index().await.unwrap();
    let owners = index.external_ids.values().map(|(account, _)| account);
    let owners = owners.chain(index.emails.values());
    let mut owners = owners.chain(index.stars.keys().map(|(account, _)| account));
    assert!(owners.all(|account| account.to_string() != gone));
    assert_sound(db);
}

/// A plain clone has no refs of accounts.
async fn a_copy_without_accounts_is_not_imported(db: &TestDb) {
    let dir = tempfile::tempdir().unwrap();
    for part in ["objects", "refs"] {
        std::fs::create_dir(dir.path().join(part)).unwrap();
    }
    std::fs::write(dir.path().join("HEAD"), "ref: refs/heads/main\n").unwrap();
    let copy = dir.path().to_str().unwrap();
    let said = lockkeeper(&["accounts", "import", "git"], &db.url, &[copy], &[]);
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    assert!(
        said.err.contains("the copy has no accounts"),
        "{}",
        said.err
    );
    assert!(said.err.contains("git clone --mirror"), "{}", said.err);
    let index = db.store().account_index().await.unwrap();
    assert_eq!(index.refs.len(), 0);
}

async fn a_query_finds_the_same_on_both_databases(db: &TestDb) {
    let accounts = |command: &str, args: &[&str]| {
        let said = lockkeeper(&["accounts", command], &db.url, args, &[]);
        assert_eq!(said.code, 0, "{command} {args:?}: {}", said.err);
        said.out
    };
    accounts(
        "create",
        &[
            "jdoe",
            "--full-name",
            "John Doe",
            "--email",
            "John@example.com",
        ],
    );
    accounts("create", &["oezil", "--full-name", "Özil 100%"]);
    accounts(
        "create",
        &["kim", "--email", "kim@example.com", "--link", "github:7"],
    );
    accounts("create", &["gone", "--full-name", "John Gone"]);
    accounts("deactivate", &["gone"]);
    let found = |query: &str| {
        let out = accounts("query", &[query]);
        let names = out.lines().filter_map(|line| line.split(' ').nth(1));
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found(""), "jdoe oezil kim");
    assert_eq!(found("john"), "jdoe");
    assert_eq!(found("JOHN is:inactive"), "gone");
    assert_eq!(found("name:\"john d\""), "jdoe");
    assert_eq!(found("Özil"), "oezil");
    assert_eq!(found("name:100%"), "oezil");
    assert_eq!(found("name:_"), "", "an underscore is no pattern");
    assert_eq!(found("email:JOHN@"), "jdoe");
    assert_eq!(
        found("email:example"),
        "",
        "only the beginning of an address"
    );
    assert_eq!(
        found("-email:john@"),
        "oezil kim",
        "also those without an address"
    );
    assert_eq!(
        found("-name:john"),
        "oezil kim",
        "also those without a name"
    );
    assert_eq!(found("username:ki"), "kim");
    assert_eq!(found("1000001"), "oezil");
    assert_eq!(found("limit:2"), "jdoe oezil");
    assert_eq!(found("o'; DROP TABLE accounts; --"), "");
    let refused = lockkeeper(&["accounts", "query"], &db.url, &["is:x"], &[]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("write `is:active` or `is:inactive`"),
        "{}",
        refused.err
    );
}

async fn an_earlier_state_is_restored_but_nobody_gets_back_in(db: &TestDb) {
    let accounts =
        |command: &str, args: &[&str]| lockkeeper(&["accounts", command], &db.url, args, &[]);
    accounts("create", &["jdoe", "--email", "jdoe@example.com"]);
    accounts("set", &["jdoe", "--full-name", "John Doe"]);
    accounts(
        "set",
        &["jdoe", "--full-name", "Somebody Else", "--status", "OOO"],
    );
    accounts("deactivate", &["jdoe"]);
    let history = accounts("history", &["jdoe"]).out;
    let commits: Vec<&str> = history.lines().map(|line| &line[..12]).collect();
    assert_eq!(commits.len(), 4, "{history}");

    let restored = accounts("restore", &["jdoe", commits[2]]);
    assert_eq!(restored.code, 0, "{}", restored.err);
    let shown = accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(
        (&shown["name"], &shown["status"], &shown["inactive"]),
        (&"John Doe".into(), &serde_json::Value::Null, &true.into())
    );
    let history = accounts("history", &["jdoe"]).out;
    assert!(
        history.lines().next().unwrap().contains("Restore "),
        "{history}"
    );
    // The state is there already.
    assert_eq!(accounts("restore", &["jdoe", &history[..12]]).code, 0);
    assert_eq!(accounts("history", &["jdoe"]).out, history);
    assert_sound(db);
    // An active account stays active, too.
    accounts("activate", &["jdoe"]);
    let newest = accounts("history", &["jdoe"]).out;
    let while_inactive = newest.lines().nth(1).unwrap()[..12].to_owned();
    assert_eq!(accounts("restore", &["jdoe", &while_inactive]).code, 0);
    let shown = accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(shown["inactive"], serde_json::Value::Null);
    // The address of that time belongs to nobody any more, and a deleted key does not come back.
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@laptop";
    accounts("keys", &["jdoe", "--add", key]);
    let with_key = accounts("history", &["jdoe"]).out[..12].to_owned();
    accounts("keys", &["jdoe", "--delete", "1"]);
    accounts("unlink", &["jdoe", "mailto:jdoe@example.com"]);
    let restored = accounts("restore", &["jdoe", &with_key]);
    assert_eq!(restored.code, 0, "{}", restored.err);
    let shown = accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(
        (&shown["ssh_keys"], &shown["email"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert_eq!(accounts("keys", &["jdoe", "--add", key]).out, "2\n");
    assert_eq!(accounts("restore", &["jdoe", "zzzz"]).code, 1);
    assert_sound(db);
}

async fn two_accounts_of_one_person_become_one(db: &TestDb) {
    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@laptop";
    let accounts = |command: &str, args: &[&str]| {
        let said = lockkeeper(&["accounts", command], &db.url, args, &[]);
        assert_eq!(said.code, 0, "{command} {args:?}: {}", said.err);
        said
    };
    accounts("create", &["jdoe", "--email", "jdoe@example.com"]);
    accounts(
        "create",
        &[
            "john",
            "--email",
            "john@home.example",
            "--link",
            "github:583231",
        ],
    );
    accounts("keys", &["john", "--add", KEY]);
    accounts("password", &["john"]);

    accounts("merge", &["john", "jdoe"]);
    let merged = accounts("show", &["jdoe", "--json"]).json();
    let keys = merged["external_ids"].as_array().unwrap().iter();
    let keys: Vec<&str> = keys.map(|id| id["key"].as_str().unwrap()).collect();
    assert_eq!(
        keys,
        [
            "github:583231",
            "mailto:jdoe@example.com",
            "mailto:john@home.example",
            "username:jdoe"
        ]
    );
    assert_eq!(merged["ssh_keys"][0]["key"], KEY);
    assert_eq!(merged["email"], "jdoe@example.com");
    let emptied = accounts("show", &["john", "--json"]).json();
    assert_eq!(emptied["inactive"], true);
    assert_eq!(
        emptied["external_ids"].as_array().unwrap().len(),
        1,
        "{emptied}"
    );
    assert_eq!(emptied["ssh_keys"], serde_json::Value::Null);
    for account in ["john", "jdoe"] {
        let history = accounts("history", &[account]).out;
        assert!(
            history.contains("Merge Account 1000001 into 1000000"),
            "{history}"
        );
    }
    assert_sound(db);
    // A merge lets nobody in who is locked out.
    let inactive = lockkeeper(&["accounts", "merge"], &db.url, &["john", "jdoe"], &[]);
    assert_eq!(inactive.code, 1);
    assert!(
        inactive.err.contains("account 1000001 is inactive"),
        "{}",
        inactive.err
    );
    let itself = lockkeeper(&["accounts", "merge"], &db.url, &["jdoe", "1000000"], &[]);
    assert_eq!(itself.code, 1);
    assert!(
        itself.err.contains("both names are of account 1000000"),
        "{}",
        itself.err
    );
}

/// Counts the refs of an account.
fn of_account<T>(refs: &[(String, T)], number: &str) -> usize {
    let end = format!("/{number}");
    refs.iter().filter(|(name, _)| name.ends_with(&end)).count()
}

async fn a_deleted_account_leaves_nothing_and_its_number_is_not_given_again(db: &TestDb) {
    let accounts = |command: &str, args: &[&str]| {
        let said = lockkeeper(&["accounts", command], &db.url, args, &[]);
        assert_eq!(said.code, 0, "{command} {args:?}: {}", said.err);
        said.out
    };
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.git");
    independent(&["write", copy.to_str().unwrap(), "50", "7"]);
    let imported = import(db, &copy);
    assert_eq!(imported.code, 0, "{}", imported.err);
    let (refs, _) = db.store().account_refs().await.unwrap();
    let star = refs
        .iter()
        .find(|(name, _)| name.starts_with("refs/starred-changes/"));
    let number = star.unwrap().0.rsplit('/').next().unwrap().to_owned();
    assert!(of_account(&refs, &number) >= 2);

    let active = lockkeeper(&["accounts", "delete"], &db.url, &[&number], &[]);
    assert_eq!(active.code, 1);
    assert!(active.err.contains("comes first"), "{}", active.err);
    accounts("deactivate", &[&number]);
    accounts("delete", &[&number]);
    let (refs, _) = db.store().account_refs().await.unwrap();
    assert_eq!(of_account(&refs, &number), 0);
    let gone = lockkeeper(&["accounts", "show"], &db.url, &[&number], &[]);
    assert_eq!(gone.code, 1, "{}", gone.out);
    assert_sound(db);
    let highest = db.store().account_highest().await.unwrap().unwrap();
    accounts("deactivate", &[&highest.to_string()]);
    accounts("delete", &[&highest.to_string()]);
    let next = accounts("create", &["newcomer"]);
    assert!(next.trim().parse::<u32>().unwrap() > highest.get());
    assert_sound(db);
}

async fn tables_that_differ_from_the_branches_are_named_and_made_again(db: &TestDb) {
    let run = |words: &[&str]| lockkeeper(words, &db.url, &[], &[]);
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.git");
    independent(&["write", copy.to_str().unwrap(), "20", "7"]);
    assert_eq!(import(db, &copy).code, 0);
    let whole = db.store().account_index().await.unwrap();
    assert!(whole.stars.len() > 3 && whole.watches.len() > 3);
    assert_sound(db);
    // Nothing of Lockkeeper does this.
    for damage in [
        "UPDATE accounts SET full_name = 'x' WHERE number = (SELECT MIN(number) FROM accounts)",
        "DELETE FROM accounts WHERE number = (SELECT MAX(number) FROM accounts)",
        "INSERT INTO accounts SELECT number + 100000, full_name, preferred_email, status, active, username, registered_at, \
         commit_id FROM accounts WHERE number = (SELECT MIN(number) FROM accounts)",
        "DELETE FROM account_emails WHERE email = (SELECT MIN(email) FROM account_emails)",
        "UPDATE accounts SET commit_id = (SELECT commit_id FROM accounts WHERE number = (SELECT MAX(number) FROM accounts)) \
         WHERE number = (SELECT MIN(number) FROM accounts)",
        "UPDATE account_external_ids SET note_id = (SELECT note_id FROM account_external_ids WHERE external_id = \
         (SELECT MIN(external_id) FROM account_external_ids))",
        "UPDATE account_external_ids SET account = 7 WHERE external_id = (SELECT MAX(external_id) FROM account_external_ids)",
        "DELETE FROM account_watches WHERE project = (SELECT MIN(project) FROM account_watches)",
        "INSERT INTO account_watches SELECT MIN(number), 'github.com/acme/x' FROM accounts",
        "DELETE FROM account_words WHERE word = (SELECT MIN(word) FROM account_words)",
        "INSERT INTO account_words SELECT 'name', 'x', MIN(number) FROM accounts",
        "INSERT INTO account_words SELECT 'name', 'x', 7 + MAX(number) FROM accounts",
        "DELETE FROM account_stars WHERE change_number = (SELECT MIN(change_number) FROM account_stars)",
        "INSERT INTO account_stars SELECT account, change_number, 'zzz' FROM account_stars WHERE label = 'star'",
        "INSERT INTO account_stars SELECT MIN(number), 999999, 'star' FROM accounts",
    ] {
        execute(db, damage).await;
        let checked = run(&["accounts", "check"]);
        assert_eq!(checked.code, 1, "{damage}: {}", checked.out);
        assert!(
            checked.out.contains("run `lockkeeper reindex accounts`"),
            "{damage}: {}",
            checked.out
        );
        let again = run(&["reindex", "accounts"]);
        assert_eq!(again.code, 0, "{damage}: {}{}", again.out, again.err);
        assert_eq!(db.store().account_index().await.unwrap(), whole, "{damage}");
    }
    let as_often_as_one_likes = run(&["reindex", "accounts"]);
    assert_eq!(
        as_often_as_one_likes.err,
        "The tables of 20 accounts agree with the branches. Nothing was changed.\n"
    );
    assert_sound(db);
}

/// Returns bytes as SQL has them.
fn bytes(db: &TestDb, hex: &str) -> String {
    match db.url {
        DatabaseUrl::Postgres(_) => format!("'\\x{hex}'::bytea"),
        DatabaseUrl::Sqlite(_) => format!("X'{hex}'"),
    }
}

/// Creates the accounts 1000000 `kim`, 1000001 `lee` and 1000002 `zoe` with addresses, and stars of the first and the last.
async fn three_accounts(db: &TestDb) -> AllUsers {
    let users = AllUsers::new(db.store().clone(), "localhost");
    for (number, name) in (1..).zip(["kim", "lee", "zoe"]) {
        open_pull(db.store(), number).await;
        let new = NewAccount {
            username: Some(ExternalIdKey::username(name).unwrap()),
            full_name: Some(name.to_owned()),
            email: Some(format!("{name}@example.com").parse().unwrap()),
            ..NewAccount::default()
        };
        let account = users.create(&by_ops(), &new).await.unwrap();
        if name != "lee" {
            label(&users, account, 1, "star", "").await.unwrap();
        }
    }
    users
}

async fn what_cannot_be_read_keeps_no_other_tables_from_being_made_again(db: &TestDb) {
    const LEE: &str = "refs/users/01/1000001";
    const STAR: &str = "refs/starred-changes/01/1/1000000";
    let users = three_accounts(db).await;
    let index = async || db.store().account_index().await.unwrap();
    let reindex = || lockkeeper(&["reindex", "accounts"], &db.url, &[], &[]);
    let whole = index().await;
    let point = async |name: &str, id: &str| {
        let id = bytes(db, id);
        let sql = format!("UPDATE account_refs SET object_id = {id} WHERE name = '{name}'");
        execute(db, &sql).await;
    };
    point(LEE, &"11".repeat(20)).await;
    // Labels are no commit.
    point(STAR, &whole.refs["refs/users/00/1000000"].to_string()).await;
    for damage in [
        "UPDATE accounts SET full_name = 'x'",
        "DELETE FROM account_emails WHERE account <> 1000001",
        "DELETE FROM account_stars",
        // It would let somebody in.
        "INSERT INTO account_external_ids (external_id, account, note_id) SELECT 'github:583231', account, note_id \
         FROM account_external_ids WHERE external_id = 'username:lee'",
    ] {
        execute(db, damage).await;
    }
    let said = reindex();
    assert_eq!(said.code, 1, "{}", said.err);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", said.out);
    let unreadable = |name: &str| format!("{name}: error: an object cannot be read: ");
    assert!(lines[0].starts_with(&unreadable(STAR)), "{}", said.out);
    assert!(lines[1].starts_with(&unreadable(LEE)), "{}", said.out);
    let note = format!(
        "Rebuilt the tables of 3 accounts (accounts in total: 3). What cannot be read left its tables as they were: {LEE}, {STAR}. \
         Correct the errors in the branches.\n"
    );
    assert!(said.err.ends_with(&note), "{}", said.err);
    let now = index().await;
    let names = now.accounts.iter().map(|row| row.full_name.as_deref());
    assert_eq!(
        names.collect::<Vec<_>>(),
        [Some("kim"), Some("x"), Some("zoe")]
    );
    assert_eq!(now.external_ids, whole.external_ids);
    assert_eq!(now.emails, whole.emails);
    let stars: Vec<u32> = now.stars.keys().map(|(account, _)| account.get()).collect();
    assert_eq!(stars, [1_000_002]);

    // Nothing is left to do, and the problems stay.
    let again = reindex();
    assert_eq!(again.code, 1);
    assert!(
        again.err.contains("Rebuilt the tables of 0 accounts ("),
        "{}",
        again.err
    );
    // A program reads the same.
    let told = lockkeeper(&["reindex", "accounts"], &db.url, &["--json"], &[]);
    assert_eq!((told.code, told.err.as_str()), (1, ""));
    let told = told.json();
    assert_eq!(
        (&told["accounts"], &told["written"], &told["left"]),
        (&json!(3), &json!(0), &json!(0))
    );
    assert_eq!(told["kept"], json!([LEE, STAR]));
    assert_eq!(problem_lines(&told), again.out.lines().collect::<Vec<_>>());
    let failed = users.check().await.unwrap_err().to_string();
    let two = format!("the accounts break 2 rules: {}", unreadable(STAR));
    assert!(failed.starts_with(&two), "{failed}");

    // An account without rows has a name of another one.
    for damage in [
        "DELETE FROM accounts WHERE number = 1000001",
        "UPDATE account_external_ids SET account = 1000001 WHERE external_id = 'username:kim'",
        "UPDATE accounts SET full_name = 'x'",
    ] {
        execute(db, damage).await;
    }
    let said = reindex();
    assert_eq!(said.code, 1);
    let kept = format!("refs/users/00/1000000, {LEE}, {STAR}. ");
    assert!(said.err.contains(&kept), "{}", said.err);
    let now = index().await;
    let names = now.accounts.iter().map(|row| row.full_name.as_deref());
    assert_eq!(names.collect::<Vec<_>>(), [Some("x"), Some("zoe")]);

    for name in [LEE, STAR] {
        point(name, &whole.refs[name].to_string()).await;
    }
    let said = reindex();
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert_eq!(index().await, whole);
    assert_sound(db);
}

async fn unreadable_external_ids_stay_and_everything_else_is_made_again(db: &TestDb) {
    let users = three_accounts(db).await;
    let whole = db.store().account_index().await.unwrap();
    for damage in [
        // The files of an account are no notes.
        "UPDATE account_refs SET object_id = (SELECT object_id FROM account_refs WHERE name = 'refs/users/00/1000000') \
         WHERE name = 'refs/meta/external-ids'",
        "UPDATE accounts SET active = FALSE, username = 'x' WHERE number = 1000000",
        "DELETE FROM account_words",
        "DELETE FROM account_stars",
    ] {
        execute(db, damage).await;
    }
    let said = lockkeeper(&["reindex", "accounts"], &db.url, &[], &[]);
    assert_eq!(said.code, 1, "{}", said.err);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 1, "{}", said.out);
    assert!(
        lines[0].starts_with("refs/meta/external-ids: error: ")
            && lines[0].contains("`account.config` is not a note"),
        "{}",
        said.out
    );
    let note = "Rebuilt the tables of 3 accounts (accounts in total: 3). What cannot be read left its tables as they were: \
                refs/meta/external-ids. Correct the errors in the branches.\n";
    assert!(said.err.ends_with(note), "{}", said.err);
    let mut now = db.store().account_index().await.unwrap();
    now.refs.clone_from(&whole.refs);
    assert_eq!(now, whole);
    let failed = users.check().await.unwrap_err().to_string();
    assert!(
        failed.starts_with("the accounts break 1 rule: "),
        "{failed}"
    );
}

async fn no_number_is_given_without_a_sequence_as_long_as_there_are_accounts(db: &TestDb) {
    let users = three_accounts(db).await;
    for damage in [
        "DELETE FROM account_refs WHERE name = 'refs/sequences/accounts'",
        "DELETE FROM accounts",
    ] {
        execute(db, damage).await;
    }
    let refused = users.create(&by_ops(), &NewAccount::default()).await;
    let refused = refused.unwrap_err().to_string();
    assert_eq!(
        refused,
        "no account can be created: the next number would be 1000000, but account 1000002 exists; write a number above \
         1000002 into refs/sequences/accounts"
    );
    let failed = users.check().await.unwrap_err().to_string();
    assert!(
        failed.starts_with(
            "the accounts break 1 rule: refs/sequences/accounts: error: there is no next number"
        ),
        "{failed}"
    );
    // Their rows are there again.
    assert_eq!(db.store().account_index().await.unwrap().accounts.len(), 3);
}

async fn stars_on_changes_that_the_server_has_never_seen_are_warnings(db: &TestDb) {
    three_accounts(db).await;
    let star = "INSERT INTO account_refs (name, object_id) SELECT 'refs/starred-changes/17/17/1000000', object_id \
                FROM account_refs WHERE name = 'refs/starred-changes/01/1/1000000'";
    execute(db, star).await;
    let again = lockkeeper(&["reindex", "accounts"], &db.url, &[], &[]);
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    let checked = lockkeeper(&["accounts", "check"], &db.url, &[], &[]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    assert_eq!(
        checked.out,
        "refs/starred-changes/17/17/1000000: warning: the server has never seen change 17; another change may get the number, \
         so remove the star\n"
    );
    // Many of them do not hide the rest.
    for change in 101..=125 {
        let name = format!("refs/starred-changes/{:02}/{change}/1000000", change % 100);
        execute(
            db,
            &star.replace("refs/starred-changes/17/17/1000000", &name),
        )
        .await;
    }
    let checked = lockkeeper(&["accounts", "check"], &db.url, &[], &[]).out;
    let lines: Vec<&str> = checked.lines().collect();
    let named = lines
        .iter()
        .filter(|line| line.contains(": warning: the server"));
    assert_eq!(named.count(), 20, "{checked}");
    let rest = "refs/starred-changes/: warning: further stars on changes that the server has never seen: 6; another change may \
                get the number, so remove the star";
    assert!(lines.contains(&rest), "{checked}");
}

/// Waits for something that only reads, with an update at each moment in which it waits for the database. On a busy machine,
/// all answers may be there after one update; then it is read again.
async fn with_updates<T, F: Future<Output = T>>(
    users: &AllUsers,
    account: AccountId,
    read: impl Fn() -> F,
) -> T {
    let by = by_ops();
    for _ in 0..20 {
        let (mut reading, mut updates) = (pin!(read()), 0);
        let found = loop {
            if let Some(found) = poll_immediate(&mut reading).await {
                break found;
            }
            let is_active = updates % 2 == 1;
            users.set_active(&by, account, is_active).await.unwrap();
            updates += 1;
        };
        if updates > 1 {
            return found;
        }
    }
    panic!("nothing was updated while the tables were read");
}

async fn accounts_are_checked_while_they_change(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    let new = NewAccount {
        username: Some(ExternalIdKey::username("kim").unwrap()),
        ..NewAccount::default()
    };
    let kim = users.create(&by_ops(), &new).await.unwrap();
    let checked = Box::pin(with_updates(&users, kim, || users.check())).await;
    let agree = TickResult {
        looked_at: 1,
        repaired: 0,
    };
    assert_eq!(checked.unwrap(), agree);
}

/// Anybody can push large files and remove them again, as often as they like.
async fn a_check_reads_no_old_files(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    let by = by_ops();
    let new = NewAccount {
        username: Some(ExternalIdKey::username("kim").unwrap()),
        full_name: Some("Kim".to_owned()),
        ..NewAccount::default()
    };
    let kim = users.create(&by, &new).await.unwrap();
    for is_active in [false, true] {
        users.set_active(&by, kim, is_active).await.unwrap();
    }
    let agree = TickResult {
        looked_at: 1,
        repaired: 0,
    };
    // The file of the inactive account cannot be read any more.
    execute(
        db,
        "UPDATE account_objects SET size = 0 WHERE kind = 'blob' AND update_number = 2",
    )
    .await;
    assert_eq!(users.check().await.unwrap(), agree);
    // That of the active one is read.
    execute(
        db,
        "UPDATE account_objects SET size = 0 WHERE kind = 'blob' AND update_number = 1",
    )
    .await;
    users.check().await.unwrap_err();
}

async fn tables_are_made_again_while_accounts_change(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    let (by, mut accounts) = (by_ops(), Vec::new());
    for number in 1..=3 {
        open_pull(db.store(), number).await;
        let created = users.create(&by, &NewAccount::default()).await;
        accounts.push(created.unwrap());
    }
    let [kim, lee, zoe] = accounts[..] else {
        panic!("three accounts were made");
    };
    for (account, number) in [(kim, 1), (kim, 2), (zoe, 3)] {
        label(&users, account, number, "star", "").await.unwrap();
    }
    let whole = db.store().account_index().await.unwrap();
    for damage in [
        format!("UPDATE accounts SET full_name = 'x' WHERE number = {kim}"),
        format!("INSERT INTO account_words (field, word, account) VALUES ('name', 'x', {lee})"),
        "INSERT INTO account_watches (account, project) VALUES (7, 'github.com/acme/x')".to_owned(),
        "UPDATE account_stars SET label = 'blue'".to_owned(),
    ] {
        execute(db, &damage).await;
    }
    let state = with_updates(&users, lee, || users.branches_and_tables()).await;
    let state = state.unwrap();
    // Updates of an account and of a star with wrong rows, and of something else.
    let key = "github:583231".parse().unwrap();
    users.link(&by, lee, &key, None).await.unwrap();
    label(&users, zoe, 3, "red", "").await.unwrap();
    users.create(&by, &NewAccount::default()).await.unwrap();
    let reindexed = users.reindex(&by, &state).await.unwrap();
    assert_eq!((reindexed.written, reindexed.left), (2, 2));
    let now = db.store().account_index().await.unwrap();
    assert_eq!(now.accounts[0], whole.accounts[0]);
    assert!(now.stars.iter().take(2).eq(whole.stars.iter().take(2)));
    assert!(now.watches.is_empty());
    assert_eq!(now.words.len(), 1, "those of the account that has changed");

    let state = users.branches_and_tables().await.unwrap();
    for time in ["first", "second"] {
        let reindexed = users.reindex(&by, &state).await.unwrap();
        assert_eq!((reindexed.written, reindexed.left), (1, 0), "{time} time");
        assert_sound(db);
    }
}

/// Imports the users of a file with this text.
fn import_users(db: &TestDb, text: &str) -> ProgramOutput {
    import_users_with(db, text, &[])
}

/// Imports the users of a file with this text, with flags.
fn import_users_with(db: &TestDb, text: &str, flags: &[&str]) -> ProgramOutput {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = file.to_str().unwrap();
    let said = lockkeeper(
        &["accounts", "import", "web-accounts"],
        &db.url,
        &[&[file], flags].concat(),
        &[],
    );
    ProgramOutput {
        out: said.out.replace(file, "users"),
        err: said.err.replace(file, "users"),
        ..said
    }
}

/// Returns whether this is the password of an account, as the pages see it.
async fn verdict(passwords: &WebPasswords, number: u32, password: &str) -> &'static str {
    let account = AccountId::new(number).unwrap();
    let quick = passwords.recall(account, password).await.unwrap();
    let verdict = passwords.check(Some(account), password).await.unwrap();
    assert!(quick.is_none_or(|quick| quick == verdict), "{quick:?}");
    match verdict {
        PasswordVerdict::Right(mark) => {
            assert_eq!(passwords.mark(account).await.unwrap(), Some(mark));
            let recalled = passwords.recall(account, password).await.unwrap();
            assert_eq!(recalled, Some(verdict), "no slow hash is necessary");
            "right"
        }
        PasswordVerdict::Inactive => "inactive",
        PasswordVerdict::Wrong => "wrong",
    }
}

async fn users_of_the_pages_become_accounts_with_the_passwords_that_they_know(db: &TestDb) {
    let text = "# the network team\nuser=Kim owners=net,dns allow=plan password=correct-horse-battery-staple\n\n\
                user=watch password=watching-the-watchers owners=net\nuser=lee owners=net account=1000007\n";
    let imported = import_users(db, text);
    assert_eq!(imported.code, 0, "{}", imported.err);
    assert_eq!(
        imported.out,
        "# the network team\nuser=Kim owners=net,dns allow=plan account=1000000\n\n\
         user=watch account=1000001 owners=net\nuser=lee owners=net account=1000007\n"
    );
    assert_eq!(
        imported.err,
        "Created 2 accounts. Write the text above to users; running servers then read it.\n"
    );
    let passwords = WebPasswords::new(db.store().clone());
    let right = verdict(&passwords, 1_000_000, "correct-horse-battery-staple").await;
    assert_eq!(right, "right");
    let users = AllUsers::new(db.store().clone(), "localhost");
    assert_eq!(
        users.find("kim").await.unwrap().unwrap().number.get(),
        1_000_000
    );
    // An import that was interrupted goes on.
    let again = import_users(db, text);
    assert_eq!(
        (again.code, &again.out),
        (0, &imported.out),
        "{}",
        again.err
    );
    assert!(
        again.err.starts_with("Created 0 accounts."),
        "{}",
        again.err
    );
    let told = import_users_with(db, text, &["--json"]);
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    assert_eq!(
        told.json(),
        json!({"created": 0, "text": imported.out, "problems": []})
    );
    assert_sound(db);
}

async fn users_that_cannot_become_accounts_are_named_and_nobody_is_imported(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    let new = NewAccount {
        username: Some(ExternalIdKey::username("max").unwrap()),
        ..NewAccount::default()
    };
    users.create(&by_ops(), &new).await.unwrap();
    let long = "x".repeat(73);
    let text = format!(
        "user=kim owners=net password=correct-horse-battery-staple\nuser=KIM owners=net password=0123456789abcdef\n\
         user=max owners=net password=0123456789abcdef\nuser=a/b owners=net password=0123456789abcdef\n\
         user=lee owners=net password={long}\nuser=1234 owners=net password=0123456789abcdef\n"
    );
    let refused = import_users(db, &text);
    assert_eq!(refused.code, 1);
    // The output would be the new file.
    assert_eq!(refused.out, "");
    insta::assert_snapshot!(refused.err, @"
    users: line 2: the name differs only in case from the one in line 1; rename one of them
    users: line 3: account 1000000 has this user name and no password; if it is the same person, write `account=1000000` in place of the password
    users: line 4: `username:a/b` is not an external ID; use lower-case letters, digits, `.`, `_`, `@`, `+` and `-`, with a letter or digit first and last
    users: line 5: the password of an account has at most 72 bytes; choose a shorter one
    users: line 6: `1234` cannot be a user name: a number names the account with this number; choose another one
    Nothing was imported. Correct these lines first.
    ");
    assert!(users.find("kim").await.unwrap().is_none());
    let broken = import_users(db, "user=kim owners=net password=hunter2\n");
    assert_eq!(
        (broken.code, broken.err.as_str()),
        (
            1,
            "users: line 1: the password has fewer than 16 characters\nNothing was imported. Correct these lines first.\n"
        )
    );
    let told = import_users_with(db, "user=kim owners=net password=hunter2\n", &["--json"]);
    assert_eq!(
        (told.code, told.err.as_str()),
        (1, "Nothing was imported. Correct these lines first.\n")
    );
    assert_eq!(
        told.json(),
        json!({"created": 0, "problems": ["line 1: the password has fewer than 16 characters"]})
    );
}

async fn a_new_password_counts_at_once_at_the_pages(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    let new = NewAccount {
        username: Some(ExternalIdKey::username("kim").unwrap()),
        ..NewAccount::default()
    };
    let kim = users.create(&by_ops(), &new).await.unwrap();
    let password = |args: &[&str]| {
        let said = lockkeeper(&["accounts", "password"], &db.url, args, &[]);
        assert_eq!(said.code, 0, "{}", said.err);
        said.out.trim().to_owned()
    };
    let passwords = WebPasswords::new(db.store().clone());
    assert_eq!(verdict(&passwords, kim.get(), "").await, "wrong");
    let old = password(&["kim"]);
    for _ in 0..2 {
        assert_eq!(verdict(&passwords, kim.get(), &old).await, "right");
        assert_eq!(verdict(&passwords, kim.get(), "wrong").await, "wrong");
    }
    users.set_active(&by_ops(), kim, false).await.unwrap();
    assert_eq!(verdict(&passwords, kim.get(), &old).await, "inactive");
    assert_eq!(verdict(&passwords, kim.get(), "wrong").await, "wrong");
    users.set_active(&by_ops(), kim, true).await.unwrap();
    let new = password(&["kim"]);
    assert_eq!(passwords.recall(kim, &old).await.unwrap(), None);
    assert_eq!(verdict(&passwords, kim.get(), &old).await, "wrong");
    assert_eq!(verdict(&passwords, kim.get(), &new).await, "right");
    password(&["kim", "--remove"]);
    assert_eq!(verdict(&passwords, kim.get(), &new).await, "wrong");
    assert_eq!(verdict(&passwords, 999, &new).await, "wrong");
    let nobody = passwords.check(None, &new).await.unwrap();
    assert_eq!(nobody, PasswordVerdict::Wrong);
}

/// Besides the message that begins the transaction. SQLite runs the same statements, on threads whose log is not recorded.
#[tokio::test]
async fn an_update_sends_few_statements() {
    let db = TestDb::new(Backend::Postgres).await;
    let users = AllUsers::new(db.store().clone(), "localhost");
    let by = by_ops();
    let new = NewAccount {
        username: Some(ExternalIdKey::username("kim").unwrap()),
        email: Some("kim@example.com".parse().unwrap()),
        ..NewAccount::default()
    };
    let kim = users.create(&by, &new).await.unwrap();
    open_pull(db.store(), 1).await;
    let key: ExternalIdKey = "github:583231".parse().unwrap();
    for expected in [
        ("deactivate", 5),
        ("activate", 5),
        ("link", 6),
        ("unlink", 6),
        ("add a star", 8),
        ("remove a star", 5),
    ] {
        let heard = log::listen();
        match expected.0 {
            "deactivate" => users.set_active(&by, kim, false).await.unwrap(),
            "activate" => users.set_active(&by, kim, true).await.unwrap(),
            "link" => users.link(&by, kim, &key, None).await.unwrap(),
            "unlink" => {
                let keys = std::slice::from_ref(&key);
                users.unlink(&by, kim, keys).await.unwrap();
            }
            "add a star" => drop(label(&users, kim, 1, "star", "").await.unwrap()),
            _ => drop(label(&users, kim, 1, "", "star").await.unwrap()),
        }
        let heard = heard.end();
        let sent = log::statements(&heard);
        assert_eq!((expected.0, sent.len()), expected, "{}", sent.join("\n"));
    }
    assert_sound(&db);
}

async fn an_account_has_one_user_name(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    let new = NewAccount {
        username: Some(ExternalIdKey::username("kim").unwrap()),
        ..NewAccount::default()
    };
    users.create(&by_ops(), &new).await.unwrap();
    // Its password would stay valid when that of the other one is replaced.
    let link = lockkeeper(
        &["accounts", "link"],
        &db.url,
        &["kim", "username:zoe"],
        &[],
    );
    assert_eq!(link.code, 1);
    assert!(
        link.err
            .contains("account 1000000 has 2 user names; keep one of them"),
        "{}",
        link.err
    );
    assert_sound(db);
    // The server that made the account has written the same rows.
    let again = lockkeeper(&["reindex", "accounts"], &db.url, &[], &[]);
    assert_eq!(
        again.err,
        "The tables of 1 account agree with the branches. Nothing was changed.\n"
    );
}
