//! Tests of the three commands, one after another on a database.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::cli::tests::call;
use crate::clock::{RandomIds, SystemClock};
use crate::store::DatabaseUrl;

/// Creates a directory with an empty database.
fn data() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let url = DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db"));
    let store = block_on(Store::open(
        &url,
        Arc::new(SystemClock),
        Arc::new(RandomIds),
    ));
    drop(store.unwrap().unwrap());
    dir
}

/// Returns the exit code and the output.
fn say(dir: &tempfile::TempDir, line: &str) -> (ExitStatus, String) {
    let data = dir.path().display().to_string();
    let words: Vec<&str> = line.split(' ').chain(["--data-dir", &data]).collect();
    let (exit, out, err) = call(&words);
    (exit, format!("{out}{err}"))
}

fn object(dir: &tempfile::TempDir, line: &str) -> Value {
    let (exit, said) = say(dir, line);
    assert_eq!(exit, ExitStatus::Success, "{line}: {said}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{line}: {error}: {said}"))
}

#[test]
fn a_second_owner_is_refused_a_claimed_repository_until_it_is_let_go() {
    let dir = data();
    for name in ["net", "dns"] {
        assert_eq!(
            object(&dir, &format!("owners add {name} --json"))["name"],
            json!(name)
        );
    }
    let (exit, said) = say(&dir, "owners add NET");
    assert!(
        exit == ExitStatus::Failure
            && said.starts_with("error: owner `net` already exists, added by "),
        "{said}"
    );
    let app = object(
        &dir,
        "apps add --owner net --url git@github.com:Acme/infra.git --branch main --dir net --json",
    );
    assert_eq!(
        (&app["url"], &app["owner"]),
        (&json!("https://github.com/acme/infra"), &json!("net"))
    );
    let rival = "apps add --owner dns --url https://github.com/acme/infra/ --branch main";
    let (exit, said) = say(&dir, rival);
    assert_eq!(exit, ExitStatus::Failure);
    assert_eq!(
        said,
        "error: nothing was changed. https://github.com/acme/infra is owned by `net`. Ask that owner to remove its \
         applications and credentials for the repository; `lockkeeper claims show https://github.com/acme/infra` shows how many there are.\n"
    );
    let claim = object(&dir, "claims show ssh://git@github.com/acme/infra --json");
    assert_eq!(
        (&claim["owner"], &claim["applications"]),
        (&json!("net"), &json!(1))
    );
    assert_eq!(say(&dir, "owners remove net").0, ExitStatus::Failure);
    let id = app["id"].as_str().unwrap();
    let moved = object(
        &dir,
        &format!("apps change {id} --url https://github.com/acme/new --json"),
    );
    assert_eq!(
        (&moved["dir"], &moved["url"]),
        (&json!("net"), &json!("https://github.com/acme/new"))
    );
    assert_eq!(say(&dir, rival).0, ExitStatus::Success);
    assert_eq!(say(&dir, "claims list").1.lines().count(), 2);
    assert_eq!(
        object(&dir, "apps list --owner net --json")["id"],
        json!(id)
    );
    assert_eq!(
        object(&dir, &format!("apps remove {id} --json"))["id"],
        json!(id)
    );
    assert_eq!(say(&dir, "owners remove net").0, ExitStatus::Success);
    let (exit, said) = say(&dir, "claims show https://github.com/acme/new");
    assert_eq!(
        (exit, said.as_str()),
        (
            ExitStatus::Failure,
            "error: nobody has claimed https://github.com/acme/new\n"
        )
    );
}

