//! Tests of mirrors and checkouts with real git, over real HTTP.

mod partial;
mod parts;
mod reading;
mod spare;
mod sparse;
mod ssh;
mod sync;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper::forges::GitCredentials;
use lockkeeper::git::{
    Checkout, CheckoutRequest, CheckoutStrategy, DirError, Extent, FetchRequest, Fetched, Git,
    GitError, GitSettings, Head, IgnoredFiles, Mirror, Prepared, RefName,
};
use lockkeeper::model::{CommitSha, RepoPath, Subject, WorkspaceName};
use lockkeeper::process::{Cmd, FileHold, Mechanism, RunLimits};
use lockkeeper::secret::Secret;
use lockkeeper::workflow::{ChildEnvironment, RunSandbox};

use crate::support::git_http::GitServer;
use crate::support::program::bwrap;

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const USER: &str = "x-access-token";
const PASSWORD: &str = "s3cr3t p%ss:w'rd";
const PULL: Subject = Subject::pull(12);

/// A repository on a server, a clone to work in, and a data directory.
struct World {
    dir: tempfile::TempDir,
    server: GitServer,
    git: Git,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server =
            GitServer::start(&dir.path().join("srv"), Some(&format!("{USER}:{PASSWORD}"))).await;
        let mut settings = GitSettings::new(dir.path().join("data"), PATH);
        settings.hold_wait = Duration::ZERO;
        let world = Self {
            dir,
            server,
            git: Git::new(settings),
        };
        std::fs::create_dir_all(world.path("srv/acme")).unwrap();
        world
            .sh("git init -q --bare -b main srv/acme/infra.git && git init -q -b main work")
            .await;
        world.commit("main.tf=one").await;
        world.push("main").await;
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a script in the world's directory and returns what it prints.
    async fn sh(&self, script: &str) -> String {
        // The settings of this machine's git, such as the filters of LFS, must not affect the test.
        let cmd = Cmd::new("sh")
            .env("PATH", PATH)
            .env("HOME", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        let cmd = cmd.args(["-ec", script]).dir(self.dir.path());
        let identity = ["AUTHOR", "COMMITTER"].into_iter().flat_map(|role| {
            [
                ("NAME", "Ann"),
                ("EMAIL", "ann@example.com"),
                ("DATE", "@1700000000 +0100"),
            ]
            .map(|(what, value)| (format!("GIT_{role}_{what}"), value))
        });
        let output = cmd.envs(identity).output().await.unwrap();
        assert!(output.is_success(), "{script}: {}", output.stderr.text());
        output.stdout.text().trim().to_owned()
    }

    /// Commits files (`path=content`, `-path` removes) in the clone.
    async fn commit(&self, changes: &str) -> CommitSha {
        for change in changes.split_whitespace() {
            if let Some((path, content)) = change.split_once('=') {
                let path = self.path("work").join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, content).unwrap();
            } else {
                std::fs::remove_file(self.path("work").join(&change[1..])).unwrap();
            }
        }
        let id = self.sh("cd work && git add -A && git commit -q --allow-empty -m change && git rev-parse HEAD").await;
        id.parse().unwrap()
    }

    /// Sets a ref on the server to the clone's HEAD: `main` or `refs/pull/12/head`.
    async fn push(&self, name: &str) {
        let name = if name.starts_with("refs/") {
            name.to_owned()
        } else {
            format!("refs/heads/{name}")
        };
        self.sh(&format!(
            "cd work && git push -q --force ../srv/acme/infra.git HEAD:{name}"
        ))
        .await;
    }

    /// Pushes a pull request that changes something. Returns base and head.
    async fn pull(&self, changes: &str) -> (CommitSha, CommitSha) {
        let base = self
            .sh("cd work && git rev-parse main")
            .await
            .parse()
            .unwrap();
        self.sh("cd work && git checkout -q --detach main").await;
        let head = self.commit(changes).await;
        self.push("refs/pull/12/head").await;
        (base, head)
    }

    fn mirror(&self) -> Mirror {
        self.git.mirror(&"github.com/acme/infra".parse().unwrap())
    }

    fn url(&self) -> String {
        format!("{}/acme/infra.git", self.server.url)
    }

    async fn fetch(&self, wanted: Option<&CommitSha>) -> Result<Fetched, GitError> {
        self.fetch_as(PASSWORD, &self.url(), &[main(), pull_ref()], wanted)
            .await
    }

    async fn fetch_as(
        &self,
        password: &str,
        url: &str,
        refs: &[RefName],
        wanted: Option<&CommitSha>,
    ) -> Result<Fetched, GitError> {
        let credentials = GitCredentials::new(USER.into(), Secret::new(password));
        let deadline = Duration::from_mins(1);
        let request = FetchRequest {
            url,
            credentials: Some(&credentials),
            refs,
            wanted,
            deadline,
        };
        self.mirror().fetch(&request).await
    }

    async fn prepare(
        &self,
        (base, head): &(CommitSha, CommitSha),
        strategy: CheckoutStrategy,
    ) -> Result<Prepared, GitError> {
        let workspace = WorkspaceName::default();
        self.mirror()
            .prepare(&CheckoutRequest {
                pull: PULL,
                workspace: &workspace,
                head,
                base,
                strategy,
                extent: &Extent::Whole,
            })
            .await
    }

    /// Fetches and checks out the head of the pull request.
    async fn checkout(&self, commits: &(CommitSha, CommitSha)) -> Checkout {
        assert_eq!(
            self.fetch(Some(&commits.1)).await.unwrap().wanted,
            Head::Present
        );
        ready(
            self.prepare(commits, CheckoutStrategy::Branch)
                .await
                .unwrap(),
        )
    }
}

fn main() -> RefName {
    RefName::new("refs/heads/main").unwrap()
}

fn pull_ref() -> RefName {
    RefName::new("refs/pull/12/head").unwrap()
}

fn ready(prepared: Prepared) -> Checkout {
    match prepared {
        Prepared::Ready(checkout) => checkout,
        Prepared::Conflict { files } => panic!("conflict in {files:?}"),
    }
}

