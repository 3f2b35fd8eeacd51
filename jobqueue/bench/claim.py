"""What one claim of a hundred jobs costs, whatever else is in the table."""

from __future__ import annotations

import statistics
import time
from uuid import uuid4

import psycopg

from jobqueue.bench.case import Figures, at_most, case
from jobqueue.bench.scratch import JOB_TYPE, Scratch, connected, fill
from jobqueue.store.claims import START
from jobqueue.store.db import statement

ROUNDS = 30
_LEVELS = ("high", "medium", "low", "fifo")


def claim_milliseconds(connection: psycopg.Connection) -> float:
    """Return the median time of a claim of a hundred from the start of the queue, in milliseconds."""
    params: dict[str, object] = {
        "types": [JOB_TYPE],
        "max_jobs": 100,
        "worker_id": uuid4(),
        "worker_name": "bench",
        "lease_seconds": 3600.0,
    }
    for level in _LEVELS:
        params |= {f"{level}_run_at": START.run_at, f"{level}_created_at": START.created_at, f"{level}_id": START.id}
    cursor = connection.cursor(binary=True)
    took = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        cursor.execute(statement("claim_jobs"), params, prepare=True)
        cursor.fetchall()
        took.append((time.perf_counter() - started) * 1000)
    return statistics.median(took)


def _with_backlog(scratch: Scratch, waiting: int) -> float:
    with scratch.database() as url, connected(url) as connection:
        fill(connection, waiting)
        return claim_milliseconds(connection)


@case("claim-backlog", "claim of 100 with a large backlog", "ms", at_most(2, "20 k waiting"), runs=1)
def claim_against_backlog(scratch: Scratch) -> Figures:
    """The curve from ten thousand waiting jobs up; ours is the largest."""
    sizes = {"20 k waiting": 20_000, "1 M waiting": 1_000_000, "5 M waiting": 5_000_000, "10 M waiting": 10_000_000}
    if scratch.size < 1:
        sizes = {"20 k waiting": 20_000, "200 k waiting": 200_000}
    curve = {label: _with_backlog(scratch, waiting) for label, waiting in sizes.items()}
    return {"ours": list(curve.values())[-1], **curve}


@case(
    "claim-others",
    "claim of 100 with 1 M finished rows, and with 1 M future high-priority jobs in front",
    "ms",
    at_most(2, "20 k waiting"),
)
def claim_beside_others(scratch: Scratch) -> Figures:
    """Rows that are not due must not be walked."""
    others = scratch.scaled(1_000_000)
    finished = {
        "columns": "type, status, started_at, completed_at",
        "values": "'bench_old', 'completed', now(), now()",
    }
    future = {"columns": "type, priority, next_run_at", "values": f"'{JOB_TYPE}', 'high', now() + interval '1 day'"}
    figures = {}
    for label, rows in (("1 M finished", finished), ("1 M future", future)):
        with scratch.database() as url, connected(url) as connection:
            fill(connection, others, **rows)
            fill(connection, 20_000)
            figures[label] = claim_milliseconds(connection)
    return {"ours": max(figures.values()), "20 k waiting": _with_backlog(scratch, 20_000), **figures}
