//! Tests of the permissions of the pages and the API: `--web-allow`.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use lockkeeper::config::access::WebRules;
use lockkeeper::config::server::TrustedProxies;
use lockkeeper::model::{Actor, CommandKind, Lock, RunKind};

use super::fixture::{Answer, Browser, World, form, project, pull};
use crate::support::db::stopped;

/// Creates a server with these rules and a lock, a browser, and the token of its forms.
async fn world(rules: &[&str]) -> (World, Lock, Browser, String) {
    let mut world = World::new().await;
    let lock = world
        .lock(
            &pull("github.com/acme/infra", 1),
            &project(".", "default", None),
            "alice",
            "planned",
        )
        .await;
    // The token does not depend on the rules, but a page without forms does not show it.
    let token = world.browser().await.token().await;
    world.web_rules = WebRules::new(rules).unwrap();
    let browser = world.browser().await;
    (world, lock, browser, token)
}

async fn press(browser: &Browser, path: &str, token: &str) -> Answer {
    let request = browser
        .request("POST", path)
        .header("sec-fetch-site", "same-origin");
    browser
        .send(form(request, &format!("token={token}&reason=x")))
        .await
}

#[tokio::test]
async fn who_may_release_need_not_be_able_to_stop_all_applies() {
    let (world, lock, browser, token) = world(&["discard"]).await;
    let page = browser.get("/").await;
    assert!(!page.body.contains("Stop all applies"), "{}", page.body);
    assert!(
        page.text()
            .contains("These pages cannot stop applies (\n--web-allow\n)."),
        "{}",
        page.text()
    );
    for path in ["/apply-lock/stop", "/apply-lock/allow"] {
        let answer = press(&browser, path, &token).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        insta::allow_duplicates! {
            let text = answer.text();
            insta::assert_snapshot!(text.lines().nth(2).unwrap(), @"“ops” may not stop applies or allow them again: the pages and the API of this server are limited by “--web-allow=discard”, and “apply_lock” is not allowed. An administrator can add “apply_lock” to the list. Nothing was changed.");
        }
    }
    assert_eq!(stopped(&world.store).await, None);
    let page = browser.get(&format!("/locks/{}", lock.id)).await;
    assert!(page.body.contains("Yes, release"));
    assert_eq!(
        press(&browser, &format!("/locks/{}", lock.id), &token)
            .await
            .status,
        StatusCode::SEE_OTHER
    );
    assert_eq!(world.store.lock_list().await.unwrap(), []);
}

#[tokio::test]
async fn who_may_cancel_need_not_be_able_to_cut_off_an_apply() {
    let (world, _, browser, token) = world(&["cancel"]).await;
    let (pull, project) = (
        pull("github.com/acme/infra", 1),
        project(".", "default", None),
    );
    for (kind, run_kind, offered) in [
        (CommandKind::Plan, RunKind::Plan, true),
        (CommandKind::Apply, RunKind::Apply, false),
    ] {
        let command = world.command(kind, &pull, Actor::commenter("alice")).await;
        assert!(world.store.command_start(command, None, &[]).await.unwrap());
        let run = world.run(command, run_kind, &pull, &project).await;
        let path = format!("/jobs/{run}");
        assert_eq!(
            browser.get(&path).await.body.contains("/cancel\""),
            offered,
            "{kind}"
        );
        let request = browser
            .request("POST", &format!("{path}/cancel"))
            .header("sec-fetch-site", "same-origin");
        let answer = browser
            .send(form(request, &format!("token={token}&force=yes")))
            .await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{kind}");
        assert_eq!(
            world
                .store
                .command_get(command)
                .await
                .unwrap()
                .unwrap()
                .stop,
            None,
            "{kind}"
        );
        let answer = press(&browser, &format!("{path}/cancel"), &token).await;
        assert_eq!(
            answer.status,
            if offered {
                StatusCode::SEE_OTHER
            } else {
                StatusCode::CONFLICT
            },
            "{kind}"
        );
    }
}

