"""job_counts: its sums are what a count of the table would be, whoever changes jobs and however."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from jobqueue.job import Claim, JobFilter, Priority, Status
from jobqueue.store import history, jobs, stats, workers
from jobqueue.store.db import Connection, statement
from tests.jobs import add, add_many, claim, finish, outcome, owned

GROUPS = "status, type, priority, lane"
COUNTED = f"SELECT {GROUPS}, sum(jobs), sum(run_microseconds) FROM job_counts GROUP BY {GROUPS} HAVING sum(jobs) <> 0"
TABLE = f"""
SELECT {GROUPS}, count(*), sum(run_microseconds(status, started_at, completed_at)) FROM jobs GROUP BY {GROUPS}
"""


def drift(sql: psycopg.Connection) -> list[Any]:
    """Return the groups on which the counts and the table do not agree."""
    return sql.execute(f"(({COUNTED}) EXCEPT ({TABLE})) UNION ALL (({TABLE}) EXCEPT ({COUNTED}))".encode()).fetchall()


@pytest.fixture
def other(database_url: str) -> Iterator[psycopg.Connection]:
    """Somebody else's session, with a transaction open from its first statement."""
    with psycopg.connect(make_conninfo(database_url)) as opened:
        yield opened
        opened.rollback()


async def test_the_counts_follow_every_change_of_state(connection: Connection, sql: psycopg.Connection) -> None:
    """A random walk through everything the store can do; the seed is fixed, so a failure repeats."""
    dice = random.Random(20)
    held: list[Claim] = []
    done: list[str] = []

    async def create() -> None:
        await add_many(
            connection,
            dice.randint(1, 5),
            dice.choice(["email_send", "report_generate"]),
            priority=dice.choice(list(Priority)),
            queue=dice.choice(["default", "fifo"]),
        )

    async def take() -> None:
        held.extend(await claim(connection, dice.randint(1, 6), ("email_send", "report_generate")))

    async def end() -> None:
        dice.shuffle(held)
        ending = [held.pop() for _ in range(min(len(held), dice.randint(1, 4)))]
        kinds = ["completed", "failed", "gave_up", "stopped"]
        await jobs.finish_jobs(connection, [outcome(taken, dice.choice(kinds)) for taken in ending])

    async def release() -> None:
        if held:
            taken = held.pop()
            await jobs.release_jobs(connection, [(taken.id, taken.lease_token)])

    async def cancel() -> None:
        if held:
            await jobs.cancel_job(connection, held.pop().id, actor="test")

    async def extend() -> None:
        await workers.extend_leases(connection, [(one.id, one.lease_token) for one in held], lease_seconds=30)

    async def recover() -> None:
        if held:
            taken = held.pop()
            sql.execute("UPDATE jobs SET lease_expires_at = now() - interval '1 s' WHERE id = %s", [taken.id])
            lost = [workers.LostJob(taken.id, taken.lease_token, taken.attempt)]
            await workers.recover_jobs(connection, lost, [0.0], stuck_seconds=60)

    async def fold() -> None:
        await stats.fold_job_counts(connection)

    async def prune() -> None:
        await jobs.prune_jobs(connection, retention_seconds=-60, max_jobs=dice.randint(1, 5))

    steps: list[Callable[[], Any]] = [
        create,
        create,
        take,
        take,
        end,
        end,
        release,
        cancel,
        extend,
        recover,
        fold,
        prune,
    ]
    for _ in range(250):
        step = dice.choice(steps)
        await step()
        done.append(step.__name__)
        assert drift(sql) == [], f"after {done[-5:]}"


BY_HAND = [
    "INSERT INTO jobs (type) VALUES ('a')",
    "INSERT INTO jobs (type, priority) SELECT 'a', 'high' FROM generate_series(1, 3)",
    "INSERT INTO jobs (type) SELECT 'a' WHERE false",
    "UPDATE jobs SET priority = 'low', type = 'b'",
    "UPDATE jobs SET status = 'completed', started_at = now() - interval '90 s', completed_at = now()",
    "UPDATE jobs SET completed_at = now(), status = 'cancelled'",
    "UPDATE jobs SET payload = '{\"a\": 1}'",
    "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs LIMIT 2)",
    "TRUNCATE jobs",
    "BEGIN; INSERT INTO jobs (type) VALUES ('gone'); ROLLBACK",
    "INSERT INTO jobs (type, idempotency_key) VALUES ('a', 'k') ON CONFLICT (idempotency_key)"
    " WHERE idempotency_key IS NOT NULL DO NOTHING",
    "WITH a AS (INSERT INTO jobs (type) VALUES ('a')) UPDATE jobs SET type = 'c'",
    "SET session_replication_role = replica; INSERT INTO jobs (type) VALUES ('a'); UPDATE jobs SET type = 'd'",
]


@pytest.mark.parametrize("change", BY_HAND)
async def test_changes_by_hand_are_counted(connection: Connection, sql: psycopg.Connection, change: str) -> None:
    await add_many(connection, 4)
    await finish(connection, await owned(connection))
    await add(connection, idempotency_key="k")

    sql.execute(change.encode())

    assert drift(sql) == []


async def test_a_load_by_copy_is_counted(sql: psycopg.Connection) -> None:
    with sql.cursor().copy("COPY jobs (type, priority) FROM STDIN") as copy:
        for number in range(30):
            copy.write_row([f"type-{number % 3}", "high"])

    assert drift(sql) == []


