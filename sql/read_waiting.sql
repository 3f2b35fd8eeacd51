-- Tells since when the job that is due for longest has been due, in each priority and in the fifo lane.
-- caller: store.history.read_waiting
-- params: none
-- index: jobs_claim_idx, jobs_fifo_idx
-- locks: none
SELECT (SELECT min(next_run_at) FROM jobs
        WHERE status = 'queued' AND lane = 'priority' AND priority = 'high' AND next_run_at <= now()),
       (SELECT min(next_run_at) FROM jobs
        WHERE status = 'queued' AND lane = 'priority' AND priority = 'medium' AND next_run_at <= now()),
       (SELECT min(next_run_at) FROM jobs
        WHERE status = 'queued' AND lane = 'priority' AND priority = 'low' AND next_run_at <= now()),
       (SELECT next_run_at FROM jobs
        WHERE status = 'queued' AND lane = 'fifo' AND next_run_at <= now()
        ORDER BY created_at, id LIMIT 1)
