//! Searches everything that the server writes and shows for each of its secrets: a table of secrets and places.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use lockkeeper::emulator::Change;
use lockkeeper::http;
use lockkeeper::seal::key_line;
use reqwest::Method;
use serde_json::json;

use super::ordinary;
use crate::e2e::world::World;
use crate::support::server::{Settings, TOKEN, WEBHOOK_SECRET};

const PASSWORD: &str = "correct horse battery staple";
const PROXY_PASSWORD: &str = "password-of-the-proxy-0451";
const OF_DATABASE: &str = "password-of-the-database-2718";
const OF_OWNER: &str = "ghp_TokenThatAnOwnerGave0123456789abcdef";
const OF_APPLIES: &str = "credential-of-applies-271828";
const KEY: &[u8; 32] = b"0123456789abcdef0123456789ABCDEF";
/// Maximum number of visited pages. The story has fewer.
const MOST_PAGES: usize = 500;

/// Returns a command that dumps everything that a process can find out about itself and others.
fn dump(to: &Path) -> String {
    format!(
        "(env; cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ; ps axeww) >>'{}' 2>&1",
        to.display()
    )
}

/// Returns settings with a secret of each kind. The proxy does not exist and is not used.
fn settings(dir: &Path) -> Settings {
    let keys = dir.join("keys");
    std::fs::write(&keys, key_line(&"a".parse().unwrap(), KEY).expose()).unwrap();
    std::fs::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let settings = ordinary();
    settings.gives(dir);
    settings
        .flag("--web-basic-auth")
        .flag("--web-username=ops")
        .flag(&format!("--encryption-key-file={}", keys.display()))
        .flag("--pass-environment-apply=OF_APPLIES")
        .variable("OF_APPLIES", OF_APPLIES)
        // Secrets in flags were once common, although every process of the machine can read them in the command line.
        .flag(&format!("--web-password={PASSWORD}"))
        .variable("PGPASSWORD", OF_DATABASE)
        .variable(
            "ALL_PROXY",
            &format!("http://us:{PROXY_PASSWORD}@127.0.0.1:9"),
        )
        .variable("NO_PROXY", "127.0.0.1,localhost")
}

