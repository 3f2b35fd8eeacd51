"""The limit on creates: exact, shared, per client, and never a reason not to answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import redis
from structlog.testing import capture_logs

from jobqueue.server.rate_limit import LocalLimit, client_key
from jobqueue.settings import Settings
from tests.overlap import eventually
from tests.server.conftest import served, started

MakeSettings = Callable[..., Settings]


async def create(api: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await api.post("/api/v1/jobs", json={"type": "email_send", **body})


async def burst(api: httpx.AsyncClient, count: int) -> list[int]:
    return sorted(answer.status_code for answer in await asyncio.gather(*(create(api) for _ in range(count))))


@pytest.mark.parametrize("limit", [1, 7, 10])
async def test_of_fifty_parallel_creates_exactly_the_limit_pass(
    make_settings: MakeSettings, registry: object, limit: int
) -> None:
    async with started(make_settings(rate_limit_per_minute=limit)) as api:
        assert await burst(api, 50) == [201] * limit + [429] * (50 - limit)


async def test_all_processes_share_the_limit(make_settings: MakeSettings, registry: object) -> None:
    settings = make_settings(rate_limit_per_minute=10)

    async with started(settings) as one, started(settings) as two:
        passed = await asyncio.gather(*(burst(api, 25) for api in (one, two)))

    assert sum(statuses.count(201) for statuses in passed) == 10


async def test_a_refused_create_says_when_to_come_back(make_settings: MakeSettings, registry: object) -> None:
    async with started(make_settings(rate_limit_per_minute=1)) as api:
        await create(api)
        refused = await create(api)

    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers["content-type"] == "application/problem+json"
    assert "1 creates a minute" in refused.json()["detail"]


async def test_waiting_as_told_is_enough(make_settings: MakeSettings, registry: object) -> None:
    async with started(make_settings(rate_limit_per_minute=60)) as api:
        await burst(api, 60)
        refused = await create(api)
        seconds = int(refused.headers["retry-after"])
        assert seconds == 1

        await asyncio.sleep(seconds)

        assert (await create(api)).status_code == 201


async def test_a_replay_counts(make_settings: MakeSettings, registry: object) -> None:
    async with started(make_settings(rate_limit_per_minute=2)) as api:
        answers = [await create(api, idempotency_key="k") for _ in range(3)]

    assert [answer.status_code for answer in answers] == [201, 200, 429]


async def test_only_creating_is_limited(make_settings: MakeSettings, registry: object) -> None:
    async with started(make_settings(rate_limit_per_minute=1)) as api:
        job = (await create(api)).json()
        assert (await create(api)).status_code == 429
        for path in ("/api/v1/jobs", f"/api/v1/jobs/{job['id']}", "/api/v1/metrics", "/health") * 5:
            assert (await api.get(path)).status_code == 200
        assert (await api.post(f"/api/v1/jobs/{job['id']}/cancel")).status_code == 200


async def test_each_client_has_its_own(make_settings: MakeSettings, registry: object) -> None:
    settings = make_settings(rate_limit_per_minute=1)
    for address in (("192.0.2.1", 1), ("192.0.2.2", 1), None):
        async with started(settings, address) as api:
            assert (await create(api)).status_code == 201
            assert (await create(api)).status_code == 429


async def test_a_counted_client_is_forgotten_in_time(
    make_settings: MakeSettings, registry: object, redis_url: str
) -> None:
    async with started(make_settings(rate_limit_per_minute=10)) as api:
        await burst(api, 20)

    with redis.Redis.from_url(redis_url) as client:
        keys = list(client.scan_iter("jobqueue:rate:*"))
        assert len(keys) == 1
        assert 0 < client.pttl(keys[0]) <= 60_000


@pytest.mark.parametrize("rubbish", ["", "x", "99999999999999999999", "-5", "nan"])
async def test_rubbish_in_redis_locks_nobody_out(
    make_settings: MakeSettings, registry: object, redis_url: str, rubbish: str
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("jobqueue:rate:127.0.0.1", rubbish)

    async with started(make_settings(rate_limit_per_minute=60)) as api:

        async def passes() -> bool:
            return (await create(api)).status_code == 201

        await eventually(passes, "the client may create again", 5)


async def test_another_kind_of_key_in_redis_locks_nobody_out(
    make_settings: MakeSettings, registry: object, redis_url: str
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.lpush("jobqueue:rate:127.0.0.1", "x")

    async with started(make_settings(rate_limit_per_minute=1)) as api:
        assert (await create(api)).status_code == 201


async def test_without_redis_creating_works_within_a_limit_of_the_same_size(
    make_settings: MakeSettings, registry: object, closed_port: int
) -> None:
    settings = make_settings(rate_limit_per_minute=10, redis_url=f"redis://127.0.0.1:{closed_port}")
    with capture_logs() as logs:
        async with started(settings) as api:
            assert await burst(api, 50) == [201] * 10 + [429] * 40

    assert [entry["log_level"] for entry in logs if entry["event"] == "redis_away"] == ["warning"]


async def test_a_frozen_redis_delays_nobody_for_long(
    make_settings: MakeSettings, registry: object, frozen_port: int
) -> None:
    settings = make_settings(rate_limit_per_minute=100, redis_url=f"redis://127.0.0.1:{frozen_port}")
    with capture_logs() as logs:
        async with started(settings) as api:
            started_at = time.monotonic()
            assert await burst(api, 50) == [201] * 50
            assert time.monotonic() - started_at < 1.5
            started_at = time.monotonic()
            assert (await api.get("/api/v1/metrics")).status_code == 200
            assert time.monotonic() - started_at < 1

    assert len([entry for entry in logs if entry["event"] == "redis_away"]) == 1


def test_the_local_limit_earns_back_and_forgets() -> None:
    limit = LocalLimit(7)

    assert [limit.take("a", now=100.0) > 0 for _ in range(8)] == [False] * 7 + [True]
    assert limit.take("a", now=108.0) > 0
    assert limit.take("a", now=108.6) == 0
    assert limit.take("a", now=108.7) > 0
    for number in range(12_000):
        limit.take(str(number), now=109.0)
    assert len(limit) == 10_000


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("garbage", "unknown"),
        ("", "unknown"),
        ("x" * 10_000, "unknown"),
        (None, "local"),
    ],
)
def test_who_is_counted_together(host: str | None, key: str) -> None:
    assert client_key(host) == key


def forwarded(settings: Settings, values: list[list[tuple[str, str]]], **config: Any) -> list[int]:
    """Create once per list of headers, over a real server, and return the statuses."""
    with served(settings, **config) as url, httpx.Client(base_url=url) as client:
        body = {"type": "email_send"}
        return [client.post("/api/v1/jobs", json=body, headers=headers).status_code for headers in values]


def test_an_untrusted_client_cannot_choose_its_address(make_settings: MakeSettings, registry: object) -> None:
    values = [[("X-Forwarded-For", f"198.51.100.{n}")] for n in range(3)]

    assert forwarded(make_settings(rate_limit_per_minute=1), values) == [201, 429, 429]


def test_behind_a_trusted_proxy_the_nearest_untrusted_hop_is_the_client(
    make_settings: MakeSettings, registry: object
) -> None:
    values = [
        [("X-Forwarded-For", "198.51.100.1, 192.0.2.1")],
        [("X-Forwarded-For", "198.51.100.2, 192.0.2.1, 10.0.0.1")],  # the same client, through two proxies
        [("X-Forwarded-For", "198.51.100.3"), ("X-Forwarded-For", "192.0.2.1")],
        [("X-Forwarded-For", "198.51.100.1, 192.0.2.2")],
    ]

    statuses = forwarded(
        make_settings(rate_limit_per_minute=1),
        values,
        proxy_headers=True,
        forwarded_allow_ips=["127.0.0.1", "10.0.0.0/8"],
    )
    assert statuses == [201, 429, 429, 201]


def test_garbage_from_a_proxy_is_no_fresh_start(make_settings: MakeSettings, registry: object) -> None:
    garbage = ["one", "two", "1.2.3.4.5", "[::1", "'; DROP TABLE jobs", "a" * 4000, "999.1.1.1"]
    values = [[("X-Forwarded-For", text)] for text in garbage]

    statuses = forwarded(
        make_settings(rate_limit_per_minute=1), values, proxy_headers=True, forwarded_allow_ips=["127.0.0.1"]
    )
    assert statuses == [201] + [429] * (len(garbage) - 1)
