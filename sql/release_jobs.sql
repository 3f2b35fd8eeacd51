-- Gives jobs back that were not run to their end, at a stop or because the answer to the claim was lost: processing → queued, the attempt taken back, at their old place.
-- Whoever has the token has the running job; for why the status is not asked for see finish_jobs.
-- caller: store.jobs.release_jobs
-- params: arrays ids, lease_tokens
-- index: jobs_pkey
-- locks: the rows it releases
WITH released AS (
  UPDATE jobs
  SET status = 'queued', attempts = attempts - 1, started_at = NULL, lease_token = NULL, lease_expires_at = NULL
  FROM unnest(%(ids)s::uuid[], %(lease_tokens)s::uuid[]) AS held (id, lease_token)
  WHERE jobs.id = held.id AND jobs.id = ANY(%(ids)s::uuid[]) AND jobs.lease_token = held.lease_token
  RETURNING jobs.id, attempts
), logged AS (
  INSERT INTO job_logs (job_id, attempt, event, message, created_at)
  SELECT id, attempts + 1, 'released', 'Handed back by its worker; this attempt does not count', clock_timestamp()
  FROM released
), woken AS (
  SELECT pg_notify('jobqueue_jobs', '') WHERE EXISTS (SELECT FROM released)
)
SELECT id FROM released LEFT JOIN woken ON true
