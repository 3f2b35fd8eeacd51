"""create_jobs.sql: one job per key, whatever happens at the same moment (failures.md 1.K)."""

from __future__ import annotations

import asyncio
import unicodedata
from typing import Any

import psycopg
import pytest

from jobqueue.ids import new_id
from jobqueue.job import NewJob, Status
from jobqueue.settings import Settings
from jobqueue.store import db, jobs
from jobqueue.store.db import Connection, connect
from jobqueue.store.jobs import CreateOutcome
from tests.jobs import claim, finish, read
from tests.overlap import until_blocked


def new(key: str | None = None, **fields: Any) -> NewJob:
    request_hash = b"h" if key else None
    defaults = {"type": "email_send", "payload": b"{}", "idempotency_key": key, "request_hash": request_hash}
    return NewJob(id=new_id(), **{**defaults, **fields})


async def create(connection: Connection, *keys: str | None, **fields: Any) -> list[CreateOutcome]:
    return await jobs.create_jobs(connection, [new(key, **fields) for key in keys])


async def test_what_create_answers_is_what_was_stored(connection: Connection) -> None:
    (made,) = await create(connection, "k", payload=b'{"amount": 1.10, "big": 123456789012345678901234567890}')

    stored = await read(connection, made.job)
    assert not made.is_replay
    assert (stored.id, stored.created_at, stored.next_run_at) == (
        made.job.id,
        made.job.created_at,
        made.job.next_run_at,
    )
    assert bytes(stored.payload) == b'{"big": 123456789012345678901234567890, "amount": 1.10}'


@pytest.mark.parametrize("status", list(Status))
async def test_a_key_stays_taken_whatever_became_of_its_job(
    connection: Connection, sql: psycopg.Connection, status: Status
) -> None:
    (first,) = await create(connection, "k")
    if status is Status.CANCELLED:
        await jobs.cancel_job(connection, first.job.id, actor="test")
    elif status is not Status.QUEUED:
        (taken,) = await claim(connection)
        if status is not Status.PROCESSING:
            await finish(connection, taken, "completed" if status is Status.COMPLETED else "gave_up")

    (second,) = await create(connection, "k")

    assert (second.is_replay, second.is_mismatch) == (True, False)
    assert (second.job.id, second.job.status) == (first.job.id, status)
    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (1,)


async def test_many_connections_with_one_key_make_one_job(
    connection: Connection, settings: Settings, sql: psycopg.Connection
) -> None:
    lines = [await connect(settings.database_url, settings, f"c{number}") for number in range(20)]
    for round_number in range(10):
        key = f"round-{round_number}"
        outcomes = [made for (made,) in await asyncio.gather(*(create(line, key) for line in lines))]
        assert len({made.job.id for made in outcomes}) == 1
        assert [made.is_replay for made in outcomes].count(False) == 1
    for line in lines:
        await line.close()

    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (10,)


async def test_a_create_waits_for_the_one_before_it_and_answers_with_its_job(
    others: list[Connection], sql: psycopg.Connection
) -> None:
    async with others[0].transaction():
        (first,) = await create(others[0], "k")
        second = asyncio.create_task(create(others[1], "k"))
        await until_blocked(sql, others[1])

    (replay,) = await second
    assert replay.is_replay
    assert replay.job == first.job


async def test_a_create_takes_the_key_of_one_that_was_rolled_back(
    others: list[Connection], sql: psycopg.Connection
) -> None:
    async with others[0].transaction(force_rollback=True):
        (first,) = await create(others[0], "k")
        second = asyncio.create_task(create(others[1], "k"))
        await until_blocked(sql, others[1])

    (made,) = await second
    assert not made.is_replay
    assert made.job.id != first.job.id


async def test_a_key_whose_job_is_being_removed_is_free_again(
    connection: Connection, others: list[Connection], sql: psycopg.Connection
) -> None:
    await create(connection, "k")
    async with others[0].transaction():
        await others[0].execute("DELETE FROM jobs")
        second = asyncio.create_task(create(others[1], "k"))
        await until_blocked(sql, others[1])

    assert not (await second)[0].is_replay


