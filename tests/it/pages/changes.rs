//! Tests that only our own forms change something, and only on our own pages.

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::StatusCode;
use lockkeeper::kit::web::HandOverLocks;
use lockkeeper::locks::{HandOver, HandOverOutcome};

use super::fixture::{Browser, OPS, World, form, project, pull};
use crate::support::db::stopped;

#[tokio::test]
async fn all_applies_are_stopped_with_a_reason_and_allowed_again() {
    let world = World::new().await;
    let browser = world.browser().await;
    let answer = browser
        .post(
            "/apply-lock/stop",
            "reason=+%3Cb%3Edatabase+on+fire%3C%2Fb%3E+",
        )
        .await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (StatusCode::SEE_OTHER, "/?notice=stopped")
    );
    let lock = stopped(&world.store).await.unwrap();
    assert_eq!(
        (lock.holder.login.as_str(), lock.reason.as_str()),
        ("ops", "<b>database on fire</b>")
    );

    world.wait(600);
    let page = browser.get(answer.header("location")).await;
    let text = page.text();
    assert!(
        text.contains("All applies are stopped. Running applies continue to their end."),
        "{text}"
    );
    assert!(page.body.contains("&lt;b&gt;database on fire&lt;/b&gt;"));
    assert!(
        page.body
            .contains("by ops, <time datetime=\"2026-03-04T05:06:07Z\" title=\"2026-03-04 05:06:07 UTC\">10 min ago")
    );

    let again = browser.post("/apply-lock/stop", "reason=mine").await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    let text = again.text();
    let said = "ops has stopped these applies since 2026-03-04 05:06 UTC: &lt;b&gt;database on fire&lt;/b&gt;. That lock was not changed";
    assert!(text.contains(said), "{text}");
    assert!(again.body.contains("value=\"mine\""));
    assert_eq!(
        stopped(&world.store).await.unwrap().reason,
        "<b>database on fire</b>"
    );

    let answer = browser.post("/apply-lock/allow", "").await;
    assert_eq!(answer.header("location"), "/?notice=allowed");
    assert_eq!(stopped(&world.store).await, None);
    let answer = browser.post("/apply-lock/allow", "").await;
    assert_eq!(answer.header("location"), "/?notice=already-allowed");
}

#[tokio::test]
async fn applies_are_not_stopped_without_a_reason_and_the_reason_is_not_endless() {
    let world = World::new().await;
    let browser = world.browser().await;
    for fields in ["", "reason=", "reason=+%09"] {
        let answer = browser.post("/apply-lock/stop", fields).await;
        assert_eq!(
            answer.status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{fields:?}"
        );
    }
    assert_eq!(stopped(&world.store).await, None);
    let answer = browser
        .post(
            "/apply-lock/stop",
            &format!("reason={}", "x".repeat(20_000)),
        )
        .await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(answer.text().contains("Nothing was changed."));
    let long = "x".repeat(400);
    let answer = browser
        .post("/apply-lock/stop", &format!("reason={long}"))
        .await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        answer
            .text()
            .contains("The reason has 400 characters, and the maximum is 300"),
        "{}",
        answer.text()
    );
    assert!(
        answer.body.contains(&format!("value=\"{long}\"")),
        "what was typed is kept"
    );
    assert_eq!(stopped(&world.store).await, None);
}

/// Addresses of all changes by forms.
const CHANGES: [&str; 7] = [
    "/apply-locks",
    "/apply-locks/00000000-0000-7000-8000-000000000001/end",
    "/apply-lock/stop",
    "/apply-lock/allow",
    "/locks/00000000-0000-7000-8000-000000000001",
    "/jobs/00000000-0000-7000-8000-000000000001/cancel",
    "/apps/00000000-0000-7000-8000-000000000001/cancel",
];

async fn refused(browser: &Browser, request: axum::http::request::Builder, fields: &str) {
    let answer = browser.send(form(request, fields)).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN, "{fields}");
    assert!(answer.text().contains("Nothing was changed."));
}

#[tokio::test]
async fn a_form_without_the_right_token_changes_nothing() {
    let mut world = World::new().await;
    world.web_accounts = "user=kim owners=net allow=all password=kims-password-of-kim\n";
    let lock = world
        .lock(
            &pull("github.com/acme/infra", 1),
            &project(".", "default", None),
            "alice",
            "planned",
        )
        .await;
    let browser = world.browser().await;
    let token = browser.token().await;
    let stranger = world.browser().await.without_cookie();
    let of_kim = world
        .browser_of("kim", "kims-password-of-kim")
        .await
        .token()
        .await;
    for path in CHANGES {
        let ours = |browser: &Browser| {
            browser
                .request("POST", path)
                .header("sec-fetch-site", "same-origin")
        };
        refused(&browser, ours(&browser), "reason=x").await;
        refused(
            &browser,
            ours(&browser),
            &format!("reason=x&token={}", "0".repeat(64)),
        )
        .await;
        refused(&browser, ours(&browser), "reason=x&token=").await;
        // The token was made for another browser, or for another user.
        refused(
            &stranger,
            ours(&stranger),
            &format!("reason=x&token={token}"),
        )
        .await;
        refused(
            &browser,
            ours(&browser),
            &format!("reason=x&token={of_kim}"),
        )
        .await;
    }
    assert_eq!(stopped(&world.store).await, None);
    assert_eq!(world.store.lock_get(lock.id).await.unwrap(), Some(lock));
}

