-- False for the runs of a command on so many projects that only its combined statuses are set.
ALTER TABLE runs ADD COLUMN has_status BOOLEAN NOT NULL DEFAULT TRUE;
