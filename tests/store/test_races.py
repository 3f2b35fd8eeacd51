"""Cancel, recovery and the end of an attempt at the same moment, in all orders: one wins, the others see it
(failures.md F5, G1, G2, G3, G10)."""

from __future__ import annotations

import asyncio
from itertools import permutations

import psycopg
import pytest

from jobqueue.errors import Conflict
from jobqueue.job import Claim, Status
from jobqueue.store import jobs, workers
from jobqueue.store.db import Connection
from jobqueue.store.workers import LostJob
from tests.jobs import add, claim, expire, finish, messages, owned, read, recover
from tests.overlap import until_blocked

FINAL = {Status.COMPLETED, Status.FAILED, Status.CANCELLED}


async def act(name: str, connection: Connection, taken: Claim) -> str:
    """Do one of the actions and tell what it achieved; "" for nothing."""
    if name == "cancel":
        try:
            return (await jobs.cancel_job(connection, taken.id, actor="test")).status.value
        except Conflict:
            return ""
    if name == "recover":
        done = await recover(connection, [LostJob(taken.id, taken.lease_token, taken.attempt)], delay=500)
        return done.get(taken.id, "")
    return await finish(connection, taken, name, delay_seconds=500) or ""


@pytest.mark.parametrize("end", ["completed", "failed"])
@pytest.mark.parametrize("max_attempts", [1, 2])
@pytest.mark.parametrize("order", list(permutations(["cancel", "recover", "end"])), ids="-".join)
async def test_cancel_recovery_and_end_at_once_leave_one_winner(
    connection: Connection,
    others: list[Connection],
    sql: psycopg.Connection,
    order: tuple[str, ...],
    max_attempts: int,
    end: str,
) -> None:
    taken = await owned(connection, max_attempts=max_attempts)
    expire(sql, taken)
    names = [end if name == "end" else name for name in order]

    async with others[0].transaction():
        first = await act(names[0], others[0], taken)
        second = asyncio.create_task(act(names[1], others[1], taken))
        if names[1] != "recover":  # recovery skips a locked row instead of waiting
            await until_blocked(sql, others[1])
        else:
            assert await second == ""
        third = asyncio.create_task(act(names[2], others[2], taken))
        if names[2] != "recover":
            await until_blocked(sql, others[2])
        else:
            assert await third == ""
    results = dict(zip(names, [first, await second, await third], strict=True))

    job = await read(connection, taken)
    assert first != ""
    if first in FINAL:
        assert job.status == first
        assert [result for result in results.values() if result] == [first]
    else:
        # The job waited for a retry, which the cancel may end; the attempt itself was over.
        assert job.status is Status.CANCELLED
        assert results["cancel"] == "cancelled"
        assert len([result for result in results.values() if result]) == 2
    assert job.attempts == 1
    assert await claim(connection) == []
    ends = ("Completed", "Attempt", "Recovered", "Cancelled")
    assert len([m for m in await messages(connection, taken) if m.startswith(ends)]) == (1 if first in FINAL else 2)


async def test_a_cancel_during_a_claim_waits_and_reaches_the_running_job(
    connection: Connection, others: list[Connection], sql: psycopg.Connection
) -> None:
    await add(connection)
    await connection.execute("LISTEN jobqueue_cancel")

    async with others[0].transaction():
        (taken,) = await claim(others[0])
        cancelling = asyncio.create_task(act("cancel", others[1], taken))
        await until_blocked(sql, others[1])

    assert await cancelling == "cancelled"
    assert [n.channel async for n in connection.notifies(timeout=10, stop_after=1)] == ["jobqueue_cancel"]
    assert await workers.list_lost_leases(connection, [(taken.id, taken.lease_token)]) == {
        taken.lease_token: "cancelled"
    }


async def test_a_claim_during_a_cancel_passes_the_job_over(connection: Connection, others: list[Connection]) -> None:
    job = await add(connection)

    async with others[0].transaction():
        await jobs.cancel_job(others[0], job.id, actor="test")
        assert await claim(others[1]) == []

    assert await claim(others[1]) == []
    assert (await read(connection, job)).status is Status.CANCELLED


async def test_cancelling_twice_keeps_the_first_end(connection: Connection) -> None:
    job = await add(connection)

    first = await jobs.cancel_job(connection, job.id, actor="test")
    second = await jobs.cancel_job(connection, job.id, actor="test")

    assert first == second
    assert len([m for m in await messages(connection, job) if m.startswith("Cancelled")]) == 1


async def test_two_cancels_at_once_both_succeed_and_one_is_logged(
    connection: Connection, others: list[Connection], sql: psycopg.Connection
) -> None:
    taken = await owned(connection)

    async with others[0].transaction():
        await jobs.cancel_job(others[0], taken.id, actor="one")
        second = asyncio.create_task(act("cancel", others[1], taken))
        await until_blocked(sql, others[1])

    assert await second == "cancelled"
    assert len([m for m in await messages(connection, taken) if m.startswith("Cancelled")]) == 1


async def test_a_job_waiting_for_its_retry_can_be_cancelled_and_stays_so(connection: Connection) -> None:
    taken = await owned(connection)
    await finish(connection, taken, "failed", delay_seconds=0)

    job = await jobs.cancel_job(connection, taken.id, actor="test")

    assert (job.status, job.next_retry_at, job.error) == (Status.CANCELLED, None, "it broke")
    assert await claim(connection) == []


async def test_the_end_of_a_job_deleted_at_this_moment_does_not_bring_it_back(
    connection: Connection, others: list[Connection], sql: psycopg.Connection
) -> None:
    taken = await owned(connection)

    async with others[0].transaction():
        await others[0].execute("DELETE FROM jobs")
        ending = asyncio.create_task(act("completed", others[1], taken))
        await until_blocked(sql, others[1])

    assert await ending == ""
    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
