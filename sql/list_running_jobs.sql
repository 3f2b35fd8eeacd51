-- Reads the jobs that run right now, the longest running first.
-- caller: store.search.list_running_jobs
-- params: max_jobs
-- index: jobs_lease_idx
-- locks: none
SELECT id, type, worker_id, started_at, attempts, max_attempts
FROM jobs
WHERE status = 'processing'
ORDER BY started_at
LIMIT %(max_jobs)s
