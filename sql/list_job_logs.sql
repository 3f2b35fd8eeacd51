-- Reads the log of one job, oldest first.
-- caller: store.jobs.list_job_logs
-- params: job_id
-- index: job_logs_job_id_idx
-- locks: none
SELECT id, job_id, level::text, message, created_at
FROM job_logs
WHERE job_id = %(job_id)s
ORDER BY created_at, id
