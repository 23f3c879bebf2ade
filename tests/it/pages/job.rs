use std::slice;

use axum::http::StatusCode;
use insta::assert_snapshot;
use lockkeeper::model::{
    Actor, Cause, CommandKind, CommandOutcome, ProjectOutcome, RunId, RunKind,
};
use lockkeeper::store::{NewRun, PolicyApprove};
use lockkeeper_policy::decision::PolicyApproval;
use lockkeeper_policy::findings::PolicyFinding;
use lockkeeper_policy::sets::{
    ItemRegex, PolicyEngine, PolicyOwners, PolicySet, PolicySource, SetName, SetScope,
};
use lockkeeper_policy::verdict::Verdict;

use super::fixture::{World, project, pull};
use super::home::settings;

pub async fn running(world: &World) -> RunId {
    let infra = pull("github.com/acme/infra", 12);
    let command = world
        .command(CommandKind::Plan, &infra, Actor::commenter("alice"))
        .await;
    world
        .run(
            command,
            RunKind::Plan,
            &infra,
            &project("infra/net", "prod", Some("net")),
        )
        .await
}

#[tokio::test]
async fn the_page_of_a_finished_run_shows_its_facts_and_its_output_in_colour() {
    let world = World::new().await;
    let run = running(&world).await;
    world
        .print(
            run,
            1,
            "Initializing...\n\u{1b}[1mterraform_data.a\u{1b}[0m will be created\n",
        )
        .await;
    world.wait(72);
    world
        .print(run, 2, "  \u{1b}[32m+\u{1b}[0m input = \"<b>&\"\n")
        .await;
    world
        .end_run(
            run,
            ProjectOutcome::Planned,
            Some("Plan: 1 to add, 0 to change, 0 to destroy."),
        )
        .await;
    world.wait(3600);
    let page = world.browser().await.get(&format!("/jobs/{run}")).await;
    assert_eq!(page.status, StatusCode::OK);
    settings().bind(|| assert_snapshot!("finished run", page.body));
}

#[tokio::test]
async fn the_page_of_a_running_run_goes_on_by_itself_with_and_without_scripts() {
    let world = World::new().await;
    let run = running(&world).await;
    world.print(run, 7, "one\n").await;
    let page = world
        .browser()
        .await
        .get(&format!("/jobs/{run}"))
        .await
        .body;
    assert!(page.contains("<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>"));
    assert!(
        page.contains(&format!(
            "data-events=\"/jobs/{run}/events\" data-seq=\"7\""
        )),
        "{page}"
    );
    assert!(page.contains("/job.js\" defer></script>"));
    world.end_run(run, ProjectOutcome::Failed, None).await;
    let page = world
        .browser()
        .await
        .get(&format!("/jobs/{run}"))
        .await
        .body;
    assert!(
        !page.contains("<noscript>") && !page.contains("<script") && !page.contains("data-events")
    );
}

#[tokio::test]
async fn a_run_without_output_says_why_there_is_none() {
    let world = World::new().await;
    let run = running(&world).await;
    let path = format!("/jobs/{run}");
    assert!(
        world
            .browser()
            .await
            .get(&path)
            .await
            .text()
            .contains("No output yet.")
    );
    world.end_run(run, ProjectOutcome::Skipped, None).await;
    assert!(
        world
            .browser()
            .await
            .get(&path)
            .await
            .text()
            .contains("This run has no output.")
    );
}

