-- Reads a job's log with what each line is about, oldest first: what happened to it, and the latest lines that its executor
-- wrote, of which there may be very many.
-- caller: store.search.list_job_events
-- params: job_id, max_lines (of each kind)
-- index: job_logs_job_id_idx
-- locks: none
SELECT created_at, level::text, event, attempt, message
FROM (
  (SELECT * FROM job_logs
   WHERE job_id = %(job_id)s AND event <> 'executor' ORDER BY created_at DESC, id DESC LIMIT %(max_lines)s)
  UNION ALL
  (SELECT * FROM job_logs
   WHERE job_id = %(job_id)s AND event = 'executor' ORDER BY created_at DESC, id DESC LIMIT %(max_lines)s)
) AS latest
ORDER BY created_at, id
