//! Damages mirrors, and checks them when a round is over.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockkeeper::emulator::{Change, EmulatorError, Fault as GitHubFault};
use lockkeeper::git::{Git, GitSettings, RefList};
use nix::sys::signal::Signal;

use super::api;
use super::schedule::{Damage, GitMoment, Halt};
use super::world::{MIRRORS, NAMES, SHORT_LIVED, World};
use crate::support::server::{HOST, LOOK, Server};

/// Number of branches that belong to no pull request.
const BRANCHES: usize = 4;
/// Time within which a push reaches the mirrors if nothing else is in trouble.
const MEANWHILE: Duration = Duration::from_secs(2);
/// Time within which everything is in sync and cleaned up after all faults have ended. The leftovers of a killed
/// server are found when it is missed, which takes a minute.
const IN_STEP: Duration = Duration::from_secs(40);
const MISSED: Duration = Duration::from_secs(80);
/// Time within which a server is halted during a sync, regardless of other faults. A server that was killed before
/// may have to be missed first.
const CAUGHT: Duration = Duration::from_secs(100);
/// Time after which a failed sync is requested again.
const ASKED_AGAIN: Duration = Duration::from_secs(2);
/// Requests of git for references, and for objects.
const ASKS: [&str; 2] = ["GET /acme/*/info/refs", "POST /acme/*/git-upload-pack"];

impl World {
    /// Pushes to a branch that belongs to no pull request.
    pub async fn branch(&self, some: usize) -> Result<(), EmulatorError> {
        let content = format!("{}\n", self.serial());
        let changes = [Change::write("notes.txt", &content)];
        let name = format!("notes-{}", some % BRANCHES);
        if some.is_multiple_of(3) {
            return self
                .github
                .force_push(self.repo(), &name, &changes)
                .await
                .map(drop);
        }
        self.github
            .push(self.repo(), &name, &changes)
            .await
            .map(drop)
    }

    /// Deletes some branch of [`Self::branch`].
    pub async fn drop_branch(&self, some: usize) -> Result<(), EmulatorError> {
        let branches = self.github.branches(self.repo()).await?;
        let names: Vec<&String> = branches
            .keys()
            .filter(|name| name.starts_with("notes-"))
            .collect();
        match names.get(some % names.len().max(1)) {
            Some(name) => self.github.delete_branch(self.repo(), name).await,
            None => Ok(()),
        }
    }

    /// Makes GitHub's git fail several times.
    pub fn git_in_trouble(&self, moment: GitMoment, times: u32) {
        self.count("git in trouble");
        for ask in ASKS {
            self.github.fault(ask, times, moment.into());
        }
    }

    /// Damages the mirror of a server, regardless of what the server does at this moment.
    pub async fn damage(&self, n: usize, damage: Damage) {
        let mirror = mirror(&self.server(n).lock().await.data_dir(), self.repo());
        if !mirror.exists() {
            return;
        }
        self.count("mirrors damaged");
        // The server may remove the directory at the same moment.
        let write = |name: &str, text: &str| {
            std::fs::write(mirror.join(name), text).ok();
        };
        match damage {
            Damage::Objects => {
                std::fs::remove_dir_all(mirror.join("objects")).ok();
                std::fs::create_dir(mirror.join("objects")).ok();
            }
            Damage::Refs => write("packed-refs", "no references\n"),
            Damage::Config => write("config", "[core\n"),
            Damage::Head => write("HEAD", ""),
            Damage::Leftovers => {
                for name in [
                    "refs/heads/main.lock",
                    "refs/heads/notes-1.lock",
                    "packed-refs.lock",
                    "objects/pack/tmp_pack_x",
                ] {
                    write(name, "");
                }
                std::fs::create_dir_all(mirror.with_added_extension("new~").join("objects")).ok();
            }
        }
    }

