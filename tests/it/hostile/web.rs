//! Attacks by visitors: anonymous ones, a foreign page that points its name here, and people who guess passwords.

use std::net::{IpAddr, Ipv4Addr};

use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use hmac::{Hmac, KeyInit, Mac};
use lockkeeper::config::access::WebRules;
use lockkeeper::http::{self};
use lockkeeper::kit::web::{FAILURE_BURST, FREE_FAILURES, LocalAddress, Route, RouteAccess};
use lockkeeper::model::{ProjectOutcome, RunId};
use lockkeeper::store::{MirrorQuery, Store};
use reqwest::Client;
use sha2::Sha256;

use super::ordinary;
use crate::e2e::world::World as Program;
use crate::pages::fixture::{Browser, KEY, SESSION, World, form};
use crate::pages::limited::{Own, body, world};
use crate::support::db::stopped;
use crate::support::server::within;

/// Text that only the runs of the world print.
const PRINTED: &str = "printed-by-a-run";
/// Every method that a client can send, and one that does not exist.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW",
];

/// Creates a world with data of two owners, whose runs have printed something and ended.
async fn two_owners() -> (World, Own, Own) {
    let (world, net, zebra) = world().await;
    for own in [&net, &zebra] {
        let run: RunId = own.run.parse().unwrap();
        world.print(run, 2, PRINTED).await;
        world
            .end_run(run, ProjectOutcome::Planned, Some(PRINTED))
            .await;
    }
    (world, net, zebra)
}

/// Returns the address of a route for the data of one owner. A route with an unknown variable fails the test.
fn address(route: &Route, own: &Own) -> String {
    let Own {
        name,
        lock,
        run,
        apply_lock,
        app,
        credential,
    } = own;
    let owner = if *name == "zebra" { "other" } else { *name };
    let (path, repo) = (route.path, format!("github.com/acme/{name}"));
    let is_post = route.method == Method::POST;
    let values: Vec<(&str, String)> = match path
        .trim_start_matches("/api")
        .split('/')
        .nth(1)
        .unwrap_or_default()
    {
        "locks" if path.starts_with("/api") && is_post => {
            vec![("{*asked}", format!("{lock}/release"))]
        }
        "locks" => vec![("{*id}", lock.clone()), ("{*asked}", lock.clone())],
        "apply-locks" => vec![("{id}", apply_lock.clone())],
        "jobs" | "runs" => vec![("{id}", run.clone())],
        "repos" if path.starts_with("/api") && is_post => {
            vec![("{*asked}", format!("{repo}/sync"))]
        }
        "repos" => vec![("{*repo}", repo.clone()), ("{*asked}", repo.clone())],
        "leases" => vec![("{*key}", format!("repository_sync:disk-1:{repo}?reason=x"))],
        "owners" => vec![
            ("{name}", owner.to_owned()),
            ("{things}", "apps".to_owned()),
            ("{id}", app.clone()),
        ],
        "apps" => vec![("{id}", app.clone()), ("{action}", "plan".to_owned())],
        "credentials" => vec![("{id}", credential.clone())],
        "static" => vec![
            ("{hash}", "0".repeat(16)),
            ("{name}", "style.css".to_owned()),
        ],
        _ => vec![],
    };
    let mut address = values.iter().fold(path.to_owned(), |path, (name, value)| {
        path.replace(name, value)
    });
    assert!(
        !address.contains('{'),
        "nothing says what stands for the variables of {path}"
    );
    if matches!(path, "/lock" | "/locks") {
        address = format!("{path}?id={lock}");
    }
    address
}

/// Returns the routes of the pages, the API and health. `stories/webhooks.rs` tests the webhook endpoint, which knows
/// no users, and `registry/pages.rs`, `registry/people_api.rs` and `registry/peers_api.rs` the pages of the registry
/// and their API, which this server does not have.
fn routes() -> Vec<Route> {
    let routes = http::routes();
    assert_eq!(
        routes
            .iter()
            .filter(|route| route.path == "/events")
            .count(),
        1
    );
    let of_registry = |path: &str| path.trim_start_matches("/api").starts_with("/registry");
    routes
        .into_iter()
        .filter(|route| route.path != "/events" && !of_registry(route.path))
        .collect()
}

