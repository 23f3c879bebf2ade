use axum::http::StatusCode;
use insta::assert_snapshot;
use lockkeeper::model::{Actor, CommandKind, CommandOutcome, Origin, ProjectOutcome, RunKind};

use super::fixture::{OPS, World, project, pull};

/// Creates some data of every kind, some minutes and hours old.
pub async fn busy_world() -> World {
    let world = World::new().await;
    let (infra, apps) = (
        pull("github.com/acme/infra", 12),
        pull("github.com/acme/apps", 4711),
    );
    let net = project("infra/net", "default", Some("net"));
    let root = project(".", "production", None);
    world
        .lock(&infra, &net, "alice", "planned by a comment")
        .await;
    let command = world
        .command(CommandKind::Plan, &infra, Actor::commenter("alice"))
        .await;
    let run = world.run(command, RunKind::Plan, &infra, &net).await;
    world.wait(75);
    world
        .end_run(
            run,
            ProjectOutcome::Planned,
            Some("Plan: 2 to add, 1 to change, 0 to destroy."),
        )
        .await;
    world
        .end_command(command, CommandOutcome::Success, None)
        .await;
    world.wait(7200);
    world
        .lock(
            &apps,
            &root,
            "bob",
            "planned because the pull request changed",
        )
        .await;
    let command = world
        .command(CommandKind::Autoplan, &apps, Actor::of_pull("bob"))
        .await;
    for (n, outcome) in [
        ProjectOutcome::Planned,
        ProjectOutcome::Failed,
        ProjectOutcome::Locked,
    ]
    .into_iter()
    .enumerate()
    {
        let run = world
            .run(
                command,
                RunKind::Plan,
                &apps,
                &project(&format!("apps/{n}"), "default", None),
            )
            .await;
        world.end_run(run, outcome, None).await;
    }
    world
        .end_command(command, CommandOutcome::Partial, None)
        .await;
    let refused = world
        .command(CommandKind::Apply, &apps, Actor::commenter("mallory"))
        .await;
    world
        .end_command(refused, CommandOutcome::Refused, Some("not_approved"))
        .await;
    let page = Actor::new("carol", Origin::Page);
    let running = world.command(CommandKind::Apply, &infra, page).await;
    world.store.command_start(running, None, &[]).await.unwrap();
    world.run(running, RunKind::Apply, &infra, &net).await;
    world.wait(42);
    world
}

/// Returns settings that replace the digests of static files, which change with their content.
pub fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter("/static/[0-9a-f]{16}/", "/static/[digest]/");
    settings.set_omit_expression(true);
    settings
}

#[tokio::test]
async fn the_page_of_a_new_server_says_what_a_lock_is() {
    let page = World::new().await.browser().await.get("/").await;
    assert_eq!(page.status, StatusCode::OK);
    settings().bind(|| assert_snapshot!("empty home", page.body));
}

#[tokio::test]
async fn the_page_of_a_busy_server_tells_who_since_when_and_why() {
    let page = busy_world().await.browser().await.get("/").await;
    settings().bind(|| assert_snapshot!("busy home", page.body));
}

#[tokio::test]
async fn the_old_addresses_show_the_same_page() {
    let browser = busy_world().await.browser().await;
    let page = browser.get("/").await.body;
    for path in ["/locks", "/index.html"] {
        assert_eq!(browser.get(path).await.body, page, "{path}");
    }
}

#[tokio::test]
async fn the_newest_lock_comes_first() {
    let text = busy_world().await.browser().await.get("/").await.text();
    let (newer, older) = (
        text.find("planned because the pull request changed"),
        text.find("planned by a comment"),
    );
    assert!(newer < older);
}

