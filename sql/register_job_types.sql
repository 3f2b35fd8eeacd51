-- Makes job types known to every API process. Types no process registers any more stay until an operator deletes them.
-- caller: store.catalog.register_job_types
-- params: arrays names, limits (seconds or null), schemas (JSON text or null)
-- index: job_types_pkey
-- locks: in order of name
INSERT INTO job_types (name, max_execution_seconds, payload_schema)
SELECT name, limit_seconds, schema::jsonb
FROM unnest(%(names)s::text[], %(limits)s::float8[], %(schemas)s::text[]) AS given (name, limit_seconds, schema)
ORDER BY name COLLATE "C"
ON CONFLICT (name) DO UPDATE
SET max_execution_seconds = excluded.max_execution_seconds, payload_schema = excluded.payload_schema, registered_at = now()
