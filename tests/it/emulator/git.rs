//! Tests of real git against the emulated GitHub.

use std::path::Path;

use lockkeeper::emulator::{Change, NewPull};
use lockkeeper::model::PullState;

use super::rig::{REPO, Receiver, Rig, TOKEN};

#[expect(
    clippy::disallowed_methods,
    reason = "a client that is not ours is the point of these tests"
)]
async fn git(directory: &Path, args: &[&str]) -> Result<String, String> {
    let identity = [
        "-c",
        "user.name=bob",
        "-c",
        "user.email=bob@example.com",
        "-c",
        "credential.helper=",
    ];
    let out = tokio::process::Command::new("git")
        .args(identity)
        .args(args)
        .current_dir(directory)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_COMMITTER_DATE", "1736935200 +0000")
        .output()
        .await
        .expect("git is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if out.status.success() {
        Ok(text(&out.stdout))
    } else {
        Err(text(&out.stderr))
    }
}

fn with_password(url: &str, password: &str) -> String {
    url.replace("http://", &format!("http://x-access-token:{password}@"))
}

#[tokio::test]
async fn a_clone_needs_a_token_and_gets_the_commits() {
    let rig = Rig::start().await;
    let (here, url) = (rig.directory.path(), rig.github.clone_url(REPO));
    for wrong in [url.clone(), with_password(&url, "wrong")] {
        assert!(git(here, &["clone", &wrong, "refused"]).await.is_err());
    }
    let missing = with_password(&rig.github.clone_url("acme/nothing"), TOKEN);
    assert!(
        git(here, &["clone", &missing, "missing"])
            .await
            .unwrap_err()
            .contains("not found")
    );
    git(
        here,
        &["clone", "--quiet", &with_password(&url, TOKEN), "clone"],
    )
    .await
    .unwrap();
    let clone = here.join("clone");
    assert_eq!(
        std::fs::read_to_string(clone.join("net/main.tf")).unwrap(),
        "# net\n"
    );
    let log = git(&clone, &["log", "--format=%H %an %ae %aI %s"])
        .await
        .unwrap();
    insta::assert_snapshot!(
        log,
        @"3c4a9b92bf000d8ccbd53a94fefee5b4b14cbd7b alice 35577802+alice@users.noreply.github.com 2025-01-15T10:00:00+00:00 Initial commit"
    );
}

#[tokio::test]
async fn requests_that_git_compresses_are_understood() {
    let rig = Rig::start().await;
    // The request of a clone is compressed from 1024 bytes on, which takes about twenty branches.
    for n in 0..40 {
        rig.github
            .push(
                REPO,
                &format!("b{n}"),
                &[Change::write("n.tf", &n.to_string())],
            )
            .await
            .unwrap();
    }
    let (here, url) = (
        rig.directory.path(),
        with_password(&rig.github.clone_url(REPO), TOKEN),
    );
    for version in ["protocol.version=0", "protocol.version=2"] {
        git(
            here,
            &["-c", version, "clone", "--quiet", "--mirror", &url, version],
        )
        .await
        .unwrap();
        let refs = git(&here.join(version), &["for-each-ref", "refs/heads"])
            .await
            .unwrap();
        assert_eq!(refs.lines().count(), 41);
    }
}

#[tokio::test]
async fn the_head_and_the_trial_merge_of_a_pull_can_be_fetched_and_any_commit_by_its_id() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let first = rig.github.pull(REPO, number).unwrap().head;
    let second = rig
        .github
        .force_push(
            REPO,
            "feature",
            &[Change::write("net/main.tf", "# again\n")],
        )
        .await
        .unwrap();
    let (here, url) = (
        rig.directory.path(),
        with_password(&rig.github.clone_url(REPO), TOKEN),
    );
    git(here, &["init", "--quiet", "mirror"]).await.unwrap();
    let mirror = here.join("mirror");
    for (refspec, expected) in [("refs/pull/1/head", &second), (first.as_str(), &first)] {
        git(&mirror, &["fetch", "--quiet", "--depth=1", &url, refspec])
            .await
            .unwrap();
        assert_eq!(
            git(&mirror, &["rev-parse", "FETCH_HEAD"]).await.unwrap(),
            expected.as_str()
        );
    }
    git(&mirror, &["fetch", "--quiet", &url, "refs/pull/1/merge"])
        .await
        .unwrap();
    assert_eq!(
        git(&mirror, &["rev-parse", "FETCH_HEAD^2"]).await.unwrap(),
        second.as_str()
    );
}

