"""Enqueueing from a program's own connection and transaction."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from jobqueue import InvalidInput, enqueue, enqueue_many, new_job
from jobqueue.job import Priority


@pytest.fixture
def own(database_url: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """A program's connection, with a row factory and a transaction of its own."""
    with psycopg.connect(make_conninfo(database_url), row_factory=dict_row) as connection:
        yield connection


def test_a_job_exists_exactly_when_the_transaction_commits(
    own: psycopg.Connection[Any], sql: psycopg.Connection
) -> None:
    enqueue(own, "email_send", {"to": "a@b.c"})
    own.rollback()
    kept = enqueue(own, "email_send", {"to": "a@b.c", "n": 12345678901234567890}, priority="high", queue="fifo")
    own.commit()

    rows = sql.execute("SELECT id, priority::text, queue, lane::text, payload ->> 'n' FROM jobs").fetchall()
    assert rows == [(kept.id, "high", "fifo", "fifo", "12345678901234567890")]


def test_a_key_gives_the_same_job_again(own: psycopg.Connection[Any], sql: psycopg.Connection) -> None:
    first = enqueue(own, "email_send", idempotency_key="k")
    own.commit()
    second = enqueue(own, "email_send", idempotency_key="k")

    assert (second.id, first.is_replay, second.is_replay) == (first.id, False, True)
    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (1,)


def test_many_jobs_come_with_their_ids_in_order(own: psycopg.Connection[Any], sql: psycopg.Connection) -> None:
    awkward = {"text": 'tab\t, newline\n, backslash \\N, quote " and ’'}
    ids = enqueue_many(own, [new_job("email_send", {**awkward, "n": n}) for n in range(2500)])
    own.commit()

    assert [row[0] for row in sql.execute("SELECT id FROM jobs ORDER BY (payload ->> 'n')::int")] == ids
    assert sql.execute("SELECT DISTINCT payload - 'n' FROM jobs").fetchall() == [(awkward,)]
    assert sql.execute("SELECT sum(jobs) FROM job_counts").fetchone() == (2500,)


def test_many_jobs_with_keys_and_times(own: psycopg.Connection[Any], sql: psycopg.Connection) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    jobs = [new_job("email_send", idempotency_key=f"k{n % 3}", run_at=later) for n in range(5)]

    ids = enqueue_many(own, jobs)
    own.commit()

    assert ids == [job.id for job in jobs[:3]]
    assert sql.execute("SELECT count(*) FROM jobs WHERE next_run_at > now()").fetchone() == (3,)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("type", {"job_type": ""}),
        ("type", {"job_type": "x" * 256}),
        ("payload", {"payload": {"n": float("nan")}}),
        ("payload", {"payload": {"text": "a\x00b"}}),
        ("priority", {"priority": "urgent"}),
        ("max_attempts", {"max_attempts": 11}),
        ("max_attempts", {"max_attempts": True}),
        ("run_at", {"run_at": datetime(2030, 1, 1)}),  # noqa: DTZ001  that is the mistake
        ("idempotency_key", {"idempotency_key": ""}),
        ("idempotency_key", {"idempotency_key": "k" * 256}),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(field: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        new_job(**{"job_type": "email_send", **arguments})

    assert caught.value.field == field


def test_a_queue_that_does_not_exist_is_refused_by_the_database(own: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="nowhere"):
        enqueue(own, "email_send", queue="nowhere")


def test_priorities_may_be_the_enum(own: psycopg.Connection[Any], sql: psycopg.Connection) -> None:
    enqueue(own, "email_send", priority=Priority.LOW)
    own.commit()

    assert sql.execute("SELECT priority::text FROM jobs").fetchone() == ("low",)
