//! Stories about several projects of one pull request: their order, their dependencies, and the projects of a module.

use lockkeeper::emulator::StatusState;

use super::world::{World, resource};
use crate::support::server::Settings;

/// Configuration with a dependency. By directory alone, `app` would come first.
const DEPENDENT: &str = "version: 3
projects:
- {name: app, dir: app, depends_on: [net]}
- {name: net, dir: net, execution_order_group: -1}
- {name: last, dir: a-last, execution_order_group: 1}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn projects_are_applied_in_order_and_after_what_they_depend_on() {
    let world = World::start(|files| {
        let code = |name: &str| files.backend(name);
        vec![
            ("net/main.tf", code("net")),
            ("app/main.tf", code("app")),
            ("a-last/main.tf", code("last")),
            ("atlantis.yaml", DEPENDENT.to_owned()),
        ]
    })
    .await;
    let code = |name: &str| world.files().backend(name) + &resource(name, "1");
    let (net, app, last) = (code("net"), code("app"), code("last"));
    let files = [
        ("net/main.tf", net.as_str()),
        ("app/main.tf", app.as_str()),
        ("a-last/main.tf", last.as_str()),
    ];
    let pull = world.open("feature", &files).await;
    world.answer(pull).await.is(
        "autoplan success | net default planned | app default planned | a-last default planned",
    );

    let said = world.ask(pull, "lockkeeper apply -p app").await;
    said.is("apply refused | app default refused")
        .says("`net` is not applied yet")
        .says("lockkeeper apply -p net");
    assert_eq!(world.files().state("app", None), "");

    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | net default applied | app default applied | a-last default applied");
    let begun = |name: &str| {
        std::fs::metadata(world.dir.path().join(format!("states/{name}.tfstate")))
            .unwrap()
            .modified()
    };
    assert!(
        begun("net").unwrap() <= begun("app").unwrap()
            && begun("app").unwrap() <= begun("last").unwrap()
    );
    world
        .status(pull, "lockkeeper/apply", StatusState::Success)
        .await;
    world
        .finish(&["#1 a-last default", "#1 app default", "#1 net default"])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_keeps_the_later_groups_from_being_applied() {
    const ABORTING: &str = "version: 3
abort_on_execution_order_fail: true
projects:
- {name: app, dir: app, execution_order_group: 1}
- {name: net, dir: net}
";
    let world = World::start(|files| {
        vec![
            ("net/main.tf", files.backend("net")),
            ("app/main.tf", files.backend("app")),
            ("atlantis.yaml", ABORTING.to_owned()),
        ]
    })
    .await;
    let app = world.files().backend("app") + &resource("app", "1");
    let pull = world
        .open(
            "feature",
            &[
                ("net/main.tf", &resource("net", "var.absent")),
                ("app/main.tf", &app),
            ],
        )
        .await;
    let said = world.answer(pull).await;
    said.is("autoplan failure | net default failed | app default skipped")
        .says("Skipped, because `net` in group");
    assert_eq!(world.server.calls("plan").len(), 1);
    world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_in_a_shared_module_plans_its_users_and_nobody_else() {
    let settings = Settings::default()
        .flag("--autoplan-modules")
        .flag("--sparse-checkout");
    let module = |value: &str| {
        format!(
            "{}\noutput \"it\" {{ value = 1 }}\n",
            resource("inner", value)
        )
    };
    let world = World::start_with(settings, |files| {
        let user =
            |name: &str| files.backend(name) + "module \"wrap\" { source = \"../shared/wrap\" }\n";
        vec![
            ("one/main.tf", user("one")),
            ("two/main.tf", user("two")),
            ("other/main.tf", files.backend("other")),
            (
                "shared/wrap/main.tf",
                "module \"vpc\" { source = \"../modules/vpc\" }\n".to_owned(),
            ),
            ("shared/modules/vpc/main.tf", module("1")),
        ]
    })
    .await;
    let pull = world
        .open("feature", &[("shared/modules/vpc/main.tf", &module("2"))])
        .await;
    let said = world.answer(pull).await;
    said.is("autoplan success | one default planned | two default planned")
        .says("module.wrap.module.vpc.terraform_data.inner");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | one default applied | two default applied");
    world.finish(&["#1 one default", "#1 two default"]).await;
}
