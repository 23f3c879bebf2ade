//! Tests of authentication, and of the headers of every answer.

use axum::body::Body;
use axum::http::{StatusCode, header};
use lockkeeper::model::{Actor, CommandKind, RunKind};

use super::fixture::{World, basic, project, pull};

/// Returns every guarded kind of address, and some addresses that do not exist.
async fn addresses(world: &World) -> Vec<(&'static str, String)> {
    let infra = pull("github.com/acme/infra", 1);
    let lock = world
        .lock(&infra, &project(".", "default", None), "alice", "planned")
        .await;
    let command = world
        .command(CommandKind::Plan, &infra, Actor::commenter("alice"))
        .await;
    let run = world
        .run(
            command,
            RunKind::Plan,
            &infra,
            &project(".", "default", None),
        )
        .await;
    let page = world.browser().await.get("/").await.body;
    let style = page
        .split_once("rel=\"stylesheet\" href=\"")
        .unwrap()
        .1
        .split_once('"')
        .unwrap()
        .0
        .to_owned();
    vec![
        ("GET", "/".to_owned()),
        ("GET", "/index.html".to_owned()),
        ("GET", "/locks".to_owned()),
        ("GET", format!("/locks/{}", lock.id)),
        ("POST", format!("/locks/{}", lock.id)),
        ("DELETE", format!("/locks?id={}", lock.id)),
        ("GET", format!("/lock?id={}", lock.id)),
        ("GET", "/apply-locks".to_owned()),
        ("POST", "/apply-locks".to_owned()),
        ("POST", format!("/apply-locks/{}/end", lock.id)),
        ("POST", "/operations/leases/release".to_owned()),
        ("DELETE", "/api/leases/reconciler:disk".to_owned()),
        ("POST", "/apply-lock/stop".to_owned()),
        ("POST", "/apply-lock/allow".to_owned()),
        ("POST", "/apply/lock".to_owned()),
        ("DELETE", "/apply/unlock".to_owned()),
        ("GET", format!("/jobs/{run}")),
        ("GET", format!("/jobs/{run}/output.txt")),
        ("GET", format!("/jobs/{run}/events")),
        ("GET", "/api/locks".to_owned()),
        ("GET", "/api/apply-locks".to_owned()),
        ("POST", "/api/apply-locks".to_owned()),
        ("DELETE", format!("/api/apply-locks/{}", lock.id)),
        ("GET", "/repos".to_owned()),
        ("GET", "/repos/github.com/acme/infra".to_owned()),
        ("POST", "/repos/github.com/acme/infra".to_owned()),
        ("GET", "/api/repos".to_owned()),
        ("POST", "/api/repos/github.com/acme/infra/sync".to_owned()),
        ("GET", "/api/leases".to_owned()),
        ("GET", "/operations".to_owned()),
        ("GET", "/api/operations".to_owned()),
        ("GET", "/api/owners".to_owned()),
        ("POST", "/api/owners".to_owned()),
        ("DELETE", "/api/owners/net".to_owned()),
        ("GET", "/api/claims".to_owned()),
        ("GET", "/audit".to_owned()),
        ("GET", "/api/audit".to_owned()),
        ("GET", "/api/apps".to_owned()),
        ("POST", "/api/apps".to_owned()),
        ("GET", "/api/apps/1".to_owned()),
        ("POST", "/api/apps/1/plan".to_owned()),
        ("GET", "/apps/1".to_owned()),
        ("POST", "/apps/1/apply".to_owned()),
        ("GET", "/metrics".to_owned()),
        ("GET", style),
        ("GET", "/nowhere".to_owned()),
        ("GET", "//healthz".to_owned()),
        ("GET", "/healthz/".to_owned()),
        ("PUT", "/".to_owned()),
    ]
}

