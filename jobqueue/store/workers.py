"""Leases, recovery and the workers' own records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from jobqueue.job import LeaseToken, Status
from jobqueue.store.db import Connection, run

Held = Sequence[tuple[UUID, LeaseToken]]
"""Jobs a worker holds: (id, lease token)."""

_SILENT_LEASES = 4
"""A worker that has not been heard of for so many leases is no longer woken by inserts."""


class LostJob(msgspec.Struct, frozen=True):
    """A running job whose lease ran out, with the token that the vanished owner held."""

    id: UUID
    lease_token: LeaseToken
    attempts: int


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process as recorded in ``workers``."""

    id: UUID
    hostname: str
    pid: int
    version: str
    types: list[str]
    concurrency: int
    running: int = 0
    is_stopping: bool = False
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    silent_seconds: float = 0.0


async def extend_leases(
    connection: Connection, held: Held, *, lease_seconds: float, timeout: float = 10.0
) -> set[LeaseToken]:
    """Prolong the leases of held jobs to *lease_seconds* from now, by the database's clock.

    Returns the tokens of those that were prolonged. Missing are the lost ones, and those whose row somebody holds.
    """
    params = {
        "ids": [job_id for job_id, _ in held],
        "lease_tokens": [token for _, token in held],
        "lease_seconds": lease_seconds,
    }
    return {row[0] for row in await run(connection, "extend_leases", params, timeout=timeout)}


async def extend_held_lease(
    connection: Connection, job_id: UUID, token: LeaseToken, *, lease_seconds: float, timeout: float = 10.0
) -> None:
    """Prolong a lease whose row somebody else holds, waiting until it is let go.

    Raises:
        Unavailable: it was not let go in time, or the database does not answer.
    """
    params = {"id": job_id, "lease_token": token, "lease_seconds": lease_seconds}
    await run(connection, "extend_held_lease", params, timeout=timeout)


async def list_unknown_claims(
    connection: Connection, worker_id: UUID, known: Collection[LeaseToken]
) -> list[tuple[UUID, LeaseToken]]:
    """Return the jobs (id, lease token) that a worker holds besides those with the *known* tokens."""
    params = {"worker_id": worker_id, "lease_tokens": list(known)}
    return [(row[0], row[1]) for row in await run(connection, "list_unknown_claims", params)]


async def list_lost_leases(connection: Connection, held: Held, *, timeout: float = 10.0) -> dict[LeaseToken, str]:
    """Return the lease tokens that are no longer worth anything, each with its job's present status or ``removed``."""
    params = {"ids": [job_id for job_id, _ in held], "lease_tokens": [token for _, token in held]}
    return dict(await run(connection, "list_lost_leases", params, timeout=timeout))


async def list_lost_jobs(
    connection: Connection, *, lease_seconds: float, stuck_seconds: float, max_jobs: int
) -> list[LostJob]:
    """Return running jobs whose owner is gone."""
    params = {"lease_seconds": lease_seconds, "stuck_seconds": stuck_seconds, "max_jobs": max_jobs}
    return [LostJob(*row) for row in await run(connection, "list_lost_jobs", params)]


async def recover_jobs(
    connection: Connection, lost: Sequence[LostJob], delays: Sequence[float], *, stuck_seconds: float
) -> dict[UUID, Status]:
    """Put lost jobs back, or fail them after their last attempt.

    Returns the new status of those that still were lost.
    """
    params = {
        "ids": [job.id for job in lost],
        "lease_tokens": [job.lease_token for job in lost],
        "delays": list(delays),
        "stuck_seconds": stuck_seconds,
    }
    return {row[0]: Status(row[1]) for row in await run(connection, "recover_jobs", params)}


async def upsert_worker(
    connection: Connection, worker: WorkerRecord, *, lease_seconds: float, timeout: float = 10.0
) -> None:
    """Record that a worker is alive."""
    params = {
        name: getattr(worker, name)
        for name in ("id", "hostname", "pid", "version", "types", "concurrency", "running", "is_stopping")
    }
    params["silent_seconds"] = _SILENT_LEASES * lease_seconds
    await run(connection, "upsert_worker", params, timeout=timeout)


async def set_worker_idle(connection: Connection, worker_id: UUID, *, is_idle: bool) -> None:
    """Record whether a worker sleeps and wants to be woken by inserts."""
    await run(connection, "set_worker_idle", {"id": worker_id, "is_idle": is_idle})


async def remove_worker(connection: Connection, worker_id: UUID, *, timeout: float = 10.0) -> None:
    """Forget a worker that stopped in an orderly way."""
    await run(connection, "remove_worker", {"id": worker_id}, timeout=timeout)


async def prune_workers(connection: Connection, *, lease_seconds: float) -> None:
    """Forget workers silent for a day; those silent for several leases are no longer woken."""
    await run(connection, "prune_workers", {"silent_seconds": _SILENT_LEASES * lease_seconds})


async def list_workers(connection: Connection) -> list[WorkerRecord]:
    """Return all known workers, the most recently started first."""
    fields = msgspec.structs.fields(WorkerRecord)
    rows = await run(connection, "list_workers")
    return [WorkerRecord(**{field.name: value for field, value in zip(fields, row, strict=True)}) for row in rows]
