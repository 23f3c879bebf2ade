//! Decides the actions and faults of a round and their times, from the seed alone and before the round begins.
//!
//! People and faults are drawn independently, so that every fault meets every action. The target of an action (the
//! third pull request, the second lock) is drawn as a number and looked up when its time comes.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::options::Options;
use crate::support::db::Backend;

/// Number of projects in the repository. It is small, so that pull requests conflict.
pub const PROJECTS: usize = 10;

/// An action or a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Opens a pull request that changes these projects.
    Open(Vec<Edit>),
    /// Pushes to a pull request.
    Push(usize, Vec<Edit>),
    /// Discards the commits of a pull request and pushes others.
    ForcePush(usize, Vec<Edit>),
    /// Pushes to a branch that belongs to no pull request.
    Branch(usize),
    /// Deletes a branch that belongs to no pull request.
    DropBranch(usize),
    /// Comments on a pull request.
    Comment(usize, String),
    /// Closes a pull request.
    Close(usize),
    /// Reopens a closed pull request.
    Reopen(usize),
    /// Merges a pull request.
    Merge(usize),
    /// Gives the repository its other name.
    Rename,
    /// Deletes the other repository, with a pull request that holds a lock.
    Delete,
    /// Discards a lock through the API of a server.
    Discard(usize, usize),
    /// Releases a lock through the API of a server, even while work under the lock goes on.
    Release(usize, usize),
    /// Hands a lock over to a pull request that is queued for it.
    HandOver(usize, usize),
    /// Stops applies through a server, and allows them again after this time.
    StopApplies(usize, Duration),
    /// Changes an account through a server.
    Account(usize, usize),
    /// Begins a fault of this kind.
    Fault(Fault),
}

/// Change of a project in a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Number of the project.
    pub project: usize,
    /// Order for the fake Terraform.
    pub order: &'static str,
}

/// A fault. If it has a duration, it ends after this time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Kills a server with SIGKILL. A new process starts after this time.
    Kill(usize, Duration),
    /// Stops a server with SIGTERM. A new process starts at once.
    Restart(usize),
    /// Pauses a server with SIGSTOP, and continues it with SIGCONT after this time.
    Pause(usize, Duration),
    /// Disturbs the connection of a server to its database or to GitHub.
    Wire(End, usize, Trouble, Duration),
    /// Holds SQLite's write lock, as a backup does.
    HoldDatabase(Duration),
    /// Makes GitHub fail on a route, this many times.
    GitHub(&'static str, u32, BadMoment),
    /// Makes plan files impossible to write or read.
    PlansAway(Duration),
    /// Keeps a server and its children from writing a single byte to any file.
    DiskFull(usize, Duration),
    /// Makes GitHub's git fail, this many times.
    Git(GitMoment, u32),
    /// Damages the mirror of a server.
    Damage(usize, Damage),
    /// Halts a server with SIGKILL or SIGSTOP during a sync of mirrors. After this time, a new process starts or
    /// SIGCONT follows.
    InSync(usize, Halt, Duration),
}

/// Fault of GitHub's answers to git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitMoment {
    /// Answer with status 401.
    Unauthorized,
    /// Answer with status 404.
    NotFound,
    /// Answer with status 503.
    Unavailable,
    /// A connection that is dropped.
    Dropped,
    /// No answer at all.
    Silent,
}

/// Damage of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The objects of the mirror are gone.
    Objects,
    /// The file of packed references has other content.
    Refs,
    /// The configuration of the mirror cannot be read.
    Config,
    /// `HEAD` is empty.
    Head,
    /// Lock files and half a clone of a killed process are left over.
    Leftovers,
}

/// Way to halt a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    Kill,
    Pause,
}

/// Destination of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Database,
    /// API and git of GitHub.
    GitHub,
}

/// Fault of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Connections are cut and no new ones taken.
    Refused,
    /// Connections are cut once; new ones are fine.
    Cut,
    /// Every answer is cut after this many bytes.
    CutAfter(usize),
    /// Nothing gets through, and then the connections are cut.
    Silent,
    /// Every transfer takes longer.
    Slow(Duration),
    /// Connections that post a comment or set a status are cut, and the request arrives this much later.
    Late(Duration),
}

/// Fault of GitHub's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMoment {
    /// Answer with status 502.
    BadGateway,
    /// GitHub carries out the request, and the answer is lost.
    LoseAnswer,
    /// GitHub drops the connection.
    DropConnection,
    /// Answer with status 404.
    NotFound,
    /// Secondary rate limit, for a second.
    Limited,
}