/// Returns every path with every method, and the access of the route if the router has one.
fn matrix() -> Vec<(Route, Option<RouteAccess>)> {
    let routes = routes();
    let mut paths: Vec<&str> = routes.iter().map(|route| route.path).collect();
    paths.sort_unstable();
    paths.dedup();
    let cell = |path: &'static str, method: &str| {
        let method: Method = method.parse().unwrap();
        let asked = if method == Method::HEAD {
            Method::GET
        } else {
            method.clone()
        };
        let found = routes
            .iter()
            .find(|route| route.path == path && route.method == asked);
        let access = found.map(|route| route.access);
        (
            Route {
                method,
                path,
                access: access.unwrap_or(RouteAccess::Account),
                limited: found.is_some_and(|route| route.limited),
            },
            access,
        )
    };
    paths
        .into_iter()
        .flat_map(|path| METHODS.map(|method| cell(path, method)))
        .collect()
}

/// Returns a token that fits the form of a user. A page that passes for ours would read it there.
fn token(user: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY.as_bytes()).unwrap();
    mac.update(SESSION.replace(['n', '5'], "f").as_bytes());
    mac.update(b"\0");
    mac.update(user.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

fn changes(method: &Method) -> bool {
    !matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE
    )
}

fn is_success(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}

/// Sends a request as a browser on our own page does, with every field that a form has.
async fn as_page(
    browser: &Browser,
    method: &Method,
    address: &str,
    user: &str,
) -> (StatusCode, String) {
    let request = browser
        .request(method.as_str(), address)
        .header("sec-fetch-site", "same-origin");
    let fields = "reason=x&force=yes&scope=server&name=new&url=https%3A%2F%2Fgithub.com%2Facme%2Fnew&branch=main\
                  &key=repository_sync%3Adisk-1%3Agithub.com%2Facme%2Fnet&holder=keeper-1%2F1";
    let answer = browser
        .send(form(request, &format!("token={}&{fields}", token(user))))
        .await;
    (answer.status, answer.body)
}

/// Sends a request as a script does.
async fn as_script(browser: &Browser, method: &Method, address: &str) -> (StatusCode, String) {
    let mut request = browser
        .request(method.as_str(), address)
        .header(header::CONTENT_TYPE, "application/json");
    request.headers_mut().unwrap().remove(header::COOKIE);
    let answer = browser
        .send(request.body(Body::from(body(address).to_string())).unwrap())
        .await;
    (answer.status, answer.body)
}

async fn as_both(
    browser: &Browser,
    route: &Route,
    address: &str,
    user: &str,
) -> [(StatusCode, String); 2] {
    [
        as_page(browser, &route.method, address, user).await,
        as_script(browser, &route.method, address).await,
    ]
}

/// Returns everything that a visitor could have changed.
async fn server_state(store: &Store, owns: [&Own; 2]) -> String {
    let mut there = Vec::new();
    for own in owns {
        there.push(
            store
                .application_get(own.app.parse().unwrap())
                .await
                .unwrap()
                .is_some(),
        );
        there.push(
            store
                .credential_get(own.credential.parse().unwrap())
                .await
                .unwrap()
                .is_some(),
        );
    }
    let owners = store.owner_list().await.unwrap().len();
    let mirrors = store
        .mirror_list(&MirrorQuery::default(), 99)
        .await
        .unwrap();
    format!(
        "{there:?} {owners} owners, {mirrors:?}, {:?}, {} apply locks, {} leases, stopped: {:?}, {:?}",
        store
            .lock_list()
            .await
            .unwrap()
            .iter()
            .map(|lock| lock.id.to_string())
            .collect::<Vec<_>>(),
        store.apply_lock_list().await.unwrap().len(),
        store.lease_list().await.unwrap().len(),
        stopped(store).await,
        store
            .command_list(99)
            .await
            .unwrap()
            .iter()
            .map(|command| command.stop.is_some())
            .collect::<Vec<_>>(),
    )
}

