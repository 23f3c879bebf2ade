//! Attacks of accounts that are limited to owners, of branches that nobody reviews, and of plans whose output
//! imitates a comment.

use std::os::unix::fs::OpenOptionsExt as _;

use lockkeeper::claims::{application_add, application_change};
use lockkeeper::emulator::Fault;
use lockkeeper::features::applications::{ApplicationAction, queued_or_reason, request_run};
use lockkeeper::model::{
    Actor, ApplicationChange, ApplicationFields, ForgeHosts, Origin, OwnerName, PlanState, Rights,
};
use lockkeeper::queue::Tick;
use lockkeeper::render::marker;
use lockkeeper::store::Application;
use serde_json::{Value, json};

use super::ordinary;
use crate::e2e::world::World;
use crate::support::bot::{Bot, REPO, without_ids};
use crate::support::db::{Backend, by, story};

story!(
    an_application_works_on_the_default_branch_unless_another_one_was_allowed,
    what_was_planned_before_another_branch_became_the_default_one_is_not_applied,
    nobody_applies_the_plan_of_an_application_that_they_made_themselves,
    nobody_applies_the_plan_of_a_pull_that_they_made_themselves,
    a_plan_that_quotes_the_marker_of_another_part_keeps_no_part_away,
);

const NETWORK: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const LOCK: &str = "acme/infra/network/default by #-1";
const FOUR_EYES: &str = r#"{"repos": [{"id": "/.*/", "four_eyes": true}]}"#;

