-- Other deployments of the registry are told about new records.

-- Last record of the log here that a peer needs not be told of any more.
ALTER TABLE registry_peers ADD COLUMN pushed_id BIGINT NOT NULL DEFAULT 0;
-- Failed attempts in a row, the time of the next one, and the reason of the last failure.
ALTER TABLE registry_peers ADD COLUMN push_attempts BIGINT NOT NULL DEFAULT 0;
ALTER TABLE registry_peers ADD COLUMN push_at TEXT;
ALTER TABLE registry_peers ADD COLUMN push_error TEXT;
-- Records of which a peer was not told, because the attempts failed. It finds them in the log.
ALTER TABLE registry_peers ADD COLUMN pushes_given_up BIGINT NOT NULL DEFAULT 0;
-- Versions that a deployment has fetched from repositories and that its records have added here, with the bytes of their
-- packages. They have the limits of the versions that it has published, and are counted apart from them.
ALTER TABLE registry_peers ADD COLUMN fetched_versions BIGINT NOT NULL DEFAULT 0;
ALTER TABLE registry_peers ADD COLUMN fetched_bytes BIGINT NOT NULL DEFAULT 0;
-- Peers read the records from before on their own.
UPDATE registry_peers SET pushed_id = (SELECT COALESCE(MAX(id), 0) FROM registry_log);
