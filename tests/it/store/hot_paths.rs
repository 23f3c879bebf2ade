//! Checks that no statement of a hot path reads a whole table, with 100,000 locks and 1,000,000 audit events, on both
//! databases.
//!
//! The statements are those that the store really sends: PostgreSQL's client logs them while the operations below
//! run, and both databases explain them. Parts that differ in SQLite's dialect are removed first.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use lockkeeper::claims;
use lockkeeper::features::accounts::{AllUsers, LabelChanges, NewAccount};
use lockkeeper::features::registry::{
    BranchReading, FillFault, ForeignVersions, LogOutcome, NewToken, SeenTags, StateReader,
    TagOutcome, TagPlace, TagSettled, TagState, TagVersion, Visibility,
};
use lockkeeper::locks::{self, LockRequest, QueuedPlan};
use lockkeeper::model::{
    ApplicationChange, ApplicationFields, CommandId, CommandKind, CommandOutcome, CommitSha,
    Concern, DeliveryId, ForgeHosts, Jitter, LockKey, MirrorEvent, PlanRecord, PlanState,
    ProjectOutcome, PullHead, PullRef, PullState, RepoUrl, RepositoryChange, RepositoryEventKind,
    Rights, RunKind, Sha256Digest, Subject,
};
use lockkeeper::seal::SigningKey;
use lockkeeper::store::{
    ApplyChecks, ApplyGate, ClaimCollection, DatabaseUrl, DeliveryState, EventWalk,
    FinishedCommand, HeadUpdate, JobClaim, LockAttempt, MirrorSearch, NewDelivery, OutputPiece,
    PendingStatus, PlanParts, PolicyApprove, Presence,
};
use lockkeeper_registry::records::LogId;
use lockkeeper_registry::versions::VersionKey;
use sqlx::{AssertSqlSafe, Connection, Row};
use sqlx_postgres::PgConnection;
use sqlx_sqlite::SqliteConnectOptions;
use sqlx_sqlite::SqliteConnection;

use super::policies::{approval, approvals_of, failed, member, needed};
use super::registry;
use super::replicas::replica;
use super::samples::{URL, command, job, new_plan, project, run, steal, take, taken};
use crate::support::accounts::by_ops;
use crate::support::db::{Backend, TestDb, by, execute};
use crate::support::log;

/// Tables that grow with use.
const GROWING: [&str; 38] = [
    "account_emails",
    "account_external_ids",
    "account_stars",
    "account_watches",
    "account_words",
    "accounts",
    "applications",
    "changes",
    "claim_applications",
    "command_configs",
    "commands",
    "deliveries",
    "jobs",
    "lock_events",
    "lock_waiters",
    "locks",
    "plans",
    "policy_approvals",
    "policy_verdicts",
    "pulls",
    "registry_branch_uses",
    "registry_downloads",
    "registry_fills",
    "registry_go_mods",
    "registry_log",
    "registry_log_hashes",
    "registry_loose_packages",
    "registry_names",
    "registry_packages",
    "registry_tag_versions",
    "registry_tags",
    "registry_uses",
    "registry_versions",
    "repository_claims",
    "repository_events",
    "repository_syncs",
    "run_output",
    "runs",
];

/// Sources that SQLite may read completely: no table at all, one with a row per server, apply lock, setting, promise,
/// token, peer or conflict of the registry, or one that the sealer of the audit log empties within seconds.
const SMALL: [&str; 22] = [
    "CONSTANT",
    "(",
    "each",
    "counted",
    "whose",
    "page",
    "apply_locks",
    "audit_",
    "leases",
    "lock_event_inbox",
    "lock_event_seals",
    "lock_event_walks",
    "open_lanes",
    "pending_statuses",
    "registry_access",
    "registry_conflicts",
    "registry_invitations",
    "registry_peers",
    "registry_cache",
    "registry_tokens",
    "replicas",
    "settings",
];
/// Parts of statements that concern all open jobs. They count or list jobs for the page of operations and the
/// metrics, or they find, every few minutes, work that no job will do.
const READS_ALL_OPEN: [&str; 3] = ["GROUP BY", "LIMIT 10000", "payload LIKE"];
/// Indexes that only contain unfinished work.
const UNFINISHED: [&str; 5] = [
    "commands_unfinished",
    "jobs_of_share",
    "jobs_in_order",
    "jobs_open",
    "jobs_running",
];

#[tokio::test]
async fn no_hot_path_reads_a_whole_table() {
    let [sqlite, postgres] = [
        TestDb::new(Backend::Sqlite).await,
        TestDb::new(Backend::Postgres).await,
    ];
    tokio::join!(fill(&sqlite, FAST), fill(&postgres, ""));
    let heard = log::listen();
    work(&postgres).await;
    let heard = heard.end();
    let mut statements = statements(&heard);
    let (claim, before_a_claim) = claim_function(&postgres).await;
    statements.retain(|statement| !statement.contains("claim_job("));
    statements.insert(claim);
    assert!(
        statements.len() >= 70,
        "only {} statements were heard",
        statements.len()
    );
    let mut whole = Vec::new();
    let (mut theirs, mut ours) = (
        postgres_connection(&postgres).await,
        sqlite_connection(&sqlite).await,
    );
    // The first round has no statistics of the tables.
    for analyzed in [false, true] {
        if analyzed {
            tokio::join!(execute(&sqlite, "ANALYZE"), execute(&postgres, "ANALYZE"));
        }
        // A page may be slow without statistics. The statements of workers must always be fast.
        let asked = statements
            .iter()
            .filter(|statement| analyzed || is_of_the_queue(statement));
        for statement in asked {
            let before = if is_claim(statement) {
                before_a_claim.as_str()
            } else {
                "SELECT 1"
            };
            let found = [
                whole_on_postgres(&mut theirs, before, statement).await,
                whole_on_sqlite(&mut ours, statement).await,
            ];
            whole.extend(
                found
                    .into_iter()
                    .flatten()
                    .map(|plan| format!("analyzed: {analyzed}, {plan}")),
            );
        }
    }
    assert!(
        whole.is_empty(),
        "{} statements read whole tables:\n\n{}",
        whole.len(),
        whole.join("\n\n")
    );
}

