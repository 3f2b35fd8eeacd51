"""What every response has, and what is answered when something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from jobqueue.server import api as api_module
from jobqueue.settings import Settings
from tests.server.conftest import started

MakeSettings = Callable[..., Settings]
GETS = ["/health", "/health/ready", "/api/v1/jobs", "/api/v1/metrics", "/metrics", "/docs", "/openapi.json"]
ORIGIN = "http://localhost:5173"


async def test_health_is_exactly_this(api: httpx.AsyncClient) -> None:
    answer = await api.get("/health")

    assert (answer.status_code, answer.content) == (200, b'{"status":"ok"}')


async def test_ready_when_the_database_and_its_schema_are(api: httpx.AsyncClient) -> None:
    answer = await api.get("/health/ready")

    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"


async def test_not_ready_with_an_old_schema(api: httpx.AsyncClient, sql: Any) -> None:
    sql.execute("UPDATE alembic_version SET version_num = '0000'")

    answer = await api.get("/health/ready")

    assert answer.status_code == 503
    assert "jobqueue migrate" in answer.json()["schema"]


async def test_not_ready_without_a_schema(
    make_settings: MakeSettings, registry: object, empty_database_url: str
) -> None:
    async with started(make_settings(database_url=empty_database_url)) as api:
        assert (await api.get("/health/ready")).status_code == 503


async def test_while_the_database_is_away_everything_says_so_but_health(
    make_settings: MakeSettings, registry: object, closed_port: int
) -> None:
    settings = make_settings(
        database_url=f"postgresql://nobody@127.0.0.1:{closed_port}/none", database_timeout_seconds=0.5
    )
    async with started(settings) as api:
        answers = [
            await api.post("/api/v1/jobs", json={"type": "email_send"}),
            await api.post("/api/v1/jobs", json={"type": "email_send", "idempotency_key": "k"}),
            await api.post("/api/v1/jobs", json={"type": "never_heard_of"}),
            await api.get("/api/v1/jobs"),
            await api.get("/api/v1/jobs/01a22ffe-af9b-70c8-8313-4d63d5053edd"),
            await api.post("/api/v1/jobs/01a22ffe-af9b-70c8-8313-4d63d5053edd/cancel"),
            await api.get("/api/v1/metrics"),
        ]
        ready = await api.get("/health/ready")
        health = await api.get("/health")
        docs = await api.get("/openapi.json")

    for answer in answers:
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["content-type"] == "application/problem+json"
    assert ready.status_code == 503
    assert (health.status_code, docs.status_code) == (200, 200)


async def test_a_frozen_database_is_503_in_time(
    make_settings: MakeSettings, registry: object, frozen_port: int
) -> None:
    settings = make_settings(
        database_url=f"postgresql://nobody@127.0.0.1:{frozen_port}/none", database_timeout_seconds=0.5
    )
    async with started(settings) as api:
        assert (await api.post("/api/v1/jobs", json={"type": "email_send"})).status_code == 503
        assert (await api.get("/api/v1/jobs")).status_code == 503
        assert (await api.get("/health")).status_code == 200


async def test_what_goes_wrong_inside_is_logged_and_not_shown(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(api_module, "list_jobs", broken)
    with capture_logs() as logs:
        answer = await api.get("/api/v1/jobs", headers={"X-Request-ID": "find-me"})

    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "find-me" in answer.json()["detail"]
    assert any(entry["event"] == "request_failed" and entry["request_id"] == "find-me" for entry in logs)


async def test_a_create_that_goes_wrong_inside_is_logged_and_not_shown(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("jobqueue.server.create.check", broken)
    with capture_logs() as logs:
        answer = await api.post("/api/v1/jobs", json={"type": "email_send"})

    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert any(entry["event"] == "request_failed" for entry in logs)


@pytest.mark.parametrize("path", ["/nope", "/api/v1", "/api/v1/job", "/api/v2/jobs", "/docs/../settings", "/docs/x.js"])
async def test_what_is_not_there_is_a_404_problem(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.get(path)

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/v1/jobs", {"GET", "HEAD", "POST", "OPTIONS"}),
        ("PUT", "/api/v1/jobs/01a22ffe-af9b-70c8-8313-4d63d5053edd", {"GET", "HEAD", "OPTIONS"}),
        ("POST", "/health", {"GET", "HEAD", "OPTIONS"}),
        ("GET", "/api/v1/jobs/01a22ffe-af9b-70c8-8313-4d63d5053edd/cancel", {"POST", "OPTIONS"}),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(
    api: httpx.AsyncClient, method: str, path: str, allowed: set[str]
) -> None:
    answer = await api.request(method, path)

    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", GETS)
async def test_head_answers_as_get_without_the_body(api: httpx.AsyncClient, path: str) -> None:
    got = await api.get(path)
    head = await api.head(path)

    assert head.status_code == got.status_code == 200
    assert head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]


async def test_a_trailing_slash_does_not_matter(api: httpx.AsyncClient) -> None:
    assert (await api.get("/api/v1/jobs/")).status_code == 200
    assert (await api.post("/api/v1/jobs/", json={"type": "email_send"})).status_code == 201


@pytest.mark.parametrize(("method", "path"), [("GET", "/health"), ("POST", "/api/v1/jobs"), ("GET", "/nope")])
async def test_every_response_has_a_request_id_and_is_safe_to_show(
    api: httpx.AsyncClient, method: str, path: str
) -> None:
    one, two = [await api.request(method, path) for _ in range(2)]
    named = await api.request(method, path, headers={"X-Request-ID": "my-id.1"})

    assert one.headers["x-request-id"] != two.headers["x-request-id"]
    assert named.headers["x-request-id"] == "my-id.1"
    assert one.headers["x-content-type-options"] == "nosniff"
    assert one.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("text", ["", "x" * 129, "two words", "é", "a\tb"])
async def test_a_request_id_that_is_not_sane_is_replaced(api: httpx.AsyncClient, text: str) -> None:
    answer = await api.get("/health", headers={"X-Request-ID": text.encode()})

    assert answer.headers["x-request-id"] not in {"", text}


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/v1/jobs"), ("POST", "/api/v1/jobs"), ("GET", "/nope")])
async def test_allowed_origins_may_read_answers(api: httpx.AsyncClient, method: str, path: str) -> None:
    allowed = await api.request(method, path, headers={"Origin": ORIGIN})
    other = await api.request(method, path, headers={"Origin": "http://evil.example"})

    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    assert "X-Idempotency-Replay" in allowed.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in other.headers
    assert allowed.headers["vary"] == other.headers["vary"] == "Origin"


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs/x/cancel"])
async def test_preflights_are_answered(api: httpx.AsyncClient, path: str) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}

    allowed = await api.options(path, headers={"Origin": ORIGIN, **asked})
    other = await api.options(path, headers={"Origin": "http://evil.example", **asked})

    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in allowed.headers["access-control-allow-methods"]
    assert "Content-Type" in allowed.headers["access-control-allow-headers"]
    assert "access-control-allow-methods" not in other.headers


async def test_any_origin_when_told_so(make_settings: MakeSettings, registry: object) -> None:
    async with started(make_settings(cors_origins="*")) as api:
        answer = await api.get("/health", headers={"Origin": "http://anybody.example"})

    assert answer.headers["access-control-allow-origin"] == "*"


async def test_options_without_an_origin_names_the_methods(api: httpx.AsyncClient) -> None:
    answer = await api.options("/api/v1/jobs")

    assert answer.status_code == 204
    assert "POST" in answer.headers["allow"]


async def test_prometheus_counts_what_the_api_does(make_settings: MakeSettings, registry: object) -> None:
    def value(text: str, name: str) -> float:
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))

    names = [
        'jobqueue_jobs_created_total{priority="high",type="email_send"}',
        "jobqueue_idempotency_hits_total",
        "jobqueue_rate_limit_hits_total",
        "jobqueue_jobs_cancelled_total",
        "jobqueue_enqueue_total",
    ]
    async with started(make_settings(rate_limit_per_minute=2)) as api:
        before = (await api.get("/metrics")).text
        body = {"type": "email_send", "priority": "high", "idempotency_key": "k"}
        answers = [await api.post("/api/v1/jobs", json=body) for _ in range(3)]
        await api.post(f"/api/v1/jobs/{answers[0].json()['id']}/cancel")
        after = (await api.get("/metrics")).text

    grown = [value(after, name) - value(before, name) for name in names]
    assert [answer.status_code for answer in answers] == [201, 200, 429]
    assert grown == [1, 1, 1, 1, 2]
