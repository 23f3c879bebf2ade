-- Comments that show the result of a command and are still to be posted, and the time of the last one that was, by the clock of
-- the forge. Results of earlier commands count as shown at their end.
ALTER TABLE commands ADD COLUMN comments_left BIGINT NOT NULL DEFAULT 0;
ALTER TABLE commands ADD COLUMN shown_at TIMESTAMPTZ;
