"""Everything that happens to a job. Each function runs the statement of its own name in ``sql/``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from jobqueue.errors import Conflict, NotFound, Unavailable
from jobqueue.job import Job, JobFilter, JobLog, JobWithLogs, LeaseToken, LogLevel, NewJob, Priority, Status
from jobqueue.store.db import Connection, run
from jobqueue.store.stats import MANY_CHANGES, fold_job_counts

_RACES = 5
_STATUSES: dict[str, Status] = {status.value: status for status in Status}  # a tenth of the time of Status(…)


class CreateOutcome(msgspec.Struct, frozen=True):
    """What became of one create: the job, whether it existed before, and whether that one's body differs."""

    job: Job
    is_replay: bool = False
    is_mismatch: bool = False


class NewRow(msgspec.Struct, frozen=True):
    """A new job as ``create_jobs.sql`` reads it; *request_hash* becomes base64."""

    id: UUID
    type: str
    payload: msgspec.Raw
    priority: Priority
    queue: str
    max_attempts: int
    run_at: datetime | None
    idempotency_key: str | None
    request_hash: bytes | None
    trace_context: str | None


class LogLine(msgspec.Struct, frozen=True):
    """A line an executor logged. *age_seconds* is the time since, so that the server's clock can date it."""

    job_id: UUID
    attempt: int
    level: LogLevel
    message: str
    age_seconds: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended.

    *kind* is ``completed``, ``failed`` (retried while attempts are left), ``gave_up`` (failed for good) or
    ``stopped`` (it no longer owned the job). *delay_seconds* is the wait before a retry.
    """

    id: UUID
    lease_token: LeaseToken
    kind: str
    result: msgspec.Raw | None = None
    error: str | None = None
    delay_seconds: float = 0.0


async def create_jobs(connection: Connection, new: Sequence[NewJob], *, timeout: float = 10.0) -> list[CreateOutcome]:
    """Write new jobs in one statement and return one outcome each, in order.

    A job whose idempotency key is taken comes back as a replay of the job that owns the key; any number of
    concurrent calls with one key create one job (failures.md K1, K2). In autocommit the jobs are committed
    when this returns; inside the caller's transaction they commit with it.

    Raises:
        Unavailable: the database does not answer; nothing is known to be written.
        psycopg.Error: the data was refused (see ``db.REFUSED``); nothing was written.
    """
    outcomes: dict[UUID, CreateOutcome] = {}
    missing = list(new)
    for _ in range(_RACES):
        rows = await run(connection, "create_jobs", {"jobs": encode_new_jobs(missing)}, timeout=timeout)
        written = {row[0]: row for row in rows}
        for job in missing:
            if job.id in written:
                outcomes[job.id] = CreateOutcome(_created(job, written[job.id]))
        missing = [job for job in missing if job.id not in outcomes]
        if not missing:
            return [outcomes[job.id] for job in new]
        owners = await get_jobs_by_key(connection, [str(job.idempotency_key) for job in missing], timeout=timeout)
        for job in missing:
            owner = owners.get(str(job.idempotency_key))
            if owner is not None:
                existing, request_hash = owner
                outcomes[job.id] = CreateOutcome(existing, is_replay=True, is_mismatch=_differs(request_hash, job))
        # An owner that was removed in between leaves its key free: try again.
        missing = [job for job in missing if job.id not in outcomes]
        if not missing:
            return [outcomes[job.id] for job in new]
    raise Unavailable("The job that owns this idempotency key keeps changing; try again.")


def encode_new_jobs(new: Sequence[NewJob]) -> str:
    """Return new jobs as the JSON text that ``create_jobs.sql`` takes."""
    return msgspec.json.encode([_row(job) for job in new]).decode()


async def get_jobs_by_key(
    connection: Connection, keys: Sequence[str], *, timeout: float = 10.0
) -> dict[str, tuple[Job, bytes | None]]:
    """Return the jobs that own *keys*, each with the fingerprint of the body it was created from."""
    rows = await run(connection, "get_jobs_by_key", {"idempotency_keys": list(keys)}, timeout=timeout)
    return {row[5]: (_job(row[:-1]), row[-1]) for row in rows}


async def get_job(connection: Connection, job_id: UUID) -> Job | None:
    """Return one job, or None."""
    rows = await run(connection, "get_job", {"id": job_id})
    return _job(rows[0]) if rows else None


async def get_jobs_with_logs(
    connection: Connection, job_ids: Sequence[UUID], *, timeout: float = 10.0
) -> dict[UUID, JobWithLogs]:
    """Return those of *job_ids* that exist, with their logs, from one snapshot.

    Raises:
        Unavailable: the database does not answer.
    """
    rows = await run(connection, "get_jobs_with_logs", {"ids": list(job_ids)}, timeout=timeout)
    return {row[0]: JobWithLogs(**_fields(row), logs=msgspec.Raw(row[16].encode())) for row in rows}


async def list_jobs(connection: Connection, wanted: JobFilter, *, page: int, page_size: int) -> tuple[list[Job], int]:
    """Return one page of jobs, newest first, and the number of all that match. *page* counts from 1.

    Folds the counts when it had to add up many changes.

    Raises:
        Unavailable: the database does not answer.
    """
    params = {
        "status": wanted.status,
        "type": wanted.type,
        "priority": wanted.priority,
        "page_size": page_size,
        "first": (page - 1) * page_size,
    }
    rows = await run(connection, "list_jobs", params, prepare=False)
    total, change_count = rows[0][-2:]
    if change_count > MANY_CHANGES:
        await fold_job_counts(connection)  # no worker does it
    return [_job(row) for row in rows if row[0] is not None], total


async def has_job_of_type(connection: Connection, job_type: str) -> bool:
    """Tell whether any job has this type."""
    return bool((await run(connection, "has_job_of_type", {"type": job_type}))[0][0])


async def list_job_logs(connection: Connection, job_id: UUID) -> list[JobLog]:
    """Return a job's log, oldest first."""
    rows = await run(connection, "list_job_logs", {"job_id": job_id})
    return [JobLog(id=row[0], job_id=row[1], level=LogLevel(row[2]), message=row[3], created_at=row[4]) for row in rows]


