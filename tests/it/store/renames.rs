//! Tests of renames of a repository: every row moves, in one transaction or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::TimeDelta;
use lockkeeper::claims::CredentialStore;
use lockkeeper::credential::GitAccess;
use lockkeeper::forges::RepoAccess as _;
use lockkeeper::model::{
    ApplyScope, CommandKind, ForgeRepo, LockEventKind, LockKey, OwnerName, PlanState, PullRef,
    RepoId, RepoUrl, Rights,
};
use lockkeeper::seal::{Keyring, OpenError, SealedText, key_line};
use lockkeeper::secret::Secret;
use lockkeeper::store::{
    Acquired, DatabaseUrl, FormerName, JobClaim, JobFinish, KnownRepository, NewJob,
    RENAMED_COLUMNS, Rename, RenameRefused, Renamed, Store, answers_share,
};
use sqlx::{AssertSqlSafe, Connection};
use sqlx_postgres::PgConnection;
use sqlx_sqlite::SqliteConnectOptions;
use sqlx_sqlite::SqliteConnection;

use super::samples::{URL, command, job, plan_state, planned, project, pull, taken};
use super::waiters::{line, want};
use crate::support::db::{TestDb, by, stop_applies_of, store_test};

store_test!(
    every_text_in_the_schema_is_moved_or_is_no_name_of_a_repository,
    a_row_of_every_table_moves,
    locks_lines_and_plans_go_on_under_the_new_name,
    of_two_locks_on_one_place_the_older_stays,
    nothing_moves_while_a_job_is_at_work_but_for_the_one_that_found_out,
    what_waits_in_the_queue_moves_to_the_lanes_of_the_new_name,
    a_status_that_is_to_be_repeated_is_the_newest_under_the_new_name,
    the_identifier_tells_a_repository_and_the_name_is_an_attribute,
    claims_and_credentials_move_and_open_under_the_new_address,
    a_credential_that_does_not_open_keeps_everything_where_it_is,
    two_owners_of_the_two_names_are_named_and_nothing_moves,
    applies_that_are_stopped_stay_stopped,
);

const OLD: &str = "github.com/acme/infra";
const NEW: &str = "github.com/acme/network";
const ID: u64 = 4711;

