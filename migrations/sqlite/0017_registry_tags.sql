-- Versions of the registry that tags of repositories publish.

-- Repositories whose tags are read: a row after the first look.
CREATE TABLE registry_tag_repos (
    repo TEXT NOT NULL PRIMARY KEY,
    -- Last look at the forge that succeeded, and the time of the next look.
    looked_at TEXT,
    due_at TEXT NOT NULL,
    -- Failed looks in a row, and the text of the last one.
    failures BIGINT NOT NULL,
    failure TEXT,
    -- True once a look has stored all tags that were there in the beginning.
    is_listed BOOLEAN NOT NULL,
    -- Number of new tags that got statuses since a time. It is limited, so that statuses do not use up the requests to the forge.
    first_told_at TEXT NOT NULL,
    told BIGINT NOT NULL
);

-- Tags that may name a version, with each commit that they have led to.
CREATE TABLE registry_tags (
    repo TEXT NOT NULL,
    tag TEXT NOT NULL,
    commit_sha TEXT NOT NULL,
    seen_at TEXT NOT NULL,
    -- True if no status of the commit tells the outcome, because the tag was one of many.
    is_quiet BOOLEAN NOT NULL,
    state TEXT NOT NULL,
    -- Reason of a refusal, or the last failure that will be tried again.
    reason TEXT,
    -- Owner, namespaces and settings that the outcome depends on, and the head of the default branch.
    basis TEXT,
    head_sha TEXT,
    -- Failed attempts in a row, and the time of the next one.
    failures BIGINT NOT NULL,
    due_at TEXT NOT NULL,
    -- True if a status of the commit names the tag alone, because the version is not known.
    is_told BOOLEAN NOT NULL,
    -- Time since which the tag leads to another commit, or does not exist.
    gone_at TEXT,
    PRIMARY KEY (repo, tag, commit_sha)
);
CREATE INDEX registry_tags_by_state ON registry_tags (repo, state, gone_at);

-- Versions that a tag names at a commit, with the final outcome of each.
CREATE TABLE registry_tag_versions (
    repo TEXT NOT NULL,
    tag TEXT NOT NULL,
    commit_sha TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT,
    decided_at TEXT NOT NULL,
    PRIMARY KEY (repo, tag, commit_sha, kind, name, version)
);
CREATE INDEX registry_tag_versions_of_names ON registry_tag_versions (kind, name);

-- Moves and removals of tags that had published a version. The version stays as it is.
CREATE TABLE registry_tag_moves (
    repo TEXT NOT NULL,
    tag TEXT NOT NULL,
    from_sha TEXT NOT NULL,
    -- Commit that the tag leads to now; NULL: the tag was removed.
    to_sha TEXT,
    moved_at TEXT NOT NULL,
    PRIMARY KEY (repo, tag, from_sha, moved_at)
);
