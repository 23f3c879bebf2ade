//! Stories about applications: projects that are planned and applied on their branch, without a pull request.

use insta::assert_snapshot;
use lockkeeper::claims::{
    ApplicationRemoved, ApplicationSaved, application_add, application_change, application_remove,
};
use lockkeeper::emulator::Delivering;
use lockkeeper::features::applications::{
    ApplicationAction, queued_or_reason, request_run, request_stop,
};
use lockkeeper::features::{locks, planning};
use lockkeeper::locks::{HandOver, HandOverOutcome};
use lockkeeper::model::{
    Actor, ApplicationFields, CommandId, ForgeHosts, Origin, OwnerName, PlanState, ProjectOutcome,
    Rights, RunKind,
};
use lockkeeper::queue::Tick;
use lockkeeper::store::{Application, CommandState, DiscardOutcome};

use crate::support::bot::{Bot, REPO, without_ids};
use crate::support::db::{Backend, allow_applies, by, stop_applies, story};

story!(
    an_application_is_planned_and_applied_without_a_pull_and_keeps_pulls_out_until_then,
    a_plan_is_applied_only_as_it_was_shown_and_only_where_that_is_allowed,
    a_result_has_all_lines_of_the_output_and_none_for_programs,
    a_plan_that_violates_policies_is_not_applied,
    an_apply_that_was_cut_off_is_told_and_never_done_again,
    what_an_application_is_must_be_in_the_repository,
    a_run_of_an_application_is_cancelled_before_it_begins_and_while_it_plans,
    an_apply_of_an_application_is_interrupted_only_by_force,
    what_an_application_applied_waits_for_no_merge,
    letter_case_gives_nobody_the_repository_of_somebody_else,
    an_application_stays_with_its_repository_when_another_one_takes_the_name,
);

const NETWORK: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const LOCK: &str = "acme/infra/network/default by #-1";

async fn register(bot: &Bot, fields: ApplicationFields<'_>) -> Application {
    register_for(bot, "net", "https://github.test/acme/infra", fields).await
}

