-- Records that a worker is alive. One that was silent for long is woken by inserts again: prune_workers had ended
-- that, and the worker does not know.
-- caller: store.workers.upsert_worker
-- params: id, hostname, pid, version, types, concurrency, running, is_stopping; silent_seconds as in prune_workers
-- index: workers_pkey
-- locks: the worker's own row
INSERT INTO workers (id, hostname, pid, version, types, concurrency, running, is_stopping)
VALUES (%(id)s, %(hostname)s, %(pid)s, %(version)s, %(types)s, %(concurrency)s, %(running)s, %(is_stopping)s)
ON CONFLICT (id) DO UPDATE
SET running = excluded.running, is_stopping = excluded.is_stopping, heartbeat_at = now(),
    is_idle = workers.is_idle OR workers.heartbeat_at < now() - make_interval(secs => %(silent_seconds)s::float8)
