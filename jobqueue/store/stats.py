"""Counts, depths and the database's own state."""

from __future__ import annotations

import msgspec

from jobqueue.job import Status
from jobqueue.store.db import Connection, run


class StatusCounts(msgspec.Struct, frozen=True):
    """Jobs by status (all five present) and the mean seconds from start to end of the completed ones."""

    by_status: dict[str, int]
    avg_processing_time_seconds: float | None


class QueueDepths(msgspec.Struct, frozen=True):
    """The waiting jobs, each counted in exactly one."""

    fifo: int
    priority: int
    retry: int
    scheduled: int

    def total(self) -> int:
        """Return the number of queued jobs."""
        return self.fifo + self.priority + self.retry + self.scheduled


async def count_jobs_by_status(connection: Connection) -> StatusCounts:
    """Count all jobs by status."""
    by_status = dict.fromkeys((status.value for status in Status), 0)
    average = None
    for status, count, seconds in await run(connection, "count_jobs_by_status"):
        by_status[status] = count
        average = seconds if status == Status.COMPLETED else average
    return StatusCounts(by_status, average)


async def queue_depths(connection: Connection) -> QueueDepths:
    """Count the waiting jobs by what they wait for."""
    return QueueDepths(*(await run(connection, "queue_depths"))[0])


async def check_database(connection: Connection, *, timeout: float = 2.0) -> tuple[str, bool]:
    """Return the server's version and whether it refuses writes."""
    version, is_read_only = (await run(connection, "check_database", timeout=timeout))[0]
    return version, is_read_only


async def schema_revision(connection: Connection, *, timeout: float = 2.0) -> str | None:
    """Return the schema's revision, or None when there is none yet.

    Raises:
        Unavailable: the database does not answer, or holds no schema at all.
    """
    rows = await run(connection, "schema_revision", timeout=timeout)
    return rows[0][0] if rows else None