fn read(checkout: &Checkout, path: &str) -> String {
    std::fs::read_to_string(checkout.path.join(path))
        .unwrap_or_else(|error| format!("({:?})", error.kind()))
}

fn path(text: &str) -> RepoPath {
    text.parse().unwrap()
}

/// Returns every file below a directory whose content contains a text.
fn files_with(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_with(&path, text));
        } else if memchr::memmem::find(&std::fs::read(&path).unwrap(), text.as_bytes()).is_some() {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn refs_are_fetched_with_the_right_credentials() {
    let world = World::new().await;
    let (base, head) = world.pull("main.tf=two").await;
    let fetched = world.fetch(Some(&head)).await.unwrap();
    assert_eq!(
        fetched.refs,
        [
            (main(), Some(base.clone())),
            (pull_ref(), Some(head.clone()))
        ]
    );
    assert_eq!(fetched.wanted, Head::Present);
    assert_eq!(
        world.mirror().commit_of(&pull_ref()).await.unwrap(),
        Some(head)
    );
    assert_eq!(
        world
            .mirror()
            .commit_of(&RefName::new("refs/heads/x").unwrap())
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn wrong_credentials_are_told_apart_and_not_repeated() {
    let world = World::new().await;
    let error = world
        .fetch_as("wr0ng-token", &world.url(), &[main()], None)
        .await
        .unwrap_err();
    assert!(matches!(error, GitError::AuthFailed { .. }), "{error}");
    assert!(
        !format!("{error} {error:?}").contains("wr0ng-token"),
        "{error}"
    );
    let request = FetchRequest {
        url: &world.url(),
        credentials: None,
        refs: &[main()],
        wanted: None,
        deadline: Duration::from_mins(1),
    };
    let error = world.mirror().fetch(&request).await.unwrap_err();
    assert!(matches!(error, GitError::AuthFailed { .. }), "{error}");
}

#[tokio::test]
async fn a_repository_or_server_that_is_not_there_is_told_apart() {
    let world = World::new().await;
    let url = format!("{}/acme/none.git", world.server.url);
    let error = world
        .fetch_as(PASSWORD, &url, &[main()], None)
        .await
        .unwrap_err();
    assert!(matches!(error, GitError::NotFound { .. }), "{error}");
    // Port 1 of the loopback interface: nobody listens.
    let error = world
        .fetch_as(PASSWORD, "http://127.0.0.1:1/a/b.git", &[main()], None)
        .await
        .unwrap_err();
    assert!(matches!(error, GitError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn credentials_are_in_no_file_and_no_argument() {
    let world = World::new().await;
    // A git that records the arguments of everything it starts.
    let real = world.sh("command -v git").await;
    let spy = world.path("spy");
    let script = format!(
        "#!/bin/sh\nexport GIT_TRACE={}\nexec {real} \"$@\"\n",
        world.path("trace").display()
    );
    std::fs::write(&spy, script).unwrap();
    std::fs::set_permissions(&spy, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut settings = GitSettings::new(world.path("data"), PATH);
    settings.program = spy.into();
    let world = World {
        git: Git::new(settings),
        ..world
    };
    let commits = world.pull("main.tf=two").await;
    world.checkout(&commits).await;
    let trace = std::fs::read_to_string(world.path("trace")).unwrap();
    assert!(
        trace.contains("fetch") && trace.contains("printf get >&3"),
        "{trace}"
    );
    for part in [PASSWORD, "s3cr3t"] {
        assert_eq!(files_with(world.dir.path(), part), Vec::<PathBuf>::new());
    }
}

/// Simulates a kernel without Landlock. The data directory is empty when the server starts.
#[tokio::test]
async fn git_works_in_namespaces() {
    let world = World::new().await;
    let environment = ChildEnvironment::from_iter([("PATH".into(), PATH.into())]);
    let data = world.path("data");
    let mut settings = GitSettings::new(&data, PATH);
    let namespaces = RunSandbox::new(
        Some(Mechanism::Bubblewrap(bwrap())),
        &environment,
        RunLimits::default(),
    );
    let own = ["mirrors", "checkouts", "tmp"].map(|name| data.join(name));
    for dir in &own {
        std::fs::create_dir_all(dir).unwrap();
    }
    settings.sandbox = namespaces.writes(own).common();
    let world = World {
        git: Git::new(settings),
        ..world
    };
    let first = world.pull("main.tf=two").await;
    let checkout = world.checkout(&first).await;
    assert_eq!(read(&checkout, "main.tf"), "two");
    world.sh("cd work && git checkout -q main").await;
    let base = world.commit("other.tf=three").await;
    world.push("main").await;
    world.fetch(None).await.unwrap();
    let merged = ready(
        world
            .prepare(&(base, first.1), CheckoutStrategy::Merge)
            .await
            .unwrap(),
    );
    assert_eq!(
        (read(&merged, "main.tf"), read(&merged, "other.tf")),
        ("two".to_owned(), "three".to_owned())
    );
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_server() {
    let world = World::new().await;
    let front = GitServer::redirecting_to(&world.server).await;
    let url = format!("{}/acme/infra.git", front.url);
    let error = world
        .fetch_as(PASSWORD, &url, &[main()], None)
        .await
        .unwrap_err();
    assert!(matches!(error, GitError::AuthFailed { .. }), "{error}");
    let log = world.server.log.lock().unwrap();
    assert!(
        !log.authorization.is_empty() && log.authorization.iter().all(Option::is_none),
        "{:?}",
        log.authorization
    );
}

#[tokio::test]
async fn urls_that_could_leak_or_run_something_are_refused() {
    let world = World::new().await;
    for (url, problem) in [
        ("https://me:hunter2@h/a/b.git", "contains credentials"),
        ("ext::sh -c touch% /tmp/x", "not supported"),
        ("file:///srv/x.git", "not supported"),
        ("ssh://h/a/b.git", "not supported"),
        ("--upload-pack=x", "not valid"),
    ] {
        let error = world
            .fetch_as(PASSWORD, url, &[main()], None)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(problem) && !error.contains("hunter2"),
            "{error}"
        );
    }
    let error = world
        .fetch_as("two\nlines", &world.url(), &[main()], None)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("line break") && !error.contains("two"),
        "{error}"
    );
}

#[tokio::test]
async fn a_ref_that_is_gone_on_the_server_is_gone_here() {
    let world = World::new().await;
    world.pull("main.tf=two").await;
    world.fetch(None).await.unwrap();
    world
        .sh("git -C srv/acme/infra.git update-ref -d refs/pull/12/head")
        .await;
    let fetched = world.fetch(None).await.unwrap();
    assert!(fetched.commit_of(&main()).is_some() && fetched.commit_of(&pull_ref()).is_none());
    assert_eq!(fetched.wanted, Head::NotAsked);
    assert_eq!(world.mirror().commit_of(&pull_ref()).await.unwrap(), None);
}

#[tokio::test]
async fn a_forced_push_moves_the_ref_and_the_old_head_can_still_be_asked_for() {
    let world = World::new().await;
    let (_, old) = world.pull("main.tf=old").await;
    let (_, new) = world.pull("main.tf=new").await;
    let fetched = world.fetch(Some(&old)).await.unwrap();
    assert_eq!(fetched.commit_of(&pull_ref()), Some(&new));
    assert_eq!(
        fetched.wanted,
        Head::Present,
        "the server has not cleaned up yet and gives it away by its id"
    );
    let (_, lost) = world.pull("main.tf=lost").await;
    world.pull("main.tf=newest").await;
    world
        .sh("git -C srv/acme/infra.git gc -q --prune=now")
        .await;
    assert_eq!(world.fetch(Some(&lost)).await.unwrap().wanted, Head::Gone);
    assert_eq!(
        world.fetch(Some(&old)).await.unwrap().wanted,
        Head::Present,
        "what is here needs no server"
    );
}

#[tokio::test]
async fn a_branch_may_be_replaced_by_one_below_its_name() {
    let world = World::new().await;
    world.push("release").await;
    let (old, new) = (
        RefName::new("refs/heads/release").unwrap(),
        RefName::new("refs/heads/release/1").unwrap(),
    );
    world
        .fetch_as(PASSWORD, &world.url(), &[old], None)
        .await
        .unwrap();
    world
        .sh("git -C srv/acme/infra.git update-ref -d refs/heads/release")
        .await;
    world.push("release/1").await;
    let fetched = world
        .fetch_as(PASSWORD, &world.url(), std::slice::from_ref(&new), None)
        .await
        .unwrap();
    assert!(fetched.commit_of(&new).is_some());
}

#[tokio::test]
async fn a_damaged_mirror_is_fetched_anew() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    world.checkout(&commits).await;
    let mirror = world.mirror();
    std::fs::write(mirror.dir().join("config"), "[core\n").unwrap();
    let checkout = world.checkout(&commits).await;
    assert!(checkout.fresh);
    assert_eq!(read(&checkout, "main.tf"), "two");
}

/// Git reads the `HEAD` of every worktree when it fetches.
#[tokio::test]
async fn fetches_and_new_checkouts_do_not_disturb_each_other() {
    const CHECKOUTS: i64 = 30;
    let world = World::new().await;
    let (base, head) = world.pull("main.tf=two").await;
    world.fetch(Some(&head)).await.unwrap();
    let workspace = WorkspaceName::default();
    let (done, is_done) = tokio::sync::watch::channel(false);
    let make = async {
        for number in 0..CHECKOUTS {
            let wanted = CheckoutRequest {
                pull: Subject::pull(100 + number),
                workspace: &workspace,
                head: &head,
                base: &base,
                strategy: CheckoutStrategy::Branch,
                extent: &Extent::Whole,
            };
            let checkout = ready(world.mirror().prepare(&wanted).await.unwrap());
            assert_eq!(read(&checkout, "main.tf"), "two");
        }
        done.send(true).unwrap();
    };
    let fetch = async {
        while !*is_done.borrow() {
            // Only a new commit makes git look at the worktrees.
            world.commit("main.tf=three").await;
            world.push("main").await;
            world
                .fetch_as(PASSWORD, &world.url(), &[main()], None)
                .await
                .unwrap();
        }
    };
    tokio::join!(make, fetch);
    assert_eq!(world.mirror().copy(), 0, "a whole mirror was replaced");
    assert!(world.mirror().has_commit(&head).await.unwrap());
}

/// A killed `git worktree add` leaves a record that is locked and has a `HEAD` of zeros.
#[tokio::test]
async fn what_a_killed_worktree_add_left_is_removed_with_the_next_checkout() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    let checkout = world.checkout(&commits).await;
    let admin = world.mirror().dir().join("worktrees/default");
    std::fs::write(admin.join("locked"), "initializing").unwrap();
    std::fs::write(admin.join("HEAD"), format!("{}\n", "0".repeat(40))).unwrap();
    std::fs::remove_dir_all(&checkout.path).unwrap();
    let made = ready(
        world
            .prepare(&commits, CheckoutStrategy::Branch)
            .await
            .unwrap(),
    );
    assert_eq!(read(&made, "main.tf"), "two");
    assert!(!admin.join("locked").exists());
    world.commit("main.tf=three").await;
    world.push("main").await;
    world.fetch(None).await.unwrap();
    assert_eq!(world.mirror().copy(), 0);
}

#[tokio::test]
async fn missing_objects_come_back_with_the_next_fetch() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    world.fetch(None).await.unwrap();
    let blob = world.sh("cd work && git rev-parse HEAD:main.tf").await;
    let (start, rest) = blob.split_at(2);
    let unpack = "for p in objects/pack/*.pack; do mv $p p; rm -f ${p%.pack}.*; git unpack-objects -q < p; done";
    world
        .sh(&format!(
            "cd {} && {unpack} && rm objects/{start}/{rest}",
            world.mirror().dir().display()
        ))
        .await;
    let error = world
        .prepare(&commits, CheckoutStrategy::Branch)
        .await
        .unwrap_err();
    assert!(matches!(error, GitError::Corrupt { .. }), "{error}");
    let away = world
        .fetch_as(
            PASSWORD,
            "http://127.0.0.1:9/acme/infra.git",
            &[main()],
            None,
        )
        .await;
    assert!(
        matches!(away, Err(GitError::Unreachable { .. })),
        "{away:?}"
    );
    assert!(
        world.mirror().has_commit(&commits.0).await.unwrap(),
        "what is left serves until the forge is back"
    );
    assert_eq!(read(&world.checkout(&commits).await, "main.tf"), "two");
    assert!(!world.mirror().is_damaged());
}

#[tokio::test]
async fn lock_files_of_a_killed_git_do_not_stay_in_the_way() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    world.checkout(&commits).await;
    let commits = world.pull("main.tf=three").await;
    let mirror = world.mirror();
    std::fs::write(mirror.dir().join("refs/pull/12/head.lock"), "").unwrap();
    std::fs::write(mirror.dir().join("worktrees/default/index.lock"), "").unwrap();
    std::fs::write(mirror.dir().join("worktrees/default/HEAD.lock"), "").unwrap();
    let checkout = world.checkout(&commits).await;
    assert!(!checkout.fresh);
    assert_eq!(read(&checkout, "main.tf"), "three");
}

#[tokio::test]
async fn the_same_files_are_the_same_tree() {
    let world = World::new().await;
    let (first, again, other) = (
        world.commit("a.tf=one").await,
        world.commit("").await,
        world.commit("a.tf=two").await,
    );
    world.push("main").await;
    world.fetch(Some(&other)).await.unwrap();
    let mirror = world.mirror();
    let tree = async |commit: &CommitSha| mirror.tree_id(commit).await.unwrap();
    assert_ne!(first, again);
    assert_eq!(tree(&first).await, tree(&again).await);
    assert_ne!(tree(&first).await, tree(&other).await);
}

#[tokio::test]
async fn files_that_somebody_made_are_told_from_those_of_runs_and_ignored_ones() {
    let world = World::new().await;
    let commits = world.pull("a/main.tf=x .gitignore=*.log").await;
    let checkout = world.checkout(&commits).await;
    let made = [
        "atlantis.yaml",
        "a/made.tf",
        "a/run.log",
        "a/.terraform/modules/m.tf",
        "a/.terraform.lock.hcl",
    ];
    for file in made
        .into_iter()
        .chain(["a/main.tf", "terraform.tfstate", "odd\nname"])
    {
        let file = checkout.path.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "made").unwrap();
    }
    let untracked = world
        .mirror()
        .untracked(&checkout, IgnoredFiles::LeftOut)
        .await
        .unwrap();
    assert_eq!(untracked.paths, ["a/made.tf", "atlantis.yaml"].map(path));
    assert_eq!((untracked.left_out, untracked.truncated), (1, false));
    let with_ignored = world
        .mirror()
        .untracked(&checkout, IgnoredFiles::Listed)
        .await
        .unwrap();
    assert_eq!(
        with_ignored.paths,
        ["a/made.tf", "a/run.log", "atlantis.yaml"].map(path)
    );
    // A run could have redirected git to another repository.
    std::fs::write(checkout.path.join(".git"), "gitdir: /somewhere/else").unwrap();
    assert!(
        world
            .mirror()
            .untracked(&checkout, IgnoredFiles::LeftOut)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn files_are_listed_and_read_without_a_checkout() {
    let world = World::new().await;
    symlink("main.tf", world.path("work/link")).unwrap();
    std::fs::write(world.path("work").join("line\nbreak"), "x").unwrap();
    let (_, head) = world.pull("a/b.tf=deep [x]=brackets").await;
    world.fetch(Some(&head)).await.unwrap();
    let mirror = world.mirror();
    let files = mirror.files(&head).await.unwrap();
    assert_eq!(files.paths, ["[x]", "a/b.tf", "link", "main.tf"].map(path));
    assert_eq!(files.links, [path("link")]);
    assert_eq!((files.left_out, files.truncated), (1, false));
    let read = async |name: &str, max| mirror.read(&head, &path(name), max).await;
    assert_eq!(read("a/b.tf", 4).await.unwrap().unwrap(), b"deep");
    assert_eq!(read("[x]", 100).await.unwrap().unwrap(), b"brackets");
    assert!(read("none", 100).await.unwrap().is_none());
    assert!(read("a", 100).await.unwrap().is_none());
    assert!(read(".", 100).await.unwrap().is_none());
    assert!(matches!(
        read("a/b.tf", 3).await.unwrap_err(),
        GitError::TooLarge {
            size: 4,
            limit: 3,
            ..
        }
    ));
    assert!(
        read("link", 100)
            .await
            .unwrap_err()
            .to_string()
            .contains("symbolic link")
    );
    assert!(mirror.is_tracked(&head, &path("a")).await.unwrap());
    assert!(!mirror.is_tracked(&head, &path("a/c.tf")).await.unwrap());
    let unknown = "12".repeat(20).parse().unwrap();
    assert!(matches!(
        mirror.files(&unknown).await.unwrap_err(),
        GitError::NotFound { .. }
    ));
}

#[tokio::test]
async fn what_a_branch_changes_is_compared_with_where_it_left_its_base() {
    let world = World::new().await;
    world
        .commit("a/main.tf=old b/main.tf=old moved/x.tf=same")
        .await;
    world.push("main").await;
    std::fs::create_dir(world.path("work/net")).unwrap();
    std::fs::write(world.path("work/net").join("line\nbreak.tf"), "x").unwrap();
    let (_, head) = world
        .pull("a/main.tf=new -b/main.tf -moved/x.tf here/x.tf=same")
        .await;
    world.sh("cd work && git checkout -q main").await;
    let base = world.commit("main.tf=newer a/main.tf=newer").await;
    world.push("main").await;
    world.fetch(Some(&head)).await.unwrap();
    let changed = async |base: &CommitSha, head: &CommitSha| {
        let changes = world.mirror().changed(base, head).await.unwrap().unwrap();
        changes
            .files
            .iter()
            .map(|file| format!("{} {}", file.kind, file.path))
            .collect::<Vec<_>>()
            .join(", ")
    };
    assert_eq!(
        changed(&base, &head).await,
        "modified a/main.tf, removed b/main.tf, added here/x.tf, removed moved/x.tf, added net/line\u{FFFD}break.tf"
    );
    assert_eq!(changed(&head, &head).await, "");
    let left_at = world
        .mirror()
        .changed(&base, &head)
        .await
        .unwrap()
        .unwrap()
        .left_at;
    let merged = async |dirs: &[&str], most| {
        let dirs: Vec<RepoPath> = dirs.iter().map(|dir| path(dir)).collect();
        let merged = world
            .mirror()
            .merged_between((&left_at, &base), &dirs, most)
            .await
            .unwrap();
        merged
            .into_iter()
            .map(|commit| (commit.commit, commit.title))
            .collect::<Vec<_>>()
    };
    let newest = vec![(base.clone(), "change".to_owned())];
    assert_eq!(merged(&["net", "a"], 3).await, newest);
    assert_eq!(merged(&["*", "net"], 3).await, [], "a name is no pattern");
    assert_eq!(
        merged(&[".", "net"], 3).await,
        newest,
        "the root is everything"
    );
    assert_eq!(merged(&["a"], 0).await, []);
    world
        .sh("cd work && git checkout -q --orphan alone && git rm -q -rf .")
        .await;
    let alone = world.commit("c/main.tf=new").await;
    world.push("refs/pull/12/head").await;
    world.fetch(Some(&alone)).await.unwrap();
    assert!(
        changed(&base, &alone)
            .await
            .ends_with("added c/main.tf, removed main.tf, removed moved/x.tf")
    );
}

#[tokio::test]
async fn a_checkout_is_exactly_at_the_head() {
    let world = World::new().await;
    let commits = world.pull("a/main.tf=two -main.tf").await;
    let checkout = world.checkout(&commits).await;
    assert!(checkout.fresh && !checkout.merged);
    assert_eq!(
        (&checkout.commit, &checkout.base, &checkout.head),
        (&commits.1, &commits.0, &commits.1)
    );
    assert_eq!(
        (read(&checkout, "a/main.tf"), read(&checkout, "main.tf")),
        ("two".into(), "(NotFound)".into())
    );
    let status = world
        .sh(&format!(
            "cd {} && git rev-parse HEAD && git status --short",
            checkout.path.display()
        ))
        .await;
    assert_eq!(status, commits.1.to_string());
}

#[tokio::test]
async fn a_commit_that_was_not_fetched_is_an_error_that_says_so() {
    let world = World::new().await;
    world.fetch(None).await.unwrap();
    let never: CommitSha = "12".repeat(20).parse().unwrap();
    let error = world
        .prepare(&(never.clone(), never), CheckoutStrategy::Branch)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, GitError::NotFound { .. }) && error.to_string().contains("fetched first"),
        "{error}"
    );
}

#[tokio::test]
async fn a_checkout_is_used_again_and_only_states_stay_for_another_commit() {
    let world = World::new().await;
    let commits = world
        .pull("main.tf=two dir/x.tf=x old.tf=o net.tfstate/main.tf=net")
        .await;
    let checkout = world.checkout(&commits).await;
    let write = |name: &str| {
        std::fs::create_dir_all(checkout.path.join(name).parent().unwrap()).unwrap();
        std::fs::write(checkout.path.join(name), "left").unwrap();
    };
    let kept = [
        "terraform.tfstate",
        "x.tfstate.backup",
        "dir/terraform.tfstate.d/eu/terraform.tfstate",
        "dir/.terragrunt-cache/1/2/terraform.tfstate",
    ];
    let dropped = [
        "generated.tf",
        "default.tfplan",
        "cloned/.git/HEAD",
        "dir/.git/config",
        "dir/.terraform/modules/a/.git/HEAD",
        "dir/.terraform/terraform.tfstate",
        "dir/.terraform.lock.hcl",
        "dir/.terragrunt-cache/1/2/.git/HEAD",
        "dir/.terragrunt-cache/1/2/main.tf",
        // Tools would load these as code.
        "dir/x.tfstate.z_override.tf",
        "x.tfstate.auto.tfvars",
        "dir/evil.tfstate/main.tf",
        "dir/terraform.tfstate.d/eu/main.tf",
        "net.tfstate/z_override.tf",
    ];
    kept.into_iter().chain(dropped).for_each(write);
    write("now-tracked.tf");
    write("main.tf");

    let again = world.checkout(&commits).await;
    assert!(!again.fresh);
    assert_eq!(read(&again, "main.tf"), "two", "tracked files are reset");
    assert_eq!(
        read(&again, "generated.tf"),
        "left",
        "the commit is the same, so files made from it stay"
    );

    let commits = world
        .pull("main.tf=two dir/x.tf=x now-tracked.tf=theirs renamed.tf=o net.tfstate/main.tf=net")
        .await;
    let moved = world.checkout(&commits).await;
    assert!(!moved.fresh);
    assert_eq!(kept.map(|name| read(&moved, name)), ["left"; 4]);
    for gone in dropped.into_iter().chain(["old.tf"]) {
        assert_eq!(read(&moved, gone), "(NotFound)", "{gone}");
    }
    assert_eq!(
        ["now-tracked.tf", "renamed.tf", "net.tfstate/main.tf"].map(|name| read(&moved, name)),
        ["theirs", "o", "net"]
    );
}

#[tokio::test]
async fn a_change_hidden_by_an_index_flag_is_undone() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    let checkout = world.checkout(&commits).await;
    let dir = checkout.path.display();
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        world
            .sh(&format!(
                "cd {dir} && git update-index {flag} main.tf && echo evil > main.tf"
            ))
            .await;
        let again = world.checkout(&commits).await;
        assert_eq!(
            (read(&again, "main.tf"), again.fresh),
            ("two".into(), false),
            "{flag}"
        );
    }
}

