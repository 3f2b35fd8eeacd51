-- Counts the due jobs that any worker would claim before this one, up to a limit.
-- caller: store.search.count_jobs_ahead
-- params: id, max_jobs (the limit)
-- index: jobs_claim_idx, jobs_fifo_idx
-- locks: none
SELECT count(*)
FROM (
  (SELECT FROM jobs, (SELECT lane, priority, next_run_at, created_at, id FROM jobs WHERE id = %(id)s) AS this
   WHERE jobs.status = 'queued' AND jobs.lane = 'priority' AND jobs.next_run_at <= now()
     AND (this.lane = 'fifo' OR jobs.priority < this.priority
       OR (jobs.priority = this.priority
         AND (jobs.next_run_at, jobs.created_at, jobs.id) < (this.next_run_at, this.created_at, this.id)))
   LIMIT %(max_jobs)s)
  UNION ALL
  (SELECT FROM jobs, (SELECT lane, created_at, id FROM jobs WHERE id = %(id)s) AS this
   WHERE jobs.status = 'queued' AND jobs.lane = 'fifo' AND jobs.next_run_at <= now()
     AND this.lane = 'fifo' AND (jobs.created_at, jobs.id) < (this.created_at, this.id)
   LIMIT %(max_jobs)s)
) AS ahead
