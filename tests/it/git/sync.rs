//! Tests of mirrors that are in sync with their forge.

use lockkeeper::git::{RefList, RefSelection, Remote, Synced};

use super::*;

/// Returns a selection of all branches and the pull request.
fn selection() -> RefSelection {
    RefSelection {
        branches: true,
        pulls: [pull_ref()].into(),
    }
}

fn names(refs: &RefList) -> Vec<&str> {
    refs.iter().map(|(name, _)| name.as_str()).collect()
}

fn credentials() -> GitCredentials {
    GitCredentials::new(USER.into(), Secret::new(PASSWORD))
}

impl World {
    /// Creates a world whose git runs a script first and then the real git.
    async fn with_script_before_git(script: &str) -> Self {
        let world = Self::new().await;
        let (real, file) = (world.sh("command -v git").await, world.path("git.sh"));
        std::fs::write(
            &file,
            format!(
                "#!/bin/sh\ncd {}\n{script}\nexec {real} \"$@\"\n",
                world.dir.path().display()
            ),
        )
        .unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut settings = GitSettings::new(world.path("data"), PATH);
        settings.program = file.into();
        Self {
            git: Git::new(settings),
            ..world
        }
    }

    async fn sync(&self) -> Result<Synced, GitError> {
        self.sync_from(&self.url(), &selection()).await
    }

    async fn sync_from(&self, url: &str, wanted: &RefSelection) -> Result<Synced, GitError> {
        let credentials = credentials();
        let remote = Remote {
            url,
            credentials: Some(&credentials),
            deadline: Duration::from_mins(1),
        };
        self.mirror().sync(&remote, wanted).await
    }

    async fn rebuild_from(&self, url: &str) -> Result<Synced, GitError> {
        let credentials = credentials();
        let remote = Remote {
            url,
            credentials: Some(&credentials),
            deadline: Duration::from_mins(1),
        };
        self.mirror().rebuild(&remote, &selection()).await
    }

    async fn advertised(&self) -> RefList {
        let (url, credentials) = (self.url(), credentials());
        let remote = Remote {
            url: &url,
            credentials: Some(&credentials),
            deadline: Duration::from_mins(1),
        };
        self.mirror()
            .advertised(&remote, &selection())
            .await
            .unwrap()
    }

    /// Syncs, and checks that mirror and forge agree.
    async fn in_step(&self) -> Synced {
        let synced = self.sync().await.unwrap();
        let advertised = self.advertised().await;
        assert_eq!(synced.refs, advertised);
        let refs = self.mirror().refs().await.unwrap();
        assert_eq!(
            (refs.checksum(), refs.len()),
            (advertised.checksum(), advertised.len())
        );
        self.mirror().check_connectivity().await.unwrap();
        assert_eq!(self.leftovers(), Vec::<String>::new());
        synced
    }

    async fn server(&self, git: &str) -> String {
        self.sh(&format!("git -C srv/acme/infra.git {git}")).await
    }

    /// Returns the files beside the mirror, and the leftovers of a killed git in it.
    fn leftovers(&self) -> Vec<String> {
        let mirror = self.mirror();
        let file_names = |dir: &Path| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries
                .map(|entry| entry.file_name().into_string().unwrap())
                .collect::<Vec<_>>()
        };
        let beside = file_names(mirror.dir().parent().unwrap())
            .into_iter()
            .filter(|name| name != "infra.git");
        let parts = file_names(&mirror.dir().join("objects/pack"))
            .into_iter()
            .filter(|name| name.starts_with("tmp_"));
        beside.chain(parts).collect()
    }

    /// Removes the object of a file at a commit from the mirror.
    async fn lose(&self, file: &str, commit: &CommitSha) {
        let blob = self
            .sh(&format!("cd work && git rev-parse {commit}:{file}"))
            .await;
        let (start, rest) = blob.split_at(2);
        let unpack = "for p in objects/pack/*.pack; do mv $p p; rm -f ${p%.pack}.*; git unpack-objects -q < p; done";
        self.sh(&format!(
            "cd {} && {unpack} && rm -f p objects/{start}/{rest}",
            self.mirror().dir().display()
        ))
        .await;
    }
}

