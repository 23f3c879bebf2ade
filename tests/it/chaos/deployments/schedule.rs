//! Decides the requests and faults of a round and their times, from the seed alone and before the round begins.
//!
//! Versions are few, so that publications, deprecations and takedowns of several deployments meet at the same ones. Each
//! round has names of its own, because a version that was taken down stays so. So has each fault of a store, because it
//! needs packages that nobody has seen.

use std::ops::Range;
use std::time::Duration;

use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::VersionKey;
use rand::RngExt;
use rand::rngs::StdRng;

use super::super::options::Options;
use super::super::schedule::{Halt, Trouble, rng};
use crate::support::db::Backend;
use crate::support::object_store::StoreFault;

/// Number of names of each kind in a round.
const NAMES: u64 = 2;
/// Number of versions of each name.
pub const VERSIONS: u64 = 3;
/// Number of contents of each version.
const CONTENTS: u64 = 2;
/// Number of versions at the host with repositories that the clients of a round want.
const FILLS: u64 = 4;
/// Requests of one round for each action of people in the options.
const REQUESTS: usize = 4;
/// Range from which deployments and servers are drawn. They are taken modulo their number.
const PLACES: usize = 12;
/// Range from which names and repositories are drawn that only one fault uses.
const OWN_NAMES: Range<u64> = 2_000_000..3_000_000;
/// Shortest pause of a server that costs all its leases, in any case.
pub const LONG_PAUSE: Duration = Duration::from_secs(62);
/// Faults of a store that fails, of one that lies, and of one that loses packages.
const STORE_FAILS: [StoreFault; 4] = [
    StoreFault::Away,
    StoreFault::Silent,
    StoreFault::Refuses,
    StoreFault::LosesAnswer,
];
const STORE_LIES: [StoreFault; 2] = [StoreFault::Lies, StoreFault::CutsOff];
const STORE_LOSES: [StoreFault; 1] = [StoreFault::LosesPackages];

/// A version that clients publish and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub is_go: bool,
    /// Number in the name.
    pub name: u64,
    /// Minor number of the version.
    pub version: u64,
}

impl Wanted {
    /// Returns the name with the version.
    pub fn key(self) -> VersionKey {
        let Self { name, version, .. } = self;
        let text = if self.is_go {
            format!("go example.com/acme/m{name} v1.{version}.0")
        } else {
            format!("module acme/m{name}/aws 1.{version}.0")
        };
        text.parse().expect("the name and the version are valid")
    }

    /// Returns the files of one of its contents.
    pub fn files(self, content: u64) -> Vec<(&'static str, String)> {
        let name = self.name;
        if self.is_go {
            vec![
                (
                    "go.mod",
                    format!("module example.com/acme/m{name}\n\ngo 1.24\n"),
                ),
                (
                    "m.go",
                    format!("package m{name}\n\nconst Content = {content}\n"),
                ),
            ]
        } else {
            vec![("main.tf", format!("output \"content_{content}\" {{}}\n"))]
        }
    }
}

/// Change of a version that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Publishes the version with this content.
    Publish(u64),
    Deprecate,
    TakeDown,
}

impl Change {
    /// Returns the state that the version has afterwards, or a later one.
    pub fn reached(self) -> VersionState {
        match self {
            Self::Publish(_) => VersionState::Added,
            Self::Deprecate => VersionState::Deprecated,
            Self::TakeDown => VersionState::Deleted,
        }
    }
}

/// A request or a fault. Deployments are drawn as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryAct {
    /// Changes a version at a deployment.
    Change(usize, Wanted, Change),
    /// Publishes a version at all deployments at the same moment, each with another content.
    PublishEverywhere(Wanted),
    /// Reads a version and its package, and the record that proves it.
    Read(usize, Wanted),
    /// Reads the list of the versions of a name.
    List(usize, Wanted),
    /// Reads a version that a deployment has to fetch from a host with repositories.
    Fill(usize, u64),
    /// Begins a fault of this kind.
    Fault(RegistryFault),
}