    /// Halts a server during a sync of its mirror. The table of mirrors tells whether a sync was under way, because a
    /// halted server writes nothing to it. The attempt is repeated until it succeeds.
    pub async fn halt_in_sync(&self, n: usize, halt: Halt, time: Duration) {
        let mut server = self.server(n).lock().await;
        let begun = Instant::now();
        while !self.halts_in_sync(n, &mut server, halt, time).await {
            if begun.elapsed() > CAUGHT {
                return self.broken(&format!(
                    "server {n} could not be halted in a sync within {CAUGHT:?}"
                ));
            }
        }
        self.count(match halt {
            Halt::Kill => "killed in a sync",
            Halt::Pause => "paused in a sync",
        });
    }

    /// Tries once to halt a server during a sync. `false`: no sync began, or it ended before the signal came.
    async fn halts_in_sync(
        &self,
        n: usize,
        server: &mut Server,
        halt: Halt,
        time: Duration,
    ) -> bool {
        if server.has_died() {
            self.broken(&format!("server {n} ended by itself"));
        }
        if !server.is_running() {
            self.start_again(n, server).await;
            return false;
        }
        let data_dir_id =
            std::fs::read_to_string(server.data_dir().join("replica-id")).unwrap_or_default();
        let (data_dir_id, replica) = (
            data_dir_id.trim(),
            server.replica().unwrap_or_default().to_owned(),
        );
        if !self.begins_sync(n, data_dir_id, &replica, time).await {
            return false;
        }
        match halt {
            Halt::Kill => {
                self.count("servers killed");
                server.kill9().await;
                let is_caught = self.is_in_sync(data_dir_id, &replica).await;
                self.come_back(n, server, time).await;
                is_caught
            }
            Halt::Pause => {
                self.count("servers paused");
                server.signal(Signal::SIGSTOP);
                let is_caught = self.is_in_sync(data_dir_id, &replica).await;
                tokio::time::sleep(time).await;
                server.signal(Signal::SIGCONT);
                is_caught
            }
        }
    }

    /// Begins a sync that takes long. GitHub delays every answer to a request for references, or for objects; then
    /// somebody pushes and requests a sync. `false`: the server did not begin one, because another fault is not over
    /// yet.
    async fn begins_sync(
        &self,
        n: usize,
        data_dir_id: &str,
        replica: &str,
        time: Duration,
    ) -> bool {
        let ask = ASKS[usize::from(time.as_millis().is_multiple_of(2))];
        self.github.fault(
            ask,
            u32::try_from(self.servers.len()).expect("there are a few"),
            GitHubFault::Hang,
        );
        if let Err(error) = self.branch(1).await {
            self.say(&format!("GitHub did not do it: {error}"));
        }
        match tokio::time::timeout(
            MEANWHILE,
            api::ask_for_sync(self, n, "somebody is to be halted in it"),
        )
        .await
        {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.say(&format!("a sync cannot be asked for: {error}")),
            Err(_) => self.say("nobody answers who asks for a sync"),
        }
        let begun = Instant::now();
        while begun.elapsed() < MEANWHILE {
            if self.is_in_sync(data_dir_id, replica).await {
                // Git runs now. Where something else keeps it from sending requests, the server is halted all the
                // same.
                tokio::time::timeout(MEANWHILE / 2, self.github.hanging(1))
                    .await
                    .ok();
                return true;
            }
            tokio::time::sleep(LOOK).await;
        }
        false
    }

    /// Returns true if this process of a server holds the lease of its mirror, according to the table of mirrors.
    async fn is_in_sync(&self, data_dir_id: &str, replica: &str) -> bool {
        let rows = self.look.rows(MIRRORS).await;
        let is_held = |holder: &str| {
            holder
                .rsplit_once('/')
                .is_some_and(|(name, _)| name == replica)
        };
        let is_main = |repo: &str| !repo.ends_with(SHORT_LIVED);
        rows.iter().any(|row| {
            row[0] == data_dir_id && is_main(&row[1]) && row[2] == "started" && is_held(&row[7])
        })
    }
}

impl From<GitMoment> for GitHubFault {
    fn from(moment: GitMoment) -> Self {
        match moment {
            GitMoment::Unauthorized => Self::Unauthorized,
            GitMoment::NotFound => Self::NotFound,
            GitMoment::Unavailable => Self::ServiceUnavailable,
            GitMoment::Dropped => Self::DropConnection,
            GitMoment::Silent => Self::Hang,
        }
    }
}

