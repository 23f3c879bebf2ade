-- What accounts have looked at (--reviewed-flags-url). Without that setting, the database of the server has this table.
CREATE TABLE reviewed_flags (
    account BIGINT NOT NULL,
    -- Change and patch set of a file; 0 for a resource, because its plan names them.
    change_number BIGINT NOT NULL,
    patch_set BIGINT NOT NULL,
    -- Plan of a resource; empty for a file.
    plan TEXT NOT NULL,
    -- Path of a file or address of a resource.
    item TEXT NOT NULL,
    PRIMARY KEY (account, change_number, patch_set, plan, item)
);

-- Names the server that the flags belong to.
CREATE TABLE settings (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