/// Returns the secrets, in every spelling that the server itself uses.
fn secrets() -> Vec<(&'static str, Vec<String>)> {
    let basic = |user: &str, password: &str| BASE64.encode(format!("{user}:{password}"));
    vec![
        (
            "token of the bot",
            vec![
                TOKEN.to_owned(),
                BASE64.encode(TOKEN),
                basic("x-access-token", TOKEN),
            ],
        ),
        (
            "secret of webhooks",
            vec![WEBHOOK_SECRET.to_owned(), BASE64.encode(WEBHOOK_SECRET)],
        ),
        (
            "password of the pages",
            vec![PASSWORD.to_owned(), basic("ops", PASSWORD)],
        ),
        (
            "password of the proxy",
            vec![PROXY_PASSWORD.to_owned(), basic("us", PROXY_PASSWORD)],
        ),
        ("password of the database", vec![OF_DATABASE.to_owned()]),
        (
            "key of the database",
            vec![
                String::from_utf8_lossy(KEY).into_owned(),
                BASE64.encode(KEY),
                hex::encode(KEY),
            ],
        ),
        (
            "token of an owner",
            vec![
                OF_OWNER.to_owned(),
                BASE64.encode(OF_OWNER),
                basic("x-access-token", OF_OWNER),
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_anything_that_is_written_or_shown() {
    let own = tempfile::tempdir().unwrap();
    let world = World::start_with(settings(own.path()), |_| vec![("main.tf", String::new())]).await;
    let [of_plan, of_apply] =
        ["plan", "apply"].map(|stage| world.dir.path().join(format!("{stage}.dump")));
    owner(&world).await;

    // A provider in the pull request runs in a plan, and a provisioner in an apply.
    let plugin =
        "spy/terraform.d/plugins/example.com/acme/spy/1.0.0/linux_amd64/terraform-provider-spy";
    let spy = "terraform {\n  required_providers {\n    spy = {\n      source = \"example.com/acme/spy\"\n    }\n  }\n}\n\
               resource \"spy_thing\" \"it\" {}\n";
    let script = format!("#!/bin/sh\n{}\nexit 1\n", dump(&of_plan));
    let pull = world
        .open_with(
            "spy",
            &[
                Change::write("spy/main.tf", spy),
                Change::program(plugin, &script),
            ],
        )
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan failure | spy default failed");
    let code = world.files().backend("root")
        + &format!(
            "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{\n    command = \"{}\"\n  }}\n}}\n",
            dump(&of_apply)
        );
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.comment(pull, "lockkeeper aply").await;
    world.answer(pull).await;

    let mut places = pages(&world).await;
    for (name, file) in [("a plan", of_plan), ("an apply", of_apply)] {
        places.insert(
            format!("what {name} sees"),
            std::fs::read(file).expect("it ran"),
        );
    }
    places.insert("the log".to_owned(), world.server.log().into_bytes());
    for number in [1, 2].map(lockkeeper::model::PullNumber) {
        let said: Vec<String> = world
            .said(number)
            .into_iter()
            .map(|comment| comment.body)
            .collect();
        places.insert(
            format!("the comments of {number}"),
            said.join("\n").into_bytes(),
        );
        let statuses = world
            .github
            .statuses(crate::e2e::world::REPO, &world.head(number))
            .unwrap();
        places.insert(
            format!("the statuses of {number}"),
            format!("{statuses:?}").into_bytes(),
        );
    }
    files(&world.server.data_dir(), &mut places);

    // Texts that are not secret are found, so the places are not empty and the search works.
    for (place, text) in [
        ("what a plan sees", "TF_IN_AUTOMATION=true"),
        ("what a plan sees", "supervise"),
        ("what an apply sees", OF_APPLIES),
        ("the log", "Lockkeeper is ready"),
        ("the comments of 2", "Apply complete!"),
        ("the statuses of 2", "lockkeeper/apply"),
        ("GET /", "infra"),
        ("GET /audit", "alice"),
        ("GET /api/credentials", "acme/labs"),
        ("lockkeeper.db", "acme/labs"),
    ] {
        let found = places
            .iter()
            .any(|(name, content)| name.contains(place) && contains(content, text));
        assert!(
            found,
            "{text} is not in {place}; there are {:?}",
            places.keys().collect::<Vec<_>>()
        );
    }
    let mut leaks = BTreeSet::new();
    for (secret, forms) in secrets() {
        for (place, content) in &places {
            // Runs use the same proxy for providers and modules.
            if secret == "password of the proxy" && place.starts_with("what ") {
                continue;
            }
            if forms.iter().any(|form| contains(content, form)) {
                leaks.insert(format!("the {secret} is in {place}"));
            }
        }
    }
    let of_applies = places
        .iter()
        .filter(|(place, content)| contains(content, OF_APPLIES) && !place.contains("apply"));
    leaks.extend(of_applies.map(|(place, _)| format!("the credential of applies is in {place}")));
    assert_eq!(leaks, BTreeSet::new());
    world.finish(&["#2 . default"]).await;
}

/// Stores a token in the server, for a repository of its owner.
async fn owner(world: &World) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let repo = json!({"owner": "web", "url": "https://github.test/acme/labs", "kind": "token", "token": OF_OWNER});
    for (path, body) in [
        ("/api/owners", json!({"name": "web"})),
        ("/api/credentials", repo),
    ] {
        let request = client
            .post(format!("{}{path}", world.server.url()))
            .basic_auth("ops", Some(PASSWORD));
        let answer = request.json(&body).send().await.unwrap();
        assert!(
            answer.status().is_success(),
            "{path}: {}",
            answer.text().await.unwrap()
        );
    }
}

/// Returns every page and answer that can be reached from the addresses without a variable: `GET /locks`, and its
/// text.
async fn pages(world: &World) -> BTreeMap<String, Vec<u8>> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let routes = http::routes();
    let fixed = routes
        .iter()
        .filter(|route| route.method == Method::GET && !route.path.contains('{'));
    let mut left: Vec<String> = fixed.map(|route| route.path.to_owned()).collect();
    let mut pages = BTreeMap::new();
    while let Some(path) = left.pop() {
        let name = format!("GET {path}");
        // A stream does not end. It contains the same text as the page of the run.
        if pages.contains_key(&name) || path.contains("stream") {
            continue;
        }
        assert!(
            pages.len() < MOST_PAGES,
            "there are ever more pages: {path}"
        );
        let request = client
            .get(format!("{}{path}", world.server.url()))
            .basic_auth("ops", Some(PASSWORD));
        let answer = request.send().await.unwrap();
        let headers = format!("{:?}", answer.headers());
        let body = answer.bytes().await.unwrap();
        let text = String::from_utf8_lossy(&body).into_owned();
        left.extend(text.split("href=\"").skip(1).filter_map(|rest| {
            let path = rest
                .split('"')
                .next()?
                .replace("&#47;", "/")
                .replace("&#x2f;", "/")
                .replace("&#38;", "&");
            let path = path.split('#').next()?;
            (path.starts_with('/') && !path.starts_with("//")).then(|| path.to_owned())
        }));
        pages.insert(name, [headers.as_bytes(), &body].concat());
    }
    pages
}

/// Collects every file of the data directory: databases and their logs, mirrors, checkouts, plan files.
fn files(dir: &Path, places: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type());
        match kind {
            Ok(kind) if kind.is_dir() => files(&path, places),
            Ok(kind) if kind.is_file() => {
                places.insert(
                    path.display().to_string(),
                    std::fs::read(&path).unwrap_or_default(),
                );
            }
            _ => {}
        }
    }
}

fn contains(content: &[u8], text: &str) -> bool {
    memchr::memmem::find(content, text.as_bytes()).is_some()
}
