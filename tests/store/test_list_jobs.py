"""Listings, counts and logs: complete, disjoint, filtered (failures.md 1.M)."""

from __future__ import annotations

import psycopg
import pytest

from jobqueue.job import Job, JobFilter, LogLevel, Priority, Status
from jobqueue.store import jobs, stats
from jobqueue.store.db import Connection
from jobqueue.store.jobs import LogLine
from tests.jobs import add, add_many, claim, finish, owned


async def test_pages_are_disjoint_and_complete_when_all_jobs_have_the_same_time(connection: Connection) -> None:
    added = await add_many(connection, 57)
    assert len({job.created_at for job in added}) == 1

    found = [await jobs.list_jobs(connection, JobFilter(), page=page, page_size=10) for page in range(1, 8)]
    pages = [page for page, _ in found]

    assert {total for _, total in found} == {57}
    assert [len(page) for page in pages] == [10, 10, 10, 10, 10, 7, 0]
    assert [job.id for page in pages for job in page] == [job.id for job in reversed(added)]


async def test_the_newest_job_comes_first(connection: Connection) -> None:
    first, second = await add(connection), await add(connection)

    listed, _ = await jobs.list_jobs(connection, JobFilter(), page=1, page_size=10)

    assert [job.id for job in listed] == [second.id, first.id]


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        (JobFilter(), 4),
        (JobFilter(status=Status.QUEUED), 3),
        (JobFilter(status=Status.PROCESSING), 1),
        (JobFilter(status=Status.FAILED), 0),
        (JobFilter(type="report_generate"), 1),
        (JobFilter(type="unheard_of"), 0),
        (JobFilter(priority=Priority.LOW), 1),
        (JobFilter(priority=Priority.MEDIUM), 2),
        (JobFilter(status=Status.QUEUED, type="email_send", priority=Priority.LOW), 1),
        (JobFilter(status=Status.PROCESSING, type="report_generate"), 0),
    ],
)
async def test_a_filter_leaves_out_every_job_that_does_not_match(
    connection: Connection, wanted: JobFilter, number: int
) -> None:
    await add(connection, priority=Priority.HIGH)
    await claim(connection)
    await add(connection, priority=Priority.LOW)
    await add(connection)
    await add(connection, "report_generate")

    listed, total = await jobs.list_jobs(connection, wanted, page=1, page_size=10)

    def matches(job: Job) -> bool:
        return all(getattr(wanted, name) in {None, getattr(job, name)} for name in ("status", "type", "priority"))

    assert len(listed) == number == total
    assert all(matches(job) for job in listed)


async def test_all_five_statuses_are_counted_also_when_nothing_is_there(connection: Connection) -> None:
    counts = await stats.read_figures(connection)

    assert counts.by_status == {"queued": 0, "processing": 0, "completed": 0, "failed": 0, "cancelled": 0}
    assert counts.avg_processing_time_seconds is None


async def test_the_average_is_over_completed_jobs_only(connection: Connection, sql: psycopg.Connection) -> None:
    for kind in ("completed", "completed", "gave_up"):
        await finish(connection, await owned(connection), kind)
    sql.execute("UPDATE jobs SET started_at = completed_at - interval '10 s' WHERE status = 'completed'")
    sql.execute("UPDATE jobs SET started_at = completed_at - interval '1000 s' WHERE status = 'failed'")

    counts = await stats.read_figures(connection)

    assert counts.avg_processing_time_seconds == pytest.approx(10)
    assert (counts.by_status["completed"], counts.by_status["failed"]) == (2, 1)


async def test_every_waiting_job_is_counted_in_exactly_one_depth(
    connection: Connection, sql: psycopg.Connection
) -> None:
    await finish(connection, await owned(connection), "failed", delay_seconds=100)
    await finish(connection, await owned(connection), "failed", delay_seconds=0)
    await add_many(connection, 3)
    await add_many(connection, 4, queue="fifo")
    scheduled = await add_many(connection, 2)
    sql.execute("UPDATE jobs SET next_run_at = now() + '1 h' WHERE id = ANY(%s)", ([job.id for job in scheduled],))

    figures = await stats.read_figures(connection)
    depths = figures.depths

    assert (depths.retry, depths.priority, depths.fifo, depths.scheduled) == (1, 4, 4, 2)
    assert depths.total() == figures.by_status["queued"]


async def test_log_lines_keep_their_order_and_are_dated_by_the_server(connection: Connection) -> None:
    taken = await owned(connection)
    lines = [LogLine(taken.id, 1, LogLevel.INFO, f"line {number}", 5 - number / 10) for number in range(20)]

    await jobs.append_job_logs(connection, lines)

    logs = [line for line in await jobs.list_job_logs(connection, taken.id) if line.message.startswith("line")]
    assert [line.message for line in logs] == [f"line {number}" for number in range(20)]
    assert (logs[-1].created_at - logs[0].created_at).total_seconds() == pytest.approx(1.9, abs=0.01)


async def test_lines_of_a_slow_write_do_not_end_up_behind_those_of_a_later_quick_one(connection: Connection) -> None:
    taken = await owned(connection)

    # The server took 50 ms longer over the first, so it dates its line later.
    for message, age_seconds in (("first", 0.0), ("second", 0.05)):
        await jobs.append_job_logs(connection, [LogLine(taken.id, 1, LogLevel.INFO, message, age_seconds)])

    logs = [line.message for line in await jobs.list_job_logs(connection, taken.id)]
    assert logs[1:] == ["first", "second"]


async def test_log_lines_of_a_job_that_is_gone_are_dropped(connection: Connection, sql: psycopg.Connection) -> None:
    kept, gone = await owned(connection), await owned(connection)
    sql.execute("DELETE FROM jobs WHERE id = %s", (gone.id,))

    await jobs.append_job_logs(connection, [LogLine(taken.id, 1, LogLevel.INFO, "late", 0) for taken in (kept, gone)])

    rows = sql.execute("SELECT job_id FROM job_logs WHERE message = 'late'").fetchall()
    assert rows == [(kept.id,)]
