"""Timers that every worker runs: recovery of lost jobs, pruning, the mirror of the depths.

Safe on any number of workers at once: each statement skips rows that another is changing, and checks everything again.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from jobqueue.backoff import recovery_delay_seconds
from jobqueue.errors import Unavailable
from jobqueue.settings import Settings
from jobqueue.store import jobs, stats, workers
from jobqueue.store.db import Line
from jobqueue.store.mirror import write_depths
from jobqueue.store.redis import RedisLink
from jobqueue.telemetry import QUEUE_DEPTH, RECOVERY_ACTIONS

PRUNE_SECONDS = 60.0
MIRROR_SECONDS = 2.0
_PAGE = 200
_LARGEST_PRUNE = 1_000

log = structlog.get_logger("jobqueue.worker")


class Maintenance:
    """Runs the timers on one connection, each at its own pace. *recovered* is called after lost jobs were put back."""

    def __init__(self, settings: Settings, redis: RedisLink, recovered: Callable[[], None]) -> None:
        self._settings = settings
        self._redis = redis
        self._recovered = recovered
        self._line = Line(settings, "worker-maintenance")
        self._recovery_line = Line(settings, "worker-recovery")  # of its own: pruning may take long
        self._failing_since = math.inf
        self._recovers_from = 0.0
        self._prune_page = _LARGEST_PRUNE

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as timers:
                timers.create_task(_every(self._settings.recovery_interval_seconds, self._recover))
                timers.create_task(_every(MIRROR_SECONDS, self._mirror))
                timers.create_task(_every(PRUNE_SECONDS, self._prune))
        finally:
            await self._line.close()
            await self._recovery_line.close()

    async def _recover(self) -> None:
        started = time.monotonic()
        try:
            await self._recover_now()
        except Unavailable:
            self._failing_since = min(self._failing_since, started)
            raise

    def _owners_have_had_time(self) -> bool:
        """Tell, when the database has answered, whether owners of jobs could renew their leases.

        Not when it has been away for so long that the leases of everybody may have run out: it may be this very moment
        that it is back. A connection that was merely cut delays nothing.
        """
        now, lease = time.monotonic(), self._settings.lease_seconds
        if now - self._failing_since > lease / 2:
            self._recovers_from = now + lease
        self._failing_since = math.inf
        return now >= self._recovers_from

    async def _recover_now(self) -> None:
        stuck_seconds = self._settings.recovery_stuck_threshold_minutes * 60
        while True:
            async with self._recovery_line.use() as connection:
                lost = await workers.list_lost_jobs(
                    connection,
                    lease_seconds=self._settings.lease_seconds,
                    stuck_seconds=stuck_seconds,
                    max_jobs=_PAGE,
                )
                if not self._owners_have_had_time():
                    return
                delays = [self._delay(job.attempts) for job in lost]
                done = await workers.recover_jobs(connection, lost, delays, stuck_seconds=stuck_seconds) if lost else {}
            for job_id, status in done.items():
                RECOVERY_ACTIONS.labels(status.value).inc()
                log.warning("job_recovered", job_id=str(job_id), status=status.value)
            if done:
                self._recovered()
            if len(done) < _PAGE:
                return

    def _delay(self, attempt: int) -> float:
        jitter = random.uniform(0.5, 1.5)  # noqa: S311
        return recovery_delay_seconds(attempt, jitter, self._settings.recovery_interval_seconds)

    async def _prune(self) -> None:
        async with self._line.use() as connection:
            await workers.prune_workers(connection, lease_seconds=self._settings.lease_seconds)
            await stats.prune_job_minutes(connection)
        if not self._settings.retention_days:
            return
        seconds = self._settings.retention_days * 86_400
        removed = 1
        while removed:
            try:
                async with self._line.use() as connection:
                    removed = await jobs.prune_jobs(connection, retention_seconds=seconds, max_jobs=self._prune_page)
            except Unavailable:
                # Perhaps it took too long: some jobs have very long logs.
                self._prune_page = max(1, self._prune_page // 2)
                raise
        self._prune_page = min(_LARGEST_PRUNE, self._prune_page * 2)

    async def _mirror(self) -> None:
        async with self._line.use() as connection:
            figures = await stats.read_figures(connection)
            if figures.change_count > stats.MANY_CHANGES:
                await stats.fold_job_counts(connection)
        for name, count in msgspec.structs.asdict(figures.depths).items():
            QUEUE_DEPTH.labels(name).set(count)
        await write_depths(self._redis, figures.depths)


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Run *work* at once and then every *seconds*; the database being away only delays it."""
    this = asyncio.current_task()
    # Libraries have been seen to swallow a cancellation; it is still on record then.
    while this is not None and not this.cancelling():
        started = time.monotonic()
        try:
            await work()
        except Unavailable as error:
            log.warning("maintenance_waits", task=work.__name__.strip("_"), error=str(error))
        await asyncio.sleep(max(0.05, seconds - (time.monotonic() - started)))
