//! Scripts that invite, join and change other deployments, with the rules and reasons of the command line.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lockkeeper::features::registry::{PeerState, Visibility};
use lockkeeper::model::{LockEventKind, Origin};
use lockkeeper::secret::Secret;
use lockkeeper_registry::signed_note::NoteSigner;
use serde_json::{Value, json};

use super::deployments::{Answered, Deployment, name};
use super::pages::{SIGNED_IN, page, text};
use super::peers::{MODULE, VPC};
use super::people_api::{KIM, LEE, OPS, json as read, script, signed};
use super::world::{RegistryAdmin, by_ops};
use crate::support::db::{TestDb, store_test};
use crate::support::program::lockkeeper;

store_test!(
    a_script_invites_joins_and_changes_deployments,
    open_invitations_are_listed_and_withdrawn,
    the_command_line_lists_and_withdraws_invitations,
    a_script_is_told_what_is_wrong_with_a_change,
    what_another_service_answers_is_not_shown_with_a_peer,
    what_another_service_answers_to_a_join_is_not_shown,
    a_script_is_told_that_only_the_other_side_has_joined,
    a_server_joins_two_deployments_at_a_time,
    changes_of_peers_are_for_permitted_scripts_of_the_whole_server,
    a_script_does_not_name_deployments_on_this_machine,
);

const ONE: &str = "one.example.com";
const TWO: &str = "two.example.com";
const PEERS: &str = "/api/registry/peers";
const INVITATIONS: &str = "/api/registry/invitations";

/// Opens a deployment whose scripts may change what is exchanged with others.
async fn open(db: &TestDb, name: &str) -> Deployment {
    let flags = [&SIGNED_IN[..], &[("web-allow", "all,peers")]].concat();
    Deployment::open(db.backend, name, &flags).await
}

/// Sends a request of an administrator's script. Returns the status and the answer.
async fn sent(at: &Deployment, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let answer = script(&at.server, method, path, OPS, &body.to_string()).await;
    let told = serde_json::from_str(answer.text()).unwrap();
    (answer.status.as_u16(), told)
}

async fn post(at: &Deployment, path: &str, body: &Value) -> (u16, Value) {
    sent(at, Method::POST, path, body).await
}

