"""A person holds the row of a running job in an open transaction: it waits, and nobody else does; nothing is stolen."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg.conninfo import make_conninfo

from jobqueue.job import Job, Status
from jobqueue.settings import Settings
from jobqueue.store import jobs
from jobqueue.store.db import Connection
from tests.jobs import add, add_many, read, until_status
from tests.overlap import eventually
from tests.worker.conftest import RunWorker, StartWorker
from tests.worker.probes import released
from tests.worker.processes import Ledger

Quick = Callable[..., Settings]


async def probe(connection: Connection, ledger: Ledger, do: str, **payload: object) -> Job:
    return await add(connection, "probe", payload={"do": do, "ledger": str(ledger.path), **payload})


def hold(holder: psycopg.Connection, job: Job) -> None:
    holder.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (job.id,))


async def test_the_outcomes_of_other_jobs_are_written_while_one_row_is_held(
    connection: Connection, run_worker: RunWorker, quick: Quick, ledger: Ledger, database_url: str
) -> None:
    with psycopg.connect(make_conninfo(database_url)) as holder:
        async with run_worker(quick(worker_concurrency=4)):
            held = await probe(connection, ledger, "wait_for_file", name="held", path=f"{ledger.path}.go")
            await ledger.until("start", "held")
            hold(holder, held)
            (ledger.path.parent / f"{ledger.path.name}.go").touch()
            await ledger.until("end", "held")
            for _ in range(3):
                other = await probe(connection, ledger, "nothing")
                assert (await until_status(connection, other, "completed")).status is Status.COMPLETED
            holder.rollback()
            assert (await until_status(connection, held, "completed", "failed")).status is Status.COMPLETED
    assert len(ledger.entries("start", "held")) == 1


async def test_a_live_job_whose_row_was_held_for_longer_than_its_lease_is_not_taken(
    connection: Connection,
    run_worker: RunWorker,
    quick: Quick,
    ledger: Ledger,
    database_url: str,
    sql: psycopg.Connection,
) -> None:
    expired = "SELECT lease_expires_at < now() - interval '0.5 s' FROM jobs WHERE status = 'processing'"
    with psycopg.connect(make_conninfo(database_url)) as holder:
        async with run_worker(quick()), run_worker(quick()):
            job = await probe(connection, ledger, "wait_for_file", path=f"{ledger.path}.go")
            await ledger.until("start")
            hold(holder, job)
            await eventually(lambda: sql.execute(expired).fetchone() == (True,), "the lease has run out")
            holder.rollback()
            renewed = "SELECT lease_expires_at > now() FROM jobs WHERE status = 'processing'"
            await eventually(lambda: sql.execute(renewed).fetchone() == (True,), "the lease is renewed")
            (ledger.path.parent / f"{ledger.path.name}.go").touch()
            await until_status(connection, job, "completed")
    assert len(ledger.entries("start")) == 1


async def test_cancelled_threads_that_fill_every_slot_do_not_end_the_worker_at_once(
    connection: Connection, run_worker: RunWorker, quick: Quick, ledger: Ledger
) -> None:
    async with run_worker(quick(worker_concurrency=1, shutdown_grace_seconds=60)):
        job = await add(connection, "thread_probe", payload={"do": "stubborn", "ledger": str(ledger.path)})
        await ledger.until("start")
        await jobs.cancel_job(connection, job.id, actor="test")
        other = await probe(connection, ledger, "nothing", name="other")
        released.set()
        await until_status(connection, other, "completed")
    assert (await read(connection, job)).status is Status.CANCELLED


async def test_a_job_that_blocks_the_loop_past_every_time_limit_ends_its_worker(
    connection: Connection, start_worker: StartWorker, quick: Quick, ledger: Ledger
) -> None:
    settings = quick(job_max_execution_seconds=1, shutdown_grace_seconds=1, worker_concurrency=1)
    job = await add(
        connection, "probe", max_attempts=1, payload={"do": "block", "seconds": 600, "ledger": str(ledger.path)}
    )
    worker = start_worker(settings)
    await ledger.until("start")
    assert await worker.exit_code() == 1
    assert "loop_blocked" in worker.log_text()

    start_worker(settings)

    assert "Worker lost" in str((await until_status(connection, job, "failed")).error)


async def test_a_batch_of_jobs_is_written_although_one_row_of_it_is_held(
    connection: Connection, run_worker: RunWorker, quick: Quick, ledger: Ledger, database_url: str
) -> None:
    with psycopg.connect(make_conninfo(database_url)) as holder:
        async with run_worker(quick(worker_concurrency=20)):
            payload = {"do": "wait_for_file", "path": f"{ledger.path}.go", "ledger": str(ledger.path)}
            many = await add_many(connection, 10, "probe", payload=payload)
            await ledger.until("start", number=10)
            hold(holder, many[4])
            (ledger.path.parent / f"{ledger.path.name}.go").touch()
            for job in (*many[:4], *many[5:]):
                await until_status(connection, job, "completed")
            holder.rollback()
            await until_status(connection, many[4], "completed")
