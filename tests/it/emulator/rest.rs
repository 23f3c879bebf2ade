//! Tests of every route. Every answer is compared with the description.

use std::time::Duration;

use lockkeeper::emulator::{Change, NewPull, ReviewState, Role, StatusState};
use reqwest::Method;
use serde_json::json;

use super::rig::{REPO, Rig, TOKEN};

#[tokio::test]
async fn a_repository_and_its_pulls_are_shown_as_github_describes_them() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    assert_eq!(rig.get("/user").await.body["login"], "lockbot");
    let repo = rig.get("/repos/ACME/Infra").await.body;
    assert_eq!(
        (repo["full_name"].as_str(), repo["default_branch"].as_str()),
        (Some(REPO), Some("main"))
    );
    assert_eq!(repo["clone_url"], rig.github.clone_url(REPO));

    let pull = rig.get("/repos/acme/infra/pulls/1").await.body;
    assert_eq!(
        pull["head"]["sha"],
        json!(rig.github.pull(REPO, number).unwrap().head)
    );
    assert_eq!(pull["mergeable_state"], "clean");
    assert_eq!(
        (&pull["commits"], &pull["additions"], &pull["changed_files"]),
        (&json!(1), &json!(1), &json!(1))
    );
    rig.github.close(REPO, number, "alice").await.unwrap();
    for (query, expected) in [
        ("", 0),
        ("?state=closed", 1),
        ("?state=all&head=acme:feature&base=main", 1),
    ] {
        let list = rig
            .get(&format!("/repos/acme/infra/pulls{query}"))
            .await
            .body;
        assert_eq!(list.as_array().unwrap().len(), expected, "{query}");
    }
    rig.check();
}