#[tokio::test]
async fn a_mirror_has_exactly_the_refs_that_are_wanted() {
    let world = World::new().await;
    let (base, head) = world.pull("main.tf=two").await;
    for name in [
        "feature/a",
        "refs/pull/12/merge",
        "refs/pull/13/head",
        "refs/tags/v1",
        "refs/notes/x",
    ] {
        world.push(name).await;
    }
    let synced = world.in_step().await;
    assert_eq!(
        names(&synced.refs),
        [
            "refs/heads/feature/a",
            "refs/heads/main",
            "refs/pull/12/head"
        ]
    );
    let asked = world.server.log.lock().unwrap().asked_for_refs.clone();
    let is_narrow = |text: &String| {
        text.matches("ref-prefix").count() == 2 && text.contains("ref-prefix refs/pull/12/head\n")
    };
    assert!(asked.len() >= 2 && asked.iter().all(is_narrow), "{asked:?}");
    assert_eq!(
        (synced.refs.get(&main()), synced.refs.get(&pull_ref())),
        (Some(&base), Some(&head))
    );
    assert!(synced.changed == 3 && synced.bytes > 0, "{synced:?}");
    let again = world.in_step().await;
    assert_eq!((again.changed, again.bytes), (0, 0));
    let none = world
        .sync_from(&world.url(), &RefSelection::default())
        .await
        .unwrap();
    assert_eq!((none.refs.len(), none.changed), (0, 3));
    assert!(world.mirror().refs().await.unwrap().is_empty());
}

#[tokio::test]
async fn without_a_mirror_there_are_no_refs_and_nothing_is_broken() {
    let world = World::new().await;
    assert!(world.mirror().refs().await.unwrap().is_empty());
    world.mirror().check_connectivity().await.unwrap();
    assert_eq!(names(&world.advertised().await), ["refs/heads/main"]);
    assert!(!world.mirror().dir().exists());
}

#[tokio::test]
async fn forced_pushes_deleted_branches_and_names_in_the_way_are_followed() {
    let world = World::new().await;
    world.push("release").await;
    world.push("a/b/c").await;
    world.pull("main.tf=old").await;
    world.in_step().await;
    let (_, new) = world.pull("main.tf=new").await;
    world.server("update-ref -d refs/heads/release").await;
    world.server("update-ref -d refs/heads/a/b/c").await;
    for name in ["main", "release/1", "release/2", "a"] {
        world.push(name).await;
    }
    let synced = world.in_step().await;
    assert_eq!(
        names(&synced.refs),
        [
            "refs/heads/a",
            "refs/heads/main",
            "refs/heads/release/1",
            "refs/heads/release/2",
            "refs/pull/12/head"
        ]
    );
    assert!(synced.refs.iter().all(|(_, id)| *id == new));
    world.server("pack-refs --all").await;
    world.server("update-ref -d refs/heads/release/1").await;
    world.server("update-ref -d refs/heads/release/2").await;
    world.push("release").await;
    world
        .sh(&format!(
            "cd {} && git pack-refs --all",
            world.mirror().dir().display()
        ))
        .await;
    assert_eq!(world.in_step().await.changed, 3);
}

