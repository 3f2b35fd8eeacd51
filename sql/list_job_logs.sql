-- Reads the log of one job, oldest first: in the order of writing, which is that of the ids. The times of executors'
-- lines are estimates, good to a few milliseconds, and would now and then swap two of them.
-- caller: store.jobs.list_job_logs
-- params: job_id
-- index: job_logs_job_id_idx
-- locks: none
SELECT id, job_id, level::text, message, created_at
FROM job_logs
WHERE job_id = %(job_id)s
ORDER BY id
