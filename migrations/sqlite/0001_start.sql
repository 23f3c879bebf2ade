-- One schema, written twice: `store_schemas_are_alike` compares tables, columns and unique keys with PostgreSQL's.
-- Times are RFC 3339 in UTC, identifiers and JSON are text.

-- A webhook request as received; (host, forge_delivery) makes a repeated one harmless (P2).
CREATE TABLE deliveries (
    id TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    forge_delivery TEXT NOT NULL,
    event TEXT NOT NULL,
    content_type TEXT NOT NULL,
    body BLOB NOT NULL,
    state TEXT NOT NULL,
    note TEXT,
    received_at TEXT NOT NULL,
    finished_at TEXT,
    UNIQUE (host, forge_delivery)
);
CREATE INDEX deliveries_by_time ON deliveries (received_at, state);

-- What is known of a pull, or of a registered project, whose number is negative and which has a `title`. `state` other
-- than `open` is the tombstone that stops new locks (P7).
CREATE TABLE pulls (
    repo TEXT NOT NULL,
    number BIGINT NOT NULL,
    state TEXT NOT NULL,
    url TEXT NOT NULL,
    title TEXT,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (repo, number)
);

-- Repositories whose list of open pulls is looked at. `known_at`: what had changed before is no missed event. `due_at`:
-- not to be looked at again before; also what keeps two replicas from doing it at once.
CREATE TABLE watched_repos (
    repo TEXT NOT NULL PRIMARY KEY,
    installation BIGINT,
    known_at TEXT NOT NULL,
    due_at TEXT NOT NULL,
    failures BIGINT NOT NULL,
    complete_at TEXT
);
CREATE INDEX watched_repos_by_due ON watched_repos (due_at, repo);

-- Where each open pull stood when that was last taken up, whether an event told it or it was found. `found_at`: when it
-- was found without an event; one that comes later is late.
CREATE TABLE pull_heads (
    repo TEXT NOT NULL,
    number BIGINT NOT NULL,
    head TEXT NOT NULL,
    base_branch TEXT NOT NULL,
    draft BOOLEAN NOT NULL,
    found_at TEXT,
    PRIMARY KEY (repo, number)
);

-- Pages of the forge's lists of open pulls as they were last answered, so that unchanged ones cost nothing.
CREATE TABLE forge_pages (
    repo TEXT NOT NULL,
    page BIGINT NOT NULL,
    etag TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (repo, page)
);

-- Statuses on the forge that are pending, and the command that is to end each.
CREATE TABLE pending_statuses (
    repo TEXT NOT NULL,
    head TEXT NOT NULL,
    context TEXT NOT NULL,
    command TEXT NOT NULL,
    installation BIGINT,
    set_at TEXT NOT NULL,
    PRIMARY KEY (repo, head, context)
);

-- One thing asked for on a pull or of a registered project; of that, `result` is what a pull would be told in a comment.
-- A comment and a delivery each lead to one command at most (P2); NULLs are all different.
CREATE TABLE commands (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    repo TEXT NOT NULL,
    pull BIGINT NOT NULL,
    comment BIGINT,
    delivery TEXT UNIQUE,
    actor TEXT NOT NULL,
    origin TEXT NOT NULL,
    installation BIGINT,
    spec TEXT NOT NULL,
    head TEXT,
    state TEXT NOT NULL,
    outcome TEXT,
    reason TEXT,
    result TEXT,
    stop_kind TEXT,
    stop_reason TEXT,
    superseded_by TEXT,
    created_at TEXT NOT NULL,
    finished_at TEXT,
    UNIQUE (repo, pull, comment)
);
CREATE INDEX commands_by_time ON commands (created_at, id);
CREATE INDEX commands_unfinished ON commands (repo, pull) WHERE state <> 'finished';
CREATE INDEX commands_unclaimed ON commands (repo, pull) WHERE spec = '{"ask":"unclaimed"}';
CREATE INDEX commands_superseded ON commands (superseded_by) WHERE superseded_by IS NOT NULL;

-- What the configuration of the repository was for a command whose hooks may have written it. `file`: none if there was none.
CREATE TABLE command_configs (
    command TEXT NOT NULL PRIMARY KEY REFERENCES commands (id) ON DELETE CASCADE,
    file TEXT,
    text TEXT NOT NULL
);