#[tokio::test]
async fn a_long_output_shows_its_end_and_leads_to_everything() {
    let world = World::new().await;
    let run = running(&world).await;
    for seq in 1..=70 {
        world
            .print(run, seq, &format!("line of piece {seq}\n").repeat(400))
            .await;
    }
    let (browser, path) = (world.browser().await, format!("/jobs/{run}"));
    let page = browser.get(&path).await.body;
    assert!(page.contains("The first 18000 lines are not shown here."));
    assert!(
        page.contains("id=\"L18001\"")
            && page.contains("id=\"L28000\"")
            && !page.contains("id=\"L18000\"")
    );
    let text = browser.get(&format!("{path}/output.txt")).await;
    assert_eq!(text.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(text.body.lines().count(), 28_000);
}

#[tokio::test]
async fn the_output_as_text_has_no_colours() {
    let world = World::new().await;
    let run = running(&world).await;
    world.print(run, 1, "\u{1b}[31m<red>\u{1b}[0m\n").await;
    let text = world
        .browser()
        .await
        .get(&format!("/jobs/{run}/output.txt"))
        .await;
    assert_eq!(text.body, "<red>\n");
}

#[tokio::test]
async fn a_run_that_is_not_known_is_explained() {
    let browser = World::new().await.browser().await;
    for path in ["", "/output.txt", "/events"] {
        for id in ["00000000-0000-7000-8000-000000000009", "x", "%ff"] {
            let answer = browser.get(&format!("/jobs/{id}{path}")).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{id}{path}");
        }
    }
    let text = browser.get("/jobs/x").await.text();
    assert!(text.contains("No run has this identifier."));
}

async fn begun(world: &World, kind: CommandKind, run: RunKind) -> RunId {
    let infra = pull("github.com/acme/infra", 12);
    let command = world.command(kind, &infra, Actor::commenter("alice")).await;
    assert!(world.store.command_start(command, None, &[]).await.unwrap());
    world
        .run(
            command,
            run,
            &infra,
            &project("infra/net", "prod", Some("net")),
        )
        .await
}

#[tokio::test]
async fn a_run_is_cancelled_on_its_page_which_then_says_so() {
    let world = World::new().await;
    let run = begun(&world, CommandKind::Plan, RunKind::Plan).await;
    let (browser, path) = (world.browser().await, format!("/jobs/{run}"));
    let page = browser.get(&path).await;
    assert!(
        page.text()
            .contains("This cancels the whole command, with its other projects."),
        "{}",
        page.text()
    );
    assert!(!page.body.contains("name=\"force\""));
    let answer = browser.post(&format!("{path}/cancel"), "").await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (StatusCode::SEE_OTHER, path.as_str())
    );
    let page = browser.get(&path).await;
    assert!(
        page.text()
            .contains("The run is being stopped: ops cancelled it on the dashboard."),
        "{}",
        page.text()
    );
    assert!(!page.body.contains("/cancel\""), "once is enough");
}

