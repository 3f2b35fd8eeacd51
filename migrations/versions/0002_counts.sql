-- First of all: the counts must start from a state that nobody changes meanwhile.
LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE;

-- Every statement that changes jobs appends one row per group it changed; the rows are added up when read and folded
-- now and then. A row per status that is updated in place would make all writers wait for each other (18,400 → 8,200
-- jobs a second). No index: the few rows there are at a time are read as a whole.
CREATE TABLE job_counts (
  status job_status NOT NULL,
  type text NOT NULL,
  priority job_priority NOT NULL,
  lane job_lane NOT NULL,
  jobs bigint NOT NULL,
  run_microseconds bigint NOT NULL
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

CREATE FUNCTION run_microseconds(status job_status, started_at timestamptz, completed_at timestamptz)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN status = 'completed' THEN
  coalesce((extract(epoch FROM completed_at - started_at) * 1000000)::bigint, 0) ELSE 0 END;

-- One call per insert statement counts, and wakes sleeping workers (which jobs_wake_workers did before). A single row, as
-- most clients insert, is not grouped first: with 16 clients that is worth a tenth of the rate.
CREATE FUNCTION jobs_inserted() RETURNS trigger LANGUAGE plpgsql AS $fn$
DECLARE
  is_anybody_idle boolean;
BEGIN
  IF EXISTS (SELECT FROM added OFFSET 1) THEN
    WITH counted AS (
      INSERT INTO job_counts
      SELECT status, type, priority, lane, count(*), sum(run_microseconds(status, started_at, completed_at))
      FROM added
      GROUP BY status, type, priority, lane
    )
    SELECT EXISTS (SELECT FROM workers WHERE is_idle) INTO is_anybody_idle;
  ELSE
    INSERT INTO job_counts
    SELECT status, type, priority, lane, 1, run_microseconds(status, started_at, completed_at)
    FROM added
    RETURNING EXISTS (SELECT FROM workers WHERE is_idle) INTO is_anybody_idle;
  END IF;
  IF is_anybody_idle THEN
    NOTIFY jobqueue_jobs;
  END IF;
  RETURN NULL;
END
$fn$;

CREATE FUNCTION jobs_updated() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
  INSERT INTO job_counts
  SELECT status, type, priority, lane, sum(jobs), sum(microseconds)
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

CREATE FUNCTION jobs_deleted() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
  INSERT INTO job_counts
  SELECT status, type, priority, lane, -count(*), -sum(run_microseconds(status, started_at, completed_at))
  FROM removed
  GROUP BY status, type, priority, lane;
  DELETE FROM job_logs USING removed WHERE job_logs.job_id = removed.id;
  RETURN NULL;
END
$fn$;

CREATE FUNCTION jobs_truncated() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
  DELETE FROM job_counts;
  RETURN NULL;
END
$fn$;

-- For people: whatever was done to jobs with its triggers off, this puts the counts right. Writers wait meanwhile.
CREATE FUNCTION recount_jobs() RETURNS void LANGUAGE plpgsql AS $fn$
BEGIN
  LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE;
  DELETE FROM job_counts;
  INSERT INTO job_counts
  SELECT status, type, priority, lane, count(*), sum(run_microseconds(status, started_at, completed_at))
  FROM jobs
  GROUP BY status, type, priority, lane;
END
$fn$;

DROP TRIGGER jobs_wake_workers ON jobs;
DROP FUNCTION jobs_wake_workers();
DROP TRIGGER jobs_remove_logs ON jobs;
DROP FUNCTION jobs_remove_logs();

CREATE TRIGGER jobs_inserted AFTER INSERT ON jobs
  REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION jobs_inserted();
CREATE TRIGGER jobs_updated AFTER UPDATE ON jobs
  REFERENCING OLD TABLE AS old_jobs NEW TABLE AS new_jobs
  FOR EACH STATEMENT EXECUTE FUNCTION jobs_updated();
CREATE TRIGGER jobs_deleted AFTER DELETE ON jobs
  REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION jobs_deleted();
CREATE TRIGGER jobs_truncated AFTER TRUNCATE ON jobs
  FOR EACH STATEMENT EXECUTE FUNCTION jobs_truncated();

-- Also for loads with session_replication_role = replica: a row that is not counted would be missing for ever.
ALTER TABLE jobs ENABLE ALWAYS TRIGGER jobs_inserted;
ALTER TABLE jobs ENABLE ALWAYS TRIGGER jobs_updated;
ALTER TABLE jobs ENABLE ALWAYS TRIGGER jobs_deleted;
ALTER TABLE jobs ENABLE ALWAYS TRIGGER jobs_truncated;

SELECT recount_jobs();

CREATE INDEX jobs_status_idx ON jobs (status, id)
  WHERE status <> 'processing';
CREATE INDEX jobs_later_idx ON jobs (next_run_at) INCLUDE (lane, attempts)
  WHERE status = 'queued' AND next_run_at > created_at;
CREATE INDEX jobs_type_idx ON jobs
  USING brin (type text_bloom_ops (n_distinct_per_range = 64)) WITH (pages_per_range = 16, autosummarize = true);

COMMENT ON TABLE job_counts IS 'Number of jobs by status, type, priority and lane, as changes to be added up: sum(jobs).';
COMMENT ON COLUMN job_counts.status IS 'Status of the jobs.';
COMMENT ON COLUMN job_counts.type IS 'Type of the jobs.';
COMMENT ON COLUMN job_counts.priority IS 'Priority of the jobs.';
COMMENT ON COLUMN job_counts.lane IS 'Lane of the jobs.';
COMMENT ON COLUMN job_counts.jobs IS 'How many more (or fewer, when negative) there are since this change.';
COMMENT ON COLUMN job_counts.run_microseconds IS 'What the change adds to the sum of completed_at - started_at of completed jobs.';
COMMENT ON FUNCTION run_microseconds(job_status, timestamptz, timestamptz) IS 'Run time of a completed job, 0 for all others.';
COMMENT ON FUNCTION jobs_inserted() IS 'Counts new jobs, and wakes sleeping workers, once per statement.';
COMMENT ON FUNCTION jobs_updated() IS 'Counts the changes of one statement.';
COMMENT ON FUNCTION jobs_deleted() IS 'Counts removed jobs and removes their log lines.';
COMMENT ON FUNCTION jobs_truncated() IS 'Starts the counts again.';
COMMENT ON FUNCTION recount_jobs() IS 'Puts job_counts right after jobs was changed with its triggers off. Writers wait meanwhile.';
COMMENT ON INDEX jobs_status_idx IS 'list_jobs: the jobs of one status, newest first. Running jobs are few, and found by jobs_lease_idx.';
COMMENT ON INDEX jobs_later_idx IS 'queue_depths and claim_jobs: delayed jobs and retries. Ordinary jobs are not in it.';
COMMENT ON INDEX jobs_type_idx IS 'list_jobs: where the jobs of a rare type lie. A hundredth of the size of an ordinary index.';
