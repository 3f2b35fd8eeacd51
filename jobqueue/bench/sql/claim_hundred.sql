-- The yardstick of the drain cases: the row changes of a claim, by the plainest SQL that makes them. Not our statement,
-- and not to be changed with it: a yardstick must stay as long as it is.
WITH due AS MATERIALIZED (
  SELECT id FROM jobs
  WHERE status = 'queued' AND lane = 'priority' AND next_run_at <= now()
  ORDER BY priority, next_run_at, created_at, id
  LIMIT 100
  FOR UPDATE SKIP LOCKED
), claimed AS (
  UPDATE jobs
  SET status = 'processing', attempts = attempts + 1, started_at = now(), worker_id = %(worker_id)s,
      lease_token = gen_random_uuid(), lease_expires_at = now() + interval '30 s'
  WHERE id = ANY(ARRAY(SELECT id FROM due))
  RETURNING id, attempts
), logged AS (
  INSERT INTO job_logs (job_id, attempt, event, message)
  SELECT id, attempts, 'claimed', 'Claimed by worker host:12345: executor bench_noop started, attempt 1/5' FROM claimed
)
SELECT id FROM claimed
