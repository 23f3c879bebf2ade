//! Sample rows: the minimum that each resource needs.

use lockkeeper::locks::{HandOver, HandOverOutcome, KeptReason, hand_over};
use lockkeeper::model::{
    Actor, Cause, CommandId, CommandKind, Distribution, Lock, LockId, LockKey, PlanCounts, PlanId,
    PlanRecord, PlanState, ProjectKey, PullRef, PullState, Reason, RepoPath, RunId, RunKind,
    Sha256Digest, Subject,
};
use lockkeeper::store::{
    ApplyChecks, ApplyGate, CreateCommand, LockAttempt, NewCommand, NewJob, NewRun, PlanParts,
    RecordPlan, Store, TakeLock,
};

use crate::support::db::TestDb;
use crate::support::rows;

/// Page of every sample pull request.
pub const URL: &str = "https://github.com/acme/infra/pull/1";

/// Text that a person could type, and that must be returned unchanged. NUL is tested separately.
pub const HOSTILE: &str = "'; DROP TABLE locks; -- \" \\ $1 ? %s {{x}} \u{1b}[31m \r\n\t é 漢字 🚤 \u{202e}\u{feff}\u{10ffff}";

/// Returns a pull request of `github.com/acme/infra`.
pub fn pull(number: i64) -> PullRef {
    PullRef {
        repo: "github.com/acme/infra".parse().unwrap(),
        subject: Subject::of_stored(number),
    }
}

/// Stores an open pull request with that number.
pub async fn open_pull(store: &Store, number: i64) -> PullRef {
    let pull = pull(number);
    store.pull_seen(&pull, PullState::Open, URL).await.unwrap();
    pull
}

/// Returns the project of a directory.
pub fn project(dir: &str) -> ProjectKey {
    ProjectKey::of_dir(RepoPath::new(dir).unwrap())
}

/// Returns the project of a directory with a name.
pub fn named(dir: &str, name: &str) -> ProjectKey {
    ProjectKey {
        name: Some(name.parse().unwrap()),
        ..project(dir)
    }
}

/// Takes a lock with sample texts.
pub async fn take(store: &Store, pull: &PullRef, project: &ProjectKey) -> TakeLock {
    let (key, cause) = (
        LockKey::of(&pull.repo, project),
        Cause::new(Actor::commenter("ada"), "planned by `lockkeeper plan`"),
    );
    store
        .lock_take(&LockAttempt {
            key: &key,
            project,
            pull,
            pull_url: URL,
            cause: &cause,
        })
        .await
        .unwrap()
}

/// Takes a lock that is free.
pub async fn taken(store: &Store, pull: &PullRef, project: &ProjectKey) -> Lock {
    match take(store, pull, project).await {
        TakeLock::Taken(lock) => lock,
        other @ (TakeLock::AlreadyOurs(_) | TakeLock::HeldBy(_) | TakeLock::PullClosed) => {
            panic!("the lock is not free: {other:?}")
        }
    }
}

/// Releases a lock by force. Returns `None` if nobody holds it any more, or if an apply is running under it.
pub async fn steal(store: &Store, lock: LockId) -> Option<Lock> {
    let giving = HandOver {
        lock,
        to: None,
        force: true,
        reason: Reason::read("the test wants it").unwrap(),
        actor: Actor::commenter("ada"),
        remote: None,
    };
    match hand_over(store, &giving, |_| vec![]).await.unwrap() {
        HandOverOutcome::Done(given) => Some(given.lock),
        HandOverOutcome::NotHeld | HandOverOutcome::Refused(_, KeptReason::ApplyRunning) => None,
        HandOverOutcome::Refused(lock, why) => panic!("{lock:?} is kept: {why:?}"),
    }
}

/// Returns a job that differs from others only in its lane.
pub fn job(lane: &str) -> NewJob {
    NewJob {
        kind: "work",
        payload: "{}".to_owned(),
        lane: lane.to_owned(),
        share: String::new(),
        priority: 0,
        run_after: None,
    }
}

/// Returns a command of a pull request that no comment requested.
pub fn new_command(kind: CommandKind, pull: &PullRef) -> NewCommand {
    NewCommand {
        kind,
        pull: pull.clone(),
        comment: None,
        delivery: None,
        actor: Actor::commenter("ada"),
        spec: "{}".to_owned(),
    }
}

