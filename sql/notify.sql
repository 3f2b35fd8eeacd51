-- Sends an empty notification: the listener's test of its own connection.
-- caller: store.listen.Listener
-- params: channel
-- index: none
-- locks: none
SELECT pg_notify(%(channel)s, '')
