"""How fast jobs get in from Python and from SQL, and how soon a worker that sleeps picks one up."""

from __future__ import annotations

import asyncio
import math
import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from jobqueue.bench import peers
from jobqueue.bench.case import Figures, at_least, at_most, case
from jobqueue.bench.scratch import JOB_TYPE, BenchError, Scratch, connected
from jobqueue.embedded.binaries import postgres_bin
from jobqueue.ids import new_id
from jobqueue.job import NewJob
from jobqueue.settings import Settings
from jobqueue.store.db import Connection, connect
from jobqueue.store.jobs import create_jobs

SECONDS = 3.0
BULK = 10_000
_BULK_STATEMENT = 1_000
_RAW = "INSERT INTO jobs (id, type, payload) VALUES (%s, %s, %s) RETURNING created_at"


def new_job(payload: bytes = b"{}") -> NewJob:
    """Return a job that does nothing."""
    return NewJob(id=new_id(), type=JOB_TYPE, payload=payload)


async def _rate(once: Callable[[], Awaitable[object]], seconds: float) -> float:
    for _ in range(20):
        await once()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        await once()
        count += 1
    return count / (time.perf_counter() - started)


def _with_connection(url: str, use: Callable[[Connection], Awaitable[Figures]]) -> Figures:
    async def main() -> Figures:
        connection = await connect(url, Settings(database_url=url), "bench")
        try:
            return await use(connection)
        finally:
            await connection.close()

    import uvloop

    return uvloop.run(main())


@case(
    "enqueue",
    "enqueue one by one, client library, one connection",
    "jobs/s",
    at_least(0.7, "raw INSERT"),
    at_least(1.0, "pgqueuer"),
)
def enqueue_one_by_one(scratch: Scratch) -> Figures:
    """Each job committed before the next; the yardstick inserts the same row through the same driver."""
    seconds = SECONDS * min(1.0, max(0.2, scratch.size))

    async def measure(connection: Connection) -> Figures:
        async def ours() -> None:
            await create_jobs(connection, [new_job()])

        async def raw() -> None:
            await (await connection.execute(_RAW, (new_id(), JOB_TYPE, "{}"), prepare=True)).fetchall()

        return {"ours": await _rate(ours, seconds), "raw INSERT": await _rate(raw, seconds)}

    with scratch.database() as url:
        figures = _with_connection(url, measure)
    if scratch.with_peers:
        figures |= peers.measure(scratch, "enqueue", math.ceil(seconds))
    return figures


@case("bulk", "enqueue in bulk, 10 k jobs, ids returned", "jobs/s", at_least(0.5, "COPY"), at_least(1.0, "pgqueuer"))
def enqueue_in_bulk(scratch: Scratch) -> Figures:
    """A thousand jobs a statement; the yardstick copies the same rows into the same table."""
    count = scratch.scaled(BULK, at_least=_BULK_STATEMENT)

    async def measure(connection: Connection) -> Figures:
        await create_jobs(connection, [new_job()])
        started = time.perf_counter()
        for _ in range(0, count, _BULK_STATEMENT):
            await create_jobs(connection, [new_job() for _ in range(_BULK_STATEMENT)])
        ours = count / (time.perf_counter() - started)
        started = time.perf_counter()
        async with connection.cursor() as cursor, cursor.copy("COPY jobs (id, type, payload) FROM STDIN") as copy:
            for _ in range(count):
                await copy.write_row((new_id(), JOB_TYPE, "{}"))
        return {"ours": ours, "COPY": count / (time.perf_counter() - started)}

    with scratch.database() as url:
        figures = _with_connection(url, measure)
    if scratch.with_peers:
        figures |= peers.measure(scratch, "bulk", count)
    return figures


@case("pickup", "from enqueue to start on an idle worker, one job each 50 ms: median", "ms", at_most(0.5, "pgqueuer"))
def pickup(scratch: Scratch) -> Figures:
    """The time before the job is written to the first line of its handler."""
    count = scratch.scaled(200, at_least=40)

    async def send(connection: Connection) -> Figures:
        for _ in range(count):
            await create_jobs(connection, [new_job(b'{"at":%f}' % time.time())])
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        return {}

    with tempfile.TemporaryDirectory() as folder, scratch.database() as url:
        record = Path(folder) / "pickups"
        with scratch.worker(url, worker_concurrency=10, jobqueue_bench_record=record):
            time.sleep(3)
            _with_connection(url, send)
        data = record.read_bytes() if record.exists() else b""
    took = sorted(value * 1000 for (value,) in struct.iter_unpack("d", data))
    if len(took) < count:
        raise BenchError(f"only {len(took)} of {count} jobs were picked up")
    figures = {"ours": took[len(took) // 2], "p95": took[int(len(took) * 0.95)], "p99": took[int(len(took) * 0.99)]}
    if scratch.with_peers:
        figures |= peers.measure(scratch, "pickup", count)
    return figures


def _pgbench(url: str, seconds: int, clients: int = 16) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(f"INSERT INTO jobs (type, payload) VALUES ('{JOB_TYPE}', '{{\"a\": 1}}');\n")
        script.flush()
        command = [
            str(postgres_bin() / "pgbench"),
            "--no-vacuum",
            f"--client={clients}",
            "--jobs=2",
            f"--time={seconds}",
            "--protocol=prepared",
            f"--file={script.name}",
            url,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    if found is None:
        raise BenchError(f"pgbench failed: {done.stderr[-300:]}")
    return float(found.group(1))


@case("inserts", "inserts by 16 SQL clients with a busy worker", "jobs/s", at_least(0.85, "without NOTIFY and counts"))
def inserts_by_sql_clients(scratch: Scratch) -> Figures:
    """One-row transactions by pgbench; the yardstick has the trigger that counts and notifies taken off."""
    seconds = max(2, round(5 * min(1.0, scratch.size)))

    def measure(prepare: str) -> float:
        with scratch.database() as url, connected(url) as connection:
            connection.execute(prepare.encode())
            with scratch.worker(url, worker_concurrency=4):
                time.sleep(3)
                return _pgbench(url, seconds)

    return {
        "ours": measure("SELECT 1"),
        "without NOTIFY and counts": measure("ALTER TABLE jobs DISABLE TRIGGER jobs_inserted"),
    }
