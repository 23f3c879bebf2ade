-- Mirrors that were never brought in step: those that something happened to, and those that are only to be there.
CREATE INDEX repository_syncs_told ON repository_syncs (replica, pending_at, repo)
    WHERE state = 'pending' AND evicted_at IS NULL AND asked_at IS NULL AND succeeded_at IS NULL AND COALESCE(updated_at, used_at) IS NOT NULL;
CREATE INDEX repository_syncs_backfill ON repository_syncs (replica, pending_at, repo)
    WHERE state = 'pending' AND evicted_at IS NULL AND asked_at IS NULL AND succeeded_at IS NULL AND COALESCE(updated_at, used_at) IS NULL;
