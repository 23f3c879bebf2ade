//! What happens in a round, and when: made from the seed alone, before the round begins.
//!
//! People and faults are drawn independently, so that every fault meets everything people do. Whom an action concerns
//! (the third pull, the second lock) is drawn as a number and looked up when its time comes.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::options::Options;
use crate::support::db::Backend;

/// How many projects the repository has; few, so that pulls meet each other.
pub const PROJECTS: usize = 10;

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Somebody opens a pull that changes these projects.
    Open(Vec<Edit>),
    /// Somebody pushes to a pull.
    Push(usize, Vec<Edit>),
    /// Somebody throws the commits of a pull away and pushes others.
    ForcePush(usize, Vec<Edit>),
    /// Somebody pushes to a branch that no pull comes from.
    Branch(usize),
    /// Somebody deletes such a branch.
    DropBranch(usize),
    /// Somebody comments on a pull.
    Comment(usize, String),
    /// A pull is closed.
    Close(usize),
    /// A closed pull is opened again.
    Reopen(usize),
    /// A pull is merged.
    Merge(usize),
    /// The repository gets another name.
    Rename,
    /// The other repository is deleted, with a pull that holds a lock.
    Delete,
    /// Somebody gives a lock back through the API of a server.
    Discard(usize, usize),
    /// Somebody releases a lock through the API of a server, also while something is under way under it.
    Release(usize, usize),
    /// Somebody hands a lock over to a pull that waits for it.
    HandOver(usize, usize),
    /// Applies are stopped through a server, and allowed again after a while.
    StopApplies(usize, Duration),
    /// Something goes wrong.
    Fault(Fault),
}

/// What a push does to a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Its number.
    pub project: usize,
    /// What the stand-in for Terraform is to do.
    pub order: &'static str,
}

/// Something that goes wrong, for a while where there is a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL, and a new process after a while.
    Kill(usize, Duration),
    /// SIGTERM, and a new process at once.
    Restart(usize),
    /// SIGSTOP, and SIGCONT after a while.
    Pause(usize, Duration),
    /// The way of a server to its database or to GitHub is in trouble.
    Wire(End, usize, Trouble, Duration),
    /// Somebody else (a backup) holds SQLite's write lock.
    HoldDatabase(Duration),
    /// GitHub has a bad moment on a route, so many times.
    GitHub(&'static str, u32, BadMoment),
    /// Plan files cannot be written or read.
    PlansAway(Duration),
    /// A server cannot write a single byte to any file, nor can what it starts.
    DiskFull(usize, Duration),
    /// GitHub's git has a bad moment, so many times.
    Git(GitMoment, u32),
    /// A server finds its mirror damaged.
    Damage(usize, Damage),
    /// SIGKILL or SIGSTOP while mirrors are being brought in step, and a new process or SIGCONT after a while.
    InSync(usize, Halt, Duration),
}

/// What GitHub answers to git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitMoment {
    /// 401.
    Unauthorized,
    /// 404.
    NotFound,
    /// 503.
    Unavailable,
    /// Drops the connection.
    Dropped,
    /// Nothing at all.
    Silent,
}

/// What is wrong with a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Its objects are gone.
    Objects,
    /// The file of its references holds something else.
    Refs,
    /// Its configuration cannot be read.
    Config,
    /// `HEAD` is empty.
    Head,
    /// Lock files and half a clone of somebody who was killed lie around.
    Leftovers,
}

/// How a server is halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Pause,
}

/// Where a wire of a server leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The database.
    Database,
    /// GitHub: its API and git.
    GitHub,
}

/// What is wrong with a wire.
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
    /// Everything takes longer.
    Slow(Duration),
    /// Connections on which a comment is posted or a status set are cut, and the request arrives so much later.
    Late(Duration),
}

/// What GitHub does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMoment {
    /// 502.
    BadGateway,
    /// Does what was asked, and the answer is lost.
    LoseAnswer,
    /// Drops the connection.
    DropConnection,
    /// 404.
    NotFound,
    /// The secondary rate limit, for a second.
    Limited,
}

/// A round: what happens, and when after its beginning, in this order.
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
    // In every round something happens to mirrors.
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
    // What is planned since the last round was healed: later on little is for long enough.
    for _ in 0..if round == 0 { 0 } else { 4 } {
        let some = rng.random_range(0..1000);
        acts.push((
            within(&mut rng, BEGINNING),
            Act::Comment(some, "lockkeeper apply".to_owned()),
        ));
    }
    // However short a run is, it meets these.
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

/// A source of chance that depends on these numbers only.
pub fn rng(seed: u64, world: u64, round: u64) -> StdRng {
    let mut bytes = [0; 32];
    for (place, number) in bytes.chunks_exact_mut(8).zip([seed, world, round, 0x10c4]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    StdRng::from_seed(bytes)
}

/// When people come back to what they have left.
const BEGINNING: Duration = Duration::from_secs(2);
/// Numbers of servers are drawn from these, and taken modulo how many there are.
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
        // Somebody applies it again.
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
        _ => Act::Comment(some, words(rng)),
    }
}

/// Commands, and some words that are none.
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
