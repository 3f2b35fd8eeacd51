"""How fast workers get through jobs that do nothing: leases, tokens, attempts, logs, results and history all kept."""

from __future__ import annotations

import subprocess
import sys

import psycopg

from jobqueue.bench import peers
from jobqueue.bench.case import Figures, at_least, case
from jobqueue.bench.scratch import JOB_TYPE, Scratch, connected, fill, number, wait_until

JOBS = 60_000
RATE = (
    "SELECT count(*) / extract(epoch FROM max(completed_at) - min(started_at)) FROM jobs WHERE completed_at IS NOT NULL"
)
_DONE = "SELECT coalesce(sum(jobs), 0) FROM job_counts WHERE status = 'completed' AND type = %s"
_LATEST = "SELECT coalesce(max(completed_at), '-infinity')::text FROM jobs"


def drain(scratch: Scratch, url: str, jobs: int, *, processes: int = 1, **settings: object) -> float:
    """Let workers drain *jobs* waiting jobs; return jobs a second from the first start to the last end."""
    with connected(url) as connection:
        row = connection.execute(_LATEST.encode()).fetchone()
        before = row[0] if row else "-infinity"
        expected = number(connection, _DONE, JOB_TYPE) + jobs
        with scratch.worker(url, processes, **settings):
            wait_until(lambda: number(connection, _DONE, JOB_TYPE) >= expected, f"{jobs} jobs are done")
        return number(connection, f"{RATE} AND completed_at > %s::timestamptz", before)


def raw_drain(url: str, *, processes: int = 2) -> float:
    """Make the same row changes by plain SQL in batches of a hundred; return jobs a second."""
    command = [sys.executable, "-m", "jobqueue.bench.raw_drain", url]
    running = [subprocess.Popen(command) for _ in range(processes)]
    for process in running:
        process.wait()
    with connected(url) as connection:
        return number(connection, RATE)


def _filled_drain(scratch: Scratch, jobs: int, *, processes: int = 1, **settings: object) -> float:
    with scratch.database() as url:
        with connected(url) as connection:
            fill(connection, jobs)
        return drain(scratch, url, jobs, processes=processes, **settings)


@case(
    "drain",
    "worker drain, 1 process",
    "jobs/s",
    at_least(0.5, "raw SQL"),
    at_least(1.3, "pgqueuer"),
    at_least(40, "procrastinate"),
)
def drain_one(scratch: Scratch) -> Figures:
    """One worker process beside the same row changes made by raw SQL."""
    jobs = scratch.scaled(JOBS)
    figures = {"ours": _filled_drain(scratch, jobs)}
    with scratch.database() as url:
        with connected(url) as connection:
            fill(connection, jobs)
        figures["raw SQL"] = raw_drain(url)
    if scratch.with_peers:
        figures |= peers.measure(scratch, "drain", jobs)
    return figures


@case("drain-processes", "worker drain, 2 and 4 processes", "jobs/s", at_least(1.15, "1 process"))
def drain_many(scratch: Scratch) -> Figures:
    """Two worker processes beside one, and four for the curve."""
    jobs = scratch.scaled(JOBS)
    return {
        "ours": _filled_drain(scratch, jobs, processes=2),
        "1 process": _filled_drain(scratch, jobs, processes=1),
        "4 processes": _filled_drain(scratch, jobs, processes=4),
    }


@case("drain-workers", "worker drain against the number of worker processes, 10 slots each", "jobs/s", runs=1)
def drain_against_workers(scratch: Scratch) -> Figures:
    """The curve from 1 to 32 processes; ours is the last point."""
    jobs = scratch.scaled(JOBS // 2)
    counts = [1, 2, 4, 8, 16, 32] if scratch.size >= 1 else [1, 4]
    curve = {
        f"{count} processes": _filled_drain(scratch, jobs, processes=count, worker_concurrency=10) for count in counts
    }
    return {"ours": curve[f"{counts[-1]} processes"], **curve}


def _drain_after(scratch: Scratch, jobs: int, prepare: str) -> float:
    """Drain *jobs* after a statement has put other rows into the table."""
    with scratch.database() as url:
        with connected(url) as connection:
            connection.execute(prepare.encode())
            fill(connection, jobs)
        return drain(scratch, url, jobs)


@case(
    "drain-history",
    "drain with 1 M finished rows, and with 1 M future high-priority jobs in front",
    "jobs/s",
    at_least(0.5, "empty table"),
)
def drain_with_others(scratch: Scratch) -> Figures:
    """The same jobs beside many others."""
    jobs, others = scratch.scaled(JOBS), scratch.scaled(1_000_000)
    finished = (
        "INSERT INTO jobs (type, status, started_at, completed_at, created_at)"
        " SELECT 'bench_old', 'completed', now() - interval '1 day', now() - interval '1 day', now() - interval '1 day'"
        f" FROM generate_series(1, {others})"
    )
    future = (
        "INSERT INTO jobs (type, priority, next_run_at)"
        f" SELECT 'bench_old', 'high', now() + interval '1 day' FROM generate_series(1, {others})"
    )
    with_finished, with_future = _drain_after(scratch, jobs, finished), _drain_after(scratch, jobs, future)
    return {
        "ours": min(with_finished, with_future),
        "empty table": _filled_drain(scratch, jobs),
        "1 M finished": with_finished,
        "1 M future": with_future,
    }


@case(
    "drain-snapshot",
    "drain of 200 k jobs while another transaction holds an old snapshot: last tenth",
    "jobs/s",
    at_least(0.9, "first tenth"),
)
def drain_under_snapshot(scratch: Scratch) -> Figures:
    """Dead index entries cannot be removed; a claim must not walk them."""
    jobs = scratch.scaled(200_000, at_least=10_000)
    tenths = (
        "WITH ended AS (SELECT completed_at, ntile(10) OVER (ORDER BY completed_at) AS tenth FROM jobs)"
        " SELECT count(*) / extract(epoch FROM max(completed_at) - min(completed_at)) FROM ended WHERE tenth = %s"
    )
    with scratch.database() as url, connected(url) as connection, psycopg.connect(url) as holder:
        fill(connection, jobs)
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM pg_class")
        drain(scratch, url, jobs)
        return {"ours": number(connection, tenths, 10), "first tenth": number(connection, tenths, 1)}
