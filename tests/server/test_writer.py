"""Creates that meet trouble in the database: held keys, lost connections, lost answers."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from jobqueue.errors import Unavailable
from jobqueue.ids import new_id
from jobqueue.job import NewJob
from jobqueue.server import writer as writer_module
from jobqueue.server.writer import JobWriter
from jobqueue.settings import Settings
from tests.overlap import eventually


async def create(api: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await api.post("/api/v1/jobs", json={"type": "email_send", **body})


def new_job(**fields: Any) -> NewJob:
    return NewJob(id=new_id(), type="email_send", payload=b"{}", **fields)


async def test_a_key_held_elsewhere_holds_up_nobody_else(
    api: httpx.AsyncClient, database_url: str, sql: psycopg.Connection
) -> None:
    with psycopg.connect(make_conninfo(database_url)) as holder:
        holder.execute("INSERT INTO jobs (type, idempotency_key) VALUES ('email_send', 'held')")
        waiting = asyncio.create_task(create(api, idempotency_key="held"))

        def is_blocked() -> bool:
            query = "SELECT count(*) > 0 FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
            row = sql.execute(query).fetchone()
            return bool(row and row[0])

        await eventually(is_blocked, "the insert waits for the key")
        assert (await create(api)).status_code == 201
        with_keys = await asyncio.gather(*(create(api, idempotency_key=f"free-{n}") for n in range(10)))
        refused = await waiting
        holder.rollback()

    assert [answer.status_code for answer in with_keys] == [201] * 10
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert (await create(api, idempotency_key="held")).status_code == 201


async def test_the_winner_s_commit_ends_the_wait_in_a_replay(
    api: httpx.AsyncClient, database_url: str, sql: psycopg.Connection
) -> None:
    with psycopg.connect(make_conninfo(database_url)) as holder:
        holder.execute("INSERT INTO jobs (type, idempotency_key) VALUES ('email_send', 'held')")
        waiting = asyncio.create_task(create(api, idempotency_key="held"))

        def is_blocked() -> bool:
            query = "SELECT count(*) > 0 FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
            row = sql.execute(query).fetchone()
            return bool(row and row[0])

        await eventually(is_blocked, "the insert waits for the key")
        holder.commit()
        answer = await waiting

    assert answer.status_code == 200
    assert answer.headers["x-idempotency-replay"] == "true"


async def test_a_connection_that_was_cut_is_replaced_unseen(api: httpx.AsyncClient, sql: psycopg.Connection) -> None:
    await create(api)
    await create(api, idempotency_key="k")

    cut = sql.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'jobqueue-create%'"
    ).fetchall()

    assert len(cut) == 2
    assert (await create(api)).status_code == 201
    assert (await create(api, idempotency_key="k")).status_code == 200


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_lost_answer_to_the_commit_makes_no_second_job(
    settings: Settings, sql: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    create_jobs = writer_module.create_jobs
    calls: list[int] = []

    async def loses_the_first_answer(*arguments: Any, **options: Any) -> Any:
        outcomes = await create_jobs(*arguments, **options)
        calls.append(1)
        if len(calls) == 1:
            raise Unavailable
        return outcomes

    monkeypatch.setattr(writer_module, "create_jobs", loses_the_first_answer)
    writer = JobWriter(settings)
    jobs = [new_job(idempotency_key=key and f"{key}{n}") for n in range(3)]
    outcomes = await asyncio.gather(*(writer.put(job) for job in jobs))
    await writer.close()

    assert [outcome.job.id for outcome in outcomes] == [job.id for job in jobs]
    assert not any(outcome.is_replay for outcome in outcomes)
    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (3,)


async def test_jobs_that_wait_at_the_end_are_still_written(settings: Settings, sql: psycopg.Connection) -> None:
    writer = JobWriter(settings)
    waiting = [writer.put(new_job()) for _ in range(500)]

    await writer.close()

    assert all(future.done() for future in waiting)
    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (500,)


async def test_creates_of_one_moment_share_statements(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    create_jobs = writer_module.create_jobs
    sizes: list[int] = []

    async def counted(connection: Any, new: Any, **options: Any) -> Any:
        sizes.append(len(new))
        return await create_jobs(connection, new, **options)

    monkeypatch.setattr(writer_module, "create_jobs", counted)
    await asyncio.gather(*(create(api) for _ in range(100)))

    assert sum(sizes) == 100
    assert len(sizes) < 50
