"""The job types and queues that exist."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobqueue.store.db import Connection, run


class JobType(msgspec.Struct, frozen=True):
    """A registered job type. *payload_schema* is the JSON Schema of its payload, when it declares one."""

    name: str
    max_execution_seconds: float | None = None
    payload_schema: msgspec.Raw | None = None


async def register_job_types(connection: Connection, types: Sequence[JobType]) -> None:
    """Make job types known to every API process."""
    schemas = [bytes(entry.payload_schema).decode() if entry.payload_schema is not None else None for entry in types]
    params = {
        "names": [entry.name for entry in types],
        "limits": [entry.max_execution_seconds for entry in types],
        "schemas": schemas,
    }
    await run(connection, "register_job_types", params)


async def list_job_types(connection: Connection) -> list[JobType]:
    """Return the registered job types, by name."""
    return [JobType(*row) for row in await run(connection, "list_job_types")]


async def list_queues(connection: Connection) -> dict[str, str]:
    """Return the queues: name → lane (``priority`` or ``fifo``)."""
    return dict(await run(connection, "list_queues"))
