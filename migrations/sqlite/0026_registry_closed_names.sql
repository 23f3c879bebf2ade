-- Patterns of names, a line each, that were private and for which the deployment is not accepted any more.
ALTER TABLE registry_peers ADD COLUMN closed TEXT NOT NULL DEFAULT '';