/// Identity of a file: another number or time means that it was written again.
fn identity(checkout: &Checkout, path: &str) -> (u64, i64, i64) {
    use std::os::unix::fs::MetadataExt as _;
    let meta = checkout.path.join(path).symlink_metadata().unwrap();
    (meta.ino(), meta.ctime(), meta.ctime_nsec())
}

#[tokio::test]
async fn only_files_that_differ_are_written() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two app/app.tf=one").await;
    let first = world.checkout(&commits).await;
    let [main, app] = ["main.tf", "app/app.tf"].map(|file| identity(&first, file));
    let again = world.checkout(&commits).await;
    assert_eq!(
        ["main.tf", "app/app.tf"].map(|file| identity(&again, file)),
        [main, app]
    );
    let next = world.pull("main.tf=three app/app.tf=one new.tf=new").await;
    let moved = world.checkout(&next).await;
    assert_eq!(
        ["main.tf", "app/app.tf", "new.tf"].map(|file| read(&moved, file)),
        ["three", "one", "new"]
    );
    assert_eq!((identity(&moved, "app/app.tf"), moved.fresh), (app, false));
    let back = world.checkout(&commits).await;
    assert_eq!(
        ["main.tf", "app/app.tf", "new.tf"].map(|file| read(&back, file)),
        ["two", "one", "(NotFound)"]
    );
}