#[tokio::test]
async fn a_statement_that_reads_a_whole_table_is_found() {
    let [sqlite, postgres] = [
        TestDb::new(Backend::Sqlite).await,
        TestDb::new(Backend::Postgres).await,
    ];
    let statement = "SELECT id FROM locks WHERE holder = $1";
    assert!(
        whole_on_sqlite(&mut sqlite_connection(&sqlite).await, statement)
            .await
            .is_some()
    );
    let mut theirs = postgres_connection(&postgres).await;
    assert!(
        whole_on_postgres(&mut theirs, "SELECT 1", statement)
            .await
            .is_some()
    );
    // The index of open jobs does not have this order, so the database reads and sorts all of it.
    let sorted =
        "SELECT id FROM jobs WHERE state IN ('queued', 'running') ORDER BY payload LIMIT 1";
    let by_bitmap = "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', 'off', true)";
    let plan = whole_on_postgres(&mut theirs, by_bitmap, sorted)
        .await
        .expect("it reads everything");
    assert!(plan.contains("Bitmap Heap Scan on jobs"), "{plan}");
}

/// Returns an `INSERT` of rows that are made of the numbers from 1, in the SQL of both databases. The words in
/// capitals are replaced by texts, some of them with the number. All values grow with the number, so that indexes are
/// written from front to back.
fn rows(many: u32, into: &str, values: &str) -> String {
    let values = values
        .replace("ID", "'00000000-0000-7000-9000-' || (100000000000 + n)")
        .replace(
            "HASH",
            &format!("'{}' || (100000000000 + n)", "a".repeat(52)),
        )
        .replace("COMMIT", &format!("'{}'", "c".repeat(40)))
        .replace("DIGEST", &format!("'{}'", "d".repeat(64)))
        .replace(
            "COUNTS",
            r#"'{"add":1,"change":0,"destroy":0,"import":0,"forget":0}'"#,
        )
        .replace(
            "REPO",
            &format!("'github.com/acme/r' || (100 + (n - 1) / {})", many / 100),
        )
        .replace("ADDRESS", "'https://github.com/acme/r' || (1000000 + n)")
        .replace("TIME", "'2026-03-01T09:00:00Z'");
    format!(
        "INSERT INTO {into} SELECT {values} FROM (WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s \
         WHERE n < {many}) SELECT n FROM s) AS s"
    )
}

/// Settings for filling SQLite. It need not survive a power cut then, and its cache holds the pages that it writes
/// to.
const FAST: &str = "PRAGMA synchronous = OFF; PRAGMA cache_size = -131072; ";

/// Fills the tables. `before` precedes each statement, because each has its own connection.
async fn fill(db: &TestDb, before: &str) {
    let bytes = match db.backend {
        Backend::Sqlite => "AS BLOB",
        Backend::Postgres => "AS BYTEA",
    };
    for rows in years() {
        let rows = rows.replace("AS BYTES", bytes);
        execute(db, &format!("{before}{rows}")).await;
    }
}