async def append_job_logs(connection: Connection, lines: Sequence[LogLine]) -> None:
    """Write lines to the logs of jobs. Lines of jobs that are gone are dropped."""
    params = {
        "job_ids": [line.job_id for line in lines],
        "attempts": [line.attempt for line in lines],
        "levels": [line.level.value for line in lines],
        "messages": [line.message for line in lines],
        "ages": [line.age_seconds for line in lines],
    }
    await run(connection, "append_job_logs", params)


async def finish_jobs(
    connection: Connection, outcomes: Sequence[Outcome], *, is_repeat: bool = False, timeout: float = 10.0
) -> dict[LeaseToken, Status]:
    """Write how attempts ended. Returns the job's new status by the lease token of its attempt.

    A token that is missing from the answer no longer owned its job (cancelled, recovered or removed); its outcome is
    dropped and that is noted in the job's log. Not so with *is_repeat*: the answer to the first try was lost, so it
    may be our own write that is found.
    """
    params = {"outcomes": msgspec.json.encode(outcomes).decode(), "is_repeat": is_repeat}
    rows = await run(connection, "finish_jobs", params, timeout=timeout)
    return {token: _STATUSES[status] for token, status in rows}


async def release_jobs(
    connection: Connection, held: Sequence[tuple[UUID, LeaseToken]], *, timeout: float = 10.0
) -> list[UUID]:
    """Give back unfinished jobs (id, lease token): processing → queued, the attempt not counted."""
    params = {"ids": [job_id for job_id, _ in held], "lease_tokens": [token for _, token in held]}
    return [row[0] for row in await run(connection, "release_jobs", params, timeout=timeout)]


async def cancel_job(connection: Connection, job_id: UUID, *, actor: str) -> Job:
    """Cancel a job that is queued or processing; one that is cancelled already is returned as it is.

    Raises:
        NotFound: there is no such job.
        Conflict: it is completed or failed.
    """
    for _ in range(_RACES):
        rows = await run(connection, "cancel_job", {"id": job_id, "actor": actor})
        if rows:
            return _job(rows[0])
        job = await get_job(connection, job_id)
        if job is None:
            raise NotFound(f"There is no job {job_id}.")
        if job.status is Status.CANCELLED:
            return job
        if job.status in {Status.COMPLETED, Status.FAILED}:
            raise Conflict(f"Job {job_id} cannot be cancelled: it is {job.status}.")
    raise Unavailable(f"Job {job_id} keeps changing; try again.")


async def prune_jobs(connection: Connection, *, retention_seconds: float, max_jobs: int = 1000) -> int:
    """Remove up to *max_jobs* finished jobs past their retention, with their logs and keys; return how many."""
    params = {"retention_seconds": retention_seconds, "max_jobs": max_jobs}
    return len(await run(connection, "prune_jobs", params))


def _differs(request_hash: bytes | None, job: NewJob) -> bool:
    """Tell whether a key's job was created from another body. One from SQL or the client library has no fingerprint."""
    return None not in {request_hash, job.request_hash} and request_hash != job.request_hash


def _job(row: Sequence[Any]) -> Job:
    return Job(**_fields(row))


def _fields(row: Sequence[Any]) -> dict[str, Any]:
    return {
        "id": row[0],
        "type": row[1],
        "payload": row[2],
        "priority": Priority(row[3]),
        "status": Status(row[4]),
        "idempotency_key": row[5],
        "attempts": row[6],
        "max_attempts": row[7],
        "next_retry_at": row[8],
        "created_at": row[9],
        "started_at": row[10],
        "completed_at": row[11],
        "error": row[12],
        "result": row[13],
        "queue": row[14],
        "next_run_at": row[15],
    }


def _created(new: NewJob, row: tuple[Any, ...]) -> Job:
    return Job(
        id=new.id,
        type=new.type,
        payload=msgspec.Raw(new.payload),
        priority=new.priority,
        status=Status.QUEUED,
        idempotency_key=new.idempotency_key,
        attempts=0,
        max_attempts=new.max_attempts,
        next_retry_at=None,
        created_at=row[1],
        started_at=None,
        completed_at=None,
        error=None,
        result=None,
        queue=new.queue,
        next_run_at=row[2],
    )


def _row(job: NewJob) -> NewRow:
    return NewRow(
        job.id,
        job.type,
        msgspec.Raw(job.payload),
        job.priority,
        job.queue,
        job.max_attempts,
        job.run_at,
        job.idempotency_key,
        job.request_hash,
        job.trace_context,
    )
