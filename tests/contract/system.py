"""The real thing as a README reader starts it: ``jobqueue up`` in a home of its own, and a shell beside it.

``up`` gets a free port instead of 8000, and the shell's curl is told where localhost:8000 really is, so that
every command is run as printed and nobody has to keep a port free.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.contract.readme import ROOT

WAIT_SECONDS = 40.0


class System:
    """A home, a shell, and the ``up`` that runs in it. *folder* is where commands are run."""

    def __init__(self, home: Path, folder: Path, environ: Mapping[str, str]) -> None:
        self.home = home
        self.folder = folder
        self.environ = dict(environ)
        self.printed = ""
        self._bin = home / "bin"
        self._bin.mkdir(parents=True)

    @property
    def database_url(self) -> str:
        """The database of ``up``, as the README names it."""
        return f"postgresql://postgres@/jobqueue?host={self.home}/.jobqueue/run"

    def install(self, name: str, script: str) -> None:
        """Put a shell script in front of the PATH."""
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def shell(self, text: str) -> str:
        """Run *text* with ``bash -e`` and return what it prints."""
        done = subprocess.run(
            ["bash", "-e", "-c", text], cwd=self.folder, env=self._env(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{text}\nended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def started(self, command: str) -> Iterator[None]:
        """Run *command*, which starts ``up``, in the foreground of a terminal's stead; Ctrl-C at the end."""
        quoted = f'"{sys.executable}"'
        self.install("python3", f'[ "$2 $3" = "jobqueue up" ] && set -- "$@" --port 0\nexec {quoted} "$@"')
        self.install("jobqueue", f'[ "$1" = up ] && set -- "$@" --port 0\nexec {quoted} -m jobqueue "$@"')
        log = self.home / "up.log"
        with log.open("w") as output:
            running = subprocess.Popen(
                ["bash", "-e", "-c", f"exec 2>&1\n{command}"],
                cwd=self.folder,
                env=self._env(),
                stdout=output,
                start_new_session=True,
            )
        try:
            port = until(lambda: re.search(r"API +http://localhost:(\d+)/api/v1", log.read_text()), log.read_text)
            self.install(
                "curl", f'exec {shutil.which("curl")} --connect-to localhost:8000:127.0.0.1:{port.group(1)} "$@"'
            )
            self.printed = log.read_text()
            yield
            os.killpg(running.pid, signal.SIGINT)
            running.wait(WAIT_SECONDS)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGTERM)
                running.wait(WAIT_SECONDS)
        assert log.read_text().splitlines()[-1] == "stopped"

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the database of ``up``."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()

    def settle(self) -> None:
        """Wait until no job is running or due."""
        waiting = "status = 'processing' OR status = 'queued' AND next_run_at <= now()"
        until(
            lambda: not self.query(f"SELECT FROM jobs WHERE {waiting}"),
            lambda: str(self.query(f"SELECT id, type, status, error FROM jobs WHERE {waiting}")),
        )

    def _env(self) -> dict[str, str]:
        path = f"{self._bin}:{os.environ['PATH']}"
        return {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(self.home), "PATH": path, **self.environ}


def until(look: Callable[[], Any], explain: Callable[[], str]) -> Any:
    """Return the first true answer of *look*; fail with *explain* after a while."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (answer := look()):
        assert time.monotonic() < deadline, explain()
        time.sleep(0.02)
    return answer
