"""What a job's log tells: its attempts, and why it is not running yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from jobqueue.job import JobWithLogs, Status
from jobqueue.store.search import JobEvent
from jobqueue.store.workers import WorkerRecord

AHEAD_LIMIT = 1_000


class AttemptStory(msgspec.Struct):
    """One attempt. *wait_seconds* is the time since the job was created or the attempt before had ended."""

    number: int
    started_at: datetime
    wait_seconds: float
    message: str
    ended_at: datetime | None = None
    outcome: str = "running"
    error: str = ""

    @property
    def seconds(self) -> float:
        """Its length up to now."""
        return ((self.ended_at or datetime.now(UTC)) - self.started_at).total_seconds()


_ENDS = {"completed", "retried", "failed", "cancelled", "recovered", "released"}


def attempts_of(job: JobWithLogs, events: Sequence[JobEvent]) -> list[AttemptStory]:
    """Return the attempts that the log tells of, in order."""
    attempts: list[AttemptStory] = []
    since = job.created_at
    for event in events:
        if event.event == "claimed":
            wait = max(0.0, (event.at - since).total_seconds())
            attempts.append(AttemptStory(event.attempt or len(attempts) + 1, event.at, wait, event.message))
        elif event.event in _ENDS and attempts and attempts[-1].ended_at is None:
            attempts[-1].ended_at, attempts[-1].outcome = event.at, event.event
            if event.event in {"retried", "failed", "recovered", "released"}:
                attempts[-1].error = event.message
        if event.event in _ENDS or event.event == "retry_now":
            since = event.at
    return attempts


def alive(workers: Iterable[WorkerRecord], lease_seconds: float) -> list[WorkerRecord]:
    """Return the workers that were heard of within a lease."""
    return [worker for worker in workers if worker.silent_seconds <= lease_seconds]


def why_waiting(job: JobWithLogs, ahead: int | None, workers: Sequence[WorkerRecord]) -> str:
    """Say why a waiting job does not run yet. *workers* are those alive, *ahead* the due jobs before it."""
    if job.status is not Status.QUEUED:
        return ""
    if job.next_run_at > datetime.now(UTC):
        return "It is not due yet: it waits for its time."
    if not workers:
        return "No worker is running. Start one: jobqueue worker"
    able = [worker for worker in workers if job.type in worker.types and not worker.is_stopping]
    if not able:
        return f"No live worker knows the type {job.type}. Start one with the module that registers it."
    return _place(ahead or 0, sum(max(0, worker.concurrency - worker.running) for worker in able))


def _place(ahead: int, free_slots: int) -> str:
    if ahead:
        many = f"{ahead:,} or more" if ahead >= AHEAD_LIMIT else f"{ahead:,}"
        return f"{many} due {'job is' if ahead == 1 else 'jobs are'} claimed before it; {free_slots} slots are free."
    if free_slots:
        return "It is next, and a slot is free: it starts within a moment."
    return "It is next, and waits for a free slot."
