//! Stories of people with the real `terraform` and `tofu`: modules of the registry over TLS, with and without a token.

use std::path::Path;

use lockkeeper::features::registry::Visibility;
use lockkeeper_registry::records::TakedownKind;

use super::site::{Person, Site};
use crate::support::program::opentofu;
use crate::support::server::find_terraform;

fn project(version: &str) -> String {
    format!(
        "module \"vpc\" {{\n  source  = \"mods.example.com/acme/vpc/aws\"\n  version = \"{version}\"\n}}\n\n\
         output \"size\" {{\n  value = module.vpc.size\n}}\n"
    )
}

async fn publish(site: &Site, version: &str) {
    let main = format!("output \"size\" {{\n  value = \"{version}\"\n}}\n");
    let files: [(&str, &[u8]); 2] = [("main.tf", main.as_bytes()), ("README.md", b"A network.\n")];
    let key = format!("module acme/vpc/aws {version}");
    site.admin.publish(&key, &files).await;
}

/// Returns the text of a failure of `init` in one line, because `terraform` breaks lines.
pub fn failure(person: &Person) -> String {
    let said = person.terraform_init();
    assert_ne!(said.code, 0, "{}", said.out);
    let text = said.err.replace(['│', '╷', '╵'], " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs `init`, and checks the version of the module that it has installed.
pub fn installs(person: &Person, version: &str) {
    let said = person.terraform_init();
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let module = person.dir.join(".terraform/modules/vpc/main.tf");
    let text = std::fs::read_to_string(module).unwrap();
    assert!(text.contains(&format!("\"{version}\"")), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_is_used_deprecated_and_taken_down() {
    Box::pin(with_a_token(&find_terraform())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the OpenTofu that `make interop` builds"]
async fn a_module_is_used_deprecated_and_taken_down_with_opentofu() {
    Box::pin(with_a_token(&opentofu())).await;
}

async fn with_a_token(program: &Path) {
    let site = Site::open(&[]).await;
    site.admin.namespace("module acme", Visibility::Owner).await;
    for version in ["1.0.0", "1.1.0", "2.0.0-rc.1"] {
        publish(&site, version).await;
    }
    let kim = site.person("kim", &[("main.tf", &project("~> 1.0"))]);
    let kim = kim.using(program);
    let text = failure(&kim);
    assert!(text.contains("401 Unauthorized"), "{text}");
    let (token, secret) = site.admin.token(&["read:module acme/*"]).await;
    let kim = kim.with("TF_TOKEN_mods_example_com", &secret);
    installs(&kim, "1.1.0");
    let said = kim.terraform(&["plan", "-no-color", "-input=false"]);
    assert!(said.out.contains("+ size = \"1.1.0\""), "{}", said.out);

    let lee = site.person("lee", &[("main.tf", &project("1.0.0"))]);
    let lee = lee.using(program);
    lee.write(
        "cli.tfrc",
        &format!("credentials \"mods.example.com\" {{\n  token = \"{secret}\"\n}}\n"),
    );
    let file = lee.dir.join("cli.tfrc").display().to_string();
    let lee = lee.with("TF_CLI_CONFIG_FILE", &file);
    installs(&lee, "1.0.0");
    let max = site.person("max", &[("main.tf", &project(">= 1.0.0"))]);
    let max = max.using(program).with("TF_CLI_CONFIG_FILE", &file);
    installs(&max, "1.1.0");
    max.write("main.tf", &project("2.0.0-rc.1"));
    installs(&max, "2.0.0-rc.1");

    site.admin
        .deprecate("module acme/vpc/aws 1.1.0", "Too old.", None)
        .await;
    installs(&kim, "1.1.0");
    site.admin
        .take_down(
            "module acme/vpc/aws 1.1.0",
            TakedownKind::Legal,
            "A court said so.",
        )
        .await;
    installs(&kim, "1.0.0");
    site.admin
        .take_down("module acme/vpc/aws 1.0.0", TakedownKind::Mistake, "Wrong.")
        .await;
    let text = failure(&lee);
    assert!(text.contains("has no versions available"), "{text}");

    site.admin.revoke(&token).await;
    let text = failure(&kim);
    assert!(text.contains("401 Unauthorized"), "{text}");
    let log = site.server.log();
    assert!(!log.contains(&secret), "a token is in the log");
    assert!(!log.contains("code="), "a link is in the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_registry_needs_no_token_and_a_wrong_one_is_refused() {
    Box::pin(without_a_token(&find_terraform())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the OpenTofu that `make interop` builds"]
async fn an_open_registry_needs_no_token_of_opentofu_and_a_wrong_one_is_refused() {
    Box::pin(without_a_token(&opentofu())).await;
}

async fn without_a_token(program: &Path) {
    let site = Site::open(&["--registry-anonymous-read"]).await;
    site.admin
        .namespace("module acme", Visibility::Public)
        .await;
    publish(&site, "1.0.0").await;
    let kim = site.person("kim", &[("main.tf", &project("1.0.0"))]);
    let kim = kim.using(program);
    installs(&kim, "1.0.0");
    let wrong = format!("lkr_{}", "A".repeat(43));
    let text = failure(&kim.with("TF_TOKEN_mods_example_com", &wrong));
    assert!(text.contains("401 Unauthorized"), "{text}");
}
