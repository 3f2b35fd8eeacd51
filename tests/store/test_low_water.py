"""Claims that start behind a mark: what they leave out, and that a claim from the start finds all of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from jobqueue.job import Claim, Priority
from jobqueue.store import jobs
from jobqueue.store.claims import Marks, Position, _start
from jobqueue.store.db import Connection, statement
from tests.jobs import WORKER, add, add_many, claim, finish, look


@pytest.fixture
def other(database_url: str) -> Iterator[psycopg.Connection]:
    """Somebody else's session, with a transaction open from its first statement."""
    with psycopg.connect(make_conninfo(database_url)) as opened:
        yield opened
        opened.rollback()


async def marked(connection: Connection, count: int = 1, **fields: Any) -> tuple[list[Claim], Marks]:
    """Create jobs, claim them, and return the mark behind them."""
    await add_many(connection, count, **fields)
    claimed = await look(connection, count)
    return claimed.jobs, claimed.marks


async def test_a_claim_starts_behind_its_mark_and_goes_on_in_order(connection: Connection) -> None:
    added = await add_many(connection, 9)
    first = await look(connection, 3)

    second = await look(connection, 3, after=first.marks)

    assert [job.id for job in second.jobs] == [job.id for job in added[3:6]]
    assert second.marks["medium"].id == added[5].id


async def test_each_level_has_a_mark_of_its_own(connection: Connection) -> None:
    _, marks = await marked(connection, priority=Priority.LOW)
    high = await add(connection, priority=Priority.HIGH)
    fifo = await add(connection, queue="fifo")

    claimed = await look(connection, 10, after=marks)

    assert [job.id for job in claimed.jobs] == [high.id, fifo.id]
    assert set(claimed.marks) == {"high", "fifo"}


async def test_the_mark_of_a_level_is_its_last_job_in_the_order_of_claims(connection: Connection) -> None:
    added = [await add(connection, priority=priority) for priority in (Priority.LOW, Priority.HIGH, Priority.HIGH)]

    claimed = await look(connection, 10)

    assert {level: mark.id for level, mark in claimed.marks.items()} == {"high": added[2].id, "low": added[0].id}
    assert datetime.fromisoformat(claimed.marks["high"].run_at) == added[2].next_run_at
    assert datetime.fromisoformat(claimed.marks["high"].created_at) == added[2].created_at


@pytest.mark.parametrize("queue", ["default", "fifo"])
async def test_a_released_job_is_behind_the_mark_and_found_from_the_start(connection: Connection, queue: str) -> None:
    (taken,), marks = await marked(connection, queue=queue)
    await jobs.release_jobs(connection, [(taken.id, taken.lease_token)])

    assert await claim(connection, 10, after=marks) == []
    assert [job.id for job in await claim(connection, 10)] == [taken.id]


async def test_an_insert_that_commits_late_is_found_from_the_start(
    connection: Connection, other: psycopg.Connection
) -> None:
    row = other.execute("INSERT INTO jobs (type) VALUES ('email_send') RETURNING id").fetchone()
    _, marks = await marked(connection)
    other.commit()

    assert await claim(connection, 10, after=marks) == []
    assert [job.id for job in await claim(connection, 10)] == [row and row[0]]


async def test_a_job_whose_cancellation_is_rolled_back_is_found_from_the_start(
    connection: Connection, other: psycopg.Connection
) -> None:
    held = await add(connection)
    other.execute("UPDATE jobs SET status = 'cancelled', completed_at = now() WHERE id = %s", [held.id])
    await add(connection)
    claimed = await look(connection, 2)
    other.rollback()

    assert held.id not in {job.id for job in claimed.jobs}
    assert await claim(connection, 10, after=claimed.marks) == []
    assert [job.id for job in await claim(connection, 10)] == [held.id]


async def test_a_job_given_a_time_in_the_past_is_found_from_the_start(
    connection: Connection, sql: psycopg.Connection
) -> None:
    _, marks = await marked(connection)
    moved = await add(connection, run_at=datetime.now(UTC) + timedelta(hours=1))
    sql.execute("UPDATE jobs SET next_run_at = now() - interval '1 hour' WHERE id = %s", [moved.id])

    assert await claim(connection, 10, after=marks) == []
    assert [job.id for job in await claim(connection, 10)] == [moved.id]


async def test_a_retry_and_a_recovered_job_come_behind_the_mark_by_themselves(
    connection: Connection, sql: psycopg.Connection
) -> None:
    """They are due later than anything that was claimed before, so the next claim sees them without a look back."""
    (taken,), marks = await marked(connection)
    await finish(connection, taken, "failed", delay_seconds=0.0)

    again = await look(connection, 10, after=marks)

    assert [job.id for job in again.jobs] == [taken.id]


def test_a_marked_claim_does_not_walk_what_an_old_snapshot_keeps(
    sql: psycopg.Connection, other: psycopg.Connection
) -> None:
    sql.execute("INSERT INTO jobs (type) SELECT 'email_send' FROM generate_series(1, 5000)")
    sql.execute("ANALYZE jobs")
    other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    other.execute("SELECT count(*) FROM jobs")
    marks: dict[str, Position] = {}
    for _ in range(20):
        taken = sql.execute(statement("claim_jobs"), _params(200, marks)).fetchall()
        marks = {"medium": Position(taken[-1][11], taken[-1][12], taken[-1][0])}

    from_start, from_mark = _blocks_read(sql, {}), _blocks_read(sql, marks)

    assert from_start > 3 * from_mark


def _params(max_jobs: int, marks: Marks) -> dict[str, object]:
    given = {"types": ["email_send"], "worker_id": WORKER, "worker_name": "w", "lease_seconds": 30.0}
    return {**given, "max_jobs": max_jobs, **_start(marks)}


def _blocks_read(sql: psycopg.Connection, marks: Marks) -> int:
    """Return how many blocks a claim of one job touches; it is undone."""
    with sql.transaction(force_rollback=True):
        explain = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement("claim_jobs")
        cursor = psycopg.ClientCursor(sql)
        row = cursor.execute(explain, _params(1, marks)).fetchone()
    assert row is not None
    plan: dict[str, int] = row[0][0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
