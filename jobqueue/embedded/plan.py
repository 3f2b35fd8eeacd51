"""What ``up`` runs: each program with its environment, and what is said about it."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobqueue.embedded import binaries, network
from jobqueue.embedded.folder import DataFolder
from jobqueue.embedded.postgres import PostgresServer
from jobqueue.embedded.process import launch
from jobqueue.embedded.supervisor import Program
from jobqueue.embedded.valkey import ValkeyServer
from jobqueue.settings import Settings, redact

if TYPE_CHECKING:
    from jobqueue.embedded.up import UpOptions

DATABASE = "jobqueue"
# The demo creates a job every two seconds, and the limit of ten a minute is meant for strangers.
DEMO_RATE_LIMIT = "6000"
CLIENTS, CACHE, STORE = 0, 1, 2  # the order of stopping
MARGIN_SECONDS = 5.0


@dataclass(frozen=True)
class Plan:
    """The programs for *options* on *port*. *given* is the environment including ``.env``."""

    options: UpOptions
    settings: Settings
    folder: DataFolder
    port: int
    given: Mapping[str, str]
    postgres: PostgresServer | None
    valkey: ValkeyServer | None

    @property
    def database_url(self) -> str:
        """The user's DATABASE_URL, or our own server's."""
        return self.postgres.url(DATABASE) if self.postgres else self.settings.database_url

    @property
    def redis_url(self) -> str:
        """The user's REDIS_URL, or our own server's."""
        return self.valkey.url() if self.valkey else self.settings.redis_url

    def servers(self) -> list[tuple[Program, Callable[[], bool]]]:
        """Return the servers to start first, each with its test for being ready."""
        rows: list[tuple[Program, Callable[[], bool]]] = []
        for server, name, number, grace, stage in (
            (self.postgres, "postgres", signal.SIGINT, 30.0, STORE),
            (self.valkey, "valkey", signal.SIGTERM, 5.0, CACHE),
        ):
            if server is not None:
                program = Program(name, _starter(server), number, grace, stage, server.log_file)
                rows.append((program, server.is_ready))
        return rows

    def create_database(self) -> None:
        """Create our database on our own server, unless it is there."""
        if self.postgres:
            self.postgres.create_database(DATABASE)

    def schema(self) -> Program:
        """Return the program that brings the schema up to date."""
        return self._python("schema", "jobqueue.embedded.schema")

    def programs(self) -> list[Program]:
        """Return API, workers and, if asked for, the demo."""
        own = (
            {}
            if "RATE_LIMIT_PER_MINUTE" in self.given or not self.options.demo
            else {"RATE_LIMIT_PER_MINUTE": DEMO_RATE_LIMIT}
        )
        programs = [self._python("api", "jobqueue", "api", environ=own)]
        grace = self.settings.shutdown_grace_seconds + MARGIN_SECONDS
        taken = {self.port}
        for number in range(1, self.options.workers + 1):
            metrics = self.settings.metrics_port
            if metrics:
                metrics = network.next_free_port("0.0.0.0", metrics, taken)  # noqa: S104  probed, not served
            environ = {"METRICS_PORT": str(metrics)}
            programs.append(self._python(f"worker-{number}", "jobqueue", "worker", environ=environ, grace=grace))
        if self.options.demo:
            programs.append(self._python("demo", "jobqueue.embedded.demo", f"{self.address}/api/v1/jobs"))
        return programs

    @property
    def address(self) -> str:
        """The API's address for a browser on this machine."""
        host = network.reachable_host(self.options.host)
        shown = {"127.0.0.1": "localhost", "::1": "localhost"}.get(host, f"[{host}]" if ":" in host else host)
        return f"http://{shown}:{self.port}"

    def addresses(self) -> str:
        """Return the lines that tell where everything is."""
        if self.postgres:
            psql = "psql" if shutil.which("psql") else shlex.quote(str(binaries.postgres_bin() / "psql"))
            database = f"{psql} {shlex.quote(self.database_url)}"
        else:
            database = f"{redact(self.database_url)}  (DATABASE_URL)"
        rows = [
            ("API", f"{self.address}/api/v1"),
            ("dashboard", self.address),
            ("API docs", f"{self.address}/docs"),
            ("database", database),
            ("data, logs", str(self.folder.root)),
        ]
        table = "".join(f"  {name:<11} {value}\n" for name, value in rows)
        return f"{table}Ctrl-C stops everything.\n"

    def _python(
        self,
        name: str,
        module: str,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        grace: float = 10.0,
    ) -> Program:
        environment = {
            **self.options.environ,
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "API_HOST": self.options.host,
            "API_PORT": str(self.port),
            "PYTHONUNBUFFERED": "1",
            **(environ or {}),
        }
        command = [sys.executable, "-m", module, *arguments]

        def start(output: int) -> subprocess.Popen[bytes]:
            # Only if the supervisor was killed. The database goes at that moment too, so that a worker has nothing
            # to finish into and would spend its whole grace trying; its leases run out as after any crash.
            return launch(command, death_signal=signal.SIGKILL, environ=environment, output=output)

        return Program(name, start, grace_seconds=grace, stage=CLIENTS)


def make_plan(options: UpOptions, settings: Settings, folder: DataFolder, port: int, given: Mapping[str, str]) -> Plan:
    """Return the plan: a server of our own for each address the user has not set.

    Raises:
        SetupError: no folder can be had for the sockets.
    """
    postgres, valkey = None, None
    if not given.get("DATABASE_URL"):
        log = folder.rotate_log("postgres")
        postgres = PostgresServer(folder.postgres, folder.socket_dir(), log_file=log)
    if not given.get("REDIS_URL"):
        valkey = ValkeyServer(folder.socket_dir(), log_file=folder.rotate_log("valkey"))
    return Plan(options, settings, folder, port, given, postgres, valkey)


def _starter(server: PostgresServer | ValkeyServer) -> Callable[[int], subprocess.Popen[bytes]]:
    def start(_: int) -> subprocess.Popen[bytes]:
        server.prepare()
        return server.spawn()

    return start
