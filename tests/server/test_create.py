"""Creating jobs: what is accepted, what comes back, and what keys do."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import psycopg
import pytest

from jobqueue.executors import BaseExecutor
from jobqueue.settings import Settings
from tests.server.conftest import started

FIELDS = [
    "id",
    "type",
    "payload",
    "priority",
    "status",
    "idempotency_key",
    "attempts",
    "max_attempts",
    "next_retry_at",
    "created_at",
    "started_at",
    "completed_at",
    "error",
    "result",
]


async def create(api: httpx.AsyncClient, **body: Any) -> httpx.Response:
    headers = body.pop("headers", None)
    return await api.post("/api/v1/jobs", json={"type": "email_send", **body}, headers=headers)


async def test_a_created_job_is_committed_and_complete(api: httpx.AsyncClient, sql: psycopg.Connection) -> None:
    answer = await create(api, payload={"to": "ä@example.com"}, priority="high", max_attempts=3)

    job = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert "x-idempotency-replay" not in answer.headers
    assert list(job)[: len(FIELDS)] == FIELDS
    assert job["payload"] == {"to": "ä@example.com"}
    assert (job["priority"], job["max_attempts"], job["status"], job["attempts"]) == ("high", 3, "queued", 0)
    assert job["created_at"].endswith("Z")
    row = sql.execute("SELECT type, payload, request_hash FROM jobs WHERE id = %s", (job["id"],)).fetchone()
    assert row == ("email_send", {"to": "ä@example.com"}, None)


async def test_everything_but_the_type_has_a_default(api: httpx.AsyncClient) -> None:
    job = (await create(api)).json()

    assert job["payload"] == {}
    assert (job["priority"], job["max_attempts"], job["queue"]) == ("medium", 5, "default")
    assert job["idempotency_key"] is None


async def test_what_was_answered_is_what_is_stored(api: httpx.AsyncClient) -> None:
    created = (await create(api, payload={"n": 12345678901234567890123, "f": 1.5, "deep": [{"a": None}]})).json()

    stored = (await api.get(f"/api/v1/jobs/{created['id']}")).json()

    assert stored.pop("logs") == []
    assert stored == created


async def test_large_integers_stay_exact(api: httpx.AsyncClient) -> None:
    answer = await api.post(
        "/api/v1/jobs",
        content=b'{"type":"email_send","payload":{"n":123456789012345678901234567890,"d":0.1000000000000000055511151}}',
        headers={"content-type": "application/json"},
    )

    text = (await api.get(answer.headers["location"])).text
    assert '"n": 123456789012345678901234567890' in text
    assert '"d": 0.1000000000000000055511151' in text


async def test_the_last_of_two_equal_keys_counts(api: httpx.AsyncClient) -> None:
    answer = await api.post(
        "/api/v1/jobs",
        content=b'{"type":"nope","type":"email_send","payload":{"a":1,"a":2}}',
        headers={"content-type": "application/json; charset=utf-8"},
    )

    assert answer.status_code == 201
    assert answer.json()["payload"] == {"a": 2}


async def test_a_second_create_with_the_key_answers_with_the_first_job(api: httpx.AsyncClient) -> None:
    first = await create(api, idempotency_key="k", payload={"a": 1, "b": 2})
    again = await create(api, idempotency_key="k", payload={"b": 2, "a": 1})

    assert first.status_code == 201
    assert again.status_code == 200
    assert again.headers["x-idempotency-replay"] == "true"
    assert "x-idempotency-mismatch" not in again.headers
    assert again.json()["id"] == first.json()["id"]


@pytest.mark.parametrize(
    "other", [{"payload": {"a": "1"}}, {"priority": "low"}, {"type": "payment_retry"}, {"max_attempts": 4}]
)
async def test_a_replay_with_another_body_says_so(api: httpx.AsyncClient, other: dict[str, Any]) -> None:
    await create(api, idempotency_key="k", payload={"a": 1})

    again = await create(api, **{"idempotency_key": "k", "payload": {"a": 1}, **other})

    assert again.status_code == 200
    assert again.headers["x-idempotency-mismatch"] == "true"


async def test_strict_mode_refuses_a_replay_with_another_body(
    make_settings: Callable[..., Settings], registry: dict[str, object]
) -> None:
    async with started(make_settings(idempotency_strict=True)) as api:
        await create(api, idempotency_key="k", payload={"a": 1})

        same = await create(api, idempotency_key="k", payload={"a": 1})
        other = await create(api, idempotency_key="k", payload={"a": 2})

    assert same.status_code == 200
    assert other.status_code == 422
    assert other.json()["errors"][0]["field"] == "idempotency_key"


async def test_fifty_parallel_creates_with_one_key_make_one_job(
    api: httpx.AsyncClient, sql: psycopg.Connection
) -> None:
    answers = await asyncio.gather(*(create(api, idempotency_key="same", payload={"n": 1}) for _ in range(50)))

    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (1,)


async def test_two_processes_with_one_key_make_one_job(settings: Settings, registry: dict[str, object]) -> None:
    async with started(settings) as one, started(settings) as two:
        answers = await asyncio.gather(*(create(api, idempotency_key="k") for api in [one, two] * 25))

    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_a_key_lives_on_with_a_cancelled_job(api: httpx.AsyncClient) -> None:
    job = (await create(api, idempotency_key="k")).json()
    await api.post(f"/api/v1/jobs/{job['id']}/cancel")

    again = await create(api, idempotency_key="k")

    assert (again.status_code, again.json()["id"], again.json()["status"]) == (200, job["id"], "cancelled")


async def test_keys_are_compared_byte_by_byte(api: httpx.AsyncClient) -> None:
    one = await create(api, idempotency_key=unicodedata.normalize("NFC", "café"))
    two = await create(api, idempotency_key=unicodedata.normalize("NFD", "café"))

    assert (one.status_code, two.status_code) == (201, 201)


@pytest.mark.parametrize("header", ["abc-1", '"abc-1"'])
async def test_the_key_may_come_in_the_header(api: httpx.AsyncClient, header: str) -> None:
    first = await create(api, headers={"Idempotency-Key": header})
    again = await create(api, idempotency_key="abc-1")

    assert first.json()["idempotency_key"] == "abc-1"
    assert again.status_code == 200


async def test_header_and_body_must_name_the_same_key(api: httpx.AsyncClient) -> None:
    same = await create(api, idempotency_key="a", headers={"Idempotency-Key": "a"})
    differ = await create(api, idempotency_key="a", headers={"Idempotency-Key": "b"})

    assert same.status_code == 201
    assert differ.status_code == 422
    assert "differ" in differ.json()["detail"]


async def test_a_key_of_null_is_none(api: httpx.AsyncClient) -> None:
    answers = [await create(api, idempotency_key=None) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]


@pytest.mark.parametrize(("length", "status"), [(1, 201), (255, 201), (256, 422), (100_000, 422)])
async def test_a_key_has_1_to_255_characters(api: httpx.AsyncClient, length: int, status: int) -> None:
    assert (await create(api, idempotency_key="é" * length)).status_code == status


async def test_a_job_can_be_scheduled(api: httpx.AsyncClient) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)

    job = (await create(api, run_at=moment.isoformat())).json()

    assert msgspec.convert(job["next_run_at"], datetime) == moment
    assert job["next_retry_at"] is None


async def test_a_time_in_the_past_means_at_once(api: httpx.AsyncClient) -> None:
    job = (await create(api, run_at="0001-01-02T00:00:00+14:00")).json()

    assert job["next_run_at"] == job["created_at"]


async def test_a_job_goes_into_the_queue_it_names(api: httpx.AsyncClient, sql: psycopg.Connection) -> None:
    await create(api, queue="fifo")

    assert sql.execute("SELECT queue, lane::text FROM jobs").fetchone() == ("fifo", "fifo")


async def test_a_queue_added_by_an_operator_is_valid_at_once(api: httpx.AsyncClient, sql: psycopg.Connection) -> None:
    assert (await create(api, queue="mails")).status_code == 422

    sql.execute("INSERT INTO queues (name) VALUES ('mails')")

    assert (await create(api, queue="mails")).status_code == 201


async def test_a_queue_removed_meanwhile_is_the_client_s_error(api: httpx.AsyncClient, sql: psycopg.Connection) -> None:
    sql.execute("INSERT INTO queues (name) VALUES ('mails')")
    await create(api, queue="mails")
    sql.execute("DELETE FROM queues WHERE name = 'mails'")

    refused, fine = await asyncio.gather(create(api, queue="mails"), create(api))

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "queue")
    assert fine.status_code == 201


async def test_a_type_added_to_the_registry_is_valid_at_once(
    api: httpx.AsyncClient, registry: dict[str, object]
) -> None:
    class Custom(BaseExecutor):
        max_execution_seconds = 45

        async def execute(self, job_id: str, payload: dict[str, Any]) -> dict[str, Any]:
            return {}

    assert (await create(api, type="custom")).status_code == 422

    registry["custom"] = Custom()

    assert (await create(api, type="custom")).status_code == 201


async def test_a_type_registered_by_another_process_is_valid_at_once(
    api: httpx.AsyncClient, sql: psycopg.Connection
) -> None:
    assert (await create(api, type="elsewhere")).status_code == 422

    sql.execute("INSERT INTO job_types (name) VALUES ('elsewhere')")

    assert (await create(api, type="elsewhere")).status_code == 201


async def test_an_unknown_type_lists_the_known_ones(api: httpx.AsyncClient) -> None:
    answer = await create(api, type="emial_send")

    assert answer.status_code == 422
    assert '"emial_send"' in answer.json()["detail"]
    assert "email_send, payment_retry, report_generate" in answer.json()["detail"]


async def test_a_payload_must_fit_what_its_executor_declares(
    api: httpx.AsyncClient, registry: dict[str, object]
) -> None:
    class Charge(msgspec.Struct):
        amount: int

    class Typed(BaseExecutor):
        async def execute(self, job_id: str, payload: Charge) -> dict[str, Any]:
            return {}

    Typed.payload_type = Charge
    registry["typed"] = Typed()

    good = await create(api, type="typed", payload={"amount": 5})
    bad = await create(api, type="typed", payload={"amount": "5"})

    assert good.status_code == 201
    assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, "payload.amount")


async def test_the_trace_goes_into_its_own_column(api: httpx.AsyncClient, sql: psycopg.Connection) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    await create(api, headers={"traceparent": trace})
    await create(api, headers={"traceparent": "garbage"})

    rows = sql.execute("SELECT trace_context, payload FROM jobs ORDER BY id").fetchall()
    assert rows == [(trace, {}), (None, {})]


async def test_one_poisonous_job_does_not_take_its_neighbours_along(api: httpx.AsyncClient) -> None:
    # A number PostgreSQL cannot hold although it is within every limit of ours.
    poison = b'{"type":"email_send","payload":{"n":0.' + b"0" * 16_400 + b"1}}"

    answers = await asyncio.gather(
        *(create(api) for _ in range(5)),
        api.post("/api/v1/jobs", content=poison, headers={"content-type": "application/json"}),
        *(create(api) for _ in range(5)),
    )

    assert [answer.status_code for answer in answers] == [201] * 5 + [422] + [201] * 5
