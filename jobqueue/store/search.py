"""Finding jobs and acting on several at once, as a person does. Each function runs the statement of its own name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from jobqueue.job import Priority, Status
from jobqueue.store.db import Connection, run

SEARCH_SECONDS = 3.0
"""Longest time a search may take; one for a text can have to read the whole table."""

MAX_LINES = 500
"""So many lines of an executor are shown; a person reads no more, and a page stays light."""


class JobSearch(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for; None matches everything. *since* and *until* are of creation; *value* belongs to *path*."""

    status: Status | None = None
    type: str | None = None
    priority: Priority | None = None
    queue: str | None = None
    idempotency_key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ended_since: datetime | None = None
    error_text: str | None = None
    error_group: str | None = None
    path: Sequence[str] | None = None
    value: str | None = None


class FoundJob(msgspec.Struct, frozen=True):
    """A job in a list. Error and payload are cut."""

    id: UUID
    type: str
    priority: str
    status: str
    queue: str
    attempts: int
    max_attempts: int
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    next_run_at: datetime
    next_retry_at: datetime | None
    error: str | None
    payload: str
    worker_id: UUID | None


class RunningJob(msgspec.Struct, frozen=True):
    """A job that runs right now."""

    id: UUID
    type: str
    worker_id: UUID | None
    started_at: datetime
    attempts: int
    max_attempts: int


class JobEvent(msgspec.Struct, frozen=True):
    """A line of a job's log, with what it is about: ``claimed``, ``completed``, ``retried``, ``executor`` …"""

    at: datetime
    level: str
    event: str
    attempt: int | None
    message: str


async def search_jobs(
    connection: Connection,
    wanted: JobSearch,
    *,
    after: UUID | None = None,
    is_newest_first: bool = True,
    max_jobs: int = 50,
) -> list[FoundJob]:
    """Return jobs that match, from behind job *after* on.

    Raises:
        Unavailable: the database does not answer, or not within ``SEARCH_SECONDS``.
    """
    params = {
        **msgspec.structs.asdict(wanted),
        "since": _first_id(wanted.since),
        "until": _first_id(wanted.until),
        "path": None if wanted.path is None else list(wanted.path),
        "after": after,
        "is_newest_first": is_newest_first,
        "max_jobs": max_jobs,
    }
    rows = await run(connection, "search_jobs", params, timeout=SEARCH_SECONDS, prepare=False)
    return [FoundJob(*row) for row in rows]


async def list_running_jobs(connection: Connection, *, max_jobs: int = 500) -> list[RunningJob]:
    """Return the running jobs, the longest running first."""
    return [RunningJob(*row) for row in await run(connection, "list_running_jobs", {"max_jobs": max_jobs})]


async def list_job_events(connection: Connection, job_id: UUID, *, max_lines: int = MAX_LINES) -> list[JobEvent]:
    """Return a job's log, oldest first: what happened to it, and the latest *max_lines* that its executor wrote."""
    params = {"job_id": job_id, "max_lines": max_lines}
    return [JobEvent(*row) for row in await run(connection, "list_job_events", params)]


async def count_jobs_ahead(connection: Connection, job_id: UUID, *, max_jobs: int) -> int:
    """Return how many due jobs are claimed before this one; *max_jobs* stands for that many or more."""
    params = {"id": job_id, "max_jobs": max_jobs}
    rows = await run(connection, "count_jobs_ahead", params, timeout=SEARCH_SECONDS, prepare=False)
    return min(int(rows[0][0]), max_jobs)


async def retry_jobs(connection: Connection, job_ids: Sequence[UUID], *, actor: str) -> list[UUID]:
    """Let failed, cancelled and waiting jobs run again at once; return those that will."""
    return [row[0] for row in await run(connection, "retry_jobs", {"ids": list(job_ids), "actor": actor})]


async def note_job(connection: Connection, job_id: UUID, *, event: str, message: str) -> None:
    """Write into a job's log what a person did."""
    await run(connection, "note_job", {"id": job_id, "event": event, "message": message})


async def cancel_jobs(connection: Connection, job_ids: Sequence[UUID], *, actor: str) -> list[UUID]:
    """Cancel those of the jobs that wait or run; return them."""
    return [row[0] for row in await run(connection, "cancel_jobs", {"ids": list(job_ids), "actor": actor})]


def _first_id(moment: datetime | None) -> UUID | None:
    """Return the smallest id of a job created at *moment* (UUID version 7: its first 48 bits are milliseconds)."""
    return None if moment is None else UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)