-- A command on one project, or a hook around it: `hook` is how that is called. `private`: parts of the output belong on
-- pages only.
CREATE TABLE runs (
    id TEXT NOT NULL PRIMARY KEY,
    command TEXT NOT NULL REFERENCES commands (id),
    kind TEXT NOT NULL,
    repo TEXT NOT NULL,
    pull BIGINT NOT NULL,
    dir TEXT NOT NULL,
    workspace TEXT NOT NULL,
    name TEXT NOT NULL,
    hook TEXT,
    private BOOLEAN NOT NULL DEFAULT FALSE,
    state TEXT NOT NULL,
    outcome TEXT,
    message TEXT,
    created_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT
);
CREATE INDEX runs_by_command ON runs (command);
CREATE INDEX runs_by_pull ON runs (repo, pull, created_at);
CREATE INDEX runs_by_time ON runs (created_at, id);

-- What a run printed, in pieces as they came.
CREATE TABLE run_output (
    run TEXT NOT NULL REFERENCES runs (id),
    seq BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (run, seq)
);

-- The exclusive right of a pull on a path and workspace; the unique key decides who holds it (P4). `scope` is
-- empty, or the name of the one project that the lock is for.
CREATE TABLE locks (
    id TEXT NOT NULL PRIMARY KEY,
    repo TEXT NOT NULL,
    dir TEXT NOT NULL,
    workspace TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    pull BIGINT NOT NULL,
    pull_url TEXT NOT NULL,
    holder TEXT NOT NULL,
    reason TEXT NOT NULL,
    taken_at TEXT NOT NULL,
    active_at TEXT NOT NULL,
    warned_at TEXT,
    asks TEXT,
    UNIQUE (repo, dir, workspace, scope)
);
CREATE INDEX locks_by_pull ON locks (repo, pull);
CREATE INDEX locks_by_time ON locks (taken_at, id);
CREATE INDEX locks_by_activity ON locks (active_at, id);

-- Pulls in line for a lock that another holds, in the order of `seq`. `asks` says what to plan when the turn comes; it
-- moves to the lock, and stays there until the plan is a command.
CREATE TABLE lock_waiters (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    repo TEXT NOT NULL,
    dir TEXT NOT NULL,
    workspace TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    pull BIGINT NOT NULL,
    pull_url TEXT NOT NULL,
    asker TEXT NOT NULL,
    asks TEXT NOT NULL,
    since TEXT NOT NULL,
    UNIQUE (repo, dir, workspace, scope, pull)
);
CREATE INDEX lock_waiters_in_order ON lock_waiters (repo, dir, workspace, seq);
CREATE INDEX lock_waiters_by_pull ON lock_waiters (repo, pull);

-- What happened to locks. Each event carries the hash of the one before; nothing here is ever changed, and only
-- `lockkeeper audit prune` removes events, leaving a seal in their place.
CREATE TABLE lock_events (
    seq BIGINT NOT NULL PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    repo TEXT,
    dir TEXT,
    workspace TEXT,
    scope TEXT,
    pull BIGINT,
    actor TEXT NOT NULL,
    origin TEXT NOT NULL,
    remote TEXT,
    reason TEXT NOT NULL,
    concern TEXT,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE INDEX lock_events_by_concern ON lock_events (COALESCE(concern, repo), seq);
CREATE INDEX lock_events_by_pull ON lock_events (repo, pull, seq);
CREATE INDEX lock_events_by_lock ON lock_events (repo, dir, workspace, seq);

-- What stands in place of events that were removed: how many, until when, and the hash that the next one continues.
CREATE TABLE lock_event_seals (
    last_seq BIGINT NOT NULL PRIMARY KEY,
    last_hash TEXT NOT NULL,
    last_at TEXT NOT NULL,
    events BIGINT NOT NULL,
    actor TEXT NOT NULL,
    sealed_at TEXT NOT NULL
);

-- What stops applies; one at most for the same applies. `scope` is `server`, `repo` or `path` (a directory and everything
-- below it), `repo` and `dir` are empty where they say nothing. A word of a later release stops everything.
CREATE TABLE apply_locks (
    id TEXT NOT NULL PRIMARY KEY,
    scope TEXT NOT NULL,
    repo TEXT NOT NULL,
    dir TEXT NOT NULL,
    holder TEXT NOT NULL,
    reason TEXT NOT NULL,
    taken_at TEXT NOT NULL,
    ends_at TEXT,
    UNIQUE (scope, repo, dir)
);

-- A plan and what an apply of it must find unchanged (P5). At most one of a project is not discarded.
CREATE TABLE plans (
    id TEXT NOT NULL PRIMARY KEY,
    repo TEXT NOT NULL,
    pull BIGINT NOT NULL,
    dir TEXT NOT NULL,
    workspace TEXT NOT NULL,
    name TEXT NOT NULL,
    run TEXT NOT NULL REFERENCES runs (id),
    head TEXT NOT NULL,
    base_branch TEXT NOT NULL,
    base TEXT NOT NULL,
    distribution TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    workflow TEXT NOT NULL,
    order_group INTEGER NOT NULL,
    digest TEXT,
    counts TEXT NOT NULL,
    -- Why it must never be applied, if so.
    blocked TEXT,
    state TEXT NOT NULL,
    created_at TEXT NOT NULL
);
CREATE UNIQUE INDEX plans_current ON plans (repo, pull, dir, workspace, name) WHERE state <> 'discarded';
CREATE INDEX plans_by_pull ON plans (repo, pull, dir, workspace);
CREATE INDEX plans_by_run ON plans (run);

-- Plan files, where they are kept in the database. They go with their record.
CREATE TABLE plan_files (
    plan TEXT NOT NULL PRIMARY KEY REFERENCES plans (id) ON DELETE CASCADE,
    bytes BLOB NOT NULL
);

-- The queue. `seq` orders the jobs of a lane; a job is claimable only when nothing before it in its lane is left.
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    lane TEXT NOT NULL,
    share TEXT NOT NULL DEFAULT '',
    priority BIGINT NOT NULL,
    state TEXT NOT NULL,
    run_after TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    cut_offs BIGINT NOT NULL DEFAULT 0,
    lease_holder TEXT,
    lease_until TEXT,
    last_error TEXT,
    created_at TEXT NOT NULL,
    finished_at TEXT
);
CREATE INDEX jobs_open ON jobs (lane, seq) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_of_share ON jobs (share, lease_holder) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_in_order ON jobs (priority DESC, seq) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE state IN ('done', 'failed');
CREATE INDEX jobs_failed ON jobs (finished_at) WHERE state = 'failed';

