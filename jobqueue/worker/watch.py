"""Noticing jobs that are no longer ours.

Looks when told by NOTIFY that something was cancelled, and every POLL_SECONDS (at most one) while jobs run, so that a
running job hears of its cancellation within a second on any machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from jobqueue.errors import Unavailable
from jobqueue.job import LeaseToken
from jobqueue.settings import Settings
from jobqueue.store import workers
from jobqueue.store.db import Line
from jobqueue.store.workers import Held
from jobqueue.worker.heartbeat import Holdings

_LONGEST_POLL_SECONDS = 0.8

log = structlog.get_logger("jobqueue.worker")


class Watch:
    """Calls *lost(lease token, the job's present status)* for held jobs that belong to this worker no longer."""

    def __init__(self, settings: Settings, holdings: Holdings, lost: Callable[[LeaseToken, str], None]) -> None:
        self._settings = settings
        self._holdings = holdings
        self._lost = lost
        self._line = Line(settings, "worker-watch")
        self._hint = asyncio.Event()

    def look(self) -> None:
        """Look now (something was cancelled somewhere)."""
        self._hint.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                await self._wait()
                held = self._holdings.snapshot()
                if held:
                    await self._look(held)
        finally:
            await self._line.close()

    async def _wait(self) -> None:
        # Not wait_for: up to Python 3.11 it swallows a cancellation that comes together with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(min(self._settings.poll_seconds, _LONGEST_POLL_SECONDS)):
                await self._hint.wait()
        self._hint.clear()

    async def _look(self, held: Held) -> None:
        try:
            async with self._line.use() as connection:
                lost = await workers.list_lost_leases(connection, held)
        except Unavailable as error:
            log.warning("watch_failed", error=str(error))
            return
        for token, status in lost.items():
            self._lost(token, status)
