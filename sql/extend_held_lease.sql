-- Prolongs a lease whose row extend_leases passed over, waiting for whoever holds it: the moment it is let go, this is first in
-- line, before a recovery that finds the lease expired (which skips locked rows).
-- The row is locked before the update, or the time would be that of the beginning of the wait.
-- caller: store.workers.extend_held_lease
-- params: id, lease_token, lease_seconds
-- index: jobs_pkey
-- locks: the row; a single one, so that it cannot be part of a dead-lock
WITH held AS MATERIALIZED (
  SELECT id FROM jobs WHERE id = %(id)s AND lease_token = %(lease_token)s FOR UPDATE
)
UPDATE jobs
SET lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s::float8)
FROM held
WHERE jobs.id = held.id
