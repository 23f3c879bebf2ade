//! Tests of mirrors that leave the content of files at the forge, and of their maintenance.

use lockkeeper::git::{RefSelection, Remote};

use super::*;

fn credentials() -> GitCredentials {
    GitCredentials::new(USER.into(), Secret::new(PASSWORD))
}

impl World {
    async fn partial(filter: &str) -> Self {
        let world = Self::new().await;
        let mut settings = GitSettings::new(world.path("data"), PATH);
        settings.filter = Some(filter.parse().unwrap());
        let git = "git -C srv/acme/infra.git";
        world
            .sh(&format!("{git} config uploadpack.allowFilter true && {git} config uploadpack.allowAnySHA1InWant true"))
            .await;
        Self {
            git: Git::new(settings),
            ..world
        }
    }

    async fn sync_all(&self) {
        let (url, credentials) = (self.url(), credentials());
        let remote = Remote {
            url: &url,
            credentials: Some(&credentials),
            deadline: Duration::from_mins(1),
        };
        let wanted = RefSelection {
            branches: true,
            pulls: [pull_ref()].into(),
        };
        self.mirror().sync(&remote, &wanted).await.unwrap();
    }

    fn requests(&self) -> usize {
        self.server.log.lock().unwrap().authorization.len()
    }

    fn packs(&self) -> usize {
        let packs = std::fs::read_dir(self.mirror().dir().join("objects/pack")).unwrap();
        packs
            .filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .path()
                    .extension()
                    .is_some_and(|end| end == "pack")
            })
            .count()
    }
}

#[tokio::test]
async fn files_come_when_they_are_needed_with_the_credentials_of_the_forge() {
    let world = World::partial("blob:none").await;
    world.pull("main.tf=old").await;
    let commits = world.pull("main.tf=two a/b.tf=x").await;
    world.sync_all().await;
    world.mirror().check_connectivity().await.unwrap();
    assert!(!world.mirror().has_files(&commits.1).await.unwrap());
    let listed = world.mirror().files(&commits.1).await.unwrap();
    assert_eq!(
        listed.paths,
        ["a/b.tf", "main.tf"].map(path),
        "directories are here"
    );
    let requests = world.requests();
    let error = world
        .prepare(&commits, CheckoutStrategy::Branch)
        .await
        .unwrap_err();
    assert!(!matches!(error, GitError::Corrupt { .. }), "{error}");
    assert_eq!(
        world.requests(),
        requests,
        "nothing is fetched behind our back"
    );
    let checkout = world.checkout(&commits).await;
    assert_eq!(
        (read(&checkout, "main.tf"), read(&checkout, "a/b.tf")),
        ("two".into(), "x".into())
    );
    assert!(world.mirror().has_files(&commits.1).await.unwrap());
    assert_eq!(
        world
            .mirror()
            .read(&commits.0, &path("main.tf"), 100)
            .await
            .unwrap()
            .unwrap(),
        b"one"
    );
    world.mirror().maintain().await.unwrap();
    world.mirror().check_connectivity().await.unwrap();
    assert!(!world.checkout(&commits).await.fresh);
}

#[tokio::test]
async fn both_sides_of_a_merge_and_what_they_come_from_are_fetched() {
    let world = World::partial("blob:none").await;
    let text = |first: &str, last: &str| format!("{first}\n\n\n\n\n\n\n\n{last}\n");
    std::fs::write(world.path("work/f.tf"), text("1", "2")).unwrap();
    world.commit("").await;
    world.push("main").await;
    world.sh("cd work && git checkout -q --detach").await;
    std::fs::write(world.path("work/f.tf"), text("one", "2")).unwrap();
    let head = world.commit("").await;
    world.push("refs/pull/12/head").await;
    world.sh("cd work && git checkout -q main").await;
    std::fs::write(world.path("work/f.tf"), text("1", "two")).unwrap();
    let base = world.commit("").await;
    world.push("main").await;
    // The same situation as for a plan that another server made: the commits are here, their files are not.
    world.sync_all().await;
    let (url, credentials) = (world.url(), credentials());
    let remote = Remote {
        url: &url,
        credentials: Some(&credentials),
        deadline: Duration::from_mins(1),
    };
    assert!(world.mirror().is_partial());
    world
        .mirror()
        .bring_files(&remote, &[&head, &base])
        .await
        .unwrap();
    let merged = ready(
        world
            .prepare(&(base, head), CheckoutStrategy::Merge)
            .await
            .unwrap(),
    );
    assert_eq!(read(&merged, "f.tf"), text("one", "two"));
}

