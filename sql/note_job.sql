-- Writes a line about what a person did into a job's log.
-- caller: store.search.note_job
-- params: id, event, message
-- index: none (an insert)
-- locks: none
INSERT INTO job_logs (job_id, event, message)
SELECT %(id)s, %(event)s, %(message)s
