-- Reads what tells whether the server is well: one row of figures. Of sessions of other users only those that this role may
-- see are counted.
-- caller: store.history.read_system
-- params: none
-- index: none (system views)
-- locks: none
SELECT split_part(version(), ' on ', 1),
       pg_database_size(current_database()),
       pg_total_relation_size('jobs'), pg_total_relation_size('job_logs'),
       (SELECT n_live_tup FROM pg_stat_user_tables WHERE relid = 'jobs'::regclass),
       (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'jobs'::regclass),
       (SELECT greatest(last_autovacuum, last_vacuum) FROM pg_stat_user_tables WHERE relid = 'jobs'::regclass),
       (SELECT extract(epoch FROM max(now() - xact_start))::float8 FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'),
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       current_setting('max_connections')::int,
       (SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'jobqueue-worker-listen'),
       pg_notification_queue_usage(),
       (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()),
       (SELECT version_num FROM alembic_version),
       (SELECT count(*) FROM job_counts)
