//! Stories of capabilities: who may see and change the accounts of others.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Client, KEY};
use crate::support::accounts_fixture::AccountsFixture;

/// A server with an administrator, somebody who may modify accounts, somebody who may read everything, and jdoe.
struct Callers {
    fixture: AccountsFixture,
    root: String,
    clerk: String,
    backup: String,
    jdoe: String,
}

impl Callers {
    async fn open() -> Self {
        let fixture = AccountsFixture::open().await;
        let [root, clerk, backup, jdoe] =
            ["root", "clerk", "backup", "jdoe"].map(|name| fixture.person(name).1);
        for (group, member) in [
            ("Administrators", "root"),
            ("Clerks", "clerk"),
            ("Backup", "backup"),
        ] {
            let added = fixture.accounts("groups", &[group, "--add", member, "--new"]);
            assert_eq!(added.code, 0, "{}", added.err);
        }
        let rules = fixture.empty("rules", "root@example.com");
        rules.git(&["remote", "add", "origin", &fixture.url(&root)]);
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
            fixture,
            root,
            clerk,
            backup,
            jdoe,
        }
    }

    fn client(&self, credentials: &str) -> Client<'_> {
        Client::of(&self.fixture, credentials)
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
    let callers = Callers::open().await;
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
    let ask = async |credentials: &str| statuses(&callers.client(credentials), &requests).await;
    // An administrator changes everything but what takes `accessDatabase`.
    let root = ask(&callers.root).await;
    assert_eq!(root, [200, 200, 204, 201, 403, 200, 204, 201, 403, 201]);
    let clerk = ask(&callers.clerk).await;
    assert_eq!(clerk, [200, 200, 204, 201, 403, 403, 403, 403, 403, 403]);
    let backup = ask(&callers.backup).await;
    assert_eq!(backup, [403, 403, 403, 403, 200, 403, 403, 403, 204, 403]);

    let said = async |credentials: &str, path: &str| {
        let answer = callers.client(credentials).get(path).await;
        answer.json()
    };
    assert_eq!(
        said(&callers.clerk, "/self/capabilities").await,
        json!({"modifyAccount": true})
    );
    assert_eq!(
        said(&callers.root, "/clerk/groups").await,
        json!([{"name": "Anonymous Users"}, {"name": "Clerks"}, {"name": "Registered Users"}])
    );
    assert_eq!(
        said(&callers.root, "/root/capabilities").await,
        json!({"administrateServer": true, "modifyAccount": true})
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_more_power_by_changing_somebody_who_has_it() {
    let callers = Callers::open().await;
    let clerk = callers.client(&callers.clerk);
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
    let root = callers.client(&callers.root);
    let generate = json!({"generate": true});
    let requests = [
        (Method::PUT, "/backup/password.http", generate.clone()),
        (Method::PUT, "/clerk/password.http", generate),
    ];
    assert_eq!(statuses(&root, &requests).await, [403, 200]);
    // A key of somebody else lets in, so it takes more than `modifyAccount`.
    let key = callers
        .fixture
        .api(Method::POST, &callers.backup, "/jdoe/sshkeys")
        .body(KEY);
    assert_eq!(key.send().await.unwrap().status(), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capability_ends_at_once() {
    let callers = Callers::open().await;
    let fixture = &callers.fixture;
    let clerk = callers.client(&callers.clerk);
    let rename = || Some(json!({"name": "John Doe"}));
    let answer = clerk.ask(Method::PUT, "/jdoe/name", rename()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // Addresses of others are for those who may change accounts.
    let linked = fixture.accounts("link", &["jdoe", "mailto:secret@example.com"]);
    assert_eq!(linked.code, 0, "{}", linked.err);
    let found = clerk.get("/?q=email:secret").await.json();
    assert_eq!(found[0]["_account_id"], 1_000_003, "{found}");

    let dismiss = || {
        let removed = fixture.accounts("groups", &["Clerks", "--remove", "clerk"]);
        assert_eq!(removed.code, 0, "{}", removed.err);
    };
    let path = ("PUT", "/api/accounts/jdoe/name", "application/json");
    let late = fixture
        .with_late_body(path, &callers.clerk, b"{\"name\": \"Late\"}", dismiss)
        .await;
    assert!(late.contains("403"), "{late}");
    let answer = clerk.ask(Method::PUT, "/jdoe/name", rename()).await;
    assert_eq!(answer.status, 403);
    let found = clerk.get("/?q=email:secret").await.json();
    assert_eq!(found, json!([]));
    let jdoe = callers.client(&callers.jdoe);
    assert_eq!(jdoe.get("/self/name").await.json(), "John Doe");
    assert_eq!(jdoe.get("/clerk/capabilities").await.status, 403);
    assert_eq!(jdoe.get("/self/capabilities").await.json(), json!({}));
}
