-- Writes lines that executors logged, and other lines that go with no change of state.
-- caller: store.jobs.append_job_logs
-- params: one array per column; ages = seconds since the line was logged, so that the server's clock dates it
-- index: jobs_pkey (lines of jobs that are gone are dropped)
-- locks: none
INSERT INTO job_logs (job_id, attempt, level, message, created_at)
SELECT line.job_id, line.attempt, line.level::log_level, line.message, clock_timestamp() - make_interval(secs => line.age)
FROM unnest(
  %(job_ids)s::uuid[], %(attempts)s::smallint[], %(levels)s::text[], %(messages)s::text[], %(ages)s::float8[]
) WITH ORDINALITY AS line (job_id, attempt, level, message, age, position)
JOIN jobs ON jobs.id = line.job_id
ORDER BY line.position
