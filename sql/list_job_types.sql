-- Reads the registered job types.
-- caller: store.catalog.list_job_types
-- params: none
-- index: none (a handful of rows)
-- locks: none
SELECT name, max_execution_seconds, payload_schema FROM job_types ORDER BY name