#[tokio::test]
async fn no_trick_of_a_run_hides_a_changed_file() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two app/app.tf=one").await;
    let next = world.pull("main.tf=three app/app.tf=one").await;
    let tricks = [
        (
            "the same size and the old time of change",
            "cp -p app/app.tf old && printf two > app/app.tf && touch -r old app/app.tf && rm old",
        ),
        (
            "another file in its place, with its times",
            "cp -p app/app.tf old && printf two > other && touch -r old other && mv other app/app.tf && rm old",
        ),
        (
            "a link in its place",
            "printf one > target && ln -sf ../target app/app.tf",
        ),
        (
            "a link in place of its directory",
            "mv app elsewhere && ln -s elsewhere app",
        ),
        (
            "a flag in the index",
            "printf two > app/app.tf && git update-index --assume-unchanged app/app.tf",
        ),
        (
            "another flag in the index",
            "printf two > app/app.tf && git update-index --skip-worktree app/app.tf",
        ),
        (
            "another object in the index",
            "printf two > app/app.tf && git add app/app.tf",
        ),
        (
            "no index",
            "printf two > app/app.tf && rm $(git rev-parse --git-dir)/index",
        ),
        (
            "a broken index",
            "printf two > app/app.tf && echo broken > $(git rev-parse --git-dir)/index",
        ),
        (
            "a pipe in place of the index",
            "printf two > app/app.tf && cd $(git rev-parse --git-dir) && rm index && mkfifo index",
        ),
        ("more right to run it", "chmod +x app/app.tf"),
    ];
    for (what, script) in tricks {
        for then in [&commits, &next] {
            let before = world.checkout(&commits).await;
            let dir = before.path.display();
            world.sh(&format!("cd {dir} && {script}")).await;
            let after = world.checkout(then).await;
            let main = if then == &commits { "two" } else { "three" };
            assert_eq!(
                ["main.tf", "app/app.tf"].map(|file| read(&after, file)),
                [main, "one"],
                "{what}"
            );
            let app = after.path.join("app/app.tf");
            let mode = std::os::unix::fs::PermissionsExt::mode(
                &app.symlink_metadata().unwrap().permissions(),
            );
            assert!(app.symlink_metadata().unwrap().is_file(), "{what}");
            assert!(
                after.path.join("app").symlink_metadata().unwrap().is_dir(),
                "{what}"
            );
            assert_eq!(mode & 0o111, 0, "{what}");
        }
    }
}

