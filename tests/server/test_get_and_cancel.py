"""Reading one job, and cancelling it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import httpx
import msgspec
import psycopg
import pytest

from jobqueue.store import jobs
from jobqueue.store.db import Connection
from tests.jobs import add, claim, messages


async def finish(connection: Connection, kind: str) -> str:
    await add(connection)
    (held,) = await claim(connection)
    outcome = jobs.Outcome(
        id=held.id,
        lease_token=held.lease_token,
        kind=kind,
        result=msgspec.Raw(b'{"n": 1}') if kind == "completed" else None,
        error=None if kind == "completed" else "Boom: no",
    )
    await jobs.finish_jobs(connection, [outcome])
    return str(held.id)


async def test_a_job_comes_with_its_log_oldest_first(api: httpx.AsyncClient, connection: Connection) -> None:
    job_id = await finish(connection, "completed")

    job = (await api.get(f"/api/v1/jobs/{job_id}")).json()

    assert list(job)[-1] == "logs"
    assert (job["status"], job["result"], job["error"]) == ("completed", {"n": 1}, None)
    assert job["completed_at"].endswith("Z")
    assert len(job["logs"]) >= 2
    assert job["logs"] == sorted(job["logs"], key=lambda line: line["created_at"])
    assert list(job["logs"][0]) == ["id", "job_id", "level", "message", "created_at"]
    assert job["logs"][0]["job_id"] == job_id


async def test_an_unknown_job_is_404(api: httpx.AsyncClient) -> None:
    for answer in (await api.get(f"/api/v1/jobs/{uuid4()}"), await api.post(f"/api/v1/jobs/{uuid4()}/cancel")):
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "text",
    [
        "abc",
        "0",
        "01a22ffeaf9b70c883134d63d5053edd",
        "{01a22ffe-af9b-70c8-8313-4d63d5053edd}",
        "urn:uuid:01a22ffe-af9b-70c8-8313-4d63d5053edd",
        "01a22ffe-af9b-70c8-8313-4d63d5053edg",
        "01a22ffe-af9b-70c8-8313-4d63d5053edd%0a",
        "%00",
        "%F0%9F%98%80",
        "x" * 5000,
    ],
)
async def test_what_is_not_a_uuid_is_422(api: httpx.AsyncClient, text: str) -> None:
    for answer in (await api.get(f"/api/v1/jobs/{text}"), await api.post(f"/api/v1/jobs/{text}/cancel")):
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == "job_id"


async def test_a_uuid_may_be_in_capitals(api: httpx.AsyncClient, connection: Connection) -> None:
    job = await add(connection)

    assert (await api.get(f"/api/v1/jobs/{str(job.id).upper()}")).status_code == 200


async def test_a_queued_job_is_cancelled(api: httpx.AsyncClient, connection: Connection) -> None:
    job = await add(connection)

    answer = await api.post(f"/api/v1/jobs/{job.id}/cancel", content=b"\x00 not json")

    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert answer.json()["completed_at"]
    assert any("API client 127.0.0.1" in message for message in await messages(connection, job))


async def test_a_running_job_is_cancelled(api: httpx.AsyncClient, connection: Connection) -> None:
    job = await add(connection)
    await claim(connection)

    answer = await api.post(f"/api/v1/jobs/{job.id}/cancel")

    assert (answer.status_code, answer.json()["status"], answer.json()["attempts"]) == (200, "cancelled", 1)


async def test_cancelling_twice_changes_nothing(api: httpx.AsyncClient, connection: Connection) -> None:
    job = await add(connection)

    first = await api.post(f"/api/v1/jobs/{job.id}/cancel")
    again = await api.post(f"/api/v1/jobs/{job.id}/cancel")

    assert again.status_code == 200
    assert again.json() == first.json()


@pytest.mark.parametrize(("kind", "status"), [("completed", "completed"), ("gave_up", "failed")])
async def test_a_finished_job_cannot_be_cancelled(
    api: httpx.AsyncClient, connection: Connection, kind: str, status: str
) -> None:
    job_id = await finish(connection, kind)

    answer = await api.post(f"/api/v1/jobs/{job_id}/cancel")

    assert answer.status_code == 409
    assert status in answer.json()["detail"]


async def test_reads_of_the_same_moment_each_get_their_own_answer(
    api: httpx.AsyncClient, connection: Connection
) -> None:
    jobs_there = [await add(connection, payload={"n": number}) for number in range(60)]
    wanted = [str(job.id) for job in jobs_there] + [str(uuid4()) for _ in range(5)] + ["no-id"]

    answers = await asyncio.gather(*(api.get(f"/api/v1/jobs/{one}") for one in wanted))

    assert [answer.status_code for answer in answers] == [200] * 60 + [404] * 5 + [422]
    assert [answer.json()["payload"]["n"] for answer in answers[:60]] == list(range(60))
    assert [answer.json()["logs"] for answer in answers[:60]] == [[]] * 60


async def test_a_read_after_the_connection_was_cut_is_answered(
    api: httpx.AsyncClient, connection: Connection, sql: psycopg.Connection
) -> None:
    job = await add(connection)
    await api.get(f"/api/v1/jobs/{job.id}")

    cut = sql.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'jobqueue-api-read'"
    ).fetchall()

    assert cut == [(True,)]
    assert (await api.get(f"/api/v1/jobs/{job.id}")).status_code == 200


async def test_the_times_of_a_log_read_as_those_of_the_job(api: httpx.AsyncClient, connection: Connection) -> None:
    job = (await api.get(f"/api/v1/jobs/{await finish(connection, 'completed')}")).json()

    for line in job["logs"]:
        moment = datetime.fromisoformat(line["created_at"])
        assert line["created_at"].endswith("Z")
        assert datetime.fromisoformat(job["started_at"]) <= moment <= datetime.now(UTC)