async fn a_script_invites_joins_and_changes_deployments(db: &TestDb) {
    let one = open(db, ONE).await;
    let two = open(db, TWO).await;
    for (at, namespace) in [(&one, "module acme"), (&two, "module two")] {
        at.admin.namespace(namespace, Visibility::Public).await;
    }
    let body = json!({
        "url": two.url,
        "share": ["module acme/*"],
        "accept": ["module two/*"],
        "expires": "12h",
    });
    let body = body.to_string();
    let answer = script(&one.server, Method::POST, INVITATIONS, OPS, &body).await;
    assert_eq!(answer.status.as_u16(), 201, "{}", answer.text());
    assert_eq!(answer.header("cache-control"), "no-store");
    let invited: Value = serde_json::from_str(answer.text()).unwrap();
    let word = invited["word"].as_str().unwrap();
    assert!(word.starts_with("lki_"), "{invited}");
    let listed = read(&one.server, PEERS, OPS).await;
    assert_eq!(listed["fingerprint"], invited["fingerprint"]);

    let request = json!({
        "url": one.url,
        "word": word,
        "share": ["module two/*"],
        "accept": ["module acme/*"],
        "visibility": "owner",
    });
    let (status, joined) = post(&two, PEERS, &request).await;
    assert_eq!(status, 201, "{joined}");
    assert_eq!(
        (&joined["name"], &joined["state"], &joined["visibility"]),
        (&ONE.into(), &"joined".into(), &"owner".into())
    );
    assert_eq!(one.state(TWO).await, PeerState::Joined);
    let mut shown = read(&two.server, &format!("{PEERS}/{ONE}"), OPS).await;
    let conflicts = shown.as_object_mut().unwrap().remove("conflicts");
    assert_eq!((shown, conflicts), (joined, Some(json!([]))));
    one.admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);

    let at_two = format!("{PEERS}/{TWO}");
    let terms = json!({"share": ["*"], "max_versions": 10, "max_bytes": "1GiB"});
    let (status, changed) = post(&one, &at_two, &terms).await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!(changed["shares"], json!(["*"]));
    assert_eq!(changed["accepts"], json!(["module two/*"]));
    assert_eq!(
        (&changed["max_versions"], &changed["max_bytes"]),
        (&10.into(), &(1 << 30).into())
    );
    let (status, changed) = post(&one, &at_two, &json!({"share": []})).await;
    assert_eq!((status, &changed["shares"]), (200, &json!([])));

    let none = json!({});
    let (suspend, resume) = (format!("{at_two}/suspend"), format!("{at_two}/resume"));
    for (method, path, status, said) in [
        (Method::POST, &suspend, 200, "suspended"),
        (
            Method::POST,
            &suspend,
            409,
            "two.example.com is suspended, so this has no effect. Nothing was changed.",
        ),
        (Method::POST, &resume, 200, "joined"),
        (
            Method::POST,
            &resume,
            409,
            "two.example.com is joined, so this has no effect. Nothing was changed.",
        ),
        (Method::DELETE, &at_two, 200, "removed"),
        (
            Method::DELETE,
            &at_two,
            409,
            "two.example.com is removed, so this has no effect. Nothing was changed.",
        ),
    ] {
        let (found, told) = sent(&one, method, path, &none).await;
        let field = if status == 200 { "state" } else { "detail" };
        assert_eq!((found, &told[field]), (status, &said.into()), "{path}");
    }
    let on_terminal = lockkeeper(&["registry", "peers", "resume", TWO], &one.db.url, &[], &[]);
    assert_eq!(
        on_terminal.err,
        "error: two.example.com is removed, so this has no effect. Nothing was changed\n"
    );

    let three = "three.example.com";
    let signer = NoteSigner::from_seed(three, &[7; 32]).unwrap();
    let url = format!("https://{three}").parse().unwrap();
    let proposed = [(url, signer.verifier().clone())];
    let by = name(TWO);
    let proposed = one.store().registry_peers_propose(&by, &proposed);
    assert_eq!(proposed.await.unwrap(), 1);
    let approve = format!("{PEERS}/{three}/approve");
    let (status, told) = post(&one, &approve, &json!({"accept": ["module three/*"]})).await;
    assert_eq!((status, &told["state"]), (200, &"approved".into()));
    assert_eq!(told["accepts"], json!(["module three/*"]));

    // The audit log has who did it.
    let events = one.store().lock_event_list(100).await.unwrap();
    let of_script = events.iter().rev().filter(|event| {
        event.event.kind == LockEventKind::RegistryPeerChanged
            && event.event.cause.actor.login == "ops"
    });
    let reasons = of_script.map(|event| {
        assert_eq!(event.event.cause.actor.origin, Origin::Api);
        let reason = &event.event.cause.reason;
        reason.replace(&two.url.to_string(), "its address")
    });
    let reasons: Vec<String> = reasons.collect();
    assert_eq!(
        reasons,
        [
            "invited its address: share module acme/*; accept module two/*; visibility public (by a script)",
            "two.example.com changed: share module acme/* -> *; max_versions 20000 -> 10; \
             max_bytes 107374182400 -> 1073741824 (by a script)",
            "two.example.com changed: share * -> nothing (by a script)",
            "two.example.com suspended (by a script)",
            "two.example.com joined (by a script)",
            "two.example.com removed (by a script)",
            "three.example.com approved: accept module three/* (by a script)",
        ]
    );
    let events = two.store().lock_event_list(100).await.unwrap();
    let mut reasons = events.iter().map(|event| &event.event.cause.reason);
    let joined = "one.example.com joined: share module two/*; accept module acme/*; visibility owner (by a script)";
    assert!(reasons.any(|reason| reason == joined), "{events:?}");
}

