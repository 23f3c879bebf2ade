//! Creates, moves and deletes applications and credentials, with automatic claims and the collector: all of it at
//! once, by a schedule that follows from a seed.
//!
//! The seed fixes the rounds, and for each round the steps, their teams and repositories, and the existing objects
//! that they concern. The steps of one round are started in the order of the schedule, on two stores in turn, before
//! any of them has ended. The database decides which of them comes first, so a seed that failed once may need several
//! tries to fail again. After each round, with nothing in progress, all objects are counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockkeeper::claims::{application_add, application_change, application_remove, collect};
use lockkeeper::credential::{CredentialKind, PublicParts};
use lockkeeper::model::{
    ApplicationChange, ApplicationFields, ApplicationId, CredentialId, ForgeHosts, OwnerId,
    OwnerName, RepoUrl, Rights,
};
use lockkeeper::seal::SealedText;
use lockkeeper::store::{CreateOwner, NewCredential, Store};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::support::db::{TestDb, by, store_test};

store_test!(whatever_happens_at_once_no_claim_or_reference_is_left_over);

const SEEDS: u64 = 12;
const ROUNDS: usize = 20;
/// Maximum number of concurrent steps.
const MOST: usize = 8;
const TEAMS: [&str; 3] = ["net", "dns", "web"];
const REPOS: [&str; 4] = [
    "https://github.com/acme/infra",
    "https://github.com/acme/dns",
    "https://github.com/acme/web",
    "https://git.example.org/a/b",
];
const DIRS: [&str; 3] = ["a", "b", "c"];

/// Kind of object that refers to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Application,
    Credential,
}

/// A step of the schedule. Numbers are taken modulo the number of existing objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create {
        what: What,
        team: usize,
        repo: usize,
        dir: usize,
    },
    Move {
        what: What,
        which: usize,
        repo: usize,
        dir: usize,
    },
    Delete {
        what: What,
        which: usize,
    },
    /// A claim to which nothing refers yet.
    Claim {
        team: usize,
        repo: usize,
    },
    Collect,
}

/// Returns the steps of each round, from the seed alone. With every other seed, every claim gets a reference at once,
/// so the collector never finds anything.
fn schedule(seed: u64) -> Vec<Vec<Step>> {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut step = || {
        let what = if dice.random_bool(0.5) {
            What::Application
        } else {
            What::Credential
        };
        let (team, repo) = (
            dice.random_range(0..TEAMS.len()),
            dice.random_range(0..REPOS.len()),
        );
        let (dir, which) = (dice.random_range(0..DIRS.len()), dice.random_range(0..1000));
        match dice.random_range(0..10) {
            0..3 => Step::Create {
                what,
                team,
                repo,
                dir,
            },
            3..6 => Step::Move {
                what,
                which,
                repo,
                dir,
            },
            6..8 => Step::Delete { what, which },
            8 if is_bare(seed) => Step::Claim { team, repo },
            _ => Step::Collect,
        }
    };
    (0..ROUNDS)
        .map(|round| (0..2 + round % (MOST - 1)).map(|_| step()).collect())
        .collect()
}

fn is_bare(seed: u64) -> bool {
    seed % 2 == 1
}

/// Objects that exist when a round begins, in an order that does not depend on identifiers.
struct There {
    applications: Vec<ApplicationId>,
    credentials: Vec<NewCredential>,
}

impl There {
    async fn of(store: &Store) -> Self {
        let mut applications = store.application_list(None, None, 1000).await.unwrap();
        applications.sort_by_key(|app| (app.spec.url.to_string(), app.spec.dir.to_string()));
        let mut credentials = Vec::new();
        for row in store.credential_list(None, None, None, 1000).await.unwrap() {
            credentials.push(credential(row.id, row.owner, row.url));
        }
        Self {
            applications: applications.into_iter().map(|app| app.id).collect(),
            credentials,
        }
    }
}

fn pick<T: Clone>(all: &[T], which: usize) -> Option<T> {
    all.get(which % all.len().max(1)).cloned()
}

fn url(text: &str) -> RepoUrl {
    RepoUrl::parse(text).unwrap()
}

/// Returns a credential. The tests never decrypt it.
fn credential(id: CredentialId, owner: OwnerId, url: RepoUrl) -> NewCredential {
    let (user, app_id, installation, algorithm) = (None, None, None, None);
    let public = PublicParts {
        fingerprint: "1f2e3d4c".to_owned(),
        user,
        app_id,
        installation,
        algorithm,
    };
    let sealed = SealedText {
        key: "a".parse().unwrap(),
        bytes: vec![1, 2, 3],
    };
    NewCredential {
        id,
        owner,
        url,
        kind: CredentialKind::Token,
        public,
        sealed,
    }
}