#[test]
fn what_is_wrong_is_told_and_nothing_is_changed() {
    let dir = data();
    assert_eq!(say(&dir, "owners add net").0, ExitStatus::Success);
    for (line, expected, text) in [
        (
            "owners add a/b",
            ExitStatus::Usage,
            "is not the name of an owner",
        ),
        (
            "owners remove dns",
            ExitStatus::Failure,
            "error: there is no owner `dns`\n`lockkeeper owners list` lists all owners.\n",
        ),
        (
            "apps add --owner net --branch main",
            ExitStatus::Usage,
            "--url <URL>",
        ),
        (
            "apps add --owner net --url ../x --branch main",
            ExitStatus::Usage,
            "error: --url: `../x` is not the address",
        ),
        (
            "apps add --owner net --url https://github.com/a/b --branch a..b",
            ExitStatus::Usage,
            "error: --branch: ",
        ),
        (
            "apps add --owner dns --url https://github.com/a/b --branch main",
            ExitStatus::Failure,
            "There is no owner `dns`.",
        ),
        (
            "apps change x --dir a",
            ExitStatus::Usage,
            "invalid value 'x'",
        ),
        (
            "apps remove 00000000-0000-7000-8000-000000000001",
            ExitStatus::Failure,
            "error: nothing was changed. There is no application 00000000-0000-7000-8000-000000000001.",
        ),
        (
            "apps list --owner dns",
            ExitStatus::Failure,
            "there is no owner `dns`; `lockkeeper owners list` lists all owners",
        ),
        (
            "claims show infra",
            ExitStatus::Usage,
            "error: `infra` is not the address of a repository",
        ),
    ] {
        let (exit, said) = say(&dir, line);
        assert_eq!(exit, expected, "{line}: {said}");
        assert!(said.contains(text), "{line}: {said}");
    }
    assert_eq!(
        say(&dir, "apps list"),
        (
            ExitStatus::Success,
            "No projects are registered.\n".to_owned()
        )
    );
    assert_eq!(
        say(&dir, "claims list"),
        (
            ExitStatus::Success,
            "Nobody has claimed a repository.\n".to_owned()
        )
    );
}

#[test]
fn on_the_host_of_the_forge_the_case_of_names_means_nothing() {
    let dir = data();
    assert_eq!(say(&dir, "owners add net").0, ExitStatus::Success);
    let add = "apps add --owner net --url https://git.acme.com/Net/Infra --branch main --json";
    assert_eq!(
        object(&dir, add)["url"],
        json!("https://git.acme.com/Net/Infra")
    );
    let at_forge = object(&dir, &format!("{add} --gh-hostname git.acme.com"));
    assert_eq!(at_forge["url"], json!("https://git.acme.com/net/infra"));
}

#[test]
fn what_waits_is_asked_to_stop_and_a_server_ends_it() {
    let dir = data();
    assert_eq!(say(&dir, "owners add net").0, ExitStatus::Success);
    let app = object(
        &dir,
        "apps add --owner net --url https://github.com/acme/infra --branch main --dir net --json",
    );
    let id = app["id"].as_str().unwrap();
    let (exit, said) = say(&dir, &format!("apps cancel {id}"));
    assert_eq!(exit, ExitStatus::Failure);
    assert_eq!(
        said,
        format!(
            "error: nothing was changed. Application net (branch main) has no such queued or running run: it has \
             ended, or it never existed. The page of the application and `lockkeeper apps show {id}` show the results \
             of its runs.\n"
        )
    );
    let queued = object(&dir, &format!("apps plan {id} --json"));
    let (exit, said) = say(&dir, &format!("apps plan {id}"));
    assert!(
        exit == ExitStatus::Failure
            && said.contains(&format!("or with `lockkeeper apps cancel {id}`.")),
        "{said}"
    );
    assert_eq!(
        object(&dir, &format!("apps cancel {id} --json"))["id"],
        queued["id"]
    );
    let (exit, said) = say(&dir, &format!("apps cancel {id} --force"));
    assert!(
        exit == ExitStatus::Success
            && said.contains("was asked to stop. A running server ends it."),
        "{said}"
    );
    let shown = say(&dir, &format!("apps show {id}")).1;
    assert!(
        shown.contains(": queued, stopping: ")
            && shown.contains(" cancelled it on the command line"),
        "{shown}"
    );
}