#[tokio::test]
async fn pages_that_are_only_for_looking_change_nothing() {
    let (world, lock, browser, token) = world(&["none"]).await;
    let path = format!("/locks/{}", lock.id);
    let page = browser.get(&path).await;
    assert!(!page.body.contains("<form method=\"post\""));
    assert!(
        page.text().contains("These pages cannot release locks"),
        "{}",
        page.text()
    );
    let answer = press(&browser, &path, &token).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    insta::assert_snapshot!(answer.text(), @"
    403
    Not allowed
    “ops” may not release locks and discard their plans: the pages and the API of this server are limited by “--web-allow=none”, and “discard” is not allowed. An administrator can add “discard” to the list. Nothing was changed.
    To the dashboard
    Reference
    00000000000070008000000000000002
    ");
    assert_eq!(world.store.lock_list().await.unwrap(), [lock]);
}

#[tokio::test]
async fn who_may_release_need_not_be_able_to_use_force_or_hand_over() {
    let (world, lock, browser, token) = world(&["discard"]).await;
    world
        .waiting(&pull("github.com/acme/infra", 2), &lock.project, "bob")
        .await;
    let path = format!("/locks/{}", lock.id);
    let page = browser.get(&path).await.text();
    assert!(
        page.contains("These pages cannot hand locks over"),
        "{page}"
    );
    for fields in ["force=yes", "to=2"] {
        let request = browser
            .request("POST", &path)
            .header("sec-fetch-site", "same-origin");
        let answer = browser
            .send(form(request, &format!("token={token}&reason=x&{fields}")))
            .await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{fields}");
        let may_not = "“ops” may not take locks from pull requests by force or hand them over: the pages and the API of this server are limited by “--web-allow=discard”";
        assert!(answer.text().contains(may_not), "{}", answer.text());
    }
    assert_eq!(world.store.lock_list().await.unwrap(), [lock]);
    assert_eq!(
        *world.denials.lock().unwrap(),
        ["unlock_any from None", "unlock_any from None"]
    );
}

#[tokio::test]
async fn scripts_may_do_no_more_than_the_pages() {
    let (world, lock, browser, _) = world(&["discard"]).await;
    let browser = browser.without_cookie();
    let discard = format!("/locks?id={}", lock.id);
    for (method, path) in [
        ("POST", "/apply/lock"),
        ("DELETE", "/apply/unlock"),
        ("DELETE", discard.as_str()),
    ] {
        let answer = browser
            .send(browser.request(method, path).body(Body::empty()).unwrap())
            .await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path}");
        assert!(
            answer.body.contains("are limited by “--web-allow=discard”"),
            "{}",
            answer.body
        );
    }
    let path = format!("/api/locks/{}/release", lock.id);
    let forced = Body::from(r#"{"force": true, "reason": "outage"}"#);
    let answer = browser
        .send(browser.request("POST", &path).body(forced).unwrap())
        .await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(stopped(&world.store).await, None);
    assert_eq!(world.store.lock_list().await.unwrap(), [lock]);
    let answer = browser
        .send(browser.request("POST", &path).body(Body::empty()).unwrap())
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
}

#[tokio::test]
async fn the_address_of_whoever_asks_is_put_on_record() {
    let (mut world, lock, _, _) = world(&["discard"]).await;
    world.trusted_proxies = TrustedProxies::new(&["10.0.0.0/8"]).unwrap();
    let browser = world.browser().await.without_cookie();
    let path = format!("/api/locks/{}/release", lock.id);
    let ask = async |peer: &str, body: &'static str| {
        let peer: SocketAddr = peer.parse().unwrap();
        let request = browser.request("POST", &path).extension(ConnectInfo(peer));
        let request = request.header("x-forwarded-for", "127.0.0.1, 203.0.113.5");
        browser
            .send(request.body(Body::from(body)).unwrap())
            .await
            .status
    };
    let forced = r#"{"force": true, "reason": "outage"}"#;
    assert_eq!(ask("192.0.2.1:4711", forced).await, StatusCode::FORBIDDEN);
    assert_eq!(ask("10.1.1.1:4711", forced).await, StatusCode::FORBIDDEN);
    let denials = world.denials.lock().unwrap().clone();
    assert_eq!(
        denials,
        [
            "unlock_any from Some(\"192.0.2.1\")",
            "unlock_any from Some(\"203.0.113.5\")"
        ]
    );
    assert_eq!(ask("10.1.1.1:4711", "").await, StatusCode::OK);
    let cause = world
        .store
        .lock_event_list(1)
        .await
        .unwrap()
        .remove(0)
        .event
        .cause;
    assert_eq!(
        (cause.remote.as_deref(), cause.actor.login.as_str()),
        (Some("203.0.113.5"), "ops")
    );
}
