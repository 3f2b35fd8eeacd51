-- Reads the jobs that own the given idempotency keys, with the fingerprint of the body each came with.
-- A statement of its own after the insert: only a new snapshot sees the winner of a race.
-- caller: store.jobs.get_jobs_by_key
-- params: idempotency_keys
-- index: jobs_idempotency_key_idx
-- locks: none
SELECT id, type, payload, priority::text, status::text, idempotency_key, attempts, max_attempts,
       next_retry_at, created_at, started_at, completed_at, error, result, queue, next_run_at,
       request_hash
FROM jobs
WHERE idempotency_key = ANY(%(idempotency_keys)s::text[])
