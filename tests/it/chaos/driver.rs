//! Plays a round: the actions of people, and the faults.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::emulator::{Change, EmulatorError, Fault as GitHubFault, NewPull, StatusState};
use lockkeeper::model::{PullNumber, PullState};
use nix::sys::signal::Signal;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::schedule::{Act, BadMoment, Edit, Fault};
use super::world::{NAMES, SHORT_LIVED, World};
use super::{api, checks, mirrors};
use crate::support::db::Backend;
use crate::support::server::{LOOK, Server};

/// Maximum number of open pull requests. More of them would only make rounds longer.
const MOST_OPEN: usize = 7;
/// Time within which every fault ends, also two that wait for the same server. Actions of people do not take long.
const LONGEST: Duration = Duration::from_mins(5);
/// Time within which a server that starts has checked all locks.
const NOTICED: Duration = Duration::from_secs(30);

impl World {
    /// Plays a round, ends all faults, waits until no work is left, and checks the promises.
    pub async fn play(self: &Arc<Self>, round: Vec<(Duration, Act)>) {
        let (begun, mut acts) = (Instant::now(), JoinSet::new());
        for (at, act) in round {
            tokio::time::sleep_until(begun + at).await;
            self.say(&format!("{act:?}"));
            let world = Arc::clone(self);
            acts.spawn(async move { world.act(act).await });
        }
        let ends = async {
            while let Some(end) = acts.join_next().await {
                if let Err(panic) = end {
                    self.broken(&format!("an action did not come to its end: {panic}"));
                }
            }
        };
        if tokio::time::timeout(LONGEST, ends).await.is_err() {
            self.broken(&format!(
                "actions did not come to their end within {LONGEST:?}"
            ));
        }
        self.heal().await;
        self.quiet().await;
        checks::all(self).await;
    }

    /// Ends every fault. Servers are started, missing deliveries are sent, and lost closes are found.
    async fn heal(&self) {
        self.github.clear_faults();
        for n in 0..self.servers.len() {
            let mut server = self.server(n).lock().await;
            if server.has_died() {
                self.broken(&format!("server {n} ended by itself"));
            }
            if !server.is_running() && !self.start(n, &mut server).await {
                self.broken(&format!(
                    "server {n} does not start although nothing is wrong any more"
                ));
            }
        }
        self.say("healed");
        if !self.post.bring_the_rest(&self.github).await {
            self.broken("a delivery is not taken although nothing is wrong any more");
        }
        let lost = self.post.all().into_iter().filter(|letter| letter.lost);
        let lost: BTreeSet<String> = lost.filter_map(|letter| letter.delivery.action).collect();
        if lost.contains("renamed") {
            // The next event makes up for lost ones, and at least one of three arrives.
            for _ in 0..3 {
                let words = "Is this the right repository?";
                if let Err(error) = self.comment(1, words).await {
                    self.say(&format!("GitHub did not do it: {error}"));
                }
            }
            self.post.bring_the_rest(&self.github).await;
        }
        if lost.contains("closed") {
            // A server looks for closed pull requests when it starts.
            self.restart(0).await;
        }
        if self.record().is_deleted {
            self.look_twice().await;
        }
    }

