//! Tests the requests of the client, and how it reads the answers of GitHub.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::ManualClock;
use lockkeeper::forges::github::{GitHub, GitHubAuth, Timeouts, TokenSource};
use lockkeeper::forges::{
    Forge, ForgeError, HeadSource, ListedPage, OpenPulls, PageQuery, PostedComment,
};
use lockkeeper::model::{
    BranchName, CommentId, CommitSha, CommitState, CommitStatus, StatusContext, StatusTarget,
};
use lockkeeper::secret::Secret;
use serde_json::{Value, json};

use super::server::{Reply, ScriptedGitHub, anybody, endpoints, pull, start, token};

const PULL: &str = "GET /repos/acme/infra/pulls/12";

/// Returns GitHub's description of a pull request, with few of the fields that we do not read.
pub fn pull_answer() -> Value {
    let end = |branch: &str, sha: &str| {
        json!({"label": format!("acme:{branch}"), "ref": branch, "sha": sha.repeat(20),
            "repo": {"id": 1, "full_name": "Acme/Infra", "private": true}})
    };
    json!({
        "url": "https://api.github.com/repos/acme/infra/pulls/12", "id": 279_147_437, "number": 12, "state": "open",
        "html_url": "https://github.com/acme/infra/pull/12", "locked": false, "title": "Add a subnet", "body": null,
        "user": {"login": "jane-doe", "id": 21, "type": "User"}, "draft": true, "merged": false, "merged_at": null,
        "head": end("subnet", "a1"), "base": end("main", "b2"), "changed_files": 2, "mergeable_state": "clean",
    })
}

#[tokio::test]
async fn a_pull_is_read_with_the_token() {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&pull_answer()));
    let told = server.client().pull(&pull()).await.unwrap();
    insta::assert_snapshot!(
        serde_json::to_string(&told).unwrap(),
        @r#"{"at":{"repo":"github.com/acme/infra","number":12},"repo_id":1,"archived":false,"title":"Add a subnet","author":"jane-doe","url":"https://github.com/acme/infra/pull/12","head":"a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1","head_branch":"subnet","head_repo":"github.com/acme/infra","base_branch":"main","base":"b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2","state":"open","draft":true,"labels":[]}"#
    );
    let asked = &server.asked()[0];
    assert_eq!(asked.header("authorization"), "Bearer ghp_test");
    assert_eq!(asked.headers.get_all("authorization").iter().count(), 1);
    assert_eq!(asked.header("accept"), "application/vnd.github+json");
    assert_eq!(asked.header("x-github-api-version"), "2022-11-28");
    assert!(
        !asked.header("user-agent").is_empty(),
        "GitHub refuses requests without one"
    );
}

#[tokio::test]
async fn the_path_of_an_enterprise_api_is_kept() {
    for base in ["/api/v3", "/repos"] {
        let server = ScriptedGitHub::start().await;
        server.on(
            &format!("GET {base}/repos/acme/infra/pulls/12"),
            Reply::json(&pull_answer()),
        );
        let at = endpoints(&format!("{}{base}", server.url));
        let clock = Arc::new(ManualClock::new(start()));
        let github = GitHub::new(at, token("ghp_test"), clock, Timeouts::default()).unwrap();
        assert_eq!(github.pull(&pull()).await.unwrap().at, pull());
        assert_eq!(
            github.clone_url(&pull().repo),
            format!("{}/acme/infra.git", server.url)
        );
    }
}

#[tokio::test]
async fn an_answer_about_another_repository_is_refused() {
    let server = ScriptedGitHub::start().await;
    let mut other = pull_answer();
    other["base"]["repo"]["full_name"] = json!("acme/other");
    server.on(PULL, Reply::json(&other));
    let error = server.client().pull(&pull()).await.unwrap_err();
    insta::assert_snapshot!(
        error,
        @"github.com rejected pull request acme/infra#12: the answer is about github.com/acme/other#12: was the repository renamed or transferred?"
    );
    assert!(matches!(error, ForgeError::Rejected { .. }));
}