#[tokio::test]
async fn a_text_that_git_would_take_for_the_same_is_undone() {
    let world = World::new().await;
    world
        .sh("cd work && echo 'id.tf ident' > .gitattributes")
        .await;
    let commits = world.pull("id.tf=$Id$ main.tf=one").await;
    let first = world.checkout(&commits).await;
    let id = read(&first, "id.tf");
    assert!(id.starts_with("$Id: ") && id.len() > 40, "{id}");
    let dir = first.path.display();
    world
        .sh(&format!("cd {dir} && printf '$Id: evil $' > id.tf"))
        .await;
    let again = world.checkout(&commits).await;
    assert_eq!(read(&again, "id.tf"), id);
}

/// Damage of a checkout.
type Damage<'a> = Box<dyn Fn() + 'a>;

#[tokio::test]
async fn a_broken_checkout_is_made_anew() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    let first = world.checkout(&commits).await;
    let admin = world.mirror().dir().join("worktrees/default");
    let other = world.path("work/.git").display().to_string();
    let breaks: [(&str, Damage); 6] = [
        (
            "the file .git is missing",
            Box::new(|| std::fs::remove_file(first.path.join(".git")).unwrap()),
        ),
        (
            "the file .git leads elsewhere",
            Box::new(|| {
                std::fs::write(first.path.join(".git"), format!("gitdir: {other}\n")).unwrap();
            }),
        ),
        (
            "the administrative directory is missing",
            Box::new(|| std::fs::remove_dir_all(&admin).unwrap()),
        ),
        (
            "the directory is half deleted",
            Box::new(|| std::fs::remove_dir_all(&first.path).unwrap()),
        ),
        (
            "git was killed while it made the worktree",
            Box::new(|| {
                std::fs::remove_dir_all(&first.path).unwrap();
                std::fs::write(admin.join("locked"), "initializing").unwrap();
            }),
        ),
        (
            "git was killed while it moved the worktree",
            Box::new(|| {
                std::fs::write(first.path.join("of-another-commit.tf"), "x").unwrap();
                std::fs::write(first.path.parent().unwrap().join(".unfinished/default"), "")
                    .unwrap();
            }),
        ),
    ];
    for (what, damage) in breaks {
        let state = first.path.join("app/terraform.tfstate");
        std::fs::create_dir_all(state.parent().unwrap()).unwrap();
        std::fs::write(&state, "what was built").unwrap();
        damage();
        let is_there = state.exists();
        let checkout = world.checkout(&commits).await;
        assert!(checkout.fresh, "{what}");
        assert_eq!(
            (
                read(&checkout, "main.tf"),
                read(&checkout, "of-another-commit.tf")
            ),
            ("two".into(), "(NotFound)".into()),
            "{what}"
        );
        assert_eq!(
            state.exists(),
            is_there,
            "{what}: nobody could make it anew"
        );
        assert!(!world.checkout(&commits).await.fresh, "{what}: whole again");
    }
}

