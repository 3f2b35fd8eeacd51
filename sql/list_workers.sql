-- Reads all known workers, the most recently started first.
-- caller: store.workers.list_workers
-- params: none
-- index: none (a handful of rows)
-- locks: none
SELECT id, hostname, pid, version, types, concurrency, running, is_stopping, started_at, heartbeat_at,
       extract(epoch FROM now() - heartbeat_at)::float8
FROM workers
ORDER BY started_at DESC, id