#[tokio::test]
async fn a_push_by_a_client_moves_the_pull_and_tells_the_hook() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let receiver = Receiver::start(&rig.github).await;
    let (here, url) = (
        rig.directory.path(),
        with_password(&rig.github.clone_url(REPO), TOKEN),
    );
    git(
        here,
        &["clone", "--quiet", "--branch=feature", &url, "clone"],
    )
    .await
    .unwrap();
    let clone = here.join("clone");
    std::fs::write(clone.join("more.tf"), "resource {}\n").unwrap();
    git(&clone, &["add", "."]).await.unwrap();
    git(&clone, &["commit", "--quiet", "--message=More"])
        .await
        .unwrap();
    assert!(
        git(
            &clone,
            &["push", "--quiet", "origin", "HEAD:refs/pull/1/head"]
        )
        .await
        .is_err(),
        "refs of GitHub's own"
    );
    git(&clone, &["push", "--quiet"]).await.unwrap();
    let head = git(&clone, &["rev-parse", "HEAD"]).await.unwrap();
    let pull = rig
        .github
        .wait_for(|world| {
            world
                .pull(REPO, number)
                .ok()
                .filter(|pull| pull.head.as_str() == head)
        })
        .await;
    assert_eq!(pull.diff.commits, 2);
    rig.github
        .set_delivering(lockkeeper::emulator::Delivering::Immediately)
        .await;
    assert_eq!(receiver.names(), ["push", "pull_request.synchronize"]);
    git(&clone, &["push", "--quiet", "origin", ":feature"])
        .await
        .unwrap();
    assert_eq!(
        rig.github.pull(REPO, number).unwrap().state,
        PullState::Closed
    );
}

#[tokio::test]
async fn a_merge_is_a_commit_with_two_parents_on_the_base_branch() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let base = rig.github.branches(REPO).await.unwrap()["main"].clone();
    let merged = rig.github.merge(REPO, number, "bob").await.unwrap();
    let pull = rig.github.pull(REPO, number).unwrap();
    assert_eq!(
        (pull.state, pull.merge_commit.as_ref()),
        (PullState::Merged, Some(&merged))
    );
    let (here, url) = (
        rig.directory.path(),
        with_password(&rig.github.clone_url(REPO), TOKEN),
    );
    git(here, &["clone", "--quiet", &url, "clone"])
        .await
        .unwrap();
    let seen = git(&here.join("clone"), &["log", "-1", "--format=%H %P %s"])
        .await
        .unwrap();
    assert_eq!(
        seen,
        format!(
            "{merged} {base} {} Merge pull request #1 from acme/feature",
            pull.head
        )
    );
}

#[tokio::test]
async fn a_pull_that_conflicts_cannot_be_merged() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    rig.github
        .push(REPO, "main", &[Change::write("net/main.tf", "# other\n")])
        .await
        .unwrap();
    assert_eq!(
        rig.get("/repos/acme/infra/pulls/1").await.body["mergeable_state"],
        "dirty"
    );
    let refusal = rig.github.merge(REPO, number, "bob").await.unwrap_err();
    insta::assert_snapshot!(refusal, @"acme/infra#1 has conflicts with its base branch and cannot be merged");
    rig.check();
}

#[tokio::test]
async fn a_pull_from_a_fork_follows_the_fork() {
    let rig = Rig::start().await;
    let fork = rig.github.fork(REPO, "mallory").await.unwrap();
    rig.github
        .push(&fork, "patch", &[Change::write("evil.tf", "x\n")])
        .await
        .unwrap();
    let pull = NewPull::from_branch("patch").by("mallory").from_fork(&fork);
    let number = rig.github.open_pull(REPO, pull).await.unwrap();
    let head = rig
        .github
        .push(&fork, "patch", &[Change::write("evil.tf", "y\n")])
        .await
        .unwrap();
    assert_eq!(rig.github.pull(REPO, number).unwrap().head, head);
    let shown = rig.get("/repos/acme/infra/pulls/1").await.body;
    assert_eq!(
        (&shown["head"]["label"], &shown["head"]["repo"]["fork"]),
        (&"mallory:patch".into(), &true.into())
    );
    let (here, url) = (
        rig.directory.path(),
        with_password(&rig.github.clone_url(REPO), TOKEN),
    );
    let refs = git(here, &["ls-remote", &url, "refs/pull/1/head"])
        .await
        .unwrap();
    assert!(refs.starts_with(head.as_str()), "{refs}");
    rig.check();
}
