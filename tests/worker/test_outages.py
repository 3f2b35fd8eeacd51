"""The database away, frozen, or silent at the worst moment (failures.md 1.B, 1.D)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

import psycopg
import pytest

from jobqueue.errors import Unavailable
from jobqueue.job import LogLevel, Status
from jobqueue.settings import Settings
from jobqueue.store import db, workers
from jobqueue.store.db import Connection, Line
from jobqueue.store.jobs import LogLine
from jobqueue.worker.outcomes import OutcomeWriter, Statuses
from tests.conftest import MakeSettings
from tests.jobs import add, add_many, messages, outcome, owned, read, until_status
from tests.overlap import eventually, until_blocked
from tests.proxy import proxied
from tests.worker.conftest import RunWorker, StartWorker
from tests.worker.processes import Ledger

Quick = Callable[..., Settings]


def terminate_all(sql: psycopg.Connection, who: str = "jobqueue-worker%") -> None:
    sql.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND application_name LIKE %s",
        (who,),
    )


async def test_connections_that_die_again_and_again_under_load_lose_no_job(
    connection: Connection, run_worker: RunWorker, quick: Quick, sql: psycopg.Connection, ledger: Ledger
) -> None:
    kills = 0
    async with run_worker(quick(lease_seconds=1, worker_concurrency=8)):
        added = [
            await add(
                connection,
                "probe",
                payload={"do": "sleep", "seconds": 0.03, "name": str(n), "ledger": str(ledger.path)},
            )
            for n in range(120)
        ]
        while len(ledger.entries("end")) < 100:
            terminate_all(sql)
            kills += 1
            seen = len(ledger.entries("end"))
            await eventually(lambda seen=seen: len(ledger.entries("end")) > seen, "work goes on")
        for job in added:
            assert (await until_status(connection, job, "completed", "failed")).status is Status.COMPLETED

    starts = [entry.name for entry in ledger.entries("start")]
    assert kills >= 3
    assert set(starts) == {str(n) for n in range(120)}
    assert len(starts) <= 120 + kills * 8


async def test_a_job_that_ends_while_the_database_is_away_is_recorded_without_a_second_run(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings, settings: Settings, ledger: Ledger
) -> None:
    async with proxied(settings) as proxy:
        own = make_settings(database_url=proxy.url, lease_seconds=30, database_timeout_seconds=1)
        async with run_worker(own):
            payload = {"do": "wait_for_file", "path": f"{ledger.path}.go", "ledger": str(ledger.path)}
            job = await add(connection, "probe", payload=payload)
            await ledger.until("start")
            await proxy.cut()
            ledger.path.with_name(f"{ledger.path.name}.go").touch()
            await ledger.until("end")
            assert (await read(connection, job)).status is Status.PROCESSING

            await proxy.open()
            done = await until_status(connection, job, "completed")
            assert (await until_status(connection, await add(connection), "completed")).attempts == 1

    assert done.attempts == 1
    assert len(ledger.entries("start")) == 1


async def test_a_server_that_freezes_is_given_up_and_found_again(
    connection: Connection, run_worker: RunWorker, quick: Quick, settings: Settings
) -> None:
    async with proxied(settings) as proxy:
        own = quick(database_url=proxy.url, database_timeout_seconds=0.5)
        # What was sent to the frozen server is carried out when it thaws: a claim that nobody hears of is one of those.
        async with run_worker(own) as worker:
            await until_status(connection, await add(connection), "completed")
            proxy.freeze()
            await eventually(lambda: worker._sleeper._failures >= 2, "claims are given up")
            job = await add(connection)
            proxy.thaw()
            await until_status(connection, job, "completed")


@pytest.mark.parametrize("name", ["finish_jobs", "extend_leases", "set_worker_idle"])
async def test_an_answer_that_is_lost_after_the_commit_does_no_harm(
    connection: Connection,
    run_worker: RunWorker,
    make_settings: MakeSettings,
    settings: Settings,
    ledger: Ledger,
    name: str,
) -> None:
    async with proxied(settings) as proxy:
        own = make_settings(database_url=proxy.url, lease_seconds=30, heartbeat_seconds=0.2)
        async with run_worker(own) as worker:
            worker._sleeper._marked_at = -60  # it may mark itself busy at once
            proxy.drop_answer_to(name)
            added = await add_many(connection, 40, "probe", payload={"do": "talk", "ledger": str(ledger.path)})
            slow = await add(connection, "probe", payload={"do": "sleep", "seconds": 0.5})
            for job in [*added, slow]:
                assert (await until_status(connection, job, "completed", "failed")).status is Status.COMPLETED
            await asyncio.wait_for(proxy.dropped.wait(), 20)
            await until_status(connection, await add(connection), "completed")

    assert len(ledger.entries("start")) == 40
    for job in added:
        assert not any("discarded" in line for line in await messages(connection, job))


async def test_a_claim_whose_answer_is_lost_is_handed_back_at_once_and_costs_nothing(
    connection: Connection, run_worker: RunWorker, quick: Quick, settings: Settings, ledger: Ledger
) -> None:
    job = await add(connection, "probe", payload={"ledger": str(ledger.path)})
    async with proxied(settings) as proxy:
        proxy.drop_answer_to("claim_jobs")
        async with run_worker(quick(database_url=proxy.url, lease_seconds=600)):
            await asyncio.wait_for(proxy.dropped.wait(), 20)
            done = await until_status(connection, job, "completed")

    assert len(ledger.entries("start")) == 1
    assert done.attempts == 1


async def test_a_claim_whose_answer_comes_after_its_lease_is_not_started_and_costs_nothing(
    connection: Connection,
    run_worker: RunWorker,
    quick: Quick,
    settings: Settings,
    ledger: Ledger,
    sql: psycopg.Connection,
) -> None:
    async with proxied(settings) as proxy, run_worker(quick(database_url=proxy.url, lease_seconds=1.2)):
        await eventually(lambda: sql.execute("SELECT count(*) FROM workers").fetchone() == (1,), "the worker is there")
        proxy.freeze()
        job = await add(connection, "probe", payload={"ledger": str(ledger.path)})
        frozen_until = time.monotonic() + 2
        await eventually(lambda: time.monotonic() > frozen_until, "a lease has passed")
        proxy.thaw()
        done = await until_status(connection, job, "completed")

    assert len(ledger.entries("start")) == 1
    assert done.attempts == 1


async def test_a_worker_stops_although_the_database_is_away(
    connection: Connection, start_worker: StartWorker, quick: Quick, settings: Settings, ledger: Ledger
) -> None:
    async with proxied(settings) as proxy:
        own = quick(database_url=proxy.url, shutdown_grace_seconds=0.2, database_timeout_seconds=1)
        running = start_worker(own)
        job = await add(connection, "probe", payload={"do": "sleep", "seconds": 600, "ledger": str(ledger.path)})
        await ledger.until("start")
        idle = start_worker(own)
        await idle.until_logged("listening")
        await proxy.cut()

        running.send(signal.SIGTERM)
        idle.send(signal.SIGTERM)

        assert await running.exit_code() == 1, "its job could not be handed back"
        assert await idle.exit_code() == 0, idle.log_text()[-3000:]
    assert (await read(connection, job)).status is Status.PROCESSING


async def test_a_worker_stops_although_the_database_is_frozen(
    connection: Connection, start_worker: StartWorker, quick: Quick, settings: Settings, ledger: Ledger
) -> None:
    async with proxied(settings) as proxy:
        worker = start_worker(quick(database_url=proxy.url, shutdown_grace_seconds=0.2))
        await add(connection, "probe", payload={"do": "sleep", "seconds": 600, "ledger": str(ledger.path)})
        await ledger.until("start")
        proxy.freeze()

        worker.send(signal.SIGTERM)

        assert await worker.exit_code() == 1


async def test_a_statement_without_answer_is_given_up_in_time(connection: Connection, settings: Settings) -> None:
    async with proxied(settings) as proxy:
        own = await db.connect(proxy.url, settings, "test")
        await db.run(own, "list_queues")
        proxy.freeze()

        with pytest.raises(Unavailable):
            await asyncio.wait_for(db.run(own, "list_queues", timeout=0.3), 10)

        assert own.closed or own.broken
        await own.close()


async def test_a_line_is_usable_again_after_a_cancelled_statement_and_holds_no_lock(
    connection: Connection, settings: Settings, sql: psycopg.Connection
) -> None:
    taken = await owned(connection)
    line = Line(settings, "test-line")

    async def renew() -> None:
        async with line.use() as used:
            await used.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (taken.id,))

    async with connection.transaction():
        await connection.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (taken.id,))
        async with line.use() as used:
            old = used
        waiting = asyncio.create_task(renew())
        await until_blocked(sql, old)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    await asyncio.wait_for(renew(), 10)
    async with line.use() as used:
        assert used is not old, "nobody knows what the server still sends on the old connection"
        await workers.extend_leases(used, [(taken.id, taken.lease_token)], lease_seconds=50)
    await line.close()


async def test_a_line_is_used_by_one_at_a_time_and_opens_again_after_its_backend_died(
    settings: Settings, sql: psycopg.Connection
) -> None:
    line = Line(settings, "test-line")
    async with line.use() as used:
        first = used.info.backend_pid
    terminate_all(sql, "jobqueue-test-line")

    with pytest.raises(Unavailable):
        async with line.use() as used:
            await db.run(used, "list_queues")
    async with line.use() as used:
        assert used.info.backend_pid != first
        second = asyncio.create_task(_queues(line))
        assert len(await db.run(used, "list_queues")) == 2
        assert not second.done()
    assert await second == 2
    await line.close()


async def _queues(line: Line) -> int:
    async with line.use() as used:
        return len(await db.run(used, "list_queues"))


async def test_a_database_that_takes_no_writes_is_away_and_is_found_again_without_a_restart(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings, sql: psycopg.Connection
) -> None:
    async with run_worker(make_settings(database_timeout_seconds=2)) as worker:
        await until_status(connection, await add(connection), "completed")
        row = sql.execute("SELECT current_database()").fetchone()
        assert row is not None
        sql.execute(f'ALTER DATABASE "{row[0]}" SET default_transaction_read_only = on'.encode())
        terminate_all(sql)
        await eventually(lambda: worker._sleeper._failures >= 1, "claims are refused")

        sql.execute(f'ALTER DATABASE "{row[0]}" RESET default_transaction_read_only'.encode())
        await until_status(connection, await add(connection), "completed")


async def test_one_outcome_that_the_database_refuses_fails_alone(
    connection: Connection, settings: Settings, sql: psycopg.Connection
) -> None:
    claims = [await owned(connection, max_attempts=1) for _ in range(5)]
    written: Statuses = {}
    writer = OutcomeWriter(settings, lambda _, statuses: written.update(statuses or {}))
    poison = outcome(claims[2], result=b'{"n": 1e200000}')

    for taken in claims:
        writer.finish(poison if taken is claims[2] else outcome(taken, result=b"1"))
    await writer.drain()
    await writer.close()

    assert [written[taken.lease_token] for taken in claims] == [Status.COMPLETED] * 2 + [Status.FAILED] + [
        Status.COMPLETED
    ] * 2
    assert (await read(connection, claims[2])).error == "The outcome of this attempt was refused by the database"


async def test_outcomes_wait_for_the_database_and_the_lines_stand_before_them(
    connection: Connection, settings: Settings, make_settings: MakeSettings
) -> None:
    taken = await owned(connection)
    async with proxied(settings) as proxy:
        await proxy.cut()
        written: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        writer = OutcomeWriter(
            make_settings(database_url=proxy.url),
            lambda outcomes, statuses: outcomes and statuses and written.set_result(statuses[outcomes[0].lease_token]),
        )
        for number in range(3):
            writer.append(LogLine(taken.id, 1, LogLevel.INFO, f"line {number}", 0), asyncio.get_running_loop().time())
        writer.finish(outcome(taken))
        done, _ = await asyncio.wait({written}, timeout=0.2)
        assert not done
        await proxy.open()

        assert await asyncio.wait_for(written, 20) is Status.COMPLETED
        await writer.close()

    lines = await messages(connection, taken)
    assert lines[1:4] == ["line 0", "line 1", "line 2"]
    assert lines[4].startswith("Completed")
