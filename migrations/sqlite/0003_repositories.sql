-- Repositories by the forge's own identifier, which stays when a repository is renamed or transferred. `repo` is the name
-- that every other table knows it by.
CREATE TABLE repositories (
    host TEXT NOT NULL,
    forge_id BIGINT NOT NULL,
    repo TEXT NOT NULL UNIQUE,
    named_at TEXT NOT NULL,
    PRIMARY KEY (host, forge_id)
);

-- Names that repositories had before, until another repository has them.
CREATE TABLE former_names (
    repo TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    forge_id BIGINT NOT NULL,
    left_at TEXT NOT NULL
);

-- What the forge did not find when it was asked: a repository (`number` 0) or a pull request. A second look, some minutes
-- later, decides.
CREATE TABLE absences (
    repo TEXT NOT NULL,
    number BIGINT NOT NULL,
    noticed_at TEXT NOT NULL,
    PRIMARY KEY (repo, number)
);