#[tokio::test]
async fn a_form_from_another_site_changes_nothing_even_with_the_right_token() {
    let world = World::new().await;
    let browser = world.browser().await;
    let fields = format!("reason=x&token={}", browser.token().await);
    for path in CHANGES {
        let post = || browser.request("POST", path);
        refused(
            &browser,
            post().header("sec-fetch-site", "cross-site"),
            &fields,
        )
        .await;
        refused(
            &browser,
            post().header("sec-fetch-site", "same-site"),
            &fields,
        )
        .await;
        refused(
            &browser,
            post().header("origin", "https://evil.example"),
            &fields,
        )
        .await;
        refused(&browser, post().header("origin", "null"), &fields).await;
        refused(&browser, post(), &fields).await;
    }
    assert_eq!(stopped(&world.store).await, None);
}

#[tokio::test]
async fn a_browser_that_tells_only_the_origin_may_use_forms_over_plain_http() {
    let world = World::new().await;
    let browser = world.browser_with(Some(OPS), "http://localhost:4141").await;
    let token = browser.token().await;
    let request = browser
        .request("POST", "/apply-lock/stop")
        .header("origin", "http://localhost:4141");
    let answer = browser
        .send(form(request, &format!("reason=x&token={token}")))
        .await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_new_browser_gets_a_cookie_that_scripts_and_other_sites_cannot_use() {
    let world = World::new().await;
    let page = world.browser().await.without_cookie().get("/").await;
    let cookie = page.header("set-cookie");
    let attributes = regex::Regex::new(
        "^__Host-lockkeeper=[0-9a-f]{64}; Path=/; HttpOnly; SameSite=Strict; Secure$",
    )
    .unwrap();
    assert!(attributes.is_match(cookie), "{cookie}");
    assert_eq!(
        world.browser().await.get("/").await.header("set-cookie"),
        ""
    );
    let plain = world
        .browser_with(Some(OPS), "http://localhost:4141")
        .await
        .without_cookie()
        .get("/")
        .await;
    assert!(plain.header("set-cookie").starts_with("lockkeeper="));
    assert!(!plain.header("set-cookie").contains("Secure"));
}

#[tokio::test]
async fn a_lock_is_released_and_the_page_says_so() {
    let world = World::new().await;
    let lock = world
        .lock(
            &pull("github.com/acme/infra", 1),
            &project(".", "default", None),
            "alice",
            "planned",
        )
        .await;
    let browser = world.browser().await;
    let path = format!("/locks/{}", lock.id);
    let answer = browser.post(&path, "").await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (StatusCode::SEE_OTHER, "/?notice=released")
    );
    assert_eq!(world.store.lock_list().await.unwrap(), []);
    let text = browser.get("/?notice=released").await.text();
    assert!(
        text.starts_with("Dashboard\nThe lock was released, and its plans were discarded."),
        "{text}"
    );
    let again = browser.post(&path, "").await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    assert!(again.text().contains("Most likely it was released"));
}

#[tokio::test]
async fn a_lock_is_not_given_back_by_its_classic_name() {
    let world = World::new().await;
    let lock = world
        .lock(
            &pull("github.com/acme/infra", 1),
            &project(".", "default", None),
            "alice",
            "planned",
        )
        .await;
    let answer = world
        .browser()
        .await
        .post(&format!("/locks/{}", lock.key), "")
        .await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(world.store.lock_list().await.unwrap(), [lock]);
}

struct Panics;

#[async_trait]
impl HandOverLocks for Panics {
    async fn hand_over(&self, _: &HandOver) -> Result<HandOverOutcome, sqlx::Error> {
        panic!("the secret is hunter2");
    }
}

struct Fails;

#[async_trait]
impl HandOverLocks for Fails {
    async fn hand_over(&self, _: &HandOver) -> Result<HandOverOutcome, sqlx::Error> {
        Err(sqlx::Error::Protocol("the secret is hunter2".to_owned()))
    }
}

#[tokio::test]
async fn a_panic_or_a_broken_database_is_a_page_with_a_reference_and_nothing_else() {
    let world = World::new().await;
    let lock = world
        .lock(
            &pull("github.com/acme/infra", 1),
            &project(".", "default", None),
            "alice",
            "planned",
        )
        .await;
    let cases: [(Arc<dyn HandOverLocks>, StatusCode, &str); 2] = [
        (
            Arc::new(Panics),
            StatusCode::INTERNAL_SERVER_ERROR,
            "Internal error",
        ),
        (
            Arc::new(Fails),
            StatusCode::SERVICE_UNAVAILABLE,
            "The database does not answer",
        ),
    ];
    for (giving, status, title) in cases {
        let browser = world
            .browser_and(Some(OPS), "https://locks.example", giving)
            .await;
        let answer = browser.post(&format!("/locks/{}", lock.id), "").await;
        assert_eq!(answer.status, status);
        let text = answer.text();
        assert!(
            text.contains(title) && text.contains("Reference\n0000000000007000"),
            "{text}"
        );
        assert!(!answer.body.contains("hunter2"));
        assert!(
            answer
                .header("content-security-policy")
                .starts_with("default-src 'none'")
        );
    }
}
