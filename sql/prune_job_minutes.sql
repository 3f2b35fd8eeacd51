-- Removes the minutes that no chart shows any more.
-- caller: store.stats.prune_job_minutes
-- params: none
-- index: job_minutes_pkey
-- locks: the rows it removes; nobody adds to minutes that old
DELETE FROM job_minutes WHERE minute < now() - interval '8 days'