#[tokio::test]
async fn merging_is_deterministic_and_keeps_both_sides() {
    let world = World::new().await;
    let (_, head) = world.pull("pull.tf=p").await;
    world.sh("cd work && git checkout -q main").await;
    let base = world.commit("base.tf=b").await;
    world.push("main").await;
    let commits = (base, head);
    world.fetch(Some(&commits.1)).await.unwrap();
    let merged = ready(
        world
            .prepare(&commits, CheckoutStrategy::Merge)
            .await
            .unwrap(),
    );
    assert!(merged.merged);
    assert_eq!(
        ["base.tf", "pull.tf", "main.tf"].map(|name| read(&merged, name)),
        ["b", "p", "one"]
    );
    let log = world
        .sh(&format!(
            "cd {} && git show -s --format='%P|%an|%cn|%ct' HEAD",
            merged.path.display()
        ))
        .await;
    assert_eq!(
        log,
        format!(
            "{} {}|Lockkeeper|Lockkeeper|1700000000",
            commits.0, commits.1
        )
    );
    let object = merged.commit.as_str().split_at(2);
    let object = world
        .path("data/mirrors/github.com/acme/infra.git/objects")
        .join(object.0)
        .join(object.1);
    for is_pruned in [false, true] {
        world.mirror().remove_pull(PULL).await.unwrap();
        if is_pruned {
            std::fs::remove_file(&object).unwrap();
        }
        let again = ready(
            world
                .prepare(&commits, CheckoutStrategy::Merge)
                .await
                .unwrap(),
        );
        assert!(again.fresh);
        assert_eq!(again.commit, merged.commit);
        assert!(object.exists());
    }
}

