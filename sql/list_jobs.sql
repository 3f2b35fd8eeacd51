-- Reads one page of jobs, newest first, and the exact number of all that match: ids are ordered by time of creation and
-- unique, so pages never overlap. Number and page come from one snapshot, and a page that must be empty is not looked
-- for. The last column is the number of rows that the total was added up from.
--
-- A status is given as a range of one, and ordered by first: then only jobs_status_idx has the order. With a plain
-- equality the planner walks jobs_pkey for any status it believes to be common, through millions of newer jobs when
-- they all have another one. Planned anew each time, since a plan for any filter fits none.
--
-- caller: store.jobs.list_jobs
-- params: status, type, priority (null: any); page_size; first (rows to pass over)
-- index: jobs_status_idx with a status (processing: jobs_lease_idx), jobs_type_idx for a rare type, else jobs_pkey
-- locks: none
WITH matching AS MATERIALIZED (
  SELECT coalesce(sum(jobs), 0)::bigint AS total, count(*) AS changes
  FROM job_counts
  WHERE (%(status)s::job_status IS NULL OR status = %(status)s::job_status)
    AND (%(type)s::text IS NULL OR type = %(type)s::text)
    AND (%(priority)s::job_priority IS NULL OR priority = %(priority)s::job_priority)
), page AS (
  SELECT id, type, payload, priority::text, status::text, idempotency_key, attempts, max_attempts,
         next_retry_at, created_at, started_at, completed_at, error, result, queue, next_run_at
  FROM jobs
  WHERE (%(status)s::job_status IS NULL
      OR (%(status)s::job_status = 'processing' AND status = 'processing')
      OR (%(status)s::job_status <> 'processing' AND status BETWEEN %(status)s::job_status AND %(status)s::job_status))
    AND (%(type)s::text IS NULL OR type = %(type)s::text)
    AND (%(priority)s::job_priority IS NULL OR priority = %(priority)s::job_priority)
    AND (SELECT total FROM matching) > %(first)s::bigint
  ORDER BY CASE WHEN %(status)s::job_status IS NOT NULL THEN jobs.status END DESC, jobs.id DESC
  LIMIT %(page_size)s OFFSET %(first)s
)
SELECT page.*, total, changes FROM matching LEFT JOIN page ON true ORDER BY page.id DESC
