-- Fetches of missing versions from elsewhere that failed. They are forgotten some time after `retry_at`.
CREATE TABLE registry_fills (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    fault TEXT NOT NULL,
    reason TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    failed_at TEXT NOT NULL,
    retry_at TEXT NOT NULL,
    PRIMARY KEY (kind, name, version)
);
CREATE INDEX registry_fills_retry ON registry_fills (retry_at);

-- Packages from elsewhere: their bytes now, and the number of versions that were ever added. One row.
CREATE TABLE registry_cache (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    bytes BIGINT NOT NULL,
    versions BIGINT NOT NULL
);
INSERT INTO registry_cache (id, bytes, versions) VALUES (1, 0, 0);

-- Time of the commit of a version that was fetched from a repository.
ALTER TABLE registry_versions ADD COLUMN committed_at TEXT;