/// Returns a round: its acts in order, with their times after its beginning.
pub fn round(options: &Options, backend: Backend, world: u64, round: u64) -> Vec<(Duration, Act)> {
    let mut rng = rng(options.seed, world, round);
    let length = Duration::from_millis(300 * options.actions as u64);
    let mut acts: Vec<(Duration, Act)> = (0..options.actions)
        .map(|n| {
            (
                within(&mut rng, length),
                if round == 0 && n < 3 {
                    open(&mut rng)
                } else {
                    by_people(&mut rng)
                },
            )
        })
        .collect();
    for _ in 0..options.faults {
        acts.push((
            within(&mut rng, length),
            Act::Fault(fault(&mut rng, backend, options.patient)),
        ));
    }
    // Every round has faults of mirrors.
    for _ in 0..options.faults.div_ceil(2) {
        acts.push((
            within(&mut rng, length),
            Act::Fault(of_mirrors(&mut rng, options.patient)),
        ));
    }
    if options.patient && backend == Backend::Postgres && rng.random_ratio(1, 3) {
        let pause = Duration::from_secs(rng.random_range(62..75));
        acts.push((
            within(&mut rng, length),
            Act::Fault(Fault::Pause(rng.random_range(0..SERVERS), pause)),
        ));
    }
    if round == 0 || rng.random_ratio(1, 3) {
        acts.push((within(&mut rng, length), Act::Rename));
    }
    // Applies of the plans that were made since the last round was healed. Later in a round, few plans stay valid for
    // long enough.
    for _ in 0..if round == 0 { 0 } else { 4 } {
        let some = rng.random_range(0..1000);
        acts.push((
            within(&mut rng, BEGINNING),
            Act::Comment(some, "lockkeeper apply".to_owned()),
        ));
    }
    // Even the shortest run includes these.
    if round == 0 {
        acts.push((length / 2 + within(&mut rng, length / 2), Act::Delete));
        for halt in [Halt::Kill, Halt::Pause] {
            let (server, time) = (rng.random_range(0..SERVERS), millis(&mut rng, 0, 1000));
            acts.push((
                within(&mut rng, length),
                Act::Fault(Fault::InSync(server, halt, time)),
            ));
        }
    }
    acts.sort_by_key(|(at, _)| *at);
    acts
}

/// Returns a random number generator that depends on these numbers only.
pub fn rng(seed: u64, world: u64, round: u64) -> StdRng {
    let mut bytes = [0; 32];
    for (place, number) in bytes.chunks_exact_mut(8).zip([seed, world, round, 0x10c4]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    StdRng::from_seed(bytes)
}

/// Time at the beginning of a round when people come back to their earlier work.
const BEGINNING: Duration = Duration::from_secs(2);
/// Range from which server numbers are drawn. They are taken modulo the number of servers.
const SERVERS: usize = 3;

fn within(rng: &mut StdRng, length: Duration) -> Duration {
    Duration::from_millis(
        rng.random_range(0..u64::try_from(length.as_millis()).expect("seconds").max(1)),
    )
}

fn millis(rng: &mut StdRng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.random_range(from..to))
}

fn open(rng: &mut StdRng) -> Act {
    Act::Open(edits(rng))
}

fn edits(rng: &mut StdRng) -> Vec<Edit> {
    const ORDERS: [&str; 9] = [
        "add 1 change 0 destroy 0",
        "add 2 change 1 destroy 0",
        "add 0 change 3 destroy 1",
        "add 1 change 1 destroy 1",
        "add 4 change 0 destroy 0",
        "no changes",
        "fail plan",
        "fail apply",
        // Somebody requests this apply again.
        "fail apply once",
    ];
    let first = rng.random_range(0..PROJECTS);
    let count = if rng.random_ratio(1, 4) { 3 } else { 1 };
    (0..count)
        .map(|n| Edit {
            project: (first + n) % PROJECTS,
            order: ORDERS[rng.random_range(0..ORDERS.len())],
        })
        .collect()
}

fn by_people(rng: &mut StdRng) -> Act {
    let (some, server) = (rng.random_range(0..1000), rng.random_range(0..SERVERS));
    match rng.random_range(0..100) {
        0..14 => open(rng),
        14..20 => Act::Push(some, edits(rng)),
        20..24 => Act::ForcePush(some, edits(rng)),
        24..28 => Act::Branch(some),
        28..30 => Act::DropBranch(some),
        30..34 => Act::Close(some),
        34..37 => Act::Reopen(some),
        37..40 => Act::Merge(some),
        40 => Act::Discard(some, server),
        41 => Act::Release(some, server),
        42 => Act::HandOver(some, server),
        43..45 => Act::StopApplies(server, millis(rng, 200, 2000)),
        45..49 => Act::Account(some, server),
        _ => Act::Comment(some, words(rng)),
    }
}

/// Returns a command, or words that are not a command.
fn words(rng: &mut StdRng) -> String {
    let project = rng.random_range(0..PROJECTS);
    match rng.random_range(0..100) {
        0..22 => "lockkeeper plan".to_owned(),
        22..30 => format!("lockkeeper plan -d p{project}"),
        30..60 => "lockkeeper apply".to_owned(),
        60..72 => format!("lockkeeper apply -d p{project}"),
        72..79 => "lockkeeper unlock".to_owned(),
        79..86 => "lockkeeper help".to_owned(),
        86..92 => "lockkeeper aply".to_owned(),
        92..97 => "lockkeeper cancel".to_owned(),
        _ => "Looks good to me.".to_owned(),
    }
}

