//! Stories about `import`, `state rm` and `version` with real Terraform.

use super::world::World;
use crate::support::server::Settings;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_is_imported_and_leaves_the_state_again() {
    let settings = Settings::default().flag("--allow-commands=all");
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let code = world.files().backend("root")
        + "resource \"terraform_data\" \"it\" {\n  for_each = toset([\"a b\"])\n}\n";
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned")
        .says("Plan: 1 to add");
    let version = world.ask(pull, "lockkeeper version").await;
    version
        .is("version success | . default told")
        .says("Terraform v")
        .says("on linux_");
    let imported = world
        .ask(
            pull,
            "lockkeeper import 'terraform_data.it[\"a b\"]' of-old",
        )
        .await;
    imported
        .is("import success | . default imported")
        .says("Import successful!")
        .says("lockkeeper plan -d .");
    assert!(world.files().state("root", None).contains("of-old"));
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply refused (no_plan)");
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default no_changes");
    let removed = world
        .ask(pull, "lockkeeper state rm 'terraform_data.it[\"a b\"]'")
        .await;
    removed
        .is("state_rm success | . default state_removed")
        .says("Successfully removed 1 resource instance(s).");
    assert!(!world.files().state("root", None).contains("of-old"));
    world
        .ask(pull, "lockkeeper import terraform_data.other x")
        .await
        .is("import failure | . default failed");
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default planned")
        .says("Plan: 1 to add");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.finish(&["#1 . default"]).await;
}
