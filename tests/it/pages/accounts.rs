//! Tests changes of the accounts file while the server runs.

use axum::body::Body;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use lockkeeper::claims::{application_add, application_remove};
use lockkeeper::context::FileCheck;
use lockkeeper::features::accounts::{AllUsers, NewAccount};
use lockkeeper::model::{
    Actor, ApplicationFields, ApplyScope, Cause, CommandKind, ForgeHosts, Origin, Rights, RunKind,
};
use lockkeeper_accounts::external_ids::{ExternalIdKey, HashedPassword};
use serde_json::Value;

use super::fixture::{Browser, World, project, pull};
use crate::support::accounts::by_ops;
use crate::support::db::by;

const KIM: &str = "user=kim owners=net allow=all password=kims-password-of-kim\n";
const LEE: &str = "user=lee owners=dns allow=all password=lees-password-of-lee\n";

async fn world() -> World {
    let mut world = World::new().await;
    world.web_accounts = KIM;
    for name in ["net", "dns"] {
        let owner = name.parse().unwrap();
        let _new = world.store.owner_create(&owner, by()).await.unwrap();
        let url = format!("https://github.com/acme/{name}");
        let fields = ApplicationFields {
            url: Some(&url),
            branch: Some("main"),
            ..Default::default()
        };
        let spec = fields.spec(&ForgeHosts::public()).unwrap();
        application_add(&world.store, &owner, &spec, (Rights::Whole, by()))
            .await
            .unwrap()
            .or_why()
            .unwrap();
    }
    world
}

fn now() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH
}

async fn asked(browser: &Browser, user: &str, password: &str) -> StatusCode {
    browser
        .signed_in(user, password)
        .get("/owners/net")
        .await
        .status
}

#[tokio::test]
async fn the_next_request_is_checked_by_what_the_file_says_now() {
    let world = world().await;
    let kim = world.browser_of("kim", "kims-password-of-kim").await;
    assert_eq!(
        asked(&kim, "kim", "kims-password-of-kim").await,
        StatusCode::OK
    );
    assert_eq!(
        asked(&kim, "lee", "lees-password-of-lee").await,
        StatusCode::UNAUTHORIZED
    );
    let other = KIM.replace("owners=net", "owners=dns");
    assert_eq!(
        kim.accounts.offer(Ok(&other), now()),
        FileCheck::Taken(vec![])
    );
    assert_eq!(
        asked(&kim, "kim", "kims-password-of-kim").await,
        StatusCode::FORBIDDEN
    );
    let renewed = KIM.replace("kims-password-of-kim", "another-password-of-kim");
    assert_eq!(
        kim.accounts.offer(Ok(&renewed), now()),
        FileCheck::Taken(vec![])
    );
    assert_eq!(
        asked(&kim, "kim", "kims-password-of-kim").await,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        asked(&kim, "kim", "another-password-of-kim").await,
        StatusCode::OK
    );
}

#[tokio::test]
async fn whoever_is_taken_out_is_out_whatever_the_browser_still_has() {
    let world = world().await;
    let kim = world.browser_of("kim", "kims-password-of-kim").await;
    let token = kim.token().await;
    for text in [LEE, "# nobody is left\n"] {
        assert_eq!(
            kim.accounts.offer(Ok(text), now()),
            FileCheck::Taken(vec![])
        );
        assert_eq!(
            kim.get("/").await.status,
            StatusCode::UNAUTHORIZED,
            "{text}"
        );
        let form = kim
            .request("POST", "/owners/net/apps")
            .header("sec-fetch-site", "same-origin");
        let answer = kim
            .send(super::fixture::form(form, &format!("token={token}&url=x")))
            .await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{text}");
    }
    let ops = kim.signed_in("ops", "correct horse battery ü");
    assert_eq!(
        ops.get("/operations").await.status,
        StatusCode::OK,
        "the whole server is not in the file"
    );
}

