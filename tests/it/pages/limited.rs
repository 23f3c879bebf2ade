//! Tests of accounts that are limited to owners: every route, in a world in which all data of the other owner is
//! called `zebra`.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::http::{StatusCode, header};
use chrono::TimeDelta;
use lockkeeper::claims::application_add;
use lockkeeper::config::access::WebRules;
use lockkeeper::credential::GitAccess;
use lockkeeper::model::{
    Actor, ApplicationFields, ApplyScope, Cause, CommandKind, ForgeHosts, LockEventKind, OwnerName,
    Rights, RunKind,
};
use lockkeeper::secret::Secret;
use lockkeeper::store::{CreateOwner, LeaseHold, NewLease, Presence, ReplicaId, TakeLease};
use serde_json::{Value, json};

use super::fixture::{Browser, World, project, pull};
use crate::support::db::by;

const ACCOUNTS: &str = "user=kim owners=net allow=all password=kims-password-of-kim\n\
                        user=lee owners=net,other allow=sync password=lees-password-of-lee\n";
/// Routes for the whole server, which refuse limited accounts and visitors without an account.
const REFUSED: [&str; 10] = [
    "/api/owners/{name}",
    "/apply-lock/stop",
    "/apply-lock/allow",
    "/apply/lock",
    "/apply/unlock",
    "/operations",
    "/operations/leases/release",
    "/api/operations",
    "/owners/{name}/remove",
    "/metrics",
];
const OPEN: [&str; 4] = ["/events", "/healthz", "/readyz", "/status"];
/// Pages of the registry and their API, which the server of these tests does not have. `registry::pages`,
/// `registry::people_api` and `registry::peers_api` test them.
const OF_REGISTRY: [&str; 2] = ["/registry", "/api/registry"];

/// Data of one owner.
pub struct Own {
    pub name: &'static str,
    pub lock: String,
    pub run: String,
    pub apply_lock: String,
    pub app: String,
    pub credential: String,
}