/// A fault of a server or of a wire between deployments. If it has a duration, it ends after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryFault {
    /// Kills a server with SIGKILL. A new process starts after this time.
    Kill(usize, Duration),
    /// Pauses a server with SIGSTOP, and continues it with SIGCONT after this time.
    Pause(usize, Duration),
    /// Disturbs the connections of one deployment to another.
    Wire(usize, Trouble, Duration),
    /// Kills a server so soon after the beginning of a change there.
    KillInChange(usize, Wanted, Change, Duration),
    /// Kills a server so soon after a publication at another deployment, which it merges and whose package it downloads.
    KillInMerge(usize, Wanted, Duration),
    /// Halts a server that fetches a version from the repository with this number. Clients want the version meanwhile.
    InFill(usize, u64, FillHalt),
    /// Lets the object store of a deployment fail or lie until that makes a difference, and then for this time. Packages
    /// are published under the name with this number meanwhile.
    Store(usize, StoreFault, u64, Duration),
}

/// An interruption of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillHalt {
    pub how: Halt,
    /// Time between the first request at the host and a kill.
    pub soon: Duration,
    /// Time after which a new process starts or SIGCONT follows.
    pub back: Duration,
}

/// Returns a round: its acts in order, with their times after its beginning.
pub fn round(
    options: &Options,
    backend: Backend,
    world: u64,
    round: u64,
) -> Vec<(Duration, RegistryAct)> {
    let mut rng = rng(options.seed, world, round);
    let length = Duration::from_millis(150 * options.actions as u64);
    let mut acts = Vec::new();
    for _ in 0..options.actions * REQUESTS {
        acts.push((millis(&mut rng, length), request(&mut rng, round)));
    }
    for _ in 0..options.faults {
        let fault = fault(&mut rng, round, options.patient);
        let fault = longer(&mut rng, fault, options, backend);
        acts.push((millis(&mut rng, length), RegistryAct::Fault(fault)));
    }
    // Even the shortest run includes these.
    if round == 0 {
        let (publish, take_down) = (wanted(&mut rng, 0), wanted(&mut rng, 0));
        let soon = Duration::from_millis(rng.random_range(0..40));
        for fault in [
            RegistryFault::KillInChange(rng.random_range(0..PLACES), publish, PUBLISH, soon),
            RegistryFault::KillInChange(
                rng.random_range(0..PLACES),
                take_down,
                Change::TakeDown,
                soon,
            ),
            RegistryFault::KillInMerge(
                rng.random_range(0..PLACES),
                wanted(&mut rng, 0),
                Duration::from_millis(rng.random_range(0..1200)),
            ),
            in_fill(
                &mut rng,
                FillHalt {
                    how: Halt::Kill,
                    soon,
                    back: soon,
                },
            ),
            RegistryFault::Pause(rng.random_range(0..PLACES), Duration::from_millis(700)),
            RegistryFault::Wire(
                rng.random_range(0..PLACES),
                Trouble::Refused,
                Duration::from_millis(900),
            ),
            store(&mut rng, &STORE_FAILS, Duration::from_millis(500)),
            store(&mut rng, &STORE_LIES, Duration::from_millis(500)),
            store(&mut rng, &STORE_LOSES, Duration::from_millis(500)),
        ] {
            acts.push((millis(&mut rng, length), RegistryAct::Fault(fault)));
        }
        let both = wanted(&mut rng, 0);
        acts.push((
            millis(&mut rng, length),
            RegistryAct::PublishEverywhere(both),
        ));
    }
    acts.sort_by_key(|(at, _)| *at);
    acts
}

/// Publication of the first content.
const PUBLISH: Change = Change::Publish(0);

fn millis(rng: &mut StdRng, length: Duration) -> Duration {
    let most = u64::try_from(length.as_millis()).expect("seconds").max(1);
    Duration::from_millis(rng.random_range(0..most))
}

