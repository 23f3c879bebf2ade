-- Other deployments that this registry exchanges versions with (`features::registry::peers`).
CREATE TABLE registry_peers (
    -- Name of the deployment and of its log.
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- Address that an administrator here has given, or that was proposed.
    url TEXT NOT NULL,
    -- Public key of its log and records.
    verifier TEXT NOT NULL,
    -- Earlier keys, a line each. Records in the log may be signed with one of them.
    old_verifiers TEXT NOT NULL,
    state TEXT NOT NULL,
    state_at TIMESTAMPTZ NOT NULL,
    -- Token that this deployment presents there, sealed with this key of --encryption-key-file.
    token_key TEXT,
    sealed_token BYTEA,
    -- SHA-256 of the token that it presents here.
    token_hash TEXT UNIQUE,
    -- Patterns of names, a line each.
    shares TEXT NOT NULL,
    accepts TEXT NOT NULL,
    visibility TEXT NOT NULL,
    -- Last record of its log that was merged, and the edge of the tree up to there.
    last_id BIGINT NOT NULL,
    edge TEXT NOT NULL,
    -- Number of walks through its log from the first record.
    walk BIGINT NOT NULL,
    -- Digest of what it shares.
    sharing TEXT NOT NULL,
    -- Signed head that the walk has to meet, and the newest size that was seen.
    head TEXT,
    seen_size BIGINT NOT NULL,
    succeeded_at TIMESTAMPTZ,
    -- Last time at which everything was merged.
    complete_at TIMESTAMPTZ,
    error TEXT,
    error_at TIMESTAMPTZ,
    -- Records of this walk that do not count here, and the reason of the last one.
    skipped BIGINT NOT NULL,
    skipped_last TEXT,
    -- Packages that were not the recorded ones.
    wrong_packages BIGINT NOT NULL,
    -- Takedowns since a time, and the record up to which somebody agreed to all of them.
    takedowns BIGINT NOT NULL,
    takedowns_at TIMESTAMPTZ,
    agreed_id BIGINT NOT NULL,
    added_by TEXT NOT NULL,
    added_at TIMESTAMPTZ NOT NULL
);

-- One-time words with which another deployment joins.
CREATE TABLE registry_invitations (
    -- SHA-256 of the word.
    hash TEXT NOT NULL PRIMARY KEY,
    url TEXT NOT NULL,
    shares TEXT NOT NULL,
    accepts TEXT NOT NULL,
    visibility TEXT NOT NULL,
    created_by TEXT NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);

-- Versions whose packages are at a peer, and have to come here.
CREATE TABLE registry_downloads (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    peer TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL,
    next_at TIMESTAMPTZ NOT NULL,
    error TEXT,
    PRIMARY KEY (kind, name, version)
);
CREATE INDEX registry_downloads_due ON registry_downloads (next_at);

-- Versions with two contents: the one here, and the one in a record that a peer has sent.
CREATE TABLE registry_conflicts (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    peer TEXT COLLATE "C" NOT NULL,
    record TEXT NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (kind, name, version, peer)
);
