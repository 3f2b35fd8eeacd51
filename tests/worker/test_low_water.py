"""When the claim loop looks at the whole queue, and that nothing stays behind its marks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import psycopg

from jobqueue.settings import Settings
from jobqueue.store.claims import Position
from jobqueue.store.db import Connection
from jobqueue.worker.lowwater import LowWater
from tests.jobs import add, until_status
from tests.overlap import eventually
from tests.worker.conftest import RunWorker


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def mark() -> dict[str, Position]:
    now = datetime.now(UTC).isoformat()
    return {"high": Position(now, now, uuid4())}


def look(low_water: LowWater, clock: Clock, took_seconds: float, reached: dict[str, Position]) -> bool:
    """Make a claim that takes *took_seconds*; tell whether it looked from the start."""
    is_full = not low_water.start()
    clock.seconds += took_seconds
    low_water.claimed(reached)
    return is_full


def test_the_first_look_is_a_full_one_and_the_next_ones_start_behind_the_mark() -> None:
    clock, reached = Clock(), mark()
    low_water = LowWater(clock)

    assert look(low_water, clock, 0.003, reached)
    assert low_water.seconds_to_full_look() is None
    assert low_water.start() == reached


def test_full_looks_take_a_fortieth_of_the_time() -> None:
    clock = Clock()
    low_water = LowWater(clock)
    assert look(low_water, clock, 0.003, mark())

    assert not look(low_water, clock, 0.119, mark())
    assert low_water.seconds_to_full_look() is not None
    clock.seconds += 0.002

    assert look(low_water, clock, 0.003, mark())


def test_a_full_look_is_never_put_off_for_more_than_ten_seconds() -> None:
    clock = Clock()
    low_water = LowWater(clock)
    look(low_water, clock, 5.0, mark())
    clock.seconds += 10.1

    assert look(low_water, clock, 5.0, mark())


def test_a_level_keeps_its_mark_while_nothing_of_it_is_claimed() -> None:
    clock, reached = Clock(), mark()
    low_water = LowWater(clock)
    look(low_water, clock, 1.0, reached)
    low = {"low": mark()["high"]}
    look(low_water, clock, 0.0, low)

    assert low_water.start() == {**reached, **low}


def test_after_a_failure_the_next_look_is_a_full_one() -> None:
    clock = Clock()
    low_water = LowWater(clock)
    look(low_water, clock, 1.0, mark())

    low_water.forget()

    assert low_water.start() == {}


async def test_a_job_behind_the_mark_runs_at_the_next_full_look(
    connection: Connection, sql: psycopg.Connection, run_worker: RunWorker, quick: Callable[..., Settings]
) -> None:
    clock = Clock()
    async with run_worker(quick()) as worker:
        worker._low_water = LowWater(clock)
        first = await add(connection, "email_send")
        await until_status(connection, first, "completed")
        worker._low_water._full_look_at = clock.seconds + 5
        row = sql.execute(
            "INSERT INTO jobs (type, next_run_at) VALUES ('email_send', now() - interval '1 hour') RETURNING id"
        ).fetchone()
        second = await add(connection, "email_send")
        await until_status(connection, second, "completed")
        assert row is not None
        assert _status(sql, row[0]) == "queued"

        clock.seconds += 6

        await eventually(lambda: _status(sql, row[0]) == "completed", "the job behind the mark has run")


def _status(sql: psycopg.Connection, job_id: object) -> str:
    row = sql.execute("SELECT status::text FROM jobs WHERE id = %s", [job_id]).fetchone()
    assert row is not None
    return str(row[0])
