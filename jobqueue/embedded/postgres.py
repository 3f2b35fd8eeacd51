"""A PostgreSQL server of our own: made on first use, reached by a Unix socket in a private folder, no TCP.

It belongs to one data folder. The caller makes sure that only one process at a time uses that folder (``up``
holds a lock on it); what a killed predecessor left there is cleared away before the start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from jobqueue.embedded import binaries, wire
from jobqueue.embedded.process import (
    give_to_server,
    is_running,
    kill_group,
    last_lines,
    launch,
    server_identity,
    stop_process,
    wait_until,
)
from jobqueue.errors import SetupError

PORT = 5432
SOCKET_NAME = f".s.PGSQL.{PORT}"
SOCKET_PATH_LIMIT = 103  # sun_path: 107 bytes on Linux, 103 on macOS
# No process has this number, on Linux and on macOS.
IMPOSSIBLE_PID = 2**31 - 1

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    "log_destination": "stderr",
}
# A power cut may destroy the cluster: for tests only. mmap leaves nothing in /dev/shm after a kill.
NOT_DURABLE = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "dynamic_shared_memory_type": "mmap",
}


class PostgresServer:
    """One server process on one data folder.

    *data_dir* is made by :meth:`start` when it does not exist. *socket_dir* must be short (the socket's path
    has at most 103 bytes) and is made private. *durable* False trades safety for speed (tests). *log_file*
    takes the server's messages; None: beside the data folder, with the suffix ``.log``. *settings* are
    further server settings by name. *identity* is one of ``launch.py``'s; None: what this user needs.
    """

    def __init__(
        self,
        data_dir: Path,
        socket_dir: Path,
        *,
        durable: bool = True,
        log_file: Path | None = None,
        settings: Mapping[str, str] | None = None,
        identity: str | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.socket_dir = socket_dir.absolute()
        self.durable = durable
        self.log_file = log_file or self.data_dir.with_name(self.data_dir.name + ".log")
        self.settings = {**SETTINGS, **({} if durable else NOT_DURABLE), **(settings or {})}
        self.identity = identity or server_identity()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def socket_path(self) -> Path:
        """The socket's file."""
        return self.socket_dir / SOCKET_NAME

    def url(self, dbname: str = "postgres") -> str:
        """Return the address of a database, as psycopg and ``psql`` take it."""
        return f"postgresql://{wire.USER}@/{quote(dbname)}?host={quote(str(self.socket_dir))}&port={PORT}"

    def start(self) -> None:
        """Make the data folder if need be, start the server and wait until it answers.

        Raises:
            SetupError: it cannot start; the message has the end of its log.
        """
        self.prepare()
        self.spawn()
        self.wait_ready()

    def prepare(self) -> None:
        """Make the data folder and clear away what a killed predecessor left.

        Raises:
            SetupError: the folder is another version's or another user's, or initdb failed.
        """
        if len(os.fsencode(self.socket_path)) > SOCKET_PATH_LIMIT:
            raise SetupError(f"the path of the socket {self.socket_path} is too long: use a shorter folder")
        folder = binaries.postgres_bin()
        major = binaries.postgres_major(folder)
        self.socket_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket_dir.chmod(0o700)
        version_file = self.data_dir / "PG_VERSION"
        if not version_file.exists():
            self._init(folder, major)
        found = version_file.read_text(encoding="ascii").strip()
        if found != str(major):
            raise SetupError(
                f"the data in {self.data_dir} is PostgreSQL {found}'s, and this server is {major}: "
                "move the folder away to begin anew, or let JOBQUEUE_PG_BIN name that version's bin folder"
            )
        self._stop_predecessor()
        for owned in (self.data_dir, self.socket_dir):
            give_to_server(owned, self.identity)

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the server process without waiting for it; :meth:`prepare` must have run."""
        options = {**self.settings, "unix_socket_directories": str(self.socket_dir)}
        command = [str(binaries.postgres_bin() / "postgres"), "-D", str(self.data_dir)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with self.log_file.open("ab") as log:
            # SIGINT is PostgreSQL's fast shutdown: it ends sessions and writes a checkpoint.
            self.process = launch(
                command,
                death_signal=signal.SIGINT,
                identity=self.identity,
                environ=_environ(),
                output=log.fileno(),
            )
        return self.process

    def wait_ready(self, timeout_seconds: float = 60.0) -> None:
        """Wait until the server answers a query.

        Raises:
            SetupError: it ended, or did not answer within *timeout_seconds*.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self.is_ready():
            ended = self.process is None or self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                problem = "ended at once" if ended else f"did not answer within {timeout_seconds:g} s"
                raise SetupError(f"PostgreSQL {problem}; the end of its log:\n{last_lines(self.log_file)}")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """Return whether a new connection gets an answer."""
        try:
            return wire.query(self.socket_path, "postgres", "SELECT 1", timeout_seconds=5) == ["1"]
        except (OSError, wire.WireError):
            return False

    def create_database(self, name: str) -> None:
        """Create the database *name* unless it exists.

        Raises:
            SetupError: the server refused.
        """
        try:
            wire.query(self.socket_path, "postgres", f'CREATE DATABASE "{name}"')
        except wire.WireError as error:
            if error.sqlstate != "42P04":  # duplicate_database
                raise SetupError(f"the database {name} cannot be created: {error}") from error

    def stop(self) -> None:
        """Stop the server and wait until it is gone. Open sessions are ended; committed data is safe."""
        if self.process is None:
            return
        stop_process(self.process, ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0)))
        self.process = None

    def _init(self, folder: Path, major: int) -> None:
        """Run initdb into a neighbouring folder, so that a half-made one is never taken for a cluster."""
        draft = self.data_dir.with_name(self.data_dir.name + ".new")
        shutil.rmtree(draft, ignore_errors=True)
        self.data_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.mkdir(mode=0o700)
        give_to_server(draft, self.identity)
        # The builtin provider (17 and later) sorts alike on every machine and does not depend on its libc.
        locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if major >= 17 else ["--locale=C"]
        command = [str(folder / "initdb"), "-D", str(draft), "-U", wire.USER, "-A", "trust"]
        command += ["--encoding=UTF8", *locale]
        if not self.durable:
            command.append("--no-sync")
        with self.log_file.open("ab") as log:
            process = launch(
                command,
                death_signal=signal.SIGTERM,
                identity=self.identity,
                environ=_environ(),
                output=log.fileno(),
            )
            code = process.wait()
        if code != 0:
            raise SetupError(f"initdb failed; the end of its output:\n{last_lines(self.log_file)}")
        if self.data_dir.is_dir() and not any(self.data_dir.iterdir()):
            self.data_dir.rmdir()
        draft.rename(self.data_dir)

    def _stop_predecessor(self) -> None:
        """Stop a server that a killed parent left on this folder, or make a stale pid file harmless."""
        pid_file = self.data_dir / "postmaster.pid"
        try:
            lines = pid_file.read_text(encoding="utf-8", errors="replace").splitlines()
            pid = int(lines[0])
        except (OSError, ValueError, IndexError):
            return
        if _is_postmaster(pid, self.data_dir):
            # PostgreSQL's children outlive SIGKILL of the postmaster by a moment, hence the gentle order.
            for number, seconds in ((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                if wait_until(lambda: not is_running(pid), seconds):
                    break
            else:
                kill_group(pid)
                wait_until(lambda: not is_running(pid), 5.0)
        # The number may belong to an unrelated process by now, and PostgreSQL would refuse to start. The file
        # stays: its other lines name the shared memory that tells whether old backends still run.
        with contextlib.suppress(OSError):
            if pid_file.exists() and pid != IMPOSSIBLE_PID:
                pid_file.write_text("\n".join([str(IMPOSSIBLE_PID), *lines[1:], ""]), encoding="utf-8")


def _is_postmaster(pid: int, data_dir: Path) -> bool:
    if pid <= 1 or not is_running(pid):
        return False
    try:
        # Readable for everybody, unlike the working folder of another user's process.
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        ps = ["ps", "-o", "command=", "-p", str(pid)]
        command = subprocess.run(ps, capture_output=True, text=True, check=False).stdout
    return f"-D {data_dir} " in command + " "


def _environ() -> dict[str, str]:
    """Return an environment in which PG* variables of the user cannot redirect the server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return {**kept, "LC_ALL": "C"}