#[tokio::test]
async fn thousands_of_refs_come_in_one_exchange() {
    let world = World::new().await;
    let script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); \
                  printf 'commit refs/heads/team/%s\\ncommitter A <a@b> %s +0000\\ndata 1\\nx\\nfrom refs/heads/main\\nM 644 \
                  inline f\\ndata <<E\\n%s\\nE\\n\\n' $i $i $i; done | git -C srv/acme/infra.git fast-import --quiet";
    world.sh(script).await;
    world.server("pack-refs --all").await;
    let synced = world.in_step().await;
    assert_eq!((synced.refs.len(), synced.changed), (3001, 3001));
    let requests = world.server.log.lock().unwrap().authorization.len();
    assert!(requests < 20, "{requests}");
    world
        .sh("git -C srv/acme/infra.git for-each-ref --format='delete %(refname)' refs/heads/team/1* | \
              git -C srv/acme/infra.git update-ref --stdin")
        .await;
    let left = world
        .server("for-each-ref refs/heads | wc -l")
        .await
        .trim()
        .parse::<usize>()
        .unwrap();
    assert_eq!(world.in_step().await.refs.len(), left);
    // As many lock files as a git leaves behind that is killed after it has locked all refs.
    let dir = world.mirror().dir().join("refs/heads/team");
    std::fs::create_dir_all(&dir).unwrap();
    (1..=3000).for_each(|n| std::fs::write(dir.join(format!("{n}.lock")), "").unwrap());
    world
        .server(
            "for-each-ref --format='delete %(refname)' refs/heads/team | git -C srv/acme/infra.git update-ref --stdin",
        )
        .await;
    assert_eq!(names(&world.in_step().await.refs), ["refs/heads/main"]);
}

#[tokio::test]
async fn a_commit_that_is_replaced_before_it_is_fetched_is_asked_for_again() {
    let script = "case \"$*\" in fetch*) if [ ! -e moved ]; then touch moved; (unset GIT_DIR; \
                  git -C srv/acme/infra.git update-ref refs/heads/main refs/hidden/later; \
                  git -C srv/acme/infra.git update-ref -d refs/hidden/later; \
                  git -C srv/acme/infra.git gc -q --prune=now); fi;; esac";
    let world = World::with_script_before_git(script).await;
    let first = world.commit("main.tf=replaced").await;
    world.push("main").await;
    world.sh("cd work && git reset -q --hard HEAD~1").await;
    let later = world.commit("main.tf=later").await;
    world.push("refs/hidden/later").await;
    let synced = world.sync().await.unwrap();
    assert_ne!(first, later);
    assert_eq!(synced.refs.get(&main()), Some(&later));
}

#[tokio::test]
async fn a_ref_that_was_fetched_on_demand_goes_with_the_next_synchronisation_and_its_checkout_stays()
 {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    let branches = RefSelection {
        branches: true,
        ..RefSelection::default()
    };
    world.sync_from(&world.url(), &branches).await.unwrap();
    world.checkout(&commits).await;
    assert_eq!(
        names(&world.mirror().refs().await.unwrap()),
        ["refs/heads/main", "refs/pull/12/head"]
    );
    assert_eq!(
        world.mirror().refs().await.unwrap().selected(&branches),
        world.advertised().await.selected(&branches)
    );
    world.sync_from(&world.url(), &branches).await.unwrap();
    assert_eq!(
        names(&world.mirror().refs().await.unwrap()),
        ["refs/heads/main"]
    );
    world.mirror().maintain().await.unwrap();
    let again = ready(
        world
            .prepare(&commits, CheckoutStrategy::Branch)
            .await
            .unwrap(),
    );
    assert_eq!(
        (again.fresh, read(&again, "main.tf")),
        (false, "two".to_owned())
    );
}

#[tokio::test]
async fn lost_objects_are_noticed_and_a_fresh_clone_takes_the_place_of_the_mirror() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    world.in_step().await;
    world.checkout(&commits).await;
    world.lose("main.tf", &commits.1).await;
    let damage = world.mirror().check_connectivity().await.unwrap_err();
    assert!(matches!(damage, GitError::Corrupt { .. }), "{damage}");
    assert_eq!(
        world.sync().await.unwrap().changed,
        0,
        "the refs alone do not show it"
    );
    world
        .mirror()
        .touch(None, chrono::DateTime::UNIX_EPOCH)
        .unwrap();
    let rebuilt = world.rebuild_from(&world.url()).await.unwrap();
    assert_eq!(
        (rebuilt.refs.clone(), rebuilt.changed),
        (world.advertised().await, 2)
    );
    world.in_step().await;
    let used = world
        .git
        .disk_use()
        .await
        .unwrap()
        .into_iter()
        .map(|part| part.used_at)
        .min()
        .unwrap();
    assert_eq!(used, chrono::DateTime::UNIX_EPOCH);
    let checkout = ready(
        world
            .prepare(&commits, CheckoutStrategy::Branch)
            .await
            .unwrap(),
    );
    assert_eq!(
        (checkout.fresh, read(&checkout, "main.tf")),
        (true, "two".to_owned())
    );
    assert!(
        !ready(
            world
                .prepare(&commits, CheckoutStrategy::Branch)
                .await
                .unwrap()
        )
        .fresh
    );
}

