-- Writes new jobs, several requests' together; rows whose idempotency key exists already are left out.
-- caller: store.jobs.create_jobs
-- params: one array per column, equally long; run_at null = at once; payloads in binary: as text each quote of each
--   payload would be escaped in Python
-- index: jobs_idempotency_key_idx (conflict check)
-- locks: inserts in key order, so that two batches with the same keys wait for each other in one direction only
INSERT INTO jobs (id, type, payload, priority, queue, max_attempts, next_run_at,
                  idempotency_key, request_hash, trace_context)
SELECT id, type, payload::jsonb, priority::job_priority, queue, max_attempts, greatest(run_at, now()),
       idempotency_key, request_hash, trace_context
FROM unnest(
  %(ids)s::uuid[], %(types)s::text[], %(payloads)b::text[], %(priorities)s::text[], %(queues)s::text[],
  %(max_attempts)s::smallint[], %(run_ats)s::timestamptz[], %(idempotency_keys)s::text[],
  %(request_hashes)s::bytea[], %(trace_contexts)s::text[]
) WITH ORDINALITY AS new (id, type, payload, priority, queue, max_attempts, run_at,
                          idempotency_key, request_hash, trace_context, position)
ORDER BY idempotency_key COLLATE "C" NULLS FIRST, position
ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING id, created_at, next_run_at
