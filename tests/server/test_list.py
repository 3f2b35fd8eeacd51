"""Listing jobs: filters, pages, and parameters that are not understood."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from jobqueue.job import Priority
from jobqueue.store.db import Connection
from tests.jobs import add, add_many, claim


async def ids(api: httpx.AsyncClient, query: str = "") -> list[str]:
    answer = await api.get(f"/api/v1/jobs{query}")
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


async def test_an_empty_listing(api: httpx.AsyncClient) -> None:
    assert (await api.get("/api/v1/jobs")).json() == {"items": [], "total": 0, "page": 1, "page_size": 20}


async def test_pages_are_newest_first_and_never_overlap(api: httpx.AsyncClient, connection: Connection) -> None:
    jobs = await add_many(connection, 45)  # one statement: all have the same created_at

    pages = [await ids(api, f"?page={page}") for page in (1, 2, 3)]

    assert [len(page) for page in pages] == [20, 20, 5]
    assert [job_id for page in pages for job_id in page] == [str(job.id) for job in reversed(jobs)]


async def test_a_page_past_the_end_is_empty_with_the_true_total(api: httpx.AsyncClient, connection: Connection) -> None:
    await add_many(connection, 3)

    answer = (await api.get("/api/v1/jobs?page=1000000000000000&page_size=100")).json()

    assert (answer["items"], answer["total"]) == ([], 3)


@pytest.mark.parametrize(
    ("query", "expected"),
    [("status=processing", "claimed"), ("type=payment_retry", "payment"), ("priority=low", "low")],
)
async def test_each_filter_leaves_the_others_out(
    api: httpx.AsyncClient, connection: Connection, query: str, expected: str
) -> None:
    jobs = {
        "claimed": await add(connection, priority=Priority.HIGH),
        "payment": await add(connection, "payment_retry"),
        "low": await add(connection, priority=Priority.LOW),
    }
    await claim(connection)

    answer = (await api.get(f"/api/v1/jobs?{query}")).json()

    assert [item["id"] for item in answer["items"]] == [str(jobs[expected].id)]
    assert answer["total"] == 1


async def test_filters_combine(api: httpx.AsyncClient, connection: Connection) -> None:
    wanted = await add(connection, "payment_retry", priority=Priority.LOW)
    await add(connection, "payment_retry")
    await add(connection, priority=Priority.LOW)

    assert await ids(api, "?type=payment_retry&priority=low&status=queued") == [str(wanted.id)]


async def test_a_type_is_known_while_any_job_has_it(api: httpx.AsyncClient, connection: Connection) -> None:
    assert (await api.get("/api/v1/jobs?type=retired")).status_code == 422

    job = await add(connection, "retired")

    assert await ids(api, "?type=retired") == [str(job.id)]


async def test_a_registered_type_without_jobs_is_an_empty_listing(
    api: httpx.AsyncClient, sql: psycopg.Connection
) -> None:
    sql.execute("INSERT INTO job_types (name) VALUES ('new_one')")

    assert await ids(api, "?type=new_one") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=done", "status"),
        ("status=", "status"),
        ("status=queued&status=failed", "status"),
        ("priority=urgent", "priority"),
        ("priority=HIGH", "priority"),
        ("type=", "type"),
        ("type=nope", "type"),
        ("type=%00", "type"),
        ("type=%ff", "type"),
        ("type=" + "x" * 300, "type"),
        ("page=0", "page"),
        ("page=-1", "page"),
        ("page=abc", "page"),
        ("page=", "page"),
        ("page=1e3", "page"),
        ("page=%205", "page"),
        ("page=+5", "page"),
        ("page=%2B5", "page"),
        ("page=1.0", "page"),
        ("page=%D9%A3", "page"),
        ("page=1&page=2", "page"),
        ("page=1000000000000001", "page"),
        ("page=99999999999999999999", "page"),
        ("page=" + "9" * 5000, "page"),
        ("page_size=0", "page_size"),
        ("page_size=101", "page_size"),
        ("page_size=true", "page_size"),
        ("statuss=failed", "statuss"),
    ],
)
async def test_what_is_not_understood_is_refused(api: httpx.AsyncClient, query: str, field: str) -> None:
    answer = await api.get(f"/api/v1/jobs?{query}")

    problem: dict[str, Any] = answer.json()
    assert answer.status_code == 422
    assert problem["errors"][0]["field"] == field
    assert len(problem["detail"]) < 1_000
