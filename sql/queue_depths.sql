-- Counts the waiting jobs, each in exactly one of four: due in a fifo queue, due in a priority queue, waiting for
-- a retry, or scheduled for a first run.
-- caller: store.stats.queue_depths
-- params: none
-- index: jobs_claim_idx, jobs_fifo_idx (or the table, when most rows wait)
-- locks: none
SELECT count(*) FILTER (WHERE next_run_at <= now() AND lane = 'fifo'),
       count(*) FILTER (WHERE next_run_at <= now() AND lane = 'priority'),
       count(*) FILTER (WHERE next_run_at > now() AND attempts > 0),
       count(*) FILTER (WHERE next_run_at > now() AND attempts = 0)
FROM jobs
WHERE status = 'queued'