/// Text columns that contain no name of a repository, or one that never changes: by table.
const OTHERS: &[(&str, &str)] = &[
    ("account_emails", "email"),
    ("account_external_ids", "external_id"),
    ("account_objects", "kind"),
    ("account_refs", "name"),
    ("account_stars", "label"),
    // A watch names a repository as its account has written it.
    ("account_watches", "project"),
    ("account_words", "field"),
    ("account_words", "word"),
    ("accounts", "full_name preferred_email status username"),
    (
        "applications",
        "id owner branch dir workspace name created_by",
    ),
    ("apply_locks", "id scope dir holder reason"),
    ("audit_checkpoints", "hash key signature"),
    ("audit_keys", "public key_id"),
    ("claim_applications", "application claim"),
    ("claim_credentials", "credential claim"),
    ("command_configs", "command file text"),
    (
        "commands",
        "id kind delivery actor origin spec head state outcome reason result stop_kind stop_reason superseded_by",
    ),
    ("credentials", "id owner kind public key_id created_by"),
    ("patch_sets", "head"),
    ("rate_gates", "host credential traffic"),
    ("reviewed_flags", "plan item"),
    // The body stays as it was received.
    (
        "deliveries",
        "id host forge_delivery event content_type state note",
    ),
    ("forge_pages", "etag content"),
    // Old names are the purpose of this table.
    ("former_names", "repo host"),
    ("jobs", "id kind state lease_holder last_error"),
    // A lease ends, and its holder works in the directory of the old name.
    ("leases", "key holder purpose"),
    (
        "lock_event_inbox",
        "kind repo dir workspace scope actor origin remote reason concern",
    ),
    ("lock_event_seals", "last_hash actor key signature"),
    ("lock_event_walks", "name hash fault"),
    // Events keep the name that they were recorded with.
    (
        "lock_events",
        "kind repo dir workspace scope actor origin remote reason concern previous hash",
    ),
    ("lock_waiters", "dir workspace scope name asker asks"),
    ("locks", "id dir workspace scope name holder reason asks"),
    ("owners", "id name created_by"),
    ("pending_statuses", "head context command"),
    ("plan_files", "plan"),
    (
        "plans",
        "id dir workspace name run head base_branch base distribution tool_version workflow digest counts blocked state",
    ),
    (
        "policy_approvals",
        "plan set_name person login teams items definition dir workspace name",
    ),
    // The origin of policies is a text for people, of the time of the plan.
    (
        "policy_verdicts",
        "plan set_name definition outcome why origin content tool findings weights items notes output texts checksum",
    ),
    ("pull_heads", "head base_branch"),
    ("pulls", "state title"),
    ("reconcilers", "name replica error"),
    ("registry_branch_repos", "head_sha basis failure"),
    ("registry_branch_uses", "dir kind name wanted version"),
    ("registry_conflicts", "kind name version peer record"),
    ("registry_deployment", "name verifier key_name store_id"),
    ("registry_downloads", "kind name version peer error"),
    ("registry_fills", "kind name version fault reason"),
    ("registry_go_mods", "name version"),
    (
        "registry_invitations",
        "hash url shares accepts visibility created_by",
    ),
    ("registry_log", "kind name version action record"),
    ("registry_loose_packages", "digest"),
    // The path of a Go module can be that of a repository. It is a name of its own, and the versions stay below it.
    ("registry_names", "kind name folded_name"),
    (
        "registry_namespaces",
        "kind prefix owner visibility created_by",
    ),
    ("registry_packages", "kind name version file digest"),
    (
        "registry_peers",
        "name url verifier old_verifiers state token_key token_hash shares accepts visibility edge sharing head error \
         skipped_last added_by met push_error closed",
    ),
    ("registry_tag_moves", "tag from_sha to_sha"),
    ("registry_tag_repos", "failure"),
    (
        "registry_tag_versions",
        "tag commit_sha kind name version outcome reason",
    ),
    (
        "registry_tags",
        "tag commit_sha state reason basis head_sha",
    ),
    ("registry_tokens", "id label hash scopes created_by"),
    ("registry_uses", "plan kind name version"),
    (
        "registry_versions",
        "kind name version state files_hash go_mod_hash commit_sha base origin published_by reason replacement takedown",
    ),
    ("replicas", "name host version address state"),
    ("repositories", "host"),
    ("repository_claims", "id owner"),
    ("repository_event_cursors", "replica"),
    ("repository_events", "kind"),
    (
        "repository_syncs",
        "replica state lease_key lease_holder asked_by asked_reason failure_kind failure verification checksum \
         verification_failure refused",
    ),
    ("run_output", "run text"),
    (
        "runs",
        "id command kind dir workspace name hook state outcome message",
    ),
    ("settings", "key value"),
];

fn repo(text: &str) -> RepoId {
    text.parse().unwrap()
}

fn at(name: &str, number: i64) -> PullRef {
    PullRef {
        repo: repo(name),
        ..pull(number)
    }
}

async fn rename_as(store: &Store, rename: &Rename<'_>) -> Renamed {
    let never =
        |_: &_, _: &_| -> Result<SealedText, OpenError> { panic!("there are no credentials") };
    store.repository_rename(rename, never).await.unwrap()
}

async fn rename(store: &Store) -> Renamed {
    let (old, new) = (repo(OLD), repo(NEW));
    rename_as(
        store,
        &Rename {
            id: ID,
            old: &old,
            new: &new,
            cause: by(),
            within: None,
        },
    )
    .await
}

