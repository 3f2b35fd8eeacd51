"""Worker processes that are stopped, killed, frozen, and poisoned (failures.md 1.E, 1.F, 1.J)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psycopg

from jobqueue.job import Job, Status
from jobqueue.settings import Settings
from jobqueue.store import jobs
from jobqueue.store.db import Connection
from tests.jobs import add, add_many, messages, read, until_status
from tests.overlap import eventually
from tests.worker.conftest import StartWorker
from tests.worker.processes import Ledger

Quick = Callable[..., Settings]


async def probe(connection: Connection, ledger: Ledger, do: str, *, max_attempts: int = 5, **payload: object) -> Job:
    return await add(
        connection, "probe", max_attempts=max_attempts, payload={"do": do, "ledger": str(ledger.path), **payload}
    )


async def until_stopping(sql: psycopg.Connection) -> None:
    await eventually(lambda: sql.execute("SELECT 1 FROM workers WHERE is_stopping").fetchone(), "the stop has begun")


async def test_a_stopping_worker_lets_its_job_finish_claims_nothing_more_and_exits_with_0(
    connection: Connection, sql: psycopg.Connection, start_worker: StartWorker, ledger: Ledger, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    running = await probe(connection, ledger, "wait_for_file", path=str(go))
    worker = start_worker()
    await ledger.until("start")

    worker.send(signal.SIGTERM)
    worker.send(signal.SIGTERM)  # deployment tools send it twice
    await until_stopping(sql)
    late = await add(connection)
    go.touch()

    assert await worker.exit_code() == 0
    assert (await read(connection, running)).status is Status.COMPLETED
    assert (await read(connection, late)).status is Status.QUEUED
    assert sql.execute("SELECT count(*) FROM workers").fetchone() == (0,)


async def test_jobs_longer_than_the_grace_period_are_handed_back_uncounted_and_the_exit_code_is_0(
    connection: Connection, start_worker: StartWorker, ledger: Ledger, quick: Quick
) -> None:
    added = [
        await probe(connection, ledger, "sleep", seconds=600),
        await probe(connection, ledger, "stubborn"),
        await add(connection, "thread_probe", payload={"do": "stubborn", "ledger": str(ledger.path)}),
    ]
    worker = start_worker(quick(shutdown_grace_seconds=0.3))
    await ledger.until("start", number=3)

    worker.send(signal.SIGINT)

    assert await worker.exit_code() == 0
    for job in added:
        now = await read(connection, job)
        assert (now.status, now.attempts, now.started_at, now.error) == (Status.QUEUED, 0, None, None)
    assert "Handed back by its worker" in (await messages(connection, added[0]))[-1]


async def test_a_worker_whose_loop_is_blocked_hands_its_jobs_back_and_ends_all_the_same(
    connection: Connection, start_worker: StartWorker, ledger: Ledger, quick: Quick
) -> None:
    job = await probe(connection, ledger, "block", seconds=600)
    worker = start_worker(quick(shutdown_grace_seconds=0.1))
    await ledger.until("start")

    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    now = await read(connection, job)
    assert (now.status, now.attempts) == (Status.QUEUED, 0)
    assert "stop_by_force" in worker.log_text()


async def test_a_stop_during_the_start_is_not_lost(start_worker: StartWorker, quick: Quick) -> None:
    worker = start_worker(quick(database_url="postgresql://nobody@127.0.0.1:1/nothing"))
    await worker.until_logged("waiting_for_database")

    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0


async def test_a_worker_whose_slots_are_all_stuck_exits_so_that_a_fresh_one_can_start(
    connection: Connection, start_worker: StartWorker, ledger: Ledger, quick: Quick
) -> None:
    stuck = [
        await add(connection, kind, max_attempts=1, payload={"do": "stubborn", "ledger": str(ledger.path)})
        for kind in ("short_thread_probe", "short_probe")
    ]
    worker = start_worker(quick(worker_concurrency=2))
    await ledger.until("start", number=2)

    assert await worker.exit_code() == 1

    assert [(await read(connection, job)).error for job in stuck] == ["Execution timed out after 1s"] * 2
    start_worker(quick(worker_concurrency=2))
    await until_status(connection, await add(connection), "completed")


async def test_a_killed_workers_job_runs_again_although_the_restart_was_quick(
    connection: Connection, start_worker: StartWorker, ledger: Ledger, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = await probe(connection, ledger, "wait_for_file", path=str(go))
    first = start_worker()
    await ledger.until("start")

    first.kill()
    go.touch()
    second = start_worker()
    done = await until_status(connection, job, "completed")

    assert done.attempts == 2
    assert [entry.pid for entry in ledger.entries("start")] == [first.pid, second.pid]
    assert any("stopped renewing the lease of attempt 1/5" in line for line in await messages(connection, job))


async def test_a_job_that_kills_its_worker_ends_failed_and_all_others_are_completed(
    connection: Connection, start_worker: StartWorker, ledger: Ledger, quick: Quick
) -> None:
    good = [await probe(connection, ledger, "nothing", name=f"good-{number}") for number in range(5)]
    pill = await probe(connection, ledger, "kill", max_attempts=2, name="pill")
    good += [await probe(connection, ledger, "nothing", name=f"good-{number}") for number in range(5, 10)]
    workers = [start_worker(quick(worker_concurrency=2))]

    async def is_over() -> bool:
        if not workers[-1].is_running:
            workers.append(start_worker(quick(worker_concurrency=2)))
        return (await read(connection, pill)).status is Status.FAILED

    await eventually(is_over, "the poison pill is given up", 60)

    for job in good:
        await until_status(connection, job, "completed")
    failed = await read(connection, pill)
    assert (failed.attempts, failed.error) == (2, "Worker lost: the lease of attempt 2/2 ran out")
    assert len(ledger.entries("start", "pill")) == 2
    assert len(workers) == 3


async def test_a_frozen_worker_that_wakes_up_changes_nothing_and_goes_on_working(
    connection: Connection, start_worker: StartWorker, ledger: Ledger, tmp_path: Path
) -> None:
    job = await probe(connection, ledger, "wait_for_file", path=str(tmp_path / "go-PID"))
    first = start_worker()
    await ledger.until("start")

    first.send(signal.SIGSTOP)
    second = start_worker()
    taken_over = await ledger.until("start", number=2)
    assert taken_over.pid == second.pid

    (tmp_path / f"go-{first.pid}").touch()
    first.send(signal.SIGCONT)
    await eventually(lambda: _mentions(connection, job, "its result was discarded"), "the late end is noted")
    assert (await read(connection, job)).status is Status.PROCESSING

    (tmp_path / f"go-{second.pid}").touch()
    done = await until_status(connection, job, "completed", "failed")
    assert done.result is not None
    assert (done.status, done.attempts, bytes(done.result)) == (Status.COMPLETED, 2, str(second.pid).encode())

    second.send(signal.SIGTERM)
    await second.exit_code()
    next_job = await probe(connection, ledger, "nothing", name="next")
    await until_status(connection, next_job, "completed")
    assert (await ledger.until("start", "next")).pid == first.pid


async def _mentions(connection: Connection, job: Job, text: str) -> bool:
    return any(text in message for message in await messages(connection, job))


async def test_a_job_that_blocks_its_workers_loop_for_two_leases_is_not_taken_from_it(
    connection: Connection, start_worker: StartWorker, ledger: Ledger, sql: psycopg.Connection
) -> None:
    workers = [start_worker(), start_worker()]
    await eventually(lambda: sql.execute("SELECT count(*) FROM workers").fetchone() == (2,), "both workers live")

    job = await probe(connection, ledger, "block", seconds=2.6)
    await ledger.until("end")
    done = await until_status(connection, job, "completed")

    assert (done.attempts, len(ledger.entries("start"))) == (1, 1)
    assert all(worker.is_running for worker in workers)


async def test_what_the_worker_itself_logs_never_lands_in_a_jobs_log(
    connection: Connection, start_worker: StartWorker
) -> None:
    talking = await add(connection, "thread_probe", payload={"do": "talk", "lines": 1, "malformed": True})
    failing = await add(connection, "thread_probe", max_attempts=1, payload={"do": "end", "end": "set"})
    worker = start_worker()

    await until_status(connection, talking, "completed")
    await until_status(connection, failing, "failed")
    await worker.until_logged("job_permanently_failed")
    await until_status(connection, await add(connection), "completed")

    lines = [line.message for line in await jobs.list_job_logs(connection, failing.id)]
    assert len(lines) == 2
    assert lines[1].startswith("Attempt 1/1 failed: The result cannot be stored")
    assert (await messages(connection, talking))[1:-1] == [
        "line 0",
        "a NUL \ufffd",
        "half a pair \ufffd",
        "A log line of probe could not be formatted",
    ]


async def test_many_jobs_on_two_processes_are_each_run_once(
    connection: Connection, start_worker: StartWorker, ledger: Ledger
) -> None:
    names = [f"job-{number}" for number in range(200)]
    for name in names:
        await probe(connection, ledger, "nothing", name=name)
    start_worker()
    start_worker()

    for job in await add_many(connection, 1, "probe"):
        await until_status(connection, job, "completed")
    await ledger.until("end", number=200)

    assert sorted(entry.name for entry in ledger.entries("start")) == sorted(names)