async def test_a_job_removed_between_conflict_and_look_up_leaves_no_create_without_answer(
    connection: Connection, sql: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(connection, "k")
    look_up = jobs.get_jobs_by_key

    async def look_up_too_late(*args: Any, **kwargs: Any) -> Any:
        sql.execute("DELETE FROM jobs")
        return await look_up(*args, **kwargs)

    monkeypatch.setattr(jobs, "get_jobs_by_key", look_up_too_late)

    (made,) = await create(connection, "k")

    assert not made.is_replay
    assert (await read(connection, made.job)).status is Status.QUEUED


async def test_another_body_under_the_same_key_is_told(connection: Connection) -> None:
    (first,) = await create(connection, "k")

    (second,) = await create(connection, "k", request_hash=b"other")

    assert (second.is_replay, second.is_mismatch, second.job.id) == (True, True, first.job.id)


async def test_equal_keys_in_one_batch_make_one_job(connection: Connection) -> None:
    outcomes = await create(connection, "a", "b", "a", None, "a", None)

    assert [made.is_replay for made in outcomes] == [False, False, True, False, True, False]
    assert outcomes[0].job.id == outcomes[2].job.id == outcomes[4].job.id
    assert len({made.job.id for made in outcomes}) == 4


async def test_keys_are_compared_byte_by_byte(connection: Connection) -> None:
    keys = [unicodedata.normalize(form, "café") for form in ("NFC", "NFD")] + ["CAFÉ", "café ", "x" * 255]

    outcomes = await create(connection, *keys)

    assert not any(made.is_replay for made in outcomes)
    assert [made.job.idempotency_key for made in outcomes] == keys


async def test_batches_with_the_same_keys_in_opposite_order_do_not_dead_lock(
    others: list[Connection], sql: psycopg.Connection
) -> None:
    holder, one, two = others
    async with holder.transaction():
        await create(holder, "m")
        first = asyncio.create_task(create(one, "z", "m", "a"))
        await until_blocked(sql, one)
        second = asyncio.create_task(create(two, "a", "m", "z"))
        await until_blocked(sql, two)

    assert [made.is_replay for made in await first] == [False, True, False]
    assert [made.is_replay for made in await second] == [True, True, True]


async def test_a_batch_is_written_whole_or_not_at_all(connection: Connection, sql: psycopg.Connection) -> None:
    batch = [new(), new(payload=b'{"a": "\\u0000"}'), new()]

    with pytest.raises(db.REFUSED):
        await jobs.create_jobs(connection, batch)

    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


async def test_a_check_violation_is_not_taken_for_a_replay(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        await create(connection, "k", max_attempts=11)

    assert db.constraint_name(caught.value) == "jobs_max_attempts_check"


async def test_create_in_the_callers_transaction_commits_and_rolls_back_with_it(
    connection: Connection, others: list[Connection]
) -> None:
    async with others[0].transaction(force_rollback=True):
        (made,) = await create(others[0], None)
        assert await jobs.get_job(connection, made.job.id) is None

    assert await jobs.get_job(connection, made.job.id) is None


async def test_an_insert_wakes_a_sleeping_worker_with_the_commit_and_not_before(
    connection: Connection, others: list[Connection], sql: psycopg.Connection
) -> None:
    sql.execute(
        "INSERT INTO workers (id, hostname, pid, version, types, concurrency) VALUES (%s, 'h', 1, '0', '{}', 1)",
        (new_id(),),
    )
    await connection.execute("LISTEN jobqueue_jobs")

    async with others[0].transaction():
        await create(others[0], None, None, None)
        assert [n.channel async for n in connection.notifies(timeout=0.1)] == []

    notes = [n async for n in connection.notifies(timeout=10, stop_after=1)]
    assert [(n.channel, n.payload) for n in notes] == [("jobqueue_jobs", "")]


async def test_an_insert_sends_no_notification_while_all_workers_are_busy(
    connection: Connection, others: list[Connection]
) -> None:
    await connection.execute("LISTEN jobqueue_jobs")
    await connection.execute("LISTEN done")

    await create(others[0], None)
    await others[0].execute("NOTIFY done")

    assert [n.channel async for n in connection.notifies(timeout=10, stop_after=1)] == ["done"]


async def test_a_key_used_in_sql_is_a_replay_and_no_mismatch_since_nobody_knows_the_body(
    connection: Connection, sql: psycopg.Connection
) -> None:
    sql.execute("INSERT INTO jobs (type, idempotency_key) VALUES ('email_send', 'order-1')")
    new = NewJob(id=new_id(), type="email_send", payload=b"{}", idempotency_key="order-1", request_hash=b"x" * 16)

    [outcome] = await jobs.create_jobs(connection, [new])

    assert (outcome.is_replay, outcome.is_mismatch) == (True, False)
