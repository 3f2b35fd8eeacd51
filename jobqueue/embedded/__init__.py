"""Servers from wheels: PostgreSQL and Valkey for ``jobqueue up`` and for the tests.

Everything here is synchronous and standard library, so that a start costs little. It never touches a server
that somebody else runs.
"""