/// Draws a version of this round, or sometimes one of an earlier round.
fn wanted(rng: &mut StdRng, round: u64) -> Wanted {
    let of_round = if rng.random_ratio(1, 6) {
        rng.random_range(0..=round)
    } else {
        round
    };
    Wanted {
        is_go: rng.random_ratio(1, 2),
        name: of_round * NAMES + rng.random_range(0..NAMES),
        version: rng.random_range(0..VERSIONS),
    }
}

fn request(rng: &mut StdRng, round: u64) -> RegistryAct {
    let (at, wanted) = (rng.random_range(0..PLACES), wanted(rng, round));
    match rng.random_range(0..100) {
        0..28 => {
            let content = rng.random_range(0..CONTENTS);
            RegistryAct::Change(at, wanted, Change::Publish(content))
        }
        28..33 => RegistryAct::PublishEverywhere(wanted),
        33..41 => RegistryAct::Change(at, wanted, Change::Deprecate),
        41..46 => RegistryAct::Change(at, wanted, Change::TakeDown),
        46..56 => RegistryAct::List(at, wanted),
        56..60 => RegistryAct::Fill(at, round * FILLS + rng.random_range(0..FILLS)),
        _ => RegistryAct::Read(at, wanted),
    }
}

fn fault(rng: &mut StdRng, round: u64, patient: bool) -> RegistryFault {
    let at = rng.random_range(0..PLACES);
    let time = Duration::from_millis(rng.random_range(200..if patient { 9000 } else { 1500 }));
    let back = Duration::from_millis(rng.random_range(0..2000));
    match rng.random_range(0..100) {
        0..13 => RegistryFault::Kill(at, back),
        13..26 => RegistryFault::Pause(at, time),
        26..37 => {
            let soon = Duration::from_millis(rng.random_range(0..60));
            let change = match rng.random_range(0..3) {
                0 => Change::Deprecate,
                1 => Change::TakeDown,
                _ => Change::Publish(rng.random_range(0..CONTENTS)),
            };
            RegistryFault::KillInChange(at, wanted(rng, round), change, soon)
        }
        37..46 => {
            let soon = Duration::from_millis(rng.random_range(0..1200));
            RegistryFault::KillInMerge(at, wanted(rng, round), soon)
        }
        46..48 => {
            let soon = Duration::from_millis(rng.random_range(0..200));
            in_fill(
                rng,
                FillHalt {
                    how: Halt::Kill,
                    soon,
                    back,
                },
            )
        }
        48..55 => store(rng, &STORE_FAILS, time),
        55..61 => store(rng, &STORE_LIES, time),
        61..64 => store(rng, &STORE_LOSES, time),
        _ => RegistryFault::Wire(at, trouble(rng), time),
    }
}

/// Lets one of six pauses be so long that others take all leases of the server, if there is time for it and another server.
/// Half of these begin in the middle of a fetch.
fn longer(
    rng: &mut StdRng,
    fault: RegistryFault,
    options: &Options,
    backend: Backend,
) -> RegistryFault {
    let is_pause = matches!(fault, RegistryFault::Pause(..));
    let has_time = options.patient && backend == Backend::Postgres;
    if !(is_pause && has_time && rng.random_ratio(1, 6)) {
        return fault;
    }
    // The first deployment has two servers.
    let some = rng.random_range(0..2_usize) * options.deployments.clamp(2, 3);
    let back = LONG_PAUSE + Duration::from_secs(rng.random_range(0..13));
    if rng.random_ratio(1, 2) {
        return RegistryFault::Pause(some, back);
    }
    let halt = FillHalt {
        how: Halt::Pause,
        soon: Duration::ZERO,
        back,
    };
    RegistryFault::InFill(some, rng.random_range(OWN_NAMES), halt)
}

/// Draws the deployment and the repository of an interrupted fetch.
fn in_fill(rng: &mut StdRng, halt: FillHalt) -> RegistryFault {
    let at = rng.random_range(0..PLACES);
    RegistryFault::InFill(at, rng.random_range(OWN_NAMES), halt)
}

