"""finish_jobs.sql: who owns the attempt writes its end; nobody else changes anything (failures.md F5, F7, G1, G2)."""

from __future__ import annotations

import psycopg
import pytest

from jobqueue.errors import Conflict
from jobqueue.job import Status
from jobqueue.store import db, jobs
from jobqueue.store.db import Connection
from tests.jobs import claim, expire, finish, messages, outcome, owned, read, recover


async def test_a_completed_attempt_stores_its_result_and_clears_the_error(connection: Connection) -> None:
    taken = await owned(connection)
    await finish(connection, taken, "failed")
    (again,) = await claim(connection)

    assert await finish(connection, again, result=b'{"n": 12345678901234567890.5}') is Status.COMPLETED

    done = await read(connection, taken)
    assert (done.status, done.error, done.attempts) == (Status.COMPLETED, None, 2)
    assert done.result is not None
    assert bytes(done.result) == b'{"n": 12345678901234567890.5}'
    assert done.completed_at is not None
    assert done.next_retry_at is None


async def test_a_failed_attempt_waits_for_its_retry_while_attempts_are_left(connection: Connection) -> None:
    taken = await owned(connection, max_attempts=2)

    assert await finish(connection, taken, "failed", delay_seconds=100) is Status.QUEUED

    waiting = await read(connection, taken)
    assert (waiting.status, waiting.error, waiting.completed_at) == (Status.QUEUED, "it broke", None)
    assert waiting.next_retry_at == waiting.next_run_at
    assert waiting.started_at is not None
    assert 99 < (waiting.next_run_at - waiting.started_at).total_seconds() < 110
    assert await claim(connection) == []
    assert (await messages(connection, taken))[-1] == "Attempt 1/2 failed: it broke; next attempt in 100.0 s"


async def test_the_last_attempt_fails_for_good(connection: Connection) -> None:
    taken = await owned(connection, max_attempts=1)

    assert await finish(connection, taken, "failed", delay_seconds=0) is Status.FAILED

    failed = await read(connection, taken)
    assert (failed.error, failed.next_retry_at, failed.attempts) == ("it broke", None, 1)
    assert failed.completed_at is not None
    assert await claim(connection) == []
    assert (await messages(connection, taken))[-1] == "Attempt 1/1 failed: it broke; the job has failed for good"


async def test_giving_up_fails_at_once_whatever_attempts_are_left(connection: Connection) -> None:
    taken = await owned(connection, max_attempts=10)

    assert await finish(connection, taken, "gave_up") is Status.FAILED
    assert (await read(connection, taken)).status is Status.FAILED


@pytest.mark.parametrize("kind", ["completed", "failed", "gave_up"])
async def test_a_late_end_does_not_overwrite_a_cancelled_job(connection: Connection, kind: str) -> None:
    taken = await owned(connection)
    cancelled = await jobs.cancel_job(connection, taken.id, actor="test")

    assert await finish(connection, taken, kind) is None

    assert await read(connection, taken) == cancelled
    assert "its result was discarded" in (await messages(connection, taken))[-1]


@pytest.mark.parametrize("kind", ["completed", "failed", "gave_up"])
async def test_a_late_end_does_not_overwrite_a_recovered_job(
    connection: Connection, sql: psycopg.Connection, kind: str
) -> None:
    taken = await owned(connection)
    expire(sql, taken)
    await recover(connection)
    recovered = await read(connection, taken)

    assert await finish(connection, taken, kind) is None
    assert await read(connection, taken) == recovered


@pytest.mark.parametrize("kind", ["completed", "failed", "gave_up"])
async def test_a_late_end_does_not_touch_the_next_attempt(
    connection: Connection, sql: psycopg.Connection, kind: str
) -> None:
    first = await owned(connection)
    expire(sql, first)
    await recover(connection, delay=0)
    (second,) = await claim(connection)

    assert await finish(connection, first, kind) is None

    assert (await read(connection, first)).status is Status.PROCESSING
    assert await finish(connection, second) is Status.COMPLETED


async def test_an_end_is_written_only_once(connection: Connection) -> None:
    taken = await owned(connection)
    await finish(connection, taken, result=b"1")
    done = await read(connection, taken)

    assert await finish(connection, taken, "failed") is None
    assert await read(connection, taken) == done


async def test_two_attempts_of_one_job_in_one_batch_are_told_apart(
    connection: Connection, sql: psycopg.Connection
) -> None:
    first = await owned(connection)
    expire(sql, first)
    await recover(connection, delay=0)
    (second,) = await claim(connection)

    statuses = await jobs.finish_jobs(connection, [outcome(first, result=b"1"), outcome(second, result=b"2")])

    assert statuses == {second.lease_token: Status.COMPLETED}
    done = await read(connection, first)
    assert done.result is not None
    assert bytes(done.result) == b"2"
    assert any("its result was discarded" in message for message in await messages(connection, first))


async def test_a_repeated_write_is_not_noted_as_discarded(connection: Connection) -> None:
    taken = await owned(connection)
    await finish(connection, taken)

    await jobs.finish_jobs(connection, [outcome(taken)], is_repeat=True)

    assert not any("discarded" in message for message in await messages(connection, taken))


async def test_a_stopped_attempt_changes_nothing(connection: Connection) -> None:
    taken = await owned(connection)
    before = await read(connection, taken)

    assert await finish(connection, taken, "stopped") is None
    assert await read(connection, taken) == before


async def test_an_end_of_a_job_that_is_gone_is_dropped(connection: Connection, sql: psycopg.Connection) -> None:
    taken = await owned(connection)
    sql.execute("DELETE FROM jobs")

    assert await finish(connection, taken) is None
    assert await messages(connection, taken) == []


@pytest.mark.parametrize("poison", [b'"\\u0000"', b"1e200000", b"{"])
async def test_refused_data_is_told_apart_from_an_absent_database(connection: Connection, poison: bytes) -> None:
    good, bad = await owned(connection), await owned(connection)

    with pytest.raises(db.REFUSED):
        await jobs.finish_jobs(connection, [outcome(good), outcome(bad, result=poison)])

    assert (await read(connection, good)).status is Status.PROCESSING
    assert await finish(connection, good) is Status.COMPLETED


async def test_the_database_too_deep_in_json_is_a_refusal(connection: Connection) -> None:
    taken = await owned(connection)

    with pytest.raises(db.REFUSED):
        await finish(connection, taken, result=b"[" * 100_000 + b"]" * 100_000)


async def test_a_finished_job_cannot_be_cancelled(connection: Connection) -> None:
    taken = await owned(connection)
    await finish(connection, taken)

    with pytest.raises(Conflict, match="it is completed"):
        await jobs.cancel_job(connection, taken.id, actor="test")
