"""API and worker processes of the product, as an operator starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import jobqueue

ROOT = Path(jobqueue.__file__).parents[1]


class Process:
    """One process. *lost_at* is when it was killed or frozen on purpose, or seen to have ended by itself."""

    def __init__(self, name: str, arguments: list[str], environ: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.is_wanted = True
        self.may_trace = False  # a traceback in its log is the subject of the scenario
        self.lost_at: float | None = None
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jobqueue", *arguments],
                cwd=ROOT,
                env={**os.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.pid = self._process.pid

    def exit_code(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.poll()

    def text(self) -> str:
        """Return what it logged."""
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        if self.exit_code() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, in whatever state it is."""
        self.is_wanted = False
        if self.exit_code() is None:
            self.lost_at = time.monotonic()
            self._process.kill()
        self._process.wait()

    def stop_kindly(self) -> None:
        """Send SIGTERM; it is not expected to live on."""
        self.is_wanted = False
        self.send(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop it without its noticing."""
        self.lost_at = time.monotonic()
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT)

    def resident_bytes(self) -> int:
        """Return its resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        """Return the number of its file descriptors."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