/// Returns the rows of a company that has used Lockkeeper for years: so many that reading a whole table costs far more than
/// an index, and no more, because filling both databases is most of the time of these tests.
fn years() -> Vec<String> {
    vec![
        rows(12_500, "pulls (repo, number, state, url, updated_at)", "REPO, n, 'open', 'u', TIME"),
        rows(
            25_000,
            "locks (id, repo, dir, workspace, scope, name, pull, pull_url, holder, reason, taken_at, active_at)",
            "ID, REPO, 'd' || (1000000 + n), 'default', '', '', n / 2, 'u', 'ada', 'planned', TIME, TIME",
        ),
        rows(
            10_000,
            "lock_waiters (repo, dir, workspace, scope, name, pull, pull_url, asker, asks, since)",
            "REPO, 'd' || (1000000 + n), 'default', '', '', n + 50000, 'u', 'ada', '[]', TIME",
        ),
        rows(
            250_000,
            "lock_events (seq, at, kind, repo, dir, workspace, scope, pull, actor, origin, reason, previous, hash)",
            "n, TIME, 'taken', REPO, 'd' || (1000000 + n / 10), 'default', '', n / 2, 'ada', 'comment', 'planned', HASH, HASH",
        ),
        rows(
            25_000,
            "commands (id, kind, repo, pull, comment, actor, origin, spec, state, created_at)",
            "ID, 'plan', REPO, n / 2, n, 'ada', 'comment', '{}', 'finished', TIME",
        ),
        rows(25_000, "command_configs (command, file, text)", "ID, 'atlantis.yaml', 'version: 3'"),
        rows(
            25_000,
            "runs (id, command, kind, repo, pull, dir, workspace, name, state, created_at)",
            "ID, ID, 'plan', REPO, n / 2, 'd' || (1000000 + n), 'default', '', 'finished', TIME",
        ),
        rows(
            25_000,
            "plans (id, repo, pull, dir, workspace, name, run, head, base_branch, base, distribution, tool_version, \
             workflow, order_group, counts, state, created_at)",
            "ID, REPO, n / 2, 'd' || (1000000 + n), 'default', '', ID, COMMIT, 'main', COMMIT, 'terraform', '1.9.8', DIGEST, 0, COUNTS, 'planned', TIME",
        ),
        rows(
            25_000,
            "policy_verdicts (plan, set_name, place, definition, outcome, origin, findings, weights, more_findings, items, \
             notes, output, texts, checksum)",
            "ID, 'security', 0, DIGEST, 'passed', '/policies', '[]', '[]', 0, '[]', '[]', '', DIGEST, DIGEST",
        ),
        rows(
            25_000,
            "policy_approvals (plan, set_name, person, login, teams, is_author, items, definition, approved_at, repo, pull, \
             dir, workspace, name)",
            "ID, 'security', 'github.com:7', 'ada', '[]', FALSE, '[]', DIGEST, TIME, REPO, n / 2, 'd' || (1000000 + n), \
             'default', ''",
        ),
        rows(
            100_000,
            "jobs (id, kind, payload, lane, priority, state, run_after, attempt, created_at, finished_at)",
            "ID, 'work', '{}', 'lane' || (1000000 + n), 0, 'done', TIME, 1, TIME, TIME",
        ),
        // A long queue: waiting jobs, and a few that are running.
        rows(
            50_000,
            "jobs (id, kind, payload, lane, share, priority, state, run_after, attempt, created_at)",
            "'00000000-0000-7000-a000-' || (100000000000 + n), 'work', '{}', 'open' || (1000000 + n), 'share' || (n % 100), n % 15, 'queued', TIME, \
             0, TIME",
        ),
        rows(
            50,
            "jobs (id, kind, payload, lane, share, priority, state, run_after, attempt, created_at, lease_holder, \
             lease_until)",
            "'00000000-0000-7000-b000-' || (100000000000 + n), 'work', '{}', 'running' || n, 'share' || n, 0, 'running', TIME, 1, TIME, 'gone', TIME",
        ),
        rows(
            25_000,
            "deliveries (id, host, forge_delivery, event, content_type, body, state, received_at)",
            "ID, 'github.com', 'd' || (1000000 + n), 'push', 'application/json', '', 'handled', TIME",
        ),
        rows(25_000, "run_output (run, seq, text)", "ID, 1, 'line'"),
        rows(
            25_000,
            "repository_syncs (replica, repo, revision, state, pending_at, started_at, retry_at, refresh_at, \
             retry_count, verification, verification_retry_count, created_at)",
            "'home', 'github.com/acme/s' || (1000000 + n), 0, CASE n % 100 WHEN 1 THEN 'pending' WHEN 2 THEN 'failed' \
             WHEN 3 THEN 'started' ELSE 'synced' END, TIME, TIME, TIME, TIME, 0, 'unknown', 0, TIME",
        ),
        rows(25_000, "repository_events (repo, kind, at)", "'github.com/acme/s' || (1000000 + n), 'push', TIME"),
        "INSERT INTO repository_event_cursors (replica, seq, moved_at) VALUES ('home', 25000, '2026-03-01T09:00:00Z')"
            .to_owned(),
        rows(100, "owners (id, name, created_by, created_at)", "ID, 'team' || n, 'ada', TIME"),
        rows(
            25_000,
            "repository_claims (id, url, owner, created_at)",
            "ID, ADDRESS, '00000000-0000-7000-9000-' || (100000000001 + n % 100), TIME",
        ),
        rows(
            25_000,
            "applications (id, owner, url, branch, dir, workspace, number, created_by, created_at, updated_at)",
            "ID, '00000000-0000-7000-9000-' || (100000000001 + n % 100), ADDRESS, 'main', '.', 'default', -n - 1000, \
             'ada', TIME, TIME",
        ),
        rows(25_000, "claim_applications (application, claim)", "ID, ID"),
        rows(
            100,
            "registry_namespaces (kind, prefix, owner, visibility, created_by, created_at)",
            "'go', 'example.com/t' || n, '00000000-0000-7000-9000-' || (100000000000 + n), 'public', 'ada', TIME",
        ),
        rows(
            2_000,
            "registry_names (kind, name, folded_name)",
            "'go', 'example.com/t1/m' || (100000 + n), 'example.com/t1/m' || (100000 + n)",
        ),
        rows(
            20_000,
            "registry_versions (kind, name, version, state, files_hash, go_mod_hash, base, added_at)",
            "'go', 'example.com/t1/m' || (100000 + n / 10), 'v1.' || n || '.0', 'added', HASH, HASH, '', TIME",
        ),
        rows(
            20_000,
            "registry_packages (kind, name, version, file, digest, size)",
            "'go', 'example.com/t1/m' || (100000 + n / 10), 'v1.' || n || '.0', 'm.zip', HASH, n",
        ),
        rows(
            20_000,
            "registry_go_mods (name, version, content)",
            "'example.com/t1/m' || (100000 + n / 10), 'v1.' || n || '.0', CAST('module' AS BYTES)",
        ),
        rows(
            20_000,
            "registry_log (id, kind, name, version, action, record, logged_at)",
            "n, 'go', 'example.com/t1/m' || (100000 + n / 10), 'v1.' || n || '.0', 'add', 'record', TIME",
        ),
        rows(
            39_900,
            "registry_log_hashes (place, hash)",
            "n, CAST('aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb' AS BYTES)",
        ),
        rows(
            25_000,
            "registry_uses (plan, kind, name, version)",
            "ID, 'go', 'example.com/t1/m' || (100000 + n / 10), 'v1.' || n || '.0'",
        ),
        rows(
            25_000,
            "registry_branch_uses (repo, dir, kind, name, wanted, version)",
            "'github.com/acme/r' || (n % 100), 'd' || n, 'go', 'example.com/t1/m' || (100000 + n / 10), 'v1.0.0', 'v1.0.0'",
        ),
        rows(
            25_000,
            "registry_tags (repo, tag, commit_sha, seen_at, is_quiet, state, failures, due_at, is_told)",
            "'github.com/acme/r' || (n % 100), 'v1.' || n || '.0', HASH, TIME, TRUE, \
             CASE n % 101 WHEN 1 THEN 'waiting' ELSE 'done' END, 0, TIME, FALSE",
        ),
        rows(
            25_000,
            "registry_tag_versions (repo, tag, commit_sha, kind, name, version, outcome, decided_at)",
            "'github.com/acme/r' || (n % 100), 'v1.' || n || '.0', HASH, 'go', 'example.com/t1/m' || (100000 + n / 10), \
             'v1.' || n || '.0', 'published', TIME",
        ),
        rows(
            20_000,
            "registry_fills (kind, name, version, fault, reason, attempts, failed_at, retry_at)",
            "'go', 'example.com/t2/m' || n, 'v1.0.0', 'not_found', 'no tag', 1, TIME, TIME",
        ),
        rows(10_000, "registry_loose_packages (digest, due_at)", "'b' || substr(HASH, 2), TIME"),
        rows(
            20_000,
            "registry_downloads (kind, name, version, peer, attempts, next_at)",
            "'go', 'example.com/t1/m' || (100000 + n / 10), 'v1.' || n || '.0', 'mods.example.org', 0, TIME",
        ),
        rows(25_000, "account_stars (account, change_number, label)", "2000000 + n / 10, n, 'star'"),
        rows(
            25_000,
            "accounts (number, full_name, active, registered_at, commit_id)",
            r"n, 'w' || n, TRUE, TIME, '\x6161616161616161616161616161616161616161'",
        ),
        rows(25_000, "account_words (field, word, account)", "'name', 'w' || n, n"),
        rows(25_000, "account_emails (email, account)", "'w' || n || '@example.com', n"),
        rows(
            25_000,
            "account_external_ids (external_id, account, note_id)",
            r"'github:' || n, n, '\x6161616161616161616161616161616161616161'",
        ),
        rows(12_500, "account_watches (account, project)", "2000000 + n, 'github.com/acme/r' || (n % 100)"),
    ]
}

