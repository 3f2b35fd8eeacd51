"""The life of a worker: start, claim while slots are free, sleep, stop.

Invariants: never more claimed jobs than slots; every claimed job is reported exactly once or handed back; after a stop
begins nothing is claimed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from uuid import UUID, uuid4

import structlog

from jobqueue import __version__
from jobqueue.errors import Unavailable
from jobqueue.executors import BaseExecutor
from jobqueue.job import Claim, Status
from jobqueue.settings import Settings
from jobqueue.store.claims import Claimed, claim_jobs
from jobqueue.store.db import Line
from jobqueue.store.jobs import LogLine, Outcome
from jobqueue.store.listen import CANCEL_CHANNEL, JOBS_CHANNEL, Listener
from jobqueue.store.redis import RedisLink
from jobqueue.store.workers import Held, WorkerRecord
from jobqueue.telemetry import (
    BACKOFF_SECONDS,
    DEQUEUE,
    EXECUTOR_SECONDS,
    JOB_PROCESSING_SECONDS,
    JOB_WAIT_SECONDS,
    JOBS_ACTIVE,
    JOBS_COMPLETED,
    JOBS_FAILED,
    JOBS_RETRIED,
    LEASES_LOST,
    RETRY_DRAIN,
    THREADS_LEFT_BEHIND,
    WORKER_LOOPS,
)
from jobqueue.worker.attempt import Attempt, StopReason
from jobqueue.worker.heartbeat import Heartbeat, Holdings
from jobqueue.worker.joblog import JobLogHandler
from jobqueue.worker.lowwater import LowWater
from jobqueue.worker.maintenance import Maintenance
from jobqueue.worker.outcomes import OutcomeWriter
from jobqueue.worker.sleep import Sleeper
from jobqueue.worker.watch import Watch

MAX_BATCH = 200
"""Largest claim; past it the planner joins by sequential scan, and memory and lock times grow."""

LAST_RESORT_SECONDS = 3.0
"""How long past the grace period a stop may take before the process is ended by force."""

log = structlog.get_logger("jobqueue.worker")


class Worker:
    """Runs jobs of the types in *executors* until stopped."""

    def __init__(self, settings: Settings, executors: dict[str, BaseExecutor]) -> None:
        self.id = uuid4()
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._settings = settings
        self._executors = executors
        self._attempts: dict[UUID, Attempt] = {}
        self._holdings = Holdings()
        record = WorkerRecord(
            id=self.id,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            types=sorted(executors),
            concurrency=settings.worker_concurrency,
        )
        self._writer = OutcomeWriter(settings)
        self._heartbeat = Heartbeat(settings, record, self._holdings)
        self._claim_line = Line(settings, "worker-claim")
        self._low_water = LowWater()
        self._redis = RedisLink(settings)
        self._sleeper = Sleeper(settings, self.id, self._claim_line)
        self._watch = Watch(settings, self._holdings, self._lost)
        self._maintenance = Maintenance(settings, self._redis, self._sleeper.wake)
        self._listener = Listener(
            settings, {JOBS_CHANNEL: self._sleeper.wake, CANCEL_CHANNEL: self._watch.look}, "worker"
        )
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._slot_changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._exit_code = 0

    def announce_stop(self) -> None:
        """Tell the heartbeat thread that a stop has begun. Safe in a signal handler, also while the loop is blocked."""
        self._heartbeat.stopping(self._settings.shutdown_grace_seconds + LAST_RESORT_SECONDS)

    def request_stop(self) -> None:
        """Stop claiming, finish what runs within the grace period, hand the rest back."""
        if not self._stop.is_set():
            log.info("worker_stopping", running=len(self._attempts))
            self.announce_stop()
            self._stop.set()
            self._sleeper.wake()
            self._slot_changed.set()

    def request_hurry(self) -> None:
        """End the grace period now."""
        self._hurry.set()

    async def run(self) -> int:
        """Work until stopped. Returns the exit code: 0 when everything was finished or handed back."""
        handler = JobLogHandler()
        logging.getLogger().addHandler(handler)
        self._heartbeat.start()
        log.info(
            "worker_started",
            worker_id=str(self.id),
            types=sorted(self._executors),
            concurrency=self._settings.worker_concurrency,
        )
        try:
            async with asyncio.TaskGroup() as parts:
                tasks = [
                    parts.create_task(part.run(), name=type(part).__name__)
                    for part in (self._watch, self._maintenance, self._listener)
                ]
                await self._claim_until_stopped()
                await self._finish_running()
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup:
            # A part that ends by itself is a bug; a fresh process is better than one that is half alive.
            log.exception("worker_part_failed")
            self._exit_code = 1
            self.request_stop()
            self.request_hurry()
            await self._finish_running()
        await self._close(handler)
        return self._exit_code

    async def _claim_until_stopped(self) -> None:
        while not self._stop.is_set():
            WORKER_LOOPS.inc()
            if not self._heartbeat.is_alive:
                log.error("heartbeat_thread_died")
                self._exit_code = 1
                self.request_stop()
                break
            free = self._settings.worker_concurrency - len(self._attempts)
            if free <= 0:
                if self._all_stuck():
                    break
                await self._wait_for_slot()
                continue
            wanted = min(free, MAX_BATCH)
            self._sleeper.about_to_look()
            try:
                claimed = await self._claim(wanted)
            except Unavailable as error:
                self._low_water.forget()
                await self._sleeper.after_failure(error, self._stop)
                continue
            if self._stop.is_set():
                await self._hand_back([(claim.id, claim.lease_token) for claim in claimed.jobs])
                break
            for claim in claimed.jobs:
                self._start(claim)
            await self._sleeper.after_claim(
                wanted=wanted,
                got=len(claimed.jobs),
                next_due_seconds=claimed.next_due_seconds,
                full_look_seconds=self._low_water.seconds_to_full_look(),
            )

    async def _claim(self, wanted: int) -> Claimed:
        async with self._claim_line.use() as connection:
            after = self._low_water.start()
            claimed = await claim_jobs(
                connection,
                types=list(self._executors),
                max_jobs=wanted,
                worker_id=self.id,
                worker_name=self.name,
                lease_seconds=self._settings.lease_seconds,
                after=after,
                timeout=self._settings.database_timeout_seconds,
            )
            self._low_water.claimed(claimed.marks)
            return claimed

    def _start(self, claim: Claim) -> None:
        DEQUEUE.inc()
        JOB_WAIT_SECONDS.labels(claim.priority).observe(claim.wait_seconds)
        if claim.attempt > 1:
            RETRY_DRAIN.inc()
        executor = self._executors[claim.type]
        attempt = Attempt(
            claim,
            executor,
            self,
            limit_seconds=executor.max_execution_seconds or self._settings.job_max_execution_seconds,
            result_max_bytes=self._settings.result_max_bytes,
        )
        self._holdings.add(claim.id, claim.lease_token)
        self._attempts[claim.lease_token] = attempt
        JOBS_ACTIVE.set(len(self._attempts))
        attempt.start()

    def reported(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Take an attempt's outcome and write it (see ``attempt.Owner``)."""
        EXECUTOR_SECONDS.labels(attempt.claim.type).observe(attempt.seconds)
        if outcome is None:
            return
        self._writer.finish(outcome).add_done_callback(lambda written: self._written(attempt, outcome, written))

    def _written(self, attempt: Attempt, outcome: Outcome, written: asyncio.Future[Status | None]) -> None:
        claim = attempt.claim
        # Also when writing failed for good: a lease that is renewed for nobody would keep the job stuck for ever.
        self._holdings.remove(claim.lease_token)
        attempt.is_written = True
        try:
            status = written.result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  whatever it was, the slot must be freed
            log.error("outcome_not_written", job_id=str(claim.id), error=str(error))
            self._free_slot(attempt)
            return
        JOB_PROCESSING_SECONDS.labels(claim.type).observe(attempt.seconds)
        if status is Status.COMPLETED:
            JOBS_COMPLETED.labels(claim.type).inc()
        elif status is Status.FAILED:
            JOBS_FAILED.labels(claim.type).inc()
            log.warning("job_permanently_failed", job_id=str(claim.id), job_type=claim.type, error=outcome.error)
        elif status is Status.QUEUED:
            JOBS_RETRIED.labels(claim.type).inc()
            BACKOFF_SECONDS.observe(outcome.delay_seconds)
            self._sleeper.expect_due(outcome.delay_seconds)
        elif outcome.kind != "stopped":
            LEASES_LOST.labels("late").inc()
            log.warning("result_discarded", job_id=str(claim.id), job_type=claim.type, attempt=claim.attempt)
        self._free_slot(attempt)

    def ended(self, attempt: Attempt) -> None:
        """Note that an executor has ended (see ``attempt.Owner``)."""
        self._free_slot(attempt)

    def logged(self, line: LogLine, logged_at: float) -> None:
        """Take a line for a job's log, from any thread (see ``attempt.Owner``)."""
        try:
            self._loop.call_soon_threadsafe(self._writer.append, line, logged_at)
        except RuntimeError:
            return  # a thread that outlived the loop

    def _free_slot(self, attempt: Attempt) -> None:
        if attempt.has_ended and attempt.is_written:
            self._attempts.pop(attempt.claim.lease_token, None)
            JOBS_ACTIVE.set(len(self._attempts))
        self._slot_changed.set()
        THREADS_LEFT_BEHIND.set(sum(entry.is_written for entry in self._attempts.values()))

    def _lost(self, token: UUID, status: str) -> None:
        attempt = self._attempts.get(token)
        if attempt is not None and not attempt.is_reported:
            LEASES_LOST.labels(status).inc()
            log.info("attempt_stopped", job_id=str(attempt.claim.id), because=status)
            attempt.stop(StopReason.LOST)

    async def _wait_for_slot(self) -> None:
        self._slot_changed.clear()
        if len(self._attempts) >= self._settings.worker_concurrency and not self._stop.is_set():
            await self._slot_changed.wait()

    def _all_stuck(self) -> bool:
        """Tell whether every slot is held by an executor that ignored its end. Only a new process helps then."""
        stuck = all(attempt.is_written for attempt in self._attempts.values())
        if stuck:
            log.critical("all_slots_stuck", jobs=[str(attempt.claim.id) for attempt in self._attempts.values()])
            self._exit_code = 1
            self.request_stop()
        return stuck

    async def _hand_back(self, held: Held) -> None:
        if not held:
            return
        log.info("jobs_released", jobs=[str(job_id) for job_id, _ in held])
        try:
            await self._writer.release(held, timeout=2)
        except Unavailable as error:
            log.error("release_failed", error=str(error))
            self._exit_code = 1

    async def _finish_running(self) -> None:
        """Let running jobs end within the grace period, then stop the rest and hand them back."""
        deadline = time.monotonic() + self._settings.shutdown_grace_seconds
        while self._unreported() and time.monotonic() < deadline and not self._hurry.is_set():
            self._slot_changed.clear()
            waits = {asyncio.ensure_future(event.wait()) for event in (self._slot_changed, self._hurry)}
            _, pending = await asyncio.wait(
                waits, timeout=max(0.0, deadline - time.monotonic()), return_when=asyncio.FIRST_COMPLETED
            )
            for wait in pending:
                wait.cancel()
        leftover = self._unreported()
        for attempt in leftover:
            attempt.stop(StopReason.RELEASED)
        until = time.monotonic() + 0.5
        while any(not attempt.has_ended for attempt in leftover) and time.monotonic() < until:  # noqa: ASYNC110  half a second, once
            await asyncio.sleep(0.02)
        for attempt in leftover:
            attempt.settle()
        held = [(attempt.claim.id, attempt.claim.lease_token) for attempt in leftover if attempt.needs_release]
        await self._hand_back(held)

    def _unreported(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if not attempt.is_reported]

    async def _close(self, handler: logging.Handler) -> None:
        try:
            async with asyncio.timeout(3):
                await self._writer.drain()
        except TimeoutError:
            log.error("stopped_with_work_unwritten", jobs=[str(job_id) for job_id, _ in self._holdings.snapshot()])
            self._exit_code = 1
        logging.getLogger().removeHandler(handler)
        for line in (self._claim_line, self._writer, self._redis):
            await line.close()
        # Last, since it also ends the process by force when one of the above does not come to an end.
        await self._heartbeat.stop()
        log.info("worker_stopped", exit_code=self._exit_code)