-- Claims with an end time on anything exclusive, such as a mirror. One that was given back by hand (`revoked_at`) is not
-- renewed any more.
CREATE TABLE leases (
    key TEXT NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    purpose TEXT NOT NULL,
    taken_at TEXT NOT NULL,
    renewed_at TEXT NOT NULL,
    until TEXT NOT NULL,
    revoked_at TEXT
);

-- The mirror of a repository on one replica: where its synchronisation is, and whether what it has was verified. `replica`
-- names the data directory, which outlives the process.
CREATE TABLE repository_syncs (
    replica TEXT NOT NULL,
    repo TEXT NOT NULL,
    installation BIGINT,
    revision BIGINT NOT NULL,
    state TEXT NOT NULL,
    pending_at TEXT NOT NULL,
    started_at TEXT,
    again_at TEXT,
    lease_key TEXT,
    lease_holder TEXT,
    synced_at TEXT,
    succeeded_at TEXT,
    updated_at TEXT,
    asked_at TEXT,
    asked_by TEXT,
    asked_reason TEXT,
    retry_count BIGINT NOT NULL,
    retry_at TEXT,
    failure_kind TEXT,
    failure TEXT,
    refresh_at TEXT,
    verification TEXT NOT NULL,
    checksum TEXT,
    refs BIGINT,
    verified_at TEXT,
    verification_retry_count BIGINT NOT NULL,
    verification_failure TEXT,
    connectivity_at TEXT,
    maintained_at TEXT,
    used_at TEXT,
    evicted_at TEXT,
    bytes BIGINT,
    refused TEXT,
    created_at TEXT NOT NULL,
    PRIMARY KEY (replica, repo)
);
CREATE INDEX repository_syncs_by_repo ON repository_syncs (repo);
-- What is to be done, each sort by its age.
CREATE INDEX repository_syncs_asked ON repository_syncs (replica, pending_at, repo)
    WHERE state = 'pending' AND evicted_at IS NULL AND asked_at IS NOT NULL;
CREATE INDEX repository_syncs_new ON repository_syncs (replica, pending_at, repo)
    WHERE state = 'pending' AND evicted_at IS NULL AND asked_at IS NULL AND succeeded_at IS NULL;
CREATE INDEX repository_syncs_updated ON repository_syncs (replica, pending_at, repo)
    WHERE state = 'pending' AND evicted_at IS NULL AND asked_at IS NULL AND succeeded_at IS NOT NULL;
