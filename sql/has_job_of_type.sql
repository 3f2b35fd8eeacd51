-- Tells whether any job has this type (a listing may name types that are no longer registered).
-- caller: store.jobs.has_job_of_type
-- params: type
-- index: none (stops at the first match; reads the table when there is none)
-- locks: none
SELECT EXISTS (SELECT FROM jobs WHERE type = %(type)s)
