"""Counts, depths and the database's own state."""

from __future__ import annotations

import msgspec

from jobqueue.job import Status
from jobqueue.store.db import Connection, run

MANY_CHANGES = 2_000
"""So many rows in ``job_counts`` are worth folding; reading them takes about a millisecond."""


class QueueDepths(msgspec.Struct, frozen=True):
    """The waiting jobs, each counted in exactly one."""

    fifo: int
    priority: int
    retry: int
    scheduled: int

    def total(self) -> int:
        """Return the number of queued jobs."""
        return self.fifo + self.priority + self.retry + self.scheduled


class JobFigures(msgspec.Struct, frozen=True):
    """Jobs by status (all five present), the mean seconds from start to end of the completed ones, and the depths.

    *change_count* is the number of rows they were added up from; :func:`fold_job_counts` makes it small again.
    """

    by_status: dict[str, int]
    avg_processing_time_seconds: float | None
    depths: QueueDepths
    change_count: int


async def read_figures(connection: Connection) -> JobFigures:
    """Return how many jobs there are, exactly and in one snapshot, without reading them.

    Raises:
        Unavailable: the database does not answer.
    """
    row = (await run(connection, "read_figures"))[0]
    statuses = (Status.QUEUED, Status.PROCESSING, Status.COMPLETED, Status.FAILED, Status.CANCELLED)
    by_status = {status.value: count for status, count in zip(statuses, row[:5], strict=True)}
    return JobFigures(by_status, row[5], QueueDepths(*row[6:10]), row[10])


async def fold_job_counts(connection: Connection) -> None:
    """Add up the changes in ``job_counts``. Any number of processes may do it at once, readers notice nothing.

    Raises:
        Unavailable: the database does not answer.
    """
    await run(connection, "fold_job_counts")


async def prune_job_minutes(connection: Connection) -> None:
    """Remove the minutes that are older than a week."""
    await run(connection, "prune_job_minutes")


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
