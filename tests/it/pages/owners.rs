//! Tests of the API of owners, claims and applications, and of the errors in their forms.

use axum::body::Body;
use axum::http::{StatusCode, header};
use lockkeeper::config::access::WebRules;
use serde_json::{Value, json};

use super::fixture::{Answer, Browser, World};
use crate::support::db::{Backend, by, story};

async fn call(browser: &Browser, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = browser
        .request(method, path)
        .header(header::CONTENT_TYPE, "application/json");
    let Answer { status, body, .. } = browser
        .send(request.body(Body::from(body.to_string())).unwrap())
        .await;
    (status.as_u16(), serde_json::from_str(&body).unwrap())
}

async fn script(world: &World) -> Browser {
    let browser = world.browser().await.without_cookie();
    for name in ["net", "dns"] {
        assert_eq!(
            call(&browser, "POST", "/api/owners", &json!({ "name": name }))
                .await
                .0,
            201
        );
    }
    browser
}

fn app_body(owner: &str, url: &str, dir: &str) -> Value {
    json!({ "owner": owner, "url": url, "branch": "main", "dir": dir })
}

#[tokio::test]
async fn owners_are_added_listed_and_removed() {
    let world = World::new().await;
    let browser = script(&world).await;
    let (status, again) = call(&browser, "POST", "/api/owners", &json!({ "name": "NET" })).await;
    assert_eq!(status, 409, "{again}");
    assert!(
        again["error"]
            .as_str()
            .unwrap()
            .contains("Owner “net” already exists, added by ops."),
        "{again}"
    );
    let (_, listed) = call(&browser, "GET", "/api/owners", &json!(null)).await;
    let names: Vec<&Value> = listed["owners"]
        .as_array()
        .unwrap()
        .iter()
        .map(|owner| &owner["name"])
        .collect();
    assert_eq!(names, [&json!("dns"), &json!("net")]);
    let (_, app) = call(
        &browser,
        "POST",
        "/api/apps",
        &app_body("net", "https://github.com/acme/infra", "."),
    )
    .await;
    let (status, used) = call(&browser, "DELETE", "/api/owners/net", &json!(null)).await;
    assert_eq!(status, 409, "{used}");
    assert!(
        used["error"]
            .as_str()
            .unwrap()
            .contains("“net” has 1 applications and 0 credentials."),
        "{used}"
    );
    let id = app["id"].as_str().unwrap();
    assert_eq!(
        call(&browser, "DELETE", &format!("/api/apps/{id}"), &json!(null)).await,
        (200, app.clone())
    );
    assert_eq!(
        call(&browser, "DELETE", "/api/owners/net", &json!(null))
            .await
            .0,
        200
    );
    for gone in ["net", "a b", "%ff"] {
        let path = format!("/api/owners/{}", gone.replace(' ', "%20"));
        assert_eq!(
            call(&browser, "DELETE", &path, &json!(null)).await.0,
            404,
            "{gone}"
        );
    }
}

#[tokio::test]
async fn the_list_of_owners_goes_on_where_a_part_ended() {
    let mut world = World::new().await;
    let names: Vec<String> = (0..=500).map(|n| format!("team-{n:03}")).collect();
    for name in &names {
        let _new = world
            .store
            .owner_create(&name.parse().unwrap(), by())
            .await
            .unwrap();
    }
    let accounts = format!(
        "user=kim owners={} allow=all password=kims-password-of-kim",
        names.join(",")
    );
    world.web_accounts = accounts.leak();
    for browser in [
        world.browser().await,
        world.browser_of("kim", "kims-password-of-kim").await,
    ] {
        let (_, first) = call(&browser, "GET", "/api/owners", &json!(null)).await;
        let count = first["owners"].as_array().unwrap().len();
        assert_eq!((count, &first["next"]), (500, &json!("team-499")));
        let (_, rest) = call(&browser, "GET", "/api/owners?after=TEAM-499", &json!(null)).await;
        assert_eq!(
            (&rest["owners"][0]["name"], &rest["next"]),
            (&json!("team-500"), &json!(null))
        );
        assert_eq!(
            call(&browser, "GET", "/api/owners?after=a%20b", &json!(null))
                .await
                .0,
            422
        );
    }
}

