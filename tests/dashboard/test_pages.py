"""Every page: what it shows, also when there is nothing, and that a stranger's text stays text (failures.md Q1)."""

from __future__ import annotations

import re

import psycopg
import pytest

from jobqueue.job import Priority
from jobqueue.store import history, stats, workers
from jobqueue.store.db import Connection
from jobqueue.store.workers import WorkerRecord
from tests.dashboard.conftest import HTML, Person
from tests.jobs import WORKER, add, add_many, claim, finish

PAGES = ["/", "/jobs", "/failures", "/workers", "/system", "/new"]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u0007"


def worker(**fields: object) -> WorkerRecord:
    values: dict[str, object] = {
        "id": WORKER, "hostname": "machine-7", "pid": 4711, "version": "1", "types": ["email_send"], "concurrency": 4,
    }  # fmt: skip
    return WorkerRecord(**{**values, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_works_without_any_job_and_is_safe_to_show(person: Person, path: str) -> None:
    response = await person.get(path)

    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|<style", person.page)
    assert not re.search(r"(src|href)=\"(https?:)?//", person.page)
    assert len(response.content) < 100_000


async def test_an_empty_overview_says_what_to_do_next(person: Person) -> None:
    await person.get("/")

    assert "No jobs yet. Create one" in person.text
    assert "No worker is running" in person.text


async def test_the_overview_tells_what_is_wrong(
    person: Person, connection: Connection, sql: psycopg.Connection
) -> None:
    await workers.upsert_worker(connection, worker(), lease_seconds=30)
    await add_many(connection, 3)
    [first] = await claim(connection)
    await finish(connection, first, "gave_up", error="payment 4711 refused")
    sql.execute("UPDATE jobs SET next_run_at = now() - interval '10 min' WHERE status = 'queued'")

    await person.get("/")

    assert "Falling behind: 2 jobs are due, the oldest since 10 min" in person.text
    assert "1 jobs failed for good in the last hour, 100% of all that ended" in person.text
    assert "payment # refused" in person.text
    assert "0 of 4 slots busy on 1 worker" in person.text


@pytest.mark.parametrize("span", ["hour", "day", "week", "nonsense"])
async def test_the_chart_shows_what_ended(person: Person, connection: Connection, span: str) -> None:
    await add_many(connection, 2)
    for taken in await claim(connection, 2):
        await finish(connection, taken)
    await stats.fold_job_counts(connection)

    await person.get(f"/?span={span}")

    assert "2 completed, 0 failed, 2 created" in person.text
    assert person.page.count(" UTC: 2 completed, 0 failed, 2 created") == 1


async def test_jobs_are_listed_by_status_and_every_filter_leaves_the_others_out(
    person: Person, connection: Connection, sql: psycopg.Connection
) -> None:
    wanted = await add(
        connection, "report_generate", priority=Priority.HIGH, queue="fifo", idempotency_key="k-1",
        payload={"customer": {"id": 17}, "list": ["x"]},
    )  # fmt: skip
    other = await add(connection, payload={"customer": {"id": 18}})
    sql.execute(
        "UPDATE jobs SET status = 'failed', error = 'GatewayError: 504', completed_at = now() - interval '3 h'"
        " WHERE id = %s",
        (wanted.id,),
    )
    for query in (
        "status=failed", "type=report_generate", "priority=high", "queue=fifo", "key=k-1", "error=gateway",
        "payload=customer.id%3D17", "payload=payload.list.0%3Dx", "since=2020-01-01T00:00&status=failed",
        "until=2090-01-01T00:00&type=report_generate", "group=GatewayError%3A+%23", "ended=2020-01-01T00:00",
        "order=oldest&status=failed",
    ):  # fmt: skip
        await person.get(f"/jobs?{query}")
        assert str(wanted.id) in person.page, query
        assert str(other.id) not in person.page, query
    for query in ("since=2090-01-01T00:00", "until=2020-01-01T00:00", "payload=customer.id%3D19", "key=k", "error=%25"):
        await person.get(f"/jobs?{query}")
        assert "No job matches" in person.text, query


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("status=bogus", 'status is "bogus": use one of queued, processing'),
        ("priority=9", 'priority is "9"'),
        ("since=yesterday", 'since is "yesterday": use a time such as'),
        ("payload=x", "use path=value"),
        ("payload=.%3D1", "use path=value"),
        ("after=1", "use a UUID"),
        ("error=a%00b", "holds a NUL"),
        ("type=" + "x" * 600, "longer than 500 characters"),
        ("id=12", "job_id is"),
    ],
)
async def test_a_filter_that_cannot_be_understood_is_told_and_the_page_still_works(
    person: Person, query: str, told: str
) -> None:
    await person.get(f"/jobs?{query}")

    assert told in person.text


