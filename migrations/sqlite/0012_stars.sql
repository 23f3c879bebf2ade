-- Numbers of changes, from one count over all repositories (`features::accounts`). A change is a pull request or an
-- application: a row of `pulls`. After a rename, a change that had a row under both names has two numbers. Both find it,
-- because stars name them, and the lower one is shown.
CREATE TABLE changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    repo TEXT NOT NULL,
    pull BIGINT NOT NULL
);
CREATE INDEX changes_of_pulls ON changes (repo, pull, number);

-- A trigger also serves servers of the version before, and needs no statement of its own.
CREATE TRIGGER pulls_get_numbers AFTER INSERT ON pulls BEGIN
    INSERT INTO changes (repo, pull) SELECT NEW.repo, NEW.number
    WHERE NOT EXISTS (SELECT 1 FROM changes WHERE repo = NEW.repo AND pull = NEW.number);
END;
INSERT INTO changes (repo, pull) SELECT repo, number FROM pulls ORDER BY updated_at, repo, number;

-- Labels of stars, derived from the refs below `refs/starred-changes/`.
CREATE TABLE account_stars (
    account BIGINT NOT NULL,
    change_number BIGINT NOT NULL,
    label TEXT NOT NULL,
    PRIMARY KEY (account, change_number, label)
);
CREATE INDEX account_stars_changes ON account_stars (change_number, label, account);

-- Projects that accounts watch, derived from their branches.
CREATE TABLE account_watches (
    account BIGINT NOT NULL,
    -- Name of the project in lower case.
    project TEXT NOT NULL,
    PRIMARY KEY (account, project)
);
CREATE INDEX account_watches_projects ON account_watches (project, account);
