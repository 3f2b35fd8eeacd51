-- Cancels the waiting and running ones of several jobs. One job: see cancel_job.
-- caller: store.search.cancel_jobs
-- params: ids, actor (for the log)
-- index: jobs_pkey
-- locks: the jobs, in the order of their ids
WITH target AS MATERIALIZED (
  SELECT id, status FROM jobs
  WHERE id = ANY(%(ids)s::uuid[]) AND status IN ('queued', 'processing')
  ORDER BY id
  FOR UPDATE
), cancelled AS (
  UPDATE jobs
  SET status = 'cancelled', completed_at = now(), lease_token = NULL, lease_expires_at = NULL
  FROM target
  WHERE jobs.id = target.id AND jobs.id = ANY(%(ids)s::uuid[])
  RETURNING jobs.id, jobs.attempts, target.status AS was
), logged AS (
  INSERT INTO job_logs (job_id, attempt, event, message, level)
  SELECT id, CASE was WHEN 'processing' THEN attempts END, 'cancelled',
         format('Cancelled by %%s while %%s', %(actor)s::text, was), 'warning'
  FROM cancelled
), told AS (
  SELECT pg_notify('jobqueue_cancel', '') FROM (SELECT FROM cancelled WHERE was = 'processing' LIMIT 1) AS any_of_them
)
SELECT id FROM cancelled LEFT JOIN told ON true
