"""Writing what attempts say: outcomes and log lines, gathered and retried until the database takes them.

Lines go before the outcomes that they arrived with, so a job that reads as finished has its whole log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

import msgspec
import structlog

from jobqueue.batch import Batcher
from jobqueue.errors import Unavailable
from jobqueue.job import Status
from jobqueue.settings import Settings
from jobqueue.store import jobs
from jobqueue.store.db import REFUSED, Connection, Line
from jobqueue.store.jobs import LogLine, Outcome
from jobqueue.store.workers import Held

MAX_LINES_WAITING = 20_000
_LONGEST_PAUSE_SECONDS = 2.0
_REFUSED_ERROR = "The outcome of this attempt was refused by the database"

Statuses = dict[UUID, Status]
"""By lease token: one worker may hold two attempts of the same job, one of them lost."""
Result = TypeVar("Result")

log = structlog.get_logger("jobqueue.worker")


class _TimedLine(msgspec.Struct, frozen=True):
    line: LogLine
    logged_at: float


class OutcomeWriter:
    """Takes outcomes and log lines of this worker's attempts and writes them on a connection of its own."""

    def __init__(self, settings: Settings) -> None:
        self._connection = Line(settings, "worker-outcomes")
        # Outcomes are bounded by the slots and lines by MAX_LINES_WAITING, so the batcher needs no bound.
        self._batcher: Batcher[Outcome | _TimedLine, Status | None] = Batcher(
            self._write, max_batch=200, max_waiting=10**9
        )

    def finish(self, outcome: Outcome) -> asyncio.Future[Status | None]:
        """Write an outcome. The answer is the job's new status, or None when it no longer was this attempt's."""
        return self._batcher.put(outcome)

    def append(self, line: LogLine, logged_at: float) -> None:
        """Write a log line; dropped when far too many wait already (the database has been away for long)."""
        if len(self._batcher) < MAX_LINES_WAITING:
            self._batcher.put(_TimedLine(line, logged_at))

    async def release(self, held: Held, *, timeout: float) -> None:
        """Give back the jobs of attempts that were stopped at shutdown.

        Raises:
            Unavailable: the database does not answer; their leases will run out instead.
        """
        async with self._connection.use() as connection:
            await jobs.release_jobs(connection, held, timeout=timeout)

    async def drain(self) -> None:
        """Wait until everything is written."""
        await self._batcher.drained()

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _write(self, items: Sequence[Outcome | _TimedLine]) -> list[Status | Exception | None]:
        lines = [item for item in items if isinstance(item, _TimedLine)]
        outcomes = [item for item in items if isinstance(item, Outcome)]
        if lines:
            await self._persist(lambda connection, _: _append(connection, lines))
        statuses = await self._finish(outcomes) if outcomes else {}
        return [statuses.get(item.lease_token) if isinstance(item, Outcome) else None for item in items]

    async def _finish(self, outcomes: list[Outcome]) -> Statuses:
        try:
            return await self._persist(
                lambda connection, is_repeat: jobs.finish_jobs(connection, outcomes, is_repeat=is_repeat)
            )
        except REFUSED as error:
            if len(outcomes) == 1:
                return await self._finish_refused(outcomes[0], error)
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

    async def _persist(self, write: Callable[[Connection, bool], Awaitable[Result]]) -> Result:
        """Run *write* until the database takes it. The leases are renewed meanwhile, or recovered by others."""
        pause, is_repeat = 0.05, False
        while True:
            try:
                async with self._connection.use() as connection:
                    return await write(connection, is_repeat)
            except Unavailable as error:
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
