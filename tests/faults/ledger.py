"""What really ran, written by the executors themselves into a file that the queue knows nothing of."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """One execution of a job. *ended_at* None: it never came to its end. Times are of the machine's monotonic clock."""

    token: str
    job_id: str
    pid: int
    started_at: float
    ended_at: float | None
    outcome: str | None


class Ledger:
    """Lines ``start|end token job pid time outcome``, each appended in one write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()

    def runs(self) -> list[Run]:
        """Return all executions in the order of their starts."""
        found: dict[str, Run] = {}
        for line in self.path.read_text(encoding="ascii").splitlines():
            word, token, job_id, pid, at, outcome = line.split()
            if word == "start":
                found[token] = Run(token, job_id, int(pid), float(at), None, None)
            elif found[token].ended_at is None:
                found[token] = found[token]._replace(ended_at=float(at), outcome=outcome)
        return sorted(found.values(), key=lambda run: run.started_at)


def write(path: str, word: str, token: str, job_id: str, outcome: str = "-") -> None:
    """Append one line. A single write of a short line to a file opened for appending is never torn."""
    line = f"{word} {token} {job_id} {os.getpid()} {time.monotonic():.6f} {outcome}\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, line.encode("ascii"))
    finally:
        os.close(handle)