const NOBODY: &str = "somebody at the dashboard";

#[tokio::test]
async fn where_nobody_signs_in_every_route_shows_facts_or_nothing_and_changes_nothing() {
    let (mut world, net, zebra) = two_owners().await;
    world.web_accounts = "";
    let (nobody, before) = (
        world.anonymous().await,
        server_state(&world.store, [&net, &zebra]).await,
    );
    for (route, access) in matrix() {
        let (address, method) = (address(&route, &net), &route.method);
        for (status, said) in as_both(&nobody, &route, &address, NOBODY).await {
            let cell = format!("{method} {address}: {status} {said}");
            assert!(
                !said.contains(PRINTED) && !said.contains("<form method=\"post\""),
                "{cell}"
            );
            assert!(!changes(method) || !is_success(status), "{cell}");
            match access {
                Some(RouteAccess::Everybody | RouteAccess::Facts) => {
                    assert!(is_success(status), "{cell}");
                }
                Some(RouteAccess::Account | RouteAccess::Change) => {
                    assert_eq!(status, StatusCode::FORBIDDEN, "{cell}");
                }
                None => assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{cell}"),
            }
        }
    }
    assert_eq!(server_state(&world.store, [&net, &zebra]).await, before);
}

#[tokio::test]
async fn what_the_operator_lets_nobody_do_never_runs_anything() {
    let (mut world, net, zebra) = two_owners().await;
    world.web_accounts = "";
    // The most that `--web-allow` can name beside `--allow-anonymous-web`.
    let words = ["discard", "unlock_any", "apply_lock", "sync", "cancel"];
    world.web_rules = WebRules::new(&words).unwrap();
    let nobody = world.anonymous().await;
    let commands = world.store.command_list(99).await.unwrap().len();
    let mut changed = Vec::new();
    for (route, access) in matrix() {
        let address = address(&route, &net);
        for (status, said) in as_both(&nobody, &route, &address, NOBODY).await {
            let cell = format!("{} {address}: {status} {said}", route.method);
            assert!(!said.contains(PRINTED), "{cell}");
            if access == Some(RouteAccess::Account) {
                assert_eq!(status, StatusCode::FORBIDDEN, "{cell}");
            }
            if changes(&route.method) && is_success(status) {
                assert_eq!(access, Some(RouteAccess::Change), "{cell}");
                changed.push(route.path);
            }
        }
    }
    let expected = [
        "/apply-lock/allow",
        "/apply-lock/stop",
        "/apply-locks/{id}/end",
        "/locks/{*id}",
        "/repos/{*repo}",
    ];
    assert!(
        expected.iter().all(|path| changed.contains(path)),
        "the requests are real ones: {changed:?}"
    );
    assert!(
        !changed.contains(&"/jobs/{id}/cancel"),
        "an apply is not cut off by nobody"
    );
    assert_eq!(world.store.command_list(99).await.unwrap().len(), commands);
    for own in [&net, &zebra] {
        assert!(
            world
                .store
                .application_get(own.app.parse().unwrap())
                .await
                .unwrap()
                .is_some()
        );
    }
}

