//! Tests of finding locks by name.

use lockkeeper::model::{LockName, ProjectKey, PullRef, PullState, Subject};

use super::samples::{URL, named, open_pull, project, taken};
use crate::support::db::{TestDb, store_test};

store_test!(
    a_name_finds_the_locks_it_fits_on_every_host,
    a_name_finds_its_lock_among_many
);

async fn names(db: &TestDb, name: &str) -> Vec<String> {
    let found = db
        .store()
        .lock_list_named(&LockName::new(name).unwrap())
        .await
        .unwrap();
    found
        .iter()
        .map(|lock| format!("{}: {}", lock.key.repo.host(), lock.key))
        .collect()
}

async fn take_on(db: &TestDb, repo: &str, project: &ProjectKey) {
    let pull = PullRef {
        repo: repo.parse().unwrap(),
        subject: Subject::pull(1),
    };
    db.store()
        .pull_seen(&pull, PullState::Open, URL)
        .await
        .unwrap();
    taken(db.store(), &pull, project).await;
}

async fn a_name_finds_the_locks_it_fits_on_every_host(db: &TestDb) {
    take_on(db, "github.com/acme/infra", &named("net/eu", "eu")).await;
    take_on(db, "git.example.com/acme/infra", &project("net/eu")).await;
    take_on(db, "git.example.com/acme/infra/net", &project("eu")).await;
    take_on(db, "github.com/acme/infra-2", &project("net/eu")).await;
    let both = [
        "git.example.com: acme/infra/net/eu/default",
        "git.example.com: acme/infra/net/eu/default",
        "github.com: acme/infra/net/eu/default",
    ];
    assert_eq!(names(db, "Acme/infra/net/eu/default").await, both);
    assert_eq!(
        names(db, "acme/infra/net/eu/default/eu").await,
        ["github.com: acme/infra/net/eu/default"]
    );
    assert_eq!(
        names(db, "github.com/acme/infra/net/eu/default/").await,
        ["github.com: acme/infra/net/eu/default"]
    );
    assert_eq!(
        names(db, "acme/infra/net/us/default").await,
        Vec::<String>::new()
    );
}

async fn a_name_finds_its_lock_among_many(db: &TestDb) {
    let pull = open_pull(db.store(), 1).await;
    for n in 0..50 {
        taken(db.store(), &pull, &project(&format!("d{n}"))).await;
    }
    assert_eq!(
        names(db, "acme/infra/d17/default").await,
        ["github.com: acme/infra/d17/default"]
    );
}