/// `permission` knows only the old roles, as on GitHub.
#[tokio::test]
async fn strangers_have_no_role_and_a_review_keeps_its_commit() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let told = async |login: &str| {
        let body = rig
            .get(&format!(
                "/repos/acme/infra/collaborators/{login}/permission"
            ))
            .await
            .body;
        format!(
            "{} {} {}",
            body["permission"], body["role_name"], body["user"]["permissions"]["push"]
        )
    };
    assert_eq!(told("Alice").await, r#""write" "write" true"#);
    assert_eq!(told("stranger").await, r#""none" "none" false"#);
    for (role, expected) in [
        (Role::Read, r#""read" "read" false"#),
        (Role::Triage, r#""read" "triage" false"#),
        (Role::Maintain, r#""write" "maintain" true"#),
        (Role::Admin, r#""admin" "admin" true"#),
    ] {
        rig.github.set_role(REPO, "Stranger", role).unwrap();
        assert_eq!(told("stranger").await, expected);
    }
    rig.github.make_public(REPO).unwrap();
    assert_eq!(told("nobody").await, r#""read" "read" false"#);
    assert_eq!(
        rig.get("/repos/acme/infra").await.body["visibility"],
        "public"
    );

    let reviewed = rig.github.pull(REPO, number).unwrap().head;
    rig.github
        .review(REPO, number, "bob", ReviewState::Approved)
        .unwrap();
    rig.github
        .push(REPO, "feature", &[Change::write("new.tf", "new\n")])
        .await
        .unwrap();
    let reviews = rig.get("/repos/acme/infra/pulls/1/reviews").await.body;
    assert_eq!(reviews[0]["commit_id"], json!(reviewed));
    assert_ne!(rig.github.pull(REPO, number).unwrap().head, reviewed);
    rig.check();
}

#[tokio::test]
async fn the_events_of_a_pull_tell_when_its_base_branch_changed() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let events = "/repos/acme/infra/issues/1/events";
    assert_eq!(rig.get(events).await.body, json!([]));
    rig.github
        .push(REPO, "release", &[Change::write("r.tf", "x\n")])
        .await
        .unwrap();
    for base in ["release", "main"] {
        rig.clock.advance(Duration::from_mins(1));
        rig.github
            .change_base(REPO, number, "alice", base)
            .await
            .unwrap();
    }
    let told = rig.get(events).await.body;
    let told: Vec<_> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["event"].as_str(), event["created_at"].as_str()))
        .collect();
    let changed = Some("base_ref_changed");
    assert_eq!(
        told,
        [
            (changed, Some("2025-01-15T10:01:00Z")),
            (changed, Some("2025-01-15T10:02:00Z")),
        ]
    );
    let second = rig.get(&format!("{events}?per_page=1&page=2")).await.body;
    assert_eq!(second[0]["created_at"], "2025-01-15T10:02:00Z");
    assert_eq!(
        rig.get("/repos/acme/infra/issues/2/events").await.status,
        404
    );
    rig.check();
}

#[tokio::test]
async fn changed_files_are_compared_with_the_point_where_the_pull_left_its_base() {
    let rig = Rig::start().await;
    let lines = (0..20)
        .map(|n| format!("line {n}"))
        .collect::<Vec<_>>()
        .join("\n");
    rig.github
        .push(
            REPO,
            "main",
            &[
                Change::write("big.tf", &lines),
                Change::write("old.tf", "x\n"),
            ],
        )
        .await
        .unwrap();
    let changes = [
        Change::rename("big.tf", "moved/b g.tf"),
        Change::delete("old.tf"),
        Change::write("new.tf", "new\n"),
        Change::write("main.tf", "# changed\n"),
        Change::symlink("link", "../../etc/passwd"),
    ];
    rig.github.push(REPO, "feature", &changes).await.unwrap();
    rig.github
        .open_pull(REPO, NewPull::from_branch("feature"))
        .await
        .unwrap();
    rig.github
        .push(REPO, "main", &[Change::write("unrelated.tf", "x\n")])
        .await
        .unwrap();

    let files = rig.get("/repos/acme/infra/pulls/1/files").await.body;
    let seen: Vec<String> = files
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            format!(
                "{} {} {}",
                file["status"], file["filename"], file["previous_filename"]
            )
            .replace('"', "")
        })
        .collect();
    insta::assert_snapshot!(seen.join("\n"), @"
    added link null
    modified main.tf null
    renamed moved/b g.tf big.tf
    added new.tf null
    removed old.tf null
    ");
    assert_eq!(files[1]["patch"], "@@ -1 +1 @@\n-# root\n+# changed");
    rig.check();
}

#[tokio::test]
async fn lists_come_in_pages_with_links_to_the_others() {
    let rig = Rig::start().await;
    let files: Vec<Change> = (0..130)
        .map(|n| Change::write(&format!("f{n:03}.tf"), "x\n"))
        .collect();
    rig.github.push(REPO, "many", &files).await.unwrap();
    rig.github
        .open_pull(REPO, NewPull::from_branch("many"))
        .await
        .unwrap();
    let first = rig
        .get("/repos/acme/infra/pulls/1/files?per_page=100")
        .await;
    assert_eq!(first.body.as_array().unwrap().len(), 100);
    let next = format!(
        "<{}/repos/acme/infra/pulls/1/files?page=2&per_page=100>; rel=\"next\"",
        rig.github.api_url()
    );
    assert!(
        first.header("link").starts_with(&next),
        "{}",
        first.header("link")
    );
    let second = rig
        .get("/repos/acme/infra/pulls/1/files?per_page=100&page=2")
        .await;
    assert_eq!(second.body.as_array().unwrap().len(), 30);
    assert!(!second.header("link").contains("next"));
    assert_eq!(
        rig.get("/repos/acme/infra/pulls/1/files")
            .await
            .body
            .as_array()
            .unwrap()
            .len(),
        30
    );
    rig.check();
}

#[tokio::test]
async fn of_a_huge_pull_only_the_first_3000_files_are_listed() {
    let rig = Rig::start().await;
    let files: Vec<Change> = (0..3010)
        .map(|n| Change::write(&format!("f{n:04}.tf"), "x\n"))
        .collect();
    rig.github.push(REPO, "huge", &files).await.unwrap();
    rig.github
        .open_pull(REPO, NewPull::from_branch("huge"))
        .await
        .unwrap();
    assert_eq!(
        rig.get("/repos/acme/infra/pulls/1").await.body["changed_files"],
        3010
    );
    let last = rig
        .get("/repos/acme/infra/pulls/1/files?per_page=100&page=30")
        .await;
    assert_eq!(last.body[99]["filename"], "f2999.tf");
    assert!(!last.header("link").contains("next"));
    assert_eq!(
        rig.get("/repos/acme/infra/pulls/1/files?per_page=100&page=31")
            .await
            .body,
        json!([])
    );
}

#[tokio::test]
async fn comments_are_posted_found_edited_reacted_to_and_deleted() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let asked = rig
        .github
        .comment(REPO, number, "alice", "lockkeeper plan")
        .await
        .unwrap();
    rig.clock.advance(std::time::Duration::from_mins(1));
    let posted = rig
        .post(
            "/repos/acme/infra/issues/1/comments",
            json!({ "body": "Planned." }),
        )
        .await;
    assert_eq!(
        (posted.status, posted.body["user"]["login"].as_str()),
        (201, Some("lockbot"))
    );
    assert_eq!(
        posted.header("location"),
        posted.body["url"].as_str().unwrap()
    );
    let id = posted.body["id"].as_u64().unwrap();

    let since = rig
        .get("/repos/acme/infra/issues/1/comments?since=2025-01-15T10:00:30Z")
        .await
        .body;
    assert_eq!(
        (since.as_array().unwrap().len(), &since[0]["id"]),
        (1, &json!(id))
    );
    let one = format!("/repos/acme/infra/issues/comments/{id}");
    let authorization = format!("Bearer {TOKEN}");
    let edit = Some(json!({ "body": "Planned twice." }));
    assert_eq!(
        rig.send(Method::PATCH, &one, Some(&authorization), edit)
            .await
            .status,
        200
    );
    assert_eq!(rig.get(&one).await.body["body"], "Planned twice.");
    let reactions = format!("/repos/acme/infra/issues/comments/{asked}/reactions");
    for status in [201, 200] {
        assert_eq!(
            rig.post(&reactions, json!({ "content": "eyes" }))
                .await
                .status,
            status
        );
    }
    assert_eq!(
        rig.github.reactions(REPO, asked).unwrap(),
        [("lockbot".to_owned(), "eyes".to_owned())]
    );
    assert_eq!(
        rig.get("/repos/acme/infra/issues/1/comments").await.body[0]["reactions"]["eyes"],
        1
    );
    assert_eq!(
        rig.send(Method::DELETE, &one, Some(&authorization), None)
            .await
            .status,
        204
    );
    let left: Vec<u64> = rig
        .github
        .comments(REPO, number)
        .unwrap()
        .iter()
        .map(|comment| comment.id)
        .collect();
    assert_eq!(left, [asked]);
    rig.check();
}

#[tokio::test]
async fn the_newest_status_of_each_context_counts() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let head = rig.github.pull(REPO, number).unwrap().head;
    let post = async |state: &str, context: &str| {
        let body = json!({ "state": state, "context": context, "description": "d", "target_url": "http://x/1" });
        rig.post(&format!("/repos/acme/infra/statuses/{head}"), body)
            .await
    };
    assert_eq!(
        rig.get(&format!("/repos/acme/infra/commits/{head}/status"))
            .await
            .body["state"],
        "pending"
    );
    for (state, context) in [
        ("pending", "lockkeeper/plan"),
        ("success", "lockkeeper/plan"),
        ("pending", "other"),
    ] {
        assert_eq!(post(state, context).await.status, 201);
    }
    let bare = rig
        .post(
            &format!("/repos/acme/infra/statuses/{head}"),
            json!({ "state": "error" }),
        )
        .await;
    assert_eq!(bare.body["context"], "default");

    let combined = rig
        .get("/repos/acme/infra/commits/heads/feature/status")
        .await
        .body;
    assert_eq!(
        (&combined["state"], &combined["total_count"]),
        (&json!("failure"), &json!(3))
    );
    let history = rig
        .get("/repos/acme/infra/commits/feature/statuses?per_page=2")
        .await
        .body;
    assert_eq!(
        (&history[0]["context"], &history[1]["context"]),
        (&json!("default"), &json!("other"))
    );
    let statuses = rig.github.statuses(REPO, &head).unwrap();
    assert_eq!(
        statuses.of("lockkeeper/plan").map(|status| status.state),
        Some(StatusState::Success)
    );
    assert_eq!((statuses.latest.len(), statuses.history.len()), (3, 4));
    rig.check();
}