async def test_an_update_that_moves_no_job_appends_nothing(connection: Connection, sql: psycopg.Connection) -> None:
    held = await owned(connection)
    before = (await stats.read_figures(connection)).change_count

    await workers.extend_leases(connection, [(held.id, held.lease_token)], lease_seconds=60)

    assert (await stats.read_figures(connection)).change_count == before


async def test_folding_leaves_one_row_a_group_and_the_same_sums(
    connection: Connection, sql: psycopg.Connection
) -> None:
    for _ in range(20):
        await add(connection)
    await finish(connection, await owned(connection, priority=Priority.HIGH))
    before = await stats.read_figures(connection)

    await stats.fold_job_counts(connection)

    after = await stats.read_figures(connection)
    assert (after.by_status, after.depths) == (before.by_status, before.depths)
    assert after.avg_processing_time_seconds == before.avg_processing_time_seconds
    assert (before.change_count, after.change_count) == (25, 2)
    assert drift(sql) == []


async def test_a_fold_beside_another_does_nothing_and_does_not_wait(
    connection: Connection, sql: psycopg.Connection, other: psycopg.Connection
) -> None:
    await add_many(connection, 3)
    other.execute(statement("fold_job_counts"))
    await add_many(connection, 2)

    await stats.fold_job_counts(connection)
    assert (await stats.read_figures(connection)).by_status["queued"] == 5
    other.commit()

    assert (await stats.read_figures(connection)).by_status["queued"] == 5
    assert drift(sql) == []


async def test_a_fold_remembers_what_happened_in_each_minute(connection: Connection, sql: psycopg.Connection) -> None:
    await add_many(connection, 4)
    first, second, third = await claim(connection, 3)
    await finish(connection, first)
    await finish(connection, second, "gave_up", error="no")
    await jobs.cancel_job(connection, third.id, actor="test")
    sql.execute("UPDATE job_counts SET minute = minute - interval '90 s'")
    before = await history.read_throughput(connection, seconds=3600, span_seconds=3600)
    for _ in range(2):  # the second time there is nothing new
        await stats.fold_job_counts(connection)

    folded = await history.read_throughput(connection, seconds=3600, span_seconds=3600)

    assert folded == before
    totals = [sum(getattr(span, name) for span in folded) for name in ("created", "completed", "failed", "cancelled")]
    assert totals == [4, 1, 1, 1]
    assert drift(sql) == []


async def test_minutes_older_than_a_week_are_forgotten(connection: Connection, sql: psycopg.Connection) -> None:
    await add_many(connection, 1)
    await stats.fold_job_counts(connection)
    sql.execute("UPDATE job_minutes SET minute = now() - interval '9 days'")
    await add_many(connection, 2)
    await stats.fold_job_counts(connection)

    await stats.prune_job_minutes(connection)

    assert sql.execute("SELECT sum(jobs)::int FROM job_minutes").fetchone() == (2,)


async def test_a_fold_that_is_rolled_back_changes_nothing(
    connection: Connection, sql: psycopg.Connection, other: psycopg.Connection
) -> None:
    await add_many(connection, 3)
    other.execute(statement("fold_job_counts"))
    other.rollback()

    assert drift(sql) == []


async def test_recounting_puts_right_what_was_changed_behind_the_triggers(
    connection: Connection, sql: psycopg.Connection
) -> None:
    await add_many(connection, 3)
    sql.execute("ALTER TABLE jobs DISABLE TRIGGER USER; DELETE FROM jobs; ALTER TABLE jobs ENABLE TRIGGER USER")
    assert drift(sql) != []

    sql.execute("SELECT recount_jobs()")

    assert drift(sql) == []


async def test_page_and_total_come_from_one_snapshot(
    connection: Connection, sql: psycopg.Connection, other: psycopg.Connection
) -> None:
    await add_many(connection, 3)
    other.execute("INSERT INTO jobs (type) VALUES ('email_send')")

    before = await jobs.list_jobs(connection, JobFilter(), page=1, page_size=10)
    other.commit()
    after = await jobs.list_jobs(connection, JobFilter(), page=1, page_size=10)

    assert (len(before[0]), before[1]) == (3, 3)
    assert (len(after[0]), after[1]) == (4, 4)


async def test_delayed_jobs_leave_the_due_ones_when_their_time_comes(
    connection: Connection, sql: psycopg.Connection
) -> None:
    await add_many(connection, 2, run_at=datetime.now(UTC) + timedelta(hours=1))
    await add(connection, run_at=datetime.now(UTC) + timedelta(hours=1), queue="fifo")
    before = (await stats.read_figures(connection)).depths

    sql.execute("UPDATE jobs SET created_at = created_at - interval '2 h', next_run_at = now() - interval '1 s'")

    after = (await stats.read_figures(connection)).depths
    assert (before.fifo, before.priority, before.scheduled) == (0, 0, 3)
    assert (after.fifo, after.priority, after.scheduled) == (1, 2, 0)
    assert (await jobs.list_jobs(connection, JobFilter(status=Status.QUEUED), page=1, page_size=1))[1] == 3


async def test_a_list_that_adds_up_many_changes_folds_them(connection: Connection, sql: psycopg.Connection) -> None:
    """Nobody else may be there to do it."""
    sql.execute("DO 'BEGIN FOR n IN 1..2100 LOOP INSERT INTO jobs (type) VALUES (''a''); END LOOP; END'")

    _, total = await jobs.list_jobs(connection, JobFilter(), page=1, page_size=1)

    assert total == 2100
    assert (await stats.read_figures(connection)).change_count == 1
    assert drift(sql) == []