#[tokio::test]
async fn a_stream_ends_with_the_account_that_opened_it() {
    let world = world().await;
    let (at, project) = (
        pull("github.com/acme/net", 7),
        project("net", "default", None),
    );
    let command = world
        .command(CommandKind::Plan, &at, Actor::commenter("ada"))
        .await;
    let kim = world.browser_of("kim", "kims-password-of-kim").await;
    for other in [
        LEE.to_owned(),
        KIM.replace("=net", "=dns"),
        KIM.replace("kims", "another"),
    ] {
        let run = world.run(command, RunKind::Plan, &at, &project).await;
        drop(kim.accounts.offer(Ok(KIM), now()));
        let request = kim
            .request("GET", &format!("/jobs/{run}/events"))
            .body(Body::empty())
            .unwrap();
        let response = kim.respond(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        let mut stream = response.into_body().into_data_stream();
        world.print(run, 1, "before\n").await;
        let seen = stream.next().await.unwrap().unwrap();
        assert!(
            String::from_utf8_lossy(&seen).contains("before"),
            "{seen:?}"
        );
        assert_eq!(
            kim.accounts.offer(Ok(&other), now()),
            FileCheck::Taken(vec![])
        );
        world.print(run, 2, "after\n").await;
        world.hub.announce(run);
        assert!(
            stream.next().await.is_none(),
            "nothing is told that was printed after the change: {other}"
        );
    }
}

#[tokio::test]
async fn a_stream_ends_when_the_repository_goes_to_another_owner() {
    let world = world().await;
    let (at, project) = (
        pull("github.com/acme/net", 7),
        project("net", "default", None),
    );
    let command = world
        .command(CommandKind::Plan, &at, Actor::commenter("ada"))
        .await;
    let run = world.run(command, RunKind::Plan, &at, &project).await;
    let kim = world.browser_of("kim", "kims-password-of-kim").await;
    let request = kim
        .request("GET", &format!("/jobs/{run}/events"))
        .body(Body::empty())
        .unwrap();
    let mut stream = kim.respond(request).await.into_body().into_data_stream();
    world.print(run, 1, "before\n").await;
    let seen = stream.next().await.unwrap().unwrap();
    assert!(
        String::from_utf8_lossy(&seen).contains("before"),
        "{seen:?}"
    );
    let net = world
        .store
        .owner_get(&"net".parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    let application = world
        .store
        .application_list(Some(net.id), None, 1)
        .await
        .unwrap()
        .remove(0);
    let _gone = application_remove(&world.store, application.id, by())
        .await
        .unwrap();
    let dns = "dns".parse().unwrap();
    application_add(&world.store, &dns, &application.spec, (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap();
    world.print(run, 2, "after\n").await;
    world.hub.announce(run);
    assert!(
        stream.next().await.is_none(),
        "what is printed now is for the other owner"
    );
}

#[tokio::test]
async fn the_page_of_operators_says_what_holds_and_what_is_refused() {
    let world = world().await;
    let ops = world.browser().await;
    let text = ops.get("/operations").await.text();
    assert!(text.contains("No problems found."), "{text}");
    assert!(
        text.contains("/etc/lockkeeper/accounts\nas of\njust now\n; accounts in it: 1."),
        "{text}"
    );
    let broken = format!("{KIM}user=lee owners=dns allow=all password=hunter2\n");
    let FileCheck::Refused(error) = ops.accounts.offer(Ok(&broken), world.clock_now()) else {
        panic!("it is too short")
    };
    let answer = ops.get("/operations").await;
    let text = answer.text();
    assert!(
        text.contains(
            "The file of --web-accounts-file is invalid; its previous content stays in effect."
        ),
        "{text}"
    );
    assert!(
        text.contains(&error)
            && error.contains("/etc/lockkeeper/accounts")
            && error.contains("line 2: "),
        "{text}"
    );
    let json = ops.get("/api/operations").await.body;
    for secret in ["hunter2\n", "password=hunter2", "kims-password"] {
        assert!(
            !answer.body.contains(secret) && !json.contains(secret),
            "{secret}"
        );
    }
    let json: Value = serde_json::from_str(&json).unwrap();
    let accounts = &json["web_accounts"];
    assert_eq!(
        (&accounts["file"], &accounts["accounts"]),
        (&"/etc/lockkeeper/accounts".into(), &1.into())
    );
    assert_eq!(
        (
            accounts["refused"]["error"].as_str(),
            accounts.get("sha256")
        ),
        (Some(error.as_str()), None)
    );
    assert_eq!(
        asked(&ops, "kim", "kims-password-of-kim").await,
        StatusCode::OK,
        "the old one is in force"
    );
    assert_eq!(
        asked(&ops, "lee", "hunter2").await,
        StatusCode::UNAUTHORIZED
    );
}

const PASSWORD: &str = "kims-password-in-git";

#[tokio::test]
async fn an_account_signs_in_with_its_own_password_and_has_the_rights_of_its_line() {
    let mut world = world().await;
    let users = AllUsers::new(world.store.clone(), "locks.example");
    let hashed = HashedPassword::new(PASSWORD, 4, [7; 16]).unwrap();
    let account = |username: &str| NewAccount {
        username: Some(ExternalIdKey::username(username).unwrap()),
        password: Some(hashed.to_stored()),
        ..NewAccount::default()
    };
    let kim = users
        .create(&by_ops(), &account("kim-at-work"))
        .await
        .unwrap();
    // Somebody else chose the user name of another line.
    for name in ["kim", "lee"] {
        let taken = HashedPassword::new("a-password-of-eve", 4, [8; 16]).unwrap();
        let eve = NewAccount {
            password: Some(taken.to_stored()),
            ..account(name)
        };
        users.create(&by_ops(), &eve).await.unwrap();
    }
    world.web_accounts = "user=kim owners=net allow=all account=1000000\n\
                          user=lee owners=dns allow=all password=lees-password-of-lee\n";
    let browser = world.browser_of("kim", PASSWORD).await;
    assert_eq!(asked(&browser, "kim", PASSWORD).await, StatusCode::OK);
    let outside = browser.get("/owners/dns").await;
    assert_eq!(outside.status, StatusCode::FORBIDDEN);
    for (user, password) in [
        ("kim", "a-password-of-eve"),
        ("lee", "a-password-of-eve"),
        ("kim-at-work", PASSWORD),
        ("lee", PASSWORD),
        ("kim", ""),
    ] {
        let status = asked(&browser, user, password).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{user}:{password}");
    }

    let app = "url=https%3A%2F%2Fgithub.com%2Facme%2Fnet&branch=main&dir=kim";
    let added = browser.post("/owners/net/apps", app).await;
    assert_eq!(added.status, StatusCode::SEE_OTHER, "{}", added.text());
    let event = world.store.lock_event_list(1).await.unwrap().remove(0);
    let actor = event.event.cause.actor;
    assert_eq!((actor.login.as_str(), actor.account), ("kim", Some(kim)));

    users.set_active(&by_ops(), kim, false).await.unwrap();
    let inactive = browser.get("/owners/net").await;
    assert_eq!(inactive.status, StatusCode::FORBIDDEN);
    assert!(
        inactive
            .text()
            .contains("“lockkeeper accounts activate 1000000”"),
        "{}",
        inactive.text()
    );
    // The answer to a wrong password says nothing about the account.
    assert_eq!(
        asked(&browser, "kim", "another-wrong-one").await,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn a_stream_ends_when_its_account_is_locked_out() {
    let mut world = world().await;
    let users = AllUsers::new(world.store.clone(), "locks.example");
    let hashed = HashedPassword::new(PASSWORD, 4, [7; 16]).unwrap();
    let new = NewAccount {
        username: Some(ExternalIdKey::username("kim").unwrap()),
        password: Some(hashed.to_stored()),
        ..NewAccount::default()
    };
    let kim = users.create(&by_ops(), &new).await.unwrap();
    world.web_accounts = "user=kim owners=net allow=all account=1000000\n";
    let (at, project) = (
        pull("github.com/acme/net", 7),
        project("net", "default", None),
    );
    let command = world
        .command(CommandKind::Plan, &at, Actor::commenter("ada"))
        .await;
    let run = world.run(command, RunKind::Plan, &at, &project).await;
    let browser = world.browser_of("kim", PASSWORD).await;
    let request = browser
        .request("GET", &format!("/jobs/{run}/events"))
        .body(Body::empty())
        .unwrap();
    let mut stream = browser
        .respond(request)
        .await
        .into_body()
        .into_data_stream();
    world.print(run, 1, "before\n").await;
    let seen = stream.next().await.unwrap().unwrap();
    assert!(
        String::from_utf8_lossy(&seen).contains("before"),
        "{seen:?}"
    );
    users.set_active(&by_ops(), kim, false).await.unwrap();
    world.print(run, 2, "after\n").await;
    world.hub.announce(run);
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn pages_show_the_name_and_the_status_of_the_person_who_stopped_applies() {
    let world = World::new().await;
    let users = AllUsers::new(world.store.clone(), "locks.example");
    let new = NewAccount {
        full_name: Some("<b>Olga</b>".to_owned()),
        ..NewAccount::default()
    };
    let olga = users.create(&by_ops(), &new).await.unwrap();
    let actor = Actor::new("olga", Origin::Page).with_account(Some(olga));
    let cause = Cause::new(actor, "release day");
    let set = world
        .store
        .apply_lock_set(&ApplyScope::Server, None, &cause)
        .await;
    drop(set.unwrap());
    let browser = world.browser().await;
    for path in ["/", "/apply-locks", "/audit"] {
        let page = browser.get(path).await;
        let text = page.text();
        let person = "olga (&lt;b&gt;Olga&lt;/b&gt;)";
        assert!(text.contains(person), "{path}: {text}");
    }
}
