//! Tests that servers can be replaced one by one: those of the last recorded version work beside those of this one,
//! on one database.
//!
//! `.ci/released` has a line for each version: its number, its commit, and its last migration. From that version on,
//! a migration only adds. A later version removes what a version no longer uses, when no old server is left.

use std::path::{Path, PathBuf};

use lockkeeper::emulator::Emulator;
use lockkeeper::model::PullNumber;

use crate::e2e::world::{REPO, World, resource};
use crate::support::postgres::{Content, new_database};
use crate::support::server::{Server, Settings};

/// A version that is in use.
struct Released {
    version: String,
    last_migration: u32,
}

impl Released {
    fn newest() -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/released");
        let text = std::fs::read_to_string(file).unwrap();
        let line = text
            .lines()
            .rfind(|line| !line.starts_with('#'))
            .expect("a version is recorded");
        let [version, _commit, last] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        Self {
            version: version.to_owned(),
            last_migration: last.parse().unwrap(),
        }
    }

    /// Returns the program that `make interop` has installed.
    fn program(&self) -> PathBuf {
        let folder = std::env::var_os("LOCKKEEPER_INTEROP").expect("run `make interop`");
        Path::new(&folder).join(format!("lockkeeper-{}", self.version))
    }
}

/// Returns the parts of a migration that a server of the previous version would miss, misread, or not write.
fn taken_away(sql: &str) -> Vec<String> {
    const WORDS: [&str; 6] = [
        "DROP TABLE",
        "DROP COLUMN",
        "RENAME ",
        "ALTER COLUMN",
        "SET NOT NULL",
        "DELETE FROM",
    ];
    let is_said = |line: &&str| !line.trim_start().starts_with("--");
    let said: Vec<&str> = sql
        .lines()
        .filter(is_said)
        .flat_map(str::split_whitespace)
        .collect();
    let said = said.join(" ").to_uppercase();
    let taken = WORDS
        .into_iter()
        .filter(|words| said.contains(words))
        .map(str::to_owned);
    let demanded = |statement: &&str| {
        statement.contains("ADD COLUMN")
            && statement.contains("NOT NULL")
            && !statement.contains("DEFAULT")
    };
    taken
        .chain(
            said.split(';')
                .filter(demanded)
                .map(|statement| statement.trim().to_owned()),
        )
        .collect()
}

#[test]
fn what_a_migration_takes_away_is_found_however_it_is_written() {
    for (sql, found) in [
        ("DROP TABLE locks;", "DROP TABLE"),
        ("drop\n  table locks;", "DROP TABLE"),
        ("ALTER TABLE locks DROP COLUMN dir;", "DROP COLUMN"),
        ("ALTER TABLE locks RENAME COLUMN dir TO path;", "RENAME "),
        ("ALTER TABLE locks RENAME TO held;", "RENAME "),
        ("DELETE FROM locks WHERE dir = '';", "DELETE FROM"),
        (
            "ALTER TABLE locks ADD COLUMN x TEXT NOT NULL;",
            "ALTER TABLE LOCKS ADD COLUMN X TEXT NOT NULL",
        ),
    ] {
        assert_eq!(taken_away(sql), [found], "{sql}");
    }
    for sql in [
        "-- Nothing is to DROP TABLE here.\nCREATE TABLE marks (id BIGINT NOT NULL);",
        "ALTER TABLE locks ADD COLUMN x TEXT;\nALTER TABLE locks ADD COLUMN y BIGINT NOT NULL DEFAULT 0;",
        "CREATE INDEX locks_by_dir ON locks (dir);",
    ] {
        assert_eq!(taken_away(sql), [""; 0], "{sql}");
    }
}

#[test]
fn migrations_since_the_last_version_only_add() {
    /// Mark of a migration that removes parts which the recorded version does not use any more.
    const CONTRACTS: &str = "-- Contracts";
    let released = Released::newest();
    let mut seen = 0;
    for dialect in ["sqlite", "postgres"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("migrations")
            .join(dialect);
        for file in std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            let name = file.file_name().unwrap().to_str().unwrap();
            let number: u32 = name
                .split_once('_')
                .expect("a number stands first")
                .0
                .parse()
                .unwrap();
            seen += 1;
            let sql = std::fs::read_to_string(&file).unwrap();
            if number <= released.last_migration || sql.starts_with(CONTRACTS) {
                continue;
            }
            assert_eq!(
                taken_away(&sql),
                [""; 0],
                "{dialect}/{name}: servers of {} may still use that",
                released.version
            );
        }
    }
    assert!(seen >= 2 * 6, "{seen} migrations");
}

fn send_webhooks_to(github: &Emulator, server: &Server) {
    github.set_webhook_target(server.events().clone());
}

async fn open(world: &World, dir: &str) -> PullNumber {
    let code = world.files().backend(dir) + &resource("it", "1");
    world.open(dir, &[(&format!("{dir}/main.tf"), &code)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the version that `make interop` builds"]
async fn the_last_version_works_beside_this_one() {
    let released = Released::newest();
    let database = new_database(Content::Empty).await;
    let settings = || Settings::default().database(database.clone());
    // The old server creates the database, and the new one migrates it while the old one works.
    let mut world = World::start_with(settings().program(released.program()), |_| {
        vec![("README.md", String::new())]
    })
    .await;
    let first = open(&world, "first").await;
    world
        .answer(first)
        .await
        .is("autoplan success | first default planned");
    let mut new = Server::start(&world.github, settings().writes(world.dir.path())).await;

    send_webhooks_to(&world.github, &world.server);
    world
        .ask(first, "lockkeeper plan")
        .await
        .is("plan success | first default planned");
    send_webhooks_to(&world.github, &new);
    world
        .ask(first, "lockkeeper apply")
        .await
        .is("apply success | first default applied");
    let second = open(&world, "second").await;
    world
        .answer(second)
        .await
        .is("autoplan success | second default planned");

    // A server of the old version is started again, as after a failure of its machine in the middle of the roll-out.
    world.server.kill9().await;
    world.server.restart().await;
    send_webhooks_to(&world.github, &world.server);
    world
        .ask(second, "lockkeeper apply")
        .await
        .is("apply success | second default applied");
    world
        .github
        .merge(REPO, first, "alice")
        .await
        .expect("it is open");
    world.answer(first).await;
    send_webhooks_to(&world.github, &new);
    world.ask(second, "lockkeeper unlock").await;
    new.finish().await;
    world.finish(&[]).await;
}
