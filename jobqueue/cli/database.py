"""What the commands share that go straight to the database: one connection, one answer, JSON on stdout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import psycopg
import rich_click as click

from jobqueue.errors import JobQueueError, SchemaError, Unavailable
from jobqueue.settings import Settings, redact
from jobqueue.store.db import Connection, connect, first_line, where

Answer = TypeVar("Answer")


def ask(settings: Settings, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """Return what *work* makes of a connection.

    Raises:
        Unavailable: PostgreSQL cannot be reached; says where it was looked for.
        SchemaError: the database has no schema yet.
    """

    async def main() -> Answer:
        connection = await connect(settings.database_url, settings, "cli")
        try:
            return await work(connection)
        finally:
            await connection.close()

    place = where(settings.database_url)
    try:
        return asyncio.run(main())
    except Unavailable as error:
        if isinstance(error.__cause__, psycopg.errors.UndefinedTable):
            raise SchemaError(f"The database {place} has no schema yet: run `jobqueue migrate`") from error
        raise Unavailable(
            f"{error} (DATABASE_URL names {place}; `jobqueue up` runs a PostgreSQL of its own)"
        ) from error
    except psycopg.Error as error:
        raise JobQueueError(f"PostgreSQL at {place} refused: {redact(first_line(error))}") from error


def print_json(value: Any, *, indent: int = 2) -> None:
    """Print *value* as JSON, on one line with *indent* 0."""
    text = msgspec.json.encode(value)
    click.echo((msgspec.json.format(text, indent=indent) if indent else text).decode())