    /// Makes the servers look twice for what is gone. They look when they start, and believe it after a second look
    /// some minutes later. The time of the first look is set back in the database.
    async fn look_twice(&self) {
        const HELD: &str = "SELECT dir FROM locks WHERE repo LIKE '%/acme/short-lived'";
        const ON_SQLITE: &str = "UPDATE absences SET noticed_at = strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now', '-1 hour') RETURNING repo";
        const ON_POSTGRES: &str =
            "UPDATE absences SET noticed_at = now() - INTERVAL '1 hour' RETURNING repo";
        let hasten = if self.backend == Backend::Sqlite {
            ON_SQLITE
        } else {
            ON_POSTGRES
        };
        if self.look.rows(HELD).await.is_empty() {
            return;
        }
        self.count("locks of a deleted repository");
        self.restart(0).await;
        let begun = Instant::now();
        while self.look.rows(hasten).await.is_empty() {
            // The time limit of the lock may be over meanwhile.
            if self.look.rows(HELD).await.is_empty() {
                return;
            }
            if begun.elapsed() > NOTICED {
                return self.broken(&format!(
                    "nobody notices within {NOTICED:?} that a repository is gone"
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
        self.restart(0).await;
    }

    /// Ends the world: closes every pull request, checks that nothing is left of any, and stops the servers.
    pub async fn end(self: &Arc<Self>) {
        let pulls = self.record().pulls.clone();
        for pull in pulls {
            if self.state(pull) == Some(PullState::Open) {
                self.github
                    .close(self.repo(), pull, "alice")
                    .await
                    .expect("it is open");
            }
        }
        self.heal().await;
        self.quiet().await;
        checks::all(self).await;
        for n in 0..self.servers.len() {
            self.restart(n).await;
        }
        mirrors::check_checkouts(self).await;
        for n in 0..self.servers.len() {
            let mut server = self.server(n).lock().await;
            server.terminate();
            let end = server.exit().await;
            if !end.success() {
                self.broken(&format!("server {n} ended with {end}"));
            }
            server.alone().await;
        }
    }

    async fn act(&self, act: Act) {
        let done = match act {
            Act::Open(edits) => self.open(&edits).await,
            Act::Push(some, edits) => self.push(some, &edits).await,
            Act::ForcePush(some, edits) => self.force_push(some, &edits).await,
            Act::Branch(some) => self.branch(some).await,
            Act::DropBranch(some) => self.drop_branch(some).await,
            Act::Comment(some, words) => self.comment(some, &words).await,
            Act::Close(some) => match self.pull(some, |state| state == PullState::Open) {
                Some(pull) => self.github.close(self.repo(), pull, "bob").await,
                None => Ok(()),
            },
            Act::Reopen(some) => match self.pull(some, |state| state == PullState::Closed) {
                Some(pull) => self.github.reopen(self.repo(), pull, "bob").await,
                None => Ok(()),
            },
            Act::Merge(some) => match self.pull(some, |state| state == PullState::Open) {
                Some(pull) => self.github.merge(self.repo(), pull, "bob").await.map(drop),
                None => Ok(()),
            },
            Act::Rename => self.rename().await,
            Act::Delete => self.delete().await,
            Act::Discard(some, server) => {
                api::discard_lock(self, server, some).await;
                Ok(())
            }
            Act::Release(some, server) => {
                api::release_lock(self, server, some).await;
                Ok(())
            }
            Act::HandOver(some, server) => {
                api::hand_lock_over(self, server, some).await;
                Ok(())
            }
            Act::StopApplies(server, time) => {
                api::stop_applies(self, server, time).await;
                Ok(())
            }
            Act::Account(some, server) => {
                api::change_account(self, server, some).await;
                Ok(())
            }
            Act::Fault(fault) => {
                self.fault(fault).await;
                Ok(())
            }
        };
        if let Err(error) = done {
            self.say(&format!("GitHub did not do it: {error}"));
        }
    }

    /// Returns some pull request in a matching state.
    fn pull(&self, some: usize, wanted: impl Fn(PullState) -> bool) -> Option<PullNumber> {
        let pulls = self.record().pulls.clone();
        let fitting: Vec<PullNumber> = pulls
            .into_iter()
            .filter(|pull| self.state(*pull).is_some_and(&wanted))
            .collect();
        fitting.get(some % fitting.len().max(1)).copied()
    }

    /// Returns some open pull request whose newest commit is completely planned, but not completely applied.
    fn some_planned(&self, some: usize) -> Option<PullNumber> {
        let is_planned = |pull: &PullNumber| {
            let Ok(pull) = self.github.pull(self.repo(), *pull) else {
                return false;
            };
            // The repository may be renamed at this moment.
            let Ok(statuses) = self.github.statuses(self.repo(), &pull.head) else {
                return false;
            };
            let is_green = |name: &str| {
                statuses
                    .of(name)
                    .is_some_and(|status| status.state == StatusState::Success)
            };
            pull.is_open() && is_green("lockkeeper/plan") && !is_green("lockkeeper/apply")
        };
        let pulls = self.record().pulls.clone();
        let planned: Vec<PullNumber> = pulls.into_iter().filter(is_planned).collect();
        planned.get(some % planned.len().max(1)).copied()
    }

    /// Returns the state of a pull request on GitHub.
    pub fn state(&self, pull: PullNumber) -> Option<PullState> {
        self.github
            .pull(self.repo(), pull)
            .ok()
            .map(|pull| pull.state)
    }

    pub fn serial(&self) -> u64 {
        let mut record = self.record();
        record.serial += 1;
        record.serial
    }

    fn changes(&self, edits: &[Edit]) -> Vec<Change> {
        let content = |edit: &Edit| format!("# fake: {}\n# {}\n", edit.order, self.serial());
        edits
            .iter()
            .map(|edit| Change::write(&format!("p{}/main.tf", edit.project), &content(edit)))
            .collect()
    }

    /// Gives the repository its other name.
    async fn rename(&self) -> Result<(), EmulatorError> {
        let (from, count) = (self.repo(), self.record().renames + 1);
        self.github
            .rename_repo(from, NAMES[count % NAMES.len()], "alice")
            .await?;
        self.record().renames = count;
        self.count("repositories renamed");
        Ok(())
    }

    /// Deletes the other repository, with its pull request.
    async fn delete(&self) -> Result<(), EmulatorError> {
        self.github.delete_repo(SHORT_LIVED, "alice").await?;
        self.record().is_deleted = true;
        self.count("repositories deleted");
        Ok(())
    }

    async fn open(&self, edits: &[Edit]) -> Result<(), EmulatorError> {
        let pulls = self.record().pulls.clone();
        if pulls
            .iter()
            .filter(|pull| self.state(**pull) == Some(PullState::Open))
            .count()
            >= MOST_OPEN
        {
            return Ok(());
        }
        let branch = format!("branch-{}", self.serial());
        let head = self
            .github
            .push(self.repo(), &branch, &self.changes(edits))
            .await?;
        let pull = self
            .github
            .open_pull(self.repo(), NewPull::from_branch(&branch))
            .await?;
        let mut record = self.record();
        record.heads.insert(head);
        record.pulls.push(pull);
        Ok(())
    }

    async fn push(&self, some: usize, edits: &[Edit]) -> Result<(), EmulatorError> {
        let Some(pull) = self.pull(some, |state| state == PullState::Open) else {
            return Ok(());
        };
        let branch = self.github.pull(self.repo(), pull)?.head_branch.to_string();
        let head = self
            .github
            .push(self.repo(), &branch, &self.changes(edits))
            .await?;
        self.record().heads.insert(head);
        Ok(())
    }

    async fn force_push(&self, some: usize, edits: &[Edit]) -> Result<(), EmulatorError> {
        let Some(pull) = self.pull(some, |state| state == PullState::Open) else {
            return Ok(());
        };
        let branch = self.github.pull(self.repo(), pull)?.head_branch.to_string();
        let head = self
            .github
            .force_push(self.repo(), &branch, &self.changes(edits))
            .await?;
        self.record().heads.insert(head);
        Ok(())
    }

    /// Comments, mostly on open pull requests. An apply is mostly requested where there is something to apply.
    async fn comment(&self, some: usize, words: &str) -> Result<(), EmulatorError> {
        let planned = || {
            self.some_planned(some)
                .filter(|_| words.starts_with("lockkeeper apply") && !some.is_multiple_of(8))
        };
        let open = || {
            self.pull(some, |state| state == PullState::Open)
                .filter(|_| !some.is_multiple_of(10))
        };
        let Some(pull) = planned()
            .or_else(open)
            .or_else(|| self.pull(some, |_| true))
        else {
            return Ok(());
        };
        self.github
            .comment(
                self.repo(),
                pull,
                if some.is_multiple_of(2) {
                    "alice"
                } else {
                    "carol"
                },
                words,
            )
            .await
            .map(drop)
    }

    async fn fault(&self, fault: Fault) {
        match fault {
            Fault::Kill(n, back) => self.kill(n, back).await,
            Fault::Restart(n) => self.restart(n).await,
            Fault::Pause(n, time) => self.pause(n, time).await,
            Fault::Wire(end, n, trouble, time) => {
                let Some(wire) = self.wire(end, n) else {
                    return;
                };
                self.count("wires in trouble");
                wire.trouble(trouble);
                tokio::time::sleep(time).await;
                wire.heal();
            }
            Fault::HoldDatabase(time) => {
                self.count("database held");
                self.look.hold(time).await;
            }
            Fault::GitHub(route, times, moment) => {
                self.count("GitHub in trouble");
                self.github.fault(route, times, moment.into());
            }
            Fault::PlansAway(time) => self.plans_away(time).await,
            Fault::DiskFull(n, time) => self.disk_full(n, time).await,
            Fault::Git(moment, times) => self.git_in_trouble(moment, times),
            Fault::Damage(n, damage) => self.damage(n, damage).await,
            Fault::InSync(n, halt, time) => self.halt_in_sync(n, halt, time).await,
        }
    }

    pub async fn kill(&self, n: usize, back: Duration) {
        let mut server = self.server(n).lock().await;
        if server.has_died() {
            self.broken(&format!("server {n} ended by itself"));
        }
        if server.is_running() {
            self.count("servers killed");
            server.kill9().await;
        }
        self.come_back(n, &mut server, back).await;
    }

    /// Starts a killed server again after some time. Its leases are ended by hand unless there is time to wait until
    /// they expire.
    pub async fn come_back(&self, n: usize, server: &mut Server, back: Duration) {
        let ended = server
            .replica()
            .filter(|_| !self.options.patient || back.as_millis().is_multiple_of(2));
        if let Some(replica) = ended.map(str::to_owned) {
            self.look.end_leases(&replica).await;
        }
        tokio::time::sleep(back).await;
        self.start_again(n, server).await;
    }

    pub async fn start_again(&self, n: usize, server: &mut Server) {
        if !self.start(n, server).await {
            self.broken(&format!(
                "server {n} does not start for longer than any fault lasts"
            ));
        }
    }

    async fn restart(&self, n: usize) {
        let mut server = self.server(n).lock().await;
        if server.is_running() && !server.has_died() {
            self.count("servers restarted");
            server.terminate();
            let end = server.exit().await;
            if !end.success() {
                self.broken(&format!("server {n} ended with {end}"));
            }
        }
        self.start_again(n, &mut server).await;
    }

    pub async fn pause(&self, n: usize, time: Duration) {
        let mut server = self.server(n).lock().await;
        if server.is_running() && !server.has_died() {
            self.count("servers paused");
            server.signal(Signal::SIGSTOP);
            tokio::time::sleep(time).await;
            server.signal(Signal::SIGCONT);
        }
    }

    /// Replaces the directory of the plan files with a file for some time.
    async fn plans_away(&self, time: Duration) {
        let (plans, away) = (self.plans(), self.dir.path().join("plans-away"));
        if std::fs::rename(&plans, &away).is_err() {
            return;
        }
        self.count("plan files away");
        std::fs::write(&plans, "a file where the directory was").expect("the directory is ours");
        tokio::time::sleep(time).await;
        std::fs::remove_file(&plans).expect("the file is ours");
        std::fs::rename(&away, &plans).expect("the directory is ours");
    }

    async fn disk_full(&self, n: usize, time: Duration) {
        let mut server = self.server(n).lock().await;
        if !server.is_running() || server.has_died() || !Path::new("/usr/bin/prlimit").exists() {
            return;
        }
        self.count("disks full");
        let pid = server.pid().as_raw();
        limit_files(pid, "0:unlimited").await;
        tokio::time::sleep(time).await;
        limit_files(pid, "unlimited").await;
    }
}

/// Limits the size to which a process may let files grow.
#[expect(clippy::disallowed_methods, reason = "a tool of the test")]
async fn limit_files(pid: i32, limit: &str) {
    let mut command = tokio::process::Command::new("prlimit");
    command
        .arg(format!("--pid={pid}"))
        .arg(format!("--fsize={limit}"));
    // The process may have ended a moment ago.
    command.status().await.expect("prlimit is there");
}

impl From<BadMoment> for GitHubFault {
    fn from(moment: BadMoment) -> Self {
        match moment {
            BadMoment::BadGateway => Self::BadGateway,
            BadMoment::LoseAnswer => Self::LoseAnswer,
            BadMoment::DropConnection => Self::DropConnection,
            BadMoment::NotFound => Self::NotFound,
            BadMoment::Limited => Self::SecondaryLimit {
                status: 403,
                retry_after: 1,
            },
        }
    }
}