/// Performs each frequent operation of a server once.
async fn work(db: &TestDb) {
    let store = db.store();
    let pull = PullRef {
        repo: "github.com/acme/r100".parse().unwrap(),
        subject: Subject::pull(1),
    };
    let rival = PullRef {
        subject: Subject::pull(2),
        ..pull.clone()
    };
    let hot = project("hot");

    let delivery = new_delivery();
    let _accepted = store
        .delivery_accept(&delivery, &[], |_| job("delivery"))
        .await
        .unwrap();
    let lease = store
        .job_claim(&JobClaim {
            except: "none",
            most_of_a_share: 9,
            ..JobClaim::any("replica", db.now() + TimeDelta::minutes(1))
        })
        .await
        .unwrap()
        .unwrap();
    let alive = db.now() + TimeDelta::minutes(2);
    store
        .replica_beat(&replica("replica"), Presence::Serving, &[lease.id], alive)
        .await
        .unwrap();
    store
        .delivery_finish(DeliveryId::next(&*db.ids), DeliveryState::Handled, None)
        .await
        .unwrap();
    let _finished = store.job_finish(&lease).await.unwrap();
    assert!(!store.job_is_outdated(&lease).await.unwrap());
    store.job_requeue_orphans(db.now()).await.unwrap();
    store.job_list_open().await.unwrap();

    store.pull_seen(&pull, PullState::Open, URL).await.unwrap();
    let (id, hour) = (CommandId::next(&*db.ids), TimeDelta::hours(1));
    let due = store.command_due(id, &pull, URL, hour).await.unwrap();
    assert!(!due.pull && !due.stop, "{due:?}");
    store
        .lock_renew(&pull, TimeDelta::hours(1), by())
        .await
        .unwrap();
    let lock = taken(store, &pull, &hot).await;
    let _held = take(store, &rival, &hot).await;
    store.lock_get(lock.id).await.unwrap();
    store.lock_holder(&lock.key).await.unwrap();
    store.lock_list_of_pull(&pull).await.unwrap();
    store.lock_part(None, Some(&lock), 20).await.unwrap();
    store
        .lock_list_named(&"acme/r100/hot/default".parse().unwrap())
        .await
        .unwrap();
    store.lock_list_idle(db.now(), Some(&lock)).await.unwrap();
    store.waiter_list(&lock.key).await.unwrap();
    store.waiter_list_of_pull(&pull).await.unwrap();
    store.lock_event_list(20).await.unwrap();
    store.lock_event_list_of(&lock.key, 20).await.unwrap();
    store.lock_event_after(7, 20).await.unwrap();
    store.lock_event_part(None, Some(7), 20).await.unwrap();

    let plan = new_plan(db, &pull, &hot).await;
    let used: [VersionKey; 1] = ["module acme/vpc/aws 1.2.3".parse().unwrap()];
    let verdicts = [failed("security", &["public bucket"])];
    let parts = PlanParts {
        modules: &used,
        verdicts: &verdicts,
    };
    let recorded = store.plan_record(&plan, Some(lock.id), None, &parts);
    let _recorded = recorded.await.unwrap();
    let approvals = [approval(&plan, &verdicts[0], "ada")];
    let unwanted = [approvals_of(&plan, "security")];
    for _ in 0..2 {
        let cleared = store.policy_clear(&pull, &unwanted, by()).await;
        cleared.unwrap();
        let approved = store.policy_approve(&plan, &approvals, by()).await;
        assert_eq!(approved.unwrap(), PolicyApprove::Stored);
    }
    store.policy_results(&pull).await.unwrap();
    store.policy_approvals(&pull).await.unwrap();
    let results = store.policy_decisions(&pull).await.unwrap();
    assert_eq!(results[&plan.id].approvals, approvals);
    store.policy_results_of_run(plan.run).await.unwrap();
    store.registry_plan_notices(plan.id).await.unwrap();
    store.plan_list(&pull).await.unwrap();
    store.plan_configs(&pull).await.unwrap();
    store
        .command_config_of_head(&pull, &plan.head)
        .await
        .unwrap();
    store.run_start(plan.run).await.unwrap();
    store
        .run_output_append(
            plan.run,
            &OutputPiece {
                seq: 1,
                text: "a line".to_owned(),
            },
        )
        .await
        .unwrap();
    store.run_output_after(plan.run, 0, 100).await.unwrap();
    store.run_output_tail(plan.run, 9).await.unwrap();
    let commands = [CommandId::next(&*db.ids), CommandId::next(&*db.ids)];
    store.run_list_of_commands(&commands, 50).await.unwrap();
    apply(db, &plan, &lock.key).await;

    let asked = command(store, CommandKind::Plan, &pull).await;
    store.command_get(asked).await.unwrap();
    store.command_list(50).await.unwrap();
    store.command_start(asked, None, &[]).await.unwrap();
    store.run_list(asked).await.unwrap();
    store.command_stop_plans(&pull, "closed").await.unwrap();
    store.command_list_stopping().await.unwrap();
    store.command_count_running().await.unwrap();
    let end = FinishedCommand {
        id: asked,
        outcome: CommandOutcome::Success,
        reason: None,
        result: None,
        outbox: Vec::new(),
        comments: 0,
    };
    store.command_finish(&end).await.unwrap();

    store.lock_release(&pull, &hot, by()).await.unwrap();
    let again = taken(store, &pull, &hot).await;
    assert_eq!(steal(store, again.id).await, Some(again));
    store.lock_release_all(&pull, by()).await.unwrap();
    store
        .pull_close(&pull, PullState::Merged, URL, by(), |_| vec![])
        .await
        .unwrap();
    lines(db, &rival, &pull).await;
    mirrors(db).await;
    reconcilers(db, &rival).await;
    owners(db).await;
    stars(db, &pull).await;
    accounts(db).await;
    modules(db).await;
    pages(db).await;
}

