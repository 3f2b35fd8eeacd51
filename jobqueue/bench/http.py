"""HTTP: creates, reads and lists, at 1, 20 and 200 connections, and with ten million jobs in the table."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from jobqueue.bench.case import Figures, Target, at_least, at_most, case
from jobqueue.bench.http_load import Load, run_load
from jobqueue.bench.scratch import (
    BenchError,
    Process,
    Scratch,
    connected,
    fill,
    free_port,
    wait_for_port,
)

CREATE = "/api/v1/jobs"


@contextmanager
def _bare(kind: str, url: str) -> Iterator[int]:
    port = free_port()
    command = [sys.executable, "-m", "jobqueue.bench.http_bare", str(port), kind]
    process = Process(subprocess.Popen(command, env={**os.environ, "DATABASE_URL": url}))
    try:
        wait_for_port(port, process.popen)
        yield port
    finally:
        process.stop()


def _rate(scratch: Scratch, port: int, connections: int, path: str, method: str = "GET") -> float:
    seconds = max(1.0, 4.0 * min(1.0, scratch.size))
    report = run_load(Load(port=port, connections=connections, seconds=seconds, path=path, method=method))
    if report.errors:
        raise BenchError(f"{report.errors} answers to {method} {path} were errors")
    return report.rate


def _create(scratch: Scratch, connections: int) -> Figures:
    with scratch.database() as url:
        with scratch.api(url) as (_, port):
            figures = {"ours": _rate(scratch, port, connections, CREATE, "POST")}
        with _bare("empty", url) as port:
            figures["empty handler"] = _rate(scratch, port, connections, CREATE, "POST")
        with _bare("single", url) as port:
            figures["transaction per request"] = _rate(scratch, port, connections, CREATE, "POST")
    return figures


def _get(scratch: Scratch, connections: int) -> Figures:
    with scratch.database() as url:
        with connected(url) as connection:
            fill(connection, 100)
            row = connection.execute("SELECT id FROM jobs LIMIT 1").fetchone()
            connection.execute("INSERT INTO job_logs (job_id, message) SELECT id, 'Claimed by worker' FROM jobs")
            connection.execute("INSERT INTO job_logs (job_id, message) SELECT id, 'Completed in 0.1 s' FROM jobs")
        path = f"{CREATE}/{row[0] if row else ''}"
        with scratch.api(url) as (_, port):
            figures = {"ours": _rate(scratch, port, connections, path)}
        with _bare("empty", url) as port:
            figures["empty handler"] = _rate(scratch, port, connections, path)
    return figures


def _list(scratch: Scratch, connections: int) -> Figures:
    with scratch.database() as url:
        with connected(url) as connection:
            fill(connection, 10_000)
        with scratch.api(url) as (_, port):
            return {"ours": _rate(scratch, port, connections, f"{CREATE}?page_size=20")}


_CREATE_TARGETS: dict[int, tuple[Target, ...]] = {
    1: (at_least(1.0, "transaction per request"),),
    20: (at_least(0.6, "empty handler"), at_least(2.3, "transaction per request")),
    200: (at_least(0.6, "empty handler"),),
}
for _connections in (1, 20, 200):
    for _name, _measure, _targets in (
        ("create", _create, _CREATE_TARGETS[_connections]),
        ("get", _get, (at_least(0.4, "empty handler"),) if _connections == 20 else ()),
        ("list", _list, ()),
    ):
        _title = f"HTTP {_name}, {_connections} connection{'s' if _connections > 1 else ''}"
        case(f"http-{_name}-{_connections}", _title, "req/s", *_targets)(partial(_measure, connections=_connections))

# Every status, two types and three priorities; a rare type, and the failed ones among the oldest.
_MIXED = {
    "columns": "type, priority, status, started_at, completed_at, lease_token, lease_expires_at, attempts",
    "values": (
        "CASE WHEN n % 50000 = 7 THEN 'bench_rare' WHEN n % 3 = 0 THEN 'bench_other' ELSE 'bench_noop' END,"
        " (ARRAY['high', 'medium', 'low'])[1 + n % 3]::job_priority,"
        " status.of::job_status, now(), CASE WHEN status.of IN ('completed', 'failed', 'cancelled') THEN now() END,"
        " CASE status.of WHEN 'processing' THEN gen_random_uuid() END,"
        " CASE status.of WHEN 'processing' THEN now() + interval '1 day' END, 1"
    ),
}
FILTERS = (
    "",
    "status=queued",
    "status=processing",
    "status=completed",
    "status=failed",
    "status=cancelled",
    "type=bench_noop",
    "type=bench_rare",
    "priority=high",
    "status=failed&type=bench_noop&priority=low",
)


def _fill_mixed(url: str, count: int) -> None:
    with connected(url) as connection:
        for first in range(0, count, 100_000):
            rows = min(100_000, count - first)
            of = (
                f"CASE WHEN n <= {count // 100} THEN 'failed' WHEN n % 1000 = 0 THEN 'cancelled'"
                f" WHEN n > {count - count // 20} THEN 'queued' WHEN n % 100000 = 1 THEN 'processing'"
                " ELSE 'completed' END"
            )
            statement = (
                f"INSERT INTO jobs ({_MIXED['columns']}) SELECT {_MIXED['values']}"
                f" FROM generate_series({first + 1}, {first + rows}) AS n, LATERAL (SELECT {of} AS of) AS status"
            )
            connection.execute(statement.encode())
        connection.execute("VACUUM (ANALYZE) jobs")
        connection.execute("CHECKPOINT")


def _p95_by_path(scratch: Scratch, count: int, paths: Sequence[str], connections: int = 4) -> dict[str, float]:
    seconds = max(1.0, 2.0 * min(1.0, scratch.size))
    with scratch.database() as url:
        _fill_mixed(url, count)
        with scratch.api(url) as (_, port):
            reports = {
                path: run_load(Load(port=port, connections=connections, seconds=seconds, path=path)) for path in paths
            }
    if any(report.errors for report in reports.values()):
        raise BenchError("some answers were errors")
    return {path: report.p95_ms for path, report in reports.items()}


@case(
    "large",
    "list (page 1, each filter, exact total) and metrics at 10 M jobs: p95 of the worst",
    "ms",
    at_most(2, "10 k jobs"),
    runs=1,
)
def large_table(scratch: Scratch) -> Figures:
    """p95 with 4 connections; ours is the path that suffers most from the size."""
    paths = [f"{CREATE}?{query}" for query in FILTERS] + ["/api/v1/metrics"]
    small = _p95_by_path(scratch, 10_000, paths)
    large = _p95_by_path(scratch, 10_000_000 if scratch.size >= 1 else 200_000, paths)
    worst = max(paths, key=lambda path: large[path] / small[path])
    each = {f"{path} ({size})": taken[path] for path in paths for size, taken in (("10 k", small), ("10 M", large))}
    return {"ours": large[worst], "10 k jobs": small[worst], **each}


PAGES = (
    "/",
    "/?span=week",
    "/jobs",
    "/jobs?status=failed",
    "/jobs?status=queued&order=oldest",
    "/failures",
    "/failures?span=hour",
    "/workers",
    "/system",
    "/new",
)


@case("pages", "dashboard pages at 10 M jobs: p95 of the slowest", "ms", limit=100.0, runs=1)
def dashboard_pages(scratch: Scratch) -> Figures:
    """p95 with one reader."""
    taken = _p95_by_path(scratch, 10_000_000 if scratch.size >= 1 else 200_000, PAGES, connections=1)
    return {"ours": max(taken.values()), **taken}
