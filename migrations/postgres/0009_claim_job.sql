-- Claims the next job in one round trip; `store::jobs` explains the conditions. Parameters: the holder, the time of the
-- lease in microseconds, the present time (NULL: that of the database), only this kind, any but this kind (empty: no
-- condition), how many jobs of one share the holder may have, and the lowest priority.
--
-- The settings make PostgreSQL follow the index of the order, whatever the statistics of the table say: it never reads
-- and sorts all open jobs, and plans only once for a connection. They end with the call.
CREATE FUNCTION claim_job(TEXT, BIGINT, TIMESTAMPTZ, TEXT, TEXT, BIGINT, BIGINT) RETURNS SETOF jobs LANGUAGE plpgsql
    SET enable_sort = off SET enable_bitmapscan = off SET enable_seqscan = off SET enable_hashjoin = off
    SET enable_mergejoin = off SET enable_material = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    present TIMESTAMPTZ := COALESCE($3, clock_timestamp());
    lease_end TIMESTAMPTZ := present + $2 * INTERVAL '1 microsecond';
BEGIN
    RETURN QUERY
    UPDATE jobs SET state = 'running', attempt = jobs.attempt + 1, lease_holder = $1,
        lease_until = lease_end
    WHERE jobs.seq = (SELECT j.seq FROM jobs j WHERE j.state IN ('queued', 'running') AND j.state = 'queued'
        AND j.run_after <= present AND j.priority >= $7
        AND ($4 = '' OR j.kind = $4) AND ($5 = '' OR j.kind <> $5)
        AND (j.share = '' OR (SELECT COUNT(*) FROM jobs r WHERE r.share = j.share AND r.lease_holder = $1
            AND r.state IN ('queued', 'running') AND r.state = 'running') < $6)
        AND NOT EXISTS (SELECT 1 FROM jobs o WHERE o.lane = j.lane AND o.seq < j.seq
            AND o.state IN ('queued', 'running'))
        ORDER BY j.priority DESC, j.seq LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING *;
END $$;

-- Every job is written three times in seconds. Dead rows slow down claims, so they are removed after a number of them and
-- not after a fifth of the table, which finished jobs make large.
ALTER TABLE jobs SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000);
