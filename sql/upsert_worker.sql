-- Records that a worker is alive.
-- caller: store.workers.upsert_worker
-- params: id, hostname, pid, version, types, concurrency, running, is_stopping
-- index: workers_pkey
-- locks: the worker's own row
INSERT INTO workers (id, hostname, pid, version, types, concurrency, running, is_stopping)
VALUES (%(id)s, %(hostname)s, %(pid)s, %(version)s, %(types)s, %(concurrency)s, %(running)s, %(is_stopping)s)
ON CONFLICT (id) DO UPDATE
SET running = excluded.running, is_stopping = excluded.is_stopping, heartbeat_at = now()