#[tokio::test]
async fn an_application_of_a_claimed_repository_is_refused_with_the_name_of_its_owner() {
    let world = World::new().await;
    let browser = script(&world).await;
    let (status, app) = call(
        &browser,
        "POST",
        "/api/apps",
        &app_body("net", "git@github.com:Acme/infra.git", "net/"),
    )
    .await;
    assert_eq!(status, 201, "{app}");
    assert_eq!(
        (&app["url"], &app["dir"], &app["workspace"], &app["owner"]),
        (
            &json!("https://github.com/acme/infra"),
            &json!("net"),
            &json!("default"),
            &json!("net")
        )
    );
    let (status, refused) = call(
        &browser,
        "POST",
        "/api/apps",
        &app_body("dns", "https://github.com/acme/INFRA/", "dns"),
    )
    .await;
    assert_eq!(status, 409);
    assert_eq!(
        (&refused["owner"], &refused["reason"]),
        (&json!("net"), &json!("owned_by_another"))
    );
    insta::assert_snapshot!(refused["error"].as_str().unwrap(), @"https://github.com/acme/infra is owned by “net”. Ask that owner to remove its applications and credentials for the repository; “lockkeeper claims show https://github.com/acme/infra” shows how many there are. Nothing was changed.");
    let (_, claims) = call(&browser, "GET", "/api/claims", &json!(null)).await;
    assert_eq!(claims["claims"].as_array().unwrap().len(), 1, "{claims}");
    let shown = call(
        &browser,
        "GET",
        "/api/claims?url=git%40github.com%3Aacme%2Finfra",
        &json!(null),
    )
    .await
    .1;
    assert_eq!(
        (
            &shown["claims"][0]["owner"],
            &shown["claims"][0]["applications"]
        ),
        (&json!("net"), &json!(1))
    );
    assert_eq!(
        call(&browser, "GET", "/api/claims?owner=dns", &json!(null))
            .await
            .1["claims"],
        json!([])
    );
}