#[tokio::test]
async fn a_merge_conflict_names_the_files_and_changes_nothing() {
    let world = World::new().await;
    let (_, head) = world.pull("main.tf=theirs other.tf=x").await;
    world.sh("cd work && git checkout -q main").await;
    let base = world.commit("main.tf=ours").await;
    world.push("main").await;
    world.fetch(Some(&head)).await.unwrap();
    match world
        .prepare(&(base, head), CheckoutStrategy::Merge)
        .await
        .unwrap()
    {
        Prepared::Conflict { files } => assert_eq!(files, ["main.tf"]),
        Prepared::Ready(checkout) => panic!("{checkout:?}"),
    }
    assert!(
        !world
            .path("data/checkouts/github.com/acme/infra/12/default")
            .exists()
    );
}

#[tokio::test]
async fn a_directory_that_leaves_through_a_link_is_refused() {
    let world = World::new().await;
    symlink("/etc", world.path("work/out")).unwrap();
    symlink("real", world.path("work/in")).unwrap();
    let commits = world.pull("real/a/main.tf=x").await;
    let checkout = world.checkout(&commits).await;
    let resolve = |dir: &str| checkout.resolve_dir(&path(dir));
    assert_eq!(
        resolve("in/a").unwrap(),
        checkout.path.canonicalize().unwrap().join("real/a")
    );
    assert_eq!(resolve(".").unwrap(), checkout.path.canonicalize().unwrap());
    assert_eq!(resolve("out").unwrap_err(), DirError::Leaves(path("out")));
    assert_eq!(
        resolve("none").unwrap_err(),
        DirError::Missing(path("none"))
    );
    assert_eq!(
        resolve("main.tf").unwrap_err(),
        DirError::NotADirectory(path("main.tf"))
    );
}

