-- Takes lost jobs from owners that are gone: processing → queued with backoff, or failed after the last attempt.
-- The claim counted the attempt, so nothing is counted here. The backoff runs from the end of the lease, not from this
-- pass, so that a lost job starts again soon after its lease whatever the pace of the passes. Whoever has the token has
-- the running job; for why the status is not asked for see finish_jobs.
-- caller: store.workers.recover_jobs
-- params: arrays ids, lease_tokens, delays (seconds); stuck_seconds
-- index: jobs_pkey
-- locks: the rows it recovers, skipping locked ones (their owner is writing)
WITH lost AS MATERIALIZED (
  SELECT jobs.id, greatest(now(), coalesce(lease_expires_at, now()) + make_interval(secs => given.delay)) AS due_at
  FROM jobs JOIN unnest(%(ids)s::uuid[], %(lease_tokens)s::uuid[], %(delays)s::float8[]) AS given (id, lease_token, delay)
    ON jobs.id = given.id AND jobs.lease_token = given.lease_token
  WHERE jobs.id = ANY(%(ids)s::uuid[])
    AND (lease_expires_at < now()
      OR (lease_expires_at IS NULL
        AND coalesce(started_at, created_at) < now() - make_interval(secs => %(stuck_seconds)s::float8)))
  FOR UPDATE OF jobs SKIP LOCKED
), recovered AS (
  UPDATE jobs
  SET status = CASE WHEN attempts >= max_attempts THEN 'failed' ELSE 'queued' END::job_status,
      completed_at = CASE WHEN attempts >= max_attempts THEN now() END,
      next_run_at = CASE WHEN attempts >= max_attempts THEN next_run_at ELSE due_at END,
      error = format('Worker lost: the lease of attempt %%s/%%s ran out', attempts, max_attempts),
      lease_token = NULL,
      lease_expires_at = NULL
  FROM lost
  WHERE jobs.id = lost.id AND jobs.id = ANY(%(ids)s::uuid[])
  RETURNING jobs.id, jobs.status, attempts, max_attempts, worker_id, due_at
), logged AS (
  INSERT INTO job_logs (job_id, attempt, level, event, message)
  SELECT id, attempts,
         CASE status WHEN 'failed' THEN 'error' ELSE 'warning' END::log_level,
         CASE status WHEN 'failed' THEN 'failed' ELSE 'recovered' END,
         format('Recovered: worker %%s stopped renewing the lease of attempt %%s/%%s; %%s', worker_id, attempts, max_attempts,
                CASE status WHEN 'failed' THEN 'the job has failed for good'
                ELSE format('next attempt in %%s s', round(extract(epoch FROM due_at - now()), 1)) END)
  FROM recovered
)
SELECT id, status::text FROM recovered
