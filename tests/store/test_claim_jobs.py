"""claim_jobs.sql: order, exclusivity, limits, and what it must never take."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from jobqueue.job import Priority, Status
from jobqueue.settings import Settings
from jobqueue.store import jobs, workers
from jobqueue.store.db import Connection, connect
from jobqueue.store.jobs import Outcome
from tests.jobs import WORKER, add, add_many, claim, look, messages, read

FORCED_PLANS = [
    "",
    "SET enable_hashjoin = off; SET enable_material = off",
    "SET enable_seqscan = off",
    "SET enable_indexscan = off; SET enable_bitmapscan = off",
    "SET enable_nestloop = off",
]


async def test_jobs_run_by_priority_then_due_time_then_creation(connection: Connection) -> None:
    low = await add(connection, priority=Priority.LOW)
    medium = await add_many(connection, 2, priority=Priority.MEDIUM)
    high = await add(connection, priority=Priority.HIGH)

    claims = await claim(connection, 10)

    assert [c.id for c in claims] == [high.id, medium[0].id, medium[1].id, low.id]


async def test_order_holds_inside_one_bulk_insert_with_equal_times(connection: Connection) -> None:
    added = await add_many(connection, 50)
    assert len({job.created_at for job in added}) == 1

    claims = [c for _ in range(10) for c in await claim(connection, 5)]

    assert [c.id for c in claims] == [job.id for job in added]


async def test_future_jobs_are_never_claimed_early(connection: Connection) -> None:
    await add(connection, run_at=datetime.now(UTC) + timedelta(hours=1), priority=Priority.HIGH)
    due = await add(connection, priority=Priority.LOW)

    assert [c.id for c in await claim(connection, 10)] == [due.id]


async def test_a_run_time_in_the_past_does_not_jump_the_queue(connection: Connection) -> None:
    first = await add(connection)
    await add(connection, run_at=datetime.now(UTC) - timedelta(days=1))

    assert (await claim(connection, 1))[0].id == first.id


async def test_unknown_types_stay_queued(connection: Connection) -> None:
    foreign = await add(connection, "of_a_newer_release")
    mine = await add(connection)

    assert [c.id for c in await claim(connection, 10)] == [mine.id]
    assert (await read(connection, foreign)).status is Status.QUEUED


async def test_fifo_lane_runs_in_order_of_arrival_and_only_after_all_due_priority_jobs(
    connection: Connection,
) -> None:
    first = await add(connection, queue="fifo", priority=Priority.LOW)
    second = await add(connection, queue="fifo", priority=Priority.HIGH)
    normal = await add(connection, priority=Priority.LOW)

    assert [c.id for c in await claim(connection, 2)] == [normal.id, first.id]
    assert [c.id for c in await claim(connection, 2)] == [second.id]


async def test_operators_can_add_queues_of_either_kind(connection: Connection, sql: psycopg.Connection) -> None:
    sql.execute("INSERT INTO queues (name, lane) VALUES ('mail', 'priority'), ('audit', 'fifo')")
    audit = await add(connection, queue="audit", priority=Priority.HIGH)
    mail = await add(connection, queue="mail", priority=Priority.LOW)

    assert [c.id for c in await claim(connection, 2)] == [mail.id, audit.id]


async def test_an_unknown_queue_is_refused_by_the_database_itself(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="does not exist"):
        await add(connection, queue="nowhere")


@pytest.mark.parametrize("plan", FORCED_PLANS)
async def test_a_claim_never_takes_more_than_it_may_whatever_the_plan(connection: Connection, plan: str) -> None:
    for priority in Priority:
        await add_many(connection, 4, priority=priority)
    await add_many(connection, 4, queue="fifo")
    if plan:
        await connection.execute(plan)

    sizes = [len(await claim(connection, 3)) for _ in range(7)]

    assert sizes == [3, 3, 3, 3, 3, 1, 0]


@pytest.mark.parametrize("place", [*({"priority": priority} for priority in Priority), {"queue": "fifo"}], ids=str)
async def test_two_claims_at_once_share_the_jobs_without_overlap(
    connection: Connection, settings: Settings, place: dict[str, str]
) -> None:
    added = {job.id for job in await add_many(connection, 40, **place)}
    other = await connect(settings.database_url, settings, "other")
    taken: list[object] = []

    async with connection.transaction():
        mine = await claim(connection, 10)
        # The first claim's transaction is still open: its rows must be skipped, not waited for.
        theirs = await claim(other, 40)
    taken += [c.id for c in mine] + [c.id for c in theirs]
    taken += [c.id for c in await claim(other, 40)]
    await other.close()

    assert len(mine) == 10
    assert len(taken) == len(set(taken)) == 40
    assert set(taken) == added


async def test_many_claimers_take_every_job_exactly_once(connection: Connection, settings: Settings) -> None:
    added = {job.id for job in await add_many(connection, 300)}
    lines = [await connect(settings.database_url, settings, f"c{n}") for n in range(6)]

    async def drain(line: Connection) -> list[object]:
        taken: list[object] = []
        while batch := await claim(line, 7):
            taken += [c.id for c in batch]
        return taken

    taken = [job_id for part in await asyncio.gather(*(drain(line) for line in lines)) for job_id in part]
    taken += [c.id for c in await claim(connection, 300)]
    for line in lines:
        await line.close()

    assert len(taken) == len(set(taken)) == 300
    assert set(taken) == added


async def test_a_claim_counts_the_attempt_and_logs_it_in_the_same_commit(connection: Connection) -> None:
    job = await add(connection)

    (taken,) = await claim(connection)

    now = await read(connection, job)
    assert (now.status, now.attempts, now.started_at is not None) == (Status.PROCESSING, 1, True)
    assert taken.attempt == 1
    assert await messages(connection, job) == ["Claimed by worker test: executor email_send started, attempt 1/5"]


async def test_every_claim_has_a_new_token(connection: Connection) -> None:
    await add(connection)
    (first,) = await claim(connection)
    await jobs.release_jobs(connection, [(first.id, first.lease_token)])

    (second,) = await claim(connection)

    assert second.id == first.id
    assert second.lease_token != first.lease_token


async def test_a_short_claim_tells_when_the_nearest_future_job_is_due(connection: Connection) -> None:
    await add(connection, run_at=datetime.now(UTC) + timedelta(seconds=500), priority=Priority.LOW)
    await add(connection, run_at=datetime.now(UTC) + timedelta(seconds=100))

    claimed = await look(connection)

    assert claimed.jobs == []
    assert claimed.next_due_seconds is not None
    assert 90 < claimed.next_due_seconds <= 100


async def test_a_cancelled_job_is_never_started(connection: Connection) -> None:
    job = await add(connection)
    await jobs.cancel_job(connection, job.id, actor="test")

    assert await claim(connection) == []


async def test_a_retry_goes_behind_jobs_that_were_due_before_it(
    connection: Connection, sql: psycopg.Connection
) -> None:
    retried = await add(connection)
    (taken,) = await claim(connection)
    waiting = await add(connection)
    outcome = Outcome(id=taken.id, lease_token=taken.lease_token, kind="failed", error="x", delay_seconds=0)
    await jobs.finish_jobs(connection, [outcome])

    assert [c.id for c in await claim(connection, 2)] == [waiting.id, retried.id]


async def test_a_worker_record_does_not_decide_about_jobs(connection: Connection) -> None:
    await add(connection)
    (taken,) = await claim(connection)
    await workers.remove_worker(connection, WORKER)

    assert await workers.list_lost_leases(connection, [(taken.id, taken.lease_token)]) == {}