#[tokio::test]
async fn files_directories_and_links_are_read_at_a_ref() {
    let rig = Rig::start().await;
    let changes = [
        Change::symlink("net/link", "main.tf"),
        Change::symlink("out", "/etc/passwd"),
    ];
    rig.github.push(REPO, "links", &changes).await.unwrap();
    let file = rig.get("/repos/acme/infra/contents/net/main.tf").await.body;
    assert_eq!(
        (&file["content"], &file["size"]),
        (&json!("IyBuZXQK\n"), &json!(6))
    );
    let root = rig.get("/repos/acme/infra/contents/").await.body;
    assert_eq!(
        (&root[0]["name"], &root[1]["type"]),
        (&json!("main.tf"), &json!("dir"))
    );
    assert_eq!(
        rig.get("/repos/acme/infra/contents/net").await.body[0]["path"],
        "net/main.tf"
    );
    let linked = rig
        .get("/repos/acme/infra/contents/net/link?ref=links")
        .await
        .body;
    assert_eq!(
        (&linked["type"], &linked["content"]),
        (&json!("file"), &json!("IyBuZXQK\n"))
    );
    assert_eq!(
        rig.get("/repos/acme/infra/contents/out?ref=links")
            .await
            .body["target"],
        "/etc/passwd"
    );
    assert_eq!(
        rig.get("/repos/acme/infra/contents/net/link").await.status,
        404
    );
    rig.check();
}

