//! The way of a module from `git tag` in a clone of its repository to `init` in a clone of another one, with the real
//! `terraform` and `tofu`.

use std::path::Path;

use axum::Router;
use axum::http::header;
use axum::routing::get;
use lockkeeper_registry::records::TakedownKind;

use super::site::{AUTHORITY, CERTIFICATE, KEY, Person};
use super::tags::Site;
use super::terraform::{failure, installs};
use super::tunnel::{Tunnel, acceptor};
use crate::support::db::{Backend, tell};
use crate::support::program::{opentofu, run};
use crate::support::server::find_terraform;

/// Repository of the module.
const MODULE: &str = "acme/terraform-aws-vpc";
/// Repository that uses the module.
const APP: &str = "acme/app";
/// Path of the list of versions.
const VERSIONS: &str = "/registry/v1/modules/acme/vpc/aws/versions";

const APP_CODE: &str =
    "module \"vpc\" {\n  source  = \"mods.example.com/acme/vpc/aws\"\n  version = \"~> 1.2\"\n}\n";

#[test]
fn a_tag_reaches_init_of_terraform() {
    tell(story(&find_terraform()));
}

#[test]
#[ignore = "needs the OpenTofu that `make interop` builds"]
fn a_tag_reaches_init_of_opentofu() {
    tell(story(&opentofu()));
}

fn module(version: &str) -> String {
    format!("output \"size\" {{\n  value = \"{version}\"\n}}\n")
}

fn git(dir: &Path, args: &[&str]) {
    let said = run("git", dir, args, &[("GIT_CONFIG_GLOBAL", "/dev/null")]);
    assert_eq!(said.code, 0, "{args:?}: {}", said.err);
}

async fn story(program: &Path) {
    let files = [("main.tf", &*module("1.2.3"))];
    let site = Site::open(Backend::Sqlite, &[(MODULE, &files)], &[]).await;
    let app = [("main.tf", APP_CODE)];
    site.bot.github.create_repo(APP, &app).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let clone = |repo: &str, name: &str| {
        let from = site.forge_dir(repo).display().to_string();
        git(dir.path(), &["clone", "-q", &from, name]);
        dir.path().join(name)
    };
    let net = clone(MODULE, "net");

    let server = site.admin.server(&site.bot.db, 2, &[]).await;
    let tls = acceptor(CERTIFICATE, KEY);
    let tunnel = Tunnel::answering(server.router.clone(), tls.clone()).await;
    let authority = dir.path().join("ca.pem");
    std::fs::write(&authority, AUTHORITY).unwrap();
    let (_, token) = site.admin.token(&["read:module acme/*"]).await;
    let config = dir.path().join("cli.tfrc");
    let text = format!("credentials \"mods.example.com\" {{\n  token = \"{token}\"\n}}\n");
    std::fs::write(&config, text).unwrap();
    let kim = Person::new(clone(APP, "app"), &tunnel.url(), &authority);
    let config = config.display().to_string();
    let kim = kim.using(program).with("TF_CLI_CONFIG_FILE", &config);
    let text = failure(&kim);
    assert!(
        text.contains("cannot be found in the module registry"),
        "{text}"
    );

    git(&net, &["tag", "v1.2.3"]);
    git(&net, &["push", "-q", "origin", "v1.2.3"]);
    site.turn().await;
    installs(&kim, "1.2.3");

    // The newest one that the constraint allows, and neither a new major version nor one that is not finished.
    for version in ["1.3.0", "1.4.0-rc.1", "2.0.0"] {
        let changed = [("main.tf", &*module(version))];
        site.push(MODULE, "main", &changed).await;
        git(&net, &["pull", "-q"]);
        git(&net, &["tag", &format!("v{version}")]);
    }
    git(&net, &["push", "-q", "--tags", "origin"]);
    site.turn().await;
    installs(&kim, "1.3.0");
    let newest = "module acme/vpc/aws 1.3.0";
    site.admin.deprecate(newest, "It leaks.", None).await;
    installs(&kim, "1.3.0");

    // A client that has chosen the version just before it is taken down gets the reason. All others get another version.
    let list = server.get(VERSIONS, &token).await;
    assert!(list.text().contains("1.3.0"), "{}", list.text());
    let (kind, reason) = (TakedownKind::Security, "A backdoor was found.");
    site.admin.take_down(newest, kind, reason).await;
    let list = list.text().to_owned();
    let answer = get(move || async move { ([(header::CONTENT_TYPE, "application/json")], list) });
    let before = Router::new().route(VERSIONS, answer);
    let before = before.fallback_service(server.router.clone());
    let before = Tunnel::answering(before, tls).await;
    let late = kim.clone().with("HTTPS_PROXY", &before.url());
    let text = failure(&late);
    for part in ["403 Forbidden", reason] {
        assert!(text.contains(part), "{text}");
    }
    installs(&kim, "1.2.3");
    site.bot.end(&[]).await;
}
