"""Bodies nobody should send, each with the exact answer."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import psycopg
import pytest

from jobqueue.settings import Settings
from tests.server.conftest import started

PATH = "/api/v1/jobs"


def typed(rest: bytes) -> bytes:
    return b'{"type":"email_send",' + rest + b"}"


def payload(value: bytes) -> bytes:
    return typed(b'"payload":' + value)


NOT_JSON = {
    "empty": b"",
    "blank": b" \n",
    "open brace": b"{",
    "byte order mark": b"\xef\xbb\xbf" + typed(b'"payload":{}'),
    "invalid utf-8": payload(b'{"a":"\xff"}'),
    "invalid utf-8 in a name": b'{"type":"email_send","x\xff":1}',
    "trailing comma": payload(b'{"a":1,}'),
    "two values": typed(b'"payload":{}') + b" {}",
    "single quotes": b"{'type':'email_send'}",
    "a form": b"type=email_send",
    "leading zero": payload(b'{"a":01}'),
    "utf-16": '{"type":"email_send"}'.encode("utf-16"),
}

REFUSED = {
    "null": (b"null", ""),
    "a list": (b"[]", ""),
    "text": (b'"x"', ""),
    "no type": (b"{}", "type"),
    "type null": (b'{"type":null}', "type"),
    "type number": (b'{"type":5}', "type"),
    "type empty": (b'{"type":""}', "type"),
    "type unknown": (b'{"type":"nope"}', "type"),
    "type huge": (b'{"type":"' + b"x" * 100_000 + b'"}', "type"),
    "type with NUL": (b'{"type":"email_send\\u0000"}', "type"),
    "type deep": (b'{"type":' + b"[" * 500 + b"]" * 500 + b"}", "type"),
    "payload null": (payload(b"null"), "payload"),
    "payload list": (payload(b"[]"), "payload"),
    "payload text": (payload(b'"x"'), "payload"),
    "payload number": (payload(b"1"), "payload"),
    "NUL in text": (payload(b'{"a":"\\u0000"}'), "payload"),
    "NUL in a key": (payload(b'{"\\u0000":1}'), "payload"),
    "lone surrogate": (payload(b'{"a":"\\ud800"}'), "payload"),
    "lone surrogate in a key": (payload(b'{"\\udc00":1}'), "payload"),
    "NaN": (payload(b'{"a":NaN}'), "payload"),
    "Infinity": (payload(b'{"a":-Infinity}'), "payload"),
    "1e400": (payload(b'{"a":1e400}'), "payload"),
    "1e309": (payload(b'{"a":1e309}'), "payload"),
    "1e-16000": (payload(b'{"a":1e-16000}'), ""),
    "a huge exponent": (payload(b'{"a":1e999999999999999999999}'), ""),
    "5000 digits": (payload(b'{"a":' + b"1" * 5000 + b"}"), ""),
    "65 levels": (payload(b'{"a":' * 65 + b"1" + b"}" * 65), "payload"),
    "2000 levels": (payload(b'{"a":' * 2000 + b"1" + b"}" * 2000), ""),
    "100000 levels": (payload(b"[" * 100_000 + b"]" * 100_000), ""),
    "100000 open lists": (b'{"type":' + b"[" * 100_000, ""),
    "priority unknown": (typed(b'"priority":"urgent"'), "priority"),
    "priority in capitals": (typed(b'"priority":"HIGH"'), "priority"),
    "priority null": (typed(b'"priority":null'), "priority"),
    "priority number": (typed(b'"priority":1'), "priority"),
    "priority list": (typed(b'"priority":["high"]'), "priority"),
    "max_attempts 0": (typed(b'"max_attempts":0'), "max_attempts"),
    "max_attempts 11": (typed(b'"max_attempts":11'), "max_attempts"),
    "max_attempts -1": (typed(b'"max_attempts":-1'), "max_attempts"),
    "max_attempts text": (typed(b'"max_attempts":"5"'), "max_attempts"),
    "max_attempts 5.5": (typed(b'"max_attempts":5.5'), "max_attempts"),
    "max_attempts true": (typed(b'"max_attempts":true'), "max_attempts"),
    "max_attempts null": (typed(b'"max_attempts":null'), "max_attempts"),
    "max_attempts huge": (typed(b'"max_attempts":' + b"9" * 400), "max_attempts"),
    "queue unknown": (typed(b'"queue":"nope"'), "queue"),
    "queue with NUL": (typed(b'"queue":"\\u0000"'), "queue"),
    "queue null": (typed(b'"queue":null'), "queue"),
    "key empty": (typed(b'"idempotency_key":""'), "idempotency_key"),
    "key number": (typed(b'"idempotency_key":5'), "idempotency_key"),
    "key with NUL": (typed(b'"idempotency_key":"a\\u0000"'), "idempotency_key"),
    "key surrogate": (typed(b'"idempotency_key":"\\ud800"'), "idempotency_key"),
    "run_at no offset": (typed(b'"run_at":"2030-01-01T00:00:00"'), "run_at"),
    "run_at date": (typed(b'"run_at":"2030-01-01"'), "run_at"),
    "run_at number": (typed(b'"run_at":1893456000'), "run_at"),
    "run_at words": (typed(b'"run_at":"tomorrow"'), "run_at"),
    "run_at far": (typed(b'"run_at":"9999-12-31T23:59:59-14:00"'), "run_at"),
    "unknown field": (typed(b'"payloads":{}'), "payloads"),
    "status set by the client": (typed(b'"status":"completed"'), "status"),
}

ACCEPTED = {
    "an escaped backslash before u0000": payload(b'{"a":"\\\\u0000"}'),
    "64 levels": payload(b'{"a":' * 64 + b"1" + b"}" * 64),
    "30 digits": payload(b'{"a":' + b"1" * 30 + b"}"),
    "a large double": payload(b'{"a":1e300}'),
    "the smallest double": payload(b'{"a":5e-324}'),
    "an emoji as a pair": payload(b'{"a":"\\ud83d\\ude00"}'),
    "blanks around": b" \n" + payload(b"{ }") + b"\n",
    "nulls where there is none": typed(b'"run_at":null,"idempotency_key":null'),
}


async def post(api: httpx.AsyncClient, body: bytes, media_type: str | None = "application/json") -> httpx.Response:
    return await api.post(PATH, content=body, headers={"content-type": media_type} if media_type else {})


def assert_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert answer.status_code == status, problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["detail"]
    assert len(problem["detail"]) < 2_500
    assert "Traceback" not in answer.text
    return problem


@pytest.mark.parametrize("name", NOT_JSON)
async def test_what_is_not_json_is_400(api: httpx.AsyncClient, name: str) -> None:
    assert_problem(await post(api, NOT_JSON[name]), 400)


@pytest.mark.parametrize("name", REFUSED)
async def test_json_that_cannot_be_a_job_is_422_and_names_the_field(api: httpx.AsyncClient, name: str) -> None:
    body, field = REFUSED[name]

    problem = assert_problem(await post(api, body), 422)

    assert problem["errors"][0]["field"] == field
    assert problem["errors"][0]["message"]


@pytest.mark.parametrize("name", ACCEPTED)
async def test_what_only_looks_dangerous_is_accepted_and_can_be_read(api: httpx.AsyncClient, name: str) -> None:
    answer = await post(api, ACCEPTED[name])

    assert answer.status_code == 201, answer.text
    stored = (await api.get(answer.headers["location"])).json()["payload"]
    assert stored == answer.json()["payload"] or stored == {"a": 10**300}


@pytest.mark.parametrize(
    "media_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx"],
)
async def test_only_json_is_taken_for_json(api: httpx.AsyncClient, media_type: str | None) -> None:
    assert_problem(await post(api, b'{"type":"email_send"}', media_type), 415)


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"])
async def test_parameters_of_the_media_type_do_not_matter(api: httpx.AsyncClient, media_type: str) -> None:
    assert (await post(api, b'{"type":"email_send"}', media_type)).status_code == 201


async def test_a_compressed_body_is_refused(api: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}

    assert_problem(await api.post(PATH, content=b"\x1f\x8b", headers=headers), 415)


async def test_all_bad_fields_are_named_at_once(api: httpx.AsyncClient) -> None:
    answer = await post(api, b'{"type":7,"priority":"x","max_attempts":0}')

    assert [error["field"] for error in answer.json()["errors"]] == ["type", "priority", "max_attempts"]


async def test_unknown_fields_are_named_beside_the_known_ones(api: httpx.AsyncClient) -> None:
    detail = (await post(api, b'{"type":"email_send","pripority":"low"}')).json()["detail"]

    assert '"pripority"' in detail
    assert "type, payload, priority, queue, max_attempts, run_at, idempotency_key" in detail


async def test_refused_bodies_leave_no_job_and_cost_nothing(
    settings: Settings, make_settings: Any, registry: dict[str, object], sql: psycopg.Connection
) -> None:
    async with started(make_settings(rate_limit_per_minute=1)) as api:
        for body in [*NOT_JSON.values(), *(body for body, _ in REFUSED.values())]:
            assert (await post(api, body)).status_code in {400, 422}
        accepted = await post(api, b'{"type":"email_send"}')

    assert accepted.status_code == 201
    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (1,)


async def test_a_flood_of_unknown_types_asks_the_database_one_question_at_a_time(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobqueue.server import known

    under_way: list[int] = [0, 0, 0]
    read = known.list_job_types

    async def counted(connection: Any) -> Any:
        under_way[0] += 1
        under_way[1] = max(under_way[1], under_way[0])
        under_way[2] += 1
        try:
            return await read(connection)
        finally:
            under_way[0] -= 1

    monkeypatch.setattr(known, "list_job_types", counted)
    answers = await asyncio.gather(*(post(api, b'{"type":"nope"}') for _ in range(100)))

    assert {answer.status_code for answer in answers} == {422}
    assert under_way[1] == 1
    assert under_way[2] <= 5
