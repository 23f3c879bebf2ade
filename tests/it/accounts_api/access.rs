//! Stories of capabilities: who may see and change the accounts of others.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Client, KEY};
use crate::support::office::Office;

/// A server with an administrator, somebody who may modify accounts, somebody who may read everything, and jdoe.
struct Offices {
    office: Office,
    root: String,
    clerk: String,
    backup: String,
    jdoe: String,
}

impl Offices {
    async fn open() -> Self {
        let office = Office::open().await;
        let [root, clerk, backup, jdoe] =
            ["root", "clerk", "backup", "jdoe"].map(|name| office.person(name).1);
        for (group, member) in [
            ("Administrators", "root"),
            ("Clerks", "clerk"),
            ("Backup", "backup"),
        ] {
            let added = office.accounts("groups", &[group, "--add", member, "--new"]);
            assert_eq!(added.code, 0, "{}", added.err);
        }
        let rules = office.empty("rules", "root@example.com");
        rules.git(&["remote", "add", "origin", &office.url(&root)]);
        rules.git(&["fetch", "--quiet", "origin", "refs/meta/config"]);
        rules.git(&["checkout", "--quiet", "--detach", "FETCH_HEAD"]);
        rules.commit(
            "project.config",
            "[capability]\n\tadministrateServer = group Administrators\n\
             \tmodifyAccount = group Clerks\n\taccessDatabase = group Backup\n",
        );
        let pushed = rules.push(&["origin", "HEAD:refs/meta/config"]);
        assert_eq!(pushed.code, 0, "{}", pushed.err);
        Self {
            office,
            root,
            clerk,
            backup,
            jdoe,
        }
    }

    fn client(&self, credentials: &str) -> Client<'_> {
        Client::of(&self.office, credentials)
    }
}

/// Asks for changes, and returns what each was answered with.
async fn statuses(client: &Client<'_>, requests: &[(Method, &str, Value)]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for (method, path, body) in requests {
        let body = Some(body.clone()).filter(|body| !body.is_null());
        let answer = client.ask(method.clone(), path, body).await;
        statuses.push(answer.status.as_u16());
    }
    statuses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capability_permits_exactly_what_it_says() {
    let offices = Offices::open().await;
    let requests = [
        (Method::GET, "/jdoe/detail", Value::Null),
        (Method::PUT, "/jdoe/name", json!({"name": "John Doe"})),
        (Method::DELETE, "/jdoe/active", Value::Null),
        (Method::PUT, "/jdoe/active", Value::Null),
        (Method::GET, "/jdoe/external.ids", Value::Null),
        (Method::GET, "/jdoe/sshkeys", Value::Null),
        (Method::DELETE, "/jdoe/password.http", Value::Null),
        (
            Method::PUT,
            "/jdoe/emails/x@example.com",
            json!({"no_confirmation": true}),
        ),
        (
            Method::POST,
            "/jdoe/external.ids:delete",
            json!(["mailto:x@example.com"]),
        ),
        (Method::PUT, "/new", json!({"name": "New"})),
    ];
    let ask = async |credentials: &str| statuses(&offices.client(credentials), &requests).await;
    // An administrator changes everything but what takes `accessDatabase`.
    let root = ask(&offices.root).await;
    assert_eq!(root, [200, 200, 204, 201, 403, 200, 204, 201, 403, 201]);
    let clerk = ask(&offices.clerk).await;
    assert_eq!(clerk, [200, 200, 204, 201, 403, 403, 403, 403, 403, 403]);
    let backup = ask(&offices.backup).await;
    assert_eq!(backup, [403, 403, 403, 403, 200, 403, 403, 403, 204, 403]);

    let said = async |credentials: &str, path: &str| {
        let answer = offices.client(credentials).get(path).await;
        answer.json()
    };
    assert_eq!(
        said(&offices.clerk, "/self/capabilities").await,
        json!({"modifyAccount": true})
    );
    assert_eq!(
        said(&offices.root, "/clerk/groups").await,
        json!([{"name": "Anonymous Users"}, {"name": "Clerks"}, {"name": "Registered Users"}])
    );
    assert_eq!(
        said(&offices.root, "/root/capabilities").await,
        json!({"administrateServer": true, "modifyAccount": true})
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_more_power_by_changing_somebody_who_has_it() {
    let offices = Offices::open().await;
    let clerk = offices.client(&offices.clerk);
    for powerful in ["root", "backup"] {
        let name = format!("/{powerful}/name");
        let active = format!("/{powerful}/active");
        let requests = [
            (Method::PUT, name.as_str(), json!({"name": "x"})),
            (Method::DELETE, active.as_str(), Value::Null),
        ];
        assert_eq!(statuses(&clerk, &requests).await, [403, 403], "{powerful}");
    }
    let refused = clerk.ask(Method::DELETE, "/root/active", None).await;
    assert_eq!(
        refused.json()["detail"],
        "The account has a capability that you lack. Nothing was changed."
    );
    // What the administrator lacks protects those who have it, too.
    let root = offices.client(&offices.root);
    let generate = json!({"generate": true});
    let requests = [
        (Method::PUT, "/backup/password.http", generate.clone()),
        (Method::PUT, "/clerk/password.http", generate),
    ];
    assert_eq!(statuses(&root, &requests).await, [403, 200]);
    // A key of somebody else lets in, so it takes more than `modifyAccount`.
    let key = offices
        .office
        .api(Method::POST, &offices.backup, "/jdoe/sshkeys")
        .body(KEY);
    assert_eq!(key.send().await.unwrap().status(), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capability_ends_at_once() {
    let offices = Offices::open().await;
    let office = &offices.office;
    let clerk = offices.client(&offices.clerk);
    let rename = || Some(json!({"name": "John Doe"}));
    let answer = clerk.ask(Method::PUT, "/jdoe/name", rename()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // Addresses of others are for those who may change accounts.
    let linked = office.accounts("link", &["jdoe", "mailto:secret@example.com"]);
    assert_eq!(linked.code, 0, "{}", linked.err);
    let found = clerk.get("/?q=email:secret").await.json();
    assert_eq!(found[0]["_account_id"], 1_000_003, "{found}");

    let dismiss = || {
        let removed = office.accounts("groups", &["Clerks", "--remove", "clerk"]);
        assert_eq!(removed.code, 0, "{}", removed.err);
    };
    let path = ("PUT", "/api/accounts/jdoe/name", "application/json");
    let late = office
        .with_late_body(path, &offices.clerk, b"{\"name\": \"Late\"}", dismiss)
        .await;
    assert!(late.contains("403"), "{late}");
    let answer = clerk.ask(Method::PUT, "/jdoe/name", rename()).await;
    assert_eq!(answer.status, 403);
    let found = clerk.get("/?q=email:secret").await.json();
    assert_eq!(found, json!([]));
    let jdoe = offices.client(&offices.jdoe);
    assert_eq!(jdoe.get("/self/name").await.json(), "John Doe");
    assert_eq!(jdoe.get("/clerk/capabilities").await.status, 403);
    assert_eq!(jdoe.get("/self/capabilities").await.json(), json!({}));
}
