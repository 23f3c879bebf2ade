//! Tests that the texts of people about themselves and their code stay texts.

use lockkeeper::model::{Actor, CommandKind, CommandOutcome, ProjectOutcome, RunKind};

use super::fixture::{Answer, World, project, pull};
use crate::support::db::{applies_in, stop_applies, stop_applies_of};

const ATTACK: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 1111*1111 }}";

fn assert_harmless(page: &Answer) {
    assert!(page.status.is_success(), "{}", page.status);
    for forbidden in [
        "<script>alert",
        "<img src=x",
        "onerror=alert(1)>",
        "javascript:",
        "\u{202e}",
        "1234321",
    ] {
        let body = page.body.replace("onerror=alert(1)&gt;", "");
        assert!(!body.contains(forbidden), "{forbidden} in {}", page.body);
    }
}

async fn page_of_lock_with_url(url: &str) -> Answer {
    let world = World::new().await;
    let lock = world
        .lock_with_url(
            &pull("github.com/acme/infra", 1),
            url,
            &project(".", "default", None),
            "alice",
            "planned",
        )
        .await;
    world
        .browser()
        .await
        .get(&format!("/locks/{}", lock.id))
        .await
}

#[tokio::test]
async fn fields_of_locks_cannot_become_markup() {
    let world = World::new().await;
    let hostile_project = project("a\"><script>alert(1)<", "w\"><script>alert(1)", None);
    let hostile = format!("{ATTACK}\u{202e}");
    let lock = world
        .lock(
            &pull("github.com/acme/infra", 1),
            &hostile_project,
            &hostile,
            &hostile,
        )
        .await;
    let browser = world.browser().await;
    assert_harmless(&browser.get("/").await);
    assert_harmless(&browser.get(&format!("/locks/{}", lock.id)).await);
    let page = browser.get("/?q=%22%3E%3Cscript%3Ealert(1)").await;
    assert_harmless(&page);
    assert!(page.body.contains("<span class=\"count\">1 of 1</span>"));
    assert_harmless(
        &browser
            .get("/?q=%22%27%3E%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
            .await,
    );
}

#[tokio::test]
async fn reasons_actors_and_notes_cannot_become_markup() {
    let world = World::new().await;
    let infra = pull("github.com/acme/infra", 1);
    stop_applies(&world.store, ATTACK, ATTACK).await;
    stop_applies_of(
        &world.store,
        &applies_in("github.com/acme/infra", ATTACK),
        None,
        ATTACK,
        ATTACK,
    )
    .await;
    let command = world
        .command(CommandKind::Plan, &infra, Actor::commenter(ATTACK))
        .await;
    let run = world
        .run(
            command,
            RunKind::Plan,
            &infra,
            &project("<script>alert(1)", "<b>", None),
        )
        .await;
    world
        .end_run(run, ProjectOutcome::Failed, Some(ATTACK))
        .await;
    world
        .end_command(command, CommandOutcome::Failure, Some(ATTACK))
        .await;
    let browser = world.browser().await;
    assert_harmless(&browser.get("/").await);
    assert_harmless(&browser.get("/apply-locks").await);
    assert_harmless(&browser.get(&format!("/jobs/{run}")).await);
}

#[tokio::test]
async fn output_cannot_become_markup() {
    let world = World::new().await;
    let infra = pull("github.com/acme/infra", 1);
    let command = world
        .command(CommandKind::Plan, &infra, Actor::commenter("a"))
        .await;
    let run = world
        .run(
            command,
            RunKind::Plan,
            &infra,
            &project(".", "default", None),
        )
        .await;
    world
        .print(run, 1, &format!("\u{1b}[31m{ATTACK}\u{1b}]8;;https://evil.example/\u{7}x\u{202e}\n{ATTACK}\u{1b}[0m\n"))
        .await;
    world.end_run(run, ProjectOutcome::Failed, None).await;
    let browser = world.browser().await;
    for page in ["", "/events"] {
        let page = browser.get(&format!("/jobs/{run}{page}")).await;
        assert_harmless(&page);
        assert!(
            page.body
                .contains("\u{fffd}]8;;https://evil.example/\u{fffd}x[U+202E]"),
            "{}",
            page.body
        );
        assert!(
            !page.body.contains("\"https://evil.example"),
            "{}",
            page.body
        );
    }
}

#[tokio::test]
async fn an_address_that_is_no_page_of_the_web_does_not_become_a_link() {
    for url in [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        "//evil.example",
        "/relative",
        "",
    ] {
        let page = page_of_lock_with_url(url).await;
        assert_harmless(&page);
        assert!(
            page.body
                .contains("<span class=\"pull\">acme/infra<wbr> #1</span>"),
            "{url}: {}",
            page.body
        );
        assert!(!page.body.contains("class=\"pull\" href"), "{url}");
    }
    let page = page_of_lock_with_url("https://h/\"onclick=\"alert(1)").await;
    assert!(
        page.body
            .contains("href=\"https://h/%22onclick=%22alert(1)\""),
        "{}",
        page.body
    );
}