/// A connection without the store.
enum Raw {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Raw {
    async fn open(db: &TestDb) -> Self {
        match &db.url {
            DatabaseUrl::Sqlite(path) => {
                let options = SqliteConnectOptions::new().filename(path);
                Self::Sqlite(SqliteConnection::connect_with(&options).await.unwrap())
            }
            DatabaseUrl::Postgres(options) => {
                Self::Postgres(PgConnection::connect_with(options).await.unwrap())
            }
        }
    }

    /// Returns table, column and type of every column.
    async fn columns(&mut self) -> Vec<(String, String, String)> {
        match self {
            Self::Sqlite(db) => sqlx::query_as(
                "SELECT t.name, c.name, CASE WHEN c.type <> 'TEXT' THEN lower(c.type) WHEN c.name LIKE '%\\_at' ESCAPE '\\' \
                 OR c.name IN ('until', 'run_after', 'lease_until', 'at', 'since') THEN 'time' ELSE 'text' END \
                 FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' \
                 AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND t.name NOT LIKE '\\_sqlx%' ESCAPE '\\' ORDER BY 1, 2",
            )
            .fetch_all(db)
            .await
            .unwrap(),
            Self::Postgres(db) => sqlx::query_as(
                "SELECT table_name::text, column_name::text, CASE data_type WHEN 'timestamp with time zone' THEN 'time' \
                 WHEN 'bytea' THEN 'blob' ELSE data_type END FROM information_schema.columns \
                 WHERE table_schema = 'public' AND table_name NOT LIKE '\\_sqlx%' ORDER BY 1, 2",
            )
            .fetch_all(db)
            .await
            .unwrap(),
        }
    }

    async fn try_execute(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(db) => sqlx::query(sql).execute(db).await.map(drop),
            Self::Postgres(db) => sqlx::query(sql).execute(db).await.map(drop),
        }
    }

    async fn texts(&mut self, table: &str, column: &str) -> Vec<String> {
        let sql = AssertSqlSafe(format!(
            "SELECT CAST({column} AS TEXT) FROM {table} WHERE {column} IS NOT NULL"
        ));
        match self {
            Self::Sqlite(db) => sqlx::query_scalar(sql).fetch_all(db).await.unwrap(),
            Self::Postgres(db) => sqlx::query_scalar(sql).fetch_all(db).await.unwrap(),
        }
    }
}

async fn every_text_in_the_schema_is_moved_or_is_no_name_of_a_repository(db: &TestDb) {
    let columns = Raw::open(db).await.columns().await;
    let texts = columns.into_iter().filter(|(.., kind)| kind == "text");
    let texts: BTreeSet<String> = texts
        .map(|(table, column, _)| format!("{table}.{column}"))
        .collect();
    let moved: BTreeSet<String> = RENAMED_COLUMNS
        .iter()
        .map(|column| (*column).to_owned())
        .collect();
    let others = OTHERS.iter().flat_map(|(table, columns)| {
        columns
            .split_whitespace()
            .map(move |column| format!("{table}.{column}"))
    });
    let others: BTreeSet<String> = others.collect();
    assert_eq!(moved.intersection(&others).collect::<Vec<_>>(), [""; 0]);
    let said: BTreeSet<String> = moved.union(&others).cloned().collect();
    let unsaid: Vec<&String> = texts.difference(&said).collect();
    assert!(
        unsaid.is_empty(),
        "does a rename have to move {unsaid:?}? Say so in RENAMED_COLUMNS and move it, or in OTHERS"
    );
    let gone: Vec<&String> = said.difference(&texts).collect();
    assert!(gone.is_empty(), "there is no {gone:?} any more");
}