#[tokio::test]
async fn branches_that_were_merged_both_ways_are_merged_by_all_that_they_come_from() {
    let world = World::partial("blob:none").await;
    // `f` is different in the first commit, in both bases, and on both sides; each change is on its own lines.
    let script = r#"cd work
    w() { for line in "$@"; do printf '%s\n\n\n\n' "$line"; done > f; git add f; }
    w 0 0 0 0; git commit -qm root; git push -q ../srv/acme/infra.git HEAD:main
    git checkout -q --detach; root=$(git rev-parse HEAD)
    w a 0 0 0; git commit -qm one; one=$(git rev-parse HEAD)
    git checkout -q $root; w 0 b 0 0; git commit -qm two; two=$(git rev-parse HEAD)
    git checkout -q $one; git merge -q --no-commit $two >/dev/null; w a b c 0; git commit -qm left; left=$(git rev-parse HEAD)
    git checkout -q $two; git merge -q --no-commit $one >/dev/null; w a b 0 d; git commit -qm right
    git push -q --force ../srv/acme/infra.git $left:main HEAD:refs/pull/12/head
    echo $left $(git rev-parse HEAD)"#;
    let commits = world.sh(script).await;
    let (base, head) = commits.split_once(' ').unwrap();
    let commits = (base.parse().unwrap(), head.parse().unwrap());
    world.sync_all().await;
    assert_eq!(
        world.fetch(Some(&commits.1)).await.unwrap().wanted,
        Head::Present
    );
    let merged = ready(
        world
            .prepare(&commits, CheckoutStrategy::Merge)
            .await
            .unwrap(),
    );
    assert_eq!(
        read(&merged, "f").split_whitespace().collect::<String>(),
        "abcd"
    );
}

#[tokio::test]
async fn only_large_files_can_be_left_at_the_forge() {
    let world = World::partial("blob:limit=1k").await;
    std::fs::write(world.path("work/large"), "x".repeat(2000)).unwrap();
    let commits = world.pull("main.tf=two").await;
    world.sync_all().await;
    let read_at = async |file: &str| world.mirror().read(&commits.1, &path(file), 5000).await;
    assert_eq!(read_at("main.tf").await.unwrap().unwrap(), b"two");
    assert!(read_at("large").await.is_err());
    assert_eq!(read(&world.checkout(&commits).await, "large").len(), 2000);
}

#[tokio::test]
async fn a_forge_without_partial_clones_gives_everything() {
    let world = World::partial("blob:none").await;
    world
        .sh("git -C srv/acme/infra.git config uploadpack.allowFilter false")
        .await;
    let commits = world.pull("main.tf=two").await;
    world.sync_all().await;
    assert!(world.mirror().has_files(&commits.1).await.unwrap());
    assert_eq!(read(&world.checkout(&commits).await, "main.tf"), "two");
    world.mirror().check_connectivity().await.unwrap();
}

#[tokio::test]
async fn a_mirror_stays_as_it_was_made() {
    let world = World::new().await;
    let commits = world.pull("main.tf=two").await;
    world.sync_all().await;
    let mut settings = GitSettings::new(world.path("data"), PATH);
    settings.filter = Some("blob:none".parse().unwrap());
    let world = World {
        git: Git::new(settings),
        ..world
    };
    world.sync_all().await;
    assert!(world.mirror().has_files(&commits.1).await.unwrap());
}

#[tokio::test]
async fn upkeep_joins_packs_and_keeps_what_checkouts_need() {
    let world = World::new().await;
    let first = world.pull("main.tf=0").await;
    let checkout = world.checkout(&first).await;
    for round in 1..6 {
        world.pull(&format!("main.tf={round}")).await;
        world.sync_all().await;
    }
    let mirror = world.mirror();
    assert!(world.packs() >= 6);
    // Leftovers of a killed git: parts of packs, locks of refs, of an index and of the list of packed refs.
    let leftovers = [
        "objects/pack/tmp_pack_x",
        "objects/pack/.tmp-1-pack-x.pack",
        "refs/heads/main.lock",
        "worktrees/default/index.lock",
        "packed-refs.lock",
        "objects/info/commit-graphs/commit-graph-chain.lock",
    ];
    for file in leftovers {
        let file = mirror.dir().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    }
    mirror.maintain().await.unwrap();
    assert!(world.packs() <= 2, "{}", world.packs());
    assert_eq!(
        leftovers.map(|file| mirror.dir().join(file).exists()),
        [false; 6]
    );
    assert!(
        mirror.dir().join("packed-refs").exists()
            && mirror.dir().join("objects/info/commit-graphs").exists()
    );
    mirror.maintain().await.unwrap();
    let again = ready(
        world
            .prepare(&first, CheckoutStrategy::Branch)
            .await
            .unwrap(),
    );
    assert_eq!(
        (again.fresh, &again.commit, read(&again, "main.tf")),
        (false, &checkout.commit, "0".into())
    );
    // The mirror looks as if it had grown since everything was packed, so all of it is packed again.
    std::fs::write(mirror.dir().join(".lockkeeper-packed"), "0").unwrap();
    world.sh("head -c 10000000 /dev/urandom > work/big").await;
    world.pull("main.tf=big").await;
    world.sync_all().await;
    mirror.maintain().await.unwrap();
    assert_eq!(world.packs(), 1);
    assert!(
        !ready(
            world
                .prepare(&first, CheckoutStrategy::Branch)
                .await
                .unwrap()
        )
        .fresh
    );
    mirror.check_connectivity().await.unwrap();
}

#[tokio::test]
async fn without_a_mirror_there_is_nothing_to_keep_up() {
    let world = World::new().await;
    world.mirror().maintain().await.unwrap();
    assert!(!world.mirror().dir().exists());
}
