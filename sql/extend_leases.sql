-- Prolongs the leases of the jobs a worker holds. Rows locked right now are being finished, and are skipped.
-- caller: store.workers.extend_leases
-- params: arrays ids, lease_tokens; lease_seconds
-- index: jobs_pkey
-- locks: the held rows that nobody else has locked
WITH held AS MATERIALIZED (
  SELECT jobs.id
  FROM jobs JOIN unnest(%(ids)s::uuid[], %(lease_tokens)s::uuid[]) AS given (id, lease_token)
    ON jobs.id = given.id AND jobs.lease_token = given.lease_token
  WHERE jobs.status = 'processing'
  FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE jobs
SET lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s::float8)
FROM held
WHERE jobs.id = held.id
