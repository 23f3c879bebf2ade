//! Tests of the spare checkout of a large repository.

use std::os::unix::fs::MetadataExt as _;

use super::*;

impl World {
    /// Creates a world where every repository counts as large.
    async fn with_spares() -> Self {
        let world = Self::new().await;
        let mut settings = GitSettings::new(world.path("data"), PATH);
        settings.hold_wait = Duration::ZERO;
        settings.spare_from = 1;
        Self {
            git: Git::new(settings),
            ..world
        }
    }

    async fn checkout_of(&self, subject: i64, commits: &(CommitSha, CommitSha)) -> Checkout {
        self.fetch(Some(&commits.1)).await.unwrap();
        let workspace = WorkspaceName::default();
        let prepared = self
            .mirror()
            .prepare(&CheckoutRequest {
                pull: Subject::pull(subject),
                workspace: &workspace,
                head: &commits.1,
                base: &commits.0,
                strategy: CheckoutStrategy::Branch,
                extent: &Extent::Whole,
            })
            .await;
        ready(prepared.unwrap())
    }

    /// Checks out one pull request and makes the spare for the next. Returns the directory of the spare.
    async fn spare(&self, commits: &(CommitSha, CommitSha)) -> PathBuf {
        let first = self.checkout_of(1, commits).await;
        self.mirror().make_spare(&first).await.unwrap();
        let spare = self.mirror().dir().join("lockkeeper-spare");
        assert!(spare.join("main.tf").exists());
        spare
    }

    /// Returns the changes and the untracked files according to git, and the commit.
    async fn state_of(&self, checkout: &Checkout) -> String {
        let dir = checkout.path.display();
        self.sh(&format!(
            "cd {dir} && git status --short --ignored && git rev-parse HEAD"
        ))
        .await
    }
}

#[tokio::test]
async fn the_next_pull_takes_the_spare_and_only_differences_are_written() {
    let world = World::with_spares().await;
    let commits = world.pull("app/app.tf=two").await;
    let spare = world.spare(&commits).await;
    let written = spare.join("main.tf").metadata().unwrap().ino();
    // The base branch has moved since, and the pull request removes a directory.
    world.sh("cd work && git checkout -q main").await;
    let base = world.commit("net/net.tf=three").await;
    world.push("main").await;
    let head = world.commit("-net/net.tf main.tf.bak=four").await;
    world.push("refs/pull/12/head").await;
    let second = world.checkout_of(2, &(base, head.clone())).await;
    assert!(second.fresh);
    assert!(!spare.exists(), "the spare was moved, not copied");
    assert_eq!(
        second.path.join("main.tf").metadata().unwrap().ino(),
        written
    );
    assert!(second.path.join("main.tf.bak").exists() && !second.path.join("net").exists());
    assert_eq!(world.state_of(&second).await, head.as_str());
    // The third pull has another one.
    world.mirror().make_spare(&second).await.unwrap();
    let third = world.checkout_of(3, &commits).await;
    assert!(!spare.exists());
    assert_eq!(world.state_of(&third).await, commits.1.as_str());
    assert_eq!(world.state_of(&second).await, head.as_str());
    world.mirror().check_connectivity().await.unwrap();
}

#[tokio::test]
async fn a_spare_that_something_changed_shows_nothing_of_it() {
    for (what, change) in [
        (
            "another file",
            "echo evil > evil.tf; mkdir .terraform; echo evil > .terraform/x",
        ),
        (
            "another state",
            "echo evil > terraform.tfstate; echo .terraform > .gitignore",
        ),
        (
            "other content, with the old time",
            "touch -r main.tf ../t; printf evi > main.tf; touch -r ../t main.tf",
        ),
        (
            "a flag in the index",
            "git update-index --skip-worktree main.tf; printf evi > main.tf",
        ),
        (
            "a link in place of a directory",
            "mv app ../app; ln -s ../app app",
        ),
        ("another repository", "mkdir x; git init -q x"),
        (
            "a link in its place",
            "cd .. && mv lockkeeper-spare elsewhere && ln -s elsewhere lockkeeper-spare",
        ),
        ("no record", "rm .git"),
        ("no index", "rm $(git rev-parse --git-dir)/index"),
        (
            "another record",
            "echo gitdir: /tmp/evil > .git; touch evil.tf",
        ),
    ] {
        let world = World::with_spares().await;
        let commits = world.pull("app/app.tf=two").await;
        world.sh("cd work && git branch -f main HEAD").await;
        world.push("main").await;
        let spare = world.spare(&(commits.1.clone(), commits.1.clone())).await;
        world
            .sh(&format!("cd {} && {change}", spare.display()))
            .await;
        let second = world.checkout_of(2, &commits).await;
        assert_eq!(world.state_of(&second).await, commits.1.as_str(), "{what}");
        let text = |file: &str| std::fs::read_to_string(second.path.join(file)).unwrap();
        assert_eq!(
            (text("main.tf"), text("app/app.tf")),
            ("one".into(), "two".into()),
            "{what}"
        );
        assert!(!second.path.join("app").is_symlink(), "{what}");
        assert!(!second.path.is_symlink(), "{what}");
    }
}

#[tokio::test]
async fn a_spare_of_an_earlier_process_is_made_again() {
    let world = World::with_spares().await;
    let commits = world.pull("app/app.tf=two").await;
    let spare = world.spare(&commits).await;
    let written = spare.join("main.tf").metadata().unwrap().ino();
    std::fs::write(spare.join("half written"), "").unwrap();
    let world = World {
        git: Git::new(GitSettings {
            spare_from: 1,
            ..GitSettings::new(world.path("data"), PATH)
        }),
        ..world
    };
    let second = world.checkout_of(2, &commits).await;
    assert_ne!(
        second.path.join("main.tf").metadata().unwrap().ino(),
        written
    );
    world.mirror().make_spare(&second).await.unwrap();
    assert!(!spare.join("half written").exists());
    let third = world.checkout_of(3, &commits).await;
    assert!(!spare.exists());
    assert_eq!(world.state_of(&third).await, commits.1.as_str());
}

#[tokio::test]
async fn a_spare_comes_and_goes_with_its_mirror() {
    let world = World::with_spares().await;
    let commits = world.pull("terraform.tfstate=two").await;
    world.sh("cd work && git branch -f main HEAD").await;
    world.push("main").await;
    let spare = world.spare(&(commits.1.clone(), commits.1.clone())).await;
    world.mirror().maintain().await.unwrap();
    assert!(spare.join("main.tf").exists());
    // A state that is part of the commit is nothing to keep.
    let parts = world.git.disk_use().await.unwrap();
    let of_mirror = parts
        .iter()
        .find(|part| matches!(part.part, lockkeeper::git::DiskPart::Mirror(_)))
        .unwrap();
    assert!(!of_mirror.has_state);
    world.mirror().remove_pull(Subject::pull(1)).await.unwrap();
    std::fs::remove_dir_all(world.path("data/checkouts")).unwrap();
    assert!(world.mirror().evict().await.unwrap());
    assert!(!spare.exists());
}

#[tokio::test]
async fn a_small_repository_has_no_spare() {
    let world = World::new().await;
    let commits = world.pull("app/app.tf=two").await;
    let first = world.checkout_of(1, &commits).await;
    world.mirror().make_spare(&first).await.unwrap();
    assert!(!world.mirror().dir().join("lockkeeper-spare").exists());
}
