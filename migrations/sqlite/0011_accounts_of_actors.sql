-- Account of the person beside their login (`features::accounts`). NULL: they had none at the time.
ALTER TABLE commands ADD COLUMN account BIGINT;
ALTER TABLE locks ADD COLUMN account BIGINT;
ALTER TABLE lock_waiters ADD COLUMN account BIGINT;
ALTER TABLE apply_locks ADD COLUMN account BIGINT;
ALTER TABLE lock_event_inbox ADD COLUMN account BIGINT;
ALTER TABLE lock_events ADD COLUMN account BIGINT;