/// Returns a value with which the row can be read.
fn sample(table: &str, column: &str, kind: &str) -> String {
    const UUID: &str = "'00000000-0000-7000-8000-000000000001'";
    let full = format!("{table}.{column}");
    match full.as_str() {
        "jobs.lane" => return format!("'pull:{OLD}#1'"),
        "jobs.payload" => {
            return format!("'{{\"pull\":\"{OLD}#1\",\"event\":{{\"repo\":\"{OLD}\"}}}}'");
        }
        "jobs.share" => return format!("'{OLD}'"),
        "jobs.state" => return "'queued'".to_owned(),
        "repositories.host" => return "'github.com'".to_owned(),
        "apply_locks.scope" => return "'repo'".to_owned(),
        "credentials.kind" => return "'token'".to_owned(),
        "applications.url" | "credentials.url" | "repository_claims.url" => {
            return format!("'https://{OLD}'");
        }
        "pulls.url" | "locks.pull_url" | "lock_waiters.pull_url" => {
            return "'https://GitHub.com/Acme/Infra/pull/1'".to_owned();
        }
        _ => {}
    }
    if RENAMED_COLUMNS.contains(&full.as_str()) {
        return format!("'{OLD}'");
    }
    match (kind, column) {
        (
            "text",
            "id" | "owner" | "command" | "run" | "delivery" | "superseded_by" | "lease_holder",
        ) => UUID.to_owned(),
        ("text", _) => "'x'".to_owned(),
        // The database assigns the first numbers.
        (_, "seq") => "1000".to_owned(),
        ("time", _) => "'2026-03-02T09:00:00+00:00'".to_owned(),
        ("boolean", _) => "FALSE".to_owned(),
        ("blob", _) => "CAST('x' AS BLOB)".to_owned(),
        (_, _) => "1".to_owned(),
    }
}

async fn a_row_of_every_table_moves(db: &TestDb) {
    let mut raw = Raw::open(db).await;
    let columns = raw.columns().await;
    let tables: BTreeSet<&str> = RENAMED_COLUMNS
        .iter()
        .map(|column| column.split_once('.').unwrap().0)
        .collect();
    let mut inserts = BTreeMap::new();
    for (table, column, kind) in columns
        .iter()
        .filter(|(table, ..)| tables.contains(table.as_str()) || table == "owners")
    {
        let (names, values): &mut (Vec<String>, Vec<String>) =
            inserts.entry(table.clone()).or_default();
        names.push(column.clone());
        let value = sample(table, column, kind);
        values.push(if matches!(raw, Raw::Postgres(_)) {
            value.replace("AS BLOB", "AS BYTEA")
        } else {
            value
        });
    }
    // Some rows refer to others, which must exist first.
    let given = if matches!(raw, Raw::Postgres(_)) {
        "OVERRIDING SYSTEM VALUE"
    } else {
        ""
    };
    let insert = |(table, (names, values)): (String, (Vec<String>, Vec<String>))| {
        format!(
            "INSERT INTO {table} ({}) {given} VALUES ({})",
            names.join(", "),
            values.join(", ")
        )
    };
    let mut left: Vec<String> = inserts.into_iter().map(insert).collect();
    while !left.is_empty() {
        let (before, mut failed) = (left.len(), Vec::new());
        let mut last = None;
        for sql in left {
            if let Err(error) = raw.try_execute(&sql).await {
                last = Some(format!("{sql}: {error}"));
                failed.push(sql);
            }
        }
        assert!(failed.len() < before, "{last:?}");
        left = failed;
    }
    let (old, new) = (repo(OLD), repo(NEW));
    let rename = Rename {
        id: 1,
        old: &old,
        new: &new,
        cause: by(),
        within: None,
    };
    let reseal =
        |there: &lockkeeper::store::SealedCredential, _: &RepoUrl| Ok(there.sealed.clone());
    let renamed = db.store().repository_rename(&rename, reseal).await.unwrap();
    assert!(matches!(renamed, Renamed::Done(_)), "{renamed:?}");
    let mut left = BTreeSet::new();
    for (table, column, _) in columns.iter().filter(|(.., kind)| kind == "text") {
        let texts = raw.texts(table, column).await;
        if texts
            .iter()
            .any(|text| text.to_lowercase().contains("acme/infra"))
        {
            left.insert(format!("{table}.{column}"));
        }
    }
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        ["former_names.repo", "lock_event_inbox.reason"]
    );
    assert_eq!(
        raw.texts("pulls", "url").await,
        ["https://github.com/acme/network/pull/1"]
    );
    let events = db.store().lock_event_list(1).await.unwrap();
    assert_eq!(events[0].event.kind, LockEventKind::RepositoryRenamed);
    assert!(
        events[0]
            .event
            .cause
            .reason
            .starts_with(&format!("{OLD} was renamed to {NEW}: ")),
        "{}",
        events[0].event.cause.reason
    );
}