CREATE INDEX repository_syncs_retry ON repository_syncs (replica, retry_at, repo) WHERE state = 'failed';
CREATE INDEX repository_syncs_refresh ON repository_syncs (replica, refresh_at, repo) WHERE state = 'synced';
CREATE INDEX repository_syncs_started ON repository_syncs (started_at, repo) WHERE state = 'started';

-- What happened to repositories, so that every replica brings its mirrors in step. Nothing here is ever changed; what all
-- replicas have walked past is removed.
CREATE TABLE repository_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    repo TEXT NOT NULL,
    kind TEXT NOT NULL,
    installation BIGINT,
    at TEXT NOT NULL
);
CREATE INDEX repository_events_by_repo ON repository_events (repo, seq);

-- How far each replica has walked the events of repositories.
CREATE TABLE repository_event_cursors (
    replica TEXT NOT NULL PRIMARY KEY,
    seq BIGINT NOT NULL,
    moved_at TEXT NOT NULL
);

-- Teams or tenants of the server.
CREATE TABLE owners (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL
);

-- Who drives a repository. The unique key decides, across all owners. Addresses are sorted by their bytes, as in the
-- program, which puts lists of several owners together.
CREATE TABLE repository_claims (
    id TEXT NOT NULL PRIMARY KEY,
    url TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL REFERENCES owners (id),
    created_at TEXT NOT NULL
);
CREATE INDEX repository_claims_by_owner ON repository_claims (owner, url);

-- Registered projects. `number` stands for that of a pull in locks, plans, commands and runs; it is negative, and never
-- given twice.
CREATE TABLE applications (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL REFERENCES owners (id),
    url TEXT NOT NULL,
    branch TEXT NOT NULL,
    dir TEXT NOT NULL,
    workspace TEXT NOT NULL,
    name TEXT,
    number BIGINT NOT NULL UNIQUE,
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    UNIQUE (url, branch, dir, workspace)
);
CREATE INDEX applications_by_owner ON applications (owner, url);

-- How a repository is reached. `secret` is encrypted with the key named `key_id`; `public` is what may be shown.
CREATE TABLE credentials (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL REFERENCES owners (id),
    url TEXT NOT NULL,
    kind TEXT NOT NULL,
    public TEXT NOT NULL,
    key_id TEXT NOT NULL,
    secret BLOB NOT NULL,
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    used_at TEXT
);
CREATE INDEX credentials_by_owner ON credentials (owner, url);
CREATE INDEX credentials_by_url ON credentials (url);
CREATE INDEX credentials_by_key ON credentials (key_id);

-- What refers to a claim. A claim that something refers to cannot be deleted.
CREATE TABLE claim_applications (
    application TEXT NOT NULL PRIMARY KEY REFERENCES applications (id) ON DELETE CASCADE,
    claim TEXT NOT NULL REFERENCES repository_claims (id)
);
CREATE INDEX claim_applications_by_claim ON claim_applications (claim);
CREATE TABLE claim_credentials (
    credential TEXT NOT NULL PRIMARY KEY REFERENCES credentials (id) ON DELETE CASCADE,
    claim TEXT NOT NULL REFERENCES repository_claims (id)
);
CREATE INDEX claim_credentials_by_claim ON claim_credentials (claim);

-- Servers on this database. One whose lease has ended without a word is gone.
CREATE TABLE replicas (
    name TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    version TEXT NOT NULL,
    address TEXT NOT NULL,
    state TEXT NOT NULL,
    started_at TEXT NOT NULL,
    beat_at TEXT NOT NULL,
    lease_until TEXT NOT NULL
);

-- How the repairs of each server went: the last time, and in all.
CREATE TABLE reconcilers (
    name TEXT NOT NULL,
    replica TEXT NOT NULL,
    started_at TEXT NOT NULL,
    finished_at TEXT NOT NULL,
    succeeded_at TEXT,
    looked_at BIGINT NOT NULL,
    repaired BIGINT NOT NULL,
    repaired_total BIGINT NOT NULL,
    error TEXT,
    failures BIGINT NOT NULL,
    PRIMARY KEY (name, replica)
);

-- How far the audit log is verified: `new` follows its end, `again` goes round and round what was verified before.
CREATE TABLE lock_event_walks (
    name TEXT NOT NULL PRIMARY KEY,
    seq BIGINT NOT NULL,
    hash TEXT NOT NULL,
    broken_seq BIGINT,
    fault TEXT,
    walked_at TEXT NOT NULL
);

-- Values the server makes once and every replica shares.
CREATE TABLE settings (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
