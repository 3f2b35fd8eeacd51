"""``jobqueue jobs``: look at jobs and cancel them, with the API's queries."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from uuid import UUID

import rich_click as click

from jobqueue.cli.database import ask, print_json
from jobqueue.cli.group import SuggestingGroup
from jobqueue.errors import InvalidInput, NotFound
from jobqueue.job import Job, JobFilter, JobLog, Priority, Status
from jobqueue.settings import load_settings
from jobqueue.store import jobs as store
from jobqueue.store.catalog import list_job_types
from jobqueue.store.db import Connection

_ONE_LINE = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
_JOB_ID = click.argument("job_id", type=click.UUID, metavar="ID")


@click.group(name="jobs", cls=SuggestingGroup)
def jobs() -> None:
    """Look at jobs and cancel them. Goes straight to the database, so that the API need not run."""


@jobs.command(name="list")
@click.option("--status", type=click.Choice([value.value for value in Status]), help="Only jobs that stand there.")
@click.option("--type", "job_type", help="Only jobs of this type.")
@click.option("--priority", type=click.Choice([value.value for value in Priority]), help="Only this priority.")
@click.option("--page", type=click.IntRange(1, 10**9), default=1, show_default=True, help="Page, from 1.")
@click.option("--page-size", type=click.IntRange(1, 1000), default=20, show_default=True, help="Jobs a page.")
@_ONE_LINE
def list_(
    status: str | None, job_type: str | None, priority: str | None, page: int, page_size: int, as_json: bool
) -> None:
    """List jobs, newest first: id, status, priority, attempts, time of creation, type."""
    wanted = JobFilter(
        status=Status(status) if status else None,
        type=job_type,
        priority=Priority(priority) if priority else None,
    )

    async def read(connection: Connection) -> tuple[list[Job], int]:
        found, total = await store.list_jobs(connection, wanted, page=page, page_size=page_size)
        if job_type is not None and not total:
            await _require_known_type(connection, job_type)
        return found, total

    found, total = ask(load_settings(), read)
    for job in found:
        if as_json:
            print_json(job, indent=0)
        else:
            click.echo(_line(job))
    if not as_json:
        click.echo(f"{len(found)} of {total}", err=True)


@jobs.command()
@_JOB_ID
@click.option("--json", "as_json", is_flag=True, help="On one line.")
def show(job_id: UUID, as_json: bool) -> None:
    """Print one job as JSON."""

    async def read(connection: Connection) -> Job:
        return await _require_job(connection, job_id)

    print_json(ask(load_settings(), read), indent=0 if as_json else 2)


@jobs.command()
@_JOB_ID
@_ONE_LINE
def logs(job_id: UUID, as_json: bool) -> None:
    """Print the log of one job, oldest line first."""

    async def read(connection: Connection) -> Sequence[JobLog]:
        await _require_job(connection, job_id)
        return await store.list_job_logs(connection, job_id)

    for line in ask(load_settings(), read):
        if as_json:
            print_json(line, indent=0)
        else:
            click.echo(f"{line.created_at:%Y-%m-%dT%H:%M:%S.%fZ}  {line.level:<7}  {line.message}")


@jobs.command()
@_JOB_ID
@click.option("--json", "as_json", is_flag=True, help="On one line.")
def cancel(job_id: UUID, as_json: bool) -> None:
    """Cancel a job that is queued or processing, and print it."""

    async def write(connection: Connection) -> Job:
        return await store.cancel_job(connection, job_id, actor=f"{_user()} (command line)")

    print_json(ask(load_settings(), write), indent=0 if as_json else 2)


async def _require_job(connection: Connection, job_id: UUID) -> Job:
    job = await store.get_job(connection, job_id)
    if job is None:
        raise NotFound(f"There is no job {job_id}.")
    return job


async def _require_known_type(connection: Connection, job_type: str) -> None:
    """Refuse a type that is not registered and that no job has; a slip of the pen would look like an empty queue."""
    known = [entry.name for entry in await list_job_types(connection)]
    if known and job_type not in known and not await store.has_job_of_type(connection, job_type):
        raise InvalidInput("type", f"There is no type {job_type!r}, nor any job of it: use one of {', '.join(known)}")


def _line(job: Job) -> str:
    attempts = f"{job.attempts}/{job.max_attempts}"
    return (
        f"{job.id}  {job.status:<10}  {job.priority:<6}  {attempts:>5}  {job.created_at:%Y-%m-%d %H:%M:%S}Z  {job.type}"
    )


def _user() -> str:
    """Return the user's name; a container's user may have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
