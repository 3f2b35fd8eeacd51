"""What happened over time, what fails, and how the server is. Each function runs the statement of its own name."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from jobqueue.store.db import Connection, run


class Span(msgspec.Struct, frozen=True):
    """What happened in one span of time."""

    begins_at: datetime
    created: int
    completed: int
    failed: int
    cancelled: int


class ErrorGroup(msgspec.Struct, frozen=True):
    """Failed jobs of one type with the same error, apart from numbers and ids."""

    type: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime
    sample_id: UUID


class Waiting(msgspec.Struct, frozen=True):
    """Since when the longest waiting due job has been due. None: none is due."""

    high: datetime | None
    medium: datetime | None
    low: datetime | None
    fifo: datetime | None

    def oldest(self) -> datetime | None:
        """Return the earliest of all."""
        return min((at for at in (self.high, self.medium, self.low, self.fifo) if at is not None), default=None)


class System(msgspec.Struct, frozen=True):
    """The state of the server. Sizes are in bytes."""

    version: str
    database_bytes: int
    jobs_bytes: int
    logs_bytes: int
    live_rows: int | None
    dead_rows: int | None
    vacuumed_at: datetime | None
    oldest_transaction_seconds: float | None
    connections: int
    max_connections: int
    listeners: int
    notification_queue_usage: float
    transaction_age: int
    revision: str
    count_rows: int


async def read_throughput(connection: Connection, *, seconds: float, span_seconds: float) -> list[Span]:
    """Return what happened in the last *seconds*, in spans; those in which nothing did are missing."""
    params = {"seconds": seconds, "span_seconds": span_seconds}
    return [Span(*row) for row in await run(connection, "read_throughput", params)]


async def read_durations(connection: Connection, *, max_jobs: int = 1000) -> tuple[float | None, float | None]:
    """Return median and 95th percentile of the run time, in seconds, of the latest completed jobs."""
    median, p95 = (await run(connection, "read_durations", {"max_jobs": max_jobs}, prepare=False))[0]
    return median, p95


async def read_waiting(connection: Connection) -> Waiting:
    """Return since when jobs have been due."""
    return Waiting(*(await run(connection, "read_waiting"))[0])


async def list_error_groups(
    connection: Connection, *, max_jobs: int = 2000, since: datetime | None = None
) -> list[ErrorGroup]:
    """Return the errors of the latest *max_jobs* failed jobs, in groups, the largest first."""
    params = {"max_jobs": max_jobs, "since": since}
    return [ErrorGroup(*row) for row in await run(connection, "list_error_groups", params, prepare=False)]


async def read_system(connection: Connection) -> System:
    """Return the state of the server."""
    return System(*(await run(connection, "read_system"))[0])
