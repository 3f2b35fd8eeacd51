"""When the claim loop sleeps, for how long, and who may wake it.

Sleeps until notified, until the nearest future job is due, or POLL_SECONDS. While it sleeps the worker's record says
so, which makes inserts send a notification.

A busy worker is not notified, because NOTIFY makes commits wait for each other: with a notification per insert 16 SQL
clients get 1.6 thousand jobs a second in, without 8. Busy is a worker whose claims are full, or find jobs in quick
succession; until no job has come for a moment it looks every few milliseconds by itself.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from uuid import UUID

import structlog

from jobqueue.errors import Unavailable
from jobqueue.settings import Settings
from jobqueue.store import workers
from jobqueue.store.db import Line
from jobqueue.telemetry import WORKER_IDLE_SECONDS

_BUSY_AFTER_FULL_CLAIMS = 3
_BUSY_AFTER_FINDS = 5
_QUICK_SUCCESSION_SECONDS = 0.02
_LULL_SECONDS = 0.05
_BUSY_PAUSE_SECONDS = 0.005
_SECOND_LOOK_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0

log = structlog.get_logger("jobqueue.worker")


class Sleeper:
    """The sleep of one claim loop."""

    def __init__(self, settings: Settings, worker_id: UUID, line: Line) -> None:
        self._settings = settings
        self._worker_id = worker_id
        self._line = line
        self._hint = asyncio.Event()
        self._is_marked_idle: bool | None = True  # a new worker's record says so; None: nobody knows
        self._alarm: asyncio.TimerHandle | None = None
        self._full_claims = 0
        self._finds = 0
        self._found_at = 0.0
        self._next_due_at: float | None = None
        self._failures = 0
        self._second_look = True

    def wake(self) -> None:
        """Look again now: something may be due."""
        self._hint.set()

    def expect_due(self, delay_seconds: float) -> None:
        """Note that a job will be due then (a retry that this worker itself has just written)."""
        due_at = time.monotonic() + delay_seconds
        if self._next_due_at is None or due_at < self._next_due_at:
            self._next_due_at = due_at
            if self._alarm is not None:
                self._set_alarm(delay_seconds)

    def about_to_look(self) -> None:
        """Forget earlier hints: the look that follows sees what they were about."""
        self._hint.clear()
        self._next_due_at = None

    async def after_claim(
        self, *, wanted: int, got: int, next_due_seconds: float | None, full_look_seconds: float | None
    ) -> None:
        """Sleep if the claim came back short: until the next future job, or the next look at the whole queue."""
        self._failures = 0
        since_find = self._note(wanted, got)
        if self._full_claims >= _BUSY_AFTER_FULL_CLAIMS or self._finds >= _BUSY_AFTER_FINDS:
            await self._mark(is_idle=False)
        if got >= wanted:
            return
        for seconds in (next_due_seconds, full_look_seconds):
            if seconds is not None:
                self.expect_due(seconds)
        if self._is_marked_idle is False and since_find < _LULL_SECONDS:
            await self._sleep(_BUSY_PAUSE_SECONDS)
            return
        if not self._is_marked_idle:
            # Inserts that ran before the mark was visible sent no notification: look once more first.
            self._finds = 0
            await self._mark(is_idle=True)
            self._second_look = True
            return
        patience = self._settings.poll_seconds
        if self._second_look:
            patience, self._second_look = min(patience, _SECOND_LOOK_SECONDS), False
        await self._sleep(patience)

    def _note(self, wanted: int, got: int) -> float:
        """Take in what a claim found; return the seconds since jobs were last found."""
        now = time.monotonic()
        since_find = now - self._found_at
        self._full_claims = self._full_claims + 1 if got >= wanted else 0
        if not got:
            return since_find
        self._finds = self._finds + 1 if since_find < _QUICK_SUCCESSION_SECONDS else 1
        self._found_at = now
        return 0.0

    async def after_failure(self, error: Unavailable, stop: asyncio.Event) -> None:
        """Pause after the database did not answer, a little longer each time."""
        pause = min(0.1 * 2 ** min(self._failures, 10), _LONGEST_PAUSE_SECONDS)
        self._failures += 1
        self._second_look = True
        log.warning("claim_failed", error=str(error), seconds=pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stop.wait()

    async def _sleep(self, seconds: float) -> None:
        if self._next_due_at is not None:
            seconds = min(seconds, max(0.0, self._next_due_at - time.monotonic()))
        started = time.monotonic()
        self._set_alarm(seconds)
        try:
            await self._hint.wait()
        finally:
            self._clear_alarm()
            WORKER_IDLE_SECONDS.inc(time.monotonic() - started)

    def _set_alarm(self, seconds: float) -> None:
        """Wake up after *seconds*, or at the alarm that is set already when that is earlier."""
        loop = asyncio.get_running_loop()
        if self._alarm is not None and self._alarm.when() <= loop.time() + seconds:
            return
        self._clear_alarm()
        self._alarm = loop.call_later(seconds, self._hint.set)

    def _clear_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _mark(self, *, is_idle: bool) -> None:
        if is_idle == self._is_marked_idle:
            return
        try:
            async with self._line.use() as connection:
                await workers.set_worker_idle(connection, self._worker_id, is_idle=is_idle)
        except Unavailable as error:
            log.warning("idle_mark_failed", error=str(error))
            self._is_marked_idle = None  # it may have been written all the same
            return
        self._is_marked_idle = is_idle
