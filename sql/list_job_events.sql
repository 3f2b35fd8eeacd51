-- Reads a job's log with what each line is about, oldest first.
-- caller: store.search.list_job_events
-- params: job_id, max_lines
-- index: job_logs_job_id_idx
-- locks: none
SELECT created_at, level::text, event, attempt, message
FROM job_logs
WHERE job_id = %(job_id)s
ORDER BY created_at, id
LIMIT %(max_lines)s
