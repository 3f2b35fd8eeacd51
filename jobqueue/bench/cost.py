"""What jobqueue costs: while nothing happens, in memory, and in write-ahead log."""

from __future__ import annotations

import time

import psycopg

from jobqueue.bench.case import Figures, case
from jobqueue.bench.drain import drain
from jobqueue.bench.scratch import JOB_TYPE, Scratch, connected, fill, number, wait_until
from jobqueue.store.client import enqueue

_QUERIES = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
_LSN = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"


@case("idle", "queries a second of an idle worker and API together", "queries/s", limit=3.0)
def idle_queries(scratch: Scratch) -> Figures:
    """Counted by the server; its own housekeeping (autovacuum) is in it. CPU is the share of one core."""
    size = min(1.0, scratch.size)
    seconds = max(4.0, 30 * size)
    with (
        scratch.database() as url,
        connected(url) as connection,
        scratch.worker(url, worker_concurrency=4) as (worker,),
        scratch.api(url) as (api, _),
    ):
        time.sleep(max(4.0, 15 * size))  # the queries of the start are counted late
        queries, cpu = number(connection, _QUERIES), worker.cpu_seconds() + api.cpu_seconds()
        time.sleep(seconds)
        cpu = worker.cpu_seconds() + api.cpu_seconds() - cpu
        queries = number(connection, _QUERIES) - queries - 1  # our own look
    return {"ours": queries / seconds, "CPU %": 100 * cpu / seconds}


@case("memory-worker", "resident memory of a worker after work", "MB", limit=60.0)
def worker_memory(scratch: Scratch) -> Figures:
    """At 50 slots, after one and after two portions of jobs: the difference is growth."""
    jobs = scratch.scaled(20_000)
    left = "SELECT coalesce(sum(jobs), 0) FROM job_counts WHERE status <> 'completed'"
    with (
        scratch.database() as url,
        connected(url) as connection,
        scratch.worker(url, worker_concurrency=50) as (worker,),
    ):
        resident = []
        for _ in range(2):
            fill(connection, jobs)
            wait_until(lambda: number(connection, left) == 0, "the jobs are done")
            resident.append(worker.resident_megabytes())
    return {"ours": resident[1], "after half": resident[0]}


@case("memory-api", "resident memory of an API process after work", "MB", limit=90.0)
def api_memory(scratch: Scratch) -> Figures:
    """After two portions of creates and reads at 50 connections."""
    from jobqueue.bench.http_load import Load, run_load

    seconds = max(1.0, 4 * min(1.0, scratch.size))
    with scratch.database() as url, scratch.api(url) as (api, port):
        resident = []
        for _ in range(2):
            run_load(Load(port=port, connections=50, seconds=seconds, method="POST", path="/api/v1/jobs"))
            run_load(Load(port=port, connections=50, seconds=seconds, path="/api/v1/jobs"))
            resident.append(api.resident_megabytes())
    return {"ours": resident[1], "after half": resident[0]}


@case("wal", "write-ahead log per job over its whole life, logs included", "bytes", limit=2200.0)
def write_ahead_log(scratch: Scratch) -> Figures:
    """Inserted one by one, claimed and finished by a worker. Full-page images, which depend on how often the server
    makes a checkpoint, are kept out by touching the pages before."""
    jobs = scratch.scaled(20_000)
    with scratch.database() as url, connected(url) as connection:
        connection.execute("CHECKPOINT")
        _one_by_one(connection, 50)
        before = number(connection, _LSN)
        _one_by_one(connection, jobs)
        inserted = number(connection, _LSN)
        drain(scratch, url, jobs + 50)
        return {"ours": (number(connection, _LSN) - before) / jobs, "of which insert": (inserted - before) / jobs}


def _one_by_one(connection: psycopg.Connection, count: int) -> None:
    for _ in range(count):
        enqueue(connection, JOB_TYPE)