/// Finds accounts by each property.
async fn accounts(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    for name in ["7", "w7@example.com", "w7"] {
        users.find(name).await.unwrap();
    }
    for query in [
        "w777",
        "w777 w77",
        "name:w777",
        "name:\"w7 w8\"",
        "email:w777@",
        "username:w777",
        "watches:github.com/acme/r7",
        "w777 -email:w778",
    ] {
        users.search(query, 0).await.unwrap();
    }
}

/// Publishes and reads versions in the registry. The list of all tokens is left out, and so is the verification, which
/// reads everything.
async fn modules(db: &TestDb) {
    let (store, team) = (db.store(), "team7".parse().unwrap());
    let prefix = "go example.org".parse().unwrap();
    let added = store.registry_namespace_add(
        &prefix,
        &team,
        Visibility::Public,
        ForeignVersions::Refuse,
        by(),
    );
    let _added = added.await.unwrap();
    let mut last = None;
    for version in ["v1.0.0", "v1.1.0"] {
        let key: VersionKey = format!("go example.org/m {version}").parse().unwrap();
        assert!(matches!(
            registry::add(store, &key, 1).await,
            LogOutcome::Logged(_)
        ));
        store.registry_version(&key).await.unwrap();
        store.registry_go_mod(&key).await.unwrap();
        store.registry_go_mod_size(&key).await.unwrap();
        store.registry_added_record(&key).await.unwrap();
        store.registry_download(&key).await.unwrap();
        last = Some(key);
    }
    let last = last.unwrap();
    let fault = FillFault::NotFound;
    let failed = store.registry_fill_failed(&last, fault, "no tag").await;
    assert_eq!(failed.unwrap().attempts, 1);
    store.registry_fill_failure(&last).await.unwrap();
    store.registry_fill_succeeded(&last).await.unwrap();
    store.registry_fills_forget().await.unwrap();
    store.registry_cache().await.unwrap();
    let gone = registry::delete(store, &last, "no").await;
    assert!(matches!(gone, LogOutcome::Logged(_)));
    store.registry_versions(&last.name()).await.unwrap();
    store.registry_namespace_of(&last.name()).await.unwrap();
    let other = store.registry_name_in_other_case(&last.name()).await;
    assert_eq!(other.unwrap(), None);
    store
        .registry_names(Some("example.com/t1/"), None, 50)
        .await
        .unwrap();
    store.registry_log_size().await.unwrap();
    store.registry_log_hashes(&[1, 30_000]).await.unwrap();
    store
        .registry_records(LogId::new(20_001).unwrap(), 50)
        .await
        .unwrap();
    store.registry_go_index(Some(db.now()), 50).await.unwrap();
    store.registry_packages_due(50).await.unwrap();
    let digest = Sha256Digest::of(b"package");
    store.registry_package_is_here(&digest).await.unwrap();
    let peer = "two.example.com".parse().unwrap();
    store.registry_download_peers().await.unwrap();
    store.registry_downloads_due(&peer, 50).await.unwrap();
    store.registry_peers().await.unwrap();
    StateReader::new(store.clone()).read().await.unwrap();
    store.registry_pushes_due().await.unwrap();
    tags(db).await;
    branches(db).await;
    let token = NewToken::new("CI", &["read:*".parse().unwrap()], None).unwrap();
    let (token, text) = store
        .registry_token_create(&token, by())
        .await
        .unwrap()
        .unwrap();
    store.registry_token_by_text(text.expose()).await.unwrap();
    store.registry_token_revoke(token.id, by()).await.unwrap();
    let _in_use = store
        .registry_namespace_remove(&prefix, by())
        .await
        .unwrap();
}

/// Records what a default branch uses, and lists the default branches that use a name.
async fn branches(db: &TestDb) {
    let (store, repo) = (db.store(), "github.com/acme/r1".parse().unwrap());
    let reading = BranchReading {
        head: None,
        basis: "basis",
        uses: &BTreeSet::new(),
        due_at: db.now(),
    };
    let recorded = store.registry_branch_record(&repo, &reading);
    recorded.await.unwrap();
    let key: VersionKey = "go example.com/t1/m100500 v1.0.0".parse().unwrap();
    let name = key.name();
    let uses = store.registry_branch_uses(&name, None, 50);
    drop(uses.await.unwrap());
}

/// Reads the tags of a repository, and decides about one.
async fn tags(db: &TestDb) {
    let (store, repo) = (db.store(), "github.com/acme/r1".parse().unwrap());
    let commit: CommitSha = "c".repeat(40).parse().unwrap();
    let tags = BTreeMap::from([("v9.0.0".parse().unwrap(), commit.clone())]);
    let seen = SeenTags {
        tags: &tags,
        most: 9,
        most_new: 9,
        most_told: 9,
    };
    store
        .registry_tags_record(&repo, &seen, db.now())
        .await
        .unwrap();
    let off = store
        .registry_tags_off_branch(&repo, &commit, "basis")
        .await;
    let off = off.unwrap();
    store
        .registry_tags_merged(&repo, &commit, "basis", &off)
        .await
        .unwrap();
    let due = store.registry_tags_due(&repo, "basis", 50).await;
    assert!(due.unwrap().len() < 50);
    let place = TagPlace {
        repo,
        tag: "v9.0.0".parse().unwrap(),
        commit: commit.clone(),
    };
    let version = TagVersion {
        key: "go example.com/t1/m v1.0.0".parse().unwrap(),
        outcome: TagOutcome::Published,
        reason: None,
    };
    let recorded = store.registry_tag_version_record(&place, &version, None);
    recorded.await.unwrap();
    store.registry_tag_versions(&place).await.unwrap();
    let settled = TagSettled {
        state: TagState::Done,
        reason: None,
        basis: "basis",
        head: &commit,
        failures: 0,
        due_at: db.now(),
        is_told: false,
    };
    store
        .registry_tag_settle(&place, &settled, None)
        .await
        .unwrap();
}

