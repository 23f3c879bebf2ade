-- The registry of modules (`features::registry`). Its tables stay empty without --registry.

-- This deployment: one row, made by the first server with --registry.
CREATE TABLE registry_deployment (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Name of the deployment and of its log. It never changes.
    name TEXT NOT NULL,
    -- Public key, in the form of Go's checksum database.
    verifier TEXT NOT NULL,
    -- Secret key, sealed with this key of --encryption-key-file.
    key_name TEXT NOT NULL,
    sealed_key BYTEA NOT NULL,
    -- Store of packages that this database belongs to.
    store_id TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL
);

-- Names that belong to owners: namespaces of Terraform modules, and prefixes of Go module paths.
CREATE TABLE registry_namespaces (
    kind TEXT COLLATE "C" NOT NULL,
    prefix TEXT COLLATE "C" NOT NULL,
    owner TEXT NOT NULL REFERENCES owners (id),
    visibility TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (kind, prefix)
);
CREATE INDEX registry_namespaces_of_owners ON registry_namespaces (owner);

-- Names with at least one version in any state.
CREATE TABLE registry_names (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    -- The name in lower case.
    folded_name TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE INDEX registry_names_folded ON registry_names (kind, folded_name);

CREATE TABLE registry_versions (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    state TEXT NOT NULL,
    -- Content, while it is known and not deleted.
    files_hash TEXT,
    go_mod_hash TEXT,
    commit_sha TEXT,
    -- Deployment that has the packages; empty: this one.
    base TEXT NOT NULL,
    origin TEXT,
    published_by TEXT,
    added_at TIMESTAMPTZ,
    -- The last deprecation or deletion.
    reason TEXT,
    replacement TEXT,
    takedown TEXT,
    noticed_at TIMESTAMPTZ,
    PRIMARY KEY (kind, name, version)
);

-- Packages of versions with content.
CREATE TABLE registry_packages (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    file TEXT COLLATE "C" NOT NULL,
    digest TEXT NOT NULL,
    size BIGINT NOT NULL,
    PRIMARY KEY (kind, name, version, file)
);
CREATE INDEX registry_packages_digests ON registry_packages (digest);

-- Packages in the store that no version refers to: to be published, or left by a takedown. They are removed when they
-- are due.
CREATE TABLE registry_loose_packages (
    digest TEXT NOT NULL PRIMARY KEY,
    due_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX registry_loose_packages_due ON registry_loose_packages (due_at);

-- The `go.mod` files of Go modules with content.
CREATE TABLE registry_go_mods (
    name TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    content BYTEA NOT NULL,
    PRIMARY KEY (name, version)
);

-- The log: records in order, with IDs from 1 without gaps.
CREATE TABLE registry_log (
    id BIGINT NOT NULL PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    action TEXT NOT NULL,
    record TEXT NOT NULL,
    -- Later than that of the record before.
    logged_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX registry_log_versions ON registry_log (kind, name, version, id);
CREATE INDEX registry_log_additions ON registry_log (kind, logged_at) WHERE action = 'add';

-- Hashes of the Merkle tree over the log, at the places that Go's checksum database gives them.
CREATE TABLE registry_log_hashes (
    place BIGINT NOT NULL PRIMARY KEY,
    hash BYTEA NOT NULL
);

CREATE TABLE registry_tokens (
    id TEXT NOT NULL PRIMARY KEY,
    label TEXT NOT NULL,
    -- SHA-256 of the token, which nobody can compute backwards.
    hash TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ,
    last_used_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ
);

-- Number of revoked tokens and of changed namespaces so far. Servers keep both in memory until it changes.
CREATE TABLE registry_access (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    changes BIGINT NOT NULL
);
INSERT INTO registry_access (id, changes) VALUES (1, 0);