async def test_pages_of_jobs_follow_each_other_without_gap_or_repeat(person: Person, connection: Connection) -> None:
    expected = {str(job.id) for job in await add_many(connection, 120)}
    for order in ("", "oldest"):
        path, seen = f"/jobs?order={order}", []
        while path:
            await person.get(path)
            seen += re.findall(r'href="/jobs/([0-9a-f-]{36})"', person.page)
            following = re.search(r'rel="next" href="([^"]+)"', person.page)
            path = following.group(1).replace("&amp;", "&") if following else ""
        assert len(seen) == 120
        assert set(seen) == expected
        assert seen == sorted(seen, reverse=not order)


async def test_a_job_id_typed_into_the_filter_opens_the_job(person: Person, connection: Connection) -> None:
    job = await add(connection)

    response = await person.get(f"/jobs?id={job.id}", 303)

    assert response.headers["location"] == f"/jobs/{job.id}"


async def test_a_job_shows_all_about_it(person: Person, connection: Connection) -> None:
    job = await add(connection, payload={"big": 12345678901234567890123, "x": 1.10}, idempotency_key="order-7")
    [first] = await claim(connection)
    await finish(connection, first, "failed", error="ValueError: no", delay_seconds=0)
    [second] = await claim(connection)
    await finish(connection, second, result=b'{"answer": 98765432109876543210}')

    await person.get(f"/jobs/{job.id}")

    for told in (
        "12345678901234567890123", "98765432109876543210", "order-7", "2 of 5", "Attempt 1", "Attempt 2",
        "failed, to be retried", "ValueError: no", "Claimed by worker test", "completed",
    ):  # fmt: skip
        assert told in person.text, told
    assert "Cancel…" not in person.text
    assert "Retry now" not in person.text


async def test_a_waiting_job_says_why_it_waits(person: Person, connection: Connection, sql: psycopg.Connection) -> None:
    await add_many(connection, 2, priority=Priority.HIGH)
    job = await add(connection)
    await person.get(f"/jobs/{job.id}")
    assert "No worker is running" in person.text

    await workers.upsert_worker(connection, worker(types=["other"]), lease_seconds=30)
    await person.get(f"/jobs/{job.id}")
    assert "No live worker knows the type email_send" in person.text

    sql.execute("DELETE FROM workers")
    await workers.upsert_worker(connection, worker(running=3), lease_seconds=30)
    await person.get(f"/jobs/{job.id}")
    assert "2 due jobs are claimed before it; 1 slots are free" in person.text

    sql.execute("DELETE FROM jobs WHERE priority = 'high'")
    await person.get(f"/jobs/{job.id}")
    assert "It is next, and a slot is free" in person.text

    sql.execute("UPDATE jobs SET next_run_at = now() + interval '3 h'")
    await person.get(f"/jobs/{job.id}")
    assert "It is not due yet" in person.text


async def test_jobs_before_a_fifo_job_are_all_due_priority_jobs_and_the_earlier_fifo_ones(
    person: Person, connection: Connection
) -> None:
    await add(connection, queue="fifo")
    job = await add(connection, queue="fifo")
    await add(connection, queue="fifo")
    await add(connection, priority=Priority.LOW)

    await person.get(f"/jobs/{job.id}")

    assert "Jobs before it 2" in person.text


async def test_text_of_strangers_stays_text_everywhere(
    person: Person, connection: Connection, sql: psycopg.Connection
) -> None:
    job = await add(connection, HOSTILE.replace("\u0007", ""), payload={HOSTILE.replace("\u0007", ""): HOSTILE})
    [taken] = await claim(connection, types=(job.type,))
    await workers.upsert_worker(connection, worker(hostname=HOSTILE, types=[HOSTILE]), lease_seconds=30)
    sql.execute("INSERT INTO job_logs (job_id, message) VALUES (%s, %s)", (job.id, HOSTILE))
    for path in ("/", "/jobs", f"/jobs/{job.id}", "/workers", f"/new?from={job.id}"):
        await person.get(path)
        assert "<script>alert" not in person.page, path
        assert "<img" not in person.page, path
        assert "\u202e" not in person.text, path  # a field of a form holds it exactly
        assert "\u0007" not in person.page, path
    await finish(connection, taken, "gave_up", error=HOSTILE)
    for path in ("/", "/jobs?status=failed", f"/jobs/{job.id}", "/failures", f"/jobs?type={HOSTILE[:20]}"):
        await person.get(path)
        assert "<script>alert" not in person.page, path
        assert "<img" not in person.page, path