/// Stars a change, and finds it by its account.
async fn stars(db: &TestDb, pull: &PullRef) {
    let (store, users) = (db.store(), AllUsers::new(db.store().clone(), "localhost"));
    let account = users
        .create(&by_ops(), &NewAccount::default())
        .await
        .unwrap();
    let change = store.change_number(pull).await.unwrap().unwrap();
    let star = LabelChanges {
        add: BTreeSet::from(["star".to_owned()]),
        ..LabelChanges::default()
    };
    users
        .change_labels(&by_ops(), account, change, &star)
        .await
        .unwrap();
    let starred = store.change_list_starred(account).await.unwrap();
    assert_eq!(starred[0].seen.as_ref().unwrap().at, *pull);
    store.account_star(account, change).await.unwrap();
    users.delete(&by_ops(), account).await.unwrap();
}

/// Keeps a mirror in sync. The count of all mirrors is left out, as are the statements that a new data directory sends
/// only once.
async fn mirrors(db: &TestDb) {
    let (store, data_dir_id) = (db.store(), "home".parse().unwrap());
    let news = RepositoryChange {
        repo: "github.com/acme/s1000001".parse().unwrap(),
        kind: RepositoryEventKind::Push,
    };
    store.repository_event_append(&news).await.unwrap();
    assert_eq!(
        store.repository_event_walk(&data_dir_id, 50).await.unwrap(),
        EventWalk::Walked(1)
    );
    store.mirror_list_due(&data_dir_id, 50).await.unwrap();
    store.mirror_list_stale(&data_dir_id, 50).await.unwrap();
    let orphans = store.mirror_list_orphaned(50).await.unwrap();
    let orphaned = MirrorEvent::Orphaned {
        at: db.now(),
        jitter: Jitter(0),
    };
    let _changed = store
        .mirror_change(&orphans[0].0, &orphans[0].1, &orphaned)
        .await
        .unwrap();
    store.mirror_request_sync(&news.repo, by()).await.unwrap();
    let row = store
        .mirror_get(&data_dir_id, &news.repo)
        .await
        .unwrap()
        .unwrap();
    assert!(store.mirror_forget(&row).await.unwrap());
}