/// Draws one of these faults of a store.
fn store(rng: &mut StdRng, faults: &[StoreFault], time: Duration) -> RegistryFault {
    let fault = faults[rng.random_range(0..faults.len())];
    let name = rng.random_range(OWN_NAMES);
    RegistryFault::Store(rng.random_range(0..PLACES), fault, name, time)
}

fn trouble(rng: &mut StdRng) -> Trouble {
    match rng.random_range(0..6) {
        0 => Trouble::Refused,
        1 => Trouble::Cut,
        2 | 3 => Trouble::CutAfter(rng.random_range(1..4000)),
        4 => Trouble::Silent,
        _ => Trouble::Slow(Duration::from_millis(rng.random_range(20..250))),
    }
}

#[test]
fn a_round_of_deployments_follows_from_the_seed() {
    let options = Options::parse("--seed 5");
    let postgres = Backend::Postgres;
    let first = round(&options, postgres, 2, 1);
    assert_eq!(first, round(&options, postgres, 2, 1));
    assert_ne!(first, round(&options, postgres, 2, 0));
    assert_ne!(first, round(&Options::parse("--seed 6"), postgres, 2, 1));
    for world in 0..50 {
        let acts = round(&Options::short(), postgres, world, 0);
        let in_fill =
            |act: &RegistryAct| matches!(act, RegistryAct::Fault(RegistryFault::InFill(..)));
        assert!(acts.iter().any(|(_, act)| in_fill(act)), "{world}");
        for change in [PUBLISH, Change::TakeDown] {
            let is_kill = |act: &RegistryAct| matches!(act, RegistryAct::Fault(RegistryFault::KillInChange(_, _, of, _)) if *of == change);
            assert!(
                acts.iter().any(|(_, act)| is_kill(act)),
                "{world}: {change:?}"
            );
        }
        for faults in [&STORE_FAILS[..], &STORE_LIES, &STORE_LOSES] {
            let is_one = |act: &RegistryAct| matches!(act, RegistryAct::Fault(RegistryFault::Store(_, of, ..)) if faults.contains(of));
            assert!(
                acts.iter().any(|(_, act)| is_one(act)),
                "{world}: {faults:?}"
            );
        }
    }
}

#[test]
fn only_a_patient_run_with_two_servers_has_long_pauses() {
    let long = |options: &Options, backend: Backend| {
        let acts = (0..200).flat_map(|world| round(options, backend, world, 0));
        let faults = acts.filter_map(|(_, act)| match act {
            RegistryAct::Fault(fault) => Some(fault),
            RegistryAct::Change(..)
            | RegistryAct::PublishEverywhere(_)
            | RegistryAct::Read(..)
            | RegistryAct::List(..)
            | RegistryAct::Fill(..) => None,
        });
        let (mut pauses, mut fills) = (0, 0);
        for fault in faults {
            let place = |some: usize| some.is_multiple_of(options.deployments);
            match fault {
                RegistryFault::Pause(some, time) if time >= LONG_PAUSE => {
                    pauses += usize::from(place(some));
                }
                RegistryFault::InFill(some, _, halt) if halt.how == Halt::Pause => {
                    assert!(halt.back >= LONG_PAUSE);
                    fills += usize::from(place(some));
                }
                RegistryFault::Pause(..)
                | RegistryFault::InFill(..)
                | RegistryFault::Kill(..)
                | RegistryFault::Wire(..)
                | RegistryFault::KillInChange(..)
                | RegistryFault::KillInMerge(..)
                | RegistryFault::Store(..) => {}
            }
        }
        (pauses, fills)
    };
    let patient = Options::parse("--seed 5");
    let (pauses, fills) = long(&patient, Backend::Postgres);
    assert!(pauses > 5 && fills > 5, "{pauses} and {fills}");
    assert_eq!(long(&patient, Backend::Sqlite), (0, 0));
    assert_eq!(long(&Options::short(), Backend::Postgres), (0, 0));
}
