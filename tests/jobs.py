"""Making and reading jobs in tests."""

from __future__ import annotations

from typing import Any

import msgspec

from jobqueue.ids import new_id
from jobqueue.job import Claim, Job, NewJob
from jobqueue.store import jobs
from jobqueue.store.db import Connection
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
) -> list[Claim]:
    """Claim as a worker would."""
    claims, _ = await jobs.claim_jobs(
        connection,
        types=types,
        max_jobs=max_jobs,
        worker_id=WORKER,
        worker_name="test",
        lease_seconds=lease_seconds,
    )
    return claims


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
