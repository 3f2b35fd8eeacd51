-- Tells which of a worker's leases are gone (the job was cancelled, recovered or removed).
-- caller: store.workers.list_lost_leases
-- params: arrays ids, lease_tokens
-- index: jobs_pkey
-- locks: none
SELECT held.lease_token::text, coalesce(jobs.status::text, 'removed')
FROM unnest(%(ids)s::uuid[], %(lease_tokens)s::uuid[]) AS held (id, lease_token)
LEFT JOIN jobs ON jobs.id = held.id
WHERE jobs.lease_token IS DISTINCT FROM held.lease_token
