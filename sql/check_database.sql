-- Tells that the database answers and whether it takes writes.
-- caller: store.stats.check_database
-- params: none
-- index: none
-- locks: none
SELECT current_setting('server_version'), pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'