async fn open_invitations_are_listed_and_withdrawn(db: &TestDb) {
    let one = open(db, ONE).await;
    let two = open(db, TWO).await;
    for at in [&one, &two] {
        // Answers have whole seconds.
        at.db.clock.advance(Duration::from_micros(1_500));
    }
    let three = "https://three.example.com";
    let invited = async |body: Value| {
        let (status, invited) = post(&one, INVITATIONS, &body).await;
        assert_eq!(status, 201, "{invited}");
        let field = |name: &str| invited[name].as_str().unwrap().to_owned();
        (field("id"), field("word"))
    };
    let (of_two, word) = invited(json!({"url": two.url, "share": ["*"]})).await;
    let terms = json!({
        "url": three, "accept": ["module three/*"], "visibility": "owner", "expires": "12h",
    });
    let (of_three, _) = invited(terms).await;
    let open_ones = async || read(&one.server, INVITATIONS, OPS).await["invitations"].clone();
    let listed = open_ones().await;
    let expected = json!([
        {
            "id": of_three,
            "url": three,
            "shares": [],
            "accepts": ["module three/*"],
            "visibility": "owner",
            "created_by": "ops",
            "created_at": "2026-03-02T09:00:00Z",
            "expires_at": "2026-03-02T21:00:00Z",
        },
        {
            "id": of_two,
            "url": two.url,
            "shares": ["*"],
            "accepts": [],
            "visibility": "public",
            "created_by": "ops",
            "created_at": "2026-03-02T09:00:00Z",
            "expires_at": "2026-03-03T09:00:00Z",
        },
    ]);
    assert_eq!(listed, expected);
    let shown = page(&one.server, "/registry/peers", Some(OPS)).await;
    let on_page = text(shown.text());
    for part in [
        "Open invitations 2\n",
        &format!("{three}\n{of_three}\n"),
        "reads: nothing\ncounts for: module three/*\nvisibility: owner\n",
        "reads: *\ncounts for: nothing\nvisibility: public\n",
    ] {
        assert!(on_page.contains(part), "{part}: {on_page}");
    }
    assert!(!shown.text().contains("lki_") && !shown.text().contains(&word));

    // A word that was withdrawn joins nobody.
    let none = json!({});
    for (id, invitation) in [(&of_three, &expected[0]), (&of_two, &expected[1])] {
        let path = format!("{INVITATIONS}/{id}");
        let (status, withdrawn) = sent(&one, Method::DELETE, &path, &none).await;
        assert_eq!((status, &withdrawn), (200, invitation));
    }
    let request = json!({"url": one.url, "word": word});
    let (status, told) = post(&two, PEERS, &request).await;
    assert_eq!(status, 502, "{told}");
    let detail = told["detail"].as_str().unwrap();
    assert!(
        detail.contains("there is no invitation with this word"),
        "{told}"
    );
    assert_eq!(open_ones().await, json!([]));
    for id in [of_three.as_str(), "none"] {
        let path = format!("{INVITATIONS}/{id}");
        let (status, told) = sent(&one, Method::DELETE, &path, &none).await;
        let detail = format!(
            "There is no open invitation {id}. GET {INVITATIONS} lists all of them. Nothing was changed."
        );
        assert_eq!((status, &told["detail"]), (404, &detail.into()));
    }
    let events = one.store().lock_event_list(100).await.unwrap();
    let mut reasons = events.iter().map(|event| &event.event.cause.reason);
    let withdrawn = format!("withdrew the invitation of {three} (by a script)");
    assert!(reasons.any(|reason| *reason == withdrawn), "{events:?}");

    // Neither does one that has expired or was used.
    let (_, word) = invited(json!({"url": two.url, "expires": "1h"})).await;
    invited(json!({"url": two.url, "expires": "30m"})).await;
    one.db.clock.advance(Duration::from_mins(30));
    assert_eq!(open_ones().await.as_array().unwrap().len(), 1);
    let request = json!({"url": one.url, "word": word});
    let (status, told) = post(&two, PEERS, &request).await;
    assert_eq!(status, 201, "{told}");
    assert_eq!(told["state_since"], "2026-03-02T09:00:00Z");
    assert_eq!(open_ones().await, json!([]));
}

