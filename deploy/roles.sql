-- Three roles with no more rights than their work needs. Run it in jobqueue's database, as a superuser or its owner with
-- CREATEROLE, before the first migration or at any time after; running it again changes nothing:
--
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f deploy/roles.sql
--
-- Then give each program a login of its own:
--
--   CREATE ROLE queue_api LOGIN PASSWORD '…' IN ROLE jobqueue_run;
--
--   jobqueue_migrate   owns the schema: `jobqueue migrate`, and nothing else, connects as a member of it
--   jobqueue_run       API, workers and the command line: rows, never the schema; logs are never rewritten
--   jobqueue_read      people, reports, alarms: reads everything, changes nothing
BEGIN;

DO $do$
DECLARE
  role_name text;
BEGIN
  FOREACH role_name IN ARRAY ARRAY['jobqueue_migrate', 'jobqueue_run', 'jobqueue_read'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
    END IF;
  END LOOP;
  EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
  EXECUTE format('GRANT CONNECT ON DATABASE %I TO jobqueue_migrate, jobqueue_run, jobqueue_read', current_database());
END
$do$;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO jobqueue_migrate;
GRANT USAGE ON SCHEMA public TO jobqueue_run, jobqueue_read;

-- What exists already, whoever made it, belongs to jobqueue_migrate from now on.
DO $do$
DECLARE
  statement text;
BEGIN
  FOR statement IN
    SELECT format('ALTER TABLE %s OWNER TO jobqueue_migrate', oid::regclass)
    FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')
      AND relname IN ('jobs', 'job_logs', 'job_counts', 'job_minutes', 'job_types', 'job_attempts', 'queues', 'workers', 'alembic_version')
    UNION ALL
    SELECT format('ALTER FUNCTION %s OWNER TO jobqueue_migrate', oid::regprocedure)
    FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace
      AND (proname ~ '^jobs_' OR proname IN ('new_job_id', 'run_microseconds', 'error_group', 'recount_jobs'))
    UNION ALL
    SELECT format('ALTER TYPE %s OWNER TO jobqueue_migrate', oid::regtype)
    FROM pg_type
    WHERE typnamespace = 'public'::regnamespace AND typname IN ('job_status', 'job_priority', 'job_lane', 'log_level')
  LOOP
    EXECUTE statement;
  END LOOP;

  FOR statement IN
    SELECT format('GRANT %s ON %I TO %s', rights, name, grantee)
    FROM (VALUES
      ('jobqueue_run', 'jobs', 'SELECT, INSERT, UPDATE, DELETE'),
      ('jobqueue_run', 'job_logs', 'SELECT, INSERT, DELETE'),
      ('jobqueue_run', 'job_counts', 'SELECT, INSERT, UPDATE, DELETE'),
      ('jobqueue_run', 'job_minutes', 'SELECT, INSERT, UPDATE, DELETE'),
      ('jobqueue_run', 'job_types', 'SELECT, INSERT, UPDATE'),
      ('jobqueue_run', 'workers', 'SELECT, INSERT, UPDATE, DELETE'),
      ('jobqueue_run', 'queues', 'SELECT'),
      ('jobqueue_run', 'job_attempts', 'SELECT'),
      ('jobqueue_run', 'alembic_version', 'SELECT'),
      ('jobqueue_read', 'jobs', 'SELECT'),
      ('jobqueue_read', 'job_logs', 'SELECT'),
      ('jobqueue_read', 'job_counts', 'SELECT'),
      ('jobqueue_read', 'job_minutes', 'SELECT'),
      ('jobqueue_read', 'job_types', 'SELECT'),
      ('jobqueue_read', 'workers', 'SELECT'),
      ('jobqueue_read', 'queues', 'SELECT'),
      ('jobqueue_read', 'job_attempts', 'SELECT'),
      ('jobqueue_read', 'alembic_version', 'SELECT')
    ) AS grants (grantee, name, rights)
    WHERE to_regclass(format('public.%I', name)) IS NOT NULL
  LOOP
    EXECUTE statement;
  END LOOP;
END
$do$;

-- Tables of later migrations: rows for those who run, reading for those who read.
ALTER DEFAULT PRIVILEGES FOR ROLE jobqueue_migrate IN SCHEMA public
  GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO jobqueue_run;
ALTER DEFAULT PRIVILEGES FOR ROLE jobqueue_migrate IN SCHEMA public
  GRANT SELECT ON TABLES TO jobqueue_read;

COMMIT;