/// Stores a command with its own lane.
pub async fn command(store: &Store, kind: CommandKind, pull: &PullRef) -> CommandId {
    match store
        .command_create(&new_command(kind, pull), |id| {
            vec![job(&format!("command {id}"))]
        })
        .await
        .unwrap()
    {
        CreateCommand::Created(id) => id,
        CreateCommand::Known => panic!("a command without comment and delivery is always new"),
    }
}

/// Stores a command and one run of it.
pub async fn run(store: &Store, kind: RunKind, pull: &PullRef, project: &ProjectKey) -> RunId {
    let command_kind = match kind {
        RunKind::Plan => CommandKind::Plan,
        RunKind::Apply => CommandKind::Apply,
        RunKind::Version => CommandKind::Version,
        RunKind::Import => CommandKind::Import,
        RunKind::StateRm => CommandKind::StateRm,
    };
    let command = command(store, command_kind, pull).await;
    store
        .run_create(&NewRun {
            command,
            kind,
            pull: pull.clone(),
            project: project.clone(),
        })
        .await
        .unwrap()
}

/// Returns a plan with changes that is not stored yet.
pub async fn new_plan(db: &TestDb, pull: &PullRef, project: &ProjectKey) -> PlanRecord {
    let run = run(db.store(), RunKind::Plan, pull, project).await;
    PlanRecord {
        id: PlanId::next(&*db.ids),
        pull: pull.clone(),
        project: project.clone(),
        run,
        head: "a1".repeat(20).parse().unwrap(),
        base_branch: "release/1.0".parse().unwrap(),
        base: "b2".repeat(32).parse().unwrap(),
        distribution: Distribution::OpenTofu,
        tool_version: "1.9.0-alpha2+build.7".parse().unwrap(),
        workflow: Sha256Digest::of(b"workflow"),
        order_group: -7,
        digest: Some(Sha256Digest::of(b"plan")),
        counts: PlanCounts {
            add: 1,
            change: 2,
            destroy: 3,
            import: 4,
            forget: u32::MAX,
        },
        blocked: None,
        state: PlanState::Planned,
        created_at: db.now(),
    }
}

/// Stores a plan under its lock, which is taken if necessary.
pub async fn planned(db: &TestDb, pull: &PullRef, project: &ProjectKey) -> PlanRecord {
    let plan = new_plan(db, pull, project).await;
    let lock = match take(db.store(), pull, project).await {
        TakeLock::Taken(lock) | TakeLock::AlreadyOurs(lock) => lock,
        refused @ (TakeLock::HeldBy(_) | TakeLock::PullClosed) => {
            panic!("no lock for a plan: {refused:?}")
        }
    };
    assert_eq!(
        db.store()
            .plan_record(&plan, Some(lock.id), None, &PlanParts::default())
            .await
            .unwrap(),
        RecordPlan::Recorded
    );
    plan
}

/// Requests to apply a plan in a new run.
pub async fn begin_apply(store: &Store, plan: &PlanRecord) -> ApplyGate {
    let run = run(store, RunKind::Apply, &plan.pull, &plan.project).await;
    begin_apply_in(store, plan, run).await.unwrap()
}

/// Requests to apply a plan in an existing run.
pub async fn begin_apply_in(
    store: &Store,
    plan: &PlanRecord,
    run: RunId,
) -> Result<ApplyGate, sqlx::Error> {
    let key = LockKey::of(&plan.pull.repo, &plan.project);
    let cause = Cause::new(Actor::commenter("ada"), "applied by `lockkeeper apply`");
    let attempt = LockAttempt {
        key: &key,
        project: &plan.project,
        pull: &plan.pull,
        pull_url: URL,
        cause: &cause,
    };
    store
        .apply_begin(plan, run, Some(&attempt), &ApplyChecks::default())
        .await
}

/// Returns the state of a plan in the database.
pub async fn plan_state(db: &TestDb, plan: &PlanRecord) -> PlanState {
    rows::plan_state(&db.url, plan.id)
        .await
        .expect("the plan was kept")
}
