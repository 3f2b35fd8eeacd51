"""A Valkey server of our own: a Unix socket in a private folder, no TCP, nothing written to disk.

What is in it may be lost at any moment by design (rate limits and hints), so a restart is always allowed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

from jobqueue.embedded import binaries
from jobqueue.embedded.postgres import SOCKET_PATH_LIMIT
from jobqueue.embedded.process import last_lines, launch, stop_process
from jobqueue.errors import SetupError


class ValkeyServer:
    """One server process. *socket_dir* is made private; *log_file* None: ``valkey.log`` in it."""

    def __init__(self, socket_dir: Path, *, log_file: Path | None = None) -> None:
        self.socket_dir = socket_dir.absolute()
        self.log_file = log_file or self.socket_dir / "valkey.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def socket_path(self) -> Path:
        """The socket's file."""
        return self.socket_dir / "valkey.sock"

    def url(self, db: int = 0) -> str:
        """Return the address of database *db*, as redis-py takes it."""
        return f"unix://{quote(str(self.socket_path))}?db={db}"

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            SetupError: it cannot start; the message has the end of its log.
        """
        self.prepare()
        self.spawn()
        self.wait_ready()

    def prepare(self) -> None:
        """Make the socket's folder.

        Raises:
            SetupError: its path is too long for a socket.
        """
        if len(os.fsencode(self.socket_path)) > SOCKET_PATH_LIMIT:
            raise SetupError(f"the path of the socket {self.socket_path} is too long: use a shorter folder")
        self.socket_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket_dir.chmod(0o700)

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the server process without waiting for it; :meth:`prepare` must have run."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
            "dir": str(self.socket_dir),
            "logfile": "",
        }
        command = [str(binaries.valkey_server())]
        for name, value in options.items():
            command += [f"--{name}", value]
        with self.log_file.open("ab") as log:
            self.process = launch(command, death_signal=signal.SIGTERM, output=log.fileno())
        return self.process

    def wait_ready(self, timeout_seconds: float = 30.0) -> None:
        """Wait until the server answers.

        Raises:
            SetupError: it ended, or did not answer within *timeout_seconds*.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self.is_ready():
            ended = self.process is None or self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                problem = "ended at once" if ended else f"did not answer within {timeout_seconds:g} s"
                raise SetupError(f"Valkey {problem}; the end of its log:\n{last_lines(self.log_file)}")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """Return whether the server answers a PING."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(self.socket_path))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        return False

    def stop(self) -> None:
        """Stop the server and wait until it is gone."""
        if self.process is None:
            return
        stop_process(self.process, ((signal.SIGTERM, 5.0),))
        self.process = None
