-- Counts all jobs by status, with the mean time from start to end of the completed ones.
-- caller: store.stats.count_jobs_by_status
-- params: none
-- index: none (reads the table)
-- locks: none
SELECT status::text, count(*),
       extract(epoch FROM avg(completed_at - started_at) FILTER (WHERE status = 'completed'))::float8
FROM jobs
GROUP BY status