async def test_a_payload_of_megabytes_is_cut_and_the_page_stays_small(
    person: Person, connection: Connection, sql: psycopg.Connection
) -> None:
    job = await add(connection)
    sql.execute("UPDATE jobs SET payload = jsonb_build_object('x', repeat('y', 5000000)) WHERE id = %s", (job.id,))

    response = await person.get(f"/jobs/{job.id}")

    assert len(response.content) < 300_000
    assert "characters in all" in person.text


async def test_of_a_log_without_end_the_latest_lines_and_every_attempt_are_shown(
    person: Person, connection: Connection, sql: psycopg.Connection
) -> None:
    job = await add(connection)
    await claim(connection)
    sql.execute(
        "INSERT INTO job_logs (job_id, message, created_at) SELECT %s, 'line ' || n || '.', now() + n * interval '1 ms'"
        " FROM generate_series(1, 3000) AS n",
        (job.id,),
    )

    response = await person.get(f"/jobs/{job.id}")

    assert "line 3000." in person.text
    assert "line 100." not in person.text
    assert "Attempt 1" in person.text
    assert "the latest 500 lines" in person.text
    assert len(response.content) < 200_000


async def test_workers_show_what_they_run_and_whether_they_are_lost(
    person: Person, connection: Connection, sql: psycopg.Connection
) -> None:
    job = await add(connection)
    await claim(connection)
    await workers.upsert_worker(connection, worker(running=1), lease_seconds=30)
    await person.get("/workers")
    assert "machine-7 :4711" in person.text
    assert str(job.id) in person.page
    assert ">live<" in person.page

    await workers.upsert_worker(connection, worker(is_stopping=True), lease_seconds=30)
    await person.get("/workers")
    assert ">stopping<" in person.page

    sql.execute("UPDATE workers SET heartbeat_at = now() - interval '1 h'")
    await person.get("/workers")
    assert ">lost<" in person.page


async def test_failures_are_grouped_without_their_numbers(person: Person, connection: Connection) -> None:
    await add_many(connection, 3)
    for number, taken in enumerate(await claim(connection, 3)):
        await finish(connection, taken, "gave_up", error=f"order {number} not found\nsecond line {number}")

    await person.get("/failures?span=hour")

    assert "order # not found" in person.text
    assert person.page.count("order # not found</a>") == 1
    assert "second line" not in person.text
    groups = await history.list_error_groups(connection)
    assert [(group.message, group.count) for group in groups] == [("order # not found", 3)]


async def test_the_system_page_tells_what_is_bad_in_plain_words(person: Person, connection: Connection) -> None:
    await person.get("/system")

    assert "No worker listens" in person.text
    assert "PostgreSQL" in person.text


async def test_a_job_that_is_not_there_and_a_page_that_is_not_there_are_told_as_pages(person: Person) -> None:
    await person.get("/jobs/01a2b3c4-d5e6-7f80-9a1b-2c3d4e5f6071", 404)
    assert "There is no such job" in person.text
    await person.get("/nowhere", 404)
    assert "There is nothing at /nowhere" in person.text
    response = await person.http.get("/jobs/01a2b3c4-d5e6-7f80-9a1b-2c3d4e5f6071")
    assert response.headers["content-type"] == "application/problem+json"


async def test_without_a_database_the_pages_say_so(visit: object, closed: str) -> None:
    async with visit(database_url=closed, database_timeout_seconds=1) as lonely:  # type: ignore[operator]
        await lonely.get("/", 503)
        assert "Not available right now" in lonely.text
        assert (await lonely.http.get("/assets/app.css", headers=HTML)).status_code == 200


@pytest.fixture
def closed() -> str:
    """A database that is not there."""
    return "postgresql://nobody@127.0.0.1:1/nothing"


async def test_files_of_the_pages_are_served_and_no_others(person: Person) -> None:
    for name, kind in (("app.css", "text/css"), ("app.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
        response = await person.http.get(f"/assets/{name}")
        assert response.headers["content-type"].startswith(kind)
        assert "immutable" in response.headers["cache-control"]
        assert len(response.content) < 30_000
    for name in ("../templates/base.html", "%2e%2e%2ftemplates%2fbase.html", "base.html"):
        assert (await person.http.get(f"/assets/{name}")).status_code == 404
