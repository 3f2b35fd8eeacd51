"""The place where cases run: servers, a fresh database for each measurement, and processes of ours."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from jobqueue.embedded.postgres import PostgresServer
from jobqueue.embedded.valkey import ValkeyServer
from jobqueue.errors import JobQueueError
from jobqueue.store.migrate import upgrade

PATIENCE_SECONDS = 300.0
# What a small production server has; nothing that trades safety for speed.
SERVER_SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
JOB_TYPE = "bench_noop"


class BenchError(JobQueueError):
    """A measurement could not be made."""


class Process:
    """A process of ours under measurement."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.popen = popen

    def cpu_seconds(self) -> float:
        """Return the processor time it has used."""
        fields = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_megabytes(self) -> float:
        """Return its resident memory."""
        lines = Path(f"/proc/{self.popen.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    def stop(self) -> None:
        """End it in an orderly way; by force when that takes long."""
        self.popen.terminate()
        try:
            self.popen.wait(15)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


class Scratch:
    """Servers and sizes for the cases. *size* shrinks the work of every case (1.0 is the full size)."""

    def __init__(self, server_url: str, redis_url: str, *, size: float, with_peers: bool, concurrency: int) -> None:
        self.server_url = server_url
        self.redis_url = redis_url
        self.size = size
        self.with_peers = with_peers
        self.concurrency = concurrency

    def scaled(self, number: int, *, at_least: int = 100) -> int:
        """Return a full-size number of jobs at this scratch's size."""
        return max(at_least, int(number * self.size))

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """A fresh database of ours; dropped afterwards."""
        name = f"jobqueue_bench_{uuid4().hex[:12]}"
        self._admin(f"CREATE DATABASE {name}")
        url = make_conninfo(self.server_url, dbname=name)
        try:
            uri = as_uri(url)
            if migrated:
                upgrade(uri)
            yield uri
        finally:
            self._admin(f"DROP DATABASE {name} WITH (FORCE)")

    def _admin(self, statement: str) -> None:
        with psycopg.connect(make_conninfo(self.server_url), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextmanager
    def worker(self, url: str, count: int = 1, **settings: object) -> Iterator[list[Process]]:
        """Worker processes with a job type that does nothing."""
        given = {"worker_concurrency": self.concurrency, **settings}
        with self._ours(["worker"], count, self._environment(url, given)) as processes:
            yield processes

    @contextmanager
    def api(self, url: str, **settings: object) -> Iterator[tuple[Process, int]]:
        """An API process with no rate limit to speak of, and its port."""
        port = free_port()
        given = {"api_port": port, "rate_limit_per_minute": 10_000_000, **settings}
        with self._ours(["api"], 1, self._environment(url, given)) as (process,):
            wait_for_port(port, process.popen)
            yield process, port

    @contextmanager
    def _ours(self, arguments: list[str], count: int, environment: Mapping[str, str]) -> Iterator[list[Process]]:
        command = [sys.executable, "-m", "jobqueue", *arguments]
        processes = [Process(subprocess.Popen(command, env=dict(environment))) for _ in range(count)]
        try:
            yield processes
        finally:
            for process in processes:
                process.popen.terminate()
            for process in processes:
                process.stop()

    def _environment(self, url: str, settings: Mapping[str, object]) -> dict[str, str]:
        ours = {
            "DATABASE_URL": url,
            "REDIS_URL": self.redis_url,
            "JOBQUEUE_EXECUTORS": "jobqueue.bench.noop",
            "LOG_LEVEL": "ERROR",
            "METRICS_PORT": "0",
        }
        return {**os.environ, **ours, **{name.upper(): str(value) for name, value in settings.items()}}


@contextmanager
def embedded_scratch(**options: Any) -> Iterator[Scratch]:
    """Servers of our own for the cases, durable as in production, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="jq-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server may run as another user
        postgres = PostgresServer(folder / "pg", folder / "s", settings=SERVER_SETTINGS)
        valkey = ValkeyServer(folder / "v")
        try:
            postgres.start()
            valkey.start()
            yield Scratch(postgres.url("postgres"), valkey.url(), **options)
        finally:
            valkey.stop()
            postgres.stop()


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection]:
    """A plain autocommit connection."""
    with psycopg.connect(make_conninfo(url), autocommit=True) as connection:
        yield connection


def number(connection: psycopg.Connection, query: str, *params: object) -> float:
    """Return the single number that a query gives."""
    row = connection.execute(query.encode(), params).fetchone()
    if row is None or row[0] is None:
        raise BenchError(f"no figure came back from: {query}")
    return float(row[0])


def fill(connection: psycopg.Connection, count: int, *, columns: str = "type", values: str = f"'{JOB_TYPE}'") -> None:
    """Insert jobs by the thousand, then let the server tidy up."""
    for first in range(0, count, 10_000):
        rows = min(10_000, count - first)
        source = f"generate_series({first + 1}, {first + rows}) AS n"
        connection.execute(f"INSERT INTO jobs ({columns}) SELECT {values} FROM {source}".encode())
    connection.execute("VACUUM (ANALYZE) jobs")
    connection.execute("CHECKPOINT")


def wait_until(is_true: Callable[[], bool], what: str, *, pause_seconds: float = 0.25) -> None:
    """Wait until something is true.

    Raises:
        BenchError: it did not happen in five minutes.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        if time.monotonic() > deadline:
            raise BenchError(f"did not happen within {PATIENCE_SECONDS:g} s: {what}")
        time.sleep(pause_seconds)


def free_port() -> int:
    """Return a TCP port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process listens.

    Raises:
        BenchError: it ended, or did not come up.
    """

    def listens() -> bool:
        if process.poll() is not None:
            raise BenchError(f"the process to measure ended with {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(0.5)
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens, f"port {port} answers", pause_seconds=0.05)


def as_uri(conninfo: str) -> str:
    """Return a connection string as a URL, the form that settings take."""
    from urllib.parse import quote, urlencode

    parts = {key: str(value) for key, value in psycopg.conninfo.conninfo_to_dict(conninfo).items() if value is not None}
    host, port = parts.pop("host", ""), parts.pop("port", "5432")
    user, password, dbname = parts.pop("user", "postgres"), parts.pop("password", ""), parts.pop("dbname", "postgres")
    secret = f":{quote(password, safe='')}" if password else ""
    if host.startswith("/") or not host:
        query = urlencode({"host": host, "port": port, **parts} if host else parts)
        return f"postgresql://{quote(user)}{secret}@/{quote(dbname)}?{query}"
    return f"postgresql://{quote(user)}{secret}@{host}:{port}/{quote(dbname)}?{urlencode(parts)}"
