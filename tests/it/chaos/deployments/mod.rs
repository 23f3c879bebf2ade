//! Deployments with registries that exchange their versions while everything goes wrong (R1 to R5).
//!
//! Two or three deployments, each with its own database, log and key, and with servers as real processes; the first one on
//! PostgreSQL has two. They have joined over wires that are cut, slow or silent. Clients publish the same versions at
//! several of them, deprecate them, take them down and read them, and servers are killed and paused, also in the middle of a
//! publication, a takedown, a merge and a fetch. One deployment has its packages in an object store that fails, lies and
//! loses what it has confirmed. A hostile deployment with a key of its own has joined the first one, lies, and floods it with
//! pushes.
//!
//! Every answer is compared with all earlier ones ([`book`]). When a round is over, all faults end. As soon as all logs and
//! packages are everywhere, [`checks`] looks whether all honest deployments are equal and intact.

mod book;
mod checks;
mod clients;
mod driver;
mod fills;
mod hostile;
mod schedule;
mod world;

use std::collections::BTreeMap;
use std::time::Instant;

use super::options::Options;
use crate::support::db::{Backend, tell};
use hostile::{HostilePush, Lie};
use world::RegistryWorld;

#[test]
fn versions_are_exchanged_on_sqlite() {
    tell(Box::pin(run(Backend::Sqlite)));
}

#[test]
fn versions_are_exchanged_on_postgres() {
    tell(Box::pin(run(Backend::Postgres)));
}

async fn run(backend: Backend) {
    let options = super::options();
    if !options.wants(backend) {
        return;
    }
    let (begun, mut counts, mut failed) = (Instant::now(), BTreeMap::new(), Vec::new());
    for number in (options.world..).take(usize::try_from(options.worlds).unwrap_or(usize::MAX)) {
        if begun.elapsed() > options.time {
            break;
        }
        let world = Box::pin(RegistryWorld::begin(backend, &options, number)).await;
        for round in 0..options.rounds_of_deployments() {
            if round > 0 && begun.elapsed() > options.time {
                break;
            }
            // Each database begins with another lie, and each world where the one before has ended.
            let turn = number * options.rounds_of_deployments() + round;
            let turn = turn + u64::from(backend == Backend::Postgres);
            let lie = Lie::ALL[usize::try_from(turn).expect("a small number") % Lie::ALL.len()];
            world.say(&format!("round {round}"));
            let acts = schedule::round(&options, backend, number, round);
            Box::pin(world.play(round, acts, lie)).await;
            world.count("rounds");
            if world.broken_count() > 0 {
                break;
            }
        }
        if world.broken_count() == 0 {
            world.end().await;
        }
        for (what, count) in world.counts() {
            *counts.entry(what).or_default() += count;
        }
        if world.broken_count() > 0 {
            let traces = world.keep_traces().await;
            world.say(&format!("traces are in {}", traces.display()));
            failed.push(options.again(backend, number));
        }
    }
    print(backend, &options, &counts);
    assert_eq!(
        failed, [""; 0],
        "promises were broken; what was broken is said above"
    );
    // A promise that nothing could break was not tested.
    for what in [
        "published",
        "taken down",
        "packages read",
        "takedowns read",
        "lists read",
        "records looked up",
        "killed in a change",
        "killed in a merge",
        "killed in a fill",
        "servers paused",
        "wires in trouble",
        "stores that failed",
        "stores that lied",
        "stores that lost packages",
        "versions fetched once",
    ] {
        assert!(counts.contains_key(what), "there are no {what}");
    }
    let pushes = HostilePush::ALL.into_iter();
    for push in pushes.filter(|push| push.is_always_there()) {
        let what = push.counted_as();
        assert!(counts.contains_key(what), "there are no {what}");
    }
    assert!(
        !options.patient || counts.contains_key("floods that were limited"),
        "no flood was limited"
    );
    // None of them is harmless: each one has an error, a state or a counter of its own at the deployment that reads it.
    let lies = Lie::ALL.map(|lie| lie.counted_as().map(|name| counts.get(name)));
    let told = lies.iter().filter(|[told, _]| told.is_some());
    assert!(told.count() > 0, "there are no lies");
    for [told, noticed] in lies {
        assert_eq!(told, noticed, "a lie was not noticed: {counts:?}");
    }
}

#[expect(clippy::print_stdout, reason = "the report of a long run")]
fn print(backend: Backend, options: &Options, counts: &BTreeMap<&'static str, usize>) {
    let database = super::options::name(backend);
    println!("deployments on {database}, seed {}", options.seed);
    for (what, count) in counts {
        println!("  {what}: {count}");
    }
}