async fn the_command_line_lists_and_withdraws_invitations(db: &TestDb) {
    let one = open(db, ONE).await;
    let run = |command: &[&str], args: &[&str]| {
        let command = [&["registry", "peers"], command].concat();
        lockkeeper(&command, &one.db.url, args, &[])
    };
    let none = run(&["invitations"], &[]);
    assert_eq!(
        (none.code, none.out.as_str()),
        (0, "There are no open invitations.\n")
    );
    let terms = [
        "--url",
        "https://two.example.com",
        "--accept",
        "module two/*",
    ];
    let invited = run(&["invite"], &[&terms[..], &["--json"]].concat());
    assert_eq!(invited.code, 0, "{}", invited.err);
    let invited: Value = serde_json::from_str(&invited.out).unwrap();
    let id = invited["id"].as_str().unwrap();

    let shown = run(&["invitations"], &[]);
    let (begin, end) = (
        format!("{id} for https://two.example.com: invited by "),
        "; share nothing; accept module two/*; visibility public\n",
    );
    let is_line = shown.out.starts_with(&begin) && shown.out.ends_with(end);
    assert!(
        is_line && shown.out.contains(", ends at 2"),
        "{}",
        shown.out
    );
    let listed = run(&["invitations"], &["--json"]);
    let withdrawn = run(&["withdraw", id], &["--json"]);
    assert_eq!((withdrawn.code, &withdrawn.out), (0, &listed.out));
    let withdrawn: Value = serde_json::from_str(&withdrawn.out).unwrap();
    assert_eq!(
        (&withdrawn["id"], &withdrawn["word"]),
        (&id.into(), &Value::Null)
    );

    let again = run(&["withdraw", id], &[]);
    let refused = format!(
        "error: there is no open invitation {id}. `lockkeeper registry peers invitations` lists all of them\n"
    );
    assert_eq!((again.code, again.err), (1, refused));
    assert_eq!(run(&["withdraw", "x"], &[]).code, 2);
    assert_eq!(run(&["invitations"], &["--json"]).out, "");
}

