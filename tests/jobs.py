"""Making and reading jobs in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from jobqueue.ids import new_id
from jobqueue.job import Claim, Job, NewJob, Status
from jobqueue.store import jobs, workers
from jobqueue.store.claims import Claimed, Marks, claim_jobs
from jobqueue.store.db import Connection
from jobqueue.store.jobs import Outcome
from jobqueue.store.workers import LostJob
from tests.overlap import eventually

WORKER = new_id()


async def add(connection: Connection, job_type: str = "email_send", **fields: Any) -> Job:
    """Create one job and return it."""
    return (await add_many(connection, 1, job_type, **fields))[0]


async def add_many(connection: Connection, count: int, job_type: str = "email_send", **fields: Any) -> list[Job]:
    """Create jobs in one statement and return them in order."""
    payload = msgspec.json.encode(fields.pop("payload", {}))
    new = [NewJob(id=new_id(), type=job_type, payload=payload, **fields) for _ in range(count)]
    return [outcome.job for outcome in await jobs.create_jobs(connection, new)]


async def claim(
    connection: Connection,
    max_jobs: int = 1,
    types: tuple[str, ...] = ("email_send",),
    lease_seconds: float = 30,
    after: Marks | None = None,
) -> list[Claim]:
    """Claim as a worker would."""
    return (await look(connection, max_jobs, types, lease_seconds, after)).jobs


async def look(
    connection: Connection,
    max_jobs: int = 1,
    types: tuple[str, ...] = ("email_send",),
    lease_seconds: float = 30,
    after: Marks | None = None,
) -> Claimed:
    """Claim as a worker would, and return all that a claim tells."""
    return await claim_jobs(
        connection,
        types=types,
        max_jobs=max_jobs,
        worker_id=WORKER,
        worker_name="test",
        lease_seconds=lease_seconds,
        after=after,
    )


async def owned(connection: Connection, *, lease_seconds: float = 30, **fields: Any) -> Claim:
    """Create one job and claim it."""
    await add(connection, **fields)
    (taken,) = await claim(connection, lease_seconds=lease_seconds)
    return taken


def outcome(taken: Claim, kind: str = "completed", **fields: Any) -> Outcome:
    """Return how an attempt ended."""
    if kind in {"failed", "gave_up"}:
        fields = {"error": "it broke", **fields}
    if "result" in fields:
        fields["result"] = msgspec.Raw(fields["result"])
    return Outcome(id=taken.id, lease_token=taken.lease_token, kind=kind, **fields)


async def finish(connection: Connection, taken: Claim, kind: str = "completed", **fields: Any) -> Status | None:
    """Write how an attempt ended; None: it no longer owned its job."""
    return (await jobs.finish_jobs(connection, [outcome(taken, kind, **fields)])).get(taken.lease_token)


def expire(sql: psycopg.Connection, *taken: Job | Claim) -> None:
    """Let leases have run out a second ago."""
    ids = [job.id for job in taken]
    sql.execute("UPDATE jobs SET lease_expires_at = now() - interval '1 second' WHERE id = ANY(%s)", (ids,))


async def recover(
    connection: Connection, lost: Sequence[LostJob] | None = None, delay: float = 1, stuck_seconds: float = 600
) -> dict[UUID, Status]:
    """Recover as a worker would: what *lost* says, else what is found now."""
    if lost is None:
        lost = await workers.list_lost_jobs(connection, lease_seconds=0, stuck_seconds=stuck_seconds, max_jobs=100)
    return await workers.recover_jobs(connection, lost, [delay] * len(lost), stuck_seconds=stuck_seconds)


async def read(connection: Connection, job: Job | Claim) -> Job:
    """Return the job's present state."""
    found = await jobs.get_job(connection, job.id)
    assert found is not None
    return found


async def messages(connection: Connection, job: Job | Claim) -> list[str]:
    """Return the messages of a job's log."""
    return [line.message for line in await jobs.list_job_logs(connection, job.id)]


async def until_status(connection: Connection, job: Job | Claim, *statuses: str, seconds: float = 20.0) -> Job:
    """Wait until the job has one of *statuses* and return it."""

    async def look() -> Job | None:
        found = await read(connection, job)
        return found if found.status in statuses else None

    return await eventually(look, f"{job.id} becomes {statuses}", seconds)
