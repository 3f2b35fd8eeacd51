-- Forgets a worker that has stopped in an orderly way.
-- caller: store.workers.remove_worker
-- params: id
-- index: workers_pkey
-- locks: the worker's own row
DELETE FROM workers WHERE id = %(id)s
