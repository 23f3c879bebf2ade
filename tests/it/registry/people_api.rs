//! The part of the API that people and scripts use with the accounts of the pages: uses, explanations, tags, settings of
//! clients, deployments.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use insta::assert_snapshot;
use lockkeeper::claims::application_add;
use lockkeeper::features::registry::{
    BranchReading, BranchUse, FillFault, SeenTags, TagOutcome, TagPlace, TagSettled, TagState,
    TagVersion, Visibility,
};
use lockkeeper::model::{
    ApplicationFields, ForgeHosts, PullRef, PullState, RepoId, Rights, Subject,
};
use lockkeeper::store::{PlanParts, RecordPlan};
use lockkeeper_registry::dirhash::hash_files;
use lockkeeper_registry::versions::VersionKey;
use serde_json::Value;

use super::deployments::{Answered, Deployment};
use super::pages::{SIGNED_IN, page, text};
use super::peers::{MODULE, OTHER_MODULE, VPC};
use super::world::{Answer, RegistryAdmin, Replica, by_ops};
use crate::store::samples::{new_plan, project};
use crate::support::db::{TestDb, execute, store_test};
use crate::support::program::{lockkeeper, lockkeeper_in};

store_test!(
    a_use_is_the_same_on_the_page_in_the_api_and_on_the_command_line,
    a_name_that_an_account_may_not_see_is_unknown_to_it,
    a_missing_version_is_explained_to_those_who_see_the_name,
    clients_get_their_settings_with_the_namespaces_that_they_see,
    an_account_sees_the_tags_of_its_repositories,
    the_log_is_verified_for_one_script_at_a_time,
    other_deployments_are_for_accounts_of_the_whole_server,
    the_lag_of_each_deployment_is_shown_in_records_and_seconds,
    each_conflict_is_shown_with_the_contents_of_both_sides,
);

pub const OPS: &str = "ops:a long password of the tests";
/// Account that is limited to the owner of the modules and of the repository `live`.
pub const KIM: &str = "kim:kims-password-of-kim";
/// Account that is limited to another owner.
pub const LEE: &str = "lee:lees-password-of-lee";

const USES: &str = "/api/registry/uses";
const EXPLAIN: &str = "/api/registry/explain";
const SETUP: &str = "/api/registry/setup";
const KEY: &str = "/api/registry/key";
const VERIFY: &str = "/api/registry/verify";

/// Minimum time between two verifications.
const MINUTE: Duration = Duration::from_mins(1);
const TAGS: &str = "/api/registry/tags";

fn repo(name: &str) -> RepoId {
    format!("github.test/acme/{name}").parse().unwrap()
}

/// Stores a plan of a pull request, and the head of the default branch, which both use the module `acme/vpc/aws`.
async fn used(db: &TestDb, repo: &RepoId, version: &str, wanted: &str) {
    let store = db.store();
    let pull = PullRef {
        repo: repo.clone(),
        subject: Subject::pull(7),
    };
    store.pull_seen(&pull, PullState::Open, "u").await.unwrap();
    let plan = new_plan(db, &pull, &project("net")).await;
    let key: VersionKey = format!("module acme/vpc/aws {version}").parse().unwrap();
    let modules = [key.clone()];
    let parts = PlanParts {
        modules: &modules,
        ..PlanParts::default()
    };
    let recorded = store.plan_record(&plan, None, None, &parts);
    assert_eq!(recorded.await.unwrap(), RecordPlan::Recorded);
    let uses = BTreeSet::from([BranchUse {
        dir: "net".parse().unwrap(),
        name: key.name(),
        wanted: wanted.to_owned(),
        version: (wanted == version).then_some(key),
    }]);
    let head = "a".repeat(40).parse().unwrap();
    let reading = BranchReading {
        head: Some(&head),
        basis: "x",
        uses: &uses,
        due_at: db.now() + TimeDelta::hours(1),
    };
    store.registry_branch_record(repo, &reading).await.unwrap();
}