async fn register_for(
    bot: &Bot,
    owner: &str,
    url: &str,
    fields: ApplicationFields<'_>,
) -> Application {
    let owner = OwnerName::new(owner).unwrap();
    drop(bot.store().owner_create(&owner, by()).await.unwrap());
    let url = Some(url);
    let branch = fields.branch.or(Some("main"));
    let spec = ApplicationFields {
        url,
        branch,
        ..fields
    }
    .spec(&ForgeHosts::public())
    .unwrap();
    application_add(bot.store(), &owner, &spec, (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap()
}

pub(super) async fn network(bot: &Bot) -> Application {
    register(
        bot,
        ApplicationFields {
            dir: Some("network"),
            ..ApplicationFields::default()
        },
    )
    .await
}

/// Requests a run. Returns the reason if it is refused.
async fn asked(
    bot: &Bot,
    app: &Application,
    action: ApplicationAction,
) -> Result<CommandId, String> {
    let actor = Actor::new("ops", Origin::Api);
    let asked = request_run(bot.store(), app.id, action, &actor)
        .await
        .unwrap();
    let why = |why: Option<lockkeeper::features::locks::KeptLockReason>| {
        why.map(|why| without_ids(&why.message))
    };
    queued_or_reason(asked).map_err(|explained| why(explained).unwrap_or_default())
}

/// Requests a run, and returns its result.
pub(super) async fn told(bot: &Bot, app: &Application, action: ApplicationAction) -> String {
    let command = asked(bot, app, action).await.unwrap();
    bot.settle().await;
    let text = bot
        .store()
        .command_result(command)
        .await
        .unwrap()
        .expect("something is told");
    without_ids(&text)
}

async fn last_plan(bot: &Bot, app: &Application) -> Option<PlanState> {
    let runs = bot
        .store()
        .application_runs(&app.at().unwrap(), 9)
        .await
        .unwrap();
    runs.plan.map(|plan| plan.state)
}

fn applies(bot: &Bot) -> usize {
    bot.calls()
        .iter()
        .filter(|call| call.starts_with("apply "))
        .count()
}

async fn an_application_is_planned_and_applied_without_a_pull_and_keeps_pulls_out_until_then(
    backend: Backend,
) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let app = network(&bot).await;
    assert_snapshot!(asked(&bot, &app, ApplicationAction::Apply).await.unwrap_err(), @"Application network (branch main) has no plan that could be applied: there is none.");
    assert_snapshot!(told(&bot, &app, ApplicationAction::Plan).await, @r#"
    Ran Plan for dir: `network` workspace: `default`: planned

    **Plan: 2 to add, 1 to change, 0 to destroy.**

    1 to update, 2 to create:

    * update `terraform_data.other[1]`
    * create `terraform_data.it`
    * create `terraform_data.it[2]`

    ```diff
    Terraform will perform the following actions:

      # terraform_data.other[1] will be updated in-place
      # terraform_data.it will be created
    + resource "terraform_data" "it" {
          + id = (known after apply)
        }
      # terraform_data.it[2] will be created

    Plan: 2 to add, 1 to change, 0 to destroy.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `872810df` · 0 s</sub>
    "#);
    assert_eq!(bot.locks().await, [LOCK]);
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    assert_snapshot!(bot.answer(pull), @"
    Ran Plan for dir: `network` workspace: `default`: waiting

    **Plan waits**: application [`network (branch main)`](https://locks.example.com/apps/ID) holds the lock of this directory and workspace. `ops` has had it since 2026-03-02 09:00 UTC (planned through the API).

    This pull request is **next in the queue**. It is planned automatically when its turn comes. To leave the queue, comment `lockkeeper unlock` here.

    The lock becomes free when its plan is applied, or when somebody discards the plan on [the page of the application](https://locks.example.com/apps/ID) or [releases the lock](https://locks.example.com/locks/ID).

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `ed94f5c7` · 0 s</sub>
    ");
    let in_use = application_remove(bot.store(), app.id, by())
        .await
        .unwrap()
        .or_why()
        .unwrap_err();
    assert!(
        in_use.starts_with("Application network (branch main) holds the lock of"),
        "{in_use}"
    );
    let moved = ApplicationFields {
        dir: Some("dns"),
        ..ApplicationFields::default()
    };
    let moved = moved.change(&ForgeHosts::public()).unwrap();
    let moved = application_change(bot.store(), app.id, &moved, (Rights::Whole, by()))
        .await
        .unwrap();
    assert!(matches!(moved, ApplicationSaved::InUse(..)), "{moved:?}");
    assert_snapshot!(told(&bot, &app, ApplicationAction::Apply).await, @"
    Ran Apply for dir: `network` workspace: `default`: applied

    **1 added, 0 changed, 0 destroyed.**

    ```diff
    terraform_data.it: Creating...
    terraform_data.it: Creation complete after 0s

    Apply complete! Resources: 1 added, 0 changed, 0 destroyed.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `872810df` · 0 s</sub>
    ");
    assert_eq!(applies(&bot), 1);
    assert_eq!(last_plan(&bot, &app).await, Some(PlanState::Applied));
    assert!(!bot.statuses(pull).contains("application"));
    assert_eq!(bot.locks().await, ["acme/infra/network/default by #1"]);
    let turn = bot.answer(pull);
    assert!(
        turn.contains(
            "this pull request was next in the queue after application network (branch main)."
        ),
        "{turn}"
    );
    let told = told(&bot, &app, ApplicationAction::Plan).await;
    assert!(
        told.contains("**Plan refused**: pull request [#1]("),
        "{told}"
    );
    assert!(
        told.contains(" holds the lock of this directory and workspace. `alice` has had it since"),
        "{told}"
    );
    let history = bot.store().lock_event_list(99).await.unwrap();
    let of_app = |kept: &lockkeeper::model::LockEvent| {
        let whom = kept
            .of_whom()
            .filter(|whom| whom.starts_with("application"))?;
        Some(format!(
            "{} {whom} by {}: {}",
            kept.event.kind, kept.event.cause.actor.login, kept.event.cause.reason
        ))
    };
    let lines: Vec<String> = history.iter().rev().filter_map(of_app).collect();
    assert_snapshot!(lines.join("\n"), @"
    taken application network (branch main) by ops: planned through the API
    released application network (branch main) by ops: the apply ended
    ");
    let removed = application_remove(bot.store(), app.id, by()).await.unwrap();
    assert!(
        matches!(removed, ApplicationRemoved::Removed(_)),
        "{removed:?}"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_plan_is_applied_only_as_it_was_shown_and_only_where_that_is_allowed(backend: Backend) {
    let demands = r#"{"repos": [{"id": "/.*/", "apply_requirements": ["undiverged"]}]}"#;
    let mut bot = Bot::with(
        backend,
        &[NETWORK],
        &[
            ("repo-config-json", demands),
            ("checkout-strategy", "merge"),
        ],
    )
    .await;
    let app = network(&bot).await;
    told(&bot, &app, ApplicationAction::Plan).await;
    stop_applies(bot.store(), "olga", "no changes today").await;
    assert_snapshot!(told(&bot, &app, ApplicationAction::Apply).await, @"
    **Apply refused**: applies are stopped on this whole server, by `olga` since 2026-03-02 09:00 UTC, until somebody allows them again. Reason: no changes today

    * If you can use the pages of this server, allow applies again on `https://locks.example.com/apply-locks`. An administrator can also run `lockkeeper apply-lock clear`.
    * The plans are kept until then; run the command again afterwards.

    <sub>Commit `872810df` · 0 s</sub>
    ");
    assert!(allow_applies(bot.store()).await);
    bot.push("main", &[("network/main.tf", "# fake: no changes\n")])
        .await;
    bot.settle().await;
    assert_snapshot!(told(&bot, &app, ApplicationAction::Apply).await, @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: the plan was made for commit `872810df`, and the branch `main` is at `124c1bfd` now. Nothing was applied.

    * Plan again, look at the plan, then apply it.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `124c1bfd` · 0 s</sub>
    ");
    assert_eq!(
        (applies(&bot), bot.locks().await),
        (0, vec![LOCK.to_owned()])
    );
    let discarded = bot.store().application_discard(app.id, by()).await.unwrap();
    assert!(matches!(discarded, DiscardOutcome::Done(freed) if freed.len() == 1));
    assert_eq!(
        (last_plan(&bot, &app).await, bot.locks().await),
        (Some(PlanState::Discarded), vec![])
    );
    assert_snapshot!(asked(&bot, &app, ApplicationAction::Apply).await.unwrap_err(), @"Application network (branch main) has no plan that could be applied: the last one was discarded.");
    let unchanged = told(&bot, &app, ApplicationAction::Plan).await;
    assert!(
        unchanged.contains("Nothing has to be applied."),
        "{unchanged}"
    );
    assert_eq!(
        (last_plan(&bot, &app).await, bot.locks().await),
        (Some(PlanState::NoChanges), vec![])
    );
    bot.push("main", &[NETWORK]).await;
    bot.settle().await;
    told(&bot, &app, ApplicationAction::Plan).await;
    bot.configure(
        "repo-config-json",
        r#"{"repos": [{"id": "/.*/", "apply_requirements": ["approved", "undiverged"]}]}"#,
    );
    bot.crash_and_restart().await;
    assert_snapshot!(told(&bot, &app, ApplicationAction::Apply).await, @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), but applications have no pull request that could meet it.
    Nothing was applied, and the plan is kept.

    * Make the change in a pull request, and apply it there.
    * Or change that line, if applications may be applied without a review.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `ea25505e` · 0 s</sub>
    ");
    assert_eq!(applies(&bot), 0);
    bot.end(&[LOCK]).await;
}

async fn a_result_has_all_lines_of_the_output_and_none_for_programs(backend: Backend) {
    let says = "# fake: says <!-- the old network -->\n";
    let bot = Bot::new(backend, &[("network/main.tf", says)]).await;
    let app = network(&bot).await;
    let result = told(&bot, &app, ApplicationAction::Plan).await;
    let comments: Vec<&str> = result
        .lines()
        .filter(|line| line.starts_with("<!-- "))
        .collect();
    assert_eq!(comments, ["<!-- the old network -->"], "{result}");
    bot.end(&[LOCK]).await;
}

async fn a_plan_that_violates_policies_is_not_applied(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let policy = "package main\n# fake: deny the bucket is public\n";
    std::fs::write(dir.path().join("main.rego"), policy).unwrap();
    let set = serde_json::json!({
        "name": "basics",
        "path": dir.path(),
        "owners": {"users": ["bob"]},
    });
    let config = serde_json::json!({"policies": {"policy_sets": [set]}}).to_string();
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let bot = Bot::with(backend, &[NETWORK], &flags).await;
    let app = network(&bot).await;
    let plan = told(&bot, &app, ApplicationAction::Plan).await;
    assert!(
        plan.contains("**❌ Policies did not pass**") && plan.contains("the bucket is public"),
        "{plan}"
    );
    assert_eq!(last_plan(&bot, &app).await, Some(PlanState::Planned));
    let refused = told(&bot, &app, ApplicationAction::Apply).await;
    for part in [
        "**Apply refused**: the policies of this plan did not pass: `basics` is violated",
        "can only be approved on a pull request",
    ] {
        assert!(refused.contains(part), "{part}\n{refused}");
    }
    assert_eq!(applies(&bot), 0);
    std::fs::write(dir.path().join("main.rego"), "package main\n").unwrap();
    let plan = told(&bot, &app, ApplicationAction::Plan).await;
    assert!(plan.contains("Policies passed"), "{plan}");
    let applied = told(&bot, &app, ApplicationAction::Apply).await;
    assert!(applied.contains(": applied\n"), "{applied}");
    assert_eq!(applies(&bot), 1);
    bot.end(&[]).await;
}

async fn an_apply_that_was_cut_off_is_told_and_never_done_again(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# fake: hang apply\n")]).await;
    let app = network(&bot).await;
    told(&bot, &app, ApplicationAction::Plan).await;
    let command = asked(&bot, &app, ApplicationAction::Apply).await.unwrap();
    let working = bot.begin_command();
    bot.printed("hanging").await;
    assert_snapshot!(asked(&bot, &app, ApplicationAction::Plan).await.unwrap_err(), @"A command of application network (branch main) is still running: `apply` by `ops` (ID).");
    let busy = application_remove(bot.store(), app.id, by()).await.unwrap();
    assert!(matches!(busy, ApplicationRemoved::InUse(..)), "{busy:?}");
    working.abort();
    drop(working.await);
    bot.crash_and_restart().await;
    bot.settle().await;
    let text = bot
        .store()
        .command_result(command)
        .await
        .unwrap()
        .expect("something is told");
    assert!(
        text.contains("The server stopped during this apply") && !text.contains("comment"),
        "{text}"
    );
    let row = bot.store().command_get(command).await.unwrap().unwrap();
    assert_eq!((row.state, applies(&bot)), (CommandState::Finished, 1));
    assert!(
        asked(&bot, &app, ApplicationAction::Apply).await.is_err(),
        "nobody can say how far it came"
    );
    let runs = bot.store().run_list(command).await.unwrap();
    assert_eq!(
        runs.iter().map(|run| run.kind).collect::<Vec<_>>(),
        [RunKind::Apply]
    );
    drop(bot.store().application_discard(app.id, by()).await.unwrap());
    bot.end(&[]).await;
}

async fn what_an_application_is_must_be_in_the_repository(backend: Backend) {
    let config =
        "version: 3\nprojects:\n- dir: network\n  name: net\n- dir: network\n  name: net-b\n";
    let bot = Bot::new(backend, &[NETWORK, ("atlantis.yaml", config)]).await;
    let nameless = network(&bot).await;
    assert_snapshot!(told(&bot, &nameless, ApplicationAction::Plan).await, @"
    **Plan refused**: 2 projects are in the directory `network` with the workspace `default`: choose one by its name with `-p net`, `-p net-b`; register the application under the name of its project.

    <sub>Commit `480e17f6` · 0 s</sub>
    ");
    let fields = |dir, name, branch| ApplicationFields {
        dir,
        name,
        branch,
        ..ApplicationFields::default()
    };
    let wrong = register(&bot, fields(Some("dns"), Some("net"), None)).await;
    assert_snapshot!(told(&bot, &wrong, ApplicationAction::Plan).await, @"
    **Plan refused**: the application is registered under the name `net`, and the configuration of the repository has no project of that name in `dns` with the workspace `default`. Add it there, or change the application.

    <sub>Commit `480e17f6` · 0 s</sub>
    ");
    let gone = ApplicationFields {
        any_branch: Some(true),
        ..fields(Some("network"), Some("net"), Some("gone"))
    };
    let gone = register(&bot, gone).await;
    assert_snapshot!(told(&bot, &gone, ApplicationAction::Plan).await, @"
    **Plan refused**: the branch `gone` is not in the repository.

    * Create the branch, or change the application.

    <sub>0 s</sub>
    ");
    let name = ApplicationFields {
        name: Some("net"),
        ..ApplicationFields::default()
    };
    let name = name.change(&ForgeHosts::public()).unwrap();
    let named = application_change(bot.store(), nameless.id, &name, (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap();
    let planned = told(&bot, &named, ApplicationAction::Plan).await;
    assert!(
        planned.starts_with(
            "Ran Plan for project: `net` dir: `network` workspace: `default`: planned"
        ),
        "{planned}"
    );
    assert_eq!(bot.calls(), ["init network", "plan network"]);
    bot.end(&[LOCK]).await;
}

async fn an_application_stays_with_its_repository_when_another_one_takes_the_name(
    backend: Backend,
) {
    let bot = Bot::new(backend, &[NETWORK]).await;
    let app = network(&bot).await;
    assert!(
        told(&bot, &app, ApplicationAction::Plan)
            .await
            .contains("2 to add")
    );
    // The webhook of the rename is not delivered.
    bot.github.set_delivering(Delivering::Held).await;
    bot.github
        .rename_repo(REPO, "acme/network", "alice")
        .await
        .unwrap();
    bot.github
        .create_repo(
            REPO,
            &[("network/main.tf", "# fake: add 9 change 0 destroy 0\n")],
        )
        .await
        .unwrap();
    while bot.github.lose_next().is_some() {}
    bot.github.set_delivering(Delivering::Immediately).await;
    let said = told(&bot, &app, ApplicationAction::Plan).await;
    assert!(
        said.contains("2 to add") && !said.contains("9 to add"),
        "{said}"
    );
    bot.end(&["acme/network/network/default by #-1"]).await;
}

fn olga(origin: Origin) -> Actor {
    Actor::new("olga", origin)
}

/// Returns the result of a run that has ended.
async fn end_of(bot: &Bot, command: CommandId) -> String {
    let row = bot.store().command_get(command).await.unwrap().unwrap();
    assert_eq!(row.state, CommandState::Finished);
    without_ids(
        &bot.store()
            .command_result(command)
            .await
            .unwrap()
            .expect("something is told"),
    )
}

/// Requests a stop as the command line does, which only has the database. Returns the reason if it is refused.
async fn stop_asked(bot: &Bot, app: &Application, force: bool) -> Result<CommandId, String> {
    let asked = request_stop(bot.store(), app.id, &olga(Origin::Cli), force)
        .await
        .unwrap();
    let asked = asked.map(|command| command.id);
    asked.map_err(|why| {
        why.map_or_else(String::new, |why| {
            format!("{} {}", why.code, without_ids(&why.message))
        })
    })
}

async fn a_run_of_an_application_is_cancelled_before_it_begins_and_while_it_plans(
    backend: Backend,
) {
    let bot = Bot::new(backend, &[("network/main.tf", "# fake: hang plan\n")]).await;
    let app = network(&bot).await;
    assert_snapshot!(stop_asked(&bot, &app, false).await.unwrap_err(), @"over Application network (branch main) has no such queued or running run: it has ended, or it never existed.");
    let ctx = &bot.replica.ctx;
    let waiting = asked(&bot, &app, ApplicationAction::Plan).await.unwrap();
    let cancelled = planning::cancel_command(ctx, waiting, &olga(Origin::Page), false)
        .await
        .unwrap();
    assert_eq!(
        (cancelled.dropped.len(), cancelled.interrupted.len()),
        (1, 0)
    );
    assert_snapshot!(end_of(&bot, waiting).await, @"
    **Plan cancelled**: `olga` cancelled it on the dashboard before its turn came. Nothing was run.

    <sub>0 s</sub>
    ");
    let waiting = asked(&bot, &app, ApplicationAction::Plan).await.unwrap();
    assert_eq!(stop_asked(&bot, &app, false).await.unwrap(), waiting);
    assert!(
        asked(&bot, &app, ApplicationAction::Plan).await.is_err(),
        "a server has to end it first"
    );
    bot.settle().await;
    assert_snapshot!(end_of(&bot, waiting).await, @"
    **Plan cancelled**: `olga` cancelled it on the command line before its turn came. Nothing was run.

    <sub>0 s</sub>
    ");
    assert_eq!(bot.calls(), [""; 0]);
    let running = asked(&bot, &app, ApplicationAction::Plan).await.unwrap();
    let working = bot.begin_command();
    bot.printed("hanging").await;
    let cancelled = planning::cancel_command(ctx, running, &olga(Origin::Api), false)
        .await
        .unwrap();
    assert_eq!(
        (cancelled.dropped.len(), cancelled.interrupted.len()),
        (0, 1)
    );
    assert_eq!(working.await.unwrap(), Tick::Worked);
    bot.settle().await;
    assert_snapshot!(end_of(&bot, running).await, @"
    Ran Plan for dir: `network` workspace: `default`: cancelled

    **Plan cancelled**: `olga` cancelled it through the API, so `terraform plan` was interrupted.

    ```diff
    hanging
    Interrupt received.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `5df2fcfd` · 0 s</sub>
    ");
    assert_eq!(
        (bot.calls(), last_plan(&bot, &app).await),
        (
            vec!["init network".to_owned(), "plan network".to_owned()],
            None
        )
    );
    bot.end(&[]).await;
}

async fn an_apply_of_an_application_is_interrupted_only_by_force(backend: Backend) {
    let bot = Bot::new(backend, &[("network/main.tf", "# fake: hang apply\n")]).await;
    let app = network(&bot).await;
    told(&bot, &app, ApplicationAction::Plan).await;
    let command = asked(&bot, &app, ApplicationAction::Apply).await.unwrap();
    let working = bot.begin_command();
    bot.printed("hanging").await;
    let spared = planning::cancel_command(&bot.replica.ctx, command, &olga(Origin::Page), false)
        .await
        .unwrap();
    assert_eq!((spared.spared.len(), spared.interrupted.len()), (1, 0));
    assert_snapshot!(stop_asked(&bot, &app, false).await.unwrap_err(), @"apply_running The apply of application network (branch main) that `ops` requested is running, so it was not interrupted: an interrupted apply can leave its changes incomplete.");
    bot.replica.tick("stops").await.unwrap();
    let row = bot.store().command_get(command).await.unwrap().unwrap();
    assert_eq!((row.state, row.stop), (CommandState::Running, None));
    assert_eq!(stop_asked(&bot, &app, true).await.unwrap(), command);
    bot.replica.tick("stops").await.unwrap();
    assert_eq!(working.await.unwrap(), Tick::Worked);
    bot.settle().await;
    assert_snapshot!(end_of(&bot, command).await, @"
    Ran Apply for dir: `network` workspace: `default`: cancelled

    **Apply cancelled**: `olga` cancelled it on the command line, so `terraform apply` was stopped.

    * The state has the changes that were applied until then. Plan again to see what is left.

    ```diff
    hanging
    Interrupt received.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `89a5fa19` · 0 s</sub>
    ");
    let runs = bot.store().run_list(command).await.unwrap();
    assert_eq!(
        runs.iter().map(|run| run.outcome).collect::<Vec<_>>(),
        [Some(ProjectOutcome::Cancelled)]
    );
    assert_eq!(
        (applies(&bot), last_plan(&bot, &app).await),
        (1, Some(PlanState::ApplyFailed))
    );
    assert_eq!(
        stop_asked(&bot, &app, true)
            .await
            .unwrap_err()
            .split(' ')
            .next(),
        Some("over")
    );
    bot.end(&[LOCK]).await;
}

async fn what_an_application_applied_waits_for_no_merge(backend: Backend) {
    let bot = Bot::new(backend, &[NETWORK]).await;
    let app = network(&bot).await;
    for action in [
        ApplicationAction::Plan,
        ApplicationAction::Apply,
        ApplicationAction::Plan,
    ] {
        told(&bot, &app, action).await;
    }
    let lock = bot.store().lock_list().await.unwrap().remove(0);
    let lock_use = bot.store().lock_use(&lock).await.unwrap();
    assert!(lock_use.is_idle(), "{lock_use:?}");
    let actor = olga(Origin::Page);
    let release = HandOver {
        lock: lock.id,
        to: None,
        force: false,
        reason: None,
        actor,
        remote: None,
    };
    let HandOverOutcome::Done(given) = locks::hand_over_on_server(&bot.replica.ctx, &release)
        .await
        .unwrap()
    else {
        panic!("nothing is to be merged first")
    };
    assert_eq!((given.applied, given.plan, given.now), (false, true, None));
    assert_eq!(last_plan(&bot, &app).await, Some(PlanState::Discarded));
    bot.end(&[]).await;
}

/// A person who does not know the server's forge keeps the letter case of an address. It becomes another claim of the
/// same repository.
async fn letter_case_gives_nobody_the_repository_of_somebody_else(backend: Backend) {
    let bot = Bot::new(backend, &[NETWORK]).await;
    let fields = ApplicationFields {
        dir: Some("network"),
        ..ApplicationFields::default()
    };
    let other = register_for(&bot, "dns", "https://github.test/Acme/Infra", fields).await;
    assert_snapshot!(told(&bot, &other, ApplicationAction::Plan).await, @"
    **Plan refused**: nobody has claimed the repository `https://github.test/acme/infra`, and this application was registered for `dns` with the address `https://github.test/Acme/Infra`.

    * Remove the application and register it again with the address `https://github.test/acme/infra`.
    * On the machine of the server, run commands with the `--gh-hostname` of the server, so that they write addresses in the same way.

    <sub>0 s</sub>
    ");
    let own = network(&bot).await;
    assert_snapshot!(told(&bot, &other, ApplicationAction::Plan).await, @"
    **Plan refused**: `net` has claimed the repository `https://github.test/acme/infra`, and this application was registered for `dns` with the address `https://github.test/Acme/Infra`.

    * Remove the application and register it again for `net` with the address `https://github.test/acme/infra`.
    * On the machine of the server, run commands with the `--gh-hostname` of the server, so that they write addresses in the same way.

    <sub>0 s</sub>
    ");
    assert_eq!((bot.calls(), bot.locks().await), (vec![], vec![]));
    let told = told(&bot, &own, ApplicationAction::Plan).await;
    assert!(
        told.starts_with("Ran Plan for dir: `network` workspace: `default`: planned"),
        "{told}"
    );
    bot.end(&[&format!("acme/infra/network/default by #{}", own.number)])
        .await;
}
