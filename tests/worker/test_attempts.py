"""However an executor ends, its job gets one readable outcome and the worker goes on (failures.md 1.I)."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from jobqueue.job import Job, Status
from jobqueue.store.db import Connection
from jobqueue.store.jobs import LogLine, Outcome
from jobqueue.worker.attempt import Attempt, StopReason
from jobqueue.worker.handler import Handler
from jobqueue.worker.joblog import MAX_LINES
from tests.conftest import MakeSettings
from tests.jobs import add, add_many, messages, owned, read, until_status
from tests.overlap import eventually
from tests.worker.conftest import RunWorker, other_threads
from tests.worker.probes import ENDS, PROBES, released
from tests.worker.processes import Ledger

END_OF_COROUTINE = {"stop iteration": "RuntimeError: coroutine raised StopIteration"}


async def probe(connection: Connection, do: str, job_type: str = "probe", **payload: object) -> Job:
    return await add(connection, job_type, max_attempts=1, payload={"do": do, **payload})


@pytest.mark.parametrize("form", ["probe", "thread_probe"])
async def test_every_hostile_end_fails_its_job_with_a_readable_error_and_the_worker_lives(
    connection: Connection, run_worker: RunWorker, form: str
) -> None:
    expected = {**{end: error for end, (_, error) in ENDS.items()}, **(END_OF_COROUTINE if form == "probe" else {})}
    jobs = {end: await probe(connection, "end", form, end=end) for end in expected}

    async with run_worker():
        ended = {end: await until_status(connection, job, "failed", "completed") for end, job in jobs.items()}
        good = await probe(connection, "nothing", form)
        await until_status(connection, good, "completed")

    wrong = {
        end: (job.status.value, (job.error or "")[:100])
        for end, job in ended.items()
        if job.status is not Status.FAILED or not (job.error or "").startswith(expected[end])
    }
    assert wrong == {}
    assert max(len(job.error or "") for job in ended.values()) < 11_000


async def test_giving_up_fails_at_once_and_retrying_later_waits_as_long_as_asked(
    connection: Connection, run_worker: RunWorker, ledger: Ledger
) -> None:
    given_up = await add(connection, "probe", payload={"do": "end", "end": "mute give up"})
    later = await add(connection, "probe", payload={"do": "fail_once", "path": f"{ledger.path}.mark", "delay": 500})

    async with run_worker():
        failed = await until_status(connection, given_up, "failed")
        waiting = await eventually(lambda: _waits_for_retry(connection, later))

    assert failed.attempts == 1
    assert waiting.started_at is not None
    assert 499 < (waiting.next_run_at - waiting.started_at).total_seconds() < 510
    assert (await messages(connection, later))[-1] == "Attempt 1/5 failed: not yet; next attempt in 500.0 s"


async def _waits_for_retry(connection: Connection, job: Job) -> Job | None:
    now = await read(connection, job)
    return now if now.next_retry_at else None


async def test_an_attempt_past_its_time_fails_whatever_the_executor_does_about_it(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings
) -> None:
    jobs = [
        await probe(connection, "sleep", "short_probe", seconds=60),
        await probe(connection, "stubborn", "short_probe"),
        await probe(connection, "late_result", "short_probe"),
        await probe(connection, "stubborn", "short_thread_probe"),
    ]
    async with run_worker(make_settings(worker_concurrency=8)):
        ended = [await until_status(connection, job, "failed", "completed") for job in jobs]
        blocking = await probe(connection, "block", "short_probe", seconds=1.1)
        ended.append(await until_status(connection, blocking, "failed", "completed"))

    assert {job.error for job in ended} == {"Execution timed out after 1s"}
    assert {job.status for job in ended} == {Status.FAILED}


async def test_the_global_time_limit_holds_where_the_executor_sets_none(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings
) -> None:
    job = await probe(connection, "sleep", seconds=60)

    async with run_worker(make_settings(job_max_execution_seconds=0.2)):
        failed = await until_status(connection, job, "failed")

    assert failed.error == "Execution timed out after 0.2s"


async def test_a_neighbour_that_blocks_the_loop_does_not_time_out_a_thread_that_was_in_time(
    connection: Connection, run_worker: RunWorker
) -> None:
    in_time = await probe(connection, "nothing", "short_thread_probe")
    blocking = await probe(connection, "block", "probe", seconds=1.3)

    async with run_worker():
        await until_status(connection, blocking, "completed")
        assert (await until_status(connection, in_time, "completed", "failed")).error is None


class Witness:
    """Notes what an attempt says."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome | None] = []
        self.is_over = asyncio.Event()

    def reported(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self.outcomes.append(outcome)

    def ended(self, attempt: Attempt) -> None:
        self.is_over.set()

    def logged(self, line: LogLine, logged_at: float) -> None:
        pass


@pytest.mark.parametrize("reason", StopReason)
async def test_a_stop_that_comes_when_the_thread_has_ended_already_takes_no_result_away(
    connection: Connection, reason: StopReason
) -> None:
    taken = await owned(connection)
    witness = Witness()
    handler = Handler("thread_probe", PROBES["thread_probe"], limit_seconds=60, result_max_bytes=100)
    attempt = Attempt(taken, handler, witness, asyncio.get_running_loop())
    attempt.start()
    while attempt._finished_after is None:
        time.sleep(0.001)  # noqa: ASYNC251  the loop must not hear of the end before the stop

    attempt.stop(reason)
    await asyncio.wait_for(witness.is_over.wait(), 10)

    assert [outcome and outcome.kind for outcome in witness.outcomes] == ["completed"]


async def test_an_executor_that_ignores_its_end_keeps_its_slot_until_it_ends(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings, ledger: Ledger
) -> None:
    stuck = await probe(connection, "stubborn", "short_thread_probe")

    async with run_worker(make_settings(worker_concurrency=2)):
        await until_status(connection, stuck, "failed")
        for job in await add_many(
            connection, 4, "probe", payload={"do": "sleep", "seconds": 0.05, "ledger": str(ledger.path)}
        ):
            await until_status(connection, job, "completed")
        assert [entry.word for entry in ledger.entries()] == ["start", "end"] * 4

        released.set()
        # Each of these ends only when the other has started too.
        pair = [str(ledger.path.with_name(name)) for name in ("a", "b")]
        jobs = [
            await add(connection, "probe", payload={"do": "meet", "mine": mine, "path": other})
            for mine, other in (pair, reversed(pair))
        ]
        for job in jobs:
            await until_status(connection, job, "completed")


async def test_a_payload_that_does_not_fit_its_type_fails_the_job_and_says_where(
    connection: Connection, run_worker: RunWorker
) -> None:
    bad = await add(connection, "typed_probe", max_attempts=1, payload={"amount": "much"})
    good = await add(connection, "typed_probe", payload={"amount": 5})

    async with run_worker():
        failed = await until_status(connection, bad, "failed")
        done = await until_status(connection, good, "completed")

    assert failed.error == "The payload cannot be read: Expected `int`, got `str` - at `$.amount`"
    assert done.result is not None
    assert bytes(done.result) == b"5"


@pytest.mark.parametrize("form", ["probe", "thread_probe"])
async def test_what_an_executor_logs_stands_in_its_jobs_log_in_order(
    connection: Connection, run_worker: RunWorker, form: str
) -> None:
    jobs = [await probe(connection, "talk", form, lines=3) for _ in range(3)]

    async with run_worker():
        for job in jobs:
            await until_status(connection, job, "completed")

    for job in jobs:
        said = (await messages(connection, job))[1:-1]
        assert said[:4] == ["line 0", "line 1", "line 2", "a NUL \ufffd"]
        assert said[4:] == (["from a helper thread"] if form == "probe" else [])


async def test_an_attempt_that_logs_without_end_is_cut_off_with_a_note(
    connection: Connection, run_worker: RunWorker
) -> None:
    job = await probe(connection, "talk", lines=MAX_LINES + 500)

    async with run_worker():
        await until_status(connection, job, "completed")

    lines = await messages(connection, job)
    assert len(lines) == MAX_LINES + 2
    assert lines[-2] == f"Further lines of this attempt are dropped (limit {MAX_LINES})"
    assert lines[-1].startswith("Completed")


async def test_nothing_is_left_behind_by_a_worker_that_stopped(
    connection: Connection, run_worker: RunWorker, ledger: Ledger
) -> None:
    threads, tasks = other_threads(), asyncio.all_tasks()

    async with run_worker():
        for job in [
            *await add_many(connection, 10, "probe"),
            *await add_many(connection, 10, "thread_probe"),
            await probe(connection, "end", end="exit"),
        ]:
            await until_status(connection, job, "completed", "failed")
        assert threading.active_count() > len(threads) + 1

    assert other_threads() <= threads
    assert {task.get_name() for task in asyncio.all_tasks() - tasks} == set()
    await eventually(lambda: _no_worker_connections(connection), "all connections of the worker are closed")
    row = await (await connection.execute("SELECT count(*) FROM workers")).fetchone()
    assert row == (0,)


async def _no_worker_connections(connection: Connection) -> bool:
    row = await (
        await connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name LIKE 'jobqueue-worker%' AND datname = current_database()"
        )
    ).fetchone()
    return row == (0,)


async def test_a_job_stopped_at_the_end_of_the_grace_period_is_handed_back_uncounted(
    connection: Connection, run_worker: RunWorker, make_settings: MakeSettings, ledger: Ledger
) -> None:
    jobs = [
        await probe(connection, "sleep", seconds=60, ledger=str(ledger.path)),
        await probe(connection, "stubborn", ledger=str(ledger.path)),
        await probe(connection, "stubborn", "thread_probe", ledger=str(ledger.path)),
    ]

    async with run_worker(make_settings(shutdown_grace_seconds=60)) as worker:
        await ledger.until("start", number=3)
        worker.request_stop()
        worker.request_hurry()
        released_jobs = [await until_status(connection, job, "queued", "failed", "completed") for job in jobs]

    assert {(job.status, job.attempts, job.started_at) for job in released_jobs} == {(Status.QUEUED, 0, None)}