async fn a_script_is_told_what_is_wrong_with_a_change(db: &TestDb) {
    let one = open(db, ONE).await;
    let two = open(db, TWO).await;
    two.join(&one, "module two/*", "module acme/*").await;
    let before = one.peer(TWO).await;
    let at_two = format!("{PEERS}/{TWO}");
    let approve = format!("{at_two}/approve");
    let (at_two, approve, none) = (at_two.as_str(), approve.as_str(), json!({}));
    for (path, body, field) in [
        (INVITATIONS, json!({"share": ["*"]}), "url"),
        (INVITATIONS, json!({"url": "ftp://mods.example.com"}), "url"),
        (
            INVITATIONS,
            json!({"url": "https://mods.example.com", "expires": "soon"}),
            "expires",
        ),
        (
            INVITATIONS,
            json!({"url": "https://mods.example.com", "expires": "8d"}),
            "expires",
        ),
        (PEERS, json!({"word": "lki_x"}), "url"),
        (PEERS, json!({"url": two.url, "word": "lki_x"}), "word"),
        (at_two, json!({"share": ["acme"]}), "share"),
        (at_two, json!({"accept": "*"}), "accept"),
        (at_two, json!({"visibility": "all"}), "visibility"),
        (
            at_two,
            json!({"max_versions": 2_000_000_000}),
            "max_versions",
        ),
        (at_two, json!({"max_bytes": "10"}), "max_bytes"),
        (approve, none.clone(), "accept"),
    ] {
        let (status, told) = post(&one, path, &body).await;
        assert_eq!(
            (status, &told["field"]),
            (422, &field.into()),
            "{path} {body}: {told}"
        );
    }
    let own = json!({"url": format!("https://{ONE}/"), "share": ["*"]});
    let (status, told) = post(&one, INVITATIONS, &own).await;
    assert_eq!((status, &told["field"]), (422, &"url".into()), "{told}");
    assert_eq!(
        told["detail"],
        "The field “url” cannot be used: it is the address of this deployment itself. Nothing was changed."
    );
    // An invitation requires an address, so nobody can leave out a wrong one.
    let (_, told) = post(&one, INVITATIONS, &json!({"url": "ftp://mods.example.com"})).await;
    assert_eq!(
        told["way_out"],
        "Give the expected value, or leave the field out if it is not required."
    );
    let (status, told) = post(&one, at_two, &none).await;
    assert_eq!(status, 422, "{told}");
    assert_eq!(
        told["detail"],
        "The body has no change. Nothing was changed."
    );
    // Only an approval has names.
    let suspend = format!("{at_two}/suspend");
    let (status, told) = post(&one, &suspend, &json!({"accept": ["*"]})).await;
    assert!([400, 422].contains(&status), "{told}");
    let approval = json!({"accept": ["*"]});
    for (path, body, detail) in [
        (
            approve,
            &approval,
            "There is no such proposal: two.example.com.",
        ),
        (
            "/api/registry/peers/none.example.com/suspend",
            &none,
            "There is no such peer: none.example.com.",
        ),
        (
            "/api/registry/peers/NONE/resume",
            &none,
            "There is no such peer: NONE.",
        ),
    ] {
        let (status, told) = post(&one, path, body).await;
        let detail =
            format!("{detail} GET /api/registry/peers lists all of them. Nothing was changed.");
        assert_eq!((status, &told["detail"]), (404, &detail.into()));
    }
    let answer = page(&one.server, &format!("{PEERS}/none"), Some(OPS)).await;
    assert_eq!(answer.status.as_u16(), 404, "{}", answer.text());

    // What the other deployment says is passed on, and nothing is stored here.
    let word = two.invite(&one, "*", "*").await;
    let mut request = json!({"url": two.url, "word": word.expose()});
    two.reachable(false);
    let (status, told) = post(&one, PEERS, &request).await;
    assert_eq!(status, 502, "{told}");
    let unknown =
        "The address does not answer as a deployment does. The log of this server has the details.";
    assert_eq!(told["detail"], unknown);
    two.reachable(true);
    // It could be the address of another service, whose answers are not for scripts.
    for (status, body) in [(403, "the key is hunter2"), (200, "\"hunter2\""), (500, "")] {
        two.tamper(move |_, _| Answered {
            status: StatusCode::from_u16(status).unwrap(),
            body: Bytes::from_static(body.as_bytes()),
        });
        let (found, told) = post(&one, PEERS, &request).await;
        assert_eq!((found, &told["detail"]), (502, &unknown.into()), "{status}");
        assert!(!told.to_string().contains("hunter2"), "{told}");
    }
    two.honest();
    request["word"] = format!("lki_{}", "x".repeat(43)).into();
    let (status, told) = post(&one, PEERS, &request).await;
    assert_eq!(status, 502, "{told}");
    let detail = told["detail"].as_str().unwrap();
    let expected = "It answers with 403 Forbidden: there is no invitation with this word.";
    assert!(detail.starts_with(expected), "{told}");
    let after = one.peer(TWO).await;
    assert_eq!(
        (after.state, after.shares, after.accepts, after.limits),
        (before.state, before.shares, before.accepts, before.limits)
    );
}

