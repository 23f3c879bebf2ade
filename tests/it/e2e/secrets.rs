//! Stories in which code from pull requests sees none of the server's secrets (P8). Every story also looks for
//! credentials in the log and on disk, see `Server::finish`.

use super::world::World;
use crate::support::server::{Settings, TOKEN, WEBHOOK_SECRET};

const DUMP: &str = r#"resource "terraform_data" "spy" {
  provisioner "local-exec" {
    command = "env > PATH_OF_DUMP; echo; env"
  }
}
output "shell" { value = "LOCKKEEPER_GH_TOKEN" }
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_prints_the_environment_sees_no_secret_of_the_server() {
    let settings = Settings::default()
        .variable("ATLANTIS_GH_WEBHOOK_SECRET", "an older secret")
        .variable("GITHUB_TOKEN", "ghp_somebody_elses")
        .variable("AWS_PROFILE", "for-terraform")
        .variable("EXTRA_SETTING", "wanted")
        .flag("--pass-environment=EXTRA_*");
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let dump = world.dir.path().join("dump");
    let code = DUMP.replace("PATH_OF_DUMP", &dump.display().to_string());
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply success | . default applied")
        .says("AWS_PROFILE=for-terraform");

    let seen = std::fs::read_to_string(dump).expect("the code ran");
    for part in [
        "AWS_PROFILE=for-terraform",
        "EXTRA_SETTING=wanted",
        "PATH=",
        "HOME=",
        "TF_IN_AUTOMATION=true",
    ] {
        assert!(seen.contains(part), "{part} is missing in:\n{seen}");
    }
    for part in [
        TOKEN,
        WEBHOOK_SECRET,
        "an older secret",
        "ghp_somebody_elses",
        "LOCKKEEPER_",
        "_GH_",
        "DATABASE_URL",
    ] {
        assert!(!seen.contains(part), "{part} is in:\n{seen}");
        assert!(
            part.ends_with('_') || !said.text.contains(part),
            "{part} is in:\n{}",
            said.text
        );
    }
    // The server could reserve the place at which programs inherit their secrets.
    assert!(!world.server.log().contains("Descriptor 3"));
    world.finish(&["#1 . default"]).await;
}