/// Publishes a module of an owner, which two repositories use. The owner has claimed `live`.
async fn with_uses(db: &TestDb) -> RegistryAdmin {
    let admin = RegistryAdmin::open(db).await;
    admin.namespace("module acme", Visibility::Owner).await;
    admin.namespace("module open", Visibility::Public).await;
    for version in ["1.2.3", "1.3.0"] {
        let key = format!("module acme/vpc/aws {version}");
        admin.publish(&key, &MODULE).await;
    }
    let url = format!("https://{}", repo("live"));
    let fields = ApplicationFields {
        url: Some(&url),
        branch: Some("main"),
        dir: Some("elsewhere"),
        ..ApplicationFields::default()
    };
    let spec = fields.spec(&ForgeHosts::public()).unwrap();
    let owner = "net".parse().unwrap();
    let by = by_ops();
    let added = application_add(db.store(), &owner, &spec, (Rights::Whole, &by));
    added.await.unwrap().or_why().unwrap();
    used(db, &repo("live"), "1.2.3", "1.2.3").await;
    used(db, &repo("zebra"), "1.3.0", "~> 1.3").await;
    admin
}

/// Starts a server on which people sign in, some of them with limits.
pub async fn signed(admin: &RegistryAdmin, db: &TestDb) -> Replica {
    let file = db.dir.path().join("accounts");
    let accounts = "user=kim owners=net allow=none password=kims-password-of-kim\n\
                    user=lee owners=other allow=none password=lees-password-of-lee\n";
    std::fs::write(&file, accounts).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let file = file.display().to_string();
    let flags = [&SIGNED_IN[..], &[("web-accounts-file", file.as_str())]].concat();
    admin.server(db, 1, &flags).await
}

pub async fn json(server: &Replica, path: &str, who: &str) -> Value {
    let answer = page(server, path, Some(who)).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    serde_json::from_str(answer.text()).unwrap()
}

/// Sends a request as a script does.
pub async fn script(server: &Replica, method: Method, path: &str, who: &str, body: &str) -> Answer {
    let basic = format!("Basic {}", STANDARD.encode(who));
    let headers = [
        ("authorization", basic.as_str()),
        ("content-type", "application/json"),
    ];
    let body = Body::from(body.to_owned());
    server.send(method, path, &headers, body).await
}

