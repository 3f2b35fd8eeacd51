-- Records whether a worker sleeps and wants to be woken by inserts.
-- caller: store.workers.set_worker_idle
-- params: id, is_idle
-- index: workers_pkey
-- locks: the worker's own row
UPDATE workers SET is_idle = %(is_idle)s WHERE id = %(id)s
