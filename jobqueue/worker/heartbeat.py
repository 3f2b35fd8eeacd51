"""The thread that renews leases.

It has its own event loop and its own connection, so a handler that blocks the worker's loop does not lose its job
(failures.md F8). It is also the last resort of a stop: when the worker's loop does not come to an end in time, it
gives the jobs back and ends the process.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from uuid import UUID

import msgspec
import structlog

from jobqueue.errors import JobQueueError
from jobqueue.settings import Settings
from jobqueue.store import jobs, workers
from jobqueue.store.db import Line
from jobqueue.store.workers import WorkerRecord

_RETRY_SECONDS = 0.5
_LAST_RESORT_SECONDS = 2.0

log = structlog.get_logger("jobqueue.worker")


class Holdings:
    """The jobs this worker owns, shared between its loop and the heartbeat thread."""

    def __init__(self) -> None:
        self._tokens: dict[UUID, UUID] = {}
        self._lock = threading.Lock()

    def add(self, job_id: UUID, token: UUID) -> None:
        """Note a claimed job."""
        with self._lock:
            self._tokens[job_id] = token

    def remove(self, job_id: UUID, token: UUID) -> None:
        """Forget a job whose outcome is written; a later claim of the same job by this worker stays."""
        with self._lock:
            if self._tokens.get(job_id) == token:
                del self._tokens[job_id]

    def snapshot(self) -> list[tuple[UUID, UUID]]:
        """Return (id, lease token) of all."""
        with self._lock:
            return list(self._tokens.items())


class Heartbeat:
    """Renews the leases of *holdings* and the worker's own record, every HEARTBEAT_SECONDS."""

    def __init__(self, settings: Settings, record: WorkerRecord, holdings: Holdings) -> None:
        self._settings = settings
        self._record = record
        self._holdings = holdings
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudge = asyncio.Event()
        self._ready = threading.Event()
        self._is_done = False
        self._last_resort_at: float | None = None

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

    def stop(self) -> None:
        """End the thread. Waits for it, but not for a database that does not answer."""
        self._is_done = True
        self._wake()
        self._thread.join(timeout=_LAST_RESORT_SECONDS)

    def _wake(self) -> None:
        if self._loop is not None:
            _call(self._loop, self._nudge.set)

    def _run(self) -> None:
        asyncio.run(self._beat_forever())

    async def _beat_forever(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        line = Line(self._settings, "worker-heartbeat")
        pause = 0.0
        while not self._is_done:
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
            if self._last_resort_at is not None and time.monotonic() >= self._last_resort_at and not self._is_done:
                await self._end_by_force(line)
        await line.close()

    async def _sleep(self, seconds: float) -> None:
        if self._last_resort_at is not None:
            seconds = min(seconds, max(0.0, self._last_resort_at - time.monotonic()))
        self._nudge.clear()
        if self._is_done:
            return
        try:
            await asyncio.wait_for(self._nudge.wait(), seconds)
        except TimeoutError:
            return

    async def _beat(self, line: Line) -> None:
        held = self._holdings.snapshot()
        record = msgspec.structs.replace(self._record, running=len(held))
        # A slow answer must leave time for another try before the lease is over.
        timeout = min(self._settings.database_timeout_seconds, self._settings.heartbeat_seconds)
        async with line.use() as connection:
            if held:
                await workers.extend_leases(
                    connection, held, lease_seconds=self._settings.lease_seconds, timeout=timeout
                )
            await workers.upsert_worker(connection, record, timeout=timeout)

    async def _end_by_force(self, line: Line) -> None:
        """The loop is blocked by an executor. Give everything back and go: nothing else would end this process."""
        held = self._holdings.snapshot()
        log.error("stop_by_force", jobs=[str(job_id) for job_id, _ in held])
        try:
            async with asyncio.timeout(_LAST_RESORT_SECONDS), line.use() as connection:
                if held:
                    await jobs.release_jobs(connection, held, timeout=_LAST_RESORT_SECONDS)
                await workers.remove_worker(connection, self._record.id, timeout=_LAST_RESORT_SECONDS)
        except (JobQueueError, TimeoutError, OSError) as error:
            log.error("release_failed", error=str(error))
        os._exit(1)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        return  # the loop is closed: there is nobody to wake
