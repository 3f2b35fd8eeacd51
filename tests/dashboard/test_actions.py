"""What visitors do, and what they are kept from doing (failures.md Q2, Q3)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from jobqueue.executors import EXECUTOR_REGISTRY
from jobqueue.job import Status
from jobqueue.store.db import Connection
from tests.dashboard.conftest import Person, Visit
from tests.jobs import add, add_many, claim, finish, messages, read
from tests.worker.probes import TypedProbe


async def failed(connection: Connection, count: int, job_type: str = "email_send", error: str = "no") -> list[Any]:
    jobs = await add_many(connection, count, job_type)
    for taken in await claim(connection, count, (job_type,)):
        await finish(connection, taken, "gave_up", error=error)
    return jobs


async def test_a_job_is_created_from_the_form(person: Person, connection: Connection) -> None:
    await person.get("/new?preset=high")
    assert "ann@example.com" in person.text

    response = await person.send(
        "/new", type="email_send", payload='{"n": 12345678901234567890}', priority="high", queue="default",
        max_attempts="3", idempotency_key="k-1", run_at="2090-01-31T12:00",
    )  # fmt: skip

    await person.get(response.headers["location"])
    assert "The job was created" in person.text
    assert "Created by dashboard user operator at 127.0.0.1" in person.text
    assert "12345678901234567890" in person.text
    job_id = response.headers["location"].partition("?")[0].rpartition("/")[2]
    [row] = [await read(connection, type("J", (), {"id": job_id}))]  # type: ignore[arg-type]
    assert (row.priority, row.max_attempts, row.idempotency_key) == ("high", 3, "k-1")
    assert row.next_run_at.isoformat() == "2090-01-31T12:00:00+00:00"

    await person.get("/new")
    again = await person.send("/new", type="email_send", payload="{}", idempotency_key="k-1")
    assert again.headers["location"] == f"/jobs/{job_id}?notice=mismatch"
    await person.get(again.headers["location"])
    assert "This key was used before" in person.text


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"payload": '{"a": 1,\n  b}'}, "at line 2, column 3"),
        ({"payload": "[]"}, "payload is a list: use a JSON object"),
        ({"payload": '{"a": "\\u0000"}'}, "NUL"),
        ({"max_attempts": "11"}, "max_attempts is 11"),
        ({"max_attempts": "many"}, 'max_attempts is "many"'),
        ({"type": "bogus"}, "not registered"),
        ({"priority": "urgent"}, "priority is"),
        ({"queue": "nowhere"}, "queue is"),
        ({"idempotency_key": "x" * 256}, "idempotency_key is"),
        ({"run_at": "soon"}, "run_at is"),
    ],
)
async def test_a_mistake_is_told_at_its_field_and_everything_typed_is_still_there(
    person: Person, sql: psycopg.Connection, form: dict[str, str], told: str
) -> None:
    await person.get("/new")

    await person.send("/new", 422, **{"type": "email_send", "payload": '{"kept": "yes"}', "max_attempts": "7", **form})

    assert told in person.text
    assert "Not created" in person.text
    for name, value in {"payload": "kept", "max_attempts": "7"}.items():
        if name not in form:
            assert value in person.page
    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


async def test_a_type_with_a_declared_payload_has_a_field_for_each_member(
    visit: Visit, registry: dict[str, object], connection: Connection
) -> None:
    EXECUTOR_REGISTRY["typed"] = TypedProbe()
    async with visit() as person:
        await person.get("/new?type=typed")
        assert 'name="payload.amount"' in person.page

        await person.send("/new", 422, type="typed", **{"payload.amount": "many"})
        assert "many is not a number" in person.text

        response = await person.send("/new", type="typed", **{"payload.amount": "7"})
        await person.get(response.headers["location"])
        assert '"amount": 7' in person.text


async def test_the_rate_limit_is_told_as_a_wait(visit: Visit) -> None:
    async with visit(rate_limit_per_minute=1) as person:
        await person.get("/new")
        await person.send("/new", type="email_send", payload="{}")

        await person.send("/new", 429, type="email_send", payload='{"still": "here"}')

        assert "try again in" in person.text
        assert "still" in person.page


async def test_one_job_is_cancelled_and_run_again_and_its_log_tells_by_whom(
    person: Person, connection: Connection
) -> None:
    job = await add(connection)
    await person.get(f"/jobs/{job.id}")
    await person.send(f"/jobs/{job.id}/cancel")
    assert (await read(connection, job)).status is Status.CANCELLED
    assert any("Cancelled by dashboard user operator at 127.0.0.1" in line for line in await messages(connection, job))

    await person.get(f"/jobs/{job.id}")
    await person.send(f"/jobs/{job.id}/retry")
    assert (await read(connection, job)).status is Status.QUEUED
    assert any("Queued again by dashboard user operator" in line for line in await messages(connection, job))

    [taken] = await claim(connection)
    await finish(connection, taken)
    late = await person.send(f"/jobs/{job.id}/cancel")
    assert late.headers["location"].endswith("notice=too-late")
    assert (await read(connection, job)).status is Status.COMPLETED


async def test_ticked_jobs_are_counted_shown_and_then_changed(person: Person, connection: Connection) -> None:
    jobs = await failed(connection, 4)
    await person.get("/jobs?status=failed")

    await person.send("/bulk", 200, action="retry", scope="ticked", ids=f"{jobs[0].id},{jobs[1].id}", status="failed")
    assert "Retry 2 jobs?" in person.text
    assert [(await read(connection, job)).status for job in jobs] == [Status.FAILED] * 4

    ids = f"{jobs[0].id},{jobs[1].id}"
    await person.send("/bulk", 200, action="retry", scope="ticked", ids=ids, status="failed", confirmed="yes")
    assert "2 jobs queued again" in person.text
    assert [(await read(connection, job)).status for job in jobs] == [Status.QUEUED] * 2 + [Status.FAILED] * 2


async def test_all_that_match_are_changed_and_no_others(
    person: Person, connection: Connection, sql: psycopg.Connection
) -> None:
    await failed(connection, 3, "payment_retry", "504")
    await failed(connection, 2, "payment_retry", "refused")
    await failed(connection, 2, "email_send", "504")
    sql.execute("UPDATE jobs SET completed_at = now() - interval '2 h' WHERE error = 'refused'")
    await person.get("/failures?span=hour")
    form = {"action": "retry", "scope": "all", "status": "failed", "type": "payment_retry", "ended": "2020-01-01T00:00"}

    await person.send("/bulk", 200, **{**form, "group": "#"})
    assert "Retry 3 jobs?" in person.text
    await person.send("/bulk", 200, **{**form, "group": "#", "confirmed": "yes"})

    counted = dict(
        sql.execute("SELECT type || error, count(*) FROM jobs WHERE status = 'queued' GROUP BY 1").fetchall()
    )
    assert counted == {"payment_retry504": 3}


async def test_cancelling_all_leaves_what_has_ended(
    person: Person, connection: Connection, sql: psycopg.Connection
) -> None:
    await failed(connection, 2)
    await add_many(connection, 700)
    await claim(connection, 3)
    await person.get("/jobs")

    await person.send("/bulk", 200, action="cancel", scope="all")
    assert "Cancel 700 jobs?" in person.text
    assert "Nothing narrows this" in person.text
    await person.send("/bulk", 200, action="cancel", scope="all", confirmed="yes")

    assert "700 jobs cancelled" in person.text
    assert dict(sql.execute("SELECT status::text, count(*) FROM jobs GROUP BY 1").fetchall()) == {
        "cancelled": 700,
        "failed": 2,
    }


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({"Origin": "https://evil.example"}, None),
        ({"Origin": "null"}, None),
        ({"Sec-Fetch-Site": "cross-site"}, None),
        ({"Sec-Fetch-Site": "same-site"}, None),
        ({}, ""),
        ({}, "0" * 64),
        ({}, "é"),
    ],
)
async def test_a_form_of_another_site_is_refused(
    person: Person, connection: Connection, headers: dict[str, str], token: str | None
) -> None:
    job = await add(connection)
    await person.get(f"/jobs/{job.id}")
    form = {} if token is None else {"token": token}

    for path in (f"/jobs/{job.id}/cancel", f"/jobs/{job.id}/retry", "/bulk", "/new", "/logout", "/login"):
        await person.send(path, 403, headers, **form)

    assert (await read(connection, job)).status is Status.QUEUED


async def test_a_proxy_that_changes_the_host_does_no_harm(person: Person, connection: Connection) -> None:
    job = await add(connection)
    await person.get(f"/jobs/{job.id}")

    headers = {"Origin": "https://queue.example.com", "Sec-Fetch-Site": "same-origin"}
    await person.send(f"/jobs/{job.id}/cancel", 303, headers)

    assert (await read(connection, job)).status is Status.CANCELLED


async def test_nothing_changes_by_reading(person: Person, connection: Connection) -> None:
    job = await add(connection)

    for path in (f"/jobs/{job.id}/cancel", f"/jobs/{job.id}/retry", "/bulk", "/logout"):
        assert (await person.http.get(path)).status_code in {404, 405}

    assert (await read(connection, job)).status is Status.QUEUED


async def test_forms_that_are_none_are_refused(person: Person) -> None:
    await person.get("/new")
    response = await person.http.post("/new", content=b"{}", headers={"Content-Type": "application/json"})
    assert response.status_code == 415
    many = "&".join(f"a{n}=1" for n in range(2_000))
    response = await person.http.post(
        "/new", content=many.encode(), headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert response.status_code == 400
