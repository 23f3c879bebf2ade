-- Names of the registry that the default branches of repositories use.

-- Repositories whose default branches are read: a row after the first look.
CREATE TABLE registry_branch_repos (
    repo TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- Commit that was read, and the facts that its uses depend on.
    head_sha TEXT COLLATE "C",
    basis TEXT,
    -- Last look at the forge that succeeded, and the time of the next look.
    looked_at TIMESTAMPTZ,
    due_at TIMESTAMPTZ NOT NULL,
    -- Failed looks in a row, and the text of the last one.
    failures BIGINT NOT NULL,
    failure TEXT
);

-- Uses at that commit.
CREATE TABLE registry_branch_uses (
    repo TEXT COLLATE "C" NOT NULL,
    dir TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    -- Versions that the code allows, as it is written; empty: all.
    wanted TEXT COLLATE "C" NOT NULL,
    -- The only version that is allowed, if there is one.
    version TEXT COLLATE "C",
    PRIMARY KEY (repo, dir, kind, name, wanted)
);
CREATE INDEX registry_branch_uses_of_names ON registry_branch_uses (kind, name);
