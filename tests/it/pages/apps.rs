//! Tests of the page of an application, and of the API that plans and applies it.

use axum::body::Body;
use axum::http::StatusCode;
use lockkeeper::claims::application_add;
use lockkeeper::config::access::WebRules;
use lockkeeper::model::{
    ApplicationFields, CommandId, CommandKind, CommandOutcome, ForgeHosts, OwnerName, ProjectKey,
    ProjectOutcome, PullRef, Rights, RunKind,
};
use lockkeeper::store::{Application, CommandState, FinishedCommand};
use serde_json::{Value, json};

use super::fixture::{Browser, World};
use crate::support::db::by;

/// Creates a world in which one application is planned and another is in progress. Returns their pages.
pub async fn world() -> (World, [String; 2]) {
    let world = World::new().await;
    let (planned, busy) = (
        registered(&world).await,
        registered_in(&world, "network/eu-west-1").await,
    );
    let script = world.browser().await.without_cookie();
    for app in [&planned, &busy] {
        assert_eq!(ask(&script, &app.id.to_string(), "plan").await.0, 202);
    }
    let at = planned.at().unwrap();
    let commands = world.store.command_list(2).await.unwrap();
    let command = commands
        .iter()
        .find(|command| command.pull == at)
        .unwrap()
        .id;
    self::planned(&world, &at, command).await;
    (
        world,
        [planned, busy].map(|app| format!("/apps/{}", app.id)),
    )
}

async fn registered(world: &World) -> Application {
    registered_in(world, "network").await
}

