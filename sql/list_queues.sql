-- Reads the queues.
-- caller: store.catalog.list_queues
-- params: none
-- index: none (a handful of rows)
-- locks: none
SELECT name, lane::text FROM queues ORDER BY name