#[tokio::test]
async fn where_people_sign_in_nobody_else_is_told_anything() {
    let (world, net, zebra) = two_owners().await;
    let (stranger, before) = (
        world.browser().await.without_password(),
        server_state(&world.store, [&net, &zebra]).await,
    );
    for (route, access) in matrix() {
        let address = address(&route, &net);
        for (status, said) in as_both(&stranger, &route, &address, NOBODY).await {
            let cell = format!("{} {address}: {status} {said}", route.method);
            assert!(
                !said.contains(PRINTED) && !said.contains("net-dev"),
                "{cell}"
            );
            let is_health = routes()
                .iter()
                .any(|of| of.path == route.path && of.access == RouteAccess::Everybody);
            match access {
                Some(RouteAccess::Everybody) => assert_eq!(status, StatusCode::OK, "{cell}"),
                None if is_health => assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{cell}"),
                _ => assert_eq!(status, StatusCode::UNAUTHORIZED, "{cell}"),
            }
        }
    }
    assert_eq!(server_state(&world.store, [&net, &zebra]).await, before);
}

#[tokio::test]
async fn an_account_of_one_owner_reaches_nothing_of_another_or_of_everybody() {
    let (world, net, zebra) = two_owners().await;
    let (kim, before) = (
        world.browser_of("kim", "kims-password-of-kim").await,
        server_state(&world.store, [&net, &zebra]).await,
    );
    for (route, access) in matrix() {
        let address = address(&route, &zebra);
        for (status, said) in as_both(&kim, &route, &address, "kim").await {
            let cell = format!("{} {address}: {status} {said}", route.method);
            assert!(
                !said.contains(PRINTED) && !said.contains("zebra-dev"),
                "{cell}"
            );
            assert!(!changes(&route.method) || !is_success(status), "{cell}");
            if access.is_some() && access != Some(RouteAccess::Everybody) && !route.limited {
                assert_eq!(status, StatusCode::FORBIDDEN, "{cell}");
            }
        }
    }
    assert_eq!(server_state(&world.store, [&net, &zebra]).await, before);
}

/// Without this test, the other rows would also hold for a server that refuses everything, or for requests without
/// effect.
#[tokio::test]
async fn the_account_for_the_whole_server_reaches_every_route() {
    let shared = two_owners().await;
    for route in routes() {
        let fresh = if changes(&route.method) {
            Some(two_owners().await)
        } else {
            None
        };
        let (world, net, _) = fresh.as_ref().unwrap_or(&shared);
        let (ops, address) = (world.browser().await, address(&route, net));
        let is_page = !changes(&route.method)
            || !(address.starts_with("/api/") || route.path.starts_with("/apply/"));
        let is_page = is_page && route.method != Method::DELETE;
        let (status, said) = if is_page {
            as_page(&ops, &route.method, &address, "ops").await
        } else {
            as_script(&ops, &route.method, &address).await
        };
        let cell = format!("{} {address}: {status} {said}", route.method);
        if changes(&route.method) {
            let busy_or_wrong = [StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY];
            assert!(
                is_success(status) || busy_or_wrong.contains(&status),
                "{cell}"
            );
        } else {
            assert!(is_success(status), "{cell}");
        }
    }
}