async fn take(
    store: &Store,
    step: Step,
    owners: &[(OwnerId, OwnerName)],
    there: &There,
    new: CredentialId,
) {
    match step {
        Step::Create {
            what: What::Application,
            team,
            repo,
            dir,
        } => {
            let fields = ApplicationFields {
                url: Some(REPOS[repo]),
                branch: Some("main"),
                dir: Some(DIRS[dir]),
                ..ApplicationFields::default()
            };
            let spec = fields.spec(&ForgeHosts::public()).unwrap();
            let _saved = application_add(store, &owners[team].1, &spec, (Rights::Whole, by()))
                .await
                .unwrap();
        }
        Step::Create {
            what: What::Credential,
            team,
            repo,
            ..
        } => {
            let new = credential(new, owners[team].0, url(REPOS[repo]));
            let _kept = store
                .credential_create(&new, (Rights::Whole, by()))
                .await
                .unwrap();
        }
        Step::Move {
            what: What::Application,
            which,
            repo,
            dir,
        } => {
            let Some(id) = pick(&there.applications, which) else {
                return;
            };
            let (url, dir) = (Some(url(REPOS[repo])), Some(DIRS[dir].parse().unwrap()));
            let change = ApplicationChange {
                url,
                dir,
                ..ApplicationChange::default()
            };
            let _saved = application_change(store, id, &change, (Rights::Whole, by()))
                .await
                .unwrap();
        }
        Step::Move {
            what: What::Credential,
            which,
            repo,
            ..
        } => {
            let Some(old) = pick(&there.credentials, which) else {
                return;
            };
            let Some(kept) = store.credential_sealed(old.id).await.unwrap() else {
                return;
            };
            let new = NewCredential {
                url: url(REPOS[repo]),
                ..old
            };
            let _kept = store
                .credential_change(&new, kept.updated_at, (Rights::Whole, by()))
                .await
                .unwrap();
        }
        Step::Delete {
            what: What::Application,
            which,
        } => {
            let Some(id) = pick(&there.applications, which) else {
                return;
            };
            let _gone = application_remove(store, id, by()).await.unwrap();
        }
        Step::Delete {
            what: What::Credential,
            which,
        } => {
            let Some(old) = pick(&there.credentials, which) else {
                return;
            };
            store.credential_remove(old.id, by()).await.unwrap();
        }
        Step::Claim { team, repo } => drop(
            store
                .claim_acquire(owners[team].0, &url(REPOS[repo]), by())
                .await
                .unwrap(),
        ),
        Step::Collect => drop(collect(store).await.unwrap()),
    }
}

async fn whatever_happens_at_once_no_claim_or_reference_is_left_over(db: &TestDb) {
    let stores = [db.store().clone(), db.reopen().await];
    let mut owners = Vec::new();
    for team in TEAMS {
        let CreateOwner::Created(owner) = db
            .store()
            .owner_create(&team.parse().unwrap(), by())
            .await
            .unwrap()
        else {
            panic!("{team} is there")
        };
        owners.push((owner.id, owner.name));
    }
    let owners = Arc::new(owners);
    for seed in 0..SEEDS {
        for (number, round) in schedule(seed).into_iter().enumerate() {
            let there = Arc::new(There::of(db.store()).await);
            let mut steps = JoinSet::new();
            for (turn, step) in round.iter().copied().enumerate() {
                let (store, owners, there) = (
                    stores[turn % 2].clone(),
                    Arc::clone(&owners),
                    Arc::clone(&there),
                );
                let new = CredentialId::next(&*db.ids);
                steps.spawn(async move { take(&store, step, &owners, &there, new).await });
            }
            while let Some(ended) = steps.join_next().await {
                ended.unwrap_or_else(|error| {
                    panic!("seed {seed}, round {number}, {round:?}: {error}")
                });
            }
            look(
                db.store(),
                is_bare(seed),
                &format!("seed {seed}, round {number}: {round:?}"),
            )
            .await;
        }
    }
}

/// Checks that every object has a claim of its owner, and that no other claims exist after one round of the
/// collector.
async fn look(store: &Store, is_bare: bool, when: &str) {
    let unused = store.claim_list_unused(100).await.unwrap();
    assert!(
        is_bare || unused.is_empty(),
        "{when}: {unused:?} were left over"
    );
    let mut expected: BTreeMap<(String, String), (i64, i64)> = BTreeMap::new();
    for app in store.application_list(None, None, 1000).await.unwrap() {
        expected
            .entry((app.spec.url.to_string(), app.owner.to_string()))
            .or_default()
            .0 += 1;
    }
    for row in store.credential_list(None, None, None, 1000).await.unwrap() {
        expected
            .entry((row.url.to_string(), row.owner_name.to_string()))
            .or_default()
            .1 += 1;
    }
    let claims = store.claim_list(None, None, 1000).await.unwrap();
    let found = claims.into_iter().map(|it| {
        (
            (it.url.to_string(), it.owner.to_string()),
            (it.applications, it.credentials),
        )
    });
    let (used, bare): (BTreeMap<_, _>, BTreeMap<_, _>) =
        found.partition(|(_, count)| *count != (0, 0));
    assert_eq!(
        expected, used,
        "{when}: what is there, and the claims it refers to"
    );
    assert_eq!(bare.len(), unused.len(), "{when}");
    if !bare.is_empty() {
        assert_eq!(
            collect(store).await.unwrap().removed,
            bare.len() as u64,
            "{when}"
        );
    }
}

#[test]
fn a_schedule_follows_from_its_seed_and_has_everything_in_it() {
    assert_eq!(schedule(7), schedule(7));
    assert_ne!(schedule(7), schedule(9));
    let all: Vec<Step> = (0..SEEDS).flat_map(schedule).flatten().collect();
    for what in [What::Application, What::Credential] {
        let of = |matches: fn(&Step) -> Option<What>| {
            all.iter()
                .filter(|step| matches(step) == Some(what))
                .count()
        };
        let created = of(|step| {
            if let Step::Create { what, .. } = step {
                Some(*what)
            } else {
                None
            }
        });
        let moved = of(|step| {
            if let Step::Move { what, .. } = step {
                Some(*what)
            } else {
                None
            }
        });
        let deleted = of(|step| {
            if let Step::Delete { what, .. } = step {
                Some(*what)
            } else {
                None
            }
        });
        assert!(
            created > 100 && moved > 100 && deleted > 80,
            "{what:?}: {created} {moved} {deleted}"
        );
    }
    assert!(
        all.contains(&Step::Collect) && all.iter().any(|step| matches!(step, Step::Claim { .. }))
    );
}
