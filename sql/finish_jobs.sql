-- Writes the outcomes of attempts, several jobs' together: processing → completed, failed, or queued for a retry.
-- Whose lease token no longer matches changes nothing; that is noted in the job's log. The database decides
-- between retry and failed, since it knows the attempts.
--
-- The status is not asked for: only a running job has a lease token (a CHECK of the table), and naming it would invite
-- the planner to walk jobs_lease_idx, where every job that has ever run leaves a dead entry (25 → 50 µs a job). The ids
-- are named as an array besides the join so that they are looked up in jobs_pkey whatever the planner knows of the table.
-- The counts are compared so that nothing is looked for as long as every outcome was taken. For the ids of the log lines
-- see claim_jobs.
-- caller: store.jobs.finish_jobs
-- params: outcomes = JSON array of store.jobs.Outcome (one JSON text costs a fifth of six arrays in Python, and less
--   here too: 24 → 18 µs a job); is_repeat (the same outcomes may have been written before)
-- index: jobs_pkey
-- locks: the rows it finishes; nobody else locks several running rows without skipping locked ones
WITH outcome AS MATERIALIZED (
  SELECT *
  FROM jsonb_to_recordset(%(outcomes)s::jsonb)
    AS given (id uuid, lease_token uuid, kind text, result jsonb, error text, delay_seconds float8)
), finished AS (
  UPDATE jobs
  SET status = CASE
        WHEN kind = 'completed' THEN 'completed'
        WHEN kind = 'gave_up' OR attempts >= max_attempts THEN 'failed'
        ELSE 'queued' END::job_status,
      completed_at = CASE WHEN kind IN ('completed', 'gave_up') OR attempts >= max_attempts THEN now() END,
      next_run_at = CASE
        WHEN kind = 'failed' AND attempts < max_attempts THEN now() + make_interval(secs => delay_seconds)
        ELSE next_run_at END,
      result = outcome.result,
      error = outcome.error,
      lease_token = NULL,
      lease_expires_at = NULL
  FROM outcome
  WHERE jobs.id = outcome.id AND jobs.id = ANY(ARRAY(SELECT id FROM outcome)) AND jobs.lease_token = outcome.lease_token
    AND kind <> 'stopped'
  RETURNING jobs.id, outcome.lease_token, jobs.status, attempts, max_attempts, outcome.error, delay_seconds,
            extract(epoch FROM clock_timestamp() - started_at) AS seconds
), logged AS (
  INSERT INTO job_logs (id, job_id, attempt, level, event, message, created_at)
  SELECT ((SELECT left(new_job_id()::text, 18)) || right(id::text, 18))::uuid, id, attempts,
         CASE status WHEN 'completed' THEN 'info' WHEN 'failed' THEN 'error' ELSE 'warning' END::log_level,
         CASE status WHEN 'queued' THEN 'retried' ELSE status::text END,
         CASE status
           WHEN 'completed' THEN format('Completed in %%s s', round(seconds, 3))
           WHEN 'failed' THEN format('Attempt %%s/%%s failed: %%s; the job has failed for good', attempts, max_attempts, error)
           ELSE format('Attempt %%s/%%s failed: %%s; next attempt in %%s s', attempts, max_attempts, error, round(delay_seconds::numeric, 1))
         END,
         clock_timestamp()
  FROM finished
), discarded AS (
  INSERT INTO job_logs (job_id, level, event, message, created_at)
  SELECT jobs.id, 'warning', 'discarded',
         format('An attempt that no longer owned the job ended (%%s); its result was discarded',
                CASE kind WHEN 'completed' THEN 'it returned a result' ELSE coalesce(outcome.error, 'it was stopped') END),
         clock_timestamp()
  FROM outcome JOIN jobs USING (id)
  WHERE NOT %(is_repeat)s
    AND (SELECT count(*) FROM finished) < (SELECT count(*) FROM outcome)
    AND NOT EXISTS (SELECT FROM finished WHERE finished.lease_token = outcome.lease_token)
)
SELECT lease_token::text, status::text FROM finished
