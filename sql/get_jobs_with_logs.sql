-- Reads jobs with their logs, several requests' together. The log is made into JSON here: it is passed on as it is, and
-- reading its lines one by one would cost more in Python than everything else.
-- caller: store.jobs.get_jobs_with_logs
-- params: ids
-- index: jobs_pkey, job_logs_job_id_idx
-- locks: none
SELECT jobs.id, type, payload, priority::text, status::text, idempotency_key, attempts, max_attempts,
       next_retry_at, created_at, started_at, completed_at, error, result, queue, next_run_at,
       (SELECT coalesce(json_agg(json_build_object(
                  'id', job_logs.id, 'job_id', job_id, 'level', level, 'message', message,
                  'created_at', to_char(job_logs.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
                ) ORDER BY job_logs.id), '[]')::text
        FROM job_logs
        WHERE job_logs.job_id = jobs.id)
FROM jobs
WHERE jobs.id = ANY(%(ids)s::uuid[])
