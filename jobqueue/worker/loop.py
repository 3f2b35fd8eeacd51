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
from collections.abc import Sequence
from contextlib import suppress
from uuid import uuid4

import structlog

from jobqueue import __version__
from jobqueue.errors import Unavailable
from jobqueue.executors import BaseExecutor
from jobqueue.job import Claim, LeaseToken, Priority, Status
from jobqueue.settings import Settings
from jobqueue.store.claims import Claimed, claim_jobs
from jobqueue.store.db import Line
from jobqueue.store.jobs import LogLine, Outcome, release_jobs
from jobqueue.store.listen import CANCEL_CHANNEL, JOBS_CHANNEL, Listener
from jobqueue.store.redis import RedisLink
from jobqueue.store.workers import Held, WorkerRecord, list_unknown_claims
from jobqueue.telemetry import (
    BACKOFF_SECONDS,
    DEQUEUE,
    JOB_WAIT_SECONDS,
    JOBS_ACTIVE,
    LEASES_LOST,
    RETRY_DRAIN,
    THREADS_LEFT_BEHIND,
    WORKER_LOOPS,
)
from jobqueue.worker.attempt import Attempt, StopReason
from jobqueue.worker.handler import Handler
from jobqueue.worker.heartbeat import Heartbeat, Holdings
from jobqueue.worker.joblog import JobLogHandler
from jobqueue.worker.lowwater import LowWater
from jobqueue.worker.maintenance import Maintenance
from jobqueue.worker.outcomes import OutcomeWriter, Statuses
from jobqueue.worker.sleep import Sleeper
from jobqueue.worker.watch import Watch

MAX_BATCH = 200
"""Largest claim; past it the planner joins by sequential scan, and memory and lock times grow."""

_PROGRESS_SECONDS = 1.0

LAST_RESORT_SECONDS = 3.0
"""How long past the grace period a stop may take before the process is ended by force."""

log = structlog.get_logger("jobqueue.worker")


