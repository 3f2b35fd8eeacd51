-- Reads the jobs that match a search, newest or oldest first, from behind a given one on. Ids are ordered by time of
-- creation, so times are given as ids. Planned anew each time; for the range of one status see list_jobs.
-- caller: store.search.search_jobs
-- params: status, type, priority, queue, idempotency_key, since, until (ids), ended_since, error_text, error_group, path, value (a
--   payload's value by its path) (null: any); after (an id, null: from the start), is_newest_first, max_jobs
-- index: jobs_status_idx with a status (processing: jobs_lease_idx), jobs_idempotency_key_idx with a key, else jobs_pkey
-- locks: none
SELECT id, type, priority::text, status::text, queue, attempts, max_attempts, created_at, started_at, completed_at,
       next_run_at, next_retry_at, left(error, 300), left(payload::text, 200), worker_id
FROM jobs
WHERE (%(status)s::job_status IS NULL
    OR (%(status)s::job_status = 'processing' AND status = 'processing')
    OR (%(status)s::job_status <> 'processing' AND status BETWEEN %(status)s::job_status AND %(status)s::job_status))
  AND (%(type)s::text IS NULL OR type = %(type)s::text)
  AND (%(priority)s::job_priority IS NULL OR priority = %(priority)s::job_priority)
  AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
  AND (%(idempotency_key)s::text IS NULL OR idempotency_key = %(idempotency_key)s::text)
  AND (%(since)s::uuid IS NULL OR id >= %(since)s::uuid)
  AND (%(until)s::uuid IS NULL OR id < %(until)s::uuid)
  AND (%(ended_since)s::timestamptz IS NULL OR completed_at >= %(ended_since)s::timestamptz)
  AND (%(error_text)s::text IS NULL OR position(lower(%(error_text)s::text) IN lower(error)) > 0)
  AND (%(error_group)s::text IS NULL OR coalesce(error_group(error), '') = %(error_group)s::text)
  AND (%(path)s::text[] IS NULL OR payload #>> %(path)s::text[] = %(value)s::text)
  AND (%(after)s::uuid IS NULL
    OR (%(is_newest_first)s::boolean AND id < %(after)s::uuid)
    OR (NOT %(is_newest_first)s::boolean AND id > %(after)s::uuid))
ORDER BY CASE WHEN %(is_newest_first)s::boolean AND %(status)s::job_status IS NOT NULL THEN jobs.status END DESC,
         CASE WHEN %(is_newest_first)s::boolean THEN jobs.id END DESC,
         CASE WHEN NOT %(is_newest_first)s::boolean AND %(status)s::job_status IS NOT NULL THEN jobs.status END,
         CASE WHEN NOT %(is_newest_first)s::boolean THEN jobs.id END
LIMIT %(max_jobs)s
