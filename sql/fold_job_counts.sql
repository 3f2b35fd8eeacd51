-- Adds up the changes in job_counts: they become one row per group, and what happened in each minute goes to job_minutes.
-- One session folds at a time, since two would wait for each other's minutes; whoever comes meanwhile does nothing.
-- caller: store.stats.fold_job_counts
-- params: none
-- index: none (reads job_counts as a whole, which this keeps small)
-- locks: an advisory lock that is not waited for, then the rows it folds and the minutes it adds to; readers see all of it
--   or nothing
WITH folded AS (
  DELETE FROM job_counts
  WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM job_counts WHERE (SELECT pg_try_advisory_xact_lock(7210301456)) FOR UPDATE SKIP LOCKED))
  RETURNING *
), remembered AS (
  INSERT INTO job_minutes
  SELECT minute, status, type, sum(jobs), sum(run_microseconds)
  FROM folded
  WHERE minute IS NOT NULL AND jobs > 0
  GROUP BY minute, status, type
  ORDER BY minute, status, type
  ON CONFLICT (minute, status, type) DO UPDATE
  SET jobs = job_minutes.jobs + excluded.jobs,
      run_microseconds = job_minutes.run_microseconds + excluded.run_microseconds
)
INSERT INTO job_counts
SELECT status, type, priority, lane, sum(jobs), sum(run_microseconds)
FROM folded
GROUP BY status, type, priority, lane
HAVING sum(jobs) <> 0 OR sum(run_microseconds) <> 0
