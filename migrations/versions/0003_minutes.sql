-- A change of the counts remembers its minute until it is folded; then the minutes are added up here. So a chart of a week
-- costs no index on jobs and no reading of it.
ALTER TABLE job_counts ADD COLUMN minute timestamptz;

CREATE TABLE job_minutes (
  minute timestamptz NOT NULL,
  status job_status NOT NULL,
  type text NOT NULL,
  jobs bigint NOT NULL,
  run_microseconds bigint NOT NULL,
  PRIMARY KEY (minute, status, type)
);

-- As in 0002, and the minute of a job's creation.
CREATE OR REPLACE FUNCTION jobs_inserted() RETURNS trigger LANGUAGE plpgsql AS $fn$
DECLARE
  is_anybody_idle boolean;
BEGIN
  IF EXISTS (SELECT FROM added OFFSET 1) THEN
    WITH counted AS (
      INSERT INTO job_counts
      SELECT status, type, priority, lane, count(*), sum(run_microseconds(status, started_at, completed_at)),
             date_trunc('minute', now())
      FROM added
      GROUP BY status, type, priority, lane
    )
    SELECT EXISTS (SELECT FROM workers WHERE is_idle) INTO is_anybody_idle;
  ELSE
    INSERT INTO job_counts
    SELECT status, type, priority, lane, 1, run_microseconds(status, started_at, completed_at), date_trunc('minute', now())
    FROM added
    RETURNING EXISTS (SELECT FROM workers WHERE is_idle) INTO is_anybody_idle;
  END IF;
  IF is_anybody_idle THEN
    NOTIFY jobqueue_jobs;
  END IF;
  RETURN NULL;
END
$fn$;

-- As in 0002, and the minute of a job's end. A job that is queued again is not a new one.
CREATE OR REPLACE FUNCTION jobs_updated() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
  INSERT INTO job_counts
  SELECT status, type, priority, lane, sum(jobs), sum(microseconds),
         CASE WHEN status NOT IN ('queued', 'processing') THEN date_trunc('minute', now()) END
  FROM (
    SELECT status, type, priority, lane, -1 AS jobs, -run_microseconds(status, started_at, completed_at) AS microseconds
    FROM old_jobs
    UNION ALL
    SELECT status, type, priority, lane, 1, run_microseconds(status, started_at, completed_at)
    FROM new_jobs
  ) AS change
  GROUP BY status, type, priority, lane
  HAVING sum(jobs) <> 0 OR sum(microseconds) <> 0;
  RETURN NULL;
END
$fn$;

-- Errors that differ in numbers and ids alone are one group.
CREATE FUNCTION error_group(error text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN left(regexp_replace(split_part(left(error, 500), E'\n', 1),
  '[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|[0-9]+', '#', 'g'), 200);

-- An attempt is counted by its claim: numbers come again when a job is handed back or retried by hand.
CREATE OR REPLACE VIEW job_attempts AS
WITH numbered AS (
  SELECT *, count(*) FILTER (WHERE event = 'claimed') OVER (PARTITION BY job_id ORDER BY created_at, id) AS claim
  FROM job_logs
  WHERE attempt IS NOT NULL AND event NOT IN ('executor', 'discarded')
)
SELECT job_id,
       max(attempt) AS attempt,
       min(created_at) FILTER (WHERE event = 'claimed') AS started_at,
       max(created_at) FILTER (WHERE event <> 'claimed') AS finished_at,
       (array_agg(event ORDER BY created_at DESC, id DESC) FILTER (WHERE event <> 'claimed'))[1] AS outcome,
       (array_agg(message ORDER BY created_at DESC, id DESC)
         FILTER (WHERE event IN ('retried', 'failed', 'recovered')))[1] AS message
FROM numbered
WHERE claim > 0
GROUP BY job_id, claim;

COMMENT ON COLUMN job_logs.event IS 'claimed, completed, retried, failed, released, recovered, cancelled, discarded, executor, created or retry_now.';
COMMENT ON COLUMN job_counts.minute IS 'When: the minute of creation or end; null for other changes, and once it is in job_minutes.';
COMMENT ON TABLE job_minutes IS 'Jobs that were created (queued) or ended (the other statuses) in each minute of the last week.';
COMMENT ON COLUMN job_minutes.minute IS 'Beginning of the minute.';
COMMENT ON COLUMN job_minutes.status IS 'queued: created; completed, failed, cancelled: came to that end.';
COMMENT ON COLUMN job_minutes.type IS 'Type of the jobs.';
COMMENT ON COLUMN job_minutes.jobs IS 'How many.';
COMMENT ON COLUMN job_minutes.run_microseconds IS 'Sum of completed_at - started_at of the completed ones.';
COMMENT ON FUNCTION error_group(text) IS 'The first line of an error with its numbers and ids replaced.';