async fn registered_in(world: &World, dir: &str) -> Application {
    let owner = OwnerName::new("net").unwrap();
    drop(world.store.owner_create(&owner, by()).await.unwrap());
    let fields = ApplicationFields {
        url: Some("https://github.com/acme/infra"),
        branch: Some("main"),
        dir: Some(dir),
        ..ApplicationFields::default()
    };
    let spec = fields.spec(&ForgeHosts::public()).unwrap();
    application_add(&world.store, &owner, &spec, (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap()
}

async fn ask(browser: &Browser, app: &str, action: &str) -> (u16, Value) {
    let request = browser.request("POST", &format!("/api/apps/{app}/{action}"));
    let answer = browser.send(request.body(Body::empty()).unwrap()).await;
    (
        answer.status.as_u16(),
        serde_json::from_str(&answer.body).unwrap(),
    )
}

async fn end(world: &World, command: CommandId, result: &str) {
    let (outcome, result) = (CommandOutcome::Success, Some(result.to_owned()));
    let end = FinishedCommand {
        id: command,
        outcome,
        reason: None,
        result,
        outbox: Vec::new(),
        comments: 0,
    };
    assert!(world.store.command_finish(&end).await.unwrap());
}

/// Does what a server would do for a plan.
async fn planned(world: &World, at: &PullRef, command: CommandId) {
    let project = ProjectKey::of_dir("network".parse().unwrap());
    let url = "https://locks.example/apps/1";
    let lock = world
        .lock_with_url(at, url, &project, "ops", "planned through the API")
        .await;
    let run = world.run(command, RunKind::Plan, at, &project).await;
    world.plan(&lock, run).await;
    world
        .end_run(
            run,
            ProjectOutcome::Planned,
            Some("Plan: 2 to add, 1 to change, 0 to destroy."),
        )
        .await;
    end(world, command, "Ran Plan for dir: `network`: planned <b>").await;
}

#[tokio::test]
async fn a_script_plans_applies_and_discards_and_is_told_what_is_in_the_way() {
    let world = World::new().await;
    let (script, app) = (
        world.browser().await.without_cookie(),
        registered(&world).await,
    );
    let (id, at) = (app.id.to_string(), app.at().unwrap());
    let said = |answer: &Value| answer["error"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        ask(&script, "00000000-0000-7000-8000-00000000ffff", "plan")
            .await
            .0,
        404
    );
    assert_eq!(ask(&script, "x", "apply").await.0, 404);
    assert_eq!(ask(&script, &id, "destroy").await.0, 404);
    let (status, refused) = ask(&script, &id, "apply").await;
    assert_eq!((status, &refused["reason"]), (409, &Value::from("no_plan")));
    insta::assert_snapshot!(said(&refused), @"Application network (branch main) has no plan that could be applied: there is none. Nothing was changed.");
    let (status, queued) = ask(&script, &id, "plan").await;
    assert_eq!(
        (status, &queued["page"]),
        (
            202,
            &Value::from(format!("https://locks.example/apps/{id}"))
        )
    );
    let command: CommandId = queued["id"].as_str().unwrap().parse().unwrap();
    let (status, refused) = ask(&script, &id, "plan").await;
    assert_eq!(
        (status, &refused["reason"]),
        (409, &Value::from("busy")),
        "{refused}"
    );
    assert_eq!(ask(&script, &id, "discard").await.0, 409);
    planned(&world, &at, command).await;
    let shown = script.get(&format!("/api/apps/{id}")).await.body;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (
            &shown["plan"]["state"],
            &shown["runs"][0]["outcome"],
            &shown["locks"][0]["application"]
        ),
        (
            &Value::from("planned"),
            &Value::from("success"),
            &Value::from("network (branch main)")
        ),
        "{shown:#}"
    );
    let request = script
        .request("DELETE", &format!("/api/apps/{id}"))
        .body(Body::empty())
        .unwrap();
    let kept = script.send(request).await;
    assert_eq!(kept.status, StatusCode::CONFLICT, "{}", kept.body);
    assert!(kept.body.contains("holds the lock of"), "{}", kept.body);
    let (status, freed) = ask(&script, &id, "discard").await;
    assert_eq!(
        (status, &freed["released"][0]["dir"]),
        (200, &Value::from("network"))
    );
    assert_eq!(world.store.lock_list().await.unwrap(), []);
    let row = world.store.command_get(command).await.unwrap().unwrap();
    assert_eq!(
        (row.kind, row.pull, row.actor.login.as_str()),
        (CommandKind::Plan, at, "ops")
    );
}

#[tokio::test]
async fn the_page_shows_an_application_with_its_plan_its_lock_and_its_runs_and_has_the_buttons() {
    let mut world = World::new().await;
    let (browser, app) = (world.browser().await, registered(&world).await);
    let (page, at) = (format!("/apps/{}", app.id), app.at().unwrap());
    assert_eq!(browser.get("/apps/x").await.status, StatusCode::NOT_FOUND);
    assert!(
        browser
            .get("/owners/net")
            .await
            .body
            .contains(&format!("href=\"{page}\""))
    );
    let asked = browser.post(&format!("{page}/plan"), "").await;
    assert_eq!(
        (asked.status, asked.header("location")),
        (
            StatusCode::SEE_OTHER,
            format!("{page}?notice=plan").as_str()
        )
    );
    let busy = browser.get(&format!("{page}?notice=plan")).await.text();
    assert!(
        busy.contains("Plan queued.") && busy.contains("A run is in progress: plan,"),
        "{busy}"
    );
    assert_eq!(
        browser.post(&format!("{page}/apply"), "").await.status,
        StatusCode::CONFLICT
    );
    let command = world.store.command_list(1).await.unwrap().remove(0).id;
    planned(&world, &at, command).await;
    world.wait(60);
    let shown = browser.get(&page).await;
    assert!(
        shown.body.contains("planned &lt;b&gt;"),
        "what came of it is text"
    );
    insta::assert_snapshot!(shown.text(), @"
    ← net
    Application network (branch main)
    An application is planned and applied as it is on its branch, without a pull request.
    Facts
    Repository
    https:/
    /
    github.com/
    acme/
    infra
    Branch
    main
    Path
    network
    Workspace
    default
    Project
    no name
    Owner
    net
    Added
    1 min ago
    by ada
    Last plan
    Changes
    Plan: 2 to add, 1 to change, 0 to destroy.
    State
    waiting to be applied
    Commit
    a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1
    Tool
    Terraform 1.9.8
    Created
    1 min ago
    The application holds
    the lock of network
    since
    1 min ago
    : planned through the API, for ops. Pull requests that change the same project are queued for the lock.
    Actions
    Plan
    Apply…
    This applies exactly the plan above. If the branch has changed since, nothing is applied.
    Yes, apply it
    Discard the plan
    Runs
    plan
    success
    requested by ops on the dashboard,
    1 min ago
    , took 0 s
    network/default
    planned
    Result
    Ran Plan for dir: `network`: planned &lt;b&gt;
    ");
    let home = browser.get("/").await.text();
    assert!(
        home.contains("application network (branch main)") && !home.contains("#-1"),
        "{home}"
    );
    let lock = world.store.lock_list().await.unwrap().remove(0);
    let lock = browser.get(&format!("/locks/{}", lock.id)).await.text();
    assert!(
        lock.contains("has to be planned again before it can be applied") && !lock.contains("#-1"),
        "{lock}"
    );
    world.web_rules = WebRules::new(&["plan", "apply_lock"]).unwrap();
    let limited = world.browser().await;
    let text = limited.get(&page).await.text();
    assert!(
        !text.contains("Yes, apply it") && !text.contains("Discard the plan"),
        "{text}"
    );
    assert_eq!(
        limited.post(&format!("{page}/apply"), "").await.status,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        limited.post(&format!("{page}/discard"), "").await.status,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        browser.post(&format!("{page}/discard"), "").await.status,
        StatusCode::SEE_OTHER
    );
    assert_eq!(world.store.lock_list().await.unwrap(), []);
}

async fn stop(browser: &Browser, app: &str, body: &Value) -> (u16, Value) {
    let request = browser
        .request("POST", &format!("/api/apps/{app}/cancel"))
        .header("content-type", "application/json");
    let answer = browser
        .send(request.body(Body::from(body.to_string())).unwrap())
        .await;
    (
        answer.status.as_u16(),
        serde_json::from_str(&answer.body).unwrap(),
    )
}

/// Starts an apply after a plan. Returns the command of the apply.
async fn applying(world: &World, script: &Browser, app: &Application) -> CommandId {
    let (id, at) = (app.id.to_string(), app.at().unwrap());
    let (_, queued) = ask(script, &id, "plan").await;
    planned(world, &at, queued["id"].as_str().unwrap().parse().unwrap()).await;
    let (_, queued) = ask(script, &id, "apply").await;
    let command = queued["id"].as_str().unwrap().parse().unwrap();
    assert!(world.store.command_start(command, None, &[]).await.unwrap());
    command
}

#[tokio::test]
async fn a_script_cancels_what_works_on_an_application_and_an_apply_only_by_force() {
    let mut world = World::new().await;
    let (script, app) = (
        world.browser().await.without_cookie(),
        registered(&world).await,
    );
    let id = app.id.to_string();
    assert_eq!(
        stop(&script, "00000000-0000-7000-8000-00000000ffff", &json!({}))
            .await
            .0,
        404
    );
    assert_eq!(stop(&script, &id, &json!({ "forse": true })).await.0, 422);
    let (status, over) = stop(&script, &id, &json!({})).await;
    assert_eq!((status, &over["reason"]), (409, &json!("over")), "{over}");
    insta::assert_snapshot!(over["error"].as_str().unwrap(), @"Application network (branch main) has no such queued or running run: it has ended, or it never existed. Nothing was changed.");
    let (_, queued) = ask(&script, &id, "plan").await;
    let other = json!({ "run": "00000000-0000-7000-8000-00000000ffff" });
    assert_eq!(
        stop(&script, &id, &other).await.0,
        409,
        "another run is meant"
    );
    let (status, dropped) = stop(&script, &id, &json!({ "run": queued["id"] })).await;
    assert_eq!((status, &dropped), (200, &queued), "it had not begun");
    let row = world.store.command_list(1).await.unwrap().remove(0);
    assert_eq!(
        (row.state, row.outcome),
        (CommandState::Finished, Some(CommandOutcome::Refused))
    );
    let command = applying(&world, &script, &app).await;
    let (status, spared) = stop(&script, &id, &json!({ "force": false })).await;
    assert_eq!(
        (status, &spared["reason"], &spared["field"]),
        (409, &json!("apply_running"), &json!("force"))
    );
    insta::assert_snapshot!(spared["error"].as_str().unwrap(), @"The apply of application network (branch main) that “ops” requested is running, so it was not interrupted: an interrupted apply can leave its changes incomplete. Nothing was changed.");
    world.web_rules = WebRules::new(&["cancel"]).unwrap();
    let weaker = world.browser().await.without_cookie();
    assert_eq!(stop(&weaker, &id, &json!({ "force": true })).await.0, 403);
    let row = world.store.command_get(command).await.unwrap().unwrap();
    assert_eq!(row.stop, None, "nothing was asked to stop so far");
    assert_eq!(stop(&script, &id, &json!({ "force": true })).await.0, 202);
    let row = world.store.command_get(command).await.unwrap().unwrap();
    assert_eq!(row.stop.unwrap().why, "`ops` cancelled it through the API");
}

#[tokio::test]
async fn what_works_on_an_application_is_cancelled_on_its_page() {
    let mut world = World::new().await;
    let (browser, app) = (world.browser().await, registered(&world).await);
    let script = world.browser().await.without_cookie();
    let (page, path) = (
        format!("/apps/{}", app.id),
        format!("/apps/{}/cancel", app.id),
    );
    assert_eq!(
        browser.post(&path, "").await.status,
        StatusCode::CONFLICT,
        "nothing works on it"
    );
    browser.post(&format!("{page}/plan"), "").await;
    let queued = world.store.command_list(1).await.unwrap().remove(0).id;
    let shown = browser.get(&page).await;
    assert!(
        shown
            .body
            .contains(&format!("name=\"run\" value=\"{queued}\"")),
        "{}",
        shown.body
    );
    assert!(
        shown.text().contains("Yes, cancel it") && !shown.body.contains("name=\"force\""),
        "{}",
        shown.text()
    );
    let stale = browser
        .post(&path, "run=00000000-0000-7000-8000-00000000ffff")
        .await;
    assert_eq!(
        stale.status,
        StatusCode::CONFLICT,
        "what an old page showed is not what works now"
    );
    let cancelled = browser.post(&path, &format!("run={queued}")).await;
    let after = format!("{page}?notice=cancel");
    assert_eq!(
        (cancelled.status, cancelled.header("location")),
        (StatusCode::SEE_OTHER, after.as_str())
    );
    let text = browser.get(&after).await.text();
    assert!(
        text.contains("The run was cancelled.") && !text.contains("A run is in progress"),
        "{text}"
    );
    assert!(
        text.contains("cancelled it on the dashboard before its turn came."),
        "{text}"
    );

    let applying = applying(&world, &script, &app).await;
    let shown = browser.get(&page).await;
    assert!(
        shown
            .text()
            .contains("A run is in progress: apply, requested by ops."),
        "{}",
        shown.text()
    );
    assert!(
        shown.body.contains("name=\"force\" value=\"yes\""),
        "{}",
        shown.body
    );
    for fields in ["", "force=no"] {
        let spared = browser
            .post(&path, &format!("run={applying}&{fields}"))
            .await;
        assert_eq!(spared.status, StatusCode::CONFLICT, "{fields}");
        assert!(
            spared
                .text()
                .contains("is running, so it was not interrupted"),
            "{}",
            spared.text()
        );
    }
    world.web_rules = WebRules::new(&["cancel", "apply_lock"]).unwrap();
    let weaker = world.browser().await;
    let text = weaker.get(&page).await.text();
    assert!(
        text.contains("lacks\ncancel_force") && !text.contains("Yes, interrupt"),
        "{text}"
    );
    assert_eq!(
        weaker.post(&path, "force=yes").await.status,
        StatusCode::FORBIDDEN
    );
    let forced = browser
        .post(&path, &format!("run={applying}&force=yes"))
        .await;
    assert_eq!(forced.status, StatusCode::SEE_OTHER);
    let shown = browser.get(&page).await;
    assert!(
        shown
            .text()
            .contains("The run is being stopped: ops cancelled it"),
        "{}",
        shown.text()
    );
    assert!(!shown.body.contains("/cancel\""), "once is enough");
}
