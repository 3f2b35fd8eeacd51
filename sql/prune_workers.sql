-- Forgets workers that have been silent for a day, and tells no insert to wake the ones silent for long.
-- caller: store.workers.prune_workers
-- params: silent_seconds
-- index: none (a handful of rows)
-- locks: rows of silent workers
WITH removed AS (
  DELETE FROM workers WHERE heartbeat_at < now() - interval '1 day'
)
UPDATE workers SET is_idle = false
WHERE is_idle AND heartbeat_at >= now() - interval '1 day'
  AND heartbeat_at < now() - make_interval(secs => %(silent_seconds)s::float8)
