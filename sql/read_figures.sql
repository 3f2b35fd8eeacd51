-- Counts the jobs by status, sums the run time of the completed ones, and counts the waiting ones by what they wait
-- for: in each lane those that are not due (after a failed attempt, or before a first run) are counted, the rest is due.
-- Costs the same however many jobs there are; grows with the number of delayed jobs alone.
-- caller: store.stats.read_figures
-- params: none
-- index: jobs_later_idx
-- locks: none
WITH counted AS MATERIALIZED (
  SELECT status, lane, sum(jobs)::bigint AS jobs, sum(run_microseconds)::float8 AS microseconds, count(*) AS changes
  FROM job_counts
  GROUP BY status, lane
), later AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE lane = 'fifo') AS fifo,
         count(*) FILTER (WHERE lane = 'priority') AS priority,
         count(*) FILTER (WHERE attempts > 0) AS retry,
         count(*) FILTER (WHERE attempts = 0) AS scheduled
  FROM jobs
  WHERE status = 'queued' AND next_run_at > created_at AND next_run_at > now()
)
SELECT coalesce(sum(jobs) FILTER (WHERE status = 'queued'), 0)::bigint,
       coalesce(sum(jobs) FILTER (WHERE status = 'processing'), 0)::bigint,
       coalesce(sum(jobs) FILTER (WHERE status = 'completed'), 0)::bigint,
       coalesce(sum(jobs) FILTER (WHERE status = 'failed'), 0)::bigint,
       coalesce(sum(jobs) FILTER (WHERE status = 'cancelled'), 0)::bigint,
       sum(microseconds) / nullif(sum(jobs) FILTER (WHERE status = 'completed'), 0)::float8 / 1000000,
       (coalesce(sum(jobs) FILTER (WHERE status = 'queued' AND lane = 'fifo'), 0) - (SELECT fifo FROM later))::bigint,
       (coalesce(sum(jobs) FILTER (WHERE status = 'queued' AND lane = 'priority'), 0)
         - (SELECT priority FROM later))::bigint,
       (SELECT retry FROM later),
       (SELECT scheduled FROM later),
       coalesce(sum(changes), 0)::bigint
FROM counted
