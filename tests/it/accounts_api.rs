//! Stories of `/api/accounts/…`: people change their own account, and the administrator all of them.

mod access;
mod flags;
mod outcomes;

use lockkeeper::model::{PullRef, PullState, Subject};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::accounts::{in_order, independent};
use crate::support::accounts_fixture::{ADMIN, AccountsFixture, WATCH, git};
use crate::support::db::execute_on;
use crate::support::program::lockkeeper;
use crate::support::rows::account_objects;

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl jdoe@laptop";

/// Answer of the API.
struct Answer {
    status: StatusCode,
    etag: Option<String>,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

/// A person with the API.
struct Client<'a> {
    fixture: &'a AccountsFixture,
    credentials: String,
}

impl<'a> Client<'a> {
    fn of(fixture: &'a AccountsFixture, credentials: &str) -> Self {
        Self {
            fixture,
            credentials: credentials.to_owned(),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.ask_with(method, path, body, &[]).await
    }

    async fn ask_with(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = if path.starts_with("/api/") {
            self.fixture.request(method, &self.credentials, path)
        } else {
            self.fixture.api(method, &self.credentials, path)
        };
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let etag = answer.headers().get("etag");
        Answer {
            status: answer.status(),
            etag: etag.map(|etag| etag.to_str().unwrap().to_owned()),
            text: answer.text().await.unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await
    }

    /// Makes a change, which has to succeed with this status.
    async fn done(&self, method: Method, path: &str, body: Value, status: u16) -> Answer {
        let body = Some(body).filter(|body| !body.is_null());
        let answer = self.ask(method.clone(), path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
        answer
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_changes_their_account_and_finds_it_in_git() {
    let fixture = AccountsFixture::open().await;
    let (number, credentials) = fixture.person("jdoe");
    let jdoe = Client::of(&fixture, &credentials);
    jdoe.done(Method::PUT, "/self/name", json!({"name": "John Doe"}), 200)
        .await;
    jdoe.done(Method::PUT, "/self/status", json!({"status": "OOO"}), 200)
        .await;
    let shown = jdoe.get("/self").await;
    let account = shown.json();
    assert_eq!(account["_account_id"].to_string(), number);
    assert_eq!(
        (&account["name"], &account["status"], &account["username"]),
        (&json!("John Doe"), &json!("OOO"), &json!("jdoe"))
    );
    jdoe.done(Method::PUT, "/self/status", json!({"status": ""}), 204)
        .await;

    let set = json!({"changes_per_page": 50, "theme": "DARK", "show_site_header": null});
    let set = jdoe
        .done(Method::PUT, "/self/preferences", set, 200)
        .await
        .json();
    assert_eq!(set["changes_per_page"], 50);
    assert_eq!(
        (&set["theme"], &set["time_zone"]),
        (&json!("DARK"), &json!("UTC"))
    );
    let diff = json!({"tab_size": 4});
    jdoe.done(Method::PUT, "/self/preferences.diff", diff, 200)
        .await;
    // The default is not written.
    let edit = json!({"tab_size": 8});
    jdoe.done(Method::PUT, "/self/preferences.edit", edit, 200)
        .await;

    let watches = json!([
        {"project": "github.com/acme/infra", "notify_applies": true, "notify_locks": false},
        {"project": "github.com/acme/infra", "filter": "branch:main", "notify_all": true},
        {"project": "github.com/acme/old", "notify_plans": true},
    ]);
    jdoe.done(Method::POST, "/self/watched.projects", watches, 200)
        .await;
    let old = json!([{"project": "github.com/acme/old"}]);
    jdoe.done(Method::POST, "/self/watched.projects:delete", old, 204)
        .await;
    let left = jdoe.get("/self/watched.projects").await.json();
    assert_eq!(
        left,
        json!([
            {"project": "github.com/acme/infra", "notify_applies": true},
            {"project": "github.com/acme/infra", "filter": "branch:main", "notify_all": true},
        ])
    );

    let added = fixture
        .api(Method::POST, &credentials, "/self/sshkeys")
        .body(KEY);
    let added = added.send().await.unwrap();
    assert_eq!(added.status(), 201);
    let key: Value = added.json().await.unwrap();
    assert_eq!(
        (
            &key["seq"],
            &key["algorithm"],
            &key["comment"],
            &key["valid"]
        ),
        (
            &json!(1),
            &json!("ssh-ed25519"),
            &json!("jdoe@laptop"),
            &json!(true)
        )
    );
    assert_eq!(jdoe.get("/self/sshkeys/1").await.json(), key);
    assert_eq!(jdoe.get("/self/sshkeys").await.json(), json!([key]));

    let clone = fixture.clone_of(&credentials, "jdoe");
    let file = |name: &str| clone.git(&["show", &format!("HEAD:{name}")]);
    assert_eq!(
        file("account.config"),
        "[account]\n\tpreferredEmail = jdoe@example.com\n\tfullName = John Doe\n"
    );
    assert_eq!(
        file("preferences.config"),
        "[general]\n\tchangesPerPage = 50\n\ttheme = DARK\n[diff]\n\ttabSize = 4\n"
    );
    assert_eq!(
        file("watch.config"),
        "[project \"github.com/acme/infra\"]\n\tnotify = * [APPLIES]\n\tnotify = branch:main [ALL]\n"
    );
    assert_eq!(file("authorized_keys"), format!("{KEY}\n"));
    let author = clone.git(&["log", "-1", "--format=%an <%ae> / %cn / %s"]);
    assert_eq!(
        author,
        "John Doe <jdoe@example.com> / Lockkeeper / Add SSH Key\n"
    );
    jdoe.done(Method::DELETE, "/self/sshkeys/1", Value::Null, 204)
        .await;
    assert_eq!(jdoe.get("/self/sshkeys/1").await.status, 404);
    let keys = fixture.accounts("keys", &["jdoe", "--add", KEY]);
    assert_eq!(keys.out, "2\n", "a number is never given again");
    let keys = fixture.accounts("keys", &["jdoe"]);
    assert_eq!(keys.out, format!("2  {KEY}\n"));

    // A new password replaces the old one.
    let password = json!({"generate": true});
    let password = jdoe
        .done(Method::PUT, "/self/password.http", password, 200)
        .await;
    assert_eq!(jdoe.get("/self").await.status, 401);
    let again = Client::of(
        &fixture,
        &format!("jdoe:{}", password.json().as_str().unwrap()),
    );
    let detail = again.get("/self/detail").await.json();
    let shown = fixture.accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(detail, shown);
    again
        .done(Method::DELETE, "/self/password.http", Value::Null, 204)
        .await;
    assert_eq!(again.get("/self").await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_with_if_match_is_made_on_the_state_that_was_read() {
    let fixture = AccountsFixture::open().await;
    let (_, credentials) = fixture.person("jdoe");
    let jdoe = Client::of(&fixture, &credentials);
    let read = jdoe.get("/self").await.etag.unwrap();
    let name = |name: &str| Some(json!({ "name": name }));
    let if_match = [("if-match", read.as_str())];
    let put = jdoe.ask_with(Method::PUT, "/self/name", name("John"), &if_match);
    let put = put.await;
    assert_eq!(put.status, 200, "{}", put.text);
    let late = jdoe.ask_with(Method::PUT, "/self/name", name("Jim"), &if_match);
    let late = late.await;
    assert_eq!(late.status, 412, "{}", late.text);
    assert!(
        late.text.contains("has changed since you read it"),
        "{}",
        late.text
    );
    for bad in ["\"x\"", "W/\"0123\"", ""] {
        let bad = [("if-match", bad)];
        let answer = jdoe.ask_with(Method::PUT, "/self/name", name("Jim"), &bad);
        assert_eq!(answer.await.status, 412);
    }
    assert_eq!(jdoe.get("/self/name").await.json(), "John");
    let newest = jdoe.get("/self/name").await.etag.unwrap();
    let if_match = [("if-match", newest.as_str())];
    let put = jdoe.ask_with(Method::PUT, "/self/name", name("Jim"), &if_match);
    assert_eq!(put.await.status, 200);
}

/// Takes 25 seconds, which it waits. The database stands for other servers that are always faster: in each update it moves all
/// branches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_never_wins_is_given_up_and_nothing_is_done() {
    let fixture = AccountsFixture::open().await;
    let (_, credentials) = fixture.person("jdoe");
    let jdoe = Client::of(&fixture, &credentials);
    let clone = fixture.clone_of(&credentials, "jdoe");
    clone.commit("watch.config", WATCH);
    let database = fixture.server.database();
    let state = async || {
        let detail = jdoe.get("/self/detail").await.json();
        (detail, account_objects(&database).await)
    };
    let before = state().await;
    let faster = "CREATE TRIGGER faster AFTER UPDATE ON account_updates BEGIN \
                  UPDATE account_refs SET object_id = zeroblob(20) WHERE name LIKE 'refs/users/%'; END";
    execute_on(&database, faster).await;
    let name = json!({"name": "John Doe"});
    let push = move || clone.push(&["origin", "HEAD:refs/users/self"]);
    let (refused, pushed) = tokio::join!(
        jdoe.ask(Method::PUT, "/self/name", Some(name.clone())),
        tokio::task::spawn_blocking(push)
    );
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(
        refused.text.contains("within 25 seconds; try again"),
        "{}",
        refused.text
    );
    let pushed = pushed.unwrap();
    assert!(pushed.err.contains("lock failure"), "{}", pushed.err);
    execute_on(&database, "DROP TRIGGER faster").await;
    assert_eq!(state().await, before);
    jdoe.done(Method::PUT, "/self/name", name, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_changes_the_account_of_another() {
    let fixture = AccountsFixture::open().await;
    let (_, credentials) = fixture.person("jdoe");
    let (_, _) = fixture.person("kim");
    let refs = |name: &str| git(&fixture.mirror(ADMIN, name), &["for-each-ref"]).out;
    let before = refs("before.git");
    let client = |credentials: &str| Client::of(&fixture, credentials);
    let (jdoe, nobody, admin) = (client(&credentials), client("jdoe:wrong"), client(ADMIN));
    // What everybody who has signed in may know of everybody.
    let public = [
        "/api/accounts/",
        "/api/accounts",
        "/api/accounts/{account}",
        "/api/accounts/{account}/name",
        "/api/accounts/{account}/status",
        "/api/accounts/{account}/username",
        "/api/accounts/{account}/active",
    ];
    let routes = lockkeeper::http::account_routes();
    assert!(routes.len() > 30, "{} routes", routes.len());
    for route in routes {
        let path = route.path.trim_start_matches("/api/accounts");
        let path = path
            .replace("{account}", "kim")
            .replace("{email}", "kim@example.com");
        let path = path.replace("{number}", "1").replace("{change}", "1");
        // These do not name an account: everybody has flags of their own.
        let is_of_flags = path.starts_with("/api/");
        let what = format!("{} {path}", route.method);
        let body = (route.method != Method::GET).then(|| {
            if path.contains(":delete") || path.ends_with("projects") {
                json!([])
            } else {
                json!({})
            }
        });
        let refused = nobody.ask(route.method.clone(), &path, body.clone()).await;
        assert_eq!(refused.status, 401, "{what}");
        if !is_of_flags {
            let is_public = route.method == Method::GET && public.contains(&route.path);
            let theirs = jdoe.ask(route.method.clone(), &path, body.clone()).await;
            let expected = if is_public { 200 } else { 403 };
            assert_eq!(theirs.status, expected, "{what}: {}", theirs.text);
        }
        if route.method != Method::GET {
            // The browser of the administrator, on another page.
            let origin = [("origin", "https://evil.example")];
            let page = admin
                .ask_with(route.method.clone(), &path, body, &origin)
                .await;
            assert_eq!(page.status, 403, "{what}");
        }
    }
    // A search does not tell either who has an address that is not shown.
    let link = fixture.accounts("link", &["kim", "mailto:kim@home.example"]);
    assert_eq!(link.code, 0, "{}", link.err);
    let found = |answer: Answer| answer.json().as_array().unwrap().len();
    assert_eq!(found(jdoe.get("/?q=email:kim@home").await), 0);
    assert_eq!(found(jdoe.get("/?q=kim@home").await), 0);
    assert_eq!(found(admin.get("/?q=email:kim@home").await), 1);
    assert_eq!(jdoe.get("/kim@home.example").await.status, 404);
    assert_eq!(jdoe.get("/Kim%20%3Ckim@home.example%3E").await.status, 404);
    assert_eq!(jdoe.get("/kim@example.com").await.status, 200);
    assert_eq!(admin.get("/kim@home.example").await.status, 200);
    assert_eq!(
        fixture
            .accounts("unlink", &["kim", "mailto:kim@home.example"])
            .code,
        0
    );
    let after = refs("after.git");
    let of_jdoe = |refs: &str| {
        let branch = refs.lines().find(|row| row.contains("/1000000"));
        branch.map(str::to_owned)
    };
    assert_eq!(of_jdoe(&before), of_jdoe(&after));
    assert_eq!(admin.get("/kim/active").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_administrator_creates_changes_and_locks_out() {
    let fixture = AccountsFixture::open().await;
    let admin = Client::of(&fixture, ADMIN);
    let john = json!({"name": "John Doe", "email": "john@example.com", "ssh_key": KEY});
    let created = admin.done(Method::PUT, "/john", john, 201).await.json();
    assert_eq!(
        (&created["_account_id"], &created["email"]),
        (&json!(1_000_000), &json!("john@example.com"))
    );
    let again = admin.ask(Method::PUT, "/john", Some(json!({}))).await;
    assert_eq!(again.status, 409, "{}", again.text);
    assert!(
        again.text.contains("belongs to account 1000000"),
        "{}",
        again.text
    );
    assert_eq!(admin.get("/self").await.status, 404);
    let capabilities = admin.get("/self/capabilities").await.json();
    assert_eq!(
        capabilities,
        json!({"accessDatabase": true, "administrateServer": true, "modifyAccount": true})
    );

    // Addresses, by any name of the account.
    let confirmed = json!({"no_confirmation": true});
    let work = "/1000000/emails/John%40work.example";
    let refused = admin.ask(Method::PUT, work, Some(json!({}))).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    admin.done(Method::PUT, work, confirmed.clone(), 201).await;
    assert_eq!(
        admin.ask(Method::PUT, work, Some(confirmed)).await.status,
        409
    );
    let preferred = format!("{work}/preferred");
    admin.done(Method::PUT, &preferred, Value::Null, 201).await;
    admin.done(Method::PUT, &preferred, Value::Null, 200).await;
    let emails = admin.get("/john@example.com/emails").await.json();
    assert_eq!(
        emails,
        json!([{"email": "John@work.example", "preferred": true}, {"email": "john@example.com"}])
    );
    admin.done(Method::DELETE, work, Value::Null, 204).await;
    assert_eq!(admin.ask(Method::DELETE, work, None).await.status, 404);
    let link = fixture.accounts("link", &["john", "github:583231"]);
    assert_eq!(link.code, 0, "{}", link.err);
    let ids = admin.get("/john/external.ids").await.json();
    assert_eq!(
        ids,
        json!([
            {"identity": "github:583231", "trusted": true, "can_delete": true},
            {"identity": "mailto:john@example.com", "email_address": "john@example.com", "trusted": true, "can_delete": true},
            {"identity": "username:john", "trusted": true},
        ])
    );
    let unlink = "/john/external.ids:delete";
    let status = |answer: Answer| answer.status.as_u16();
    let username = Some(json!(["username:john"]));
    assert_eq!(status(admin.ask(Method::POST, unlink, username).await), 409);
    let unknown = Some(json!(["github:1", "github:583231"]));
    assert_eq!(status(admin.ask(Method::POST, unlink, unknown).await), 422);
    admin
        .done(Method::POST, unlink, json!(["github:583231"]), 204)
        .await;
    let create = admin.ask_with(
        Method::PUT,
        "/late",
        Some(json!({})),
        &[("if-match", "\"1\"")],
    );
    assert_eq!(status(create.await), 412);
    let username = Some(json!({"username": "jd"}));
    assert_eq!(
        status(admin.ask(Method::PUT, "/john/username", username).await),
        405
    );

    // Locked out at once, and in again.
    let password = json!({"generate": true});
    let password = admin
        .done(Method::PUT, "/john/password.http", password, 200)
        .await;
    let john = Client::of(
        &fixture,
        &format!("john:{}", password.json().as_str().unwrap()),
    );
    assert_eq!(status(john.get("/self").await), 200);
    admin
        .done(Method::DELETE, "/john/active", Value::Null, 204)
        .await;
    assert_eq!(
        status(admin.ask(Method::DELETE, "/john/active", None).await),
        409
    );
    assert_eq!(status(admin.get("/john/active").await), 204);
    assert_eq!(status(john.get("/self").await), 403);
    admin
        .done(Method::PUT, "/john/active", Value::Null, 201)
        .await;
    admin
        .done(Method::PUT, "/john/active", Value::Null, 200)
        .await;
    assert_eq!(status(john.get("/self").await), 200);

    // Every refusal names the way out.
    for (method, path, body, reason) in [
        (
            Method::GET,
            "/nobody",
            Value::Null,
            "There is no account `nobody`",
        ),
        (
            Method::PUT,
            "/john/preferences",
            json!({"them": "DARK"}),
            "known are show_site_header, theme",
        ),
        (
            Method::PUT,
            "/john/preferences",
            json!({"theme": "PINK"}),
            "`theme` cannot be `PINK`",
        ),
        (
            Method::POST,
            "/john/watched.projects",
            json!([{"project": "x", "notify_sometimes": true}]),
            "known are project, filter, notify_new_changes",
        ),
        (
            Method::POST,
            "/john/watched.projects",
            json!([{"project": "x", "filter": "colour:red"}]),
            "colour",
        ),
        (
            Method::PUT,
            "/john/password.http",
            json!({}),
            "send {\"generate\": true}",
        ),
        (
            Method::GET,
            "/?q=group:x",
            Value::Null,
            "There is no operator `group:`",
        ),
        (
            Method::GET,
            "/?x=1",
            Value::Null,
            "There is no parameter `x=1`",
        ),
        (Method::PUT, "/Bad%20Name", json!({}), "bad name"),
        (
            Method::PUT,
            "/self",
            json!({}),
            "`self` cannot be a user name",
        ),
        (
            Method::PUT,
            "/1000007",
            json!({}),
            "a number names the account",
        ),
        (
            Method::POST,
            "/john/sshkeys",
            Value::Null,
            "send one SSH key",
        ),
        (
            Method::PUT,
            "/john/name",
            json!({"nam": "x"}),
            "unknown field `nam`",
        ),
    ] {
        let body = Some(body).filter(|body| !body.is_null());
        let refused = admin.ask(method, path, body).await;
        assert!(refused.status.is_client_error(), "{path}");
        let message = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(message.contains(reason), "{path}: {}", refused.text);
    }
    assert_eq!(status(admin.ask(Method::PATCH, "/john", None).await), 405);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_change_says_that_nothing_was_changed_and_a_refused_read_does_not() {
    let fixture = AccountsFixture::open().await;
    let (_, credentials) = fixture.person("jdoe");
    fixture.accounts("create", &["ann"]);
    let jdoe = Client::of(&fixture, &credentials);
    for (method, path, body, said) in [
        (
            Method::GET,
            "/?x=1",
            None,
            "There is no parameter `x=1`; known are q, n, S, suggest, o=DETAILS and o=ALL_EMAILS.",
        ),
        (
            Method::GET,
            "/?q=\"a",
            None,
            "The query has a quote without an end; add a double quote.",
        ),
        (
            Method::GET,
            "/ann/detail",
            None,
            "This takes the capability modifyAccount, which an administrator can give to one of your groups.",
        ),
        (
            Method::PUT,
            "/ann/name",
            Some(json!({"name": "Ann"})),
            "This takes the capability modifyAccount, which an administrator can give to one of your groups. \
             Nothing was changed.",
        ),
        (
            Method::POST,
            "/self/sshkeys",
            None,
            "The body is empty; send one SSH key as it stands in `authorized_keys`. Nothing was changed.",
        ),
    ] {
        let refused = jdoe.ask(method, path, body).await;
        assert!(refused.status.is_client_error(), "{path}");
        assert_eq!(refused.json()["detail"], said, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_says_if_there_is_more() {
    let fixture = AccountsFixture::open().await;
    for name in ["ann", "anna", "annika", "bob"] {
        fixture.accounts("create", &[name, "--full-name", &format!("{name} x")]);
    }
    let admin = Client::of(&fixture, ADMIN);
    let two = admin.get("/?q=ann&n=2").await.json();
    assert_eq!(
        two,
        json!([{"_account_id": 1_000_000}, {"_account_id": 1_000_001, "_more_accounts": true}])
    );
    let rest = admin.get("/?q=ann&n=2&S=2&o=DETAILS").await.json();
    assert_eq!(rest[0]["name"], "annika x");
    assert_eq!(rest.as_array().unwrap().len(), 1);
    let typed = admin.get("/?suggest&q=ann%20x").await.json();
    assert_eq!(typed.as_array().unwrap().len(), 3);
    assert_eq!(typed[2]["username"], "annika");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_finds_words_by_their_beginning() {
    let fixture = AccountsFixture::open().await;
    for (name, full_name, email) in [
        ("jlarsson", "Jonas Larsson", "Jonas@Example.com"),
        ("ue", "Ünal O'Neil-Ito", "unal@example.com"),
        ("zoe_k", "Zoë 渡辺", "zoe@example.com"),
    ] {
        let more = ["--full-name", full_name, "--email", email];
        let created = fixture.accounts("create", &[&[name], &more[..]].concat());
        assert_eq!(created.code, 0, "{}", created.err);
    }
    for (query, found) in [
        ("jon", "jlarsson"),
        ("LAS", ""),
        ("lar", "jlarsson"),
        ("onas", ""),
        ("name:\"lar jonas\"", "jlarsson"),
        ("name:\"lar zoe\"", ""),
        ("name:-", ""),
        ("ÜNAL", "ue"),
        ("neil", "ue"),
        ("\"o'neil-ito ünal\"", "ue"),
        ("渡", "zoe_k"),
        ("zoe_", "zoe_k"),
        ("zoe%", ""),
        ("username:J", "jlarsson"),
        ("username:larsson", ""),
        ("email:JONAS@", "jlarsson"),
        ("jonas@example", "jlarsson"),
        ("email:example", ""),
        ("1000001", "ue"),
        ("100000", ""),
        ("-jon -neil", "zoe_k"),
        ("-name:- jon", "jlarsson"),
    ] {
        let listed = fixture.accounts("query", &[query]);
        assert_eq!(listed.code, 0, "{query}: {}", listed.err);
        let names = listed
            .out
            .lines()
            .map(|line| line.split(' ').nth(1).unwrap());
        assert_eq!(names.collect::<Vec<_>>().join(" "), found, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_lost_the_way_in_changes_nothing_any_more() {
    let fixture = AccountsFixture::open().await;
    let (_, mallory) = fixture.person("mallory");
    let link = fixture.accounts("link", &["mallory", "github:777"]);
    assert_eq!(link.code, 0, "{}", link.err);
    let json = "application/json";
    // The administrator replaces the password while a request of its thief waits.
    let steal = ("PUT", "/api/accounts/self/password.http", json);
    let replace = || assert_eq!(fixture.accounts("password", &["mallory"]).code, 0);
    let answer = fixture
        .with_late_body(steal, &mallory, b"{\"generate\": true}", replace)
        .await;
    assert!(answer.contains("HTTP/1.1 401 "), "{answer}");

    let password = fixture.accounts("password", &["mallory"]).out;
    let mallory = format!("mallory:{}", password.trim());
    let own = Client::of(&fixture, &mallory);
    // The number on the forge is what a lock-out is about there.
    let forge = Some(json!(["github:777"]));
    let unlinked = own
        .ask(Method::POST, "/self/external.ids:delete", forge)
        .await;
    assert_eq!(unlinked.status, 409, "{}", unlinked.text);
    let set = ("PUT", "/api/accounts/self/name", json);
    let lock_out = || assert_eq!(fixture.accounts("deactivate", &["mallory"]).code, 0);
    let answer = fixture
        .with_late_body(set, &mallory, b"{\"name\": \"x\"}", lock_out)
        .await;
    assert!(answer.contains("HTTP/1.1 403 "), "{answer}");
    let shown = fixture.accounts("show", &["mallory", "--json"]).json();
    assert_eq!(shown["name"], Value::Null, "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_account_makes_only_so_many_changes_in_an_hour() {
    let fixture = AccountsFixture::open().await;
    let (_, credentials) = fixture.person("jdoe");
    let jdoe = Client::of(&fixture, &credentials);
    // Attempts count, too.
    for _ in 0..300 {
        let refused = jdoe
            .ask(Method::PUT, "/self/preferences", Some(json!([])))
            .await;
        assert_eq!(refused.status, 400, "{}", refused.text);
    }
    let name = Some(json!({"name": "x"}));
    let late = jdoe.ask(Method::PUT, "/self/name", name.clone()).await;
    assert_eq!(late.status, 429, "{}", late.text);
    // Flags have a limit of their own.
    let flag = "/api/changes/1/revisions/current/files/x/reviewed";
    assert_eq!(jdoe.ask(Method::PUT, flag, None).await.status, 404);
    let clone = fixture.clone_of(&credentials, "jdoe");
    clone.commit("x", "x");
    let pushed = clone.push(&["origin", "HEAD:refs/users/self"]);
    assert_ne!(pushed.code, 0);
    assert!(pushed.err.contains("429"), "{}", pushed.err);
    let admin = Client::of(&fixture, ADMIN);
    assert_eq!(admin.ask(Method::PUT, "/jdoe/name", name).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_watches_are_written_at_once() {
    let fixture = AccountsFixture::open().await;
    let (_, credentials) = fixture.person("jdoe");
    let jdoe = Client::of(&fixture, &credentials);
    let watches = |many: usize| {
        let watch = |n| json!({"project": format!("p{n}"), "notify_plans": true});
        Value::from((0..many).map(watch).collect::<Vec<_>>())
    };
    jdoe.done(Method::POST, "/self/watched.projects", watches(500), 200)
        .await;
    let many = jdoe
        .ask(Method::POST, "/self/watched.projects", Some(watches(501)))
        .await;
    assert_eq!(many.status, 400, "{}", many.text);
    assert!(many.text.contains("send 500 at most"), "{}", many.text);
    let shown = fixture.accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(shown["watches"].as_array().unwrap().len(), 500);
}

/// Stores pull requests as a server does that sees them for the first time. Their changes have the numbers from 1.
pub(crate) async fn see_pulls(fixture: &AccountsFixture, many: i64) {
    let store = fixture.store().await;
    for number in 1..=many {
        let at = PullRef {
            repo: "github.com/acme/infra".parse().unwrap(),
            subject: Subject::pull(number),
        };
        let url = format!("https://github.com/acme/infra/pull/{number}");
        store.pull_seen(&at, PullState::Open, &url).await.unwrap();
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_stars_changes_and_finds_them_again() {
    let fixture = AccountsFixture::open().await;
    let (number, credentials) = fixture.person("jdoe");
    see_pulls(&fixture, 3).await;
    let (jdoe, admin) = (
        Client::of(&fixture, &credentials),
        Client::of(&fixture, ADMIN),
    );
    let star = "/self/starred.changes";
    let commit = jdoe.get(star).await.etag;
    for change in ["3", "1", "1"] {
        let path = format!("{star}/{change}");
        jdoe.done(Method::PUT, &path, Value::Null, 204).await;
    }
    let blue = json!({"add": ["blue", "later"], "remove": ["none"]});
    let labels = jdoe.done(Method::POST, "/self/stars.changes/2", blue, 200);
    assert_eq!(labels.await.json(), json!(["blue", "later"]));
    let red = json!({"add": ["red"], "remove": ["later"]});
    let labels = jdoe.done(Method::POST, "/self/stars.changes/2", red, 200);
    assert_eq!(labels.await.json(), json!(["blue", "red"]));
    let labels = jdoe.get("/self/stars.changes/2").await;
    assert_eq!(labels.json(), json!(["blue", "red"]));
    assert_eq!(labels.etag, commit, "a star is no change of the account");
    let starred = jdoe.get(star).await.json();
    assert_eq!(
        starred,
        json!([
            {"_number": 1, "starred": true, "stars": ["star"]},
            {"_number": 3, "starred": true, "stars": ["star"]},
        ])
    );
    let found = async |query: &str| jdoe.get(&format!("/api/changes/?q={query}")).await;
    assert_eq!(found("is:starred").await.json(), starred);
    let blue = json!([{"_number": 2, "starred": false, "stars": ["blue", "red"]}]);
    assert_eq!(found("star:blue").await.json(), blue);
    assert_eq!(found("star:none").await.json(), json!([]));
    for query in ["", "is:open", "star:", "is:starred+star:blue"] {
        let refused = found(query).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        let way_out = "write `is:starred` or `star:LABEL`";
        assert!(refused.text.contains(way_out), "{}", refused.text);
    }
    let all = admin.get("/jdoe/stars.changes").await.json();
    assert_eq!(
        all[1],
        json!({
            "_number": 2, "project": "github.com/acme/infra", "subject": "pull request #2", "status": "NEW",
            "url": "https://github.com/acme/infra/pull/2", "starred": false, "stars": ["blue", "red"],
        })
    );
    // Three programs tell the same: the API, the command, and the reader of a copy that knows neither.
    let copy = fixture.mirror(ADMIN, "copy.git");
    let theirs = independent(&["show", copy.to_str().unwrap()]).json();
    let detail = jdoe.get("/self/detail").await.json();
    assert_eq!(detail, fixture.accounts("show", &["jdoe", "--json"]).json());
    assert_eq!(detail, theirs["accounts"][0]);
    assert_eq!(
        detail["starred_changes"][1],
        json!({"change": 2, "labels": ["blue", "red"]})
    );

    let status = |answer: Answer| answer.status.as_u16();
    let delete = format!("{star}/1");
    jdoe.done(Method::DELETE, &delete, Value::Null, 204).await;
    assert_eq!(status(jdoe.ask(Method::DELETE, &delete, None).await), 404);
    // Other labels stay without the star.
    let two = format!("{star}/2");
    assert_eq!(status(jdoe.ask(Method::DELETE, &two, None).await), 404);
    assert_eq!(
        jdoe.get("/self/stars.changes").await.json(),
        json!([
            {"_number": 2, "starred": false, "stars": ["blue", "red"]},
            {"_number": 3, "starred": true, "stars": ["star"]},
        ])
    );
    for (method, path, body, code, reason) in [
        (
            Method::PUT,
            "/self/starred.changes/9",
            Value::Null,
            404,
            "There is no change 9; the page of a lock shows the number of its change",
        ),
        (
            Method::PUT,
            "/self/starred.changes/x",
            Value::Null,
            404,
            "There is no change `x`",
        ),
        (
            Method::GET,
            "/self/stars.changes/9",
            Value::Null,
            404,
            "There is no change `9`",
        ),
        (
            Method::POST,
            "/self/stars.changes/3",
            json!({"add": ["ignore"]}),
            400,
            "`star` and `ignore` exclude each other",
        ),
        (
            Method::POST,
            "/self/stars.changes/3",
            json!({"add": ["a b"]}),
            400,
            "`a b` is not a label",
        ),
        (
            Method::POST,
            "/self/stars.changes/3",
            json!({"added": ["a"]}),
            400,
            "unknown field `added`",
        ),
    ] {
        let body = Some(body).filter(|body| !body.is_null());
        let refused = jdoe.ask(method, path, body).await;
        assert_eq!(refused.status, code, "{path}: {}", refused.text);
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(reason), "{path}: {detail}");
    }
    let old = [("if-match", "\"0123456789012345678901234567890123456789\"")];
    let late = jdoe.ask_with(Method::PUT, &two, None, &old).await;
    assert_eq!(late.status, 412, "{}", late.text);
    // The administrator may do it for somebody else.
    let two = format!("/{number}/starred.changes/2");
    admin.done(Method::PUT, &two, Value::Null, 204).await;
    assert_eq!(
        jdoe.get("/self/stars.changes/2").await.json(),
        json!(["blue", "red", "star"])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_and_the_independent_reader_tell_the_same_of_a_thousand_accounts() {
    let fixture = AccountsFixture::open().await;
    let written = fixture.dir.path().join("written.git");
    let written = written.to_str().unwrap();
    independent(&["write", written, "1000", "7"]);
    let database = fixture.server.database();
    let imported = lockkeeper(&["accounts", "import", "git"], &database, &[written], &[]);
    assert_eq!(imported.code, 0, "{}{}", imported.out, imported.err);
    let copy = fixture.mirror(ADMIN, "copy.git");
    let theirs = in_order(independent(&["show", copy.to_str().unwrap()]).json());
    let theirs = theirs["accounts"].as_array().unwrap();
    assert_eq!(theirs.len(), 1_000);

    // A client of its own for each request would take minutes.
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let (user, password) = ADMIN.split_once(':').unwrap();
    let mut ours = Vec::new();
    for account in theirs {
        let number = &account["_account_id"];
        let url = format!("{}/api/accounts/{number}/detail", fixture.server.url());
        let request = client.get(url).basic_auth(user, Some(password));
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{number}");
        ours.push(answer.json::<Value>().await.unwrap());
    }
    let ours = in_order(json!({ "accounts": ours }));
    for (our, their) in ours["accounts"].as_array().unwrap().iter().zip(theirs) {
        assert_eq!(our, their);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_of_one_account_are_made_again() {
    let fixture = AccountsFixture::open().await;
    let (_, credentials) = fixture.person("jdoe");
    fixture.person("kim");
    see_pulls(&fixture, 1).await;
    let jdoe = Client::of(&fixture, &credentials);
    let watch = json!([{"project": "github.com/Acme/infra", "notify_all": true}]);
    jdoe.done(Method::POST, "/self/watched.projects", watch, 200)
        .await;
    jdoe.done(Method::PUT, "/self/starred.changes/1", Value::Null, 204)
        .await;
    // Nothing of Lockkeeper does this.
    for damage in [
        "UPDATE accounts SET full_name = 'x'",
        "DELETE FROM account_emails WHERE account = 1000000",
        "DELETE FROM account_external_ids WHERE external_id = 'mailto:jdoe@example.com'",
        "DELETE FROM account_watches",
        "UPDATE account_stars SET label = 'blue'",
    ] {
        execute_on(&fixture.server.database(), damage).await;
    }
    // All external IDs are read for it, so not everybody may have it done.
    let refused = jdoe.ask(Method::POST, "/self/index", None).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    let admin = Client::of(&fixture, ADMIN);
    // A commit of another account that cannot be read is not in the way.
    let size = |change: &str| {
        format!(
            "UPDATE account_objects SET size = size {change} WHERE id = (SELECT commit_id FROM accounts WHERE number = 1000001)"
        )
    };
    execute_on(&fixture.server.database(), &size("- 2")).await;
    admin
        .done(Method::POST, "/jdoe/index", Value::Null, 204)
        .await;
    let refused = admin.ask(Method::POST, "/kim/index", None).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    let why = "refs/users/01/1000001 cannot be read, so its tables stay as they are; correct the branch first.";
    assert!(refused.text.contains(why), "{}", refused.text);
    execute_on(&fixture.server.database(), &size("+ 2")).await;
    let detail = jdoe.get("/self/detail").await.json();
    assert_eq!(detail["starred_changes"][0]["labels"], json!(["star"]));
    assert_eq!(detail["external_ids"].as_array().unwrap().len(), 2);
    assert_eq!(jdoe.get("/self/name").await.json(), "");
    // Others are left alone.
    let checked = fixture.accounts("check", &[]);
    let lines: Vec<&str> = checked.out.lines().collect();
    assert_eq!(lines.len(), 1, "{}", checked.out);
    assert!(
        lines[0].starts_with("refs/users/01/1000001: error: the row in the database has other"),
        "{}",
        checked.out
    );
    admin
        .done(Method::POST, "/kim/index", Value::Null, 204)
        .await;
    admin
        .done(Method::POST, "/kim/index", Value::Null, 204)
        .await;
    assert_eq!(fixture.accounts("check", &[]).code, 0);

    // Only an administrator finds out who else watches a project.
    let found = async |client: &Client<'_>, query: &str| {
        let found = client.get(&format!("/?q={query}")).await.json();
        let found = found.as_array().unwrap().iter();
        let found = found.map(|account| account["_account_id"].as_u64().unwrap());
        found.collect::<Vec<_>>()
    };
    let (_, zoe) = fixture.person("zoe");
    let zoe = Client::of(&fixture, &zoe);
    let watches = "watches:github.com/acme/infra";
    assert_eq!(found(&admin, watches).await, [1_000_000]);
    assert_eq!(found(&jdoe, watches).await, [1_000_000]);
    assert_eq!(found(&zoe, watches).await, [0; 0]);
    let others = [1_000_000, 1_000_001, 1_000_002];
    assert_eq!(found(&zoe, &format!("-{watches}")).await, others);
    assert_eq!(found(&admin, &format!("-{watches}")).await, others[1..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_requests_of_one_account_hold_up_nobody_else() {
    let fixture = AccountsFixture::open().await;
    let (_, mallory) = fixture.person("mallory");
    let (_, jdoe) = fixture.person("jdoe");
    let client = |credentials: &str| Client::of(&fixture, credentials);
    let push = "application/x-git-receive-pack-request";
    let mut slow = Vec::new();
    for (method, path, kind) in [
        ("PUT", "/api/accounts/self/name", "application/json"),
        ("PUT", "/api/accounts/self/status", "application/json"),
        ("POST", "/All-Users/git-receive-pack", push),
        ("POST", "/All-Users/git-receive-pack", push),
    ] {
        slow.push(fixture.begin_late((method, path, kind), &mallory, 10).await);
    }
    let fifth = client(&mallory).get("/self").await;
    assert_eq!(fifth.status, 429, "{}", fifth.text);
    assert_eq!(client(&jdoe).get("/self").await.status, 200);
    assert_eq!(client(ADMIN).get("/jdoe").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_can_have_another_name_at_the_pages() {
    let fixture =
        AccountsFixture::with_users("user=net-kim owners=net allow=none account=1000000\n").await;
    let (_, kim) = fixture.person("kim");
    let (_, password) = kim.split_once(':').unwrap();
    let at_pages = format!("net-kim:{password}");
    let get = async |path: &str, credentials: &str| {
        let (user, password) = credentials.split_once(':').unwrap();
        let request = reqwest::Client::new().get(format!("{}{path}", fixture.server.url()));
        let answer = request.basic_auth(user, Some(password)).send().await;
        answer.unwrap().status()
    };
    let account = "/api/accounts/self";
    assert_eq!(get("/api/locks", &at_pages).await, StatusCode::OK);
    // A wrong name at one entrance must not make the right one at the other entrance wrong.
    assert_eq!(get(account, &at_pages).await, StatusCode::UNAUTHORIZED);
    assert_eq!(get("/api/locks", &at_pages).await, StatusCode::OK);
    assert_eq!(get("/api/locks", &kim).await, StatusCode::UNAUTHORIZED);
    assert_eq!(get(account, &kim).await, StatusCode::OK);
}