fn mirror(data: &Path, repo: &str) -> PathBuf {
    data.join("mirrors").join(HOST).join(format!("{repo}.git"))
}

/// Checks that every mirror is in sync and verified, and has everything that GitHub has. Nothing of an interrupted
/// attempt may be left in the database or on a disk. Syncs are requested, again after each failure, so that the check
/// does not wait for the end of a backoff.
pub async fn check(world: &World) {
    let (begun, limit) = (
        Instant::now(),
        if world.options.patient {
            MISSED
        } else {
            IN_STEP
        },
    );
    let (mut asked, mut wrong) = (None, vec!["nobody has looked yet".to_owned()]);
    while !wrong.is_empty() {
        if begun.elapsed() > limit {
            return wrong.iter().for_each(|wrong| world.broken(wrong));
        }
        let has_failed = wrong.iter().any(|wrong| wrong.contains(" | failed | "));
        if asked.is_none_or(|at: Instant| has_failed && at.elapsed() > ASKED_AGAIN) {
            match api::ask_for_sync(world, 0, "the round is over").await {
                Ok(()) => asked = Some(Instant::now()),
                Err(error) => world.say(&format!("a sync cannot be asked for: {error}")),
            }
        }
        tokio::time::sleep(LOOK * 5).await;
        wrong = look(world).await;
        if asked.is_none() {
            wrong.push("a sync cannot be asked for".to_owned());
        }
    }
}

async fn look(world: &World) -> Vec<String> {
    let mut wrong = [rows(world).await, leases(world).await].concat();
    // The disks are only checked when the rows are right.
    if wrong.is_empty() {
        for n in 0..world.servers.len() {
            wrong.extend(on_disk(world, n).await);
        }
    }
    wrong
}

/// Checks that each data directory has one row, and that all are in sync.
async fn rows(world: &World) -> Vec<String> {
    let (mut wrong, mut missing) = (Vec::new(), BTreeSet::new());
    for server in &world.servers {
        missing.insert(
            std::fs::read_to_string(server.lock().await.data_dir().join("replica-id"))
                .unwrap_or_default(),
        );
    }
    let mut missing: BTreeSet<&str> = missing
        .iter()
        .map(|data_dir_id| data_dir_id.trim())
        .collect();
    let rows = world.look.rows(MIRRORS).await;
    for row in rows.iter().filter(|row| !row[1].ends_with(SHORT_LIVED)) {
        missing.remove(row[0].as_str());
        if !row[1].ends_with(world.repo()) {
            wrong.push(format!(
                "a mirror has the name of before: {}",
                row.join(" | ")
            ));
        }
        if (row[2].as_str(), row[3].as_str()) != ("synced", "verified") {
            wrong.push(format!("a mirror is not in step: {}", row.join(" | ")));
        }
    }
    wrong.extend(missing.into_iter().map(|data_dir_id| {
        format!("the table of mirrors does not have the mirror of {data_dir_id}")
    }));
    let orphans = "SELECT replica FROM repository_syncs s WHERE state = 'started' AND NOT EXISTS \
                   (SELECT 1 FROM leases l WHERE l.key = s.lease_key AND l.holder = s.lease_holder)";
    let orphans = world.look.rows(orphans).await;
    wrong.extend(
        orphans
            .into_iter()
            .flatten()
            .map(|data_dir_id| format!("an attempt on {data_dir_id} has no lease and no end")),
    );
    wrong
}

/// Checks that nobody works on a mirror, and that no server that is gone holds a lease.
async fn leases(world: &World) -> Vec<String> {
    let mut living = BTreeSet::new();
    for server in &world.servers {
        living.extend(server.lock().await.replica().map(str::to_owned));
    }
    let leases = world
        .look
        .rows("SELECT key, holder FROM leases ORDER BY key")
        .await;
    let is_orphan = |lease: &Vec<String>| {
        let holder = lease[1]
            .rsplit_once('/')
            .map_or(lease[1].as_str(), |(replica, _)| replica);
        lease[0].starts_with("repository_sync:") || !living.contains(holder)
    };
    let orphans = leases.into_iter().filter(is_orphan);
    orphans
        .map(|lease| format!("a lease is left over: {} of {}", lease[0], lease[1]))
        .collect()
}

