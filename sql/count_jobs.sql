-- Counts the jobs of a listing, exactly.
-- caller: store.jobs.count_jobs
-- params: status, type, priority (null: any)
-- index: none (a filter on any column; the whole table when nothing is filtered)
-- locks: none
SELECT count(*)
FROM jobs
WHERE (%(status)s::job_status IS NULL OR status = %(status)s::job_status)
  AND (%(type)s::text IS NULL OR type = %(type)s::text)
  AND (%(priority)s::job_priority IS NULL OR priority = %(priority)s::job_priority)
