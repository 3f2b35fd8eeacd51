-- Takes due jobs for one worker: queued → processing, with a new lease token, the attempt counted and logged.
--
-- One scan per priority value instead of one ORDER BY over all: with a million future jobs of a higher priority
-- in front, the single scan walks them all on servers before 18 (40 ms against 0.75 ms). The scans run one
-- after the other because each LIMIT reads the count of those before it; a scan with nothing left to take does
-- not run. MATERIALIZED keeps the planner from running a locking scan twice. The fifo lane comes last: it is
-- served only when no due priority job is left for this worker.
--
-- Each scan starts behind the position that the worker claimed last at that level (its low-water mark), or at the start:
-- as long as any transaction holds an old snapshot, every claimed job leaves an index entry at the head of the queue
-- that a scan from the start walks over. The worker decides when to look from the start again (worker.lowwater).
--
-- The rows are updated by an array of their ids so that the ids are looked up in jobs_pkey whatever the planner
-- guesses of their number: a join was planned as a scan of the table (36 → 23 µs a job at 20,000 rows). The last
-- column is the time until the nearest future job, read only when there was not enough to do.
--
-- Tokens and the ids of log lines take their front half from one new uuid per claim and their back half from the job's
-- id: as unique, and a uuid per row costs 3 µs of randomness (a server without OpenSSL) of the 20 that a job takes here.
--
-- caller: store.claims.claim_jobs
-- params: types this worker can run; max_jobs = free slots; worker_id; worker_name for the log; lease_seconds;
--   the positions to start behind: high_run_at, high_created_at, high_id, medium_run_at, medium_created_at, medium_id,
--   low_run_at, low_created_at, low_id, fifo_created_at, fifo_id
-- index: jobs_claim_idx, jobs_fifo_idx, jobs_pkey, jobs_later_idx (the nearest future job)
-- locks: the rows it takes, in claim order, skipping rows that others hold; READ COMMITTED
WITH high AS MATERIALIZED (
  SELECT id FROM jobs
  WHERE status = 'queued' AND lane = 'priority' AND priority = 'high'
    AND next_run_at <= now() AND type = ANY(%(types)s::text[])
    AND (next_run_at, created_at, id) > (%(high_run_at)s::timestamptz, %(high_created_at)s::timestamptz, %(high_id)s::uuid)
  ORDER BY priority, next_run_at, created_at, id
  LIMIT %(max_jobs)s::int
  FOR UPDATE SKIP LOCKED
), medium AS MATERIALIZED (
  SELECT id FROM jobs
  WHERE status = 'queued' AND lane = 'priority' AND priority = 'medium'
    AND next_run_at <= now() AND type = ANY(%(types)s::text[])
    AND (next_run_at, created_at, id)
      > (%(medium_run_at)s::timestamptz, %(medium_created_at)s::timestamptz, %(medium_id)s::uuid)
  ORDER BY priority, next_run_at, created_at, id
  LIMIT %(max_jobs)s::int - (SELECT count(*) FROM high)
  FOR UPDATE SKIP LOCKED
), low AS MATERIALIZED (
  SELECT id FROM jobs
  WHERE status = 'queued' AND lane = 'priority' AND priority = 'low'
    AND next_run_at <= now() AND type = ANY(%(types)s::text[])
    AND (next_run_at, created_at, id) > (%(low_run_at)s::timestamptz, %(low_created_at)s::timestamptz, %(low_id)s::uuid)
  ORDER BY priority, next_run_at, created_at, id
  LIMIT %(max_jobs)s::int - (SELECT count(*) FROM high) - (SELECT count(*) FROM medium)
  FOR UPDATE SKIP LOCKED
), fifo AS MATERIALIZED (
  SELECT id FROM jobs
  WHERE status = 'queued' AND lane = 'fifo'
    AND next_run_at <= now() AND type = ANY(%(types)s::text[])
    AND (created_at, id) > (%(fifo_created_at)s::timestamptz, %(fifo_id)s::uuid)
  ORDER BY created_at, id
  LIMIT %(max_jobs)s::int - (SELECT count(*) FROM high) - (SELECT count(*) FROM medium) - (SELECT count(*) FROM low)
  FOR UPDATE SKIP LOCKED
), due AS (
  SELECT id FROM high UNION ALL SELECT id FROM medium UNION ALL SELECT id FROM low UNION ALL SELECT id FROM fifo
), claimed AS (
  UPDATE jobs
  SET status = 'processing',
      attempts = attempts + 1,
      started_at = now(),
      worker_id = %(worker_id)s,
      lease_token = ((SELECT left(gen_random_uuid()::text, 18)) || right(id::text, 18))::uuid,
      lease_expires_at = now() + make_interval(secs => %(lease_seconds)s::float8)
  WHERE id = ANY(ARRAY(SELECT id FROM due))
  RETURNING id, lease_token, type, attempts, max_attempts, payload, priority, queue, lane,
            next_run_at, created_at, trace_context
), logged AS (
  INSERT INTO job_logs (id, job_id, attempt, event, message)
  SELECT ((SELECT left(new_job_id()::text, 18)) || right(id::text, 18))::uuid, id, attempts, 'claimed',
         format('Claimed by worker %%s: executor %%s started, attempt %%s/%%s',
                %(worker_name)s::text, type, attempts, max_attempts)
  FROM claimed
), idle AS (
  SELECT CASE WHEN (SELECT count(*) FROM due) < %(max_jobs)s::int THEN (
    SELECT extract(epoch FROM min(next_run_at) - now())::float8
    FROM jobs
    WHERE status = 'queued' AND next_run_at > created_at AND next_run_at > now()
  ) END AS seconds
)
SELECT claimed.id, lease_token::text, type, attempts, max_attempts, payload, claimed.priority::text, queue,
       extract(epoch FROM now() - next_run_at)::float8, trace_context,
       CASE lane WHEN 'fifo' THEN 'fifo' ELSE claimed.priority::text END, next_run_at::text, created_at::text, idle.seconds
FROM idle LEFT JOIN claimed ON true
ORDER BY lane, CASE lane WHEN 'priority' THEN claimed.priority END, CASE lane WHEN 'priority' THEN next_run_at END,
         created_at, claimed.id
