"""``jobqueue enqueue`` and ``jobqueue jobs``: straight to the database, with the API's rules and queries."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import rich_click as click

from jobqueue.errors import InvalidInput, NotFound
from jobqueue.executors import EXECUTOR_REGISTRY, load_executors, validate_payload
from jobqueue.ids import new_id
from jobqueue.job import MAX_KEY_LENGTH, MAX_MAX_ATTEMPTS, JobFilter, JobLog, NewJob, Priority, Status
from jobqueue.safejson import UnsafeValue, check_value
from jobqueue.settings import Settings, load_settings
from jobqueue.store import jobs as store
from jobqueue.store.catalog import list_job_types, list_queues
from jobqueue.store.db import Connection, connect

Answer = TypeVar("Answer")


@click.command()
@click.argument("job_type", metavar="TYPE")
@click.argument("payload", default="{}", metavar="[PAYLOAD]")
@click.option("--priority", type=click.Choice([value.value for value in Priority]), default="medium", show_default=True)
@click.option("--queue", default="default", show_default=True)
@click.option("--key", "idempotency_key", help="Idempotency key, 1 to 255 characters.")
@click.option("--max-attempts", type=click.IntRange(1, MAX_MAX_ATTEMPTS), default=5, show_default=True)
def enqueue(
    job_type: str, payload: str, priority: str, queue: str, idempotency_key: str | None, max_attempts: int
) -> None:
    """Create a job of TYPE and print it. PAYLOAD is a JSON object."""
    settings = load_settings()
    load_executors(settings.executor_modules)
    new = NewJob(
        id=new_id(),
        type=job_type,
        payload=_payload(job_type, payload),
        priority=Priority(priority),
        queue=queue,
        max_attempts=max_attempts,
        idempotency_key=_key(idempotency_key),
    )

    async def write(connection: Connection) -> store.CreateOutcome:
        known = {*EXECUTOR_REGISTRY, *(entry.name for entry in await list_job_types(connection))}
        if job_type not in known:
            raise InvalidInput("type", f"type {job_type!r} is not registered: use one of {', '.join(sorted(known))}")
        queues = await list_queues(connection)
        if queue not in queues:
            raise InvalidInput("queue", f"queue {queue!r} does not exist: use one of {', '.join(sorted(queues))}")
        return (await store.create_jobs(connection, [new]))[0]

    outcome = _run(settings, write)
    if outcome.is_replay:
        click.echo("This idempotency key was used before; this is the job that owns it.", err=True)
    _print(outcome.job)


@click.group(name="jobs")
def jobs() -> None:
    """Look at jobs and cancel them."""


@jobs.command(name="list")
@click.option("--status", type=click.Choice([value.value for value in Status]))
@click.option("--type", "job_type")
@click.option("--priority", type=click.Choice([value.value for value in Priority]))
@click.option("--page", type=click.IntRange(1, 10**9), default=1, show_default=True)
@click.option("--page-size", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(
    status: str | None, job_type: str | None, priority: str | None, page: int, page_size: int, as_json: bool
) -> None:
    """List jobs, newest first."""
    wanted = JobFilter(
        status=Status(status) if status else None,
        type=job_type,
        priority=Priority(priority) if priority else None,
    )

    async def read(connection: Connection) -> tuple[list[Any], int]:
        found = await store.list_jobs(connection, wanted, page=page, page_size=page_size)
        return list(found), await store.count_jobs(connection, wanted)

    found, total = _run(load_settings(), read)
    for job in found:
        if as_json:
            _print(job, indent=0)
        else:
            attempts = f"{job.attempts}/{job.max_attempts}"
            click.echo(
                f"{job.id}  {job.status:<10}  {job.priority:<6}  {attempts:>5}  "
                f"{job.created_at:%Y-%m-%d %H:%M:%S}Z  {job.type}"
            )
    if not as_json:
        click.echo(f"{len(found)} of {total}", err=True)


@jobs.command()
@click.argument("job_id", type=click.UUID, metavar="ID")
def show(job_id: UUID) -> None:
    """Print one job as JSON."""

    async def read(connection: Connection) -> Any:
        return await store.get_job(connection, job_id)

    job = _run(load_settings(), read)
    if job is None:
        raise NotFound(f"There is no job {job_id}.")
    _print(job)


@jobs.command()
@click.argument("job_id", type=click.UUID, metavar="ID")
def logs(job_id: UUID) -> None:
    """Print the log of one job, oldest line first."""

    async def read(connection: Connection) -> list[JobLog] | None:
        if await store.get_job(connection, job_id) is None:
            return None
        return await store.list_job_logs(connection, job_id)

    lines = _run(load_settings(), read)
    if lines is None:
        raise NotFound(f"There is no job {job_id}.")
    for line in lines:
        click.echo(f"{line.created_at:%Y-%m-%dT%H:%M:%S.%fZ}  {line.level:<7}  {line.message}")


@jobs.command()
@click.argument("job_id", type=click.UUID, metavar="ID")
def cancel(job_id: UUID) -> None:
    """Cancel a job that is queued or processing, and print it."""

    async def write(connection: Connection) -> Any:
        return await store.cancel_job(connection, job_id, actor=f"{getpass.getuser()} (command line)")

    _print(_run(load_settings(), write))


def _run(settings: Settings, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    async def main() -> Answer:
        connection = await connect(settings.database_url, settings, "cli")
        try:
            return await work(connection)
        finally:
            await connection.close()

    return asyncio.run(main())


def _payload(job_type: str, text: str) -> bytes:
    try:
        value = msgspec.json.decode(text)
        if not isinstance(value, dict):
            raise InvalidInput("payload", f"payload must be a JSON object, not {text[:40]!r}")
        check_value(value)
    except (msgspec.DecodeError, UnsafeValue, RecursionError) as error:
        raise InvalidInput("payload", f"payload is not valid JSON: {error}") from error
    validate_payload(job_type, value)
    return text.encode()


def _key(key: str | None) -> str | None:
    if key is not None and not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise InvalidInput("key", f"the idempotency key has {len(key)} characters: use 1 to {MAX_KEY_LENGTH}")
    return key


def _print(value: Any, indent: int = 2) -> None:
    text = msgspec.json.encode(value)
    click.echo((msgspec.json.format(text, indent=indent) if indent else text).decode())
