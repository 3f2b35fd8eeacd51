-- Reads the revision of the schema.
-- caller: store.stats.schema_revision
-- params: none
-- index: none (one row)
-- locks: none
SELECT version_num FROM alembic_version