async fn register(bot: &Bot, branch: &str) -> Application {
    let owner = OwnerName::new("net").unwrap();
    drop(bot.store().owner_create(&owner, by()).await.unwrap());
    let url = Some("https://github.test/acme/infra");
    let fields = ApplicationFields {
        url,
        branch: Some(branch),
        dir: Some("network"),
        ..ApplicationFields::default()
    };
    let spec = fields.spec(&ForgeHosts::public()).unwrap();
    application_add(bot.store(), &owner, &spec, (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap()
}

/// Requests a run, and returns its result.
async fn told(
    bot: &Bot,
    app: &Application,
    action: ApplicationAction,
    (login, origin): (&str, Origin),
) -> String {
    let asked = request_run(bot.store(), app.id, action, &Actor::new(login, origin))
        .await
        .unwrap();
    let command = queued_or_reason(asked).unwrap_or_else(|why| panic!("{why:?}"));
    bot.settle().await;
    without_ids(
        &bot.store()
            .command_result(command)
            .await
            .unwrap()
            .expect("something is told"),
    )
}

const OPS: (&str, Origin) = ("ops", Origin::Api);

fn applies(bot: &Bot) -> usize {
    bot.calls()
        .iter()
        .filter(|call| call.starts_with("apply "))
        .count()
}

async fn last_plan(bot: &Bot, app: &Application) -> Option<PlanState> {
    let runs = bot
        .store()
        .application_runs(&app.at().unwrap(), 9)
        .await
        .unwrap();
    runs.plan.map(|plan| plan.state)
}

/// Everybody with the right to push can make such a branch, and nobody has reviewed it.
async fn an_application_works_on_the_default_branch_unless_another_one_was_allowed(
    backend: Backend,
) {
    let bot = Bot::new(backend, &[NETWORK]).await;
    bot.push(
        "evil",
        &[("network/main.tf", "# fake: add 1 change 0 destroy 9\n")],
    )
    .await;
    bot.settle().await;
    let app = register(&bot, "evil").await;
    let refused = told(&bot, &app, ApplicationAction::Plan, OPS).await;
    for part in [
        "**Plan refused**: the application is registered for the branch `evil`, and the default branch of \
         github.test/acme/infra is `main` now.",
        "`lockkeeper apps change ID --branch main`",
        "`lockkeeper apps change ID --any-branch true`",
    ] {
        assert!(refused.contains(part), "{part} is not in: {refused}");
    }
    assert_eq!(
        (bot.calls(), bot.locks().await),
        (vec![], vec![]),
        "not even a plan, which is code of that branch"
    );
    let allow = ApplicationChange {
        any_branch: Some(true),
        ..ApplicationChange::default()
    };
    let limited = application_change(bot.store(), app.id, &allow, (Rights::Limited, by()))
        .await
        .unwrap();
    assert!(
        !limited.or_why().unwrap().spec.any_branch,
        "an account that is limited cannot allow it"
    );
    let allowed = application_change(bot.store(), app.id, &allow, (Rights::Whole, by()))
        .await
        .unwrap();
    assert!(allowed.or_why().unwrap().spec.any_branch);
    let planned = told(&bot, &app, ApplicationAction::Plan, OPS).await;
    assert!(
        planned.contains("**Plan: 1 to add, 0 to change, 9 to destroy.**"),
        "{planned}"
    );
    bot.end(&[LOCK]).await;
}

async fn what_was_planned_before_another_branch_became_the_default_one_is_not_applied(
    backend: Backend,
) {
    let bot = Bot::new(backend, &[NETWORK]).await;
    let app = register(&bot, "main").await;
    let planned = told(&bot, &app, ApplicationAction::Plan, OPS).await;
    assert!(planned.contains("**Plan: 2 to add"), "{planned}");
    bot.github
        .fault("GET /repos/*/*", 10_000, Fault::BadGateway);
    let unknown = told(&bot, &app, ApplicationAction::Apply, OPS).await;
    assert!(
        unknown.contains("could not be reached for the repository acme/infra"),
        "{unknown}"
    );
    assert_eq!(
        applies(&bot),
        0,
        "what cannot be found out lets nothing through: {unknown}"
    );
    bot.github.clear_faults();
    bot.push("trunk", &[NETWORK]).await;
    bot.settle().await;
    bot.github.set_default_branch(REPO, "trunk").unwrap();
    let refused = told(&bot, &app, ApplicationAction::Apply, OPS).await;
    let why = "the application is registered for the branch `main`, and the default branch of github.test/acme/infra is \
               `trunk` now.";
    assert!(
        refused.contains("**Apply refused**: ") && refused.contains(why),
        "{refused}"
    );
    assert_eq!(
        (applies(&bot), last_plan(&bot, &app).await),
        (0, Some(PlanState::Planned))
    );
    bot.github.set_default_branch(REPO, "main").unwrap();
    let applied = told(&bot, &app, ApplicationAction::Apply, OPS).await;
    assert!(
        applied.starts_with("Ran Apply for dir: `network` workspace: `default`: applied"),
        "{applied}"
    );
    bot.end_given_up(&[], &["run_command"]).await;
}

async fn nobody_applies_the_plan_of_an_application_that_they_made_themselves(backend: Backend) {
    let bot = Bot::with(backend, &[NETWORK], &[("repo-config-json", FOUR_EYES)]).await;
    let app = register(&bot, "main").await;
    let (kim, same, olga) = (
        ("kim", Origin::Api),
        ("kim", Origin::Page),
        ("olga", Origin::Page),
    );
    told(&bot, &app, ApplicationAction::Plan, kim).await;
    let refused = told(&bot, &app, ApplicationAction::Apply, same).await;
    let why = "the account that applies must not be the account that planned (`four_eyes`, line 1 of the server's \
               `--repo-config-json`, for `/.*/`), and `kim` (through the API) made the plan. Nothing was applied, and \
               the plan is kept.";
    assert!(
        refused.contains("**Apply refused**: ") && refused.contains(why),
        "{refused}"
    );
    let nobody = told(
        &bot,
        &app,
        ApplicationAction::Apply,
        ("somebody at the dashboard", Origin::Page),
    )
    .await;
    assert!(
        nobody.contains("and the account that requests the apply is unknown"),
        "{nobody}"
    );
    assert_eq!(
        (applies(&bot), last_plan(&bot, &app).await),
        (0, Some(PlanState::Planned))
    );
    let applied = told(&bot, &app, ApplicationAction::Apply, olga).await;
    assert!(
        applied.starts_with("Ran Apply for dir: `network` workspace: `default`: applied"),
        "{applied}"
    );
    told(
        &bot,
        &app,
        ApplicationAction::Plan,
        ("somebody at the dashboard", Origin::Page),
    )
    .await;
    let unknown = told(&bot, &app, ApplicationAction::Apply, olga).await;
    assert!(
        unknown.contains("and the account that made the plan is unknown"),
        "{unknown}"
    );
    told(&bot, &app, ApplicationAction::Plan, kim).await;
    // The same name, but authenticated in another way: a user of the server's machine.
    let on_server = told(&bot, &app, ApplicationAction::Apply, ("kim", Origin::Cli)).await;
    assert!(on_server.contains(": applied"), "{on_server}");
    assert_eq!(applies(&bot), 2);
    bot.end(&[]).await;
}

async fn nobody_applies_the_plan_of_a_pull_that_they_made_themselves(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("repo-config-json", FOUR_EYES)]).await;
    let pull = bot
        .open_pull(
            "wider",
            &[("network/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    bot.answer(pull);
    bot.say(pull, "lockkeeper apply").await;
    let refused = bot.answer(pull);
    assert!(
        refused.contains("and `alice` (by a push) made the plan"),
        "{refused}"
    );
    bot.hear(pull, "bob", "lockkeeper plan").await;
    bot.answer(pull);
    bot.hear(pull, "Bob", "lockkeeper apply").await;
    let refused = bot.answer(pull);
    assert!(
        refused.contains("and `bob` (by comment) made the plan"),
        "{refused}"
    );
    assert_eq!(applies(&bot), 0);
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.answer(pull).contains(": applied"));
    assert_eq!(applies(&bot), 1);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// The bot looks for its own comment when the answer to a request was lost. Output of a plan does not count as one.
async fn a_plan_that_quotes_the_marker_of_another_part_keeps_no_part_away(backend: Backend) {
    let files = ["a/main.tf", "b/main.tf", "c/main.tf", "d/main.tf"];
    let mut bot = Bot::new(backend, &files.map(|path| (path, "# narrow\n"))).await;
    let note = bot.tools.join("note");
    std::fs::write(&note, "nothing yet\n").unwrap();
    let text = format!("# fake: big 750\n# fake: reads {}\n", note.display());
    let pull = bot
        .open_pull("wider", &files.map(|path| (path, text.as_str())))
        .await;
    assert_eq!(bot.read_comments(pull).len(), 3);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper plan")
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.store().command_list(1).await.unwrap().remove(0).id;
    std::fs::write(
        &note,
        format!("{} {}\n", marker(command, 2, 3), marker(command, 3, 3)),
    )
    .unwrap();
    assert_eq!(bot.begin_command().await.unwrap(), Tick::Worked);
    let before = bot.github.comments(REPO, pull).unwrap().len();
    while bot.github.comments(REPO, pull).unwrap().len() == before {
        assert_eq!(bot.replica.tick_short().await.unwrap(), Tick::Worked);
    }
    bot.github
        .fault("POST /repos/*/*/issues/*/comments", 1, Fault::BadGateway);
    bot.settle().await;
    let parts = bot.read_comments(pull);
    let lines: usize = parts
        .iter()
        .map(|part| part.matches("of a very large plan").count())
        .sum();
    assert_eq!((parts.len(), lines), (3, 3000), "no part is lost");
    let locks = ["a", "b", "c", "d"].map(|dir| format!("acme/infra/{dir}/default by #1"));
    bot.end(&locks.each_ref().map(String::as_str)).await;
}

const ACCOUNTS: &str = "user=kim owners=net allow=all password=the-long-password-of-kim\n\
                        user=lee owners=net password=the-long-password-of-lee\n";
const OPS_PASSWORD: &str = "the-long-password-of-ops";

/// Runs the whole program. Accounts that are limited to owners request more than they have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limited_account_takes_no_repository_and_no_branch_that_it_was_not_given() {
    let dir = tempfile::tempdir().unwrap();
    let (accounts, keys) = (dir.path().join("accounts"), dir.path().join("keys"));
    let put = |path: &std::path::Path, text: &str| {
        let mut file = std::fs::File::options()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(path)
            .unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    };
    put(&accounts, ACCOUNTS);
    put(&keys, "2026:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n");
    let settings = ordinary();
    settings.gives(dir.path());
    let settings = settings
        .flag("--web-basic-auth")
        .flag("--web-username=ops")
        .flag(&format!("--web-accounts-file={}", accounts.display()))
        .flag(&format!("--encryption-key-file={}", keys.display()))
        .variable("LOCKKEEPER_WEB_PASSWORD", OPS_PASSWORD);
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let log = world.server.logged("Accounts without `allow=`").await;
    assert!(log.contains("are read-only: lee."), "{log}");
    world.push("evil", "main.tf", "# evil\n").await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let send = async |path: &str, user: &str, body: &Value| {
        let password = if user == "ops" {
            OPS_PASSWORD.to_owned()
        } else {
            format!("the-long-password-of-{user}")
        };
        let request = client
            .post(format!("{}{path}", world.server.url()))
            .basic_auth(user, Some(password))
            .json(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(
        send("/api/owners", "ops", &json!({"name": "net"})).await.0,
        201
    );
    let url = "https://github.test/acme/infra";
    let app = |branch: &str| json!({"owner": "net", "url": url, "branch": branch});
    let token =
        json!({"owner": "net", "url": url, "kind": "token", "token": "ghp_0123456789abcdef"});

    // Nobody has claimed the repository. Neither an application nor a credential of a limited account claims it.
    for (path, body) in [("/api/apps", &app("main")), ("/api/credentials", &token)] {
        let (status, said) = send(path, "kim", body).await;
        assert_eq!(status, 403, "{said}");
        assert!(
            said.contains(
                "only the account of the whole server can make the first claim of a repository"
            ),
            "{said}"
        );
        assert!(
            said.contains("nobody has claimed https://github.test/acme/infra"),
            "{said}"
        );
    }
    let store = world.store().await;
    assert_eq!(store.claim_list(None, None, 9).await.unwrap(), []);
    let (status, said) = send("/api/apps", "ops", &app("main")).await;
    assert_eq!(status, 201, "{said}");
    let first: Value = serde_json::from_str(&said).unwrap();

    // The repository is theirs now, but only on its default branch.
    let (status, said) = send("/api/apps", "kim", &app("evil")).await;
    assert_eq!(status, 403, "{said}");
    assert!(
        said.contains("the default branch of https://github.test/acme/infra is “main”, not “evil”"),
        "{said}"
    );
    let mut any = app("main");
    any["any_branch"] = json!(true);
    assert_eq!(send("/api/apps", "kim", &any).await.0, 403);
    let path = format!("/api/apps/{}", first["id"].as_str().unwrap());
    for change in [
        json!({"branch": "evil"}),
        json!({"any_branch": true}),
        json!({"url": "https://github.test/acme/other"}),
    ] {
        let (status, said) = send(&path, "kim", &change).await;
        assert_eq!(status, 403, "{change}: {said}");
    }
    let mut own = app("main");
    own["dir"] = json!("network");
    let (status, said) = send("/api/apps", "kim", &own).await;
    assert_eq!(status, 201, "{said}");
    // An account without owners in its line may do nothing.
    own["dir"] = json!("dns");
    let (status, said) = send("/api/apps", "lee", &own).await;
    assert_eq!(status, 403, "{said}");
    assert!(
        said.contains("has no `allow=`") || said.contains("has no “allow=”"),
        "{said}"
    );
    assert_eq!(
        send(&format!("{path}/plan"), "lee", &json!({})).await.0,
        403
    );

    let denied = store.lock_event_list(99).await.unwrap();
    let denied = denied
        .iter()
        .filter(|kept| kept.event.kind.as_str() == "denied")
        .count();
    assert_eq!(denied, 9, "every refusal is on record");
    store.close().await;
    world.finish(&[]).await;
}