#[tokio::test]
async fn a_search_narrows_locks_and_commands_and_stays_in_the_field_and_in_the_reload_link() {
    let page = busy_world()
        .await
        .browser()
        .await
        .get("/locks?q=ACME%2Finfra+%2312")
        .await;
    assert!(
        page.body.contains("value=\"ACME/infra #12\""),
        "{}",
        page.body
    );
    assert!(
        page.body
            .contains("<a href=\"/?q=ACME%2Finfra%20%2312\">Reload</a>")
    );
    assert!(
        page.body
            .contains("Locks <span class=\"count\">1 of 2</span>")
    );
    let text = page.text();
    assert!(
        text.contains("planned by a comment") && !text.contains("planned because"),
        "{text}"
    );
    assert!(
        text.contains("carol") && !text.contains("mallory"),
        "{text}"
    );
}

#[tokio::test]
async fn a_search_that_finds_nothing_says_so() {
    let text = busy_world()
        .await
        .browser()
        .await
        .get("/?q=nowhere")
        .await
        .text();
    assert!(text.contains("None of the 2 locks match"), "{text}");
    assert!(text.contains("No recent command matches"), "{text}");
}

#[tokio::test]
async fn a_query_that_cannot_be_read_is_no_query() {
    let browser = busy_world().await.browser().await;
    for query in ["?q=a&q=b", "?q=%ff%fe", "?=&&", "?notice=%3Cscript%3E"] {
        let page = browser.get(&format!("/{query}")).await;
        assert_eq!(page.status, StatusCode::OK, "{query}");
        assert!(!page.body.contains("class=\"notice\""), "{query}");
    }
}

#[tokio::test]
async fn a_command_with_many_runs_folds_them() {
    let world = World::new().await;
    let apps = pull("github.com/acme/apps", 1);
    let command = world
        .command(CommandKind::Plan, &apps, Actor::commenter("alice"))
        .await;
    for n in 0..6 {
        world
            .run(
                command,
                RunKind::Plan,
                &apps,
                &project(&format!("p{n}"), "default", None),
            )
            .await;
    }
    let page = world.browser().await.get("/").await;
    assert!(page.body.contains("<summary>6 runs</summary>"));
    assert!(page.text().find("p0/default") < page.text().find("p5/default"));
}

#[tokio::test]
async fn a_long_list_says_that_it_is_cut() {
    let world = World::new().await;
    let apps = pull("github.com/acme/apps", 1);
    for n in 0..301 {
        world
            .lock(
                &apps,
                &project(&format!("p{n}"), "default", None),
                "alice",
                "planned",
            )
            .await;
    }
    let page = world.browser().await.get("/").await;
    assert!(page.text().contains("Showing the newest 300 of 301."));
    assert!(page.body.contains("<span class=\"count\">301</span>"));
    // The oldest lock is not among them, but a search reads all.
    let page = world.browser().await.get("/?q=p0").await;
    assert!(page.body.contains("<span class=\"count\">1 of 301</span>"));
    let page = world.browser().await.get("/?q=apps").await;
    assert!(page.text().contains("Showing the newest 300 of 301."));
}

#[tokio::test]
async fn links_and_redirects_carry_the_path_of_the_public_address_and_routes_do_not() {
    let world = busy_world().await;
    let browser = world
        .browser_with(Some(OPS), "https://ops.example/lockkeeper/")
        .await;
    let page = browser.get("/").await;
    for attribute in ["href=\"/", "src=\"/", "action=\"/"] {
        let ours = page
            .body
            .matches(&format!("{attribute}lockkeeper/"))
            .count();
        assert_eq!(page.body.matches(attribute).count(), ours, "{attribute}");
        assert!(ours > 0);
    }
    let answer = browser.post("/apply-lock/stop", "reason=incident").await;
    assert_eq!(answer.header("location"), "/lockkeeper/?notice=stopped");
    let lock = &world.store.lock_list().await.unwrap()[0];
    let answer = browser.get(&format!("/lock?id={}", lock.key)).await;
    assert_eq!(
        answer.header("location"),
        format!("/lockkeeper/locks/{}", lock.id)
    );
}