#[tokio::test]
async fn the_page_of_a_pull_shows_the_conversation_as_text() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    rig.github
        .comment(REPO, number, "mallory", "<script>alert(1)</script>")
        .await
        .unwrap();
    let page = reqwest::get(rig.github.pull_url(REPO, number))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(page.contains("<h1>Add a net #1</h1>"), "{page}");
    assert!(
        page.contains("<pre>&lt;script&gt;alert(1)&lt;/script&gt;</pre>"),
        "{page}"
    );
}

#[tokio::test]
async fn what_has_not_changed_is_not_sent_again_and_not_counted() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let list = "/repos/acme/infra/pulls?state=open";
    let first = rig.get(list).await;
    let etag = first.header("etag").to_owned();
    assert!(etag.starts_with("W/\""), "{etag}");
    let authorization = format!("Bearer {TOKEN}");
    let again = async || {
        let client = reqwest::Client::builder()
            .no_proxy()
            .user_agent("test")
            .build()
            .unwrap();
        let request = client
            .get(format!("{}{list}", rig.github.api_url()))
            .header("authorization", &authorization);
        request.header("if-none-match", &etag).send().await.unwrap()
    };
    let left = rig.github.requests_left();
    let unchanged = again().await;
    assert_eq!(
        (unchanged.status().as_u16(), &unchanged.headers()["etag"]),
        (304, &etag.parse::<reqwest::header::HeaderValue>().unwrap())
    );
    assert_eq!(
        unchanged.headers()["x-ratelimit-remaining"],
        left.to_string().as_str()
    );
    assert_eq!(unchanged.text().await.unwrap(), "");
    assert_eq!(rig.github.requests_left(), left);
    rig.github.close(REPO, number, "alice").await.unwrap();
    assert_eq!(again().await.status(), 200);
    assert_eq!(rig.github.requests_left(), left - 1);
    rig.github.leave_requests(10);
    let headers = again().await.headers().clone();
    assert_eq!(
        (
            &headers["x-ratelimit-remaining"],
            &headers["x-ratelimit-limit"]
        ),
        (&"9".parse().unwrap(), &"5000".parse().unwrap())
    );
    rig.check();
}
