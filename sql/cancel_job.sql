-- Cancels a job: queued or processing → cancelled. Waits for whoever is changing the row, then decides.
-- caller: store.jobs.cancel_job
-- params: id; actor (who asked, for the log)
-- index: jobs_pkey
-- locks: the one row
WITH target AS MATERIALIZED (
  SELECT id, status FROM jobs WHERE id = %(id)s FOR UPDATE
), cancelled AS (
  UPDATE jobs
  SET status = 'cancelled', completed_at = now(), lease_token = NULL, lease_expires_at = NULL
  FROM target
  WHERE jobs.id = target.id AND target.status IN ('queued', 'processing')
  RETURNING jobs.*, target.status AS was
), logged AS (
  INSERT INTO job_logs (job_id, attempt, event, message, level)
  SELECT id, CASE was WHEN 'processing' THEN attempts END, 'cancelled',
         format('Cancelled by %%s while %%s', %(actor)s::text, was), 'warning'
  FROM cancelled
), told AS (
  SELECT pg_notify('jobqueue_cancel', '') FROM cancelled WHERE was = 'processing'
)
SELECT id, type, payload, priority::text, status::text, idempotency_key, attempts, max_attempts,
       next_retry_at, created_at, started_at, completed_at, error, result, queue, next_run_at
FROM cancelled LEFT JOIN told ON true