#[tokio::test]
async fn an_apply_is_cancelled_only_by_somebody_who_says_that_it_may_be_cut_off() {
    let world = World::new().await;
    let run = begun(&world, CommandKind::Apply, RunKind::Apply).await;
    let (browser, path) = (world.browser().await, format!("/jobs/{run}"));
    let page = browser.get(&path).await;
    assert!(
        page.text()
            .contains("An interrupted apply can leave the infrastructure half changed.")
    );
    assert!(
        page.body
            .contains("<input type=\"hidden\" name=\"force\" value=\"yes\">")
    );
    for fields in ["", "force=", "force=no"] {
        let answer = browser.post(&format!("{path}/cancel"), fields).await;
        assert_eq!(answer.status, StatusCode::CONFLICT, "{fields}");
        assert!(
            answer
                .text()
                .contains("This apply is in progress and was not interrupted")
        );
    }
    let answer = browser.post(&format!("{path}/cancel"), "force=yes").await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn what_has_ended_cannot_be_cancelled() {
    let world = World::new().await;
    let run = begun(&world, CommandKind::Plan, RunKind::Plan).await;
    let command = world.store.run_get(run).await.unwrap().unwrap().command;
    world
        .end_command(command, CommandOutcome::Success, None)
        .await;
    let (browser, path) = (world.browser().await, format!("/jobs/{run}"));
    assert!(!browser.get(&path).await.body.contains("/cancel\""));
    let answer = browser.post(&format!("{path}/cancel"), "").await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert!(
        answer
            .text()
            .contains("The command had ended before it could be cancelled.")
    );
    let stranger = browser
        .post("/jobs/00000000-0000-7000-8000-000000000099/cancel", "")
        .await;
    assert_eq!(stranger.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_page_of_a_hook_names_it_and_no_project() {
    let world = World::new().await;
    let infra = pull("github.com/acme/infra", 12);
    let command = world
        .command(CommandKind::Apply, &infra, Actor::commenter("alice"))
        .await;
    let project = project(".", "default", None);
    let new = NewRun {
        command,
        kind: RunKind::Apply,
        pull: infra,
        project,
    };
    let hook = world
        .store
        .hook_create(&new, "Pre-workflow hook: <Generate>")
        .await
        .unwrap();
    world.store.run_start(hook).await.unwrap();
    world.print(hook, 1, "generated\n").await;
    world.end_run(hook, ProjectOutcome::UpToDate, None).await;
    let page = world.browser().await.get(&format!("/jobs/{hook}")).await;
    let text = page.text();
    assert!(
        text.contains("Pre-workflow hook: &lt;Generate&gt;") && text.contains("succeeded"),
        "{text}"
    );
    assert!(
        text.contains("generated") && !text.contains("Workspace"),
        "{text}"
    );
}

/// The set needs two approvals. The page and the API follow each of them.
#[tokio::test]
async fn a_violated_set_is_shown_as_approved_after_enough_owners_have_approved_it() {
    let mut world = World::new().await;
    let set = PolicySet {
        name: SetName::parse("basics").unwrap(),
        source: PolicySource::Local("/policies".into()),
        engine: PolicyEngine::Embedded,
        namespaces: Vec::new(),
        scope: SetScope::default(),
        owners: PolicyOwners {
            users: vec!["bob".to_owned(), "olga".to_owned()],
            teams: Vec::new(),
        },
        approve_count: 2,
        prevent_self_approve: false,
        sticky: false,
        item_regex: ItemRegex::default(),
        waivers: None,
    };
    world.policy_sets = vec![set.clone()];
    let run = running(&world).await;
    let (infra, net) = (
        pull("github.com/acme/infra", 12),
        project("infra/net", "prod", Some("net")),
    );
    let lock = world.lock(&infra, &net, "alice", "planned").await;
    let verdict = Verdict::of_findings(
        &set,
        set.digest(None),
        "/policies".to_owned(),
        None,
        vec![PolicyFinding::deny("main.deny", "the bucket is public")],
        String::new(),
    );
    let plan = world
        .checked_plan(&lock, run, slice::from_ref(&verdict))
        .await;
    world.end_run(run, ProjectOutcome::PolicyFailed, None).await;
    let browser = world.browser().await;
    for (who, badge, is_approved) in [
        (None, "violated", false),
        (Some("bob"), "violated", false),
        (Some("olga"), "approved", true),
    ] {
        if let Some(login) = who {
            let approval = PolicyApproval {
                set: set.name.clone(),
                plan: plan.id,
                person: login.to_owned(),
                account: None,
                login: login.to_owned(),
                teams: Vec::new(),
                is_author: false,
                items: verdict.items.clone(),
                definition: verdict.definition.clone(),
                at: world.clock_now(),
            };
            let cause = Cause::new(Actor::commenter(login), "approved by comment");
            let approved = world.store.policy_approve(&plan, &[approval], &cause).await;
            assert_eq!(approved.unwrap(), PolicyApprove::Stored);
        }
        let text = browser.get(&format!("/jobs/{run}")).await.text();
        assert!(text.contains(&format!("\nbasics\n{badge}\n")), "{text}");
        let counts = text.contains("how many approvals are missing");
        assert_eq!(counts, !is_approved, "{text}");
        let path = format!("/api/runs/{run}/policies");
        let json = browser.get(&path).await.body;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["sets"][0]["outcome"], "failed");
        assert_eq!(json["sets"][0]["approved"], is_approved, "{json}");
    }
}
