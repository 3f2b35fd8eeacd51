-- Reads one job.
-- caller: store.jobs.get_job
-- params: id
-- index: jobs_pkey
-- locks: none
SELECT id, type, payload, priority::text, status::text, idempotency_key, attempts, max_attempts,
       next_retry_at, created_at, started_at, completed_at, error, result, queue, next_run_at
FROM jobs
WHERE id = %(id)s
