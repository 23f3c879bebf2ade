//! The API of owners, claims and applications.

use axum::body::Body;
use axum::http::{StatusCode, header};
use lockkeeper::config::access::WebRules;
use serde_json::{Value, json};

use super::fixture::{Answer, Browser, World};

async fn call(browser: &Browser, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = browser.request(method, path).header(header::CONTENT_TYPE, "application/json");
    let Answer { status, body, .. } = browser.send(request.body(Body::from(body.to_string())).unwrap()).await;
    (status.as_u16(), serde_json::from_str(&body).unwrap())
}

async fn script(world: &World) -> Browser {
    let browser = world.browser_of_user().await.without_cookie();
    for name in ["net", "dns"] {
        assert_eq!(call(&browser, "POST", "/api/owners", &json!({ "name": name })).await.0, 201);
    }
    browser
}

fn wish(owner: &str, url: &str, dir: &str) -> Value {
    json!({ "owner": owner, "url": url, "branch": "main", "dir": dir })
}

#[tokio::test]
async fn owners_are_added_listed_and_removed() {
    let world = World::new().await;
    let browser = script(&world).await;
    let (status, again) = call(&browser, "POST", "/api/owners", &json!({ "name": "NET" })).await;
    assert_eq!(status, 409, "{again}");
    assert!(again["error"].as_str().unwrap().contains("There is an owner “net” already, added by ops."), "{again}");
    let (_, listed) = call(&browser, "GET", "/api/owners", &json!(null)).await;
    let names: Vec<&Value> = listed["owners"].as_array().unwrap().iter().map(|owner| &owner["name"]).collect();
    assert_eq!(names, [&json!("dns"), &json!("net")]);
    let (_, app) = call(&browser, "POST", "/api/apps", &wish("net", "https://github.com/acme/infra", ".")).await;
    let (status, used) = call(&browser, "DELETE", "/api/owners/net", &json!(null)).await;
    assert_eq!(status, 409, "{used}");
    assert!(used["error"].as_str().unwrap().contains("“net” has 1 applications and 0 credentials."), "{used}");
    let id = app["id"].as_str().unwrap();
    assert_eq!(call(&browser, "DELETE", &format!("/api/apps/{id}"), &json!(null)).await, (200, app.clone()));
    assert_eq!(call(&browser, "DELETE", "/api/owners/net", &json!(null)).await.0, 200);
    for gone in ["net", "a b", "%ff"] {
        let path = format!("/api/owners/{}", gone.replace(' ', "%20"));
        assert_eq!(call(&browser, "DELETE", &path, &json!(null)).await.0, 404, "{gone}");
    }
}

#[tokio::test]
async fn an_application_of_a_claimed_repository_is_refused_with_the_name_of_its_owner() {
    let world = World::new().await;
    let browser = script(&world).await;
    let (status, app) =
        call(&browser, "POST", "/api/apps", &wish("net", "git@github.com:Acme/infra.git", "net/")).await;
    assert_eq!(status, 201, "{app}");
    assert_eq!(
        (&app["url"], &app["dir"], &app["workspace"], &app["owner"]),
        (&json!("https://github.com/acme/infra"), &json!("net"), &json!("default"), &json!("net"))
    );
    let (status, refused) =
        call(&browser, "POST", "/api/apps", &wish("dns", "https://github.com/acme/INFRA/", "dns")).await;
    assert_eq!(status, 409);
    assert_eq!((&refused["owner"], &refused["reason"]), (&json!("net"), &json!("owned_by_another")));
    insta::assert_snapshot!(refused["error"].as_str().unwrap(), @"https://github.com/acme/infra is owned by “net”. Ask them, or have what they registered for it removed; “lockkeeper claims show https://github.com/acme/infra” says how much that is. Nothing was changed.");
    let (_, claims) = call(&browser, "GET", "/api/claims", &json!(null)).await;
    assert_eq!(claims["claims"].as_array().unwrap().len(), 1, "{claims}");
    let shown = call(&browser, "GET", "/api/claims?url=git%40github.com%3Aacme%2Finfra", &json!(null)).await.1;
    assert_eq!((&shown["claims"][0]["owner"], &shown["claims"][0]["applications"]), (&json!("net"), &json!(1)));
    assert_eq!(call(&browser, "GET", "/api/claims?owner=dns", &json!(null)).await.1["claims"], json!([]));
}

