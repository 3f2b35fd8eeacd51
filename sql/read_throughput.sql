-- Counts what was created and what ended in equal spans of time, the latest included.
-- caller: store.history.read_throughput
-- params: seconds (how far back), span_seconds (length of one span)
-- index: job_minutes_pkey
-- locks: none
SELECT to_timestamp(floor(extract(epoch FROM minute) / %(span_seconds)s::float8) * %(span_seconds)s::float8),
       coalesce(sum(jobs) FILTER (WHERE status = 'queued'), 0)::bigint,
       coalesce(sum(jobs) FILTER (WHERE status = 'completed'), 0)::bigint,
       coalesce(sum(jobs) FILTER (WHERE status = 'failed'), 0)::bigint,
       coalesce(sum(jobs) FILTER (WHERE status = 'cancelled'), 0)::bigint
FROM (
  SELECT minute, status, jobs FROM job_minutes
  UNION ALL
  SELECT minute, status, jobs FROM job_counts WHERE jobs > 0
) AS happened
WHERE minute >= now() - make_interval(secs => %(seconds)s::float8)
GROUP BY 1
ORDER BY 1