class Worker:
    """Runs jobs of the types in *executors* until stopped."""

    def __init__(self, settings: Settings, executors: dict[str, BaseExecutor]) -> None:
        self.id = uuid4()
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._settings = settings
        self._handlers = {
            name: Handler(
                name,
                executor,
                limit_seconds=settings.job_max_execution_seconds,
                result_max_bytes=settings.result_max_bytes,
            )
            for name, executor in executors.items()
        }
        self._wait_seconds = {priority.value: JOB_WAIT_SECONDS.labels(priority.value) for priority in Priority}
        self._attempts: dict[LeaseToken, Attempt] = {}
        self._stuck_since: float | None = None  # when the last slot was taken by an executor that ignored its end
        self._has_lost_an_answer = False  # of a claim, which may have taken jobs all the same
        self._left_behind = 0  # attempts whose outcome is written, but whose executor has not ended
        self._holdings = Holdings()
        record = WorkerRecord(
            id=self.id,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            types=sorted(executors),
            concurrency=settings.worker_concurrency,
        )
        self._writer = OutcomeWriter(settings, self._written)
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
            types=sorted(self._handlers),
            concurrency=self._settings.worker_concurrency,
        )
        try:
            async with asyncio.TaskGroup() as parts:
                tasks = [
                    parts.create_task(part.run(), name=type(part).__name__)
                    for part in (self._watch, self._maintenance, self._listener)
                ]
                tasks.append(parts.create_task(self._show_progress(), name="progress"))
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

    async def _show_progress(self) -> None:
        while True:
            self._heartbeat.loop_seen_at = time.monotonic()
            await asyncio.sleep(_PROGRESS_SECONDS)

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
            self._stuck_since = None
            wanted = min(free, MAX_BATCH)
            self._sleeper.about_to_look()
            try:
                if self._has_lost_an_answer:
                    await self._hand_back_unknown()
                claimed = await self._claim(wanted)
            except Unavailable as error:
                self._has_lost_an_answer = True
                self._low_water.forget()
                await self._sleeper.after_failure(error, self._stop)
                continue
            if self._stop.is_set():
                await self._hand_back([(claim.id, claim.lease_token) for claim in claimed.jobs])
                break
            self._start(claimed.jobs)
            await self._sleeper.after_claim(
                wanted=wanted,
                got=len(claimed.jobs),
                next_due_seconds=claimed.next_due_seconds,
                full_look_seconds=self._low_water.seconds_to_full_look(),
            )

    async def _hand_back_unknown(self) -> None:
        """Hand back what a claim took whose answer did not arrive: nobody runs it, and it shall not cost an attempt."""
        async with self._claim_line.use() as connection:
            unknown = await list_unknown_claims(connection, self.id, self._attempts.keys())
            if unknown:
                log.warning("claims_handed_back", jobs=[str(job_id) for job_id, _ in unknown])
                await release_jobs(connection, unknown)
        self._has_lost_an_answer = False

    async def _claim(self, wanted: int) -> Claimed:
        asked_at = time.monotonic()
        async with self._claim_line.use() as connection:
            after = self._low_water.start()
            claimed = await claim_jobs(
                connection,
                types=list(self._handlers),
                max_jobs=wanted,
                worker_id=self.id,
                worker_name=self.name,
                lease_seconds=self._settings.lease_seconds,
                after=after,
                timeout=self._settings.database_timeout_seconds,
            )
            if time.monotonic() - asked_at > self._settings.lease_seconds:
                # This process stood still: others may be running these jobs by now.
                raise Unavailable("The answer to the claim came after the end of its leases")
            self._low_water.claimed(claimed.marks)
            return claimed

    def _start(self, claims: Sequence[Claim]) -> None:
        if not claims:
            return
        DEQUEUE.inc(len(claims))
        self._bound_stalls({claim.type for claim in claims})
        self._holdings.add(claims)
        for claim in claims:
            self._wait_seconds[claim.priority].observe(claim.wait_seconds)
            if claim.attempt > 1:
                RETRY_DRAIN.inc()
            attempt = Attempt(claim, self._handlers[claim.type], self, self._loop)
            self._attempts[claim.lease_token] = attempt
            attempt.start()
        JOBS_ACTIVE.set(len(self._attempts))

    def _bound_stalls(self, types: set[str]) -> None:
        """Let the heartbeat bear a blocked loop as long as the longest time limit of the jobs held, and the grace."""
        longest = max(self._handlers[name].limit_seconds for name in types) + self._settings.shutdown_grace_seconds
        self._heartbeat.stall_seconds = max(longest, self._heartbeat.stall_seconds if self._attempts else 0.0)

    def reported(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Take an attempt's outcome and write it (see ``attempt.Owner``)."""
        attempt.handler.executor_seconds.observe(attempt.seconds)
        if outcome is not None:
            self._writer.finish(outcome)

    def _written(self, outcomes: Sequence[Outcome], statuses: Statuses | None) -> None:
        # Also when writing failed for good: a lease that is renewed for nobody would keep the job stuck for ever.
        self._holdings.remove(outcome.lease_token for outcome in outcomes)
        for outcome in outcomes:
            attempt = self._attempts[outcome.lease_token]
            attempt.is_written = True
            if statuses is not None:
                self._count(attempt, outcome, statuses.get(outcome.lease_token))
            if attempt.has_ended:
                del self._attempts[outcome.lease_token]
            else:
                self._left_behind += 1
        self._slots_changed()

    def _count(self, attempt: Attempt, outcome: Outcome, status: Status | None) -> None:
        handler = attempt.handler
        handler.processing_seconds.observe(attempt.seconds)
        if status is Status.COMPLETED:
            handler.completed.inc()
        elif status is Status.FAILED:
            handler.failed.inc()
            claim = attempt.claim
            log.warning("job_permanently_failed", job_id=str(claim.id), job_type=claim.type, error=outcome.error)
        elif status is Status.QUEUED:
            handler.retried.inc()
            BACKOFF_SECONDS.observe(outcome.delay_seconds)
            self._sleeper.expect_due(outcome.delay_seconds)
        elif outcome.kind != "stopped":
            LEASES_LOST.labels("late").inc()
            claim = attempt.claim
            log.warning("result_discarded", job_id=str(claim.id), job_type=claim.type, attempt=claim.attempt)

    def ended(self, attempt: Attempt) -> None:
        """Note that an executor has ended (see ``attempt.Owner``)."""
        if attempt.is_written and self._attempts.pop(attempt.claim.lease_token, None) is not None:
            self._left_behind -= 1
            self._slots_changed()

    def logged(self, line: LogLine, logged_at: float) -> None:
        """Take a line for a job's log, from any thread (see ``attempt.Owner``)."""
        try:
            self._loop.call_soon_threadsafe(self._writer.append, line, logged_at)
        except RuntimeError:
            return  # a thread that outlived the loop

    def _slots_changed(self) -> None:
        JOBS_ACTIVE.set(len(self._attempts))
        THREADS_LEFT_BEHIND.set(self._left_behind)
        self._slot_changed.set()

    def _lost(self, token: LeaseToken, status: str) -> None:
        attempt = self._attempts.get(token)
        if attempt is not None and not attempt.is_reported:
            LEASES_LOST.labels(status).inc()
            log.info("attempt_stopped", job_id=str(attempt.claim.id), because=status)
            attempt.stop(StopReason.LOST)

    async def _wait_for_slot(self) -> None:
        """Wait until a slot is free; with all of them stuck, not longer than that is borne."""
        self._slot_changed.clear()
        if len(self._attempts) < self._settings.worker_concurrency or self._stop.is_set():
            return
        patience = None if self._stuck_since is None else self._settings.shutdown_grace_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._slot_changed.wait()

    def _all_stuck(self) -> bool:
        """Tell whether every slot has been held for a whole grace period by an executor that ignored its end.

        Only a new process helps then. Plain functions that were cancelled or have overrun may well end in that time.
        """
        if self._left_behind < len(self._attempts):
            self._stuck_since = None
            return False
        now = time.monotonic()
        self._stuck_since = now if self._stuck_since is None else self._stuck_since
        if now - self._stuck_since < self._settings.shutdown_grace_seconds:
            return False
        log.critical("all_slots_stuck", jobs=[str(attempt.claim.id) for attempt in self._attempts.values()])
        self._exit_code = 1
        self.request_stop()
        return True

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
