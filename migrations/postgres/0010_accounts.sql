-- Accounts of people (`features::accounts`). The repository All-Users is these objects and refs; all other tables of
-- accounts are derived from them in the same transaction.
CREATE TABLE account_updates (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Number of the newest update. Whoever increments it is the only writer until the transaction ends.
    number BIGINT NOT NULL
);
INSERT INTO account_updates (id, number) VALUES (1, 0);

CREATE TABLE account_objects (
    id BYTEA NOT NULL PRIMARY KEY,
    -- Update that added the object. Copies on disks read on from here.
    update_number BIGINT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('blob', 'tree', 'commit')),
    size BIGINT NOT NULL,
    -- Content, compressed with zlib.
    packed BYTEA NOT NULL
);
CREATE INDEX account_objects_updates ON account_objects (update_number, id);

CREATE TABLE account_refs (
    name TEXT NOT NULL PRIMARY KEY,
    object_id BYTEA NOT NULL
);

CREATE TABLE accounts (
    number BIGINT NOT NULL PRIMARY KEY,
    full_name TEXT,
    preferred_email TEXT,
    status TEXT,
    active BOOLEAN NOT NULL,
    username TEXT,
    registered_at TIMESTAMPTZ NOT NULL,
    -- Commit of the user branch that the row was made from.
    commit_id BYTEA NOT NULL
);

CREATE TABLE account_external_ids (
    external_id TEXT NOT NULL PRIMARY KEY,
    account BIGINT NOT NULL,
    -- Blob of the note that the row was made from.
    note_id BYTEA NOT NULL
);
CREATE INDEX account_external_ids_accounts ON account_external_ids (account);

-- One address, one account.
CREATE TABLE account_emails (
    -- The address in lower case.
    email TEXT NOT NULL PRIMARY KEY,
    account BIGINT NOT NULL
);
CREATE INDEX account_emails_accounts ON account_emails (account);
