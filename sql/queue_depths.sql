-- Counts the waiting jobs, each in exactly one of four: due in a fifo queue, due in a priority queue, waiting for
-- a retry, or scheduled for a first run. One scan per lane: only with the lane named can its index be used.
-- caller: store.stats.queue_depths
-- params: none
-- index: jobs_claim_idx, jobs_fifo_idx (or the table, when most rows wait)
-- locks: none
WITH waiting AS (
  SELECT next_run_at, attempts, lane FROM jobs WHERE status = 'queued' AND lane = 'priority'
  UNION ALL
  SELECT next_run_at, attempts, lane FROM jobs WHERE status = 'queued' AND lane = 'fifo'
)
SELECT count(*) FILTER (WHERE next_run_at <= now() AND lane = 'fifo'),
       count(*) FILTER (WHERE next_run_at <= now() AND lane = 'priority'),
       count(*) FILTER (WHERE next_run_at > now() AND attempts > 0),
       count(*) FILTER (WHERE next_run_at > now() AND attempts = 0)
FROM waiting