/// Claims repositories, and changes the objects that refer to claims. The query of the collector is left out: it
/// reads all claims, every ten minutes.
async fn owners(db: &TestDb) {
    let (store, team) = (db.store(), "team7".parse().unwrap());
    let owner = store.owner_get(&team).await.unwrap().unwrap().id;
    let url = |name: &str| RepoUrl::parse(&format!("https://github.com/acme/{name}")).unwrap();
    let fields = |name| ApplicationFields {
        url: Some(name),
        branch: Some("main"),
        ..ApplicationFields::default()
    };
    let spec = fields("https://github.com/acme/new")
        .spec(&ForgeHosts::public())
        .unwrap();
    let app = claims::application_add(store, &team, &spec, (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap();
    let _again = claims::application_add(store, &team, &spec, (Rights::Whole, by()))
        .await
        .unwrap();
    let moved = ApplicationChange {
        url: Some(url("newer")),
        ..ApplicationChange::default()
    };
    let _moved = claims::application_change(store, app.id, &moved, (Rights::Whole, by()))
        .await
        .unwrap();
    drop(
        claims::application_remove(store, app.id, by())
            .await
            .unwrap(),
    );
    let _acquired = store
        .claim_acquire(owner, &url("bare"), by())
        .await
        .unwrap();
    let claim = store.claim_get(&url("bare")).await.unwrap().unwrap();
    assert_eq!(
        store.claim_collect(claim.id).await.unwrap(),
        ClaimCollection::Gone
    );
    store
        .claim_list(Some(owner), Some(&url("r1000500")), 50)
        .await
        .unwrap();
    store.application_list(Some(owner), None, 50).await.unwrap();
    store.claim_owner(&url("r1000500")).await.unwrap();
    let repos = &store.claim_repos(owner).await.unwrap()[..3];
    let of_repos = store.lock_part(Some(repos), None, 1).await.unwrap();
    store
        .lock_part(Some(repos), of_repos.last(), 20)
        .await
        .unwrap();
    store.lock_part(Some(repos), None, 20).await.unwrap();
    store.lock_count(Some(repos), 20).await.unwrap();
    store.command_list_of_repos(repos, 50).await.unwrap();
    let concerns: Vec<Concern> = repos
        .iter()
        .cloned()
        .map(Concern::Repo)
        .chain([Concern::Owner(team.clone())])
        .collect();
    store
        .lock_event_part(Some(&concerns), None, 50)
        .await
        .unwrap();
    store.owner_part(Some(&team), 50).await.unwrap();
    store
        .mirror_search(MirrorSearch {
            repos: Some(repos),
            limit: 50,
            ..MirrorSearch::default()
        })
        .await
        .unwrap();
    store.mirror_count_all(Some(repos)).await.unwrap();
    store
        .credential_list(Some(owner), None, None, 50)
        .await
        .unwrap();
    let _in_use = store.owner_delete(&team, by()).await.unwrap();
}

/// Queues for a lock, renews its time limit, and hands it over.
async fn lines(db: &TestDb, holder: &PullRef, waiter: &PullRef) {
    let (store, hot) = (db.store(), project("hot"));
    store.pull_seen(waiter, PullState::Open, URL).await.unwrap();
    store.pull_seen(holder, PullState::Open, URL).await.unwrap();
    let lock = taken(store, holder, &hot).await;
    let ask = QueuedPlan {
        project: hot.clone(),
        extra_args: Vec::new(),
    };
    let request = LockRequest {
        key: lock.key.clone(),
        ask,
    };
    locks::take_all(store, waiter, URL, &[request], by(), true)
        .await
        .unwrap();
    store
        .lock_warn(holder, std::slice::from_ref(&lock), by(), |_| vec![])
        .await
        .unwrap();
    store
        .lock_expire(holder, &[lock], by(), |_| vec![])
        .await
        .unwrap();
    store.lock_release_all(waiter, by()).await.unwrap();
}

/// Runs the reconcilers that read growing tables every few minutes. The retention's list of old rows is left out: it
/// runs once an hour, and its rows may be most of the table.
async fn reconcilers(db: &TestDb, pull: &PullRef) {
    let store = db.store();
    let head = PullHead {
        head: "c".repeat(40).parse().unwrap(),
        base_branch: "main".parse().unwrap(),
        draft: false,
    };
    store
        .head_note(
            pull,
            HeadUpdate::Forge {
                known: None,
                at: &head,
            },
        )
        .await
        .unwrap();
    store.head_get(pull).await.unwrap();
    store.head_list(&pull.repo).await.unwrap();
    store.watched_list_due(10).await.unwrap();
    store.watched_seen(&pull.repo, true).await.unwrap();
    let left = PendingStatus {
        repo: pull.repo.clone(),
        head: head.head,
        context: "lockkeeper/plan".to_owned(),
        command: command(store, CommandKind::Plan, pull).await,
    };
    store.status_promise(&left).await.unwrap();
    store.status_list_left(10).await.unwrap();
    store
        .status_settle(&left.repo, &left.head, &left.context)
        .await
        .unwrap();
    store.command_list_lost(10).await.unwrap();
    store.apply_lock_list().await.unwrap();
    store.apply_lock_expire().await.unwrap();
}

/// Reads the page of operations. `held` is left out, because it counts all rows.
async fn pages(db: &TestDb) {
    let (store, since) = (db.store(), db.now() - TimeDelta::hours(1));
    store.queue_lines().await.unwrap();
    store.lane_list(20).await.unwrap();
    store.job_list_failed_since(since, 20).await.unwrap();
    store.delivery_count_since(since).await.unwrap();
    let key = SigningKey::generate();
    store.audit_key_add(key.public(), None, None).await.unwrap();
    let _sealed = store.lock_event_seal(&key, None, 500).await.unwrap();
    store.audit_reach().await.unwrap();
    store.audit_checkpoint_last().await.unwrap();
    store.lock_event_seals().await.unwrap();
}

fn new_delivery() -> NewDelivery {
    NewDelivery {
        host: "github.com".parse().unwrap(),
        forge_delivery: "new".to_owned(),
        event: "push".to_owned(),
        content_type: "application/json".to_owned(),
        body: b"{}".to_vec(),
    }
}

async fn apply(db: &TestDb, plan: &PlanRecord, key: &LockKey) {
    let store = db.store();
    let run = run(store, RunKind::Apply, &plan.pull, &plan.project).await;
    let attempt = LockAttempt {
        key,
        project: &plan.project,
        pull: &plan.pull,
        pull_url: URL,
        cause: by(),
    };
    let checks = ApplyChecks {
        modules: true,
        policies: &[needed("security")],
        members: &[member("ada")],
    };
    let begun = store.apply_begin(plan, run, Some(&attempt), &checks);
    let ApplyGate::Granted(grant) = begun.await.unwrap() else {
        panic!("nothing is in the way")
    };
    store
        .apply_end(grant, &plan.pull, PlanState::Applied, by())
        .await
        .unwrap();
    store
        .run_finish(run, ProjectOutcome::Applied, None)
        .await
        .unwrap();
}

/// Returns the statements in the log of `sqlx`, except those that only control transactions and the connection.
fn statements(log: &str) -> BTreeSet<String> {
    let logged = |line: &str| {
        let (_, rest) = line.split_once("db.statement=\"")?;
        let (statement, _) = rest.split_once("\\n\" rows_affected=")?;
        Some(
            statement
                .replace("\\n", "\n")
                .replace("\\\"", "\"")
                .replace("\\\\", "\\")
                .trim()
                .to_owned(),
        )
    };
    let is_data = |sql: &String| {
        ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"]
            .iter()
            .any(|verb| sql.starts_with(verb))
    };
    let on_tables = |sql: &String| {
        !["pg_", "clock_timestamp()"]
            .iter()
            .any(|own| sql.contains(own))
    };
    // A transaction of one statement checks the lease and adds jobs, too.
    let change = |sql: String| match sql
        .split_once(" changed AS (")
        .and_then(|(_, rest)| rest.split_once(" AND EXISTS (SELECT 1 FROM held)"))
    {
        Some((change, _)) => change.to_owned(),
        None => sql,
    };
    // A generic plan estimates any limit as a tenth of the table. Callers request a page.
    let paged = |sql: String| {
        (1..9).fold(sql, |sql, n| {
            sql.replace(&format!("LIMIT ${n}"), "LIMIT 50")
        })
    };
    log.lines()
        .filter_map(logged)
        .map(change)
        .filter(is_data)
        .filter(on_tables)
        .map(paged)
        .collect()
}

/// Returns the statement inside the function that claims a job, and statements that make its settings.
async fn claim_function(db: &TestDb) -> (String, String) {
    let mut connection = postgres_connection(db).await;
    let (source, settings): (String, Vec<String>) =
        sqlx::query_as("SELECT prosrc, proconfig FROM pg_proc WHERE proname = 'claim_job'")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    let (_, claim) = source.split_once("RETURN QUERY").unwrap();
    let (claim, _) = claim.split_once(';').unwrap();
    let settings: Vec<String> = settings
        .iter()
        .map(|setting| format!("SET LOCAL {setting};"))
        .collect();
    let claim = claim.trim().replace("lease_end", "$2");
    (claim.replace("present", "$3"), settings.join(" "))
}

/// Returns true if the statement claims, renews or ends a job.
fn is_of_the_queue(statement: &str) -> bool {
    statement.starts_with("UPDATE jobs SET")
}

fn is_claim(statement: &str) -> bool {
    statement.starts_with("UPDATE jobs SET state = 'running'")
}

async fn postgres_connection(db: &TestDb) -> PgConnection {
    let DatabaseUrl::Postgres(options) = &db.url else {
        panic!("asked for PostgreSQL")
    };
    let mut connection = PgConnection::connect_with(options).await.unwrap();
    sqlx::raw_sql("SET plan_cache_mode = force_generic_plan")
        .execute(&mut connection)
        .await
        .unwrap();
    connection
}

async fn sqlite_connection(db: &TestDb) -> SqliteConnection {
    let DatabaseUrl::Sqlite(path) = &db.url else {
        panic!("asked for SQLite")
    };
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path))
        .await
        .unwrap()
}