#[tokio::test]
async fn a_page_of_somebody_else_that_points_its_name_here_is_answered_nothing() {
    let (world, net, _) = two_owners().await;
    for (browser, user) in [
        (world.browser().await, "ops"),
        (world.anonymous().await, NOBODY),
    ] {
        for route in routes() {
            let address = address(&route, &net);
            for host in [
                "evil.example",
                "evil.example:4141",
                "locks.example.evil.example",
                "10.0.0.7:4141",
                "",
            ] {
                // The request of a browser after a foreign name was pointed here: everything fits except the name.
                let mut request = browser
                    .request(route.method.as_str(), &address)
                    .header("sec-fetch-site", "same-origin");
                request
                    .headers_mut()
                    .unwrap()
                    .insert(header::HOST, host.parse().unwrap());
                let answer = browser
                    .send(form(request, &format!("token={}&reason=x", token(user))))
                    .await;
                let cell = format!("{} {address} of {host}: {}", route.method, answer.body);
                if route.access == RouteAccess::Everybody {
                    assert_eq!(answer.status, StatusCode::OK, "{cell}");
                } else {
                    assert_eq!(answer.status, StatusCode::MISDIRECTED_REQUEST, "{cell}");
                    assert!(!answer.body.contains("net"), "{cell}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_name_is_known_by_each_of_its_places_and_shown_harmless() {
    let browser = World::new().await.browser().await;
    let ask = async |uri: &str, hosts: &[&str], local: Option<&str>| {
        let mut request = browser
            .request("GET", uri)
            .header(header::ACCEPT, "text/html");
        request.headers_mut().unwrap().remove(header::HOST);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        let mut request = request.body(Body::empty()).unwrap();
        if let Some(local) = local {
            request
                .extensions_mut()
                .insert(LocalAddress(local.parse().unwrap()));
        }
        let answer = browser.send(request).await;
        (answer.status.as_u16(), answer.body)
    };
    for (uri, hosts, local, status) in [
        ("/", &["locks.example"][..], None, 200),
        ("/", &["10.0.0.7:4141"][..], Some("10.0.0.7:4141"), 200),
        ("/", &["[fd00::7]:4141"][..], Some("[fd00::7]:4141"), 200),
        ("/", &["10.0.0.7:4141"][..], Some("10.0.0.8:4141"), 421),
        ("https://locks.example/", &[][..], None, 200),
        ("https://evil.example/", &["locks.example"][..], None, 421),
        ("https://locks.example/", &["evil.example"][..], None, 421),
        ("/", &["locks.example", "evil.example"][..], None, 421),
        ("/", &[][..], None, 421),
    ] {
        let (answered, said) = ask(uri, hosts, local).await;
        assert_eq!(answered, status, "{uri} {hosts:?} {local:?}: {said}");
    }
    let attack = format!("<script>{}", "a".repeat(5000));
    let (status, said) = ask("/", &[&attack], None).await;
    assert_eq!(status, 421);
    assert!(
        said.contains("--web-hosts") && !said.contains("<script>a") && said.len() < 5000,
        "{said}"
    );
}

#[tokio::test]
async fn a_search_is_as_long_as_its_field() {
    let browser = World::new().await.browser().await;
    let long = "a".repeat(60_000);
    for path in ["/repos", "/api/repos"] {
        assert_eq!(
            browser
                .get(&format!("{path}?q={}", "ü".repeat(200)))
                .await
                .status,
            StatusCode::OK
        );
        let answer = browser.get(&format!("{path}?q={long}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
        assert!(
            answer.body.contains("longer than 200 characters"),
            "{}",
            answer.body
        );
    }
    for path in [
        "/",
        "/locks",
        "/lock",
        "/audit",
        "/claims",
        "/api/audit",
        "/api/locks",
    ] {
        for name in ["q", "id", "owner", "url", "lock", "after", "state"] {
            let status = browser.get(&format!("{path}?{name}={long}")).await.status;
            assert!(!status.is_server_error(), "{path}?{name}: {status}");
        }
    }
}

fn client(from: Option<IpAddr>) -> Client {
    let client = Client::builder()
        .no_proxy()
        .local_address(from)
        .redirect(reqwest::redirect::Policy::none());
    client.build().unwrap()
}

/// An attacker once applied a branch in this way with `curl` alone, against a server with the default settings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_anonymous_visitor_applies_nothing_and_reads_no_output() {
    let code = "resource \"terraform_data\" \"x\" {\n  input = \"printed-by-a-run\"\n}\n";
    let program =
        Program::start_with(ordinary(), |files| vec![("main.tf", files.backend("root"))]).await;
    let pull = program.open("feature", &[("x.tf", code)]).await;
    program
        .answer(pull)
        .await
        .is("autoplan success | . default planned")
        .says(PRINTED);
    let (client, url) = (client(None), program.server.url().to_owned());
    let get = async |path: &str, host: Option<&str>| {
        let mut request = client
            .get(format!("{url}{path}"))
            .header("accept", "text/html");
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };

    let (status, home) = get("/", None).await;
    let run = home
        .split_once("/jobs/")
        .unwrap()
        .1
        .split_once('"')
        .unwrap()
        .0
        .to_owned();
    assert!(
        status == 200 && !home.contains("<form method=\"post\""),
        "{home}"
    );
    let (status, page) = get(&format!("/jobs/{run}"), None).await;
    assert!(
        status == 200
            && !page.contains(PRINTED)
            && page.contains("Sign in to see the output of runs"),
        "{page}"
    );
    for path in [
        &format!("/jobs/{run}/output.txt"),
        &format!("/jobs/{run}/events"),
        &format!("/api/runs/{run}/policies"),
        "/owners",
        "/audit",
        "/operations",
    ] {
        let (status, said) = get(path, None).await;
        assert!(
            status == 403 && !said.contains(PRINTED) && said.contains("LOCKKEEPER_WEB_PASSWORD"),
            "{path}: {said}"
        );
    }
    for (path, form) in [
        ("/owners", "name=mallory"),
        (
            "/owners/mallory/apps",
            "url=https%3A%2F%2Fgithub.test%2Facme%2Finfra&branch=feature",
        ),
        ("/apply-lock/stop", "reason=x"),
    ] {
        for (host, expected) in [("evil.example:4141", 421), ("127.0.0.1", 403)] {
            let request = client.post(format!("{url}{path}")).header("host", host);
            let request = request
                .header("origin", format!("http://{host}"))
                .header("sec-fetch-site", "same-origin");
            let request = request.header("content-type", "application/x-www-form-urlencoded");
            let answer = request.body(form).send().await.unwrap();
            assert_eq!(answer.status(), expected, "{path} of {host}");
        }
    }
    assert_eq!(get("/", Some("evil.example")).await.0, 421);
    assert_eq!(
        get("/healthz", Some("10.0.0.1:4141")).await.0,
        200,
        "probes ask by any address"
    );

    let store = program.store().await;
    assert_eq!(
        (
            store.owner_list().await.unwrap().len(),
            stopped(&store).await
        ),
        (0, None)
    );
    store.close().await;
    program
        .server
        .logged("The pages and the API do not require a password, so they are read-only")
        .await;
    program.finish(&["#1 . default"]).await;
}

/// Without a limit, thousands of passwords per second could be tried. The clock is the real one, so some more than
/// the free ones get through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_guessed_slowly_and_who_knows_it_gets_in() {
    const GUESSES: usize = 2000;
    let settings = ordinary()
        .flag("--web-basic-auth")
        .flag("--web-username=ops");
    let settings = settings.variable("LOCKKEEPER_WEB_PASSWORD", "correct horse battery");
    let program = Program::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let pull = program.open("feature", &[("main.tf", "# changed\n")]).await;
    program
        .answer(pull)
        .await
        .is("autoplan success | . default no_changes");
    let url = program.server.url().to_owned();
    let (mallory, kim) = (
        client(None),
        client(Some(Ipv4Addr::new(127, 0, 0, 2).into())),
    );
    let guess = async |client: &Client, path: &str, password: &str| {
        let answer = client
            .get(format!("{url}{path}"))
            .basic_auth("ops", Some(password))
            .send()
            .await
            .unwrap();
        let wait = answer
            .headers()
            .get("retry-after")
            .and_then(|wait| wait.to_str().ok()?.parse::<u64>().ok());
        (answer.status().as_u16(), wait, answer.text().await.unwrap())
    };
    let (mut looked_at, mut longest) = (0, 0);
    let all = async {
        for number in 0..GUESSES {
            let (status, wait, _) = guess(&mallory, "/", &format!("guess {number}")).await;
            assert!(
                (status == 429) == wait.is_some() && [401, 429].contains(&status),
                "{status} {wait:?}"
            );
            looked_at += usize::from(status == 401);
            longest = longest.max(wait.unwrap_or_default());
        }
    };
    within("the guesses", all).await;
    // Sixteen checked passwords take at least a minute.
    let free = usize::try_from(FREE_FAILURES).unwrap();
    assert!(
        (free..=free + 6).contains(&looked_at) && longest >= 1,
        "{looked_at} were looked at, {longest} s"
    );
    assert_eq!(
        guess(&mallory, "/", "correct horse battery").await.0,
        429,
        "not even the right one is looked at"
    );
    let (status, _, said) = guess(&mallory, "/status", "correct horse battery").await;
    assert!(
        status == 200 && !said.contains("version"),
        "it does not tell right from wrong either: {said}"
    );
    assert_eq!(guess(&kim, "/", "correct horse battery").await.0, 200);
    let log = program.server.log();
    let told = log.matches("Wrong user name or password").count();
    assert!(
        told == looked_at && !log.contains("guess 1"),
        "{told} lines"
    );
    program.finish(&["#1 . default"]).await;
}

#[tokio::test]
async fn guesses_from_everywhere_lock_out_nobody_who_works_here() {
    use axum::extract::ConnectInfo;
    use std::net::SocketAddr;
    let world = World::new().await;
    let browser = world.browser().await;
    let ask = async |address: [u8; 4], browser: &Browser| {
        let mut request = browser.request("GET", "/").body(Body::empty()).unwrap();
        request
            .extensions_mut()
            .insert(ConnectInfo(SocketAddr::from((address, 50_000))));
        browser.send(request).await.status.as_u16()
    };
    assert_eq!(ask([198, 51, 100, 7], &browser).await, 200);
    let wrong = browser.signed_in("ops", "wrong password, wrong person");
    let mut looked_at = 0;
    for bot in 0..400_u16 {
        let [high, low] = bot.to_be_bytes();
        looked_at += i32::from(ask([10, 0, high, low], &wrong).await == 401);
    }
    assert_eq!(looked_at, FAILURE_BURST);
    assert_eq!(
        ask([203, 0, 113, 9], &browser).await,
        429,
        "an address that nobody knows waits"
    );
    assert_eq!(ask([198, 51, 100, 7], &browser).await, 200);
    world.wait(3);
    assert_eq!(
        ask([203, 0, 113, 9], &browser).await,
        200,
        "but not for long"
    );
}

/// Actions that the administrator may not allow to everybody are refused before the port is open.
#[test]
fn changes_for_everybody_have_to_be_wanted() {
    let server = |flags: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let data = format!("--data-dir={}", dir.path().display());
        let usual = [
            "server",
            "--repo-allowlist=github.com/acme/*",
            "--gh-user=bot",
            "--bind-address=127.0.0.1",
            &data,
        ];
        let secrets = [
            ("LOCKKEEPER_GH_TOKEN", "x"),
            ("LOCKKEEPER_GH_WEBHOOK_SECRET", "0123456789abcdef"),
        ];
        let args = [&usual[..], flags].concat();
        let said = crate::support::program::run(
            env!("CARGO_BIN_EXE_lockkeeper"),
            dir.path(),
            &args,
            &secrets,
        );
        assert_ne!(said.code, 0, "{}", said.err);
        said.err
    };
    for (flags, words) in [
        (
            &["--web-allow=discard"][..],
            "so everyone who can reach them could use these actions",
        ),
        (&["--web-allow=all"], "--allow-anonymous-web"),
        (
            &["--web-allow=discard,apply", "--allow-anonymous-web"],
            "names `apply` without a password",
        ),
        (
            &["--web-allow=all", "--allow-anonymous-web"],
            "`cancel_force`",
        ),
        (&["--allow-anonymous-web"], "--web-allow names no actions"),
        (
            &["--web-basic-auth", "--web-password=short"],
            "5 characters long",
        ),
        (
            &["--web-hosts=https://x.example"],
            "is neither a host name nor an address",
        ),
    ] {
        let said = server(flags);
        assert!(said.contains(words), "{flags:?}: {said}");
    }
}