fn fault(rng: &mut StdRng, backend: Backend, patient: bool) -> Fault {
    let server = rng.random_range(0..SERVERS);
    let longest = if patient { 9000 } else { 3000 };
    let time = millis(rng, 200, longest);
    match rng.random_range(0..100) {
        0..20 => Fault::Kill(server, millis(rng, 0, 2000)),
        20..26 => Fault::Restart(server),
        26..36 => Fault::Pause(server, time),
        36..60 => match backend {
            Backend::Postgres => Fault::Wire(End::Database, server, trouble(rng), time),
            Backend::Sqlite if rng.random_bool(0.5) => {
                Fault::HoldDatabase(millis(rng, 200, longest * 3 / 2))
            }
            Backend::Sqlite => Fault::Kill(server, millis(rng, 0, 500)),
        },
        60..70 => Fault::Wire(End::GitHub, server, trouble(rng), time),
        70..75 => Fault::Wire(
            End::GitHub,
            server,
            Trouble::Late(millis(rng, 500, longest)),
            time,
        ),
        75..90 => github(rng),
        90..94 => Fault::PlansAway(time),
        _ => Fault::DiskFull(server, time),
    }
}

fn of_mirrors(rng: &mut StdRng, patient: bool) -> Fault {
    const MOMENTS: [GitMoment; 5] = [
        GitMoment::Unauthorized,
        GitMoment::NotFound,
        GitMoment::Unavailable,
        GitMoment::Dropped,
        GitMoment::Silent,
    ];
    const DAMAGES: [Damage; 5] = [
        Damage::Objects,
        Damage::Refs,
        Damage::Config,
        Damage::Head,
        Damage::Leftovers,
    ];
    let server = rng.random_range(0..SERVERS);
    match rng.random_range(0..3) {
        0 => Fault::Git(
            MOMENTS[rng.random_range(0..MOMENTS.len())],
            rng.random_range(1..4),
        ),
        1 => Fault::Damage(server, DAMAGES[rng.random_range(0..DAMAGES.len())]),
        _ => {
            let halt = if rng.random_bool(0.6) {
                Halt::Kill
            } else {
                Halt::Pause
            };
            Fault::InSync(
                server,
                halt,
                millis(rng, 0, if patient { 9000 } else { 2000 }),
            )
        }
    }
}

fn trouble(rng: &mut StdRng) -> Trouble {
    match rng.random_range(0..6) {
        0 => Trouble::Refused,
        1 => Trouble::Cut,
        2 | 3 => Trouble::CutAfter(rng.random_range(1..4000)),
        4 => Trouble::Silent,
        _ => Trouble::Slow(millis(rng, 20, 250)),
    }
}

fn github(rng: &mut StdRng) -> Fault {
    const ROUTES: [&str; 6] = [
        "POST /repos/*/*/issues/*/comments",
        "GET /repos/*/*/issues/*/comments",
        "POST /repos/*/*/statuses/*",
        "GET /repos/*/*/pulls/*",
        "GET /repos/*/*/pulls",
        "* /repos/*/*/issues/*/comments",
    ];
    let route = ROUTES[rng.random_range(0..ROUTES.len())];
    let moment = match rng.random_range(0..6) {
        0 => BadMoment::BadGateway,
        1 | 2 => BadMoment::LoseAnswer,
        3 => BadMoment::DropConnection,
        4 => BadMoment::NotFound,
        _ => BadMoment::Limited,
    };
    Fault::GitHub(route, rng.random_range(1..4), moment)
}

#[test]
fn a_round_follows_from_the_seed() {
    let options = Options::parse("--seed 5");
    let first = round(&options, Backend::Postgres, 2, 1);
    assert_eq!(first, round(&options, Backend::Postgres, 2, 1));
    assert_ne!(first, round(&options, Backend::Postgres, 2, 0));
    assert_ne!(
        first,
        round(&Options::parse("--seed 6"), Backend::Postgres, 2, 1)
    );
    assert!(first.len() >= options.actions + options.faults + options.faults.div_ceil(2));
    let faults: Vec<Act> = (0..200)
        .flat_map(|n| round(&options, Backend::Sqlite, n, 0))
        .map(|(_, act)| act)
        .collect();
    let of_mirrors = faults.iter().filter(|act| {
        matches!(
            act,
            Act::Fault(Fault::Git(..) | Fault::Damage(..) | Fault::InSync(..)) | Act::DropBranch(_)
        )
    });
    assert!(
        of_mirrors.count() > 200,
        "a schedule without trouble for mirrors proves little"
    );
}

#[test]
fn in_every_world_servers_are_killed_and_paused_in_a_sync() {
    for (world, backend) in (0..50).zip([Backend::Sqlite, Backend::Postgres].into_iter().cycle()) {
        let acts = round(&Options::short(), backend, world, 0);
        for halt in [Halt::Kill, Halt::Pause] {
            let halts =
                |act: &Act| matches!(act, Act::Fault(Fault::InSync(_, how, _)) if *how == halt);
            assert!(
                acts.iter().any(|(_, act)| halts(act)),
                "{backend:?} {world}: {halt:?}"
            );
        }
    }
}