#[tokio::test]
async fn a_fresh_clone_takes_the_place_of_the_mirror_when_no_run_uses_the_old_one() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    world.in_step().await;
    let checkout = world.checkout(&commits).await;
    let git_works = async || {
        let log = Cmd::new("git")
            .env("PATH", PATH)
            .env("HOME", "/dev/null")
            .args(["log", "-1", "--format=%H"]);
        let output = log.dir(&checkout.path).output().await.unwrap();
        output.is_success() && output.stdout.text().trim() == commits.1.as_str()
    };
    let first = world.mirror().copy();
    let refused = async |why: &str| {
        let error = world.rebuild_from(&world.url()).await.unwrap_err();
        assert!(matches!(error, GitError::Busy { .. }), "{why}: {error}");
        assert!(git_works().await && world.mirror().copy() == first, "{why}");
        assert_eq!(world.leftovers(), Vec::<String>::new());
    };
    let run = world.mirror().begin_run().await;
    refused("a run is between two of its steps").await;
    drop(run);
    let of_an_earlier_server = std::fs::File::open(&checkout.hold).unwrap();
    of_an_earlier_server.lock_shared().unwrap();
    refused("a run has outlived its server").await;
    drop(of_an_earlier_server);
    world.rebuild_from(&world.url()).await.unwrap();
    assert!(!git_works().await && world.mirror().copy() == first + 1);
    let again = world.checkout(&commits).await;
    assert_eq!((again.fresh, again.copy), (true, first + 1));
}

#[tokio::test]
async fn a_rebuild_that_fails_leaves_the_mirror_as_it_is() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    world.in_step().await;
    world.checkout(&commits).await;
    for url in [
        "http://127.0.0.1:1/a/b.git".to_owned(),
        format!("{}/acme/none.git", world.server.url),
    ] {
        world.rebuild_from(&url).await.unwrap_err();
        assert_eq!(world.leftovers(), Vec::<String>::new());
        assert!(
            !ready(
                world
                    .prepare(&commits, CheckoutStrategy::Branch)
                    .await
                    .unwrap()
            )
            .fresh
        );
    }
    assert_eq!(world.in_step().await.changed, 0);
}

#[tokio::test]
async fn garbled_refs_heal_themselves() {
    let world = World::new().await;
    world.pull("main.tf=two").await;
    let write =
        |file: &str, text: &str| std::fs::write(world.mirror().dir().join(file), text).unwrap();
    for (file, text) in [
        ("refs/heads/main", "garbage\n"),
        ("refs/heads/main", ""),
        ("refs/heads/never", "\0\0\0\0"),
        ("packed-refs", "garbage\n"),
        ("config", "[core\n"),
        ("HEAD", ""),
    ] {
        world.in_step().await;
        write(file, text);
        world.in_step().await;
    }
    write("refs/heads/main", &format!("{}\n", "12".repeat(20)));
    world.in_step().await;
}

