"""``jobqueue enqueue``: a create without the API, under the API's own rules."""

from __future__ import annotations

import sys

import msgspec
import rich_click as click

from jobqueue.cli.database import ask, print_json
from jobqueue.errors import InvalidInput
from jobqueue.executors import EXECUTOR_REGISTRY, load_executors, validate_payload
from jobqueue.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, MAX_MAX_ATTEMPTS, NewJob, Priority
from jobqueue.settings import load_settings
from jobqueue.store.catalog import list_job_types, list_queues
from jobqueue.store.db import Connection
from jobqueue.store.jobs import CreateOutcome, create_jobs


@click.command()
@click.argument("job_type", metavar="TYPE")
@click.argument("payload", default="{}", metavar="[PAYLOAD]")
@click.option(
    "--priority",
    type=click.Choice([value.value for value in Priority]),
    default=Priority.MEDIUM.value,
    show_default=True,
    help="Order of running.",
)
@click.option("--queue", default=DEFAULT_QUEUE, show_default=True, help="Name of the queue.")
@click.option("--key", help="Idempotency key, 1 to 255 characters: the same key never makes a second job.")
@click.option(
    "--max-attempts",
    type=click.IntRange(1, MAX_MAX_ATTEMPTS),
    default=DEFAULT_MAX_ATTEMPTS,
    show_default=True,
    help="The attempt after which a failure is final.",
)
@click.option("--run-at", help="Not before this time, such as 2030-01-31T12:00:00Z.")
@click.option("--json", "as_json", is_flag=True, help="Print the job on one line.")
def enqueue(
    job_type: str,
    payload: str,
    priority: str,
    queue: str,
    key: str | None,
    max_attempts: int,
    run_at: str | None,
    as_json: bool,
) -> None:
    """Create a job of TYPE and print it.

    PAYLOAD is a JSON object, or - to read it from stdin. Goes straight to the database, so that the API need not
    run; its rules hold here too, except for the rate limit.
    """
    settings = load_settings()
    load_executors(settings.executor_modules)
    fields = {
        "type": job_type,
        "payload": _json_text(sys.stdin.read() if payload == "-" else payload),
        "priority": priority,
        "queue": queue,
        "max_attempts": max_attempts,
        "run_at": run_at,
        "idempotency_key": key,
    }
    new = _checked(fields)

    async def write(connection: Connection) -> CreateOutcome:
        known = {*EXECUTOR_REGISTRY, *(entry.name for entry in await list_job_types(connection))}
        _require("type", job_type, known)
        _require("queue", queue, await list_queues(connection))
        return (await create_jobs(connection, [new]))[0]

    outcome = ask(settings, write)
    if outcome.is_replay:
        note = "; it came with another body then" if outcome.is_mismatch else ""
        click.echo(f"This key was used before, and this is the job that owns it{note}.", err=True)
    print_json(outcome.job, indent=0 if as_json else 2)


def _json_text(text: str) -> msgspec.Raw:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput("payload", f"The payload is not JSON: {error}") from error
    return msgspec.Raw(text.encode())


def _checked(fields: dict[str, object]) -> NewJob:
    """Return the job, after the checks of ``POST /api/v1/jobs``."""
    from jobqueue.server.body import check, parse
    from jobqueue.server.problems import HttpProblem, InvalidFields

    try:
        checked = check(*parse(msgspec.json.encode(fields)), header_key=None)
    except InvalidFields as error:
        raise InvalidInput(error.problems[0].field, str(error)) from error
    except HttpProblem as error:
        raise InvalidInput("payload", str(error)) from error
    validate_payload(checked.type, checked.payload_value)
    return checked.new_job()


def _require(field: str, name: str, known: set[str] | dict[str, str]) -> None:
    if name not in known:
        raise InvalidInput(field, f"There is no {field} {name!r}: use one of {', '.join(sorted(known))}")
