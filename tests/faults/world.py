"""A whole system of its own for one scenario, and what was done to it."""

from __future__ import annotations

import asyncio
import http.client
import os
import random
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import psycopg
from psycopg.rows import TupleRow

from jobqueue.embedded.postgres import PostgresServer
from jobqueue.embedded.valkey import ValkeyServer
from jobqueue.store.migrate import upgrade
from tests.faults.client import Answer, Client
from tests.faults.ledger import Ledger, Run
from tests.faults.processes import Process
from tests.overlap import eventually
from tests.proxy import Proxy

Found = TypeVar("Found")

LEASE_SECONDS = 3.0
RECOVERY_SECONDS = 0.5
POLL_SECONDS = 0.5
GRACE_SECONDS = 3.0
TIMEOUT_SECONDS = 3.0

SETTINGS = {
    "LEASE_SECONDS": f"{LEASE_SECONDS:g}",
    "HEARTBEAT_SECONDS": "0.5",
    "RECOVERY_INTERVAL_SECONDS": f"{RECOVERY_SECONDS:g}",
    "POLL_SECONDS": f"{POLL_SECONDS:g}",
    "SHUTDOWN_GRACE_SECONDS": f"{GRACE_SECONDS:g}",
    "DATABASE_TIMEOUT_SECONDS": f"{TIMEOUT_SECONDS:g}",
    "RATE_LIMIT_PER_MINUTE": "1000000",
    "METRICS_PORT": "0",
    "JOBQUEUE_EXECUTORS": "tests.faults.probe",
}
# Committed is on disk as far as a crash of the server goes; only the machine itself may not fail.
POSTGRES = {"synchronous_commit": "on", "full_page_writes": "on", "max_connections": "100"}

_HISTORY = """
CREATE SCHEMA audit;
CREATE TABLE audit.history (
  job_id uuid, at timestamptz DEFAULT clock_timestamp(),
  before text, after text, attempts_before int, attempts_after int
);
CREATE FUNCTION audit.note() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
  INSERT INTO audit.history (job_id, before, after, attempts_before, attempts_after)
  VALUES (new.id, old.status, new.status, old.attempts, new.attempts);
  RETURN NULL;
END
$fn$;
CREATE TRIGGER note AFTER UPDATE ON jobs FOR EACH ROW
  WHEN (old.status IS DISTINCT FROM new.status OR old.completed_at IS DISTINCT FROM new.completed_at
    OR old.result IS DISTINCT FROM new.result OR old.lease_token IS DISTINCT FROM new.lease_token)
  EXECUTE FUNCTION audit.note();
CREATE EXTENSION IF NOT EXISTS amcheck;
"""

TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = 'jobqueue' AND pid <> pg_backend_pid() AND application_name LIKE %s"
)


class Loss(NamedTuple):
    """A time at which owners were taken from their jobs. *pid* None: all of them (the database was away for long)."""

    pid: int | None
    since: float


class Cannot(Exception):
    """This machine lacks what a scenario needs; says what."""