#[tokio::test]
async fn a_synchronisation_that_is_killed_half_way_is_made_up_for() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    world.in_step().await;
    world.checkout(&commits).await;
    world.sh("head -c 3000000 /dev/urandom > work/big").await;
    let next = world.pull("main.tf=three").await;
    world.server.log.lock().unwrap().stall_after = Some(1_000_000);
    {
        let mut syncing = Box::pin(world.sync());
        tokio::select! {
            ended = &mut syncing => panic!("{ended:?}"),
            () = world.server.stalled.notified() => {
                // A checkout that needs nothing from the forge does not wait for it.
                assert!(!ready(world.prepare(&commits, CheckoutStrategy::Branch).await.unwrap()).fresh);
                let written = async { while world.leftovers().is_empty() { tokio::task::yield_now().await } };
                tokio::time::timeout(Duration::from_mins(1), written).await.expect("a part of the pack");
            }
        }
    }
    assert!(!world.leftovers().is_empty(), "the pack that was cut off");
    world.server.log.lock().unwrap().stall_after = None;
    let synced = world.sync().await.unwrap();
    assert_eq!(
        (synced.refs.get(&pull_ref()), synced.changed),
        (Some(&next.1), 1)
    );
    world.mirror().maintain().await.unwrap();
    world.in_step().await;
}

#[tokio::test]
async fn what_a_killed_rebuild_leaves_is_removed() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    world.in_step().await;
    world.checkout(&commits).await;
    let dir = world.mirror().dir().to_owned();
    let (new, old) = (
        dir.with_added_extension("new~"),
        dir.with_added_extension("old~"),
    );
    for leftover in [&new, &old] {
        std::fs::create_dir_all(leftover.join("objects")).unwrap();
    }
    assert_eq!(world.in_step().await.changed, 0);
    // The process was killed after it moved the old mirror aside and before it put the new one in its place.
    std::fs::rename(&dir, &old).unwrap();
    std::fs::create_dir_all(&new).unwrap();
    assert_eq!(world.in_step().await.changed, 0);
    assert!(
        !ready(
            world
                .prepare(&commits, CheckoutStrategy::Branch)
                .await
                .unwrap()
        )
        .fresh
    );
}

#[tokio::test]
async fn making_room_removes_what_a_killed_rebuild_left_too() {
    let world = World::new().await;
    world.in_step().await;
    let leftover = world.mirror().dir().with_added_extension("new~");
    std::fs::create_dir_all(&leftover).unwrap();
    std::fs::write(leftover.join("pack"), vec![1; 1 << 20]).unwrap();
    let used = world.git.disk_use().await.unwrap();
    assert!(used.len() == 1 && used[0].bytes > 1 << 20, "{used:?}");
    assert!(world.mirror().evict().await.unwrap());
    assert!(!leftover.exists() && !world.mirror().dir().exists());
}

#[tokio::test]
async fn failures_are_told_apart_and_keep_the_password() {
    let world = World::new().await;
    let none = format!("{}/acme/none.git", world.server.url);
    let missing = world.sync_from(&none, &selection()).await.unwrap_err();
    assert!(matches!(missing, GitError::NotFound { .. }), "{missing}");
    let down = world
        .sync_from("http://127.0.0.1:1/a/b.git", &selection())
        .await
        .unwrap_err();
    assert!(matches!(down, GitError::Unreachable { .. }), "{down}");
    let (url, wrong) = (
        world.url(),
        GitCredentials::new(USER.into(), Secret::new("wr0ng-token")),
    );
    let remote = Remote {
        url: &url,
        credentials: Some(&wrong),
        deadline: Duration::from_mins(1),
    };
    let refused = world
        .mirror()
        .sync(&remote, &selection())
        .await
        .unwrap_err();
    assert!(matches!(refused, GitError::AuthFailed { .. }), "{refused}");
    assert!(!format!("{refused} {refused:?}").contains("wr0ng-token"));
}

impl World {
    /// Creates branches at the server with a file that git refuses, on top of the clone's HEAD. Returns their
    /// commits.
    async fn bad_branches(&self, names: &[&str]) -> Vec<String> {
        let mut commits = Vec::new();
        for name in names {
            // A directory name that some file systems treat as `.git`.
            let script = "cd work && blob=$(git hash-object -w --stdin </dev/null) && \
                          tree=$(printf '100644 blob %s\\t.g\\342\\200\\214it\\n' $blob | git mktree)";
            let id = self
                .sh(&format!(
                    "{script} && git commit-tree -p HEAD -m {name} $tree"
                ))
                .await;
            self.sh(&format!(
                "cd work && git push -q --force ../srv/acme/infra.git {id}:refs/heads/{name}"
            ))
            .await;
            commits.push(id);
        }
        commits
    }
}