#[tokio::test]
async fn a_repository_is_found_by_its_former_name_and_by_its_identifier() {
    let server = ScriptedGitHub::start().await;
    let now = json!({"id": 7, "full_name": "Acme/Network", "default_branch": "main", "archived": true, "private": true});
    let moved = |to: &str| {
        Reply::status(301, &json!({"message": "Moved Permanently"})).header("location", to)
    };
    server.on(
        "GET /repos/acme/infra",
        moved(&format!("{}/repositories/7", server.url)),
    );
    server.on("GET /repositories/7", Reply::json(&now));
    server.on("GET /repositories/7", Reply::json(&now));
    let (github, infra) = (server.client(), pull().repo);
    let found = github.repository(&infra).await.unwrap();
    assert_eq!(
        (found.at.id, found.at.repo.full_name(), found.archived),
        (7, "acme/network", true)
    );
    assert_eq!(github.repository_by_id(7, &infra).await.unwrap(), found);
}

#[tokio::test]
async fn whoever_is_sent_on_by_another_name_of_the_server_asks_the_server() {
    let (server, elsewhere) = (ScriptedGitHub::start().await, ScriptedGitHub::start().await);
    let moved = Reply::status(301, &json!({"message": "Moved Permanently"}));
    server.on(
        "GET /repos/acme/infra",
        moved.header("location", format!("{}/repositories/7", elsewhere.url)),
    );
    let now = json!({"id": 7, "full_name": "acme/network", "default_branch": "main"});
    server.on("GET /repositories/7", Reply::json(&now));
    assert_eq!(
        server
            .client()
            .repository(&pull().repo)
            .await
            .unwrap()
            .at
            .id,
        7
    );
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn whoever_is_sent_anywhere_but_to_a_repository_does_not_go() {
    for to in [
        "/repositories/7".to_owned(),
        "SERVER/user".to_owned(),
        "SERVER/repositories/7x".to_owned(),
        "SERVER/repositories/../user".to_owned(),
    ] {
        let server = ScriptedGitHub::start().await;
        let to = to.replace("SERVER", &server.url);
        let moved =
            Reply::status(301, &json!({"message": "Moved Permanently"})).header("location", to);
        server.on("GET /repos/acme/infra", moved);
        let error = server.client().repository(&pull().repo).await.unwrap_err();
        assert!(
            matches!(&error, ForgeError::Moved { repo, .. } if **repo == pull().repo),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_branch_that_was_renamed_is_gone() {
    let (server, repo) = (ScriptedGitHub::start().await, pull().repo);
    let branch = |name: &str| BranchName::new(name).unwrap();
    let told = |name: &str| {
        Reply::json(&json!({"name": name, "commit": {"sha": "a1".repeat(20)}, "protected": true}))
    };
    server.on("GET /repos/acme/infra/branches/main", told("main"));
    server.on(
        "GET /repos/acme/infra/branches/release%2F1%2E0",
        told("release/1.0"),
    );
    server.on(
        "GET /repos/acme/infra/branches/gone",
        Reply::status(404, &json!({"message": "Branch not found"})),
    );
    let moved = Reply::status(301, &json!({"message": "Moved Permanently"}));
    let to = format!("{}/repositories/7/branches/main", server.url);
    server.on(
        "GET /repos/acme/infra/branches/master",
        moved.header("location", to),
    );
    server.on("GET /repositories/7/branches/main", told("main"));
    let github = server.client();
    for (name, is_there) in [
        ("main", true),
        ("release/1.0", true),
        ("gone", false),
        ("master", false),
    ] {
        assert_eq!(
            github.branch_tip(&repo, &branch(name)).await.unwrap(),
            is_there.then(|| CommitSha::new(&"a1".repeat(20)).unwrap()),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_comment_is_posted_and_its_id_returned() {
    let server = ScriptedGitHub::start().await;
    server.on(
        "POST /repos/acme/infra/issues/12/comments",
        Reply::status(
            201,
            &json!({"id": 4711, "created_at": "2026-03-01T12:00:05Z"}),
        ),
    );
    let body = "Planned \u{1f6a2}\n<!-- lockkeeper {} -->";
    assert_eq!(
        server
            .client()
            .comment_post(&pull(), body, &anybody())
            .await
            .unwrap(),
        PostedComment {
            id: CommentId::new("4711"),
            created_at: "2026-03-01T12:00:05Z".parse().unwrap(),
        }
    );
    let asked = &server.asked()[0];
    assert_eq!(asked.body, json!({"body": body}));
    assert_eq!(asked.header("content-type"), "application/json");
}

#[tokio::test]
async fn only_our_own_comment_of_that_time_with_the_marker_is_found() {
    let comment = |id: u64, login: Value, created: &str, body: &str| json!({"id": id, "user": login, "created_at": created, "updated_at": "2026-03-01T13:00:00Z", "body": body});
    let (us, at) = (json!({"login": "Keeper"}), "2026-03-01T12:00:05Z");
    let line = |marker: &str| format!("Planned.\n\n<!-- lockkeeper {{{marker}}} -->\n");
    let mut first: Vec<Value> = (0..93)
        .map(|id| comment(id, us.clone(), at, "another"))
        .collect();
    first.extend([
        comment(101, json!({"login": "eve"}), at, &line("marker-7")),
        comment(102, us.clone(), "2026-03-01T12:00:04Z", &line("marker-7")),
        comment(103, us.clone(), at, &line("marker-8")),
        comment(104, Value::Null, at, &line("marker-7")),
        json!({"id": 105, "user": us, "created_at": at, "body": null}),
        json!({"id": 106, "user": {"login": "eve", "type": "Bot"}, "created_at": at, "body": line("marker-7")}),
        comment(107, us.clone(), at, &(line("marker-7") + &line("marker-8"))),
    ]);
    let server = ScriptedGitHub::start().await;
    let page = |n: usize| {
        format!(
            "GET /repos/acme/infra/issues/12/comments?since=2026-03-01T12:00:05Z&per_page=100&page={n}"
        )
    };
    server.on("GET /user", Reply::json(&json!({"login": "keeper"})));
    let github = server.client();
    for (second, found) in [
        (
            comment(200, us.clone(), at, &line("marker-7")),
            vec![200_u64],
        ),
        (json!({"id": 201, "created_at": at}), vec![]),
    ] {
        server.on(&page(1), Reply::json(&first.clone().into()));
        server.on(&page(2), Reply::json(&json!([second])));
        // GitHub keeps whole seconds, so half a second later is still the same second.
        let since = "2026-03-01T12:00:05.5Z".parse().unwrap();
        let comments = github.comment_find(&pull(), "marker-7", since).await;
        let ids = comments.unwrap().into_iter().map(|comment| comment.id);
        assert_eq!(
            ids.collect::<Vec<_>>(),
            found.into_iter().map(CommentId::from).collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn a_status_is_cut_to_what_github_takes() {
    let server = ScriptedGitHub::start().await;
    let commit = CommitSha::new(&"a1".repeat(20)).unwrap();
    let line = format!("POST /repos/acme/infra/statuses/{commit}");
    server.on(&line, Reply::status(201, &json!({})));
    let status = CommitStatus {
        context: StatusContext::new("lockkeeper/plan: net"),
        state: CommitState::Failure,
        description: "ä".repeat(200),
        url: Some("https://keeper.example/jobs/1".to_owned()),
    };
    let on = StatusTarget {
        repo: pull().repo,
        pull: None,
        commit,
    };
    server
        .client()
        .status_set(&on, &status, &anybody())
        .await
        .unwrap();
    let sent = json!({"state": "failure", "context": "lockkeeper/plan: net",
        "description": format!("{}…", "ä".repeat(139)), "target_url": "https://keeper.example/jobs/1"});
    assert_eq!(server.asked()[0].body, sent);
}

#[tokio::test]
async fn a_rotated_token_file_is_used_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let auth = GitHubAuth::Token {
        user: Some("keeper".to_owned()),
        token: TokenSource::File(path.clone()),
    };
    let server = ScriptedGitHub::start().await;
    let github = server.client_of(auth, &Arc::new(ManualClock::new(start())));
    let missing = github.pull(&pull()).await.unwrap_err();
    assert!(
        matches!(missing, ForgeError::Unavailable { .. }),
        "{missing}"
    );
    for text in ["ghp_one", "ghp_two"] {
        fs::write(&path, format!("{text}\n")).unwrap();
        server.on(PULL, Reply::json(&pull_answer()));
        github.pull(&pull()).await.unwrap();
        assert_eq!(
            server.asked()[0].header("authorization"),
            format!("Bearer {text}")
        );
        let git = github.git_credentials(&pull().repo).await.unwrap();
        assert_eq!(
            (git.username.as_str(), git.password.expose()),
            ("keeper", text)
        );
    }
}

#[tokio::test]
async fn the_login_is_asked_once() {
    let server = ScriptedGitHub::start().await;
    server.on(
        "GET /user",
        Reply::json(&json!({"login": "Keeper", "name": null})),
    );
    let github = server.client();
    assert_eq!(github.login().await.unwrap(), "Keeper");
    assert_eq!(github.login().await.unwrap(), "Keeper");
}

#[tokio::test]
async fn the_configured_user_stands_in_only_when_the_token_may_not_ask() {
    let auth = || GitHubAuth::Token {
        user: Some("keeper".to_owned()),
        token: TokenSource::Fixed(Secret::new("t")),
    };
    let server = ScriptedGitHub::start().await;
    let clock = Arc::new(ManualClock::new(start()));
    let github = server.client_of(auth(), &clock);
    server.on(
        "GET /user",
        Reply::status(401, &json!({"message": "Bad credentials"})),
    );
    assert!(matches!(
        github.login().await,
        Err(ForgeError::Denied { .. })
    ));
    server.on(
        "GET /user",
        Reply::status(403, &json!({})).header("retry-after", "1"),
    );
    assert!(matches!(
        github.login().await,
        Err(ForgeError::RateLimited { .. })
    ));
    clock.advance(Duration::from_secs(1));
    server.on(
        "GET /user",
        Reply::status(403, &json!({"message": "Resource not accessible"})),
    );
    assert_eq!(github.login().await.unwrap(), "keeper");
    server.on("GET /user", Reply::status(403, &json!({})));
    assert!(
        matches!(
            server.client().login().await,
            Err(ForgeError::Denied { .. })
        ),
        "no name to fall back to"
    );
}

#[test]
fn the_head_of_a_pull_has_its_ref_on_the_base_repository() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let clock = Arc::new(ManualClock::new(start()));
    let at = endpoints("http://127.0.0.1:1");
    let github = GitHub::new(at, token("ghp_test"), clock, Timeouts::default()).unwrap();
    let source = runtime.block_on(github.head_source(&pull())).unwrap();
    assert_eq!(source, HeadSource::Ref("refs/pull/12/head".to_owned()));
    assert_eq!(github.host().as_str(), "github.com");
}

const OPEN: &str =
    "GET /repos/acme/infra/pulls?state=open&sort=created&direction=asc&per_page=100&page=1";

#[tokio::test]
async fn open_pulls_are_listed_with_the_tag_and_the_budget() {
    let server = ScriptedGitHub::start().await;
    let mut pull_13 = pull_answer();
    pull_13["number"] = json!(13);
    pull_13["updated_at"] = json!("2025-06-15T15:08:20Z");
    let mut unreadable = pull_answer();
    unreadable["base"]["ref"] = json!("-x");
    let reply = Reply::json(&json!([pull_13, unreadable]))
        .header("etag", "W/\"abc\"")
        .header("link", "<x>; rel=\"next\"");
    let reply = reply
        .header("x-ratelimit-limit", "5000")
        .header("x-ratelimit-remaining", "4000");
    server.on(OPEN, reply.header("x-ratelimit-reset", "1750003600"));
    let ask = PageQuery {
        number: 1,
        etag: None,
    };
    let OpenPulls { page, budget } = server.client().open_pulls(&pull().repo, ask).await.unwrap();
    let ListedPage::Fresh { pulls, more, etag } = page else {
        panic!("{page:?}")
    };
    assert_eq!((more, etag.as_deref()), (true, Some("W/\"abc\"")));
    insta::assert_snapshot!(
        serde_json::to_string(&pulls).unwrap(),
        @r#"[{"number":13,"at":{"head":"a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1","base_branch":"main","draft":true},"updated_at":"2025-06-15T15:08:20Z"}]"#
    );
    let budget = budget.unwrap();
    assert_eq!(
        (budget.remaining, budget.limit, budget.per_owner),
        (4000, 5000, false)
    );
    assert!(server.asked()[0].headers.get("if-none-match").is_none());
}

#[tokio::test]
async fn a_list_that_has_not_changed_is_told_as_such_only_to_whoever_asked_so() {
    let server = ScriptedGitHub::start().await;
    server.on(OPEN, Reply::status(304, &Value::Null));
    let ask = PageQuery {
        number: 1,
        etag: Some("W/\"abc\""),
    };
    let told = server.client().open_pulls(&pull().repo, ask).await.unwrap();
    assert_eq!((told.page, told.budget), (ListedPage::Unchanged, None));
    assert_eq!(server.asked()[0].header("if-none-match"), "W/\"abc\"");
    server.on(OPEN, Reply::status(304, &Value::Null));
    let ask = PageQuery {
        number: 1,
        etag: None,
    };
    let error = server
        .client()
        .open_pulls(&pull().repo, ask)
        .await
        .unwrap_err();
    assert!(matches!(error, ForgeError::Rejected { .. }), "{error}");
}
