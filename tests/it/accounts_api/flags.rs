//! Stories of reviewed flags: people remember which files they have looked at.

use std::sync::Arc;

use lockkeeper::clock::{RandomIds, SystemClock};
use lockkeeper::features::accounts::{FlagTable, PatchSet, Reviewed, ReviewedFlags as _};
use lockkeeper::model::{AccountId, BranchName, CommitSha, PullHead, PullRef, Subject};
use lockkeeper::store::{DatabaseUrl, HeadUpdate, Store};
use lockkeeper_accounts::refs::ChangeNumber;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::see_pulls;
use crate::support::accounts_fixture::{ADMIN, AccountsFixture};
use crate::support::db::execute_on;

const RESOURCES: &str = "/api/plans/00000000-0000-7000-8000-000000000001/resources/";

/// Answer to a request about flags.
async fn ask(
    fixture: &AccountsFixture,
    method: Method,
    credentials: &str,
    path: &str,
) -> (StatusCode, String) {
    let answer = fixture.request(method, credentials, path).send().await;
    let answer = answer.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

async fn pushed(fixture: &AccountsFixture, digit: &str) {
    let store = fixture.store().await;
    let at = PullHead {
        head: CommitSha::new(&digit.repeat(40)).unwrap(),
        base_branch: BranchName::new("main").unwrap(),
        draft: false,
    };
    let pull = PullRef {
        repo: "github.com/acme/infra".parse().unwrap(),
        subject: Subject::pull(1),
    };
    let news = HeadUpdate::Event(Some(&at));
    assert!(store.head_note(&pull, news).await.unwrap());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_remembers_which_files_they_have_looked_at() {
    let fixture = AccountsFixture::open().await;
    let (_, kim) = fixture.person("kim");
    let (_, lee) = fixture.person("lee");
    see_pulls(&fixture, 1).await;
    let files =
        |revision: &str, rest: &str| format!("/api/changes/1/revisions/{revision}/files/{rest}");
    let (status, text) = ask(&fixture, Method::GET, &kim, &files("current", "?reviewed")).await;
    assert_eq!(status, 404, "{text}");
    assert!(text.contains("No head of the change 1 is known."), "{text}");

    pushed(&fixture, "a").await;
    for (method, path, status) in [
        (Method::PUT, "net%2Fmain.tf/reviewed", 201),
        (Method::PUT, "net%2Fmain.tf/reviewed", 200),
        (Method::PUT, "README.md/reviewed", 201),
        (Method::PUT, "old.tf/reviewed", 201),
        (Method::DELETE, "old.tf/reviewed", 204),
        (Method::DELETE, "old.tf/reviewed", 204),
    ] {
        let answer = ask(&fixture, method.clone(), &kim, &files("current", path)).await;
        assert_eq!(answer.0, status, "{method} {path}: {}", answer.1);
    }
    let listed = async |who: &str, revision: &str| {
        let (status, text) = ask(&fixture, Method::GET, who, &files(revision, "?reviewed")).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let seen = json!(["README.md", "net/main.tf"]);
    for revision in ["current", "1", &"a".repeat(40)] {
        assert_eq!(listed(&kim, revision).await, seen, "{revision}");
    }
    assert_eq!(listed(&lee, "1").await, json!([]), "flags are private");

    // A push is a new patch set, whose files nobody has looked at.
    pushed(&fixture, "b").await;
    assert_eq!(listed(&kim, "current").await, json!([]));
    assert_eq!(listed(&kim, "1").await, seen);

    let long = format!("{}/reviewed", "x".repeat(1_025));
    for (who, method, path, status, reason) in [
        (&*kim, Method::GET, files("1", ""), 400, "add `?reviewed`"),
        (&kim, Method::GET, files("3", "?reviewed"), 404, "`3`"),
        (&kim, Method::GET, files("main", "?reviewed"), 404, "`main`"),
        (
            &kim,
            Method::PUT,
            files("1", &long),
            400,
            "more than 1024 bytes",
        ),
        (
            &kim,
            Method::PUT,
            files("1", "a%00b/reviewed"),
            400,
            "control characters",
        ),
        (
            &kim,
            Method::PUT,
            "/api/changes/9/revisions/current/files/x/reviewed".to_owned(),
            404,
            "There is no change `9`.",
        ),
        (
            &kim,
            Method::PUT,
            "/api/plans/x/resources/y/reviewed".to_owned(),
            404,
            "There is no plan `x`.",
        ),
        (
            &kim,
            Method::PUT,
            format!("{RESOURCES}null_resource.x/reviewed"),
            404,
            "There is no plan `00000000-0000-7000-8000-000000000001`.",
        ),
        (
            ADMIN,
            Method::PUT,
            files("1", "x/reviewed"),
            404,
            "has no account",
        ),
        (
            "kim:wrong",
            Method::PUT,
            files("1", "x/reviewed"),
            401,
            "Sign in",
        ),
    ] {
        let answer = ask(&fixture, method.clone(), who, &path).await;
        assert_eq!(answer.0, status, "{method} {path}: {}", answer.1);
        assert!(answer.1.contains(reason), "{method} {path}: {}", answer.1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_remembers_which_resources_of_a_plan_they_have_looked_at() {
    let fixture = AccountsFixture::open().await;
    let (_, kim) = fixture.person("kim");
    let (_, lee) = fixture.person("lee");
    // Only its identifier matters here, so it has no run.
    execute_on(
        &fixture.server.database(),
        "PRAGMA foreign_keys = OFF; INSERT INTO plans (id, repo, pull, dir, workspace, name, run, head, base_branch, \
         base, distribution, tool_version, workflow, order_group, counts, state, created_at) \
         VALUES ('00000000-0000-7000-8000-000000000001', 'github.com/acme/infra', 1, 'net', 'default', '', 'run', 'a', \
         'main', 'b', 'terraform', '1.9.8', 'c', 0, '{}', 'planned', '2026-03-02T09:00:00Z')",
    )
    .await;
    let address = "module.net%5B%22a%2Fb%22%5D.aws_vpc.main/reviewed";
    for (method, path, status) in [
        (Method::PUT, address, 201),
        (Method::PUT, address, 200),
        (Method::PUT, "null_resource.x/reviewed", 201),
        (Method::DELETE, "null_resource.x/reviewed", 204),
    ] {
        let answer = ask(
            &fixture,
            method.clone(),
            &kim,
            &format!("{RESOURCES}{path}"),
        )
        .await;
        assert_eq!(answer.0, status, "{method} {path}: {}", answer.1);
    }
    let reviewed = format!("{RESOURCES}?reviewed");
    let (_, text) = ask(&fixture, Method::GET, &kim, &reviewed).await;
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        json!(["module.net[\"a/b\"].aws_vpc.main"])
    );
    let (_, text) = ask(&fixture, Method::GET, &lee, &reviewed).await;
    assert_eq!(text, "[]");

    // Somebody with too many flags finds them all, and removes them.
    see_pulls(&fixture, 1).await;
    pushed(&fixture, "a").await;
    let file = "/api/changes/1/revisions/1/files/main.tf/reviewed";
    assert_eq!(ask(&fixture, Method::PUT, &kim, file).await.0, 201);
    let counts = async |who: &str| {
        let (status, text) = ask(&fixture, Method::GET, who, "/api/reviewed/").await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let of_file = json!({"change": 1, "patch_set": 1, "flags": 1});
    let of_plan = json!({"plan": "00000000-0000-7000-8000-000000000001", "flags": 1});
    assert_eq!(counts(&kim).await, json!([of_file, of_plan]));
    assert_eq!(counts(&lee).await, json!([]));
    let cleared = ask(&fixture, Method::DELETE, &kim, &reviewed).await;
    assert_eq!(cleared.0, 204, "{}", cleared.1);
    assert_eq!(counts(&kim).await, json!([of_file]));
    let files = "/api/changes/1/revisions/1/files/";
    let unclear = ask(&fixture, Method::DELETE, &kim, files).await;
    assert_eq!(unclear.0, 400, "{}", unclear.1);
    let all = format!("{files}?reviewed");
    let cleared = ask(&fixture, Method::DELETE, &kim, &all).await;
    assert_eq!(cleared.0, 204, "{}", cleared.1);
    assert_eq!(counts(&kim).await, json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_with_plain_slashes_is_refused_with_the_way_out() {
    let fixture = AccountsFixture::open().await;
    let (_, kim) = fixture.person("kim");
    for path in [
        "/api/changes/1/revisions/1/files/net/main.tf/reviewed",
        "/api/plans/1/resources/a/b/c/reviewed",
    ] {
        for method in [Method::PUT, Method::DELETE] {
            let (status, text) = ask(&fixture, method, &kim, path).await;
            assert_eq!(status, 404, "{text}");
            assert!(text.contains("Write each `/` in it as `%2F`"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_are_in_the_database_that_is_named_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("flags.db");
    let fixture = AccountsFixture::with_flags_in(&file).await;
    let (number, kim) = fixture.person("kim");
    see_pulls(&fixture, 1).await;
    pushed(&fixture, "a").await;
    let path = "/api/changes/1/revisions/1/files/main.tf/reviewed";
    let (status, text) = ask(&fixture, Method::PUT, &kim, path).await;
    assert_eq!(status, 201, "{text}");
    let account: AccountId = number.parse().unwrap();
    let of = Reviewed::Files(PatchSet {
        change: ChangeNumber::new(1).unwrap(),
        number: 1,
    });
    let url = DatabaseUrl::Sqlite(file);
    let ids = Arc::new(RandomIds);
    let other = Store::open_reviewed_flags(&url, Arc::new(SystemClock), ids);
    let other = FlagTable::of(other.await.unwrap());
    let server = FlagTable::of(fixture.store().await);
    assert_eq!(other.flag_list(account, of).await.unwrap(), ["main.tf"]);
    assert_eq!(server.flag_list(account, of).await.unwrap(), [""; 0]);
}
