"""What wakes a worker, one way at a time: NOTIFY with polling off, polling with NOTIFY off (failures.md 1.C)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from jobqueue.job import Priority, Status
from jobqueue.settings import Settings
from jobqueue.store import jobs
from jobqueue.store.db import Connection
from jobqueue.worker import watch
from tests.conftest import MakeSettings
from tests.jobs import add, add_many, claim, messages, read, until_status
from tests.overlap import eventually
from tests.worker.conftest import RunWorker, asleep
from tests.worker.probes import released
from tests.worker.processes import Ledger

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
NEVER = 60.0
"""Longer than any test waits."""


@pytest.fixture
def only_notify(make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings with which nothing is found by polling."""
    monkeypatch.setattr(watch, "_LONGEST_POLL_SECONDS", NEVER)
    return make_settings(poll_seconds=NEVER)


@pytest.fixture
def only_poll(make_settings: MakeSettings) -> Settings:
    """Settings with which no notification is ever heard."""
    return make_settings(database_direct_url=NOWHERE, poll_seconds=0.3)


async def test_a_create_wakes_a_sleeping_worker(
    connection: Connection, run_worker: RunWorker, only_notify: Settings
) -> None:
    async with run_worker(only_notify) as worker:
        for _ in range(5):
            await asleep(worker)
            job = await add(connection)
            await until_status(connection, job, "completed")


async def test_a_plain_insert_from_sql_wakes_a_sleeping_worker(
    connection: Connection, run_worker: RunWorker, only_notify: Settings, sql: psycopg.Connection
) -> None:
    async with run_worker(only_notify) as worker:
        await asleep(worker)
        sql.execute("INSERT INTO jobs (type) VALUES ('email_send')")
        await eventually(lambda: sql.execute("SELECT 1 FROM jobs WHERE status = 'completed'").fetchone())


async def test_a_worker_that_was_busy_is_woken_again_once_it_sleeps(
    connection: Connection, run_worker: RunWorker, only_notify: Settings, sql: psycopg.Connection
) -> None:
    sql.execute(
        "CREATE TABLE marks (is_idle boolean);"
        "CREATE FUNCTION note_mark() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO marks VALUES (NEW.is_idle); RETURN NEW; END';"
        "CREATE TRIGGER note_mark AFTER UPDATE ON workers FOR EACH ROW"
        " WHEN (OLD.is_idle <> NEW.is_idle) EXECUTE FUNCTION note_mark()"
    )
    async with run_worker(only_notify) as worker:
        await asleep(worker)
        added = await add_many(connection, 200)
        await until_status(connection, added[-1], "completed")
        await asleep(worker)
        assert sql.execute("SELECT is_idle FROM marks").fetchall() == [(False,), (True,)]

        await until_status(connection, await add(connection), "completed")


async def test_a_stream_of_inserts_makes_a_worker_with_free_slots_busy_and_notifies_no_more(
    connection: Connection, run_worker: RunWorker, only_notify: Settings, sql: psycopg.Connection
) -> None:
    async with run_worker(only_notify) as worker:
        await asleep(worker)
        is_busy = False
        for _ in range(200):
            await add(connection)
            row = sql.execute("SELECT is_idle FROM workers").fetchone()
            is_busy = is_busy or row == (False,)
            if is_busy:
                break
        assert is_busy
        last = await add(connection)

        await until_status(connection, last, "completed")
        await asleep(worker)


async def test_a_retry_starts_when_it_is_due_also_when_it_was_written_while_the_worker_slept(
    connection: Connection, run_worker: RunWorker, only_notify: Settings, ledger: Ledger
) -> None:
    payload = {"do": "fail_once", "path": f"{ledger.path}.mark", "seconds": 0.3, "delay": 0.5}
    async with run_worker(only_notify) as worker:
        await asleep(worker)
        job = await add(connection, "probe", payload=payload)

        done = await until_status(connection, job, "completed")

    assert done.attempts == 2
    claimed = [line.created_at for line in await jobs.list_job_logs(connection, job.id) if "Claimed" in line.message]
    assert (claimed[1] - claimed[0]).total_seconds() >= 0.8


async def test_a_scheduled_job_starts_at_its_time_and_not_before(
    connection: Connection, run_worker: RunWorker, only_notify: Settings
) -> None:
    async with run_worker(only_notify) as worker:
        await asleep(worker)
        job = await add(connection, run_at=datetime.now(UTC) + timedelta(seconds=1))
        done = await until_status(connection, job, "completed")

    assert done.started_at is not None
    assert done.started_at >= job.next_run_at


async def test_a_released_job_wakes_other_workers(
    connection: Connection, run_worker: RunWorker, only_notify: Settings
) -> None:
    job = await add(connection)
    (taken,) = await claim(connection)
    async with run_worker(only_notify) as worker:
        await asleep(worker)
        await jobs.release_jobs(connection, [(taken.id, taken.lease_token)])
        await until_status(connection, job, "completed")


async def test_without_notifications_jobs_are_found_by_polling(
    connection: Connection, run_worker: RunWorker, only_poll: Settings
) -> None:
    async with run_worker(only_poll) as worker:
        for _ in range(3):
            await until_status(connection, await add(connection), "completed")
        assert not worker._listener.is_listening