async fn locks_lines_and_plans_go_on_under_the_new_name(db: &TestDb) {
    let store = db.store();
    for number in [1, 2] {
        super::samples::open_pull(store, number).await;
    }
    let plan = planned(db, &pull(1), &project("a")).await;
    let _waits = want(store, &pull(2), &["a"]).await;
    assert_eq!(line(store, "a").await, [2]);
    assert!(matches!(rename(store).await, Renamed::Done(_)));
    let held = store.lock_list().await.unwrap();
    assert_eq!(
        held.iter()
            .map(|lock| lock.pull.clone())
            .collect::<Vec<_>>(),
        [at(NEW, 1)]
    );
    let key = LockKey::of(&repo(NEW), &project("a"));
    let waits: Vec<_> = store
        .waiter_list(&key)
        .await
        .unwrap()
        .into_iter()
        .map(|waiter| waiter.pull)
        .collect();
    assert_eq!(waits, [at(NEW, 2)]);
    assert_eq!(line(store, "a").await, [0_i64; 0]);
    assert_eq!(plan_state(db, &plan).await, PlanState::Planned);
    let freed = store.lock_release_all(&at(NEW, 1), by()).await.unwrap();
    assert_eq!(freed.len(), 1);
    assert_eq!(
        store.lock_list().await.unwrap()[0].pull,
        at(NEW, 2),
        "whoever waited is next"
    );
}

async fn of_two_locks_on_one_place_the_older_stays(db: &TestDb) {
    let store = db.store();
    for (name, number) in [(OLD, 1), (NEW, 2), (NEW, 1), (OLD, 3)] {
        store
            .pull_seen(&at(name, number), lockkeeper::model::PullState::Open, URL)
            .await
            .unwrap();
    }
    let plan = planned(db, &at(OLD, 1), &project("a")).await;
    db.clock.advance(std::time::Duration::from_mins(1));
    let later = planned(db, &at(NEW, 2), &project("a")).await;
    taken(store, &at(NEW, 1), &project("b")).await;
    db.clock.advance(std::time::Duration::from_mins(1));
    taken(store, &at(OLD, 3), &project("b")).await;
    assert!(matches!(rename(store).await, Renamed::Done(_)));
    let mut held: Vec<String> = store
        .lock_list()
        .await
        .unwrap()
        .iter()
        .map(|lock| format!("{} {}", lock.project.dir, lock.pull))
        .collect();
    held.sort();
    assert_eq!(held, [format!("a {NEW}#1"), format!("b {NEW}#1")]);
    assert_eq!(plan_state(db, &plan).await, PlanState::Planned);
    assert_eq!(plan_state(db, &later).await, PlanState::Discarded);
    let told: Vec<LockEventKind> = store
        .lock_event_list(3)
        .await
        .unwrap()
        .iter()
        .rev()
        .map(|event| event.event.kind)
        .collect();
    assert_eq!(
        told,
        [
            LockEventKind::Released,
            LockEventKind::Released,
            LockEventKind::RepositoryRenamed
        ]
    );
}

fn work(name: &str) -> NewJob {
    let payload = format!("{{\"pull\":\"{name}#1\"}}");
    NewJob {
        payload,
        share: name.to_owned(),
        ..job(&format!("pull:{name}#1"))
    }
}

