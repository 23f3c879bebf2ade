-- Events of the audit log that are not in the chain yet. The sealer moves them to `lock_events`, which goes on as it is.
-- Servers of the release before still write to the chain themselves.
CREATE TABLE lock_event_inbox (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at TIMESTAMPTZ NOT NULL,
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
    concern TEXT
);

-- Public keys that checkpoints are signed with. The private one is sealed with a key of --encryption-key-file, or lies in
-- the data directory of a server.
CREATE TABLE audit_keys (
    public TEXT NOT NULL PRIMARY KEY,
    key_id TEXT,
    secret BYTEA,
    created_at TIMESTAMPTZ NOT NULL
);

-- Signed statements of how far the chain reached, and with which hash; the newest ones.
CREATE TABLE audit_checkpoints (
    seq BIGINT NOT NULL PRIMARY KEY,
    hash TEXT NOT NULL,
    signed_at TIMESTAMPTZ NOT NULL,
    key TEXT NOT NULL,
    signature TEXT NOT NULL
);

-- Who signed that events were pruned. Of those from before, the first checkpoint signs what is there.
ALTER TABLE lock_event_seals ADD COLUMN key TEXT;
ALTER TABLE lock_event_seals ADD COLUMN signature TEXT;

-- What is worked on right now; few, however long the queue is.
CREATE INDEX jobs_running ON jobs (lease_holder) WHERE state = 'running';