async def test_a_lost_listening_connection_comes_back_and_jobs_run_meanwhile(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings, sql: psycopg.Connection
) -> None:
    def listener_pid() -> int | None:
        row = sql.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE application_name = 'jobqueue-worker-listen' AND datname = current_database()"
        ).fetchone()
        return row[0] if row else None

    async with run_worker(make_settings(poll_seconds=0.5)) as worker:
        for _ in range(2):
            await eventually(lambda: worker._listener.is_listening, "the worker listens")
            pid = listener_pid()
            sql.execute("SELECT pg_terminate_backend(%s)", (pid,))
            await until_status(connection, await add(connection), "completed")
            await eventually(lambda old=pid: listener_pid() not in {None, old}, "a new listening connection")

    assert worker._listener.is_listening is False


async def test_what_was_missed_while_nobody_listened_is_looked_for_at_the_reconnect(
    connection: Connection, run_worker: RunWorker, only_notify: Settings, sql: psycopg.Connection
) -> None:
    async with run_worker(only_notify) as worker:
        await asleep(worker)
        async with connection.transaction():
            # Not committed yet when the listening connection dies, and its notification goes nowhere.
            job = await add(connection)
            sql.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'jobqueue-worker-listen' AND datname = current_database()"
            )
            await eventually(lambda: not worker._listener.is_listening, "the loss is noticed")
        await until_status(connection, job, "completed")


async def test_a_running_job_hears_of_its_cancellation_by_notification(
    connection: Connection, run_worker: RunWorker, only_notify: Settings, ledger: Ledger
) -> None:
    async with run_worker(only_notify) as worker:
        await asleep(worker)
        await _cancel_a_running_job(connection, ledger)


async def test_a_running_job_hears_of_its_cancellation_by_polling(
    connection: Connection, run_worker: RunWorker, only_poll: Settings, ledger: Ledger
) -> None:
    async with run_worker(only_poll):
        await _cancel_a_running_job(connection, ledger)


async def _cancel_a_running_job(connection: Connection, ledger: Ledger) -> None:
    job = await add(connection, "probe", payload={"do": "late_result", "ledger": str(ledger.path)})
    await ledger.until("start")

    cancelled = await jobs.cancel_job(connection, job.id, actor="test")
    await ledger.until("told")

    async def is_noted() -> bool:
        return any("its result was discarded" in message for message in await messages(connection, job))

    await eventually(is_noted, "the discarded result is logged")
    assert await read(connection, job) == cancelled
    assert cancelled.status is Status.CANCELLED


async def test_a_cancelled_thread_goes_on_and_its_result_changes_nothing(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings, ledger: Ledger
) -> None:
    async with run_worker(make_settings(worker_concurrency=1)):
        job = await add(connection, "thread_probe", payload={"do": "stubborn", "ledger": str(ledger.path)})
        await ledger.until("start")
        cancelled = await jobs.cancel_job(connection, job.id, actor="test")
        next_job = await add(connection)
        released.set()
        await until_status(connection, next_job, "completed")

    assert await read(connection, job) == cancelled
    assert [entry.word for entry in ledger.entries()] == ["start", "end"]


async def test_all_due_high_jobs_run_before_medium_and_low_and_each_in_order_of_arrival(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings, ledger: Ledger
) -> None:
    expected = []
    for queue, priority in [
        ("fifo", Priority.HIGH),
        ("default", Priority.LOW),
        ("default", Priority.MEDIUM),
        ("default", Priority.HIGH),
    ]:
        names = [f"{queue}-{priority}-{number}" for number in range(3)]
        expected = names + expected
        for name in names:
            payload = {"name": name, "ledger": str(ledger.path)}
            last = await add(connection, "probe", queue=queue, priority=priority, payload=payload)

    async with run_worker(make_settings(worker_concurrency=1)):
        await ledger.until("end", number=12)

    assert [entry.name for entry in ledger.entries("start")] == expected
    assert last is not None


async def test_types_this_worker_does_not_know_stay_queued(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings
) -> None:
    unknown = await add(connection, "of_a_newer_release", priority=Priority.HIGH)

    async with run_worker():
        await until_status(connection, await add(connection), "completed")

    now = await read(connection, unknown)
    assert (now.status, now.attempts) == (Status.QUEUED, 0)


async def test_a_worker_without_redis_works(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings
) -> None:
    async with run_worker(make_settings(redis_url="redis://127.0.0.1:1/0")):
        for job in await add_many(connection, 20):
            await until_status(connection, job, "completed")


async def test_two_workers_share_the_jobs_and_run_each_once(
    connection: Connection, run_worker: RunWorker, quick: Callable[..., Settings], ledger: Ledger
) -> None:
    async with run_worker(quick()), run_worker(quick()):
        added = [
            await add(connection, "probe", payload={"name": str(number), "ledger": str(ledger.path)})
            for number in range(60)
        ]
        await asyncio.gather(*(until_status(connection, job, "completed") for job in added[-3:]))
        for job in added:
            await until_status(connection, job, "completed")

    assert sorted(entry.name for entry in ledger.entries("start")) == sorted(str(number) for number in range(60))