#[tokio::test]
async fn nothing_of_a_repository_runs() {
    let world = World::new().await;
    // Attributes that a repository can contain. The configuration below is what a run could have left in the mirror.
    std::fs::write(
        world.path("work/.gitattributes"),
        "*.tf filter=lfs merge=evil diff=evil\n",
    )
    .unwrap();
    std::fs::write(
        world.path("work/.gitmodules"),
        "[submodule \"s\"]\n\tpath = s\n\turl = ../x.git\n",
    )
    .unwrap();
    let commits = world.pull("hooks/post-checkout=x").await;
    world.checkout(&commits).await;
    let mirror = world.mirror();
    let ran = world.path("ran");
    let script = format!("#!/bin/sh\necho $0 >> {}\n", ran.display());
    std::fs::create_dir_all(mirror.dir().join("hooks")).unwrap();
    for hook in [
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "fsmonitor-watchman",
        "pre-auto-gc",
    ] {
        let file = mirror.dir().join("hooks").join(hook);
        std::fs::write(&file, &script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let hooks = mirror.dir().join("hooks");
    world
        .sh(&format!(
            "cd {} && git config core.hooksPath {1} && git config core.fsmonitor {1}/fsmonitor-watchman",
            mirror.dir().display(),
            hooks.display()
        ))
        .await;
    let commits = world.pull("main.tf=three").await;
    let checkout = world.checkout(&commits).await;
    // A mirror with foreign configuration was replaced, together with its checkouts.
    assert_eq!(
        (read(&checkout, "main.tf"), checkout.fresh),
        ("three".into(), true)
    );
    world.mirror().remove_pull(PULL).await.unwrap();
    assert!(world.checkout(&commits).await.fresh);
    world.mirror().maintain().await.unwrap();
    assert!(
        !ran.exists(),
        "{}",
        std::fs::read_to_string(&ran).unwrap_or_default()
    );
}

#[tokio::test]
async fn a_checkout_in_use_is_neither_changed_nor_removed() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    let checkout = world.checkout(&commits).await;
    let run = FileHold::exclusive(&checkout.hold, Duration::ZERO)
        .await
        .unwrap();
    let busy = world
        .prepare(&commits, CheckoutStrategy::Branch)
        .await
        .unwrap_err();
    assert!(matches!(busy, GitError::Busy { .. }), "{busy}");
    let busy = world.mirror().remove_pull(PULL).await.unwrap_err();
    assert!(matches!(busy, GitError::Busy { .. }), "{busy}");
    assert_eq!(read(&checkout, "main.tf"), "two");
    drop(run);
    world
        .mirror()
        .remove(PULL, &WorkspaceName::default())
        .await
        .unwrap();
    assert!(!checkout.path.exists());
    world.mirror().remove_pull(PULL).await.unwrap();
    world.mirror().remove_pull(PULL).await.unwrap();
    assert!(!checkout.path.parent().unwrap().exists());
}

#[tokio::test]
async fn callers_at_the_same_time_do_not_disturb_each_other() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    let one = async |number: i64| {
        world.fetch(Some(&commits.1)).await.unwrap();
        let workspace = WorkspaceName::default();
        let (pull, strategy) = (Subject::pull(number), CheckoutStrategy::Merge);
        let wanted = CheckoutRequest {
            pull,
            workspace: &workspace,
            head: &commits.1,
            base: &commits.0,
            strategy,
            extent: &Extent::Whole,
        };
        ready(world.mirror().prepare(&wanted).await.unwrap()).commit
    };
    let all = futures::future::join_all((1..=6).map(one)).await;
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn a_server_that_does_not_answer_runs_into_the_deadline() {
    let world = World::new().await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a/b.git", silent.local_addr().unwrap());
    let deadline = Duration::from_millis(500);
    let request = FetchRequest {
        url: &url,
        credentials: None,
        refs: &[main()],
        wanted: None,
        deadline,
    };
    let error = world.mirror().fetch(&request).await.unwrap_err();
    assert!(matches!(error, GitError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn files_are_a_transport_only_where_that_is_allowed() {
    let world = World::new().await;
    let mut settings = GitSettings::new(world.path("data"), PATH);
    settings.allow_file = true;
    let world = World {
        git: Git::new(settings),
        ..world
    };
    let url = format!("file://{}", world.path("srv/acme/infra.git").display());
    let fetched = world
        .fetch_as(PASSWORD, &url, &[main()], None)
        .await
        .unwrap();
    assert!(fetched.commit_of(&main()).is_some());
}

#[tokio::test]
async fn the_version_of_git_is_known() {
    let world = World::new().await;
    assert!(
        world
            .git
            .version()
            .await
            .unwrap()
            .starts_with(char::is_numeric)
    );
}

/// Changes by attributes of the commit do not count as changes of its files. All other changes do.
#[tokio::test]
async fn files_of_a_checkout_are_compared_with_the_commit() {
    let world = World::new().await;
    std::fs::create_dir_all(world.path("work/dir")).unwrap();
    std::fs::write(
        world.path("work/.gitattributes"),
        "*.crlf text eol=crlf\n*.id ident\n",
    )
    .unwrap();
    std::fs::write(world.path("work/dir/a.crlf"), "one\ntwo\n").unwrap();
    std::fs::write(world.path("work/b.id"), "$Id$\n").unwrap();
    world
        .sh("cd work && ln -s dir/a.crlf link && printf '#!/bin/sh\\n' >tool && chmod +x tool")
        .await;
    let commits = world.pull("main.tf=two").await;
    let checkout = world.checkout(&commits).await;
    assert_eq!(
        std::fs::read_to_string(checkout.path.join("dir/a.crlf")).unwrap(),
        "one\r\ntwo\r\n"
    );
    let merged = ready(
        world
            .prepare(&commits, CheckoutStrategy::Merge)
            .await
            .unwrap(),
    );
    assert!(merged.merged);

    // Attributes that a run has left would let git accept other bytes as those of the commit.
    let left = merged.path.join("dir/.gitattributes");
    std::fs::write(&left, "a.crlf ident\n").unwrap();
    let error = world
        .prepare(&commits, CheckoutStrategy::Merge)
        .await
        .unwrap_err();
    assert!(
        matches!(error, GitError::Altered { .. })
            && error.to_string().contains("`dir/.gitattributes`"),
        "{error}"
    );
    std::fs::remove_file(&left).unwrap();
    let checkout = world.checkout(&commits).await;

    // A worktree with a redirected repository is created again, and git never reads the other repository.
    let admin = std::fs::read_to_string(checkout.path.join(".git")).unwrap();
    let admin = PathBuf::from(admin.trim_start_matches("gitdir: ").trim());
    std::fs::write(admin.join("commondir"), "../../../evil.git\n").unwrap();
    let again = ready(
        world
            .prepare(&commits, CheckoutStrategy::Branch)
            .await
            .unwrap(),
    );
    assert!(again.fresh);
}

#[tokio::test]
async fn git_is_not_called_on_a_mirror_that_somebody_else_configured() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    world.checkout(&commits).await;
    let (mirror, mark) = (world.mirror(), world.path("mark"));
    let config = std::fs::read_to_string(mirror.dir().join("config")).unwrap();
    let evil = format!(
        "{config}[core]\n\talternateRefsCommand = \"touch {}; :\"\n",
        mark.display()
    );
    for (file, content) in [
        ("config", evil.as_str()),
        ("info/attributes", "* filter=x\n"),
        ("commondir", "/tmp\n"),
    ] {
        std::fs::create_dir_all(mirror.dir().join("info")).unwrap();
        std::fs::write(mirror.dir().join(file), content).unwrap();
        let error = world
            .prepare(&commits, CheckoutStrategy::Branch)
            .await
            .unwrap_err();
        assert!(matches!(error, GitError::Altered { .. }), "{error}");
        assert!(
            error.to_string().contains(&format!("`{file}`")) && mirror.is_damaged(),
            "{error}"
        );
        for error in [
            mirror.refs().await.unwrap_err(),
            mirror.files(&commits.1).await.unwrap_err(),
        ] {
            assert!(matches!(error, GitError::Altered { .. }), "{error}");
        }
        // The next fetch replaces the mirror.
        world.checkout(&commits).await;
        assert!(!mirror.is_damaged() && !mark.exists());
        assert_eq!(
            std::fs::read_to_string(mirror.dir().join("config")).unwrap(),
            config
        );
    }
}
