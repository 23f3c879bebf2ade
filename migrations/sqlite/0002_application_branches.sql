-- Whether an application may work on another branch than the default one of its repository. Of those that were registered
-- before, nobody has allowed it.
ALTER TABLE applications ADD COLUMN any_branch BOOLEAN NOT NULL DEFAULT FALSE;