class World:
    """Make it with :func:`world`.

    *size* scales how much a scenario does: 1 is its full form. *patience* multiplies the times that are allowed: 1
    where the machine is ours alone, more where other tests run beside.
    """

    def __init__(self, folder: Path, seed: int, size: float, patience: float) -> None:
        self.folder = folder
        self.seed = seed
        self.size = size
        self.patience = patience
        self.rng = random.Random(seed)
        self.ledger = Ledger(folder / "ledger")
        self.postgres = PostgresServer(folder / "pg", folder / "s", durable=False, settings=POSTGRES)
        self.valkey = ValkeyServer(folder / "v")
        self.client = Client(lambda: self.base_url)
        self.base_url = ""
        self.processes: list[Process] = []
        self.losses: list[Loss] = []
        self.outages: list[tuple[float, float]] = []
        self.unexpected: list[str] = []
        self.is_recovery_bounded = True
        self.quiet_seconds = 60.0
        self.unwritten: set[str] = set()
        self._proxies: list[Proxy] = []
        self._at_end: list[Callable[[], Any]] = []
        self._keepers: list[asyncio.Task[None]] = []

    def scaled(self, full: int, least: int = 1) -> int:
        """Return *full* things in the full form, fewer in a short one."""
        return max(least, round(full * self.size))

    @property
    def database_url(self) -> str:
        """The database, directly."""
        return self.postgres.url("jobqueue")

    def sql(self, query: str, *parameters: Any) -> list[TupleRow]:
        """Run one statement as a person with psql would, and return its rows."""
        writable = "-c default_transaction_read_only=off"  # whatever a scenario did to the database
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=5, options=writable) as connection:
            cursor = connection.execute(query.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        """Hold a session of our own, in a transaction."""
        with psycopg.connect(self.database_url, connect_timeout=5) as connection:
            yield connection
            connection.rollback()

    def environ(self, **settings: Any) -> dict[str, str]:
        """Return the environment of a process; keywords are settings, or variables, in small letters."""
        own = {name.upper(): str(value) for name, value in settings.items()}
        return {
            **SETTINGS,
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.valkey.url(),
            "FAULTS_LEDGER": str(self.ledger.path),
            **own,
        }

    def start_worker(self, **settings: Any) -> Process:
        """Start a worker without waiting for it. Keywords are settings."""
        name = f"worker-{len(self.processes)}"
        worker = Process(name, ["worker"], self.environ(**settings), self.folder / f"{name}.log")
        self.processes.append(worker)
        return worker

    async def workers(self, count: int, **settings: Any) -> list[Process]:
        """Start workers and wait until they listen."""
        started = [self.start_worker(**settings) for _ in range(count)]
        for worker in started:
            await self.until(lambda worker=worker: "listening" in worker.text(), f"{worker.name} listens")
        return started

    async def keep_workers(self, count: int, **settings: Any) -> None:
        """Keep *count* workers running from now on, as a service manager does; ends only when the world ends."""
        for worker in await self.workers(count, **settings):
            self._keepers.append(asyncio.create_task(self._keep(worker, settings), name="keeper"))

    async def _keep(self, worker: Process, settings: dict[str, Any]) -> None:
        while True:
            while worker.exit_code() is None:
                await asyncio.sleep(0.02)
            self.note_end(worker)
            worker.is_wanted = False
            worker = self.start_worker(**settings)

    def kept_workers(self) -> list[Process]:
        """Return the workers that run and are wanted."""
        return [p for p in self.processes if p.name.startswith("worker") and p.is_wanted and p.exit_code() is None]

    async def api(self, **settings: Any) -> Process:
        """Start the API and wait until it is ready."""
        port = self.free_port()
        name = f"api-{len(self.processes)}"
        api = Process(name, ["api"], self.environ(**{"api_port": port, **settings}), self.folder / f"{name}.log")
        self.processes.append(api)
        self.base_url = f"http://127.0.0.1:{port}"

        async def answers() -> bool:
            response = await self.client.request("GET", "/health", "start")
            return response is not None and response.status_code == 200

        await self.until(answers, f"{name} answers")
        threading.Thread(target=self._feel_pulse, args=(api, port), daemon=True).start()
        return api

    def _feel_pulse(self, api: Process, port: int) -> None:
        """Ask for the API's health all the time: it must answer whatever else is wrong.

        From a thread, so that what keeps the harness itself busy is not taken for slowness of the API.
        """
        while api.is_wanted and api.exit_code() is None:
            started, status = time.monotonic(), 0
            with suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request("GET", "/health")
                status = connection.getresponse().status
                connection.close()
            now = time.monotonic()
            self.client.answers.append(Answer("pulse", status, now, now - started))
            time.sleep(0.5)

    def note_end(self, process: Process) -> None:
        """Note that a process has ended. After an orderly stop (exit code 0) nothing of its is lost."""
        code = process.exit_code()
        if code == 0:
            return
        if code not in {-signal.SIGKILL, 137, 9} and not self.outages:
            self.unexpected.append(f"INV-8: {process.name} ended by itself with {code}: {process.text()[-400:]}")
        if process.lost_at is None:
            process.lost_at = time.monotonic()
        self.losses.append(Loss(process.pid, process.lost_at))

    def kill(self, process: Process) -> None:
        """kill -9."""
        process.kill()
        self.note_end(process)

    def kill_one(self) -> None:
        """kill -9 of some worker that is kept; another takes its place."""
        workers = self.kept_workers()
        if workers:
            worker = self.rng.choice(workers)
            worker.lost_at = time.monotonic()
            worker.send(signal.SIGKILL)

    def stop_one(self) -> None:
        """SIGTERM to some worker that is kept; another takes its place."""
        workers = self.kept_workers()
        if workers:
            self.rng.choice(workers).send(signal.SIGTERM)

    def terminate_sessions(self, who: str = "jobqueue-%") -> None:
        """Terminate the sessions of ours whose application name is like *who*."""
        self.sql(TERMINATE, who)

    def freeze(self, process: Process) -> None:
        """kill -STOP."""
        process.freeze()
        self.losses.append(Loss(process.pid, time.monotonic()))

    @contextmanager
    def outage(self, *, longer_than_a_lease: bool = False) -> Iterator[None]:
        """Mark a time in which the database is away: 503 is right, and past a lease all owners are lost."""
        since = time.monotonic()
        yield
        self.outages.append((since, time.monotonic()))
        if longer_than_a_lease:
            self.losses.append(Loss(None, since))

    def crash_postgres(self) -> None:
        """Kill the server with all its sessions, as a crash does, and start it again."""
        process = self.postgres.process
        assert process is not None
        process.send_signal(signal.SIGQUIT)  # immediate shutdown: no checkpoint, no farewell
        process.wait()
        self.postgres.process = None
        self.postgres.start()

    def signal_postgres(self, number: signal.Signals) -> None:
        """Send a signal to the server and to every one of its processes."""
        postmaster = self.postgres.process
        assert postmaster is not None
        children = Path("/proc").glob("[0-9]*/stat")
        pids = [postmaster.pid]
        for stat in children:
            with suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[1]) in pids:
                    pids.append(int(stat.parent.name))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def until(self, look: Callable[[], Awaitable[Found] | Found], what: str, seconds: float = 30.0) -> Found:
        """Return the first true value of *look*, or fail after *seconds*."""
        return await eventually(look, what, seconds * self.patience)

    def runs(self, job_id: str | None = None) -> list[Run]:
        """Return what ran, or what ran of one job."""
        return [run for run in self.ledger.runs() if job_id in {None, run.job_id}]

    async def until_started(self, count: int, seconds: float = 30.0) -> list[Run]:
        """Wait until *count* executions have started."""
        return await self.until(lambda: len(runs := self.runs()) >= count and runs, f"{count} starts", seconds)

    async def until_ended(self, count: int, seconds: float = 30.0) -> list[Run]:
        """Wait until *count* executions have come to their end."""

        def ended() -> list[Run]:
            runs = [run for run in self.runs() if run.ended_at is not None]
            return runs if len(runs) >= count else []

        return await self.until(ended, f"{count} ends", seconds)

    async def submit(self, count: int, payload: dict[str, Any] | None = None, **fields: Any) -> list[str]:
        """Create jobs through the API, each until it is accepted, 20 at a time."""
        turn = asyncio.Semaphore(20)

        async def one(number: int) -> str:
            async with turn:
                return await self.client.insist({"number": number, **(payload or {})}, key=uuid4().hex, **fields)

        return list(await asyncio.gather(*(one(number) for number in range(count))))

    async def starts_within(self, seconds: float) -> None:
        """Fail unless a new job that is created over HTTP starts within *seconds*."""
        started = time.monotonic()
        job_id = await self.client.insist({}, key=uuid4().hex)
        [run] = await self.until(lambda: self.runs(job_id), "a new job starts", (seconds + 5) * self.patience)
        took = run.started_at - started
        assert took <= seconds * self.patience, f"a new job started after {took:.2f} s, {seconds:g} s are allowed"

    def is_final(self, job_id: str) -> bool:
        """Tell whether a job has come to its end."""
        [(status,)] = self.sql("SELECT status::text FROM jobs WHERE id = %s", job_id)
        return status in {"completed", "failed", "cancelled"}

    async def stop_keeping(self) -> None:
        """Stop the workers that are kept, for good."""
        keepers = [keeper for keeper in self._keepers if keeper.get_name() == "keeper"]
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        await self.stop_workers()

    async def stop_workers(self) -> None:
        """Stop all workers."""
        workers = self.kept_workers()
        for worker in workers:
            worker.stop_kindly()
        for worker in workers:
            await self.until(lambda worker=worker: worker.exit_code() is not None, f"{worker.name} stops")

    def at_end(self, work: Callable[[], Any]) -> None:
        """Do *work* when everything of this world has been stopped."""
        self._at_end.append(work)

    def expect_no_runs(self, job_ids: Iterable[str]) -> None:
        """Say that these jobs were run by executors that do not write the ledger."""
        self.unwritten |= set(job_ids)

    def free_port(self) -> int:
        """Return a port that nobody listens on."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            return int(listening.getsockname()[1])

    async def proxy(self) -> Proxy:
        """Open a proxy in front of the database; it is there until everything has stopped."""
        opened = Proxy(self.database_url)
        await opened.open()
        self._proxies.append(opened)
        return opened

    async def drained(self, seconds: float | None = None) -> None:
        """Wait until every job has come to its end."""
        query = "SELECT count(*) FROM jobs WHERE status IN ('queued', 'processing')"

        def is_empty() -> bool:
            with suppress(psycopg.OperationalError):
                return self.sql(query) == [(0,)]
            return False

        await self.until(is_empty, "every job has come to its end", seconds or self.quiet_seconds)

    async def status_of(self, job_id: str) -> str:
        """Return a job's status."""
        [(status,)] = self.sql("SELECT status::text FROM jobs WHERE id = %s", job_id)
        return str(status)

    async def is_alive(self) -> None:
        """Fail unless a new job still runs: that nothing bad happened is not enough."""
        job_id = await self.client.insist({}, key=uuid4().hex)
        await self.until(lambda: self.runs(job_id), "a new job runs after the fault", 15)

    async def end(self) -> None:
        """Stop everything."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await self.client.close()
        for process in self.processes:
            process.thaw()
            process.kill()
        for proxy in self._proxies:
            await proxy.close()
        if self.postgres.process is not None:
            self.signal_postgres(signal.SIGCONT)
        self.postgres.stop()
        if self.valkey.process is not None:
            self.valkey.process.send_signal(signal.SIGCONT)
        self.valkey.stop()
        for work in reversed(self._at_end):
            work()


def prepare_template(folder: Path) -> None:
    """Make a migrated cluster that every world gets a copy of."""
    server = PostgresServer(folder / "pg", folder / "s", durable=False, settings=POSTGRES)
    server.start()
    server.create_database("jobqueue")
    upgrade(server.url("jobqueue"))
    with psycopg.connect(server.url("jobqueue"), autocommit=True) as connection:
        connection.execute(_HISTORY.encode())
    server.stop()


@asynccontextmanager
async def world(
    template: Path, seed: int, size: float, *, patience: float = 1.0, keep: Path | None = None
) -> AsyncIterator[World]:
    """Start a world from *template*. With *keep* its logs are copied there at the end."""
    folder = Path(tempfile.mkdtemp(prefix="jqf-", dir="/tmp"))
    folder.chmod(0o755)
    shutil.copytree(template / "pg", folder / "pg")
    made = World(folder, seed, size, patience)
    try:
        made.postgres.start()
        made.valkey.start()
        yield made
    finally:
        await made.end()
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            for file in [*folder.glob("*.log"), folder / "ledger"]:
                shutil.copy(file, keep)
        shutil.rmtree(folder, ignore_errors=True)