async fn nothing_moves_while_a_job_is_at_work_but_for_the_one_that_found_out(db: &TestDb) {
    let store = db.store();
    let open = super::samples::open_pull(store, 1).await;
    taken(store, &open, &project("a")).await;
    store.job_push(&work(OLD)).await.unwrap();
    let lease = store
        .job_claim(&JobClaim::any("w", db.now() + TimeDelta::minutes(1)))
        .await
        .unwrap()
        .unwrap();
    let share = answers_share(&repo(NEW));
    let other = store
        .job_push(&NewJob {
            lane: format!("pull:{NEW}#7"),
            share,
            ..work(NEW)
        })
        .await
        .unwrap();
    assert_eq!(rename(store).await, Renamed::Busy);
    assert_eq!(
        store.lock_list().await.unwrap()[0].pull,
        open,
        "nothing was moved"
    );
    let waits = store
        .job_list_open()
        .await
        .unwrap()
        .into_iter()
        .find(|job| job.id == other)
        .unwrap();
    assert_eq!(
        waits.run_after,
        db.now() + TimeDelta::seconds(10),
        "the repository comes to rest"
    );
    let (old, new) = (repo(OLD), repo(NEW));
    let within = Rename {
        id: ID,
        old: &old,
        new: &new,
        cause: by(),
        within: Some(lease.id),
    };
    assert!(matches!(rename_as(store, &within).await, Renamed::Done(_)));
    // The job keeps its lease, and begins again with the new name.
    let at_once = store.job_retry(&lease, db.now(), "renamed").await.unwrap();
    assert_eq!(at_once, lockkeeper::store::JobFinish::Recorded);
    let lease = store
        .job_claim(&JobClaim::any("w", db.now() + TimeDelta::minutes(1)))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (lease.lane, lease.payload),
        (format!("pull:{NEW}#1"), format!("{{\"pull\":\"{NEW}#1\"}}"))
    );
}

async fn what_waits_in_the_queue_moves_to_the_lanes_of_the_new_name(db: &TestDb) {
    let store = db.store();
    for lane in [
        "events:github.com/acme/infra#1",
        "status:github.com/acme/infra@ab:x",
        "comments:github.com/acme/infra2#1",
    ] {
        store.job_push(&job(lane)).await.unwrap();
    }
    let share = answers_share(&repo(OLD));
    store
        .job_push(&NewJob { share, ..work(OLD) })
        .await
        .unwrap();
    assert_eq!(rename(store).await, Renamed::Done(3));
    let shares = Raw::open(db).await.texts("jobs", "share").await;
    assert_eq!(shares, ["", "", "", "at once: github.com/acme/network"]);
    let lanes: Vec<String> = store
        .job_list_open()
        .await
        .unwrap()
        .into_iter()
        .map(|job| job.lane)
        .collect();
    assert_eq!(
        lanes,
        [
            "events:github.com/acme/network#1",
            "status:github.com/acme/network@ab:x",
            "comments:github.com/acme/infra2#1",
            "pull:github.com/acme/network#1",
        ]
    );
}

