-- Finds running jobs whose lease has run out, and ones that never had a lease and are older than the threshold.
-- For one lease after the server's start nothing counts as lost: the owners could not renew while it was away.
-- caller: store.workers.list_lost_jobs
-- params: lease_seconds, stuck_seconds, max_jobs
-- index: jobs_lease_idx
-- locks: none; recover_jobs checks everything again
SELECT id, lease_token::text, attempts
FROM jobs
WHERE status = 'processing'
  AND (lease_expires_at < now()
    OR (lease_expires_at IS NULL
      AND coalesce(started_at, created_at) < now() - make_interval(secs => %(stuck_seconds)s::float8)))
  AND pg_postmaster_start_time() < now() - make_interval(secs => %(lease_seconds)s::float8)
ORDER BY lease_expires_at
LIMIT %(max_jobs)s
