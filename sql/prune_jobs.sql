-- Removes finished jobs past their retention; their logs and idempotency keys go with them.
-- caller: store.jobs.prune_jobs
-- params: retention_seconds, max_jobs
-- index: jobs_pkey (ids are ordered by time: only rows created before the horizon are read)
-- locks: the rows it removes, skipping locked ones
WITH expired AS MATERIALIZED (
  SELECT id FROM jobs
  WHERE id < (encode(substr(int8send(
          (extract(epoch FROM now() - make_interval(secs => %(retention_seconds)s::float8)) * 1000)::bigint), 3), 'hex')
        || '00000000000000000000')::uuid
    AND status IN ('completed', 'failed', 'cancelled')
    AND completed_at < now() - make_interval(secs => %(retention_seconds)s::float8)
  ORDER BY id
  LIMIT %(max_jobs)s
  FOR UPDATE SKIP LOCKED
)
DELETE FROM jobs USING expired WHERE jobs.id = expired.id
RETURNING jobs.id