async fn own(world: &World, name: &'static str) -> Own {
    let (store, repo) = (&world.store, format!("github.com/acme/{name}"));
    let owner = OwnerName::new(if name == "zebra" { "other" } else { name }).unwrap();
    let CreateOwner::Created(_) = store.owner_create(&owner, by()).await.unwrap() else {
        panic!("it is new")
    };
    let url = format!("https://{repo}");
    let fields = ApplicationFields {
        url: Some(&url),
        branch: Some("main"),
        dir: Some(name),
        ..Default::default()
    };
    let spec = fields.spec(&ForgeHosts::public()).unwrap();
    let app = application_add(store, &owner, &spec, (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap();
    let access = GitAccess::Token {
        user: Some(format!("{name}-bot")),
        token: Secret::new("ghp_a_token_of_the_team"),
    };
    let credential = world
        .credentials()
        .add(&owner, &spec.url, &access, (Rights::Whole, by()))
        .await
        .unwrap();
    let (pull, project) = (pull(&repo, 7), project(name, "default", None));
    let lock = world
        .lock(&pull, &project, &format!("{name}-dev"), name)
        .await;
    let command = world
        .command(
            CommandKind::Plan,
            &pull,
            Actor::commenter(&format!("{name}-dev")),
        )
        .await;
    let run = world.run(command, RunKind::Plan, &pull, &project).await;
    world.print(run, 1, name).await;
    let stop = Cause::new(
        Actor::commenter(&format!("{name}-dev")),
        format!("{name} is frozen"),
    );
    let scope = ApplyScope::Repo(repo.parse().unwrap());
    let _set = store.apply_lock_set(&scope, None, &stop).await.unwrap();
    let apply_lock = store
        .apply_lock_get(&scope)
        .await
        .unwrap()
        .unwrap()
        .id
        .to_string();
    store
        .mirror_know(&"disk-1".parse().unwrap(), &repo.parse().unwrap())
        .await
        .unwrap();
    let hold = LeaseHold {
        key: format!("repository_sync:disk-1:{repo}"),
        holder: "keeper-1/1".to_owned(),
    };
    let new = NewLease {
        hold: &hold,
        purpose: name,
        until: world.clock_now() + TimeDelta::hours(3),
    };
    assert!(matches!(
        store.lease_take(new).await.unwrap(),
        TakeLease::Taken(_)
    ));
    let (lock, run) = (lock.id.to_string(), run.to_string());
    Own {
        name,
        lock,
        run,
        apply_lock,
        app: app.id.to_string(),
        credential: credential.id.to_string(),
    }
}

pub async fn world() -> (World, Own, Own) {
    let mut world = World::new().await;
    world.web_accounts = ACCOUNTS;
    let id = ReplicaId {
        name: "keeper-1".to_owned(),
        host: "keeper".to_owned(),
        address: String::new(),
        version: "1.2.3".to_owned(),
    };
    world
        .store
        .replica_beat(
            &id,
            Presence::Serving,
            &[],
            world.clock_now() + TimeDelta::days(1),
        )
        .await
        .unwrap();
    let (net, zebra) = (own(&world, "net").await, own(&world, "zebra").await);
    (world, net, zebra)
}

/// Returns true if a route is a list: it shows the data of the own owner and leaves out the rest.
fn is_list(route: &str) -> bool {
    let lists = [
        "/",
        "/index.html",
        "/locks",
        "/apply-locks",
        "/repos",
        "/owners",
        "/claims",
        "/audit",
    ];
    let of_api = [
        "locks",
        "apply-locks",
        "leases",
        "repos",
        "owners",
        "claims",
        "apps",
        "credentials",
        "audit",
    ];
    lists.contains(&route)
        || route
            .strip_prefix("/api/")
            .is_some_and(|name| of_api.contains(&name))
}

/// Returns the addresses of the data of one owner, with the method. Empty if the route has none.
fn things(route: &str, own: &Own) -> Vec<(&'static str, String)> {
    let Own {
        name,
        lock,
        run,
        apply_lock,
        app,
        credential,
    } = own;
    let owner = if *name == "zebra" { "other" } else { *name };
    let repo = format!("github.com/acme/{name}");
    let of_owner = |routes: &[&str]| {
        routes
            .contains(&route)
            .then(|| ("GET", format!("{route}?owner={owner}")))
    };
    let lists = [
        "/",
        "/locks",
        "/repos",
        "/claims",
        "/api/locks",
        "/api/apply-locks",
        "/api/leases",
        "/api/repos",
        "/api/claims",
        "/api/apps",
        "/api/credentials",
        "/audit",
        "/api/audit",
    ];
    let mut all: Vec<(&'static str, String)> = of_owner(&lists).into_iter().collect();
    all.extend(match route {
        "/locks/{*id}" => vec![
            ("GET", format!("/locks/{lock}")),
            ("GET", format!("/locks/acme/{name}/{name}/default")),
            ("POST", format!("/locks/{lock}")),
        ],
        "/lock" => vec![("GET", format!("/lock?id={lock}"))],
        "/locks" => vec![("DELETE", format!("/locks?id={lock}"))],
        "/owners" | "/apply-locks" | "/api/apps" | "/api/credentials" | "/api/owners"
        | "/api/apply-locks" => {
            vec![("POST", route.to_owned())]
        }
        "/apply-locks/{id}/end" => vec![("POST", format!("/apply-locks/{apply_lock}/end"))],
        "/jobs/{id}" => vec![("GET", format!("/jobs/{run}"))],
        "/jobs/{id}/cancel" => vec![("POST", format!("/jobs/{run}/cancel"))],
        "/jobs/{id}/output.txt" => vec![("GET", format!("/jobs/{run}/output.txt"))],
        "/jobs/{id}/events" => vec![("GET", format!("/jobs/{run}/events"))],
        "/api/runs/{id}/policies" => vec![("GET", format!("/api/runs/{run}/policies"))],
        "/repos/{*repo}" => vec![
            ("GET", format!("/repos/{repo}")),
            ("POST", format!("/repos/{repo}")),
        ],
        "/owners/{name}" => vec![("GET", format!("/owners/{owner}"))],
        "/owners/{name}/apps" => vec![("POST", format!("/owners/{owner}/apps"))],
        "/owners/{name}/{things}/{id}/remove" => [("apps", app), ("credentials", credential)]
            .map(|(things, id)| ("POST", format!("/owners/{owner}/{things}/{id}/remove")))
            .to_vec(),
        "/apps/{id}" => vec![("GET", format!("/apps/{app}"))],
        "/apps/{id}/cancel" => vec![("POST", format!("/apps/{app}/cancel"))],
        "/api/apps/{id}/cancel" => vec![("POST", format!("/api/apps/{app}/cancel"))],
        "/apps/{id}/{action}" => ["plan", "apply", "discard"]
            .map(|action| ("POST", format!("/apps/{app}/{action}")))
            .to_vec(),
        "/api/apps/{id}/{action}" => ["plan", "apply", "discard"]
            .map(|action| ("POST", format!("/api/apps/{app}/{action}")))
            .to_vec(),
        "/api/locks/{*asked}" => vec![
            ("GET", format!("/api/locks/{lock}")),
            ("POST", format!("/api/locks/{lock}/release")),
            ("POST", format!("/api/locks/{lock}/hand-over")),
        ],
        "/api/apply-locks/{id}" => vec![("DELETE", format!("/api/apply-locks/{apply_lock}"))],
        "/api/leases/{*key}" => vec![(
            "DELETE",
            format!("/api/leases/repository_sync:disk-1:{repo}?reason=x"),
        )],
        "/api/repos/{*asked}" => {
            vec![
                ("GET", format!("/api/repos/{repo}")),
                ("POST", format!("/api/repos/{repo}/sync")),
            ]
        }
        "/api/apps/{id}" => ["GET", "POST", "DELETE"]
            .map(|verb| (verb, format!("/api/apps/{app}")))
            .to_vec(),
        "/api/credentials/{id}" => ["GET", "POST", "DELETE"]
            .map(|verb| (verb, format!("/api/credentials/{credential}")))
            .to_vec(),
        "/api/claims" => vec![("GET", format!("/api/claims?url=https://{repo}"))],
        _ => vec![],
    });
    all
}

/// Returns the body that a script sends.
pub fn body(path: &str) -> Value {
    match path {
        "/api/apps" | "/api/credentials" => {
            json!({ "owner": "other", "url": "https://github.com/acme/new" })
        }
        "/api/owners" => json!({ "name": "new" }),
        _ if path.ends_with("/hand-over") => json!({ "pull": 9 }),
        _ if path.ends_with("/sync")
            || path.ends_with("/release")
            || path == "/api/apply-locks" =>
        {
            json!({ "reason": "x" })
        }
        _ => json!({}),
    }
}

/// Sends a request: by a form for pages, as a script for everything else.
async fn ask(
    browser: &Browser,
    verb: &'static str,
    path: &str,
    body: &Value,
) -> (StatusCode, String) {
    let is_form = verb == "POST" && !path.starts_with("/api/");
    let answer = if is_form {
        let fields =
            "reason=x&url=https%3A%2F%2Fgithub.com%2Facme%2Fnew&branch=main&name=new&scope=server";
        browser.post(path, fields).await
    } else {
        let mut request = browser
            .request(verb, path)
            .header(header::CONTENT_TYPE, "application/json");
        if path.starts_with("/api/") || verb == "DELETE" {
            request.headers_mut().unwrap().remove(header::COOKIE);
        }
        browser
            .send(request.body(Body::from(body.to_string())).unwrap())
            .await
    };
    (answer.status, answer.body)
}

/// Returns every path of the router, and whether its routes admit limited accounts.
fn paths() -> BTreeMap<&'static str, BTreeSet<bool>> {
    let mut paths: BTreeMap<_, BTreeSet<bool>> = BTreeMap::new();
    for route in lockkeeper::http::routes() {
        paths.entry(route.path).or_default().insert(route.limited);
    }
    paths
}

#[tokio::test]
async fn every_route_is_limited_or_refused() {
    let (world, net, zebra) = world().await;
    let kim = world.browser_of("kim", "kims-password-of-kim").await;
    for (route, limited) in paths() {
        let of_registry = OF_REGISTRY.iter().any(|path| route.starts_with(path));
        if OPEN.contains(&route) || of_registry {
            continue;
        }
        if REFUSED.contains(&route) {
            assert_eq!(limited, BTreeSet::from([false]), "{route}");
            let path = route.replace("{name}", "net");
            for verb in ["GET", "POST", "DELETE"] {
                let (status, said) = ask(&kim, verb, &path, &body(&path)).await;
                assert_eq!(status, StatusCode::FORBIDDEN, "{verb} {path}: {said}");
                assert!(
                    said.contains("limited to the resources of"),
                    "{verb} {path}: {said}"
                );
            }
            continue;
        }
        assert_eq!(
            limited,
            BTreeSet::from([true]),
            "{route} is neither limited nor refused"
        );
        let (own, others) = (things(route, &net), things(route, &zebra));
        assert!(
            is_list(route) || !others.is_empty() || route.starts_with("/static"),
            "{route} is not tested"
        );
        if is_list(route) {
            let (status, said) = ask(&kim, "GET", route, &json!({})).await;
            assert_eq!(status, StatusCode::OK, "{route}");
            let is_hidden = ["zebra", "other<", "\"other\""]
                .iter()
                .all(|word| !said.contains(word));
            assert!(said.contains("net") && is_hidden, "{route}: {said}");
        }
        for (verb, path) in others {
            let (status, said) = ask(&kim, verb, &path, &body(&path)).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{verb} {path}: {said}");
            assert!(
                said.contains("this account is limited to the resources of “net”"),
                "{verb} {path}: {said}"
            );
        }
        for (_, path) in own
            .iter()
            .filter(|(verb, path)| *verb == "GET" && !path.ends_with("/events"))
        {
            let (status, said) = ask(&kim, "GET", path, &json!({})).await;
            assert!(
                status.is_success() || status.is_redirection(),
                "{path}: {status} {said}"
            );
        }
    }
    let denied = world.store.lock_event_list(99).await.unwrap();
    assert!(
        denied
            .iter()
            .all(|event| event.event.kind != LockEventKind::Released),
        "nothing was changed"
    );
    for (thing, is_there) in [
        (
            "the lock",
            world
                .store
                .lock_get(zebra.lock.parse().unwrap())
                .await
                .unwrap()
                .is_some(),
        ),
        (
            "the application",
            world
                .store
                .application_get(zebra.app.parse().unwrap())
                .await
                .unwrap()
                .is_some(),
        ),
        (
            "the credential",
            world
                .store
                .credential_get(zebra.credential.parse().unwrap())
                .await
                .unwrap()
                .is_some(),
        ),
        (
            "the apply lock",
            world
                .store
                .apply_lock_find(zebra.apply_lock.parse().unwrap())
                .await
                .unwrap()
                .is_some(),
        ),
    ] {
        assert!(is_there, "{thing} of the other owner is there");
    }
}

#[tokio::test]
async fn a_limited_account_drives_what_is_of_its_owner() {
    let (world, net, _) = world().await;
    let kim = world.browser_of("kim", "kims-password-of-kim").await;
    let (status, said) = ask(&kim, "POST", "/apply-locks", &json!(null)).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{said}");
    let (status, said) = ask(&kim, "POST", "/api/apply-locks", &json!({ "reason": "x" })).await;
    assert_eq!(
        status,
        StatusCode::FORBIDDEN,
        "all applies are everybody's: {said}"
    );
    let (status, said) = ask(&kim, "POST", "/owners", &json!(null)).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{said}");
    let refused = kim.get("/operations").await.text();
    insta::assert_snapshot!(refused.lines().nth(2).unwrap(), @"“kim” may not see this: this account is limited to the resources of “net”, and this concerns the whole server. The account of the whole server can do it, and an administrator can change the limits of this account (--web-accounts-file).");
    for (verb, path, body) in [
        (
            "POST",
            format!("/api/repos/github.com/acme/{}/sync", net.name),
            json!({ "reason": "x" }),
        ),
        ("POST", format!("/api/apps/{}/plan", net.app), json!({})),
        ("POST", format!("/api/apps/{}/cancel", net.app), json!({})),
        (
            "POST",
            format!("/api/apps/{}", net.app),
            json!({ "dir": "next" }),
        ),
        (
            "POST",
            format!("/api/locks/{}/release", net.lock),
            json!({ "reason": "x", "force": true }),
        ),
        (
            "POST",
            "/api/apps".to_owned(),
            json!({ "owner": "net", "url": "https://github.com/acme/net", "branch": "main", "dir": "more" }),
        ),
        (
            "DELETE",
            format!("/api/credentials/{}", net.credential),
            json!(null),
        ),
        (
            "DELETE",
            "/api/leases/repository_sync:disk-1:github.com/acme/net?reason=x".to_owned(),
            json!(null),
        ),
        (
            "DELETE",
            format!("/api/apply-locks/{}", net.apply_lock),
            json!(null),
        ),
    ] {
        let (status, said) = ask(&kim, verb, &path, &body).await;
        assert!(status.is_success(), "{verb} {path}: {status} {said}");
    }
    let (status, said) = ask(
        &kim,
        "POST",
        "/api/apps",
        &json!({ "owner": "net", "url": "https://github.com/acme/zebra", "branch": "main" }),
    )
    .await;
    assert_eq!(
        (status, said.contains("owned by “other”")),
        (StatusCode::CONFLICT, true),
        "{said}"
    );
    let (change, app) = (
        format!("/api/apps/{}", net.app),
        |url: &str| json!({ "owner": "net", "url": url, "branch": "main" }),
    );
    let token = "ghp_a_token_of_the_team";
    for (path, body, why) in [
        (
            "/api/apps",
            app("https://github.com/acme/new"),
            "nobody has claimed https://github.com/acme/new",
        ),
        (
            "/api/credentials",
            json!({ "owner": "net", "url": "https://github.com/acme/new", "kind": "token", "token": token }),
            "only the account of the whole server can make the first claim of a repository",
        ),
        (
            change.as_str(),
            json!({ "url": "https://github.com/acme/new" }),
            "nobody has claimed https://github.com/acme/new",
        ),
        (
            change.as_str(),
            json!({ "branch": "next" }),
            "is “main”, not “next”",
        ),
        (
            change.as_str(),
            json!({ "any_branch": true }),
            "this requests it (“any_branch”)",
        ),
    ] {
        let (status, said) = ask(&kim, "POST", path, &body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path} {body}: {said}");
        assert!(said.contains(why), "{path} {body}: {said}");
    }
    let ops = world.browser().await;
    let (status, said) = ask(
        &ops,
        "POST",
        &change,
        &json!({ "branch": "next", "any_branch": true }),
    )
    .await;
    assert!(
        status.is_success() && said.contains(r#""any_branch":true"#),
        "{said}"
    );
}

#[tokio::test]
async fn an_account_does_what_its_own_list_and_that_of_the_server_give() {
    let (mut world, net, zebra) = world().await;
    let lee = world.browser_of("lee", "lees-password-of-lee").await;
    let apps = lee.get("/api/apps").await.body;
    assert!(
        apps.contains(&net.app) && apps.contains(&zebra.app),
        "both owners are listed: {apps}"
    );
    let (status, said) = ask(
        &lee,
        "DELETE",
        &format!("/api/apps/{}", net.app),
        &json!(null),
    )
    .await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(said.contains("“lee” is limited by “allow=sync”"), "{said}");
    let sync = (
        "POST",
        "/api/repos/github.com/acme/zebra/sync",
        json!({ "reason": "x" }),
    );
    assert_eq!(
        ask(&lee, sync.0, sync.1, &sync.2).await.0,
        StatusCode::ACCEPTED
    );
    world.web_rules = WebRules::new(&["discard"]).unwrap();
    let lee = world.browser_of("lee", "lees-password-of-lee").await;
    assert_eq!(
        ask(&lee, sync.0, sync.1, &sync.2).await.0,
        StatusCode::FORBIDDEN
    );
    let wrong = world.browser_of("lee", "kims-password-of-kim").await;
    assert_eq!(wrong.get("/").await.status, StatusCode::UNAUTHORIZED);
    let whole = world.browser().await.get("/").await.body;
    assert!(
        whole.contains("zebra") && whole.contains("net-dev"),
        "the account for the whole server sees all"
    );
}

#[tokio::test]
async fn lists_are_filtered_by_owner_and_have_an_end() {
    let (world, ..) = world().await;
    let ops = world.browser().await;
    for path in [
        "/locks",
        "/repos",
        "/claims",
        "/audit",
        "/api/locks",
        "/api/apply-locks",
        "/api/leases",
        "/api/repos",
        "/api/apps",
        "/api/credentials",
        "/api/claims",
        "/api/audit",
    ] {
        let said = ops.get(&format!("{path}?owner=net")).await.body;
        assert!(
            said.contains("net") && !said.contains("zebra"),
            "{path}: {said}"
        );
        assert_eq!(
            ops.get(&format!("{path}?owner=nobody")).await.status,
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
    let read =
        async |path: &str| -> Value { serde_json::from_str(&ops.get(path).await.body).unwrap() };
    let first = read("/api/credentials").await;
    assert_eq!(
        (
            first["credentials"].as_array().unwrap().len(),
            &first["next"]
        ),
        (2, &json!(null))
    );
    let rest = read(&format!(
        "/api/credentials?after={}",
        first["credentials"][0]["id"].as_str().unwrap()
    ))
    .await;
    assert_eq!(
        rest["credentials"].as_array().unwrap(),
        &[first["credentials"][1].clone()]
    );
    let far = read("/api/repos?page=2").await;
    assert_eq!(
        (&far["found"], &far["mirrors"], &far["next"]),
        (&json!(2), &json!([]), &json!(null))
    );
}

#[tokio::test]
async fn owners_and_what_is_theirs_come_and_go_on_the_pages() {
    let world = World::new().await;
    let ops = world.browser().await;
    let moved = async |path: &str, fields: &str| {
        let answer = ops.post(path, fields).await;
        assert_eq!(
            answer.status,
            StatusCode::SEE_OTHER,
            "{path}: {}",
            answer.text()
        );
        answer.header("location").to_owned()
    };
    assert_eq!(
        moved("/owners", "name=Net").await,
        "/owners/net?notice=owner-added"
    );
    assert_eq!(
        moved("/owners", "name=dns").await,
        "/owners/dns?notice=owner-added"
    );
    let again = ops.post("/owners", "name=net").await;
    assert_eq!(
        (
            again.status,
            again.text().contains("Owner “net” already exists")
        ),
        (StatusCode::CONFLICT, true)
    );
    let app = "url=git%40github.com%3AAcme%2Finfra&branch=main&dir=&workspace=&name=";
    assert_eq!(
        moved("/owners/net/apps", app).await,
        "/owners/net?notice=app-added#applications"
    );
    let refused = ops.post("/owners/dns/apps", app).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(
        refused
            .text()
            .contains("https://github.com/acme/infra is owned by “net”."),
        "{}",
        refused.text()
    );
    let used = ops.post("/owners/net/remove", "").await;
    assert_eq!(
        (used.status, used.text().contains("1 applications")),
        (StatusCode::CONFLICT, true)
    );
    let id = world.store.application_list(None, None, 9).await.unwrap()[0].id;
    let stray = ops.post(&format!("/owners/dns/apps/{id}/remove"), "").await;
    assert_eq!(stray.status, StatusCode::NOT_FOUND);
    let page = ops.get("/owners/net").await.body;
    assert!(
        page.contains(&format!("/owners/net/apps/{id}/remove")),
        "{page}"
    );
    assert_eq!(
        moved(&format!("/owners/net/apps/{id}/remove"), "").await,
        "/owners/net?notice=app-removed#applications"
    );
    assert_eq!(
        moved("/owners/net/remove", "").await,
        "/owners?notice=owner-removed"
    );
    let events = world.store.lock_event_list(1).await.unwrap();
    assert_eq!(
        events[0].event.cause.reason,
        "owner net: on the page of the owner"
    );
    let foreign = ops
        .request("POST", "/owners")
        .header("sec-fetch-site", "cross-site");
    assert_eq!(
        ops.send(super::fixture::form(foreign, "name=evil"))
            .await
            .status,
        StatusCode::FORBIDDEN
    );
}
