//! Servers that change accounts at once: one external ID, one address, a merge beside a deletion, the sequence. Once in
//! every test run, and a thousand times in a long one (`--races`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use lockkeeper::features::accounts::{AccountsError, AllUsers, NewAccount};
use lockkeeper::model::AccountId;
use lockkeeper_accounts::external_ids::ExternalIdKey;
use tokio::task::JoinSet;

use super::options::name;
use crate::support::accounts::by_ops;
use crate::support::db::{Backend, TestDb, tell};
use crate::support::program::lockkeeper;

/// Number of tasks that meet in a race.
const TASKS: usize = 64;
/// Number of servers that the tasks use.
const SERVERS: usize = 4;
#[test]
fn races_for_accounts_on_sqlite() {
    tell(run(Backend::Sqlite));
}

#[test]
fn races_for_accounts_on_postgres() {
    tell(run(Backend::Postgres));
}

#[expect(clippy::print_stdout, reason = "the report of a long run")]
async fn run(backend: Backend) {
    let options = super::options();
    if !options.wants(backend) {
        return;
    }
    let db = TestDb::new(backend).await;
    let servers: Vec<Arc<AllUsers>> = (0..SERVERS)
        .map(|_| Arc::new(AllUsers::new(db.store().clone(), "localhost")))
        .collect();
    let begun = Instant::now();
    for race in 0..options.races {
        one_external_id(&servers, race).await;
        one_address(&servers, race).await;
        link_merge_delete(&servers, race).await;
        numbers_of_three_processes(&db, race);
    }
    let checked = lockkeeper(&["accounts", "check"], &db.url, &[], &[]);
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
    println!(
        "races on {}: {} of each kind in {:.0} s. {}",
        name(backend),
        options.races,
        begun.elapsed().as_secs_f64(),
        checked.out.trim_end()
    );
}

/// Begins an update on each server in turn, all at once.
async fn at_once<T: Send + 'static, F>(
    servers: &[Arc<AllUsers>],
    tasks: usize,
    update: impl Fn(Arc<AllUsers>, usize) -> F,
) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let mut set = JoinSet::new();
    for task in 0..tasks {
        set.spawn(update(Arc::clone(&servers[task % servers.len()]), task));
    }
    set.join_all().await
}

async fn create(users: Arc<AllUsers>, new: NewAccount) -> Result<AccountId, AccountsError> {
    users.create(&by_ops(), &new).await
}

async fn one_external_id(servers: &[Arc<AllUsers>], race: usize) {
    let key: ExternalIdKey = format!("github:{}", race + 1).parse().unwrap();
    let outcomes = at_once(servers, TASKS, |users, _| {
        let new = NewAccount {
            external_ids: vec![key.clone()],
            ..NewAccount::default()
        };
        create(users, new)
    });
    let created = outcomes.await.into_iter().flatten().count();
    assert_eq!(created, 1, "race {race} for an external ID");
}

async fn one_address(servers: &[Arc<AllUsers>], race: usize) {
    let outcomes = at_once(servers, TASKS, |users, task| {
        // The same address in another case is the same address, but another external ID.
        let kim = if task % 2 == 0 { "kim" } else { "KIM" };
        let new = NewAccount {
            email: Some(format!("{kim}@{race}.example.com").parse().unwrap()),
            ..NewAccount::default()
        };
        create(users, new)
    });
    let created = outcomes.await.into_iter().flatten().count();
    assert_eq!(created, 1, "race {race} for an address");
}

/// Two accounts are merged in both directions, deactivated and deleted, while others link one external ID to both.
async fn link_merge_delete(servers: &[Arc<AllUsers>], race: usize) {
    let mut accounts = Vec::new();
    for _ in 0..2 {
        let created = create(Arc::clone(&servers[0]), NewAccount::default());
        accounts.push(created.await.unwrap());
    }
    let [first, second] = accounts[..] else {
        panic!("two accounts were made");
    };
    let key: ExternalIdKey = format!("oidc:https://id.example.com#{race}")
        .parse()
        .unwrap();
    let outcomes = at_once(servers, 12, |users, task| {
        let key = key.clone();
        async move {
            let by = by_ops();
            let (one, other) = if task < 6 {
                (first, second)
            } else {
                (second, first)
            };
            match task % 6 {
                0..=2 => users.link(&by, one, &key, None).await,
                3 => users.merge(&by, one, other).await,
                4 => users.set_active(&by, one, false).await,
                _ => users.delete(&by, one).await,
            }
        }
    })
    .await;
    for outcome in &outcomes {
        // Others came first, which the rules notice. Nothing else may go wrong.
        let is_failure = matches!(
            outcome,
            Err(AccountsError::Database(_)
                | AccountsError::Damaged(_)
                | AccountsError::Sequence(_)
                | AccountsError::Busy)
        );
        assert!(!is_failure, "race {race}: {outcome:?}");
    }
    assert!(
        outcomes.iter().any(Result::is_ok),
        "race {race}: nobody came first"
    );
}

/// Three programs make accounts at once.
fn numbers_of_three_processes(db: &TestDb, race: usize) {
    let create = |program: usize| {
        let name = format!("kim{race}-{program}");
        let created = lockkeeper(&["accounts", "create"], &db.url, &[&name], &[]);
        assert_eq!(created.code, 0, "{}", created.err);
        created.out.trim().parse::<u32>().unwrap()
    };
    let numbers: BTreeSet<u32> = thread::scope(|scope| {
        let programs: Vec<_> = (0..3)
            .map(|program| scope.spawn(move || create(program)))
            .collect();
        let numbers = programs.into_iter().map(|program| program.join().unwrap());
        numbers.collect()
    });
    assert_eq!(numbers.len(), 3, "race {race} for numbers: {numbers:?}");
}
