"""Writing what attempts say: outcomes and log lines, gathered and retried until the database takes them.

While one write is under way the next items queue up, and go together when it ends. Lines go before the outcomes that
they arrived with, so a job that reads as finished has its whole log.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import TypeVar

import msgspec
import structlog

from jobqueue.errors import Unavailable
from jobqueue.job import LeaseToken, Status
from jobqueue.settings import Settings
from jobqueue.store import jobs
from jobqueue.store.db import REFUSED, Connection, Line, was_slow
from jobqueue.store.jobs import LogLine, Outcome
from jobqueue.store.workers import Held

MAX_LINES_WAITING = 20_000
_MAX_BATCH = 200
_MAX_BATCH_BYTES = 8_000_000
_LONGEST_PAUSE_SECONDS = 2.0
_LOCK_SECONDS = 1.0
_REFUSED_ERROR = "The outcome of this attempt was refused by the database"

Statuses = dict[LeaseToken, Status]
"""By lease token: one worker may hold two attempts of the same job, one of them lost."""
Written = Callable[[Sequence[Outcome], Statuses | None], None]
"""Told of every outcome once: with the jobs' new statuses, in which one that is missing no longer was its attempt's; or
with None when these outcomes could not be written at all."""
Result = TypeVar("Result")

log = structlog.get_logger("jobqueue.worker")


class _RowHeld(Exception):
    """Somebody holds a row that is to be written."""


class _TimedLine(msgspec.Struct, frozen=True):
    line: LogLine
    logged_at: float


class OutcomeWriter:
    """Takes outcomes and log lines of this worker's attempts and writes them on a connection of its own.

    Has no future per item: at ten thousand jobs a second they would be felt.
    """

    def __init__(self, settings: Settings, written: Written) -> None:
        # Nobody of ours holds a running job's row for long, but a person may: the others must not wait with that one.
        self._connection = Line(settings, "worker-outcomes", lock_seconds=_LOCK_SECONDS)
        self._written = written
        # Outcomes are bounded by the slots, lines by MAX_LINES_WAITING.
        self._held: list[Outcome] = []  # of the batch that is being written: somebody holds their rows
        self._waiting: deque[Outcome | _TimedLine] = deque()
        self._writer: asyncio.Task[None] | None = None

    def finish(self, outcome: Outcome) -> None:
        """Write an outcome."""
        self._put(outcome)

    def append(self, line: LogLine, logged_at: float) -> None:
        """Write a log line; dropped when far too many wait already (the database has been away for long)."""
        if len(self._waiting) < MAX_LINES_WAITING:
            self._put(_TimedLine(line, logged_at))

    async def release(self, held: Held, *, timeout: float) -> None:
        """Give back the jobs of attempts that were stopped at shutdown.

        Raises:
            Unavailable: the database does not answer; their leases will run out instead.
        """
        async with self._connection.use() as connection:
            await jobs.release_jobs(connection, held, timeout=timeout)

    async def drain(self) -> None:
        """Wait until everything is written."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait({self._writer})

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    def _put(self, item: Outcome | _TimedLine) -> None:
        self._waiting.append(item)
        if self._writer is None or self._writer.done():
            # A batch belongs to no attempt, so it must not log or trace as the first one.
            self._writer = asyncio.create_task(self._write_all(), name="outcome-writer", context=Context())

    async def _write_all(self) -> None:
        while self._waiting:
            outcomes, lines = self._take_batch()
            try:
                statuses: Statuses | None = await self._write(outcomes, lines)
            except Exception as error:  # noqa: BLE001  whatever it was, the slots must be freed
                log.error("outcomes_not_written", jobs=[str(outcome.id) for outcome in outcomes], error=str(error))
                statuses = None
            held, self._held = self._held, []
            written = [outcome for outcome in outcomes if outcome not in held]
            if written:
                self._written(written, statuses)
            self._waiting.extend(held)

    async def _write(self, outcomes: list[Outcome], lines: list[_TimedLine]) -> Statuses | None:
        if lines:
            await self._persist(lambda connection, _: _append(connection, lines))
        return await self._finish(outcomes) if outcomes else {}

    def _take_batch(self) -> tuple[list[Outcome], list[_TimedLine]]:
        outcomes: list[Outcome] = []
        lines: list[_TimedLine] = []
        size = 0
        while self._waiting and len(outcomes) + len(lines) < _MAX_BATCH and size < _MAX_BATCH_BYTES:
            item = self._waiting.popleft()
            if isinstance(item, Outcome):
                outcomes.append(item)
                size += len(item.result or b"")
            else:
                lines.append(item)
        return outcomes, lines

    async def _finish(self, outcomes: list[Outcome]) -> Statuses:
        try:
            return await self._persist(
                lambda connection, is_repeat: jobs.finish_jobs(connection, outcomes, is_repeat=is_repeat),
                waits_for_locks=False,
            )
        except REFUSED as error:
            if len(outcomes) == 1:
                return await self._finish_refused(outcomes[0], error)
        except _RowHeld:
            if len(outcomes) == 1:
                log.warning("outcome_waits_for_a_lock", job_id=str(outcomes[0].id))
                self._held += outcomes
                return {}
        statuses: Statuses = {}
        for outcome in outcomes:
            statuses.update(await self._finish([outcome]))
        return statuses

    async def _finish_refused(self, outcome: Outcome, error: Exception) -> Statuses:
        """The database refused the data: the attempt fails with that as its error, which is always storable."""
        log.error("outcome_refused", job_id=str(outcome.id), error=str(error))
        if outcome.error == _REFUSED_ERROR:
            return {}
        failed = msgspec.structs.replace(outcome, kind="failed", result=None, error=_REFUSED_ERROR)
        return await self._finish([failed])

    async def _persist(
        self, write: Callable[[Connection, bool], Awaitable[Result]], *, waits_for_locks: bool = True
    ) -> Result:
        """Run *write* until the database takes it. The leases are renewed meanwhile, or recovered by others.

        Raises:
            _RowHeld: somebody holds a row for long, and this one does not wait for locks.
        """
        pause, is_repeat = 0.05, False
        while True:
            try:
                async with self._connection.use() as connection:
                    return await write(connection, is_repeat)
            except Unavailable as error:
                if was_slow(error) and not waits_for_locks:
                    raise _RowHeld from error
                log.warning("outcomes_wait", error=str(error), seconds=pause)
                await asyncio.sleep(pause)
                pause, is_repeat = min(pause * 2, _LONGEST_PAUSE_SECONDS), True


async def _append(connection: Connection, lines: Sequence[_TimedLine]) -> None:
    now = time.monotonic()
    aged = [msgspec.structs.replace(item.line, age_seconds=max(0.0, now - item.logged_at)) for item in lines]
    try:
        await jobs.append_job_logs(connection, aged)
    except REFUSED as error:
        log.error("log_lines_refused", count=len(lines), error=str(error))
