-- Median and 95th percentile of the run time of the completed jobs that were created last, in seconds.
-- caller: store.history.read_durations
-- params: max_jobs (how many are looked at)
-- index: jobs_status_idx
-- locks: none
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds), percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds)
FROM (
  SELECT extract(epoch FROM completed_at - started_at)::float8 AS seconds
  FROM jobs
  WHERE status BETWEEN 'completed' AND 'completed' AND started_at IS NOT NULL
  ORDER BY status DESC, id DESC
  LIMIT %(max_jobs)s
) AS latest
