-- Groups the failed jobs that were created last by type and error, the largest group first, each with its latest job.
-- caller: store.history.list_error_groups
-- params: max_jobs (how many are looked at), since (of these, those that ended at this time or later; null: all)
-- index: jobs_status_idx
-- locks: none
SELECT type, coalesce(error_group(error), '') AS message, count(*), min(completed_at), max(completed_at), (array_agg(id ORDER BY id DESC))[1]
FROM (
  SELECT id, type, completed_at, error
  FROM jobs
  WHERE status BETWEEN 'failed' AND 'failed'
  ORDER BY status DESC, id DESC
  LIMIT %(max_jobs)s
) AS latest
WHERE %(since)s::timestamptz IS NULL OR completed_at >= %(since)s::timestamptz
GROUP BY type, message
ORDER BY count(*) DESC, max(completed_at) DESC
LIMIT 100