/// Returns the statement and PostgreSQL's plan for it after `before`, if it reads a whole growing table or a whole
/// index of one.
async fn whole_on_postgres(
    connection: &mut PgConnection,
    before: &str,
    statement: &str,
) -> Option<String> {
    let parameters = (1..=40)
        .rev()
        .find(|n| statement.contains(&format!("${n}")))
        .unwrap_or(0);
    let nulls = vec!["NULL"; parameters].join(", ");
    let given = if parameters == 0 {
        String::new()
    } else {
        format!("({nulls})")
    };
    for sql in [
        "DEALLOCATE ALL",
        "BEGIN",
        before,
        &format!("PREPARE it AS {statement}"),
    ] {
        let prepared = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut *connection)
            .await;
        prepared.unwrap_or_else(|error| panic!("{error}: {sql}"));
    }
    let explain = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN EXECUTE it{given}")));
    let rows = explain.fetch_all(&mut *connection).await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(connection).await.unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let whole = |line: &String| {
        GROWING
            .iter()
            .any(|table| line.contains(&format!("Seq Scan on {table} ")))
    };
    // A bitmap without a condition is made of all entries of the index, before the first row is read.
    let bitmap = |lines: &[String]| {
        let of_all = |index: &str| lines[0].contains(&format!("Bitmap Index Scan on {index}"));
        // Only few jobs are running.
        let is_small = of_all("jobs_running");
        of_all("")
            && !is_small
            && !lines
                .get(1)
                .is_some_and(|next| next.contains("Index Cond:"))
    };
    let of_everything = (0..plan.len()).any(|n| bitmap(&plan[n..]))
        && !READS_ALL_OPEN.iter().any(|of| statement.contains(of));
    (plan.iter().any(whole) || of_everything)
        .then(|| format!("PostgreSQL: {statement}\n{}", plan.join("\n")))
}

/// Returns the statement and SQLite's plan for it, if it reads a whole growing table. An index that is read in order
/// up to a limit is not read completely.
async fn whole_on_sqlite(connection: &mut SqliteConnection, statement: &str) -> Option<String> {
    let sql = [
        " FOR UPDATE OF c",
        " FOR UPDATE OF p",
        " FOR KEY SHARE OF c",
        " FOR SHARE",
        " FOR UPDATE SKIP LOCKED",
        " FOR UPDATE",
        " FOR NO KEY UPDATE",
        " FOR KEY SHARE",
    ]
    .iter()
    .fold(statement.to_owned(), |sql, own| sql.replace(own, ""));
    let listed = "= ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))";
    let sql = sql.replace(listed, "IN (SELECT value FROM json_each($1) AS each)");
    let listed = "= ANY(ARRAY(SELECT decode(jsonb_array_elements_text($1::jsonb), 'hex')))";
    let sql = sql.replace(
        listed,
        "IN (SELECT unhex(value) FROM json_each($1) AS each)",
    );
    let sql = sql.replace(
        "= ANY(ARRAY(SELECT jsonb_array_elements_text($2::jsonb)))",
        "IN (SELECT value FROM json_each($2) AS each)",
    );
    let sql = sql.replace(
        "= ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)::bigint))",
        "IN (SELECT value FROM json_each($1) AS each)",
    );
    let sql = sql.replace(
        "each.value->>0, each.value->>1, each.value->>2 FROM jsonb_array_elements($2::jsonb) AS each (value)",
        "json_extract(each.value, '$[0]'), each.value, each.value FROM json_each($2) AS each",
    );
    let sql = sql.replace(
        "each.value->>0, each.value->>1, each.value->>2, each.value->>3, each.value->>4 \
         FROM jsonb_array_elements($2::jsonb) AS each (value)",
        "each.value, each.value, each.value, each.value, each.value FROM json_each($2) AS each",
    );
    let sql = sql.replace(
        "each.number - 1, decode(each.value, 'hex') FROM jsonb_array_elements_text($2::jsonb) WITH ORDINALITY AS each \
         (value, number)",
        "each.key, unhex(each.value) FROM json_each($2) AS each",
    );
    let sql = sql.replace(
        "jsonb_array_elements($1::jsonb) WITH ORDINALITY AS each (value, key)",
        "json_each($1) AS each",
    );
    let sql = sql.replace("::timestamptz", "");
    let lateral = "jsonb_array_elements_text($1::jsonb) AS whose (value) CROSS JOIN LATERAL";
    let sql = sql.replace(
        lateral,
        "json_each($1) AS whose JOIN lock_events newest ON newest.seq IN",
    );
    let sql = sql.replace(") AS newest ORDER BY", ") ORDER BY");
    let sql = sql.replace(
        "(SELECT DISTINCT account FROM ((SELECT account ",
        "accounts WHERE number IN (SELECT * FROM (SELECT account ",
    );
    let sql = sql.replace(
        " AS sets (account) ORDER BY account) AS named \
         CROSS JOIN LATERAL (SELECT * FROM accounts WHERE number = named.account OFFSET 0) AS found WHERE ",
        " AND ",
    );
    let sql = sql.replace("1 = 1 ORDER BY account ", "1 = 1 ORDER BY number ");
    let sql = sql.replace(") INTERSECT (", " INTERSECT ");
    let sql = sql.replace(") EXCEPT (", " EXCEPT ");
    let sql = sql.replace(" COLLATE \"C\"", "");
    let explained = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")))
        .fetch_all(connection)
        .await;
    let rows = explained.unwrap_or_else(|error| panic!("{error}: {sql}"));
    let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
    let whole = |step: &String| {
        let in_order = step.contains(" USING ") && sql.contains("LIMIT");
        let of_unfinished = UNFINISHED
            .iter()
            .any(|index| step.contains(&format!("USING INDEX {index}")));
        // The rows of an INSERT stand in the statement.
        let of_statement = step.ends_with("-ROW VALUES CLAUSE") || step.ends_with(" CONSTANT ROWS");
        // A statement that moves references lists them as `wanted`, which it also calls `w`.
        let listed = |scanned: &str| scanned == "wanted" || scanned == "w";
        let small =
            |scanned: &str| listed(scanned) || SMALL.iter().any(|table| scanned.starts_with(table));
        step.strip_prefix("SCAN ")
            .is_some_and(|scanned| !small(scanned) && !in_order && !of_unfinished && !of_statement)
    };
    plan.iter()
        .any(whole)
        .then(|| format!("SQLite: {sql}\n{}", plan.join("\n")))
}
