"""How fast jobs get in from Python and from SQL, and how soon a worker that sleeps picks one up."""

from __future__ import annotations

import math
import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from jobqueue.bench import peers
from jobqueue.bench.case import Figures, at_least, at_most, case
from jobqueue.bench.scratch import JOB_TYPE, BenchError, Scratch, connected
from jobqueue.embedded.binaries import postgres_bin
from jobqueue.ids import new_id
from jobqueue.store.client import enqueue, enqueue_many, new_job

SECONDS = 3.0
BULK = 10_000
_RAW = "INSERT INTO jobs (id, type, payload) VALUES (%s, %s, %s) RETURNING created_at"


def _rate(once: Callable[[], object], seconds: float) -> float:
    for _ in range(20):
        once()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        once()
        count += 1
    return count / (time.perf_counter() - started)


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
    with scratch.database() as url, connected(url) as connection:
        cursor = connection.cursor()
        figures = {
            "ours": _rate(lambda: enqueue(connection, JOB_TYPE), seconds),
            "raw INSERT": _rate(lambda: cursor.execute(_RAW, (new_id(), JOB_TYPE, "{}"), prepare=True), seconds),
        }
    if scratch.with_peers:
        figures |= peers.measure(scratch, "enqueue", math.ceil(seconds))
    return figures


@case(
    "bulk", "enqueue in bulk, 10 k jobs, ids returned", "jobs/s", at_least(0.3, "raw COPY"), at_least(1.0, "pgqueuer")
)
def enqueue_in_bulk(scratch: Scratch) -> Figures:
    """Making the jobs is part of it; the yardstick copies rows that are ready."""
    count = scratch.scaled(BULK, at_least=1_000)
    with scratch.database() as url, connected(url) as connection:
        enqueue_many(connection, [new_job(JOB_TYPE)])
        started = time.perf_counter()
        enqueue_many(connection, [new_job(JOB_TYPE, {"n": n}) for n in range(count)])
        ours = count / (time.perf_counter() - started)
        rows = [(new_id(), JOB_TYPE, "{}") for _ in range(count)]
        started = time.perf_counter()
        with connection.cursor() as cursor, cursor.copy("COPY jobs (id, type, payload) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        figures = {"ours": ours, "raw COPY": count / (time.perf_counter() - started)}
    if scratch.with_peers:
        figures |= peers.measure(scratch, "bulk", count)
    return figures


@case("pickup", "from enqueue to start on an idle worker, one job each 50 ms: median", "ms", at_most(0.5, "pgqueuer"))
def pickup(scratch: Scratch) -> Figures:
    """The time before the job is written to the first line of its handler."""
    count = scratch.scaled(200, at_least=40)

    with tempfile.TemporaryDirectory() as folder, scratch.database() as url:
        record = Path(folder) / "pickups"
        with scratch.worker(url, worker_concurrency=10, jobqueue_bench_record=record):
            time.sleep(3)
            with connected(url) as connection:
                for _ in range(count):
                    enqueue(connection, JOB_TYPE, {"at": time.time()})
                    time.sleep(0.05)
            time.sleep(1)
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
