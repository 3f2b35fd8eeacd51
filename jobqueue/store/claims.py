"""Taking jobs to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from jobqueue.job import Claim
from jobqueue.store.db import Connection, run


class Position(msgspec.Struct, frozen=True):
    """A job's place in the order of claims within its level. Its times are text: they only go back to the server."""

    run_at: str
    created_at: str
    id: UUID


START = Position("-infinity", "-infinity", UUID(int=0))
"""Before every job."""

Marks = Mapping[str, Position]
"""Positions by level: ``high``, ``medium``, ``low`` and ``fifo``; a level that is missing means :data:`START`."""


class Claimed(msgspec.Struct, frozen=True):
    """What a claim took: the jobs in the order they are to start, and the last position taken at each level.

    *next_due_seconds* is the time until the nearest future job; None when there is none, or when more jobs may be due
    right now.
    """

    jobs: list[Claim]
    marks: dict[str, Position]
    next_due_seconds: float | None


async def claim_jobs(
    connection: Connection,
    *,
    types: Sequence[str],
    max_jobs: int,
    worker_id: UUID,
    worker_name: str,
    lease_seconds: float,
    after: Marks | None = None,
    timeout: float = 10.0,
) -> Claimed:
    """Take up to *max_jobs* due jobs behind the positions *after*: queued → processing, the attempt counted.

    Raises:
        Unavailable: the database does not answer.
    """
    params = {
        "types": list(types),
        "max_jobs": max_jobs,
        "worker_id": worker_id,
        "worker_name": worker_name,
        "lease_seconds": lease_seconds,
        **_start(after or {}),
    }
    rows = await run(connection, "claim_jobs", params, timeout=timeout)
    jobs: list[Claim] = []
    last: dict[str, tuple[Any, ...]] = {}
    for row in rows:
        if row[0] is None:
            break
        jobs.append(
            Claim(
                id=row[0],
                lease_token=row[1],
                type=row[2],
                attempt=row[3],
                max_attempts=row[4],
                payload=row[5],
                priority=row[6],
                queue=row[7],
                wait_seconds=max(row[8], 0.0),
                trace_context=row[9],
            )
        )
        last[row[10]] = row
    marks = {level: Position(row[11], row[12], row[0]) for level, row in last.items()}
    return Claimed(jobs, marks, rows[0][13])


def _start(after: Marks) -> dict[str, object]:
    params: dict[str, object] = {}
    for level in ("high", "medium", "low", "fifo"):
        mark = after.get(level, START)
        params |= {f"{level}_created_at": mark.created_at, f"{level}_id": mark.id}
        if level != "fifo":
            params[f"{level}_run_at"] = mark.run_at
    return params
