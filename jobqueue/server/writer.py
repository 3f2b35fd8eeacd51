"""Writing created jobs: the jobs of concurrent requests go to PostgreSQL together, and each gets its own answer.

Jobs with an idempotency key have a lane of their own: their insert may have to wait for a transaction
elsewhere that holds the same key, and nobody without a key shall wait with them.

A failed write is tried once more on a new connection. That is safe: the ids are ours, so a job that was
written although its answer got lost is recognised by its id instead of being written twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from jobqueue.batch import Batcher
from jobqueue.errors import InvalidInput, Unavailable
from jobqueue.job import NewJob
from jobqueue.settings import Settings
from jobqueue.store import db
from jobqueue.store.jobs import CreateOutcome, create_jobs, get_job
from jobqueue.telemetry import ENQUEUE

_KEY_WAIT_SECONDS = 2.0  # longest wait for a transaction elsewhere that holds the same key
_SINGLES_SECONDS = 5.0  # longest time for a batch that has to be written job by job
_LEAST_SECONDS = 1.0  # what a write gets at least, however long its jobs have waited
_MAX_WAITING = 5_000


class JobWriter:
    """Writes jobs. Opens its connections when they are needed; close it at the end."""

    def __init__(self, settings: Settings) -> None:
        patience = min(settings.database_timeout_seconds, _KEY_WAIT_SECONDS)
        keyed = msgspec.structs.replace(settings, database_timeout_seconds=patience)
        self._plain = _Lane(settings, "create", has_keys=False)
        self._keyed = _Lane(keyed, "create-keyed", has_keys=True)

    def put(self, job: NewJob) -> asyncio.Future[CreateOutcome]:
        """Write *job*; the future holds what became of it once it is committed.

        It ends in Unavailable when the database does not answer, in InvalidInput when it refuses the job.

        Raises:
            QueueFull: too many jobs wait.
        """
        lane = self._plain if job.idempotency_key is None else self._keyed
        return lane.batcher.put((job, time.monotonic()))

    async def close(self) -> None:
        """Write what waits, then close the connections."""
        for lane in (self._plain, self._keyed):
            await lane.batcher.drained()
            await lane.line.close()


class _Lane:
    """One connection and the jobs that wait for it."""

    def __init__(self, settings: Settings, role: str, *, has_keys: bool) -> None:
        self._has_keys = has_keys
        self._patience_seconds = settings.database_timeout_seconds
        self.line = db.Line(settings, role)
        self.batcher: Batcher[tuple[NewJob, float], CreateOutcome] = Batcher(self._write, max_waiting=_MAX_WAITING)

    async def _write(self, waiting: Sequence[tuple[NewJob, float]]) -> Sequence[CreateOutcome | Exception]:
        now = time.monotonic()
        patience = [self._patience_seconds - (now - since) for _, since in waiting]
        # Who has waited through an outage is told so now, not after yet another try; the others get the time that the
        # longest waiting of them has left.
        fresh = [job for (job, _), left in zip(waiting, patience, strict=True) if left > 0]
        if not fresh:
            raise Unavailable
        outcomes = iter(await self._write_fresh(fresh, max(_LEAST_SECONDS, min(left for left in patience if left > 0))))
        return [next(outcomes) if left > 0 else Unavailable() for left in patience]

    async def _write_fresh(self, jobs: Sequence[NewJob], timeout: float) -> Sequence[CreateOutcome | Exception]:
        started_at = time.monotonic()
        try:
            return await self._create(jobs, timeout)
        except db.REFUSED:
            return await self._singles(jobs)
        except Unavailable as error:
            if self._has_keys and db.was_slow(error) and len(jobs) > 1:
                return await self._singles(jobs)  # one of them waits for whoever holds its key; the others need not
            if time.monotonic() - started_at > timeout / 2:
                raise
        try:
            return await self._create(jobs, timeout)
        except db.REFUSED:
            return await self._singles(jobs)

    async def _create(self, jobs: Sequence[NewJob], timeout: float) -> list[CreateOutcome]:
        ENQUEUE.inc()
        async with self.line.use() as connection:
            outcomes = await create_jobs(connection, jobs, timeout=timeout + 1)
        return [
            CreateOutcome(outcome.job) if outcome.is_replay and outcome.job.id == job.id else outcome
            for job, outcome in zip(jobs, outcomes, strict=True)
        ]

    async def _singles(self, jobs: Sequence[NewJob]) -> list[CreateOutcome | Exception]:
        """Write job by job, so that one that is refused or has to wait does not take its neighbours along."""
        deadline = time.monotonic() + _SINGLES_SECONDS
        return [
            await self._single(job)
            if time.monotonic() < deadline
            else Unavailable("The database is too slow right now.")
            for job in jobs
        ]

    async def _single(self, job: NewJob) -> CreateOutcome | Exception:
        try:
            return (await self._create([job], self._patience_seconds))[0]
        except Unavailable as error:
            return error
        except db.REFUSED as error:
            name = db.constraint_name(error)
            if name == "jobs_pkey":
                return await self._written_before(job)
            if name == "jobs_queue_exists":
                return InvalidInput("queue", f"The queue {job.queue!r} does not exist any more")
            return InvalidInput("payload", f"The database cannot hold this job: {db.first_line(error)}")

    async def _written_before(self, job: NewJob) -> CreateOutcome | Exception:
        try:
            async with self.line.use() as connection:
                written = await get_job(connection, job.id)
        except Unavailable as error:
            return error
        return Unavailable("The job was written and removed again.") if written is None else CreateOutcome(written)