#[tokio::test]
async fn nothing_but_health_is_served_without_the_password() {
    let world = World::new().await;
    let addresses = addresses(&world).await;
    let mut browser = world.browser().await.without_password();
    for wrong in [
        None,
        Some(basic("ops", "wrong")),
        Some(basic("", "")),
        Some("Basic x".to_owned()),
    ] {
        for (method, path) in &addresses {
            let mut request = browser.request(method, path);
            if let Some(wrong) = &wrong {
                request = request.header(header::AUTHORIZATION, wrong);
            }
            let answer = browser.send(request.body(Body::empty()).unwrap()).await;
            assert_eq!(
                answer.status,
                StatusCode::UNAUTHORIZED,
                "{method} {path} {wrong:?}"
            );
            assert_eq!(
                answer.header("www-authenticate"),
                "Basic realm=\"Lockkeeper\", charset=\"UTF-8\""
            );
            assert!(
                !answer.body.contains("1.2.3") && !answer.body.contains("alice"),
                "{}",
                answer.body
            );
        }
        browser = browser.without_password();
    }
    for path in ["/healthz", "/readyz", "/status"] {
        assert_eq!(browser.get(path).await.status, StatusCode::OK, "{path}");
    }
    assert_eq!(world.store.lock_list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_page_about_the_password_does_not_tell_the_version() {
    let answer = World::new()
        .await
        .browser()
        .await
        .without_password()
        .get("/")
        .await;
    assert!(
        answer
            .body
            .contains("This server requires a user name and a password.")
    );
    assert!(!answer.body.contains("1.2.3"));
}

#[tokio::test]
async fn the_web_user_gets_in() {
    let world = World::new().await;
    let browser = world.browser().await;
    for path in ["/", "/api/locks", "/status"] {
        assert_eq!(browser.get(path).await.status, StatusCode::OK, "{path}");
    }
    assert_eq!(browser.get("/nowhere").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn every_answer_carries_the_headers_that_protect_it() {
    let world = World::new().await;
    let mut addresses = addresses(&world).await;
    addresses.retain(|(_, path)| !path.ends_with("/events"));
    addresses.extend([
        ("GET", "/healthz".to_owned()),
        ("GET", "/readyz".to_owned()),
        ("GET", "/status".to_owned()),
    ]);
    for browser in [
        world.browser().await,
        world.browser().await.without_password(),
    ] {
        for (method, path) in &addresses {
            let answer = browser
                .send(browser.request(method, path).body(Body::empty()).unwrap())
                .await;
            assert_eq!(
                answer.header("content-security-policy"),
                "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                 form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
                "{method} {path}"
            );
            assert_eq!(answer.header("x-content-type-options"), "nosniff");
            assert_eq!(answer.header("x-frame-options"), "DENY");
            assert_eq!(answer.header("referrer-policy"), "same-origin");
            let is_static = path.starts_with("/static/") && answer.status == StatusCode::OK;
            let cache = if is_static {
                "public, max-age=31536000, immutable"
            } else {
                "no-store"
            };
            assert_eq!(answer.header("cache-control"), cache, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn static_files_are_found_by_their_digest_and_not_kept_under_another() {
    let browser = World::new().await.browser().await;
    let page = browser.get("/").await.body;
    let pattern = regex::Regex::new("/static/[0-9a-f]{16}/(logo.svg|style.css)").unwrap();
    let links: Vec<&str> = pattern.find_iter(&page).map(|link| link.as_str()).collect();
    assert!(links.len() >= 3, "{links:?}");
    for link in links {
        let kind = if link.ends_with("css") {
            "text/css; charset=utf-8"
        } else {
            "image/svg+xml"
        };
        assert_eq!(browser.get(link).await.header("content-type"), kind);
    }
    let old = browser.get("/static/0123456789abcdef/style.css").await;
    assert_eq!(
        (old.status, old.header("cache-control")),
        (StatusCode::OK, "no-store")
    );
    for path in [
        "/static/0/nowhere.css",
        "/static/0/..%2Fhome.html",
        "/static/0/%2e%2e",
        "/static/0/",
    ] {
        assert_eq!(
            browser.get(path).await.status,
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
}

#[tokio::test]
async fn browsers_get_errors_as_pages_and_programs_as_json() {
    let browser = World::new().await.browser().await;
    let page = browser.get("/nowhere").await;
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.text().contains("There is no page at this address."));
    let json = browser
        .send(
            browser
                .request("GET", "/nowhere")
                .body(Body::empty())
                .unwrap(),
        )
        .await;
    assert_eq!(json.status, StatusCode::NOT_FOUND);
    insta::assert_snapshot!(
        json.body,
        @r#"{"status":404,"title":"Not Found","detail":"There is no page at this address.","error":"There is no page at this address.","reference":"00000000000070008000000000000002"}"#
    );
    let api = browser.get("/api/nowhere").await;
    assert_eq!(api.header("content-type"), "application/problem+json");
    let method = browser
        .send(
            browser
                .request("PATCH", "/api/locks")
                .body(Body::empty())
                .unwrap(),
        )
        .await;
    assert_eq!(method.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(method.body.contains("does not support that request method"));
}

#[tokio::test]
async fn a_page_of_an_error_is_complete() {
    let page = World::new().await.browser().await.get("/nowhere").await;
    super::home::settings().bind(|| insta::assert_snapshot!("error page", page.body));
}