#[tokio::test]
async fn branches_that_fail_fsck_are_left_out_and_named_and_the_others_come() {
    let world = World::new().await;
    let (_, head) = world.pull("main.tf=two").await;
    for name in ["a", "b", "c", "z"] {
        world.commit(&format!("{name}.tf=x")).await;
        world.push(name).await;
    }
    world.in_step().await;
    world.bad_branches(&["a", "bad/one", "q"]).await;
    world.sh("cd work && git checkout -q --detach main").await;
    let new = world.commit("new.tf=x").await;
    world.push("new").await;
    let synced = world.sync().await.unwrap();
    let kept = [
        "refs/heads/b",
        "refs/heads/c",
        "refs/heads/main",
        "refs/heads/new",
        "refs/heads/z",
        "refs/pull/12/head",
    ];
    assert_eq!(names(&synced.refs), kept);
    assert_eq!(
        (
            synced.refs.get(&RefName::new("refs/heads/new").unwrap()),
            head == new
        ),
        (Some(&new), false)
    );
    assert_eq!(
        names(&world.mirror().refs().await.unwrap()),
        kept,
        "a branch that went bad is gone, too"
    );
    let refused: Vec<_> = synced.refused.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        refused,
        ["refs/heads/a", "refs/heads/bad/one", "refs/heads/q"]
    );
    assert!(
        synced
            .refused
            .iter()
            .all(|one| one.why.contains("hasDotgit")),
        "{:?}",
        synced.refused
    );
    assert_eq!(
        (world.mirror().refused(), world.leftovers()),
        (synced.refused.clone(), vec![])
    );
    world.mirror().check_connectivity().await.unwrap();
    // The refused refs are not fetched again until they have another commit.
    let again = world.sync().await.unwrap();
    assert_eq!(
        (again.changed, again.bytes, again.refused),
        (0, 0, synced.refused)
    );
    world.push("a").await;
    world.server("update-ref -d refs/heads/bad/one").await;
    let healed = world.sync().await.unwrap();
    assert_eq!(
        healed
            .refused
            .iter()
            .map(|one| one.name.as_str())
            .collect::<Vec<_>>(),
        ["refs/heads/q"]
    );
    assert!(healed.refs.get(&RefName::new("refs/heads/a").unwrap()) == Some(&new));
    world.server("update-ref -d refs/heads/q").await;
    assert_eq!(world.in_step().await.refused, []);
}

#[tokio::test]
async fn a_history_with_bad_objects_everywhere_is_a_failure_of_the_whole() {
    let world = World::new().await;
    let bad: Vec<String> = (0..12).map(|n| format!("bad{n}")).collect();
    let commits = world
        .bad_branches(&bad.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let error = world.sync().await.unwrap_err();
    assert!(
        matches!(error, GitError::Fsck { .. }) && error.to_string().contains("hasDotgit"),
        "{error}"
    );
    // A command fetches only the refs that it needs, and gets their errors.
    let bad_ref = RefName::new("refs/heads/bad0").unwrap();
    let wanted = commits[0].parse().unwrap();
    let fetched = world
        .fetch_as(
            PASSWORD,
            &world.url(),
            &[main(), bad_ref.clone()],
            Some(&wanted),
        )
        .await
        .unwrap();
    assert!(fetched.commit_of(&main()).is_some() && fetched.commit_of(&bad_ref).is_none());
    assert!(
        matches!(&fetched.refused[..], [(name, why)] if *name == bad_ref && why.contains("hasDotgit")),
        "{fetched:?}"
    );
    assert!(
        matches!(&fetched.wanted, Head::Refused(why) if why.contains("hasDotgit")),
        "{fetched:?}"
    );
}
