"""extend, release, recover: who holds a lease keeps its job, and a job without an owner is found
(failures.md A6, B5, E1 to E10, F3 to F9)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from jobqueue.job import Status
from jobqueue.settings import Settings
from jobqueue.store import jobs, search, workers
from jobqueue.store.db import Connection
from jobqueue.store.workers import LostJob, WorkerRecord
from tests.jobs import add, add_many, claim, expire, finish, messages, owned, read, recover
from tests.overlap import until_blocked


def lease_left(sql: psycopg.Connection, job: object) -> float:
    row = sql.execute(
        "SELECT extract(epoch FROM lease_expires_at - clock_timestamp())::float8 FROM jobs WHERE id = %s",
        (job.id,),  # type: ignore[attr-defined]
    ).fetchone()
    assert row is not None
    return float(row[0])


async def test_a_heartbeat_prolongs_the_leases_it_names_and_no_others(
    connection: Connection, sql: psycopg.Connection
) -> None:
    mine, foreign = await owned(connection, lease_seconds=5), await owned(connection, lease_seconds=5)

    await workers.extend_leases(
        connection, [(mine.id, mine.lease_token), (foreign.id, str(uuid4()))], lease_seconds=100
    )

    assert lease_left(sql, mine) > 90
    assert lease_left(sql, foreign) < 6


async def test_a_heartbeat_revives_no_lease_of_a_job_that_is_lost(
    connection: Connection, sql: psycopg.Connection
) -> None:
    taken = await owned(connection)
    expire(sql, taken)
    await recover(connection)

    await workers.extend_leases(connection, [(taken.id, taken.lease_token)], lease_seconds=100)

    assert (await read(connection, taken)).status is Status.QUEUED
    row = sql.execute("SELECT lease_expires_at FROM jobs").fetchone()
    assert row == (None,)


async def test_a_heartbeat_does_not_wait_for_a_row_that_somebody_else_holds(
    connection: Connection, others: list[Connection], sql: psycopg.Connection
) -> None:
    held, free = await owned(connection, lease_seconds=5), await owned(connection, lease_seconds=5)

    async with others[0].transaction():
        await others[0].execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (held.id,))
        await workers.extend_leases(
            connection, [(held.id, held.lease_token), (free.id, free.lease_token)], lease_seconds=100
        )

    assert lease_left(sql, free) > 90


async def test_released_jobs_go_back_to_their_old_place_and_the_attempt_does_not_count(
    connection: Connection,
) -> None:
    first, second = await add_many(connection, 2)
    (taken,) = await claim(connection)

    assert await jobs.release_jobs(connection, [(taken.id, taken.lease_token)]) == [first.id]

    released = await read(connection, first)
    assert released == first
    assert [again.id for again in await claim(connection, 2)] == [first.id, second.id]
    assert "this attempt does not count" in (await messages(connection, first))[1]


async def test_a_job_can_be_released_any_number_of_times(connection: Connection) -> None:
    await add(connection, max_attempts=1)
    for _ in range(12):
        (taken,) = await claim(connection)
        assert taken.attempt == 1
        await jobs.release_jobs(connection, [(taken.id, taken.lease_token)])


async def test_a_release_without_the_lease_changes_nothing(connection: Connection, sql: psycopg.Connection) -> None:
    first = await owned(connection)
    expire(sql, first)
    await recover(connection, delay=0)
    (second,) = await claim(connection)
    before = await read(connection, first)

    assert await jobs.release_jobs(connection, [(first.id, first.lease_token)]) == []

    assert await read(connection, first) == before
    assert await finish(connection, second) is Status.COMPLETED


async def test_an_expired_lease_is_recovered_with_a_delay_and_counts_no_attempt(
    connection: Connection, sql: psycopg.Connection
) -> None:
    taken = await owned(connection)
    expire(sql, taken)
    lease_end = sql.execute("SELECT lease_expires_at FROM jobs").fetchone()
    assert lease_end is not None

    assert await recover(connection, delay=50) == {taken.id: Status.QUEUED}

    job = await read(connection, taken)
    assert (job.status, job.attempts) == (Status.QUEUED, 1)
    assert job.next_retry_at == lease_end[0] + timedelta(seconds=50)
    assert job.error == "Worker lost: the lease of attempt 1/5 ran out"
    assert "; next attempt in " in (await messages(connection, taken))[-1]
    assert await claim(connection) == []


async def test_a_job_whose_backoff_passed_before_its_recovery_runs_at_once(
    connection: Connection, sql: psycopg.Connection
) -> None:
    taken = await owned(connection)
    expire(sql, taken)

    await recover(connection, delay=0.5)

    assert [again.id for again in await claim(connection)] == [taken.id]


async def test_recovery_of_the_last_attempt_fails_the_job(connection: Connection, sql: psycopg.Connection) -> None:
    taken = await owned(connection, max_attempts=1)
    expire(sql, taken)

    assert await recover(connection, delay=0) == {taken.id: Status.FAILED}

    job = await read(connection, taken)
    assert (job.attempts, job.next_retry_at, job.completed_at is not None) == (1, None, True)
    assert await claim(connection) == []


async def test_a_job_that_kills_its_worker_each_time_ends_after_its_attempts(
    connection: Connection, sql: psycopg.Connection
) -> None:
    await add(connection, max_attempts=3)
    claims = []
    while taken := await claim(connection):
        claims += taken
        expire(sql, *taken)
        await recover(connection, delay=0)

    assert [taken.attempt for taken in claims] == [1, 2, 3]
    assert (await read(connection, claims[0])).status is Status.FAILED


async def test_a_live_lease_is_never_recovered(connection: Connection) -> None:
    taken = await owned(connection, lease_seconds=5)

    assert await recover(connection) == {}
    forced = [LostJob(taken.id, taken.lease_token, 1)]
    assert await recover(connection, forced) == {}
    assert await finish(connection, taken) is Status.COMPLETED


async def test_a_lease_renewed_between_look_and_recovery_is_kept(
    connection: Connection, sql: psycopg.Connection
) -> None:
    taken = await owned(connection)
    expire(sql, taken)
    lost = await workers.list_lost_jobs(connection, lease_seconds=0, stuck_seconds=600, max_jobs=10)
    assert [job.id for job in lost] == [taken.id]

    await workers.extend_leases(connection, [(taken.id, taken.lease_token)], lease_seconds=30)

    assert await recover(connection, lost) == {}
    assert await finish(connection, taken) is Status.COMPLETED


async def test_recovery_does_not_take_the_attempt_that_came_after_the_lost_one(
    connection: Connection, sql: psycopg.Connection
) -> None:
    first = await owned(connection)
    expire(sql, first)
    lost = await workers.list_lost_jobs(connection, lease_seconds=0, stuck_seconds=600, max_jobs=10)
    await recover(connection, lost, delay=0)
    (second,) = await claim(connection)
    expire(sql, second)

    assert await recover(connection, lost) == {}
    assert await finish(connection, second) is Status.COMPLETED


async def test_two_recoveries_at_once_recover_a_job_once(
    connection: Connection, others: list[Connection], sql: psycopg.Connection
) -> None:
    taken = await owned(connection)
    expire(sql, taken)
    lost = await workers.list_lost_jobs(connection, lease_seconds=0, stuck_seconds=600, max_jobs=10)

    async with others[0].transaction():
        first = await recover(others[0], lost)
        second = await recover(others[1], lost)

    assert (first, second) == ({taken.id: Status.QUEUED}, {})
    assert len([m for m in await messages(connection, taken) if "Recovered" in m]) == 1


async def test_a_full_page_of_jobs_that_cannot_be_recovered_does_not_hide_the_others(
    connection: Connection, others: list[Connection], sql: psycopg.Connection
) -> None:
    blocked, free = await owned(connection), await owned(connection)
    expire(sql, blocked, free)

    async with others[0].transaction():
        await others[0].execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (blocked.id,))
        assert await recover(connection) == {free.id: Status.QUEUED}

    assert await recover(connection) == {blocked.id: Status.QUEUED}


async def test_a_running_job_without_any_lease_is_stuck_only_past_the_threshold(
    connection: Connection, sql: psycopg.Connection
) -> None:
    taken = await owned(connection)
    sql.execute("UPDATE jobs SET lease_expires_at = NULL, started_at = now() - interval '9 minutes'")

    assert await recover(connection, stuck_seconds=600) == {}
    assert await recover(connection, stuck_seconds=500) == {taken.id: Status.QUEUED}


async def test_nothing_counts_as_lost_during_one_lease_after_the_start_of_the_server(
    connection: Connection, sql: psycopg.Connection
) -> None:
    taken = await owned(connection)
    expire(sql, taken)
    row = sql.execute("SELECT extract(epoch FROM now() - pg_postmaster_start_time())::float8").fetchone()
    assert row is not None
    (uptime,) = row

    async def look(lease_seconds: float) -> list[LostJob]:
        return await workers.list_lost_jobs(connection, lease_seconds=lease_seconds, stuck_seconds=600, max_jobs=10)

    assert await look(uptime + 100) == []
    assert [job.id for job in await look(uptime / 2)] == [taken.id]


async def test_a_worker_hears_which_of_its_leases_are_gone(connection: Connection, sql: psycopg.Connection) -> None:
    kept, cancelled, recovered, removed = [await owned(connection) for _ in range(4)]
    await jobs.cancel_job(connection, cancelled.id, actor="test")
    expire(sql, recovered)
    await recover(connection)
    sql.execute("DELETE FROM jobs WHERE id = %s", (removed.id,))

    lost = await workers.list_lost_leases(
        connection, [(taken.id, taken.lease_token) for taken in (kept, cancelled, recovered, removed)]
    )

    assert lost == {
        cancelled.lease_token: "cancelled",
        recovered.lease_token: "queued",
        removed.lease_token: "removed",
    }


async def test_an_end_waits_for_the_release_and_then_changes_nothing(
    connection: Connection, others: list[Connection], sql: psycopg.Connection
) -> None:
    taken = await owned(connection)

    async with others[0].transaction():
        await jobs.release_jobs(others[0], [(taken.id, taken.lease_token)])
        ending = asyncio.create_task(finish(others[1], taken))
        await until_blocked(sql, others[1])

    assert await ending is None
    assert (await read(connection, taken)).attempts == 0


def worker_record() -> WorkerRecord:
    return WorkerRecord(id=uuid4(), hostname="h", pid=1, version="0", types=["a"], concurrency=1)


async def test_a_worker_that_comes_back_after_a_long_silence_is_woken_by_inserts_again(
    connection: Connection, sql: psycopg.Connection
) -> None:
    record = worker_record()
    await workers.upsert_worker(connection, record, lease_seconds=10)
    sql.execute("UPDATE workers SET heartbeat_at = now() - interval '1 minute'")
    await workers.prune_workers(connection, lease_seconds=10)
    assert sql.execute("SELECT is_idle FROM workers").fetchone() == (False,)

    await workers.upsert_worker(connection, record, lease_seconds=10)

    assert sql.execute("SELECT is_idle FROM workers").fetchone() == (True,)


async def test_a_heartbeat_does_not_make_a_busy_worker_idle(connection: Connection, sql: psycopg.Connection) -> None:
    record = worker_record()
    await workers.upsert_worker(connection, record, lease_seconds=10)
    await workers.set_worker_idle(connection, record.id, is_idle=False)

    await workers.upsert_worker(connection, record, lease_seconds=10)

    assert sql.execute("SELECT is_idle FROM workers").fetchone() == (False,)


async def test_workers_silent_for_a_day_are_forgotten_and_others_are_not(
    connection: Connection, sql: psycopg.Connection
) -> None:
    gone, here = worker_record(), worker_record()
    for record in (gone, here):
        await workers.upsert_worker(connection, record, lease_seconds=10)
    sql.execute("UPDATE workers SET heartbeat_at = now() - interval '25 hours' WHERE id = %s", (gone.id,))

    await workers.prune_workers(connection, lease_seconds=10)

    assert [record.id for record in await workers.list_workers(connection)] == [here.id]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Pacific/Kiritimati"])
async def test_times_and_delays_do_not_depend_on_the_time_zone_of_the_session(
    connection: Connection, settings: Settings, zone: str
) -> None:
    await connection.execute(f"SET timezone = '{zone}'".encode())
    taken = await owned(connection)

    await finish(connection, taken, "failed", delay_seconds=60)

    job = await read(connection, taken)
    assert job.started_at is not None
    assert job.created_at.utcoffset() is not None
    assert job.created_at.utcoffset().total_seconds() == 0  # type: ignore[union-attr]
    assert 59 < (job.next_run_at - job.started_at).total_seconds() < 70


async def test_the_view_of_attempts_tells_each_claim_although_numbers_come_again(
    connection: Connection, sql: psycopg.Connection
) -> None:
    job = await add(connection, max_attempts=1)
    [first] = await claim(connection)
    await jobs.release_jobs(connection, [(first.id, first.lease_token)])
    [second] = await claim(connection)
    await finish(connection, second, "failed", error="no")
    await search.retry_jobs(connection, [job.id], actor="test")
    [third] = await claim(connection)
    await finish(connection, third)

    seen = sql.execute("SELECT attempt, outcome FROM job_attempts ORDER BY started_at").fetchall()

    assert seen == [(1, "released"), (1, "failed"), (1, "completed")]
