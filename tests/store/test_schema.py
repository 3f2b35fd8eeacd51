"""The schema itself: states that must not be cannot be stored, and what retention removes (failures.md G6, H6, D10)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from jobqueue.job import Status
from jobqueue.store import jobs
from jobqueue.store.db import Connection
from tests.jobs import add, add_many, finish, owned, read

SECONDS_OF_A_DAY = 86_400


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("status = 'completed'", "jobs_finished_has_end"),
        ("completed_at = now()", "jobs_finished_has_end"),
        ("status = 'processing'", "jobs_processing_has_lease"),
        ("lease_token = gen_random_uuid()", "jobs_processing_has_lease"),
        ("lease_expires_at = now()", "jobs_lease_only_while_processing"),
        ("result = '1'", "jobs_result_only_when_completed"),
        ("status = 'failed', completed_at = now(), result = '1'", "jobs_result_only_when_completed"),
        ("status = 'completed', completed_at = now(), error = 'x'", "jobs_completed_has_no_error"),
        ("max_attempts = 0", "jobs_max_attempts_check"),
        ("max_attempts = 11", "jobs_max_attempts_check"),
        ("attempts = -1", "jobs_attempts_check"),
        ("payload = '[]'", "jobs_payload_check"),
        ("payload = '\"x\"'", "jobs_payload_check"),
        ("type = ''", "jobs_type_check"),
        ("idempotency_key = ''", "jobs_idempotency_key_check"),
        ("idempotency_key = repeat('k', 256)", "jobs_idempotency_key_check"),
    ],
)
async def test_a_state_that_must_not_be_is_refused(
    connection: Connection, sql: psycopg.Connection, change: str, constraint: str
) -> None:
    await add(connection)

    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        sql.execute(f"UPDATE jobs SET {change}".encode())

    assert caught.value.diag.constraint_name == constraint


@pytest.mark.parametrize("status", ["paused", "retrying", ""])
async def test_other_statuses_do_not_exist(connection: Connection, sql: psycopg.Connection, status: str) -> None:
    await add(connection)

    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        sql.execute("UPDATE jobs SET status = %s", (status,))


def test_a_plain_insert_from_sql_makes_a_job_of_defaults(sql: psycopg.Connection) -> None:
    row = sql.execute(
        "INSERT INTO jobs (type) VALUES ('email_send')"
        " RETURNING status, priority, queue, attempts, max_attempts, payload"
    ).fetchone()

    assert row == ("queued", "medium", "default", 0, 5, {})


def test_ids_made_by_the_server_are_version_7_and_grow(sql: psycopg.Connection) -> None:
    rows = [sql.execute("SELECT new_job_id(), clock_timestamp()").fetchone() for _ in range(200)]
    ids = [row[0] for row in rows if row]
    times = [row[1] for row in rows if row]

    assert {(one.version, one.variant) for one in ids} == {(7, "specified in RFC 4122")}
    assert [one.int >> 80 for one in ids] == sorted(one.int >> 80 for one in ids)
    for one, at in zip(ids, times, strict=True):
        assert abs((one.int >> 80) / 1000 - at.timestamp()) < 1


def age(sql: psycopg.Connection, job: object, days: float) -> None:
    """Let a finished job have been created and finished so many days ago."""
    then = datetime.now(UTC) - timedelta(days=days)
    milliseconds = int(then.timestamp() * 1000)
    old_id = f"{milliseconds:012x}7{job.id.hex[13:]}"  # type: ignore[attr-defined]
    sql.execute(
        "WITH moved AS (UPDATE job_logs SET job_id = %(new)s::uuid WHERE job_id = %(old)s)"
        " UPDATE jobs SET id = %(new)s::uuid, created_at = %(at)s, completed_at = %(at)s WHERE id = %(old)s",
        {"new": old_id, "old": job.id, "at": then},  # type: ignore[attr-defined]
    )


async def test_retention_removes_old_finished_jobs_with_their_logs_and_frees_their_keys(
    connection: Connection, sql: psycopg.Connection
) -> None:
    for number, kind in enumerate(("completed", "gave_up", "completed")):
        taken = await owned(connection, idempotency_key=f"old-{number}")
        await finish(connection, taken, kind)
        age(sql, taken, 31)
    young = await owned(connection, idempotency_key="young")
    await finish(connection, young)
    age(sql, young, 29)

    removed = await jobs.prune_jobs(connection, retention_seconds=30 * SECONDS_OF_A_DAY)

    assert removed == 3
    assert sql.execute("SELECT idempotency_key FROM jobs").fetchall() == [("young",)]
    assert sql.execute("SELECT count(*) FROM job_logs WHERE job_id NOT IN (SELECT id FROM jobs)").fetchone() == (0,)
    assert sql.execute("SELECT count(*) FROM job_logs").fetchone() == (2,)
    again = await add(connection, idempotency_key="old-0")
    assert again.status is Status.QUEUED


async def test_retention_never_removes_a_job_that_is_not_finished(
    connection: Connection, sql: psycopg.Connection
) -> None:
    running = await owned(connection)
    waiting = await add(connection)
    sql.execute("UPDATE jobs SET created_at = now() - interval '1 year', started_at = now() - interval '1 year'")

    assert await jobs.prune_jobs(connection, retention_seconds=0) == 0

    assert (await read(connection, running)).status is Status.PROCESSING
    assert (await read(connection, waiting)).status is Status.QUEUED


async def test_a_job_created_long_ago_and_finished_today_stays(connection: Connection, sql: psycopg.Connection) -> None:
    taken = await owned(connection)
    await finish(connection, taken)
    age(sql, taken, 100)
    sql.execute("UPDATE jobs SET completed_at = now()")

    assert await jobs.prune_jobs(connection, retention_seconds=SECONDS_OF_A_DAY) == 0


async def test_retention_of_a_century_removes_nothing(connection: Connection) -> None:
    await finish(connection, await owned(connection))

    assert await jobs.prune_jobs(connection, retention_seconds=36_500 * SECONDS_OF_A_DAY) == 0


async def test_retention_goes_in_pages_and_passes_over_rows_that_somebody_holds(
    connection: Connection, others: list[Connection], sql: psycopg.Connection
) -> None:
    added = await add_many(connection, 5)
    for job in added:
        await jobs.cancel_job(connection, job.id, actor="test")
    sql.execute("UPDATE jobs SET completed_at = now() - interval '2 seconds'")
    await asyncio.sleep(0.01)  # ids carry milliseconds: retention 0 means older than this one

    async with others[0].transaction():
        await others[0].execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (added[0].id,))
        sizes = [await jobs.prune_jobs(connection, retention_seconds=0, max_jobs=3) for _ in range(3)]

    assert sizes == [3, 1, 0]
    assert await jobs.prune_jobs(connection, retention_seconds=0) == 1


def test_every_table_and_column_has_a_comment(sql: psycopg.Connection) -> None:
    rows = sql.execute(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0"
        " AND c.relname <> 'alembic_version' AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL"
    ).fetchall()

    assert rows == []
