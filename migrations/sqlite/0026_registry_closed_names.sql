-- Patterns that were accepted as private, and that `accepts` no longer has. Their names stay private.
ALTER TABLE registry_peers ADD COLUMN closed TEXT NOT NULL DEFAULT '';
