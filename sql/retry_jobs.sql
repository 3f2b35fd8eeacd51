-- Lets jobs run again at once: failed and cancelled ones from their first attempt, waiting ones before their time.
-- caller: store.search.retry_jobs
-- params: ids, actor (for the log)
-- index: jobs_pkey
-- locks: the jobs, in the order of their ids
WITH target AS MATERIALIZED (
  SELECT id, status FROM jobs
  WHERE id = ANY(%(ids)s::uuid[])
    AND (status IN ('failed', 'cancelled') OR (status = 'queued' AND next_run_at > now()))
  ORDER BY id
  FOR UPDATE
), retried AS (
  UPDATE jobs
  SET status = 'queued',
      attempts = CASE WHEN target.status = 'queued' THEN attempts ELSE 0 END,
      completed_at = NULL,
      next_run_at = now()
  FROM target
  WHERE jobs.id = target.id AND jobs.id = ANY(%(ids)s::uuid[])
  RETURNING jobs.id, target.status AS was
), logged AS (
  INSERT INTO job_logs (job_id, event, message)
  SELECT id, 'retry_now', format('Queued again by %%s, was %%s', %(actor)s::text,
    CASE was WHEN 'queued' THEN 'waiting for its time' ELSE was::text END)
  FROM retried
), told AS (
  SELECT pg_notify('jobqueue_jobs', '') FROM (SELECT FROM retried LIMIT 1) AS any_of_them
)
SELECT id FROM retried LEFT JOIN told ON true