async fn on_disk(world: &World, n: usize) -> Vec<String> {
    let data = world.server(n).lock().await.data_dir();
    let git = Git::new(GitSettings::new(&data, "/usr/local/bin:/usr/bin:/bin"));
    let repo = format!("{HOST}/{}", world.repo())
        .parse()
        .expect("the name of a repository");
    let mut wrong = match git.mirror(&repo).refs().await {
        Ok(refs) => differences(world, &refs).await,
        Err(error) => vec![format!(
            "the references of the mirror cannot be read: {error}"
        )],
    };
    wrong.extend(
        leftovers(&data, world.repo())
            .into_iter()
            .map(|path| format!("{} is left over", path.display())),
    );
    wrong
        .into_iter()
        .map(|wrong| format!("server {n}: {wrong}"))
        .collect()
}

/// Checks that every branch exists, and that no head of a pull request exists that GitHub does not have.
async fn differences(world: &World, refs: &RefList) -> Vec<String> {
    let branches = world
        .github
        .branches(world.repo())
        .await
        .expect("the repository exists");
    let mut there: BTreeSet<String> = branches
        .iter()
        .map(|(name, id)| format!("refs/heads/{name} {id}"))
        .collect();
    let mut wrong = Vec::new();
    for (name, id) in refs.iter() {
        let line = format!("{name} {id}");
        let is_right = match name
            .as_str()
            .strip_prefix("refs/pull/")
            .and_then(|rest| rest.split('/').next())
        {
            Some(number) => {
                let number = lockkeeper::model::PullNumber(number.parse().expect("a number"));
                world
                    .github
                    .pull(world.repo(), number)
                    .is_ok_and(|pull| pull.head == *id)
            }
            None => there.remove(&line),
        };
        if !is_right {
            wrong.push(format!("the mirror has {line}, and GitHub has not"));
        }
    }
    wrong.extend(
        there
            .into_iter()
            .map(|line| format!("GitHub has {line}, and the mirror has not")),
    );
    wrong
}

/// Checks that no disk has a checkout of a closed pull request, although servers died while they removed it. Servers
/// look for such checkouts regularly, and when they start. A pull request that held nothing when its close was lost
/// counts as open until a server next reads the lists of open pull requests.
pub async fn check_checkouts(world: &World) {
    let begun = Instant::now();
    let rows = world
        .look
        .rows("SELECT CAST(number AS TEXT) FROM pulls WHERE state = 'open'")
        .await;
    let open: BTreeSet<String> = rows.into_iter().flatten().collect();
    let is_open = |dir: &PathBuf| {
        dir.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| open.contains(name))
    };
    for n in 0..world.servers.len() {
        let data = world.server(n).lock().await.data_dir();
        loop {
            let of_repo = NAMES
                .into_iter()
                .flat_map(|name| entries(data.join("checkouts").join(HOST).join(name)));
            let left: Vec<PathBuf> = of_repo.filter(|dir| !is_open(dir)).collect();
            if left.is_empty() {
                break;
            }
            if begun.elapsed() > IN_STEP {
                world.broken(&format!(
                    "server {n}: every pull is closed, and there still are {left:?}"
                ));
                break;
            }
            tokio::time::sleep(LOOK * 5).await;
        }
    }
}

fn entries(dir: PathBuf) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Returns files that only exist while somebody works: half a clone or pack, the directory of a run, the key of a
/// login.
fn leftovers(data: &Path, repo: &str) -> Vec<PathBuf> {
    let mirror = mirror(data, repo);
    let name = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned()
    };
    let beside = entries(mirror.parent().expect("it has an owner").to_owned())
        .filter(|path| name(path).ends_with('~'));
    let packs = entries(mirror.join("objects/pack"))
        .filter(|path| name(path).starts_with("tmp_") || name(path).starts_with(".tmp-"));
    let names = entries(data.to_owned()).filter(|path| name(path).starts_with("replica-id."));
    beside
        .chain(packs)
        .chain(entries(data.join("tmp")))
        .chain(names)
        .collect()
}
