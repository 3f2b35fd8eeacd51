"""One LISTEN connection that looks after itself.

Notifications are hints. After every (re)connect all listeners are woken once, since anything may have been
missed; the callers poll as well. A round trip of our own NOTIFY proves that the connection still hears
(failures.md C1, C2, C8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import psycopg
import structlog
from psycopg import sql

from jobqueue.errors import Unavailable
from jobqueue.settings import Settings
from jobqueue.store.db import Connection, connect, run

JOBS_CHANNEL = "jobqueue_jobs"
CANCEL_CHANNEL = "jobqueue_cancel"

_CHECK_SECONDS = 20.0
_ANSWER_SECONDS = 5.0
_LONGEST_BACKOFF_SECONDS = 10.0

log = structlog.get_logger("jobqueue.listen")


class Listener:
    """Calls *wake[channel]* on the event loop whenever a notification may have come on a channel."""

    def __init__(self, settings: Settings, wake: Mapping[str, Callable[[], None]], role: str) -> None:
        self._settings = settings
        self._wake = dict(wake)
        self._role = f"{role}-listen"
        self._was_heard = False
        self.is_listening = False

    async def run(self) -> None:
        """Listen until cancelled; a lost connection is replaced with growing pauses."""
        failures = 0
        while True:
            try:
                connection = await connect(self._settings.direct_url, self._settings, self._role)
                try:
                    await self._listen(connection)
                finally:
                    self.is_listening = False
                    await connection.close()
            except (Unavailable, psycopg.Error, OSError) as error:
                failures = 0 if self._was_heard else failures + 1
                self._was_heard = False
                log.warning("listener_lost", error=str(error).strip(), polling_seconds=self._settings.poll_seconds)
            pause = min(0.2 * 2 ** min(failures, 10), _LONGEST_BACKOFF_SECONDS)
            await asyncio.sleep(pause)

    async def _listen(self, connection: Connection) -> None:
        check = f"jobqueue_check_{connection.info.backend_pid}"
        for channel in (*self._wake, check):
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        for wake in self._wake.values():
            wake()
        # The first time from another session: a pooler would pass on what comes back while its own client waits, but
        # nothing that comes later.
        other = await connect(self._settings.direct_url, self._settings, self._role)
        try:
            await self._check(connection, check, sender=other)
        finally:
            await other.close()
        log.info("listening")
        while True:
            self.is_listening = self._was_heard = True
            async for notification in connection.notifies(timeout=_CHECK_SECONDS):
                self._dispatch(notification.channel)
            await self._check(connection, check, sender=connection)

    async def _check(self, connection: Connection, channel: str, *, sender: Connection) -> None:
        """Send ourselves a notification through *sender* and wait for it.

        Raises:
            Unavailable: it did not come.
        """
        await run(sender, "notify", {"channel": channel}, timeout=_ANSWER_SECONDS)
        async for notification in connection.notifies(timeout=_ANSWER_SECONDS):
            self._dispatch(notification.channel)
            if notification.channel == channel:
                return
        raise Unavailable(
            "LISTEN hears nothing on this connection. Behind a pooler in transaction mode, set "
            "DATABASE_DIRECT_URL to PostgreSQL itself"
        )

    def _dispatch(self, channel: str) -> None:
        wake = self._wake.get(channel)
        if wake is not None:
            wake()
