-- Adds up the changes in job_counts: the rows that nobody else is folding become one row per group.
-- caller: store.stats.fold_job_counts
-- params: none
-- index: none (reads job_counts as a whole, which this keeps small)
-- locks: the rows it folds, skipping locked ones, so that several may fold at once; readers see all or nothing of it
WITH folded AS (
  DELETE FROM job_counts
  WHERE ctid = ANY(ARRAY(SELECT ctid FROM job_counts FOR UPDATE SKIP LOCKED))
  RETURNING *
)
INSERT INTO job_counts
SELECT status, type, priority, lane, sum(jobs), sum(run_microseconds)
FROM folded
GROUP BY status, type, priority, lane
HAVING sum(jobs) <> 0 OR sum(run_microseconds) <> 0
