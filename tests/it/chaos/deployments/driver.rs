//! Plays a round: the requests of clients, the faults, and the lies of the hostile deployment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use lockkeeper_registry::states::VersionState;
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::book::SeenAnswer;
use super::checks;
use super::clients::Fetched;
use super::hostile::{self, HostilePush, Lie};
use super::schedule::{Change, LONG_PAUSE, RegistryAct, RegistryFault, Wanted};
use super::world::{PATIENCE, RegistryWorld};
use crate::registry::world::archive;
use crate::support::object_store::StoreFault;
use crate::support::server::LOOK;

/// Time within which every act ends, also two that wait for the same server, and a lie that waits for its effect.
const LONGEST: Duration = Duration::from_mins(15);
/// Number of pushes of a flood in a short run. A deployment takes more than that in a minute.
const FLOOD: usize = 60;
/// First number of names that are published when all faults have ended.
const CALM: u64 = 1_000_000;
/// Time between two reads of a log.
const READ_EVERY: Duration = Duration::from_millis(300);

impl RegistryWorld {
    /// Plays a round, ends all faults, waits until everything is everywhere, and checks the promises.
    pub async fn play(
        self: &Arc<Self>,
        of_round: u64,
        round: Vec<(Duration, RegistryAct)>,
        lie: Lie,
    ) {
        let readers = (0..self.deployments.len()).map(|at| {
            let world = Arc::clone(self);
            AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    world.read_log(at).await;
                    tokio::time::sleep(READ_EVERY).await;
                }
            }))
        });
        let readers: Vec<AbortOnDropHandle<()>> = readers.collect();
        let (begun, mut acts) = (tokio::time::Instant::now(), JoinSet::new());
        let world = Arc::clone(self);
        acts.spawn(async move { world.hostile_lies(lie).await });
        let world = Arc::clone(self);
        acts.spawn(async move { world.hostile_floods().await });
        for (at, act) in round {
            tokio::time::sleep_until(begun + at).await;
            self.say(&format!("{act:?}"));
            let world = Arc::clone(self);
            acts.spawn(async move { world.act(act).await });
        }
        let ends = async {
            while let Some(end) = acts.join_next().await {
                if let Err(panic) = end {
                    self.broken(&format!("an act did not come to its end: {panic}"));
                }
            }
        };
        if tokio::time::timeout(LONGEST, ends).await.is_err() {
            self.broken(&format!(
                "acts did not come to their end within {LONGEST:?}"
            ));
        }
        self.heal().await;
        self.work_as_before(of_round).await;
        // The checks read the logs themselves, and a reader in between could tell them an older head.
        drop(readers);
        Box::pin(checks::all(self, of_round)).await;
    }

    /// Ends every fault, and starts every server that does not run.
    async fn heal(&self) {
        self.heal_places();
        for (at, deployment) in self.deployments.iter().enumerate() {
            for (n, server) in deployment.servers.iter().enumerate() {
                let mut server = server.lock().await;
                self.check_alive((at, n), &mut server);
                self.start((at, n), &mut server).await;
            }
        }
        self.say("healed");
    }

    /// Publishes a version of each kind at every deployment now that nothing is wrong any more, and changes them.
    async fn work_as_before(&self, round: u64) {
        for at in 0..self.deployments.len() {
            for (is_go, change) in [(false, Change::TakeDown), (true, Change::Deprecate)] {
                let wanted = Wanted {
                    is_go,
                    name: CALM + round,
                    version: at as u64,
                };
                let (key, begun) = (wanted.key(), Instant::now());
                for (change, reached) in [
                    (Change::Publish(0), VersionState::Added),
                    (change, change.reached()),
                ] {
                    // A server that has just started may have too much to do.
                    while self.book().known(at, &key).state < reached {
                        self.change(at, wanted, change).await;
                        self.deployments[at].end_claims().await;
                        let what = format!("{change:?} of {key} is done");
                        if !self.may_wait(begun, &what).await {
                            return;
                        }
                    }
                }
                self.list(at, wanted).await;
            }
        }
    }

    /// Stops all servers at the end of the world.
    pub async fn end(&self) {
        for deployment in &self.deployments {
            for server in &deployment.servers {
                let mut server = server.lock().await;
                server.terminate();
                let end = server.exit().await;
                if !end.success() {
                    self.broken(&format!("a server of {} ended with {end}", deployment.name));
                }
            }
        }
    }

    async fn act(self: &Arc<Self>, act: RegistryAct) {
        match act {
            RegistryAct::Change(some, wanted, change) => {
                self.change(self.place(some).0, wanted, change).await;
            }
            RegistryAct::PublishEverywhere(wanted) => {
                let everywhere = (0..self.deployments.len()).zip(0..);
                let all = everywhere
                    .map(|(at, content)| self.change(at, wanted, Change::Publish(content)));
                join_all(all).await;
            }
            RegistryAct::Read(some, wanted) => {
                let (at, key) = (self.place(some).0, wanted.key());
                self.read(at, &key).await;
                self.look_up(at, &key).await;
            }
            RegistryAct::List(some, wanted) => self.list(self.place(some).0, wanted).await,
            RegistryAct::Fill(some, number) => {
                self.fill(self.place(some).0, number).await;
            }
            RegistryAct::Fault(fault) => self.fault(fault).await,
        }
    }

    async fn fault(self: &Arc<Self>, fault: RegistryFault) {
        match fault {
            RegistryFault::Kill(some, back) => {
                let place = self.place(some);
                let server = &self.deployments[place.0].servers[place.1];
                let mut server = server.lock().await;
                self.kill(place, &mut server, back).await;
            }
            RegistryFault::Pause(some, time) => {
                let place = self.place(some);
                let server = &self.deployments[place.0].servers[place.1];
                let mut server = server.lock().await;
                self.check_alive(place, &mut server);
                if server.is_running() {
                    self.count(if time < LONG_PAUSE {
                        "servers paused"
                    } else {
                        "servers paused for longer than a lease"
                    });
                    let interruptions = &self.deployments[place.0].interruptions;
                    interruptions.begin();
                    server.signal(Signal::SIGSTOP);
                    tokio::time::sleep(time).await;
                    server.signal(Signal::SIGCONT);
                    interruptions.end();
                }
            }
            RegistryFault::Wire(some, trouble, time) => {
                let (wire, ends) = self.wire(some);
                self.count("wires in trouble");
                self.say(&format!("{trouble:?} from {ends}"));
                wire.trouble(trouble);
                tokio::time::sleep(time).await;
                wire.heal();
            }
            RegistryFault::KillInChange(some, wanted, change, soon) => {
                let place = self.place(some);
                if change == Change::TakeDown {
                    // There has to be something to take down.
                    self.change(place.0, wanted, Change::Publish(0)).await;
                }
                let server = &self.deployments[place.0].servers[place.1];
                let mut server = server.lock().await;
                let world = Arc::clone(self);
                let changing =
                    tokio::spawn(async move { world.change(place.0, wanted, change).await });
                tokio::time::sleep(soon).await;
                self.count("killed in a change");
                self.kill(place, &mut server, soon).await;
                drop(server);
                self.ended(changing.await);
            }
            RegistryFault::KillInMerge(some, wanted, soon) => {
                let place = self.place(some);
                let other = (place.0 + 1) % self.deployments.len();
                self.change(other, wanted, Change::Publish(0)).await;
                tokio::time::sleep(soon).await;
                let server = &self.deployments[place.0].servers[place.1];
                let mut server = server.lock().await;
                self.count("killed in a merge");
                self.kill(place, &mut server, soon).await;
            }
            RegistryFault::InFill(some, number, halt) => {
                let halting = self.halt_fill(self.place(some).0, number, halt);
                Box::pin(halting).await;
            }
            RegistryFault::Store(some, fault, name, time) => {
                self.disturb_store(some, fault, (name, time)).await;
            }
        }
    }

    /// Lets an object store fail or lie until that makes a difference, and then for some time.
    async fn disturb_store(
        self: &Arc<Self>,
        some: usize,
        fault: StoreFault,
        (name, time): (u64, Duration),
    ) {
        let (at, live) = self.store(some);
        let _turn = live.turn.lock().await;
        let what = format!("{fault:?} in the store of {}", self.deployments[at].name);
        self.say(&what);
        let (failures, begun) = (live.store.failures(), Instant::now());
        live.store.set(fault);
        let world = Arc::clone(self);
        let using = tokio::spawn(async move { world.use_store(at, name).await });
        let using = AbortOnDropHandle::new(using);
        while live.store.failures() == failures {
            if !self.may_wait(begun, &format!("{what} is noticed")).await {
                break;
            }
        }
        drop(using);
        self.count(match fault {
            StoreFault::Lies | StoreFault::CutsOff => "stores that lied",
            StoreFault::LosesPackages => "stores that lost packages",
            StoreFault::Away
            | StoreFault::Silent
            | StoreFault::Refuses
            | StoreFault::LosesAnswer
            | StoreFault::Redirects
            | StoreFault::NoConditions
            | StoreFault::Holds
            | StoreFault::None => "stores that failed",
        });
        tokio::time::sleep(time).await;
        live.store.set(StoreFault::None);
    }

    /// Publishes versions that nobody has, and reads their packages from the store.
    async fn use_store(&self, at: usize, name: u64) {
        for version in 0.. {
            let wanted = Wanted {
                is_go: true,
                name,
                version,
            };
            self.change(at, wanted, Change::Publish(0)).await;
            self.deployments[at].remove_copies();
            self.read(at, &wanted.key()).await;
            tokio::time::sleep(LOOK * 5).await;
        }
    }

    fn ended(&self, end: Result<(), tokio::task::JoinError>) {
        if let Err(panic) = end {
            self.broken(&format!("a request did not come to its end: {panic}"));
        }
    }

    /// Publishes a version, deprecates it or takes it down.
    async fn change(&self, at: usize, wanted: Wanted, change: Change) {
        let key = wanted.key();
        let before = self.book().known(at, &key);
        let sent = match change {
            Change::Publish(content) => {
                let files = wanted.files(content);
                let files = files.iter().map(|(path, text)| (*path, text.as_bytes()));
                let files: Vec<(&str, &[u8])> = files.collect();
                let package = archive(&key, &files);
                self.upload(at, &key, package).await
            }
            Change::Deprecate => {
                let body = json!({"reason": "it is old"});
                self.post(at, &key, "deprecate", &body).await
            }
            Change::TakeDown => {
                let body = json!({"reason": "it has a key", "kind": "security"});
                self.post(at, &key, "takedown", &body).await
            }
        };
        // Without an answer nobody knows. The next one says what has happened.
        let Ok(answer) = sent else { return };
        let seen = match (answer.status, change) {
            (200 | 201, _) => {
                self.count(match change {
                    Change::Publish(_) => "published",
                    Change::Deprecate => "deprecated",
                    Change::TakeDown => "taken down",
                });
                SeenAnswer::Reached(change.reached())
            }
            (410, _) => SeenAnswer::Reached(VersionState::Deleted),
            (409, Change::Publish(_)) => {
                self.count("refused because of other content");
                return;
            }
            (404, Change::Deprecate | Change::TakeDown) => SeenAnswer::State(VersionState::Absent),
            (408 | 429 | 500.., _) => return,
            (status, _) => {
                let text = answer.text();
                return self.broken(&format!("{change:?} of {key} was refused: {status} {text}"));
            }
        };
        self.saw(at, &key, &before, &seen);
    }

    /// Lets the hostile deployment push to the first one, in a patient run until a server limits it. Clients are answered
    /// meanwhile.
    async fn hostile_floods(&self) {
        let (first, begun) = (&self.deployments[0], Instant::now());
        let path = format!("/registry/go/sumdb/{}/latest", first.name);
        let (mut answered, mut limited, mut is_serving) = (0, 0, false);
        let (mut url, mut decided) = (None, Vec::new());
        // More than a deployment has at a time.
        let mut pushes = HostilePush::ALL.repeat(2);
        loop {
            let is_over = if self.options.patient {
                limited > 0
            } else {
                let mut kinds = HostilePush::ALL.into_iter();
                let is_each = kinds.all(|push| decided.contains(&push) || !push.is_always_there());
                answered >= FLOOD && (is_each || limited > 0)
            };
            if is_over && is_serving {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return self.broken(&format!(
                    "a flood of {answered} pushes was not limited, or no client was answered ({limited}, {is_serving})"
                ));
            }
            // Each server has a limit of its own.
            let Some(address) = url.take().or_else(|| first.url()) else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            // The first ones of them get the places.
            pushes.rotate_left(1);
            let sent = pushes
                .iter()
                .copied()
                .map(|push| self.hostile.push(&self.client, &address, push));
            let statuses = join_all(sent).await;
            for (push, status) in pushes.iter().zip(&statuses) {
                match status {
                    // The server was away, or had no place for it or no database.
                    None | Some(503) => {}
                    Some(429) => {
                        answered += 1;
                        limited += 1;
                    }
                    Some(status) if push.statuses().contains(status) => {
                        answered += 1;
                        decided.push(*push);
                        self.count(push.counted_as());
                    }
                    Some(status) => {
                        self.broken(&format!("R6: a push was answered with {status}: {push:?}"));
                    }
                }
            }
            if statuses.iter().any(Option::is_some) {
                url = Some(address);
                let answer = self.get(0, &path).await;
                is_serving |= answer.is_ok_and(|answer| answer.status == 200);
            } else {
                tokio::time::sleep(LOOK).await;
            }
        }
        if limited > 0 {
            self.count("floods that were limited");
        }
    }

    /// Lets the hostile deployment lie to the first one, waits until that has noticed, and forgives it.
    async fn hostile_lies(&self, lie: Lie) {
        let first = &self.deployments[0];
        let begun = Instant::now();
        let (_, size) = self.hostile.publish();
        while self.mallory().await.is_none_or(|line| line.last_id != size) {
            if !self.may_wait(begun, "a record of mallory is merged").await {
                return;
            }
        }
        self.say(&format!("mallory lies: {lie:?}"));
        let wrong = self.mallory().await.map_or(0, |line| line.wrong_packages);
        // A version that nobody has downloaded yet.
        let key = (lie == Lie::WrongBytes).then(|| {
            self.hostile.lie(lie);
            self.hostile.publish().0
        });
        self.hostile.lie(lie);
        let [told, noticed] = lie.counted_as();
        self.count(told);
        let begun = Instant::now();
        loop {
            if let Some(key) = &key
                && let Fetched::Package(_) = self.package(0, key).await
            {
                self.broken(&format!("R4: {key} was served with wrong bytes"));
            }
            let is_noticed = self.mallory().await.is_some_and(|line| {
                if lie.diverges() {
                    line.state == "diverged"
                } else if lie == Lie::WrongBytes {
                    line.wrong_packages > wrong
                } else {
                    line.error.contains("is refused")
                }
            });
            if is_noticed {
                break;
            }
            let what = format!("the lie of mallory is noticed ({lie:?})");
            if !self.may_wait(begun, &what).await {
                return;
            }
        }
        self.count(noticed);
        self.hostile.stop_lying();
        if lie.diverges() {
            let said = first.resume(hostile::NAME);
            if said.code != 0 {
                self.broken(&format!("mallory is not resumed: {}", said.err));
            }
        }
    }
}
