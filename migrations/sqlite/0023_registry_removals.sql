-- True while a server removes the package, until `due_at` at the latest. Nobody publishes it in this time, because the
-- store of packages may remove it later than it was told to.
ALTER TABLE registry_loose_packages ADD COLUMN is_removing BOOLEAN NOT NULL DEFAULT FALSE;
