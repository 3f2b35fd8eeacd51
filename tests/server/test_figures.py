"""``GET /api/v1/metrics`` and the mirror of the depths in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import redis

from jobqueue.settings import Settings
from jobqueue.store import jobs
from jobqueue.store.db import Connection
from jobqueue.store.mirror import KEY, read_depths, write_depths
from jobqueue.store.redis import RedisLink
from jobqueue.store.stats import QueueDepths
from tests.jobs import add, add_many, claim, outcome
from tests.server.conftest import started


async def fill(connection: Connection) -> None:
    """One job in each of the four places."""
    await add(connection)
    (held,) = await claim(connection)
    failed = jobs.Outcome(id=held.id, lease_token=held.lease_token, kind="failed", error="x", delay_seconds=600)
    await jobs.finish_jobs(connection, [failed])
    await add(connection)
    await add_many(connection, 2, queue="fifo")
    await add_many(connection, 3, run_at=datetime.now(UTC) + timedelta(hours=1))


FILLED = {"fifo": 2, "priority": 1, "retry": 1, "scheduled": 3}


async def test_all_keys_are_there_when_there_is_nothing(api: httpx.AsyncClient) -> None:
    assert (await api.get("/api/v1/metrics")).json() == {
        "counts_by_status": {"queued": 0, "processing": 0, "completed": 0, "failed": 0, "cancelled": 0},
        "avg_processing_time_seconds": None,
        "queue_depths": {"fifo": 0, "priority": 0, "retry": 0, "scheduled": 0},
    }


async def test_every_waiting_job_is_counted_in_exactly_one_place(
    api: httpx.AsyncClient, connection: Connection
) -> None:
    await fill(connection)

    figures = (await api.get("/api/v1/metrics")).json()

    assert figures["queue_depths"] == FILLED
    assert sum(figures["queue_depths"].values()) == figures["counts_by_status"]["queued"]


async def test_the_average_is_over_completed_jobs(api: httpx.AsyncClient, connection: Connection, sql: Any) -> None:
    await add_many(connection, 3)
    held = await claim(connection, 3)
    await jobs.finish_jobs(connection, [outcome(one) for one in held[:2]])
    for one, seconds in zip(held, (10, 15), strict=False):
        sql.execute(
            "UPDATE jobs SET started_at = completed_at - make_interval(secs => %s) WHERE id = %s", (seconds, one.id)
        )

    figures = (await api.get("/api/v1/metrics")).json()

    assert figures["avg_processing_time_seconds"] == 12.5
    assert figures["counts_by_status"] == {"queued": 0, "processing": 1, "completed": 2, "failed": 0, "cancelled": 0}


async def test_the_depths_are_mirrored(api: httpx.AsyncClient, connection: Connection, settings: Settings) -> None:
    await fill(connection)
    await api.get("/api/v1/metrics")

    link = RedisLink(settings)
    mirrored = await read_depths(link)
    await link.close()

    assert mirrored is not None
    assert mirrored[0] == QueueDepths(**FILLED)
    assert 0 <= mirrored[1] < 5


async def test_a_mirror_that_does_not_add_up_is_not_believed_and_put_right(
    api: httpx.AsyncClient, connection: Connection, settings: Settings
) -> None:
    await fill(connection)
    link = RedisLink(settings)
    await write_depths(link, QueueDepths(fifo=70, priority=0, retry=0, scheduled=0))

    figures = (await api.get("/api/v1/metrics")).json()

    mirrored = await read_depths(link)
    await link.close()
    assert figures["queue_depths"] == FILLED
    assert mirrored is not None
    assert mirrored[0] == QueueDepths(**FILLED)


async def test_a_stale_mirror_is_not_believed(api: httpx.AsyncClient, connection: Connection, redis_url: str) -> None:
    await fill(connection)
    with redis.Redis.from_url(redis_url) as client:
        client.set(KEY, '{"fifo":7,"priority":0,"retry":0,"scheduled":0}', ex=57)  # three seconds of sixty gone

    assert (await api.get("/api/v1/metrics")).json()["queue_depths"] == FILLED


@pytest.mark.parametrize(
    "rubbish",
    [b"", b"{", b"\xff", b"null", b"[]", b'{"fifo":1}', b'{"fifo":-7,"priority":0,"retry":0,"scheduled":14}'],
)
async def test_rubbish_in_the_mirror_does_no_harm(
    api: httpx.AsyncClient, connection: Connection, redis_url: str, rubbish: bytes
) -> None:
    await fill(connection)
    with redis.Redis.from_url(redis_url) as client:
        client.set(KEY, rubbish, ex=60)

    assert (await api.get("/api/v1/metrics")).json()["queue_depths"] == FILLED


async def test_another_kind_of_key_in_the_mirror_s_place_does_no_harm(
    api: httpx.AsyncClient, connection: Connection, redis_url: str
) -> None:
    await fill(connection)
    with redis.Redis.from_url(redis_url) as client:
        client.lpush(KEY, "x")

    assert (await api.get("/api/v1/metrics")).json()["queue_depths"] == FILLED


async def test_without_redis_the_figures_are_right(
    make_settings: Callable[..., Settings], connection: Connection, registry: object, closed_port: int
) -> None:
    await fill(connection)

    async with started(make_settings(redis_url=f"redis://127.0.0.1:{closed_port}")) as api:
        assert (await api.get("/api/v1/metrics")).json()["queue_depths"] == FILLED


async def test_many_dashboards_cost_one_query_at_a_time(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobqueue.server import figures

    calls: list[int] = []
    count = figures.read_figures

    async def counted(connection: Connection) -> Any:
        calls.append(1)
        return await count(connection)

    monkeypatch.setattr(figures, "read_figures", counted)
    answers = await asyncio.gather(*(api.get("/api/v1/metrics") for _ in range(100)))

    assert {answer.status_code for answer in answers} == {200}
    assert len(calls) <= 5


async def test_a_job_created_before_asking_is_counted_while_others_ask(
    api: httpx.AsyncClient, connection: Connection
) -> None:
    asking = [asyncio.create_task(api.get("/api/v1/metrics")) for _ in range(20)]
    for expected in range(1, 11):
        await add(connection)
        assert (await api.get("/api/v1/metrics")).json()["counts_by_status"]["queued"] == expected
    await asyncio.gather(*asking)
