-- Reads one page of jobs, newest first: ids are ordered by time of creation and unique, so pages never overlap.
-- caller: store.jobs.list_jobs
-- params: status, type, priority (null: any); page_size; first (rows to pass over)
-- index: jobs_pkey
-- locks: none
SELECT id, type, payload, priority::text, status::text, idempotency_key, attempts, max_attempts,
       next_retry_at, created_at, started_at, completed_at, error, result, queue, next_run_at
FROM jobs
WHERE (%(status)s::job_status IS NULL OR status = %(status)s::job_status)
  AND (%(type)s::text IS NULL OR type = %(type)s::text)
  AND (%(priority)s::job_priority IS NULL OR priority = %(priority)s::job_priority)
ORDER BY id DESC
LIMIT %(page_size)s OFFSET %(first)s
