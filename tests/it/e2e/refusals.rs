//! Stories about refusals, and how people learn the reason (P10).

use lockkeeper::emulator::{Change, NewPull, SendAttempt};
use lockkeeper::model::{CommandOutcome, PullNumber};

use super::world::{REPO, World, resource};
use crate::support::server::Settings;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_github_app_works_as_an_account_does() {
    let world = World::start_with(Settings::default().with_app(), |_| {
        vec![("main.tf", String::new())]
    })
    .await;
    let pull = world
        .open("feature", &[("main.tf", &resource("a", "1"))])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draft_is_planned_when_it_is_ready_or_when_somebody_asks() {
    let world = World::start(|_| vec![("main.tf", String::new())]).await;
    world.push("feature", "main.tf", &resource("a", "1")).await;
    let draft = NewPull::from_branch("feature").draft();
    let pull = world.github.open_pull(REPO, draft).await.expect("a pull");
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default planned");
    world
        .github
        .ready_for_review(REPO, pull, "alice")
        .await
        .expect("it is a draft");
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_is_refused_and_nothing_of_it_runs() {
    let world = World::start(|_| vec![("main.tf", String::new())]).await;
    let fork = world.github.fork(REPO, "mallory").await.expect("a fork");
    let change = Change::write("main.tf", &resource("a", "1"));
    world
        .github
        .push(&fork, "feature", &[change])
        .await
        .expect("a push");
    let from_fork = NewPull::from_branch("feature").from_fork(&fork);
    let pull = world
        .github
        .open_pull(REPO, from_fork)
        .await
        .expect("a pull");
    world
        .answer(pull)
        .await
        .is("autoplan refused (fork)")
        .says("mallory/infra");
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan refused (fork)")
        .says("--allow-fork-prs");
    assert_eq!(world.server.terraform_log(), "");
    world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_is_not_served_is_told_so_and_nothing_of_it_runs() {
    let world = World::start(|_| vec![("main.tf", String::new())]).await;
    world
        .github
        .create_repo("other/infra", &[("main.tf", "")])
        .await
        .expect("it is new");
    let change = Change::write("main.tf", &resource("a", "1"));
    world
        .github
        .push("other/infra", "feature", &[change])
        .await
        .expect("a push");
    let pull = world
        .github
        .open_pull("other/infra", NewPull::from_branch("feature"))
        .await
        .expect("a pull");
    let opened = world.github.deliveries().pop().expect("a webhook");
    assert_eq!(
        (opened.event.as_str(), opened.outcome()),
        ("pull_request", Some(&SendAttempt::Answered(403)))
    );
    world
        .github
        .comment("other/infra", pull, "alice", "lockkeeper plan")
        .await
        .expect("a comment");
    let answer = world
        .github
        .comment_by("other/infra", pull, crate::support::server::BOT, 0);
    let answer = crate::support::server::within("the answer", answer)
        .await
        .expect("the pull exists");
    assert!(
        answer
            .body
            .contains("does not serve `github.test/other/infra`"),
        "{}",
        answer.body
    );
    assert_eq!(world.server.terraform_log(), "");
    world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_in_the_configuration_are_shown_and_gone_after_a_push() {
    let world = World::start(|_| vec![("main.tf", String::new())]).await;
    let config = "version: 3\nprojects:\n- dir: .\n  autoplann: {}\n";
    let pull = world
        .open(
            "feature",
            &[
                ("lockkeeper.yaml", config),
                ("main.tf", &resource("a", "1")),
            ],
        )
        .await;
    let said = world.answer(pull).await;
    said.is("autoplan failure (config)")
        .says("lockkeeper.yaml")
        .says("autoplann")
        .says("autoplan");
    world.settled(pull).await;
    world
        .push(
            "feature",
            "lockkeeper.yaml",
            &config.replace("autoplann: {}", "name: all"),
        )
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned")
        .says("lockkeeper apply -p all");
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comments_that_cannot_be_carried_out_are_answered_with_the_way_out() {
    let world = World::start(|_| vec![("main.tf", String::new())]).await;
    let pull = world
        .open("feature", &[("note.txt", "nothing to plan\n")])
        .await;
    world
        .comment(pull, "I would not run `lockkeeper apply` here.")
        .await;
    world.comment(pull, "> lockkeeper apply").await;
    for (text, outcome, part) in [
        ("lockkeeper plann", "help refused (not_understood)", "plan"),
        (
            "lockkeeper plan -d ../..",
            "help refused (not_understood)",
            "leaves the repository",
        ),
        (
            "lockkeeper apply -- -chdir=/",
            "help refused (not_understood)",
            "-chdir",
        ),
        (
            "lockkeeper plan -- -var-file=/etc/passwd",
            "plan refused (var_file)",
            "/etc/passwd",
        ),
        ("lockkeeper help", "help success", "lockkeeper plan"),
        ("lockkeeper unlock", "unlock success", "nothing to release"),
    ] {
        world.ask(pull, text).await.is(outcome).says(part);
    }
    world
        .github
        .close(REPO, pull, "alice")
        .await
        .expect("it is open");
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan refused (closed)")
        .says("closed");
    world
        .ask(pull, "lockkeeper unlock")
        .await
        .is("unlock success");
    assert_eq!(world.server.terraform_log(), "");
    world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_that_is_too_long_for_one_comment_is_posted_in_parts() {
    let world =
        World::start(|_| vec![("a/main.tf", String::new()), ("b/main.tf", String::new())]).await;
    let many = "resource \"terraform_data\" \"many\" {\n  count = 300\n  input = \"number ${count.index} of many\"\n}\n";
    let pull: PullNumber = world
        .open("feature", &[("a/main.tf", many), ("b/main.tf", many)])
        .await;
    let (first, early) = world.part(pull).await;
    assert!(
        first.part == 1 && first.parts > 1 && early.is_none(),
        "{first:?} {early:?}"
    );
    for part in 2..=first.parts {
        let (line, whole) = world.part(pull).await;
        assert_eq!(
            (line.part, line.parts, line.id),
            (part, first.parts, first.id)
        );
        let planned = whole.map(|line| (line.outcome, line.projects.len()));
        assert_eq!(
            planned,
            (part == first.parts).then_some((CommandOutcome::Success, 2))
        );
    }
    world
        .ask(pull, "lockkeeper unlock")
        .await
        .is("unlock success | a default discarded | b default discarded");
    world.finish(&[]).await;
}
