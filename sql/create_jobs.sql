-- Writes new jobs, several requests' together; rows whose idempotency key exists already are left out.
-- caller: store.jobs.create_jobs
-- params: jobs = JSON array of store.jobs.NewRow, in the order to write them (no run_at: at once). As one JSON text
--   it costs a quarter of ten arrays in Python
-- index: jobs_idempotency_key_idx (conflict check)
-- locks: inserts in key order, so that two batches with the same keys wait for each other in one direction only
INSERT INTO jobs (id, type, payload, priority, queue, max_attempts, next_run_at,
                  idempotency_key, request_hash, trace_context)
SELECT id, type, payload, priority, queue, max_attempts, greatest(run_at, now()),
       idempotency_key, decode(request_hash, 'base64'), trace_context
FROM ROWS FROM (jsonb_to_recordset(%(jobs)s::jsonb) AS (
  id uuid, type text, payload jsonb, priority job_priority, queue text, max_attempts smallint, run_at timestamptz,
  idempotency_key text, request_hash text, trace_context text
)) WITH ORDINALITY AS new (id, type, payload, priority, queue, max_attempts, run_at,
                           idempotency_key, request_hash, trace_context, position)
ORDER BY idempotency_key COLLATE "C" NULLS FIRST, position
ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING id, created_at, next_run_at
