//! Stories of `lockkeeper accounts … --json`: a program reads the outcome of each command, and the API has the same.

use chrono::DateTime;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Client, KEY};
use crate::support::accounts_fixture::{ADMIN, AccountsFixture, git};
use crate::support::db::{Backend, story};
use crate::support::program::lockkeeper;

story!(
    a_change_prints_the_account_as_the_api_has_it,
    passwords_and_keys_are_printed_as_the_api_has_them,
    the_history_is_that_of_git_and_an_earlier_state_comes_back,
    accounts_come_together_and_go_and_are_printed_as_they_were,
    groups_are_printed_with_their_members,
);

/// Runs a command with `--json`. Returns the objects that it prints, one for each line.
fn outcomes(fixture: &AccountsFixture, command: &str, args: &[&str]) -> Vec<Value> {
    let said = fixture.accounts(command, &[args, &["--json"]].concat());
    assert_eq!(
        (said.code, said.err.as_str()),
        (0, ""),
        "{command} {args:?}"
    );
    let lines = said.out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Runs a command that prints one object.
fn outcome(fixture: &AccountsFixture, command: &str, args: &[&str]) -> Value {
    let mut printed = outcomes(fixture, command, args);
    assert_eq!(printed.len(), 1, "{command} {args:?}: {printed:?}");
    printed.remove(0)
}

/// Returns what the API has at a path after `/api/accounts`.
async fn answer(fixture: &AccountsFixture, path: &str) -> Value {
    let answer = Client::of(fixture, ADMIN).get(path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    answer.json()
}

async fn a_change_prints_the_account_as_the_api_has_it(backend: Backend) {
    let fixture = AccountsFixture::on(backend).await;
    let changes: [(&str, &[&str]); 7] = [
        ("create", &["jdoe", "--email", "jdoe@example.com"]),
        (
            "set",
            &["jdoe", "--full-name", "John Doe", "--status", "OOO"],
        ),
        ("link", &["jdoe", "github:583231"]),
        ("link", &["jdoe", "mailto:john@example.com"]),
        ("unlink", &["jdoe", "mailto:john@example.com"]),
        ("deactivate", &["jdoe"]),
        ("activate", &["jdoe"]),
    ];
    let mut before = Value::Null;
    for (command, args) in changes {
        let printed = outcome(&fixture, command, args);
        assert_ne!(printed, before, "{command} {args:?}");
        let detail = answer(&fixture, "/jdoe/detail").await;
        assert_eq!(printed, detail, "{command} {args:?}");
        assert_eq!(outcome(&fixture, "show", &["jdoe"]), printed);
        before = printed;
    }
    assert_eq!(before["_account_id"], 1_000_000);

    let listed = outcomes(&fixture, "list", &[]);
    assert_eq!(listed, [answer(&fixture, "/jdoe").await]);
    assert_eq!(outcomes(&fixture, "query", &["john"]), listed);
    assert_eq!(outcomes(&fixture, "query", &["zoe"]), Vec::<Value>::new());

    let checked = outcome(&fixture, "check", &[]);
    assert_eq!(
        checked,
        json!({"accounts": 1, "errors": 0, "warnings": 0, "caches": 0, "problems": []})
    );
    let database = fixture.server.database();
    let again = lockkeeper(&["reindex", "accounts"], &database, &["--json"], &[]);
    assert_eq!((again.code, again.err.as_str()), (0, ""));
    assert_eq!(
        again.json(),
        json!({"accounts": 1, "written": 0, "left": 0, "kept": [], "problems": []})
    );
    // A refusal is a sentence for people, and no outcome.
    let refused = fixture.accounts("link", &["jdoe", "username:zoe", "--json"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    assert!(refused.err.contains("has 2 user names"), "{}", refused.err);
}

async fn passwords_and_keys_are_printed_as_the_api_has_them(backend: Backend) {
    let fixture = AccountsFixture::on(backend).await;
    outcome(&fixture, "create", &["jdoe", "--email", "jdoe@example.com"]);
    let mut generated = outcome(&fixture, "password", &["jdoe"]);
    let password = generated.as_object_mut().unwrap().remove("password");
    let password = password.unwrap().as_str().unwrap().to_owned();
    assert_eq!(generated, answer(&fixture, "/jdoe").await);
    let jdoe = Client::of(&fixture, &format!("jdoe:{password}"));
    let detail = jdoe.get("/self/detail").await;
    assert_eq!(detail.json(), outcome(&fixture, "show", &["jdoe"]));
    assert!(!detail.text.contains(&password), "{}", detail.text);
    assert!(!detail.text.contains("bcrypt"), "{}", detail.text);

    let mut key = outcome(&fixture, "keys", &["jdoe", "--add", KEY]);
    assert_eq!(key, answer(&fixture, "/jdoe/sshkeys/1").await);
    assert_eq!(
        (&key["ssh_public_key"], &key["valid"]),
        (&json!(KEY), &json!(true))
    );
    assert_eq!(outcomes(&fixture, "keys", &["jdoe"]), [key.clone()]);
    let deleted = outcome(&fixture, "keys", &["jdoe", "--delete", "1"]);
    key["deleted"] = json!(true);
    assert_eq!(deleted, key);
    assert_eq!(outcomes(&fixture, "keys", &["jdoe"]), Vec::<Value>::new());

    let without = outcome(&fixture, "password", &["jdoe", "--remove"]);
    assert_eq!(without, answer(&fixture, "/jdoe/detail").await);
    assert_eq!(jdoe.get("/self").await.status, StatusCode::UNAUTHORIZED);
}

async fn the_history_is_that_of_git_and_an_earlier_state_comes_back(backend: Backend) {
    let fixture = AccountsFixture::on(backend).await;
    outcome(&fixture, "create", &["jdoe", "--email", "jdoe@example.com"]);
    let away = outcome(&fixture, "set", &["jdoe", "--status", "OOO"]);
    outcome(&fixture, "set", &["jdoe", "--status", ""]);

    let history = outcomes(&fixture, "history", &["jdoe"]);
    let told = history.iter().map(|commit| {
        let text = |field: &str| commit[field].as_str().unwrap();
        let at = DateTime::parse_from_rfc3339(text("time")).unwrap();
        let (id, author, message) = (text("commit"), text("author"), text("message"));
        format!("{id} {} {author} {message}\n", at.timestamp())
    });
    let copy = fixture.mirror(ADMIN, "copy.git");
    let format = "--format=%H %ct %an <%ae> %s";
    let log = git(&copy, &["log", format, "refs/users/00/1000000"]);
    assert_eq!(told.collect::<String>(), log.out, "{}", log.err);
    assert_eq!(history.len(), 3);

    let earlier = history[1]["commit"].as_str().unwrap();
    let restored = outcome(&fixture, "restore", &["jdoe", earlier]);
    assert_eq!(restored, away);
    assert_eq!(restored, answer(&fixture, "/jdoe/detail").await);
    assert_eq!(outcomes(&fixture, "history", &["jdoe"]).len(), 4);
}

async fn accounts_come_together_and_go_and_are_printed_as_they_were(backend: Backend) {
    let fixture = AccountsFixture::on(backend).await;
    for name in ["jdoe", "john"] {
        let email = format!("{name}@example.com");
        outcome(&fixture, "create", &[name, "--email", &email]);
    }
    let merged = outcome(&fixture, "merge", &["john", "jdoe"]);
    assert_eq!(merged, answer(&fixture, "/jdoe/detail").await);
    let keys = merged["external_ids"].as_array().unwrap().iter();
    let keys: Vec<&str> = keys.map(|id| id["key"].as_str().unwrap()).collect();
    assert_eq!(
        keys,
        [
            "mailto:jdoe@example.com",
            "mailto:john@example.com",
            "username:jdoe"
        ]
    );

    let mut emptied = answer(&fixture, "/john/detail").await;
    assert_eq!(emptied["inactive"], true);
    emptied["deleted"] = json!(true);
    assert_eq!(outcome(&fixture, "delete", &["john"]), emptied);
    let gone = Client::of(&fixture, ADMIN).get("/john").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
}

async fn groups_are_printed_with_their_members(backend: Backend) {
    let fixture = AccountsFixture::on(backend).await;
    outcome(&fixture, "create", &["jdoe", "--email", "jdoe@example.com"]);
    let jdoe = json!([{"_account_id": 1_000_000, "username": "jdoe"}]);
    let night = |members: &Value| json!({"name": "Night", "members": members, "includes": []});
    let added = outcome(&fixture, "groups", &["Night", "--add", "jdoe", "--new"]);
    assert_eq!(added, night(&jdoe));
    assert_eq!(outcome(&fixture, "groups", &["Night"]), added);
    let all = outcomes(&fixture, "groups", &[]);
    assert!(all.contains(&added), "{all:?}");
    let administrators = json!({"name": "Administrators", "members": [], "includes": []});
    assert!(all.contains(&administrators), "{all:?}");
    let own = answer(&fixture, "/jdoe/groups").await;
    let own = own.as_array().unwrap();
    assert!(own.contains(&json!({"name": "Night"})), "{own:?}");
    let removed = outcome(&fixture, "groups", &["Night", "--remove", "jdoe"]);
    assert_eq!(removed, night(&json!([])));
}
