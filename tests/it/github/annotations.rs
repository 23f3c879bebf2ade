//! Tests of check runs with annotations, which only a GitHub App can create.

use std::time::Duration;

use lockkeeper::forges::github::GitHub;
use lockkeeper::forges::{AnnotateAnswer, Forge, ForgeError};
use lockkeeper::model::{
    AnnotationLevel, AnnotationSet, CommitSha, LineAnnotation, RepoPath, StatusContext,
    StatusTarget,
};
use serde_json::{Value, json};

use super::app::{World, issue};
use super::server::{Reply, ScriptedGitHub, anybody, pull};

const HEAD: &str = "0123456789abcdef0123456789abcdef01234567";
const KNOWN: &str = "GET /repos/acme/infra/commits/0123456789abcdef0123456789abcdef01234567/check-runs\
                     ?check_name=lockkeeper%2Fpolicy_findings&filter=latest&per_page=100";
const CREATE: &str = "POST /repos/acme/infra/check-runs";
const UPDATE: &str = "PATCH /repos/acme/infra/check-runs/31";
/// App of the tests.
const APP: u64 = 4242;

fn set(lines: u32) -> AnnotationSet {
    let line = |line| LineAnnotation {
        level: AnnotationLevel::Failure,
        path: RepoPath::new("network/main.tf").unwrap(),
        line,
        title: "Policy set basics".to_owned(),
        message: "public".to_owned(),
    };
    AnnotationSet {
        name: StatusContext::new("lockkeeper/policy_findings"),
        title: format!("{lines} violations"),
        summary: "A summary.".to_owned(),
        url: "https://keeper.example/".to_owned(),
        lines: (1..=lines).map(line).collect(),
    }
}

async fn annotate(github: &GitHub, set: &AnnotationSet) -> Result<AnnotateAnswer, ForgeError> {
    let on = StatusTarget {
        repo: pull().repo,
        pull: None,
        commit: CommitSha::new(HEAD).unwrap(),
    };
    github.annotate(&on, set, &anybody()).await
}

/// Returns a world in which the App may write check runs, with the connection of the App.
async fn world() -> (World, GitHub) {
    let world = World::new().await;
    world.issues_with(5, "ghs_one", &json!({"checks": "write"}));
    let github = world
        .github(Some(5))
        .with_pause_between_writes(Duration::ZERO);
    (world, github)
}

/// Scripts the answer with the check runs of the commit.
fn has(world: &World, runs: &Value) {
    let count = runs.as_array().unwrap().len();
    let answer = json!({"total_count": count, "check_runs": runs});
    world.server.on(KNOWN, Reply::json(&answer));
}

fn run(id: u64, app: u64, external_id: &Value, annotations: usize) -> Value {
    json!({
        "id": id, "app": {"id": app}, "external_id": external_id, "output": {"annotations_count": annotations},
    })
}

