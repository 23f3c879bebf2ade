//! Breaks everything at once, and checks that the promises are kept (P1 to P7).
//!
//! Servers as real processes (one on SQLite, three on PostgreSQL), an emulated GitHub, people who comment, push,
//! force, close and merge on projects that overlap, and faults in between: servers are killed, paused and restarted,
//! also in the middle of a sync of a mirror, wires to the database and to GitHub are cut, disks are full, plan files
//! are away, mirrors are damaged, GitHub's git refuses or answers nothing, deliveries come late, twice, out of order
//! or never. The repository is renamed, another one is deleted, and clocks of servers are a minute ahead or behind.
//! When a round is over, all faults end. As soon as no work is left, [`checks`] checks from outside whether every
//! promise was kept. In the end every pull request is closed, and no disk may have any file of one that is known to
//! be closed.
//!
//! The seed decides the actions and faults, but not how they meet the work of the servers. A world that is played
//! again may therefore need several tries to fail again. A world is several rounds with the same servers. A short run
//! is part of the tests; `make chaos ARGS="--seconds 600 --seed 7"` is a long one. Traces of a world that failed are
//! kept under `target/tmp`.

mod api;
mod checks;
mod database_view;
mod deployments;
mod driver;
mod kills;
mod ledger;
mod mirrors;
mod options;
mod post;
mod proxy;
mod races;
mod schedule;
mod skewed;
mod world;

use std::collections::BTreeMap;
use std::time::Instant;

use crate::support::db::{Backend, tell};
use options::Options;
use world::World;

#[test]
fn promises_are_kept_on_sqlite() {
    tell(run(Backend::Sqlite));
}

#[test]
fn promises_are_kept_by_three_servers_on_postgres() {
    tell(run(Backend::Postgres));
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only way to hand something to a test"
)]
fn options() -> Options {
    std::env::var("LOCKKEEPER_CHAOS")
        .map_or_else(|_| Options::short(), |text| Options::parse(&text))
}

async fn run(backend: Backend) {
    let options = options();
    if !options.wants(backend) {
        return;
    }
    let (begun, mut totals, mut failed) = (Instant::now(), Totals::default(), Vec::new());
    for number in (options.world..).take(usize::try_from(options.worlds).unwrap_or(usize::MAX)) {
        if begun.elapsed() > options.time {
            break;
        }
        if !one_world(backend, &options, number, begun, &mut totals).await {
            failed.push(options.again(backend, number));
        }
    }
    totals.print(backend, &options, begun);
    assert_eq!(
        failed, [""; 0],
        "promises were broken; what was broken is said above"
    );
    totals.assert_met();
}

/// Plays the rounds of a world. Returns `false` if a promise was broken.
async fn one_world(
    backend: Backend,
    options: &Options,
    number: u64,
    begun: Instant,
    totals: &mut Totals,
) -> bool {
    let world = World::begin(backend, options, number).await;
    for round in 0..options.rounds {
        if round > 0 && begun.elapsed() > options.time {
            break;
        }
        world.say(&format!("round {round}"));
        world
            .play(schedule::round(options, backend, number, round))
            .await;
        totals.rounds += 1;
        if !world.record().broken.is_empty() {
            break;
        }
    }
    if world.record().broken.is_empty() {
        world.end().await;
    }
    totals.add(&world).await;
    let broken = world.record().broken.clone();
    if broken.is_empty() {
        return true;
    }
    let traces = world.keep_traces().await;
    world.say(&format!(
        "{} promises were broken; traces are in {}",
        broken.len(),
        traces.display()
    ));
    world.say(&format!(
        "to play it again: {}",
        options.again(backend, number)
    ));
    false
}

/// Number of rounds after which something must have been applied.
const ROUNDS_WITH_APPLIES: u64 = 4;

/// Summary of a run.
#[derive(Default)]
struct Totals {
    rounds: u64,
    counts: BTreeMap<String, usize>,
}

impl Totals {
    async fn add(&mut self, world: &World) {
        let mut add =
            |what: &str, count: usize| *self.counts.entry(what.to_owned()).or_default() += count;
        for (what, count) in &world.record().counts {
            add(what, *count);
        }
        let sql = "SELECT kind, CAST(COUNT(*) AS TEXT) FROM commands GROUP BY kind";
        for row in world.look.rows(sql).await {
            add(&format!("command {}", row[0]), row[1].parse().unwrap_or(0));
        }
        let ledger = ledger::read(&world.ledger());
        add(
            "applies begun",
            ledger.values().map(|applied| applied.begun).sum(),
        );
        add(
            "applies ended",
            ledger.values().map(|applied| applied.ended).sum(),
        );
        let letters = world.post.all();
        add("deliveries", letters.len());
        add(
            "deliveries lost",
            letters.iter().filter(|letter| letter.lost).count(),
        );
        add(
            "deliveries taken twice or more",
            letters.iter().filter(|letter| letter.accepted > 1).count(),
        );
        add(
            "deliveries not taken at once",
            letters
                .iter()
                .filter(|letter| !letter.trouble.is_empty())
                .count(),
        );
    }

    /// Checks that certain faults were part of every world: a promise that nothing could break was not tested.
    fn assert_met(&self) {
        for what in [
            "killed in a sync",
            "paused in a sync",
            "repositories renamed",
            "repositories deleted",
        ] {
            assert!(self.rounds == 0 || self.has(what), "there are no {what}");
        }
        assert!(
            self.rounds < ROUNDS_WITH_APPLIES || self.has("applies ended"),
            "nothing was applied"
        );
    }

    fn has(&self, what: &str) -> bool {
        self.counts.get(what).is_some_and(|count| *count > 0)
    }

    #[expect(
        clippy::print_stdout,
        reason = "whoever runs it for hours wants to know what came of it"
    )]
    fn print(&self, backend: Backend, options: &Options, begun: Instant) {
        let (database, time) = (options::name(backend), begun.elapsed().as_secs());
        println!(
            "{database} seed {}: {} rounds in {time} s",
            options.seed, self.rounds
        );
        for (what, count) in &self.counts {
            println!("  {what}: {count}");
        }
    }
}
