//! Updates of accounts that are killed at every point where they wait, which includes the time between any two
//! statements: an update is done whole or not at all. A test run takes some of the points, and a long one all of them.

use std::collections::BTreeSet;
use std::task::Poll;

use lockkeeper::features::accounts::{AccountsError, AllUsers, LabelChanges, NewAccount};
use lockkeeper::model::AccountId;
use lockkeeper::store::Store;
use lockkeeper_accounts::external_ids::ExternalIdKey;
use lockkeeper_accounts::refs::ChangeNumber;

use super::options::name;
use crate::store::samples::open_pull;
use crate::support::accounts::{assert_sound, by_ops};
use crate::support::db::{Backend, TestDb, tell};

/// Number of points in a test run.
const KILLS: usize = 8;
/// Number of attempts to kill an update at a point, until two were killed.
const ATTEMPTS: usize = 30;

#[test]
fn killed_updates_on_sqlite() {
    tell(run(Backend::Sqlite));
}

#[test]
fn killed_updates_on_postgres() {
    tell(run(Backend::Postgres));
}

#[expect(clippy::print_stdout, reason = "the report of a long run")]
async fn run(backend: Backend) {
    let options = super::options();
    if !options.wants(backend) {
        return;
    }
    let db = TestDb::new(backend).await;
    creations(&db).await;
    // A step of one point is the smallest.
    let kills = options.races.saturating_mul(KILLS);
    let killed = updates(&db, kills).await;
    println!("kills on {}: {killed} updates", name(backend));
}

/// Drops an update after it has woken up so often; `None` says that it had not ended. A connection that is dropped in a
/// transaction leaves the same behind as a killed server. Also returns how often it has woken up.
async fn killed_after<T>(wakes: usize, update: impl Future<Output = T>) -> (Option<T>, usize) {
    let mut update = Box::pin(update);
    let mut woken = 0;
    let ended = std::future::poll_fn(|context| match update.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if woken == wakes => Poll::Ready(None),
        Poll::Pending => {
            woken += 1;
            Poll::Pending
        }
    });
    (ended.await, woken)
}

async fn creations(db: &TestDb) {
    let (mut killed, mut done, mut attempts) = (0, 0, 0);
    // How often a creation waits depends on the machine. The first wait is there at each attempt.
    while killed <= 5 || done <= 5 || attempts < 60 {
        let wakes = attempts % 30;
        let name = format!("kim{attempts}");
        attempts += 1;
        assert!(attempts < 1_000, "{killed} killed, {done} done");
        let users = AllUsers::new(db.store().clone(), "localhost");
        let before = db.store().account_highest().await.unwrap();
        let new = NewAccount {
            username: Some(ExternalIdKey::username(&name).unwrap()),
            email: Some(format!("{name}@example.com").parse().unwrap()),
            ..NewAccount::default()
        };
        match killed_after(wakes, users.create(&by_ops(), &new)).await.0 {
            Some(created) => {
                done += 1;
                let number = created.unwrap();
                assert!(before < Some(number));
            }
            None => killed += 1,
        }
        let found = users.find(&name).await.unwrap();
        let ids = match &found {
            Some(row) => users.external_ids(row.number).await.unwrap().len(),
            None => 0,
        };
        assert!(ids == 2 || found.is_none(), "{wakes}: {found:?}");
    }
    assert_sound(db);
}

/// Two accounts. Updates change the first one, and a merge both.
struct Pair<'a> {
    store: &'a Store,
    users: AllUsers,
    first: AccountId,
    second: AccountId,
}

impl<'a> Pair<'a> {
    async fn new(db: &'a TestDb, name: &str) -> Self {
        let users = AllUsers::new(db.store().clone(), "localhost");
        let create = async |name: String| {
            let new = NewAccount {
                username: Some(ExternalIdKey::username(&name).unwrap()),
                email: Some(format!("{name}@example.com").parse().unwrap()),
                ..NewAccount::default()
            };
            users.create(&by_ops(), &new).await.unwrap()
        };
        let first = create(format!("{name}-a")).await;
        let second = create(format!("{name}-b")).await;
        Self {
            store: db.store(),
            users,
            first,
            second,
        }
    }

    /// Describes what the updates of the test below change, without the numbers of the accounts.
    async fn state(&self) -> Vec<String> {
        let mut state = Vec::new();
        for account in [self.first, self.second] {
            let row = self.store.account_get(account).await.unwrap();
            let ids = self.users.external_ids(account).await.unwrap().len();
            let stars = self.store.change_list_starred(account).await.unwrap();
            state.push(format!(
                "active: {:?}, {ids} external IDs, {} stars",
                row.map(|row| row.active),
                stars.len()
            ));
        }
        state
    }

    /// Describes the same after an update was killed. Its commit may be on its way to the disk, and end between two reads.
    async fn settled_state(&self) -> Vec<String> {
        let mut state = self.state().await;
        loop {
            let again = self.state().await;
            if again == state {
                return state;
            }
            state = again;
        }
    }

    async fn update(&self, which: &str) -> Result<(), AccountsError> {
        let (users, by, account) = (&self.users, by_ops(), self.first);
        match which {
            "link" => {
                let key = format!("github:{account}").parse().unwrap();
                users.link(&by, account, &key, None).await
            }
            "deactivate" => users.set_active(&by, account, false).await,
            "star" => {
                let star = LabelChanges {
                    add: BTreeSet::from(["star".to_owned()]),
                    ..LabelChanges::default()
                };
                let change = ChangeNumber::new(1).unwrap();
                let labels = users.change_labels(&by, account, change, &star);
                labels.await.map(drop)
            }
            "merge" => users.merge(&by, account, self.second).await,
            "delete" => users.delete(&by, account).await,
            other => panic!("there is no update {other}"),
        }
    }
}

/// Kills updates of each kind at so many points. Returns how often one was killed.
async fn updates(db: &TestDb, kills: usize) -> usize {
    open_pull(db.store(), 1).await;
    let mut killed_of_all = 0;
    for which in ["link", "deactivate", "star", "merge", "delete"] {
        let prepared = async |name: &str| {
            let pair = Pair::new(db, &format!("{which}{name}")).await;
            match which {
                "merge" => pair.update("star").await.unwrap(),
                "delete" => pair.update("deactivate").await.unwrap(),
                _ => {}
            }
            pair
        };
        let pair = prepared("0").await;
        let before = pair.state().await;
        let (ended, all) = killed_after(usize::MAX, pair.update(which)).await;
        ended.unwrap().unwrap();
        let after = pair.state().await;
        assert_ne!(before, after, "{which}");
        let mut killed = 0;
        // On a busy machine the database may have answered before an update looks, so that it hardly waits. Two points are
        // there all the same.
        let points = (0..=all).step_by(all / kills + 1).chain([0]);
        for (point, wakes) in points.enumerate() {
            // An update does not wait equally often each time, so one that ended may have to be tried again.
            for attempt in 0..ATTEMPTS {
                let pair = prepared(&format!("p{point}x{attempt}")).await;
                let (ended, _) = killed_after(wakes, pair.update(which)).await;
                let state = pair.settled_state().await;
                let Some(ended) = ended else {
                    killed += 1;
                    assert!(
                        state == before || state == after,
                        "{which}, {wakes}: {state:?}"
                    );
                    break;
                };
                ended.unwrap();
                assert_eq!(state, after, "{which}");
                if killed > 1 {
                    break;
                }
            }
        }
        assert!(killed > 1, "{which}: {killed} of {all} killed");
        killed_of_all += killed;
    }
    assert_sound(db);
    killed_of_all
}
