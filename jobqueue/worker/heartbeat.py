"""The thread that renews leases.

It has its own event loop and its own connection, so a handler that blocks the worker's loop does not lose its job
(failures.md F8). It is also the last resort of a stop: when the worker's loop does not come to an end in time, it
gives the jobs back and ends the process.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from uuid import UUID

import msgspec
import structlog

from jobqueue.errors import JobQueueError, Unavailable
from jobqueue.job import Claim, LeaseToken
from jobqueue.settings import Settings
from jobqueue.store import jobs, workers
from jobqueue.store.db import Line, connect
from jobqueue.store.workers import Held, WorkerRecord

_RETRY_SECONDS = 0.5
_LAST_RESORT_SECONDS = 2.0

log = structlog.get_logger("jobqueue.worker")


class Holdings:
    """The jobs this worker owns, shared between its loop and the heartbeat thread."""

    def __init__(self) -> None:
        self._jobs: dict[LeaseToken, UUID] = {}
        self._lock = threading.Lock()

    def add(self, claims: Iterable[Claim]) -> None:
        """Note claimed jobs."""
        with self._lock:
            for claim in claims:
                self._jobs[claim.lease_token] = claim.id

    def remove(self, tokens: Iterable[LeaseToken]) -> None:
        """Forget claims whose outcomes are written; a later one of the same job by this worker stays."""
        with self._lock:
            for token in tokens:
                self._jobs.pop(token, None)

    def snapshot(self) -> list[tuple[UUID, LeaseToken]]:
        """Return (id, lease token) of all."""
        with self._lock:
            return [(job_id, token) for token, job_id in self._jobs.items()]


class Heartbeat:
    """Renews the leases of *holdings* and the worker's own record, every HEARTBEAT_SECONDS.

    ``stall_seconds`` is how long the worker's loop, which shows that it turns by setting ``loop_seen_at``, may be
    blocked before the process is ended.
    """

    def __init__(self, settings: Settings, record: WorkerRecord, holdings: Holdings) -> None:
        self.stall_seconds = math.inf
        self.loop_seen_at = time.monotonic()
        self._settings = settings
        self._record = record
        self._holdings = holdings
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudge = asyncio.Event()
        self._ready = threading.Event()
        self._is_done = False
        self._last_resort_at: float | None = None
        self._last_resort: asyncio.Task[None] | None = None
        self._held_line = Line(settings, "worker-held-leases")
        self._waiting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the thread; returns once it runs."""
        self._thread.start()
        self._ready.wait()

    @property
    def is_alive(self) -> bool:
        """Tell whether the thread still runs. A worker without heartbeat must not go on."""
        return self._thread.is_alive()

    def stopping(self, give_up_after_seconds: float) -> None:
        """Announce a stop: record it, and end the process by force if it has not ended by then."""
        if self._last_resort_at is None:
            self._last_resort_at = time.monotonic() + give_up_after_seconds
        self._record = msgspec.structs.replace(self._record, is_stopping=True)
        self._wake()

    async def stop(self) -> None:
        """Remove the worker's record and end the thread. Does not wait long for a database that does not answer."""
        self._is_done = True
        self._wake()
        until = time.monotonic() + _LAST_RESORT_SECONDS
        while self.is_alive and time.monotonic() < until:  # noqa: ASYNC110  the end of a thread is no event
            await asyncio.sleep(0.01)

    def _wake(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: there is nobody to wake
                self._loop.call_soon_threadsafe(self._woken)

    def _woken(self) -> None:
        self._nudge.set()
        if self._last_resort_at is not None and self._last_resort is None:
            self._last_resort = asyncio.create_task(self._end_by_force(self._last_resort_at), name="last-resort")

    def _run(self) -> None:
        asyncio.run(self._beat_forever())

    async def _beat_forever(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken()  # a stop may have been asked for before there was a loop
        self._ready.set()
        line = Line(self._settings, "worker-heartbeat")
        pause = 0.0
        while not self._is_done:
            self._end_when_stalled()
            try:
                await self._beat(line)
                pause = self._settings.heartbeat_seconds
            except (JobQueueError, OSError) as error:
                log.warning("heartbeat_failed", error=str(error))
                pause = min(_RETRY_SECONDS, self._settings.heartbeat_seconds)
            except Exception:
                log.exception("heartbeat_failed")
                pause = min(_RETRY_SECONDS, self._settings.heartbeat_seconds)
            await self._sleep(pause)
        await self._leave(line)

    def _end_when_stalled(self) -> None:
        """End the process when a job has blocked the worker's loop for longer than any job may take.

        Nothing but this thread could notice: the time limits of all jobs are timers of that loop. The jobs it holds are
        recovered by others, and count the attempt.
        """
        seconds = time.monotonic() - self.loop_seen_at
        if seconds > self.stall_seconds:
            log.critical("loop_blocked", seconds=round(seconds), jobs=[str(i) for i, _ in self._holdings.snapshot()])
            os._exit(1)

    async def _sleep(self, seconds: float) -> None:
        self._nudge.clear()
        if self._is_done:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudge.wait()

    def _wait_for_rows(self, held: Held) -> None:
        """Stand in line for rows that somebody holds, on a connection of its own: leases may run out meanwhile."""
        if held and (self._waiting is None or self._waiting.done()):
            self._waiting = asyncio.create_task(self._extend_when_free(held), name="held-leases")

    async def _extend_when_free(self, held: Held) -> None:
        lease, timeout = self._settings.lease_seconds, self._settings.database_timeout_seconds + 1
        for job_id, token in held:
            with suppress(Unavailable):
                async with self._held_line.use() as connection:
                    await workers.extend_held_lease(connection, job_id, token, lease_seconds=lease, timeout=timeout)

    async def _beat(self, line: Line) -> None:
        held = self._holdings.snapshot()
        record = msgspec.structs.replace(self._record, running=len(held))
        # A slow answer must leave time for another try before the lease is over.
        timeout = min(self._settings.database_timeout_seconds, self._settings.heartbeat_seconds)
        async with line.use() as connection:
            if held:
                extended = await workers.extend_leases(
                    connection, held, lease_seconds=self._settings.lease_seconds, timeout=timeout
                )
                self._wait_for_rows([each for each in held if each[1] not in extended])
            await workers.upsert_worker(connection, record, lease_seconds=self._settings.lease_seconds, timeout=timeout)

    async def _leave(self, line: Line) -> None:
        """Remove the worker's record. Done here because a beat that came after it would bring the record back."""
        try:
            async with line.use() as connection:
                await workers.remove_worker(connection, self._record.id, timeout=_LAST_RESORT_SECONDS)
        except (JobQueueError, OSError) as error:
            log.warning("worker_record_left", error=str(error))
        await line.close()
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait({self._waiting})
        await self._held_line.close()

    async def _end_by_force(self, at: float) -> None:
        """End the process *at* a monotonic time, with everything given back.

        That happens when an executor blocks the loop or the database does not answer. Nothing else would end it.
        """
        await asyncio.sleep(at - time.monotonic())
        held = self._holdings.snapshot()
        log.error("stop_by_force", jobs=[str(job_id) for job_id, _ in held])
        code = 0
        try:
            # A connection of its own: the heartbeat may be waiting for an answer on the other one.
            async with asyncio.timeout(_LAST_RESORT_SECONDS):
                connection = await connect(self._settings.database_url, self._settings, "worker-last-resort")
                if held:
                    await jobs.release_jobs(connection, held, timeout=_LAST_RESORT_SECONDS)
                await workers.remove_worker(connection, self._record.id, timeout=_LAST_RESORT_SECONDS)
        except Exception as error:  # noqa: BLE001  whatever it is, the process must end
            log.error("release_failed", error=str(error))
            code = 1
        os._exit(code)
