-- Prolongs the leases of the jobs a worker holds. Rows locked right now are being finished, and are skipped. Whoever
-- has the token has the running job; for why the status is not asked for see finish_jobs.
-- caller: store.workers.extend_leases
-- params: arrays ids, lease_tokens; lease_seconds
-- index: jobs_pkey
-- locks: the held rows that nobody else has locked
WITH held AS MATERIALIZED (
  SELECT jobs.id
  FROM jobs JOIN unnest(%(ids)s::uuid[], %(lease_tokens)s::uuid[]) AS given (id, lease_token)
    ON jobs.id = given.id AND jobs.lease_token = given.lease_token
  WHERE jobs.id = ANY(%(ids)s::uuid[])
  FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE jobs
SET lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s::float8)
FROM held
WHERE jobs.id = held.id
RETURNING jobs.lease_token::text
