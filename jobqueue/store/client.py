"""Creating jobs from a program of your own, on its own psycopg connection and in its own transaction.

A job enqueued inside a transaction exists exactly when the transaction commits, together with whatever else it wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.rows import tuple_row

from jobqueue.errors import InvalidInput
from jobqueue.ids import new_id
from jobqueue.job import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_QUEUE,
    MAX_KEY_LENGTH,
    MAX_MAX_ATTEMPTS,
    MAX_TYPE_LENGTH,
    NewJob,
    Priority,
)
from jobqueue.safejson import UnsafeValue, check_value, encode_value
from jobqueue.store.db import statement
from jobqueue.store.jobs import encode_new_jobs

_BATCH = 1_000
_COPY = "COPY jobs (id, type, payload, priority, queue, max_attempts) FROM STDIN"


class Enqueued(msgspec.Struct, frozen=True):
    """What became of an :func:`enqueue`: the job's id, and whether its idempotency key had that job already."""

    id: UUID
    is_replay: bool = False


def new_job(
    job_type: str,
    payload: Mapping[str, Any] | None = None,
    *,
    priority: Priority | str = Priority.MEDIUM,
    queue: str = DEFAULT_QUEUE,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    run_at: datetime | None = None,
    idempotency_key: str | None = None,
) -> NewJob:
    """Return a job to enqueue, with a new id. *run_at* needs a time zone; None means at once.

    Whether *job_type* and *queue* exist is not asked: a job of an unknown type waits until a worker knows it.

    Raises:
        InvalidInput: a value is not allowed; says which and what is.
    """
    if not isinstance(job_type, str) or not 1 <= len(job_type) <= MAX_TYPE_LENGTH:
        raise InvalidInput("type", f"type is {job_type!r}: use 1 to {MAX_TYPE_LENGTH} characters")
    if priority not in list(Priority):
        raise InvalidInput("priority", f"priority is {priority!r}: use high, medium or low")
    if type(max_attempts) is not int or not 1 <= max_attempts <= MAX_MAX_ATTEMPTS:
        raise InvalidInput(
            "max_attempts", f"max_attempts is {max_attempts!r}: use a whole number from 1 to {MAX_MAX_ATTEMPTS}"
        )
    if run_at is not None and run_at.tzinfo is None:
        raise InvalidInput("run_at", f"run_at is {run_at!r}: use a time with a time zone")
    if idempotency_key is not None and not 1 <= len(idempotency_key) <= MAX_KEY_LENGTH:
        raise InvalidInput(
            "idempotency_key", f"idempotency_key is too long or empty: use 1 to {MAX_KEY_LENGTH} characters"
        )
    try:
        encoded = encode_value(dict(payload or {}), "payload")
        check_value([job_type, queue, idempotency_key], "the job")
    except UnsafeValue as error:
        raise InvalidInput("payload", str(error)) from error
    return NewJob(
        id=new_id(),
        type=job_type,
        payload=encoded,
        priority=Priority(priority),
        queue=queue,
        max_attempts=max_attempts,
        run_at=run_at,
        idempotency_key=idempotency_key,
    )


def enqueue(
    connection: psycopg.Connection[Any], job_type: str, payload: Mapping[str, Any] | None = None, **options: Any
) -> Enqueued:
    """Create a job on *connection*: at once in autocommit, else with the transaction. *options* as in :func:`new_job`.

    Raises:
        InvalidInput: a value is not allowed; nothing was sent.
        psycopg.Error: the database refused it (for instance: there is no such queue).
    """
    job = new_job(job_type, payload, **options)
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement("create_jobs"), {"jobs": encode_new_jobs([job])}, prepare=True)
        if job.idempotency_key is None or cursor.fetchone() is not None:
            return Enqueued(job.id)
        cursor.execute(statement("get_jobs_by_key"), {"idempotency_keys": [job.idempotency_key]})
        row = cursor.fetchone()
    # The job that had the key was removed in this moment: then the key is free.
    return enqueue(connection, job_type, payload, **options) if row is None else Enqueued(row[0], is_replay=True)


def enqueue_many(connection: psycopg.Connection[Any], jobs: Sequence[NewJob]) -> list[UUID]:
    """Create many jobs (made by :func:`new_job`) and return their ids, in order.

    Jobs without key and time go by COPY. A job whose idempotency key is taken is left out, and so is its id.

    Raises:
        psycopg.Error: the database refused them. Outside a transaction up to a thousand may be written already.
    """
    if all(job.idempotency_key is None and job.run_at is None for job in jobs):
        with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            for job in jobs:
                copy.write_row(
                    (job.id, job.type, job.payload.decode(), job.priority.value, job.queue, job.max_attempts)
                )
        return [job.id for job in jobs]
    written: set[UUID] = set()
    with connection.cursor(row_factory=tuple_row) as cursor:
        for first in range(0, len(jobs), _BATCH):
            cursor.execute(statement("create_jobs"), {"jobs": encode_new_jobs(jobs[first : first + _BATCH])})
            written.update(row[0] for row in cursor)
    return [job.id for job in jobs if job.id in written]