#[tokio::test]
async fn an_application_is_changed_field_by_field() {
    let world = World::new().await;
    let browser = script(&world).await;
    let (_, app) = call(&browser, "POST", "/api/apps", &wish("net", "https://github.com/acme/infra", "net")).await;
    let path = format!("/api/apps/{}", app["id"].as_str().unwrap());
    let (status, changed) =
        call(&browser, "POST", &path, &json!({ "url": "https://github.com/acme/new", "name": "n" })).await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!((&changed["dir"], &changed["name"]), (&json!("net"), &json!("n")));
    assert_eq!(call(&browser, "GET", &path, &json!(null)).await, (200, changed));
    let (_, claims) = call(&browser, "GET", "/api/claims", &json!(null)).await;
    assert_eq!(claims["claims"][0]["url"], json!("https://github.com/acme/new"));
    assert_eq!(call(&browser, "POST", &path, &json!({ "owner": "dns" })).await.0, 422);
    let listed = call(&browser, "GET", "/api/apps?owner=net", &json!(null)).await.1;
    assert_eq!((listed["apps"].as_array().unwrap().len(), &listed["next"]), (1, &json!(null)));
    assert_eq!(call(&browser, "GET", "/api/apps?owner=nobody", &json!(null)).await.0, 404);
}

#[tokio::test]
async fn a_wrong_application_is_answered_with_the_fields_and_never_with_a_secret() {
    let world = World::new().await;
    let browser = script(&world).await;
    let body =
        json!({ "owner": "net", "url": "https://ann:hunter2@github.com/acme/infra", "branch": "", "dir": "../x" });
    let (status, refused) = call(&browser, "POST", "/api/apps", &body).await;
    assert_eq!((status, &refused["field"]), (422, &json!("url")));
    let said = refused.to_string();
    assert!(!said.contains("hunter2") && said.contains("“dir”") && said.contains("“branch”"), "{said}");
    assert_eq!(call(&browser, "POST", "/api/apps", &wish("nobody", "https://github.com/a/b", ".")).await.0, 404);
    assert_eq!(call(&browser, "POST", "/api/apps", &wish("a b", "https://github.com/a/b", ".")).await.0, 422);
    assert_eq!(call(&browser, "GET", "/api/apps/x", &json!(null)).await.0, 404);
    assert_eq!(world.store.claim_list(None, None, 9).await.unwrap(), []);
}

#[tokio::test]
async fn only_a_script_with_the_password_and_the_right_may_change_something() {
    let mut world = World::new().await;
    let browser = script(&world).await;
    let (_, app) = call(&browser, "POST", "/api/apps", &wish("net", "https://github.com/acme/infra", ".")).await;
    let app = format!("/api/apps/{}", app["id"].as_str().unwrap());
    world.web_rules = WebRules::new(&["discard"]).unwrap();
    let before = world.store.lock_event_list(99).await.unwrap();
    for (browser, why) in [
        (world.browser().await.without_cookie(), "web basic authentication"),
        (world.browser_of_user().await, "This address is for scripts"),
        (world.browser_of_user().await.without_cookie(), "may not change owners, applications and credentials"),
    ] {
        for (method, path) in [
            ("POST", "/api/owners"),
            ("DELETE", "/api/owners/dns"),
            ("POST", "/api/apps"),
            ("POST", app.as_str()),
            ("DELETE", app.as_str()),
        ] {
            let (status, refused) = call(&browser, method, path, &json!({})).await;
            assert_eq!(status, StatusCode::FORBIDDEN.as_u16(), "{method} {path}: {refused}");
            assert!(refused["error"].as_str().unwrap().contains(why), "{method} {path}: {refused}");
        }
    }
    assert_eq!(world.store.lock_event_list(99).await.unwrap(), before);
}
