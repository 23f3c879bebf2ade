-- Contracts: no recorded version uses the tables of other deployments yet.
-- Limits for other deployments of the registry, and what was seen of their logs.

-- Longest tree whose records were merged. Each walk through the log fits it.
ALTER TABLE registry_peers ADD COLUMN met TEXT;
-- Last time at which the log was read again because its deployment shares something else.
ALTER TABLE registry_peers ADD COLUMN again_at TEXT;
-- Takedowns are counted by the deployment that has made them. This many more were agreed to until a time.
ALTER TABLE registry_peers DROP COLUMN agreed_id;
ALTER TABLE registry_peers ADD COLUMN agreed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE registry_peers ADD COLUMN agreed_at TEXT;
-- Versions that its records have added, the bytes of their packages, and the limits of both.
ALTER TABLE registry_peers ADD COLUMN versions BIGINT NOT NULL DEFAULT 0;
ALTER TABLE registry_peers ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
-- Records that were passed over because of the limits, since all logs were read again.
ALTER TABLE registry_peers ADD COLUMN limited BIGINT NOT NULL DEFAULT 0;
ALTER TABLE registry_peers ADD COLUMN max_versions BIGINT NOT NULL DEFAULT 20000;
ALTER TABLE registry_peers ADD COLUMN max_bytes BIGINT NOT NULL DEFAULT 107374182400;

-- Attempts that brought other bytes than the recorded ones. After 20, nobody tries again automatically.
ALTER TABLE registry_downloads ADD COLUMN wrong BIGINT NOT NULL DEFAULT 0;
DROP INDEX registry_downloads_due;
-- Each peer has its own turn.
CREATE INDEX registry_downloads_due ON registry_downloads (peer, next_at) WHERE wrong < 20;