/// Returns the lines of the annotations in a body.
fn lines(body: &Value) -> Vec<u64> {
    let all = body["output"]["annotations"].as_array().unwrap();
    all.iter()
        .map(|one| one["start_line"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn nothing_is_sent_with_credentials_that_cannot_create_check_runs() {
    let server = ScriptedGitHub::start().await;
    let answer = annotate(&server.client(), &set(1)).await.unwrap();
    assert_eq!(answer, AnnotateAnswer::NotPossible);
    assert!(server.lines().is_empty());
    for permissions in [json!({"contents": "read"}), json!({"checks": "read"})] {
        let world = World::new().await;
        world.issues_with(5, "ghs_one", &permissions);
        let github = world.github(Some(5));
        for _ in 0..2 {
            let answer = annotate(&github, &set(1)).await.unwrap();
            assert_eq!(answer, AnnotateAnswer::NotPossible);
        }
        assert_eq!(world.server.lines(), [issue(5)]);
    }
}

#[tokio::test]
async fn annotations_are_sent_fifty_at_a_time_and_once() {
    let (world, github) = world().await;
    has(&world, &json!([]));
    let made = json!({"id": 31});
    world.server.on(CREATE, Reply::status(201, &made));
    world.server.on(UPDATE, Reply::json(&made));
    world.server.on(UPDATE, Reply::json(&made));
    let answer = annotate(&github, &set(120)).await.unwrap();
    assert_eq!(answer, AnnotateAnswer::Shown);
    let asked = world.server.asked();
    let sent: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
    assert_eq!(sent, [&*issue(5), KNOWN, CREATE, UPDATE, UPDATE]);
    let mut body = asked[2].body.clone();
    let external_id = body["external_id"].take();
    assert_eq!(external_id.as_str().unwrap().len(), 64);
    assert_eq!(lines(&body), (1..=50).collect::<Vec<u64>>());
    let annotations = body["output"]["annotations"].take();
    assert_eq!(
        annotations[6],
        json!({"path": "network/main.tf", "start_line": 7, "end_line": 7, "annotation_level": "failure",
            "title": "Policy set basics", "message": "public"})
    );
    assert_eq!(
        body,
        json!({"name": "lockkeeper/policy_findings", "head_sha": HEAD, "external_id": null,
            "details_url": "https://keeper.example/", "status": "completed", "conclusion": "neutral",
            "output": {"title": "120 violations", "summary": "A summary.", "annotations": null}})
    );
    assert_eq!(lines(&asked[3].body), (51..=100).collect::<Vec<u64>>());
    assert_eq!(lines(&asked[4].body), (101..=120).collect::<Vec<u64>>());

    has(&world, &json!([run(31, APP, &external_id, 120)]));
    let answer = annotate(&github, &set(120)).await.unwrap();
    assert_eq!(answer, AnnotateAnswer::Shown);
    assert_eq!(world.server.lines(), [KNOWN]);

    // The server stopped after the second request.
    has(&world, &json!([run(31, APP, &external_id, 100)]));
    world.server.on(UPDATE, Reply::json(&made));
    annotate(&github, &set(120)).await.unwrap();
    let asked = world.server.asked();
    assert_eq!(asked[1].line, UPDATE);
    assert_eq!(lines(&asked[1].body), (101..=120).collect::<Vec<u64>>());
}

#[tokio::test]
async fn other_annotations_are_another_check_run() {
    let (world, github) = world().await;
    let old = json!("an older plan");
    has(&world, &json!([run(30, APP, &old, 3)]));
    let made = json!({"id": 31});
    world.server.on(CREATE, Reply::status(201, &made));
    annotate(&github, &set(1)).await.unwrap();
    let asked = world.server.asked();
    let new = &asked[2].body["external_id"];

    // A check run of another App is none of ours, even if it looks like it.
    has(&world, &json!([run(40, 9, new, 1)]));
    world.server.on(CREATE, Reply::status(201, &made));
    annotate(&github, &set(1)).await.unwrap();
    assert_eq!(world.server.lines(), [KNOWN, CREATE]);
}

#[tokio::test]
async fn an_empty_set_is_only_sent_to_replace_another_one() {
    let (world, github) = world().await;
    has(&world, &json!([]));
    let answer = annotate(&github, &set(0)).await.unwrap();
    assert_eq!(answer, AnnotateAnswer::NothingToShow);
    assert_eq!(world.server.lines(), [issue(5).as_str(), KNOWN]);
    has(&world, &json!([run(30, APP, &json!("an older plan"), 3)]));
    let made = json!({"id": 31});
    world.server.on(CREATE, Reply::status(201, &made));
    let answer = annotate(&github, &set(0)).await.unwrap();
    assert_eq!(answer, AnnotateAnswer::Shown);
    let asked = world.server.asked();
    assert!(lines(&asked[1].body).is_empty());
}

#[tokio::test]
async fn a_refusal_is_an_error() {
    let (world, github) = world().await;
    has(&world, &json!([]));
    let refusal = json!({"message": "No commit found for SHA"});
    world.server.on(CREATE, Reply::status(422, &refusal));
    let error = annotate(&github, &set(1)).await.unwrap_err();
    assert!(matches!(error, ForgeError::Rejected { .. }), "{error}");
    insta::assert_snapshot!(
        error,
        @"github.com rejected the annotations `lockkeeper/policy_findings` of acme/infra@01234567: No commit found for SHA"
    );
}