/// Returns the lines of a subcommand with `--json`.
fn lines(db: &TestDb, command: &[&str]) -> Vec<Value> {
    let said = lockkeeper(command, &db.url, &["--json"], &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    let lines = said.out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn repos(answer: &Value) -> Vec<&str> {
    let uses = answer["uses"].as_array().unwrap().iter();
    uses.map(|used| used["repo"].as_str().unwrap()).collect()
}

async fn a_use_is_the_same_on_the_page_in_the_api_and_on_the_command_line(db: &TestDb) {
    let admin = with_uses(db).await;
    let server = signed(&admin, db).await;
    let all = json(&server, &format!("{USES}/acme/vpc/aws"), OPS).await;
    assert_eq!(
        all["uses"],
        Value::from(lines(db, &["registry", "uses", "acme/vpc/aws"]))
    );
    assert_eq!(all["more"], false);
    let first = serde_json::to_string_pretty(&all["uses"][0]).unwrap();
    assert_snapshot!(first, @r#"
    {
      "dir": "net",
      "kind": "module",
      "name": "acme/vpc/aws",
      "plan": "planned",
      "planned_at": "2026-03-02T09:00:00Z",
      "project": null,
      "pull": 7,
      "repo": "github.test/acme/live",
      "used_by": "plan",
      "version": "1.2.3",
      "workspace": "default"
    }
    "#);
    let last = serde_json::to_string_pretty(&all["uses"][3]).unwrap();
    assert_snapshot!(last, @r#"
    {
      "commit": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
      "dir": "net",
      "kind": "module",
      "looked_at": "2026-03-02T09:00:00Z",
      "name": "acme/vpc/aws",
      "repo": "github.test/acme/zebra",
      "used_by": "default_branch",
      "version": null,
      "wanted": "~> 1.3"
    }
    "#);
    let of_one = json(&server, &format!("{USES}/acme/vpc/aws@1.2.3"), OPS).await;
    let on_terminal = lines(db, &["registry", "uses", "acme/vpc/aws@1.2.3"]);
    assert_eq!(of_one["uses"], Value::from(on_terminal));
    assert_eq!(of_one["version"], "1.2.3");
    assert_eq!(repos(&of_one), ["github.test/acme/live"; 2]);

    // An account sees the repositories of its owners.
    let path = "/registry/modules/acme/vpc/aws";
    let shown = async |who| text(page(&server, path, Some(who)).await.text());
    let of_kim = json(&server, &format!("{USES}/acme/vpc/aws"), KIM).await;
    assert_eq!(repos(&of_kim), ["github.test/acme/live"; 2]);
    let (by_ops, by_kim) = (shown(OPS).await, shown(KIM).await);
    for (page, zebra) in [(&by_ops, true), (&by_kim, false)] {
        for part in [
            "acme/live #7 net, workspace default\n1.2.3\nplanned just now",
            "github.test/acme/live net\n1.2.3\naaaaaaaa",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(page.contains("acme/zebra"), zebra, "{page}");
        assert_eq!(page.contains("~&gt; 1.3"), zebra, "{page}");
    }

    // The page of a version has those of the version.
    admin.publish("module acme/vpc/aws 1.0.0", &MODULE).await;
    for (version, user, other) in [
        ("1.2.3", "acme/live", "acme/zebra"),
        ("1.3.0", "acme/zebra", "acme/live"),
    ] {
        let one = page(&server, &format!("{path}@{version}"), Some(OPS)).await;
        let one = text(one.text());
        for count in ["Used by 1\n", "Used by default branches 1\n"] {
            assert!(one.contains(count), "{count}: {one}");
        }
        assert_eq!(one.matches(user).count(), 2, "{one}");
        assert!(!one.contains(other), "{one}");
    }
    let unused = page(&server, &format!("{path}@1.0.0"), Some(OPS)).await;
    let unused = text(unused.text());
    assert!(
        unused.contains("No latest plan of a project uses this version.")
            && unused.contains("No default branch of a mirrored repository allows this version."),
        "{unused}"
    );
}

async fn a_name_that_an_account_may_not_see_is_unknown_to_it(db: &TestDb) {
    let admin = with_uses(db).await;
    let server = signed(&admin, db).await;
    let said = |path: String, who| {
        let server = &server;
        async move {
            let answer = page(server, &path, Some(who)).await;
            let answer_text = answer.text().to_owned();
            let body: Value = serde_json::from_str(&answer_text).unwrap();
            (answer.status.as_u16(), body["detail"].clone())
        }
    };
    for (path, version) in [
        (USES, ""),
        (USES, "@1.2.3"),
        (EXPLAIN, ""),
        (EXPLAIN, "@1.2.3"),
    ] {
        let hidden = said(format!("{path}/acme/vpc/aws{version}"), LEE).await;
        let unknown = said(format!("{path}/none/vpc/aws{version}"), LEE).await;
        assert_eq!(hidden.0, 404, "{path}{version}");
        let hidden_text = hidden.1.as_str().unwrap().replace("acme/", "none/");
        assert_eq!(hidden_text, unknown.1.as_str().unwrap());
        assert_eq!(hidden.0, unknown.0);
        let open = said(format!("{path}/open/vpc/aws{version}"), LEE).await;
        assert_eq!(open.0, 200, "{path}{version}");
        for wrong in ["acme", "acme/vpc/aws@v1", "..", "acme/vpc/aws@"] {
            assert_eq!(said(format!("{path}/{wrong}"), OPS).await.0, 404, "{wrong}");
        }
    }
    // These answers are for accounts of the pages, not for tokens.
    let (_, token) = admin.token(&["read:*", "read:module acme/*"]).await;
    for path in [
        format!("{USES}/acme/vpc/aws"),
        format!("{EXPLAIN}/acme/vpc/aws"),
        "/api/registry/peers".to_owned(),
    ] {
        assert_eq!(server.status(&path, &token).await, 401, "{path}");
        assert_eq!(server.status(&path, "").await, 401, "{path}");
    }
    // Where nobody signs in, only public names are shown, and only if everyone may read them.
    let closed = admin.server(db, 2, &[]).await;
    let open = admin
        .server(db, 3, &[("registry-anonymous-read", "true")])
        .await;
    for path in [USES, EXPLAIN] {
        for (server, name, status) in [
            (&closed, "open", 404),
            (&closed, "acme", 404),
            (&open, "open", 200),
            (&open, "acme", 404),
            (&open, "none", 404),
        ] {
            let path = format!("{path}/{name}/vpc/aws");
            assert_eq!(server.status(&path, "").await, status, "{path}");
        }
    }
}

async fn a_missing_version_is_explained_to_those_who_see_the_name(db: &TestDb) {
    let admin = with_uses(db).await;
    let server = signed(&admin, db).await;
    let key = "go example.org/net v1.0.0".parse().unwrap();
    let failed = db
        .store()
        .registry_fill_failed(&key, FillFault::NotFound, "no tag v1.0.0");
    assert_eq!(failed.await.unwrap().attempts, 1);
    let path = format!("{EXPLAIN}/example.org/net@v1.0.0");
    let told = json(&server, &path, OPS).await;
    assert_snapshot!(serde_json::to_string_pretty(&told).unwrap(), @r#"
    {
      "because": "default",
      "failure": {
        "attempts": 1,
        "failed_at": "2026-03-02T09:00:00Z",
        "fault": "not_found",
        "reason": "no tag v1.0.0",
        "retry_at": "2026-03-02T09:10:00Z"
      },
      "kind": "go",
      "name": "example.org/net",
      "namespace": null,
      "no_source": "--registry-vcs-allowlist names no host",
      "on_miss": "background",
      "peers": [],
      "rule": null,
      "source": null,
      "state": null,
      "version": "v1.0.0"
    }
    "#);
    for name in ["acme/vpc/aws", "acme/vpc/aws@1.2.3", "open/dns/aws@9.9.9"] {
        let told = json(&server, &format!("{EXPLAIN}/{name}"), OPS).await;
        let on_terminal = lines(db, &["registry", "explain", name]);
        assert_eq!(Value::from(vec![told]), Value::from(on_terminal));
    }
    // An account with limits does not learn the names of other deployments.
    let told = json(&server, &format!("{EXPLAIN}/acme/vpc/aws@1.2.3"), KIM).await;
    assert_eq!(told["state"], "added");
    assert_eq!(told["because"], "namespace");
    assert!(told.get("peers").is_none(), "{told}");
}

async fn clients_get_their_settings_with_the_namespaces_that_they_see(db: &TestDb) {
    let admin = with_uses(db).await;
    for (prefix, visibility) in [
        ("go example.com/net", Visibility::Owner),
        ("go example.org/open", Visibility::Public),
    ] {
        admin.namespace(prefix, visibility).await;
    }
    let server = signed(&admin, db).await;
    let told = json(&server, SETUP, OPS).await;
    let url = "https://mods.example.com";
    let on_terminal = lines(db, &["registry", "setup", "--url", url]);
    assert_eq!(Value::from(vec![told.clone()]), Value::from(on_terminal));
    assert_eq!(told["host"], "mods.example.com");
    assert_eq!(told["gonosumdb"], "example.com/net,example.org/open");
    let key = json(&server, KEY, LEE).await;
    let on_terminal = lines(db, &["registry", "key"]);
    assert_eq!(Value::from(vec![key.clone()]), Value::from(on_terminal));
    assert_eq!(key["name"], "mods.example.com");
    assert_eq!(
        told["gosumdb"],
        format!(
            "{} {url}/registry/go/sumdb/mods.example.com",
            key["key"].as_str().unwrap()
        )
    );

    // Only those who see a private namespace get its name.
    let of_kim = json(&server, SETUP, KIM).await;
    assert_eq!(of_kim, told);
    let of_lee = json(&server, SETUP, LEE).await;
    assert_eq!(of_lee["gonosumdb"], "example.org/open");
    assert_eq!(server.status(SETUP, "").await, 401);
    let closed = admin.server(db, 2, &[]).await;
    let open = admin
        .server(db, 3, &[("registry-anonymous-read", "true")])
        .await;
    for (server, prefixes) in [(&closed, ""), (&open, "example.org/open")] {
        let answer = server.get(SETUP, "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let told: Value = serde_json::from_str(answer.text()).unwrap();
        assert_eq!(told["gonosumdb"], prefixes);
        assert_eq!(server.status(KEY, "").await, 200);
    }
}

/// Stores a tag that has published one version, and not another one.
async fn tagged(db: &TestDb, repo: &RepoId) {
    let store = db.store();
    let commit = "a".repeat(40);
    let tags = BTreeMap::from([("v1.2.3".parse().unwrap(), commit.parse().unwrap())]);
    let seen = SeenTags {
        tags: &tags,
        most: 10,
        most_new: 10,
        most_told: 10,
    };
    let due_at = db.now() + TimeDelta::hours(1);
    let seen = store
        .registry_tags_record(repo, &seen, due_at)
        .await
        .unwrap();
    assert_eq!(seen.new, 1);
    let place = TagPlace {
        repo: repo.clone(),
        tag: "v1.2.3".parse().unwrap(),
        commit: commit.parse().unwrap(),
    };
    for (key, outcome, reason) in [
        ("module acme/vpc/aws 1.2.3", TagOutcome::Published, None),
        (
            "module acme/dns/aws 1.2.3",
            TagOutcome::Refused,
            Some("it has no files"),
        ),
    ] {
        let version = TagVersion {
            key: key.parse().unwrap(),
            outcome,
            reason: reason.map(ToOwned::to_owned),
        };
        let recorded = store.registry_tag_version_record(&place, &version, None);
        recorded.await.unwrap();
    }
    let settled = TagSettled {
        state: TagState::Done,
        reason: None,
        basis: "x",
        head: &place.commit,
        failures: 0,
        due_at,
        is_told: false,
    };
    let settled = store.registry_tag_settle(&place, &settled, None);
    settled.await.unwrap();
}

async fn an_account_sees_the_tags_of_its_repositories(db: &TestDb) {
    let admin = with_uses(db).await;
    for name in ["live", "zebra"] {
        tagged(db, &repo(name)).await;
    }
    let server = signed(&admin, db).await;
    let repos = |told: &Value| {
        let repos = told["repos"].as_array().unwrap().iter();
        let names = repos.map(|listed| listed["repo"].as_str().unwrap().to_owned());
        names.collect::<Vec<String>>()
    };
    let all = json(&server, TAGS, OPS).await;
    assert_eq!(all["repos"], Value::from(lines(db, &["registry", "tags"])));
    assert_eq!(
        repos(&all),
        ["github.test/acme/live", "github.test/acme/zebra"]
    );
    assert_eq!(all["repos"][0]["not_fully_published"], 1);
    let own = format!("{TAGS}/github.test/acme/live");
    let of_live = json(&server, &own, OPS).await;
    let on_terminal = lines(db, &["registry", "tags", "github.test/acme/live"]);
    assert_eq!(of_live["tags"], Value::from(on_terminal));
    assert_snapshot!(serde_json::to_string_pretty(&of_live).unwrap(), @r#"
    {
      "repo": "github.test/acme/live",
      "tags": [
        {
          "commit": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
          "failures": 0,
          "next_attempt_at": null,
          "not_published": [
            {
              "outcome": "refused",
              "reason": "it has no files",
              "version": "module acme/dns/aws 1.2.3"
            }
          ],
          "reason": null,
          "state": "done",
          "tag": "v1.2.3"
        }
      ]
    }
    "#);

    // The owner of kim has claimed one of them, and that of lee none.
    assert_eq!(
        repos(&json(&server, TAGS, KIM).await),
        ["github.test/acme/live"]
    );
    assert_eq!(json(&server, &own, KIM).await, of_live);
    assert!(repos(&json(&server, TAGS, LEE).await).is_empty());
    let other = format!("{TAGS}/github.test/acme/zebra");
    let unknown = format!("{TAGS}/github.test/acme/none");
    for (path, who, status) in [
        (&other, KIM, 403),
        (&unknown, KIM, 403),
        (&own, LEE, 403),
        (&unknown, OPS, 404),
        (&format!("{TAGS}/none"), OPS, 404),
    ] {
        let answer = page(&server, path, Some(who)).await;
        let found = answer.status.as_u16();
        assert_eq!(found, status, "{path} {who}: {}", answer.text());
    }
    // Nobody signs in to this server.
    let closed = admin.server(db, 2, &[]).await;
    for path in [TAGS, own.as_str()] {
        assert_eq!(closed.status(path, "").await, 403, "{path}");
    }
}

async fn the_log_is_verified_for_one_script_at_a_time(db: &TestDb) {
    let admin = with_uses(db).await;
    let server = signed(&admin, db).await;
    let verify = async || {
        let answer = script(&server, Method::POST, VERIFY, OPS, "").await;
        let told: Value = serde_json::from_str(answer.text()).unwrap();
        (answer.status.as_u16(), told)
    };
    let on_terminal = || {
        let keys = db.dir.path().join("keys").display().to_string();
        let said = lockkeeper_in(
            &db.dir.path().join("data-1"),
            &["registry", "verify"],
            &db.url,
            &["--json", "--encryption-key-file", &keys],
            &[],
        );
        (said.code, said.json())
    };
    let (status, told) = verify().await;
    assert_eq!(status, 200, "{told}");
    assert_eq!(on_terminal(), (0, told.clone()));
    assert_eq!(
        (&told["records"], &told["versions"]),
        (&2.into(), &2.into())
    );
    db.clock.advance(MINUTE);
    let (one, other) = tokio::join!(verify(), verify());
    let mut both = [one.0, other.0];
    both.sort_unstable();
    assert_eq!(both, [200, 503], "{} {}", one.1, other.1);
    let (busy, told) = if one.0 == 503 {
        (one.1, other.1)
    } else {
        (other.1, one.1)
    };
    assert_eq!(busy["reason"], "busy", "{busy}");
    // Every account may verify, and it keeps all processors busy. So others get the last answer, and know its age.
    admin.publish("module open/dns/aws 1.0.0", &MODULE).await;
    db.clock.advance(MINUTE / 2);
    let answer = script(&server, Method::POST, VERIFY, OPS, "").await;
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
    assert_eq!(answer.header("age"), "30");
    let again: Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(again, told);
    db.clock.advance(MINUTE / 2);
    let answer = script(&server, Method::POST, VERIFY, OPS, "").await;
    assert_eq!((answer.status.as_u16(), answer.header("age")), (200, ""));
    let after: Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(after["records"], 3, "{after}");

    // It is for scripts of the whole server.
    for (who, status) in [(KIM, 403), (LEE, 403), ("ops:wrong", 401)] {
        let answer = script(&server, Method::POST, VERIFY, who, "").await;
        assert_eq!(answer.status.as_u16(), status, "{who}: {}", answer.text());
        if who == KIM {
            // A verification shows nothing that the account could see.
            let told: Value = serde_json::from_str(answer.text()).unwrap();
            let begin =
                "“kim” may not do this: this account is limited to the resources of “net”, and";
            let detail = told["detail"].as_str().unwrap();
            assert!(detail.starts_with(begin), "{told}");
        }
    }
    let answer = script(&server, Method::GET, VERIFY, OPS, "").await;
    assert_eq!(answer.status.as_u16(), 405);
    let basic = format!("Basic {}", STANDARD.encode(OPS));
    let headers = [
        ("authorization", basic.as_str()),
        ("sec-fetch-site", "cross-site"),
    ];
    let answer = server.request(Method::POST, VERIFY, &headers).await;
    assert_eq!(answer.status.as_u16(), 403, "{}", answer.text());
    let (_, token) = admin.token(&["read:*"]).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let answer = server.request(Method::POST, VERIFY, &headers).await;
    assert_eq!(answer.status.as_u16(), 401);
    let closed = admin.server(db, 2, &[]).await;
    let answer = closed.request(Method::POST, VERIFY, &[]).await;
    assert_eq!(answer.status.as_u16(), 403, "{}", answer.text());

    let renamed = "UPDATE registry_names SET name = 'acme/vpc/azurerm' WHERE name = 'acme/vpc/aws'";
    execute(db, renamed).await;
    db.clock.advance(MINUTE);
    let (status, told) = verify().await;
    assert_eq!(status, 409, "{told}");
    let fault = "a name is missing in the list of names, that of module acme/vpc/aws";
    assert!(told["fault"].as_str().unwrap().starts_with(fault), "{told}");
    assert_eq!(on_terminal(), (1, told));
}

async fn other_deployments_are_for_accounts_of_the_whole_server(db: &TestDb) {
    let one = Deployment::open(db.backend, "one.example.com", &SIGNED_IN).await;
    let two = Deployment::open(db.backend, "two.example.com", &[]).await;
    for deployment in [&one, &two] {
        let admin = &deployment.admin;
        admin.namespace("module acme", Visibility::Public).await;
    }
    two.join(&one, "module acme/*", "module acme/*").await;
    one.admin.publish(VPC, &MODULE).await;
    two.admin.publish(VPC, &OTHER_MODULE).await;
    one.pull().await;
    let told = json(&one.server, "/api/registry/peers", OPS).await;
    assert_eq!(told["name"], "one.example.com");
    let peer = &told["peers"][0];
    assert_eq!(
        (&peer["name"], &peer["state"], &peer["lag_records"]),
        (&"two.example.com".into(), &"joined".into(), &0.into())
    );
    let conflict = &told["conflicts"][0];
    assert_eq!(
        (&conflict["name"], &conflict["peer"], &conflict["maker"]),
        (
            &"acme/vpc/aws".into(),
            &"two.example.com".into(),
            &"two.example.com".into()
        )
    );
    let (ours, theirs) = (&conflict["ours"], &conflict["theirs"]);
    assert!(ours.as_str().unwrap().starts_with("h1:"), "{conflict}");
    assert!(theirs.as_str().unwrap().starts_with("h1:"), "{conflict}");
    assert_ne!(ours, theirs);
    assert!(!told.to_string().contains("lkp_"), "{told}");

    // The command line prints the same. Only the lag depends on the clock.
    let command = ["registry", "peers", "show", "two.example.com"];
    let mut on_terminal = lines(&one.db, &command).remove(0);
    assert_eq!(on_terminal["conflicts"], told["conflicts"]);
    let mut in_api = peer.clone();
    for shown in [&mut on_terminal, &mut in_api] {
        let fields = shown.as_object_mut().unwrap();
        fields.remove("conflicts");
        fields.remove("lag_seconds");
    }
    assert_eq!(on_terminal, in_api);

    // Nobody signs in to the other server, and kim is limited to an owner.
    let refused = two.server.get("/api/registry/peers", "").await;
    assert_eq!(refused.status, 403);
    assert!(!refused.text().contains("one.example.com"));
    let admin = with_uses(db).await;
    let limited = signed(&admin, db).await;
    for who in [KIM, LEE] {
        let refused = page(&limited, "/api/registry/peers", Some(who)).await;
        assert_eq!(refused.status, 403, "{who}");
    }
}

/// Returns a value of `/metrics`, such as that of `registry_lag_seconds`.
async fn metric(server: &Replica, name: &str) -> u64 {
    let answer = page(server, "/metrics", Some(OPS)).await;
    let line = format!("lockkeeper_{name} ");
    let mut lines = answer.text().lines();
    let value = lines.find_map(|text| text.strip_prefix(&line));
    let value = value.unwrap_or_else(|| panic!("{name}: {}", answer.text()));
    value.parse().unwrap()
}

/// Returns the lag of a deployment in records and in seconds, as the API shows it.
async fn lag_of(server: &Replica, name: &str) -> (u64, u64) {
    let told = json(server, "/api/registry/peers", OPS).await;
    let mut peers = told["peers"].as_array().unwrap().iter();
    let peer = peers.find(|peer| peer["name"] == name).unwrap();
    let number = |field: &str| peer[field].as_u64().unwrap();
    (number("lag_records"), number("lag_seconds"))
}

async fn the_lag_of_each_deployment_is_shown_in_records_and_seconds(db: &TestDb) {
    let one = Deployment::open(db.backend, "one.example.com", &SIGNED_IN).await;
    let two = Deployment::open(db.backend, "two.example.com", &[]).await;
    let three = Deployment::open(db.backend, "three.example.com", &[]).await;
    two.admin.namespace("module acme", Visibility::Public).await;
    for other in [&two, &three] {
        one.join(other, "*", "*").await;
    }
    assert_eq!(one.pull().await, 0);
    for version in ["1.0.0", "1.1.0", "1.2.0"] {
        let key = format!("module acme/vpc/aws {version}");
        two.admin.publish(&key, &MODULE).await;
    }
    // The first page ends early, and no other follows.
    let token = one.token_for(&two).await;
    let first = "/registry/peer/v1/diff?after=0&limit=1&accepts=*";
    let first = two.server.get(first, &token).await.body;
    let is_sent = AtomicBool::new(false);
    two.tamper(move |path, answered| {
        if !path.ends_with("/diff") {
            return answered;
        }
        if is_sent.swap(true, Ordering::Relaxed) {
            return Answered {
                status: StatusCode::SERVICE_UNAVAILABLE,
                body: Bytes::from_static(b"overloaded"),
            };
        }
        Answered {
            body: first.clone(),
            ..answered
        }
    });
    one.db.clock.advance(Duration::from_secs(30));
    assert_eq!(one.pull().await, 1);
    one.db.clock.advance(Duration::from_secs(90));
    assert_eq!(lag_of(&one.server, "two.example.com").await, (2, 120));
    assert_eq!(lag_of(&one.server, "three.example.com").await, (0, 90));
    assert_eq!(metric(&one.server, "registry_lag_records").await, 2);
    assert_eq!(metric(&one.server, "registry_lag_seconds").await, 120);
    assert_eq!(metric(&one.server, "registry_peers_failing").await, 1);
    let shown = page(&one.server, "/registry/peers", Some(OPS)).await;
    let shown = text(shown.text());
    assert!(
        shown.contains("1 of 3\n2 are not merged yet\n") && shown.contains("answers with 503"),
        "{shown}"
    );
    let command = ["registry", "peers", "show", "two.example.com"];
    assert_eq!(lines(&one.db, &command)[0]["lag_records"], 2);

    two.honest();
    assert_eq!(one.pull().await, 2);
    one.db.clock.advance(Duration::from_secs(7));
    for name in ["two.example.com", "three.example.com"] {
        assert_eq!(lag_of(&one.server, name).await, (0, 7));
    }
    assert_eq!(metric(&one.server, "registry_lag_records").await, 0);
    assert_eq!(metric(&one.server, "registry_lag_seconds").await, 7);
    assert_eq!(metric(&one.server, "registry_peers_failing").await, 0);
}

async fn each_conflict_is_shown_with_the_contents_of_both_sides(db: &TestDb) {
    const THIRD_MODULE: [(&str, &[u8]); 1] = [("main.tf", b"output \"z\" {}\n")];
    const LATER_VPC: &str = "module acme/vpc/aws 2.0.0";
    let one = Deployment::open(db.backend, "one.example.com", &SIGNED_IN).await;
    let two = Deployment::open(db.backend, "two.example.com", &[]).await;
    let three = Deployment::open(db.backend, "three.example.com", &[]).await;
    for deployment in [&one, &two, &three] {
        let admin = &deployment.admin;
        admin.namespace("module acme", Visibility::Public).await;
    }
    for other in [&two, &three] {
        other.join(&one, "module acme/*", "module acme/*").await;
    }
    // Two others have the first version, and one of them has the second one.
    for (at, key, files) in [
        (&one, VPC, &MODULE),
        (&two, VPC, &OTHER_MODULE),
        (&three, VPC, &THIRD_MODULE),
        (&one, LATER_VPC, &THIRD_MODULE),
        (&three, LATER_VPC, &MODULE),
    ] {
        at.admin.publish(key, files).await;
    }
    assert_eq!(one.pull().await, 0);
    let told = json(&one.server, "/api/registry/peers", OPS).await;
    let conflicts = told["conflicts"].as_array().unwrap().iter();
    let shown = conflicts.map(|conflict| {
        let fields = ["version", "peer", "ours", "theirs"];
        fields.map(|field| conflict[field].as_str().unwrap())
    });
    let mut shown: Vec<[&str; 4]> = shown.collect();
    shown.sort_unstable();
    let checksum =
        |files: [(&'static str, &'static [u8]); 1]| hash_files(files).unwrap().to_string();
    let [first, second, third] = [MODULE, OTHER_MODULE, THIRD_MODULE].map(checksum);
    let [first, second, third] = [first.as_str(), second.as_str(), third.as_str()];
    assert_eq!(
        shown,
        [
            ["1.2.3", "three.example.com", first, third],
            ["1.2.3", "two.example.com", first, second],
            ["2.0.0", "three.example.com", third, first],
        ]
    );
}
