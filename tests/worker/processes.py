"""Real worker processes, and what they left in the ledger."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

import jobqueue
from jobqueue.settings import Settings
from tests.overlap import eventually

ROOT = Path(jobqueue.__file__).parents[1]


class Entry(NamedTuple):
    """A line of the ledger."""

    word: str
    name: str
    pid: int
    at: float


class Ledger:
    """The file in which probes note what they do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self, word: str = "", name: str = "") -> list[Entry]:
        """Return the lines with this word and this name."""
        if not self.path.exists():
            return []
        parts = [line.split() for line in self.path.read_text().splitlines()]
        entries = [Entry(word, name, int(pid), float(at)) for word, name, pid, at in parts]
        return [entry for entry in entries if word in {"", entry.word} and name in {"", entry.name}]

    async def until(self, word: str, name: str = "", number: int = 1) -> Entry:
        """Wait for the n-th such line and return it."""
        found = await eventually(
            lambda: len(entries := self.entries(word, name)) >= number and entries, f"{number} × {word} {name}"
        )
        return found[number - 1]


class WorkerProcess:
    """``python -m jobqueue worker`` with the probes."""

    def __init__(self, settings: Settings, log: Path) -> None:
        environ = {name.upper(): str(value) for name, value in msgspec.structs.asdict(settings).items()}
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jobqueue", "worker"],
                cwd=ROOT,
                env={**os.environ, **environ, "JOBQUEUE_EXECUTORS": "tests.worker.probe_plugin"},
                stdout=stderr,
                stderr=stderr,
            )
        self.pid = self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether the process lives."""
        return self._process.poll() is None

    def log_text(self) -> str:
        """Return what it logged so far."""
        return self._log.read_text(errors="replace")

    async def until_logged(self, text: str) -> None:
        """Wait until it logged something that holds *text*."""
        await eventually(lambda: text in self.log_text(), f"the worker logs {text!r}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    async def exit_code(self, seconds: float = 20) -> int:
        """Wait for the end of the process."""
        await eventually(lambda: not self.is_running, f"process {self.pid} ends", seconds)
        return self._process.wait()

    def kill(self) -> None:
        """End it, in whatever state it is."""
        self._process.kill()
        self._process.wait()
