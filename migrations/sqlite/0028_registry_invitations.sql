-- Time at which somebody has invited the deployment. Invitations of an earlier release have none.
ALTER TABLE registry_invitations ADD COLUMN created_at TEXT;
