-- Reads the jobs that a worker holds without knowing it: the answer to its claim was lost.
-- caller: store.workers.list_unknown_claims
-- params: worker_id, lease_tokens (those it knows)
-- index: jobs_lease_idx
-- locks: none
SELECT id, lease_token::text
FROM jobs
WHERE status = 'processing' AND worker_id = %(worker_id)s AND NOT lease_token = ANY(%(lease_tokens)s::uuid[])