#[tokio::test]
async fn an_application_is_changed_field_by_field() {
    let world = World::new().await;
    let browser = script(&world).await;
    let (_, app) = call(
        &browser,
        "POST",
        "/api/apps",
        &app_body("net", "https://github.com/acme/infra", "net"),
    )
    .await;
    let path = format!("/api/apps/{}", app["id"].as_str().unwrap());
    let (status, changed) = call(
        &browser,
        "POST",
        &path,
        &json!({ "url": "https://github.com/acme/new", "name": "n" }),
    )
    .await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!(
        (&changed["dir"], &changed["name"]),
        (&json!("net"), &json!("n"))
    );
    let (status, shown) = call(&browser, "GET", &path, &json!(null)).await;
    assert_eq!(
        (status, &shown["url"], &shown["runs"]),
        (200, &changed["url"], &json!([]))
    );
    let (_, claims) = call(&browser, "GET", "/api/claims", &json!(null)).await;
    assert_eq!(
        claims["claims"][0]["url"],
        json!("https://github.com/acme/new")
    );
    assert_eq!(
        call(&browser, "POST", &path, &json!({ "owner": "dns" }))
            .await
            .0,
        422
    );
    let listed = call(&browser, "GET", "/api/apps?owner=net", &json!(null))
        .await
        .1;
    assert_eq!(
        (listed["apps"].as_array().unwrap().len(), &listed["next"]),
        (1, &json!(null))
    );
    assert_eq!(
        call(&browser, "GET", "/api/apps?owner=nobody", &json!(null))
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn a_wrong_application_is_answered_with_the_fields_and_never_with_a_secret() {
    let world = World::new().await;
    let browser = script(&world).await;
    let body = json!({ "owner": "net", "url": "https://ann:hunter2@github.com/acme/infra", "branch": "", "dir": "../x" });
    let (status, refused) = call(&browser, "POST", "/api/apps", &body).await;
    assert_eq!((status, &refused["field"]), (422, &json!("url")));
    let said = refused.to_string();
    assert!(
        !said.contains("hunter2") && said.contains("“dir”") && said.contains("“branch”"),
        "{said}"
    );
    assert_eq!(
        call(
            &browser,
            "POST",
            "/api/apps",
            &app_body("nobody", "https://github.com/a/b", ".")
        )
        .await
        .0,
        404
    );
    assert_eq!(
        call(
            &browser,
            "POST",
            "/api/apps",
            &app_body("a b", "https://github.com/a/b", ".")
        )
        .await
        .0,
        422
    );
    assert_eq!(
        call(&browser, "GET", "/api/apps/x", &json!(null)).await.0,
        404
    );
    assert_eq!(world.store.claim_list(None, None, 9).await.unwrap(), []);
}

#[tokio::test]
async fn only_a_script_with_the_password_and_the_right_may_change_something() {
    let mut world = World::new().await;
    let browser = script(&world).await;
    let (_, app) = call(
        &browser,
        "POST",
        "/api/apps",
        &app_body("net", "https://github.com/acme/infra", "."),
    )
    .await;
    let app = format!("/api/apps/{}", app["id"].as_str().unwrap());
    world.web_rules = WebRules::new(&["discard"]).unwrap();
    let before = world.store.lock_event_list(99).await.unwrap();
    for (browser, why) in [
        (
            world.anonymous().await.without_cookie(),
            "nobody signs in to this server",
        ),
        (world.browser().await, "This address is for scripts"),
        (world.browser().await.without_cookie(), "may not "),
    ] {
        for (method, path) in [
            ("POST", "/api/owners"),
            ("DELETE", "/api/owners/dns"),
            ("POST", "/api/apps"),
            ("POST", app.as_str()),
            ("DELETE", app.as_str()),
            ("POST", format!("{app}/plan").as_str()),
            ("POST", format!("{app}/apply").as_str()),
        ] {
            let (status, refused) = call(&browser, method, path, &json!({})).await;
            assert_eq!(
                status,
                StatusCode::FORBIDDEN.as_u16(),
                "{method} {path}: {refused}"
            );
            assert!(
                refused["error"].as_str().unwrap().contains(why),
                "{method} {path}: {refused}"
            );
        }
    }
    assert_eq!(world.store.lock_event_list(99).await.unwrap(), before);
}

story! {
    an_application_that_cannot_be_used_is_asked_for_again_with_what_is_wrong_beside_each_field,
    a_secret_in_an_address_is_not_written_again,
    what_is_in_the_way_of_an_application_is_said_at_its_form,
    a_name_that_cannot_be_used_is_asked_for_again,
    a_button_that_did_nothing_says_why_on_the_page_it_was_pressed_on,
    who_may_not_and_what_is_not_there_have_a_page_of_their_own,
}

/// Creates a server with two owners, and a browser.
async fn owned(backend: Backend) -> (World, Browser) {
    let world = World::on(backend).await;
    for name in ["net", "dns"] {
        drop(
            world
                .store
                .owner_create(&name.parse().unwrap(), by())
                .await
                .unwrap(),
        );
    }
    let browser = world.browser().await;
    (world, browser)
}

/// Returns the element with this name: its tag, and the message beside it.
fn field(page: &str, name: &str) -> (String, Option<String>) {
    let (_, rest) = page
        .split_once(&format!("<input id=\"{name}\""))
        .expect(page);
    let tag = rest.split_once('>').unwrap().0.to_owned();
    let beside = page.split_once(&format!("<p class=\"wrong\" id=\"{name}-wrong\">"));
    (
        tag,
        beside.map(|(_, rest)| rest.split_once("</p>").unwrap().0.to_owned()),
    )
}

/// Returns the message for the whole page or form.
fn alert(page: &str) -> String {
    let (_, rest) = page.split_once("role=\"alert\"").expect(page);
    rest.split_once('>')
        .unwrap()
        .1
        .split_once("</p>")
        .unwrap()
        .0
        .to_owned()
}

async fn an_application_that_cannot_be_used_is_asked_for_again_with_what_is_wrong_beside_each_field(
    backend: Backend,
) {
    let (world, browser) = owned(backend).await;
    let typed = "url=github.com&branch=&dir=..%2Fx%22%3E&workspace=a+b&name=network";
    let answer = browser.post("/owners/net/apps", typed).await;
    assert_eq!(
        answer.status,
        StatusCode::UNPROCESSABLE_ENTITY,
        "{}",
        answer.text()
    );
    let page = answer.body;
    assert!(
        page.contains("<title>Not registered · net · Owners · Lockkeeper</title>"),
        "{page}"
    );
    assert_eq!(
        alert(&page),
        "Nothing was changed. Correct the marked fields and resubmit."
    );
    let said: Vec<String> = ["url", "branch", "dir", "workspace"]
        .map(|name| format!("{name}: {}", field(&page, name).1.unwrap()))
        .to_vec();
    insta::assert_snapshot!(said.join("\n"), @"
    url: “github.com” is not the address of a repository: it is a path on a machine; write the address under which the forge serves it, “https://host/owner/name”.
    branch: It is missing.
    dir: “../x&quot;&gt;” leaves the repository.
    workspace: Invalid workspace &quot;a b&quot;: it must not contain “$”, white space or control characters.
    ");
    for (name, value) in [
        ("url", "github.com"),
        ("branch", ""),
        ("dir", "../x&quot;&gt;"),
        ("workspace", "a b"),
    ] {
        let tag = field(&page, name).0;
        assert!(tag.contains(&format!(" value=\"{value}\"")), "{tag}");
        assert!(
            tag.contains(&format!(
                " aria-invalid=\"true\" aria-describedby=\"{name}-wrong\""
            )),
            "{tag}"
        );
    }
    let (right, beside) = field(&page, "name");
    assert!(
        right.contains(" value=\"network\"") && !right.contains("aria-") && beside.is_none(),
        "{right}"
    );
    assert!(
        field(&page, "url").0.contains(" autofocus") && page.matches(" autofocus").count() == 1,
        "{page}"
    );
    assert!(
        page.contains("<details open>\n    <summary class=\"button\">Register an application…"),
        "{page}"
    );
    assert_eq!(
        world.store.application_list(None, None, 9).await.unwrap(),
        []
    );
    let mended =
        "url=https%3A%2F%2Fgithub.com%2Facme%2Finfra&branch=main&dir=x&workspace=&name=network";
    assert_eq!(
        browser.post("/owners/net/apps", mended).await.status,
        StatusCode::SEE_OTHER
    );
}

async fn a_secret_in_an_address_is_not_written_again(backend: Backend) {
    let (_world, browser) = owned(backend).await;
    for (url, wrong) in [
        (
            "https%3A%2F%2Fann%3Ahunter2%40github.com%2Facme%2Finfra",
            "it contains a password or a token",
        ),
        (
            "https%3A%2F%2Fgithub.com%2Facme%2Finfra%3Ftoken%3Dhunter2",
            "it has a “?” or “#”",
        ),
        // The address is valid, only the branch is missing.
        ("ssh%3A%2F%2Fhunter2%40github.com%2Facme%2Finfra", ""),
    ] {
        let answer = browser
            .post("/owners/net/apps", &format!("url={url}&branch=&dir=eu"))
            .await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{url}");
        assert!(!answer.body.contains("hunter2"), "{}", answer.body);
        let (tag, beside) = field(&answer.body, "url");
        let beside = beside.unwrap();
        assert!(
            tag.contains(" value=\"\"") && tag.contains(" aria-describedby=\"url-wrong\""),
            "{tag}"
        );
        assert!(
            beside.contains(wrong) && beside.contains("The value was removed"),
            "{beside}"
        );
        assert!(
            field(&answer.body, "dir").0.contains(" value=\"eu\""),
            "{}",
            answer.body
        );
    }
}

async fn what_is_in_the_way_of_an_application_is_said_at_its_form(backend: Backend) {
    let (_world, browser) = owned(backend).await;
    let app = "url=git%40github.com%3AAcme%2Finfra&branch=main&dir=eu&workspace=&name=";
    assert_eq!(
        browser.post("/owners/net/apps", app).await.status,
        StatusCode::SEE_OTHER
    );
    let owned = browser.post("/owners/dns/apps", app).await;
    assert_eq!(owned.status, StatusCode::CONFLICT);
    let (tag, beside) = field(&owned.body, "url");
    assert!(
        tag.contains(" value=\"git@github.com:Acme/infra\"") && tag.contains(" aria-invalid"),
        "{tag}"
    );
    assert!(
        beside
            .unwrap()
            .starts_with("https://github.com/acme/infra is owned by “net”.")
    );
    let again = browser.post("/owners/net/apps", app).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    assert!(
        alert(&again.body).starts_with(
            "An application for https://github.com/acme/infra branch main dir eu workspace default already exists"
        ),
        "{}",
        again.body
    );
    assert!(
        field(&again.body, "branch").0.contains(" value=\"main\""),
        "{}",
        again.body
    );
    assert!(
        again
            .body
            .contains("role=\"alert\" tabindex=\"-1\" autofocus")
            && !again.body.contains("aria-invalid")
    );
}

async fn a_name_that_cannot_be_used_is_asked_for_again(backend: Backend) {
    let (world, browser) = owned(backend).await;
    for (name, value, status, wrong) in [
        (
            "a+%22b",
            "a &quot;b",
            422,
            "is not the name of an owner: write 1 to 64 letters",
        ),
        ("", "", 422, "is not the name of an owner"),
        (
            "NET",
            "NET",
            409,
            "Owner “net” already exists, added by ada. Nothing was changed. Use that owner",
        ),
    ] {
        let answer = browser.post("/owners", &format!("name={name}")).await;
        assert_eq!(answer.status.as_u16(), status, "{name}");
        let (tag, beside) = field(&answer.body, "name");
        assert!(
            tag.contains(&format!(" value=\"{value}\"")) && tag.contains(" aria-invalid=\"true\""),
            "{tag}"
        );
        let beside = beside.unwrap();
        assert!(beside.contains(wrong), "{beside}");
        assert!(
            answer.body.contains("<title>Not added · Owners") && answer.text().contains("dns"),
            "{}",
            answer.text()
        );
    }
    assert_eq!(world.store.owner_list().await.unwrap().len(), 2);
}

async fn a_button_that_did_nothing_says_why_on_the_page_it_was_pressed_on(backend: Backend) {
    let (world, browser) = owned(backend).await;
    let app = "url=https%3A%2F%2Fgithub.com%2Facme%2Finfra&branch=main&dir=eu";
    assert_eq!(
        browser.post("/owners/net/apps", app).await.status,
        StatusCode::SEE_OTHER
    );
    let id = world.store.application_list(None, None, 9).await.unwrap()[0].id;
    let used = browser.post("/owners/net/remove", "").await;
    assert_eq!(used.status, StatusCode::CONFLICT);
    assert!(
        alert(&used.body).starts_with("“net” has 1 applications and 0 credentials."),
        "{}",
        used.body
    );
    assert!(
        used.body.contains("<title>Not removed · net") && !used.body.contains("<details open>"),
        "{}",
        used.body
    );
    assert_eq!(
        browser.post(&format!("/apps/{id}/plan"), "").await.status,
        StatusCode::SEE_OTHER
    );
    let busy = browser
        .post(&format!("/owners/net/apps/{id}/remove"), "")
        .await;
    assert_eq!(busy.status, StatusCode::CONFLICT);
    assert!(
        alert(&busy.body).starts_with("Application eu (branch main) has a run"),
        "{}",
        busy.body
    );
}

async fn who_may_not_and_what_is_not_there_have_a_page_of_their_own(backend: Backend) {
    let (mut world, browser) = owned(backend).await;
    for path in [
        "nobody/apps",
        "nobody/remove",
        "net/apps/x/remove",
        "net/credentials/x/remove",
        "net/claims/x/remove",
    ] {
        let answer = browser
            .post(
                &format!("/owners/{path}"),
                "url=https%3A%2F%2Fgithub.com%2Fa%2Fb&branch=main",
            )
            .await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(
            answer.body.contains("<section class=\"failure\">"),
            "{path} {}",
            answer.body
        );
    }
    world.web_rules = WebRules::new(&["apply_lock"]).unwrap();
    let browser = world.browser().await;
    for path in [
        "/owners",
        "/owners/net/apps",
        "/owners/net/remove",
        "/owners/net/apps/x/remove",
    ] {
        let answer = browser.post(path, "name=x").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert!(
            answer.body.contains("<section class=\"failure\">"),
            "{path} {}",
            answer.body
        );
    }
}