async fn a_status_that_is_to_be_repeated_is_the_newest_under_the_new_name(db: &TestDb) {
    let store = db.store();
    let [old, new] = [OLD, NEW].map(|name| format!("status:{name}@ab:x"));
    let status = |state: &str| NewJob {
        payload: format!(r#"{{"repo":"{OLD}","state":"{state}"}}"#),
        ..job(&old)
    };
    let ends = async || {
        let lease = store
            .job_claim(&JobClaim::any("w", db.now() + TimeDelta::seconds(45)))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(store.job_finish(&lease).await.unwrap(), JobFinish::Recorded);
    };
    let first = store.job_push(&status("pending")).await.unwrap();
    ends().await;
    store.job_push(&status("success")).await.unwrap();
    ends().await;
    let lane = format!("repeat:{old}");
    store
        .job_push(&NewJob {
            payload: format!(r#"{{"statuses":"{old}"}}"#),
            ..job(&lane)
        })
        .await
        .unwrap();
    assert_eq!(rename(store).await, Renamed::Done(1));
    let lanes: Vec<String> = store
        .job_list_open()
        .await
        .unwrap()
        .into_iter()
        .map(|job| job.lane)
        .collect();
    assert_eq!(lanes, [format!("repeat:{new}")]);
    ends().await;
    assert!(
        store
            .job_repeat_newest("work", 3, &new, first)
            .await
            .unwrap()
            .is_some(),
        "it is known by the new name"
    );
    let lease = store
        .job_claim(&JobClaim::any("w", db.now() + TimeDelta::seconds(45)))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (lease.lane, lease.payload),
        (new, format!(r#"{{"repo":"{NEW}","state":"success"}}"#))
    );
}

async fn the_identifier_tells_a_repository_and_the_name_is_an_attribute(db: &TestDb) {
    let store = db.store();
    let (old, new) = (ForgeRepo::new(ID, repo(OLD)), ForgeRepo::new(ID, repo(NEW)));
    assert_eq!(
        store.repository_known(&old).await.unwrap(),
        KnownRepository::New
    );
    assert!(store.repository_note(&old).await.unwrap());
    assert!(
        !store.repository_note(&new).await.unwrap(),
        "a name that differs is never noted over another"
    );
    assert_eq!(
        store.repository_known(&old).await.unwrap(),
        KnownRepository::Same
    );
    assert_eq!(
        store.repository_known(&new).await.unwrap(),
        KnownRepository::Differs
    );
    let other = ForgeRepo::new(ID + 1, repo(OLD));
    assert_eq!(
        store.repository_known(&other).await.unwrap(),
        KnownRepository::Differs
    );
    assert!(matches!(rename(store).await, Renamed::Done(_)));
    assert_eq!(
        store.repository_name(repo(OLD).host(), ID).await.unwrap(),
        Some(repo(NEW))
    );
    let former = FormerName {
        old: repo(OLD),
        now: repo(NEW),
    };
    assert_eq!(store.repository_former_names(10).await.unwrap(), [former]);
    assert!(
        store.repository_note(&other).await.unwrap(),
        "the name is free for another repository"
    );
    assert_eq!(store.repository_former_names(10).await.unwrap(), []);
    assert_eq!(store.repository_id(&repo(OLD)).await.unwrap(), Some(ID + 1));
}

fn keys(start: u8) -> Arc<Keyring> {
    let key = std::array::from_fn(|at| start.wrapping_add(u8::try_from(at).unwrap()));
    Arc::new(
        Keyring::parse(key_line(&format!("k{start}").parse().unwrap(), &key).expose()).unwrap(),
    )
}

async fn credential(db: &TestDb, credentials: &CredentialStore, name: &str) -> OwnerName {
    let owner = OwnerName::new("net").unwrap();
    drop(db.store().owner_create(&owner, by()).await.unwrap());
    let access = GitAccess::Token {
        user: None,
        token: Secret::new("ghp_0123456789abcdefghij"),
    };
    credentials
        .add(
            &owner,
            &RepoUrl::of(&repo(name)).unwrap(),
            &access,
            (Rights::Whole, by()),
        )
        .await
        .unwrap();
    owner
}

async fn move_with(db: &TestDb, credentials: &CredentialStore) -> Renamed {
    let (old, new) = (repo(OLD), repo(NEW));
    let rename = Rename {
        id: ID,
        old: &old,
        new: &new,
        cause: by(),
        within: None,
    };
    let reseal = |there: &_, url: &_| credentials.resealed_for(there, url);
    db.store().repository_rename(&rename, reseal).await.unwrap()
}

async fn claims_and_credentials_move_and_open_under_the_new_address(db: &TestDb) {
    let credentials = CredentialStore::new(db.store().clone(), db.ids.clone(), Some(keys(1)));
    let owner = credential(db, &credentials, OLD).await;
    assert!(matches!(
        move_with(db, &credentials).await,
        Renamed::Done(_)
    ));
    assert_eq!(
        db.store().claim_owner_of(&repo(NEW)).await.unwrap(),
        Some(owner.clone())
    );
    assert_eq!(db.store().claim_owner_of(&repo(OLD)).await.unwrap(), None);
    assert!(
        credentials.for_api(&repo(NEW)).await.unwrap().is_some(),
        "it opens there"
    );
    assert!(credentials.for_api(&repo(OLD)).await.unwrap().is_none());
    // Both names of the same owner become one.
    credential(db, &credentials, OLD).await;
    assert!(matches!(
        move_with(db, &credentials).await,
        Renamed::Done(_)
    ));
    assert_eq!(
        db.store().claim_list(None, None, 10).await.unwrap().len(),
        1
    );
    assert_eq!(
        db.store().claim_list(None, None, 10).await.unwrap()[0].credentials,
        2
    );
}

async fn a_credential_that_does_not_open_keeps_everything_where_it_is(db: &TestDb) {
    let credentials = CredentialStore::new(db.store().clone(), db.ids.clone(), Some(keys(1)));
    credential(db, &credentials, OLD).await;
    let open = super::samples::open_pull(db.store(), 1).await;
    taken(db.store(), &open, &project("a")).await;
    let other = CredentialStore::new(db.store().clone(), db.ids.clone(), Some(keys(9)));
    let Renamed::Refused(why) = move_with(db, &other).await else {
        panic!("the key is another one")
    };
    assert!(
        matches!(
            &why,
            RenameRefused::Sealed {
                reason: OpenError::MissingKey(_),
                ..
            }
        ),
        "{why}"
    );
    assert_eq!(db.store().lock_list().await.unwrap()[0].pull, open);
    assert!(credentials.for_api(&repo(OLD)).await.unwrap().is_some());
}

async fn two_owners_of_the_two_names_are_named_and_nothing_moves(db: &TestDb) {
    let store = db.store();
    for (owner, name) in [("net", OLD), ("dns", NEW)] {
        let owner = OwnerName::new(owner).unwrap();
        drop(store.owner_create(&owner, by()).await.unwrap());
        let owner = store.owner_get(&owner).await.unwrap().unwrap();
        let claimed = store
            .claim_acquire(owner.id, &RepoUrl::of(&repo(name)).unwrap(), by())
            .await
            .unwrap();
        assert!(matches!(claimed, Acquired::Claimed(_)));
    }
    command(store, CommandKind::Plan, &pull(1)).await;
    let Renamed::Refused(why) = rename(store).await else {
        panic!("there are two owners")
    };
    let told = why.to_string();
    assert!(
        told.contains("`net` has claimed the old name and `dns` the new one")
            && told.contains("apps remove"),
        "{told}"
    );
    assert_eq!(store.command_list(1).await.unwrap()[0].pull, pull(1));
    assert_eq!(store.repository_id(&repo(NEW)).await.unwrap(), None);
}

async fn applies_that_are_stopped_stay_stopped(db: &TestDb) {
    let store = db.store();
    let of = |name: &str| ApplyScope::in_repo(repo(name), None);
    let (soon, late) = (
        db.now() + TimeDelta::hours(1),
        db.now() + TimeDelta::hours(9),
    );
    stop_applies_of(store, &of(OLD), Some(late), "ada", "frozen").await;
    stop_applies_of(store, &of(NEW), Some(soon), "bob", "for a moment").await;
    assert!(matches!(rename(store).await, Renamed::Done(_)));
    let lock = store.apply_lock_get(&of(NEW)).await.unwrap().unwrap();
    assert_eq!(
        (lock.ends_at, lock.holder.login.as_str()),
        (Some(late), "ada"),
        "the one that lasts longer stays"
    );
    assert!(store.apply_lock_get(&of(OLD)).await.unwrap().is_none());
}