async fn what_another_service_answers_is_not_shown_with_a_peer(db: &TestDb) {
    let one = open(db, ONE).await;
    let two = Deployment::open(db.backend, TWO, &[]).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    one.admin.publish(VPC, &MODULE).await;
    let at_two = format!("{PEERS}/{TWO}");
    let told = async |field: &str| read(&one.server, &at_two, OPS).await[field].clone();
    for (status, body, error) in [
        (403, "the key is hunter2", "it answers with 403 Forbidden"),
        (
            404,
            "{\"detail\": \"hunter2\"}",
            "it answers with 404 Not Found",
        ),
        (
            200,
            "\"hunter2\"",
            "the page is refused: it is not the JSON of a page (line 1, column",
        ),
    ] {
        two.tamper(move |_, _| Answered {
            status: StatusCode::from_u16(status).unwrap(),
            body: Bytes::from_static(body.as_bytes()),
        });
        assert_eq!(one.pull().await, 0);
        let shown = told("error").await;
        let shown = shown.as_str().unwrap();
        assert!(shown.starts_with(error), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    two.tamper(|_, _| Answered {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        body: Bytes::from_static(b"hunter2"),
    });
    assert_eq!(one.push().await, 0);
    let why = "it answers with 500 Internal Server Error";
    assert_eq!(told("push_error").await, why);
    let shown = page(&one.server, "/registry/peers", Some(OPS)).await;
    assert!(!shown.text().contains("hunter2"), "{}", shown.text());

    // The reason of a deployment is shown.
    two.honest();
    assert!(two.turn(ONE, PeerState::Joined, PeerState::Suspended).await);
    assert_eq!(one.pull().await, 0);
    let why = "it answers with 403 Forbidden: An administrator of this deployment has stopped the exchange.";
    assert_eq!(told("error").await, why);
}

async fn what_another_service_answers_to_a_join_is_not_shown(db: &TestDb) {
    let one = open(db, ONE).await;
    let two = open(db, TWO).await;
    let word = two.invite(&one, "*", "*").await;
    let begin = "the address does not answer as a deployment does: ";
    for (status, body, said) in [
        (
            404,
            "{\"title\": \"Page not found\", \"detail\": \"hunter2\"}",
            "it answers with 404 Not Found. Check the address",
        ),
        (
            403,
            "hunter2",
            "it answers with 403 Forbidden. Check the address",
        ),
        (
            200,
            "\"hunter2\"",
            "its answer cannot be read (line 1, column ",
        ),
    ] {
        two.tamper(move |_, _| Answered {
            status: StatusCode::from_u16(status).unwrap(),
            body: Bytes::from_static(body.as_bytes()),
        });
        let request = Deployment::request(&two, &word, "*", "*");
        let refused = one.peers.join(request, &by_ops()).await.unwrap();
        let refused = refused.unwrap_err().to_string();
        let rest = refused.strip_prefix(begin).unwrap_or_default();
        assert!(rest.starts_with(said), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
    // The reason of a deployment is shown.
    two.honest();
    let mut request = Deployment::request(&two, &word, "*", "*");
    request.word = Secret::new(&format!("lki_{}", "x".repeat(43)));
    let refused = one.peers.join(request, &by_ops()).await.unwrap();
    assert_eq!(
        refused.unwrap_err().to_string(),
        "it answers with 403 Forbidden: there is no invitation with this word. It was used, or it has expired. Ask for \
         another one"
    );
}

async fn a_script_is_told_that_only_the_other_side_has_joined(db: &TestDb) {
    let two = open(db, TWO).await;
    let first = Deployment::open(db.backend, ONE, &[]).await;
    two.join(&first, "*", "*").await;
    // It was set up again with its name, so it has another key.
    let again = Deployment::open(db.backend, ONE, &[]).await;
    let word = again.invite(&two, "*", "*").await;
    let request = json!({"url": again.url, "word": word.expose()});
    let (status, told) = post(&two, PEERS, &request).await;
    assert_eq!((status, &told["reason"]), (409, &"not_joined".into()));
    let detail = "one.example.com belongs to a peer with another key here, even after that peer was removed. The other \
                  deployment has used the word, and may list this one as joined already. Ask it for another word before \
                  you try again.";
    assert_eq!(told["detail"], detail);
    assert_eq!(again.state(TWO).await, PeerState::Joined);
    assert_eq!(two.peer(ONE).await.url, first.url);
}

async fn a_server_joins_two_deployments_at_a_time(db: &TestDb) {
    let one = open(db, ONE).await;
    let two = open(db, TWO).await;
    let mut requests = Vec::new();
    for _ in 0..2 {
        let word = one.invite(&two, "*", "*").await;
        requests.push(json!({"url": one.url, "word": word.expose()}));
    }
    let gate = one.hold("peer/v1/join");
    let third = async {
        gate.arrived(2).await;
        let third = post(&two, PEERS, &requests[0]).await;
        gate.open();
        third
    };
    let (first, second, (status, told)) = tokio::join!(
        post(&two, PEERS, &requests[0]),
        post(&two, PEERS, &requests[1]),
        third
    );
    assert_eq!((first.0, second.0), (201, 201), "{} {}", first.1, second.1);
    assert_eq!((status, &told["reason"]), (503, &"busy".into()));
    assert_eq!(
        told["detail"],
        "The server joins other deployments for other requests at this moment. Nothing was changed."
    );
}

async fn a_script_does_not_name_deployments_on_this_machine(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    let flags = [&SIGNED_IN[..], &[("web-allow", "all,peers")]].concat();
    let server = admin.server(db, 1, &flags).await;
    for path in [INVITATIONS, PEERS] {
        let body = json!({"url": "http://127.0.0.1:9"}).to_string();
        let answer = script(&server, Method::POST, path, OPS, &body).await;
        assert_eq!(answer.status.as_u16(), 422, "{}", answer.text());
        let told: Value = serde_json::from_str(answer.text()).unwrap();
        assert_eq!(
            told["detail"],
            "The field “url” cannot be used: it does not begin with https, and only the command line names deployments on \
             the same machine. Nothing was changed."
        );
    }
}

async fn changes_of_peers_are_for_permitted_scripts_of_the_whole_server(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    let server = signed(&admin, db).await;
    let flags = [&SIGNED_IN[..], &[("web-allow", "owners,discard")]].concat();
    let narrow = admin.server(db, 2, &flags).await;
    let closed = admin.server(db, 3, &[]).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let bearer = format!("Bearer {token}");
    let basic = format!("Basic {}", STANDARD.encode(OPS));
    let changes = lockkeeper::http::routes().into_iter().filter(|route| {
        let is_of_peers = [PEERS, INVITATIONS]
            .iter()
            .any(|path| route.path.starts_with(path));
        is_of_peers && route.method != Method::GET
    });
    let changes: Vec<_> = changes.collect();
    assert_eq!(changes.len(), 8, "{changes:?}");
    for route in changes {
        let path = route.path.replace("{name}", TWO).replace("{id}", "none");
        let method = route.method;
        for (server, who, status) in [
            (&server, KIM, 403),
            (&server, LEE, 403),
            (&server, "ops:wrong", 401),
            (&narrow, OPS, 403),
            // The default of --web-allow is `all`.
            (&server, OPS, 403),
        ] {
            let answer = script(server, method.clone(), &path, who, "").await;
            let found = answer.status.as_u16();
            assert_eq!(found, status, "{method} {path} {who}: {}", answer.text());
            if who == KIM {
                let denied =
                    "“kim” may not do this: this account is limited to the resources of “net”, and";
                assert!(answer.text().contains(denied), "{}", answer.text());
            }
            if who == OPS {
                let denied = "“peers” is not allowed. An administrator can add “peers” to the list: “all” does not include it.";
                assert!(answer.text().contains(denied), "{}", answer.text());
            }
        }
        for (server, headers, status) in [
            // A browser sends the password also for pages of others.
            (
                &server,
                vec![
                    ("authorization", basic.as_str()),
                    ("sec-fetch-site", "cross-site"),
                ],
                403,
            ),
            (&server, vec![("authorization", bearer.as_str())], 401),
            (&server, vec![], 401),
            (&closed, vec![], 403),
        ] {
            let answer = server.request(method.clone(), &path, &headers).await;
            let found = answer.status.as_u16();
            assert_eq!(found, status, "{method} {path}: {}", answer.text());
        }
    }
    for who in [KIM, LEE] {
        let peer = format!("{PEERS}/{TWO}");
        for path in [peer.as_str(), INVITATIONS] {
            let answer = page(&server, path, Some(who)).await;
            assert_eq!(answer.status.as_u16(), 403, "{who} {path}");
        }
    }
    assert!(db.store().registry_peers().await.unwrap().is_empty());
}
