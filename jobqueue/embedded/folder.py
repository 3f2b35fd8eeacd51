"""The data folder of ``up``: who holds it, where its sockets and logs are, and what a killed run left."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from jobqueue.embedded.postgres import SOCKET_NAME, SOCKET_PATH_LIMIT
from jobqueue.embedded.process import is_running, kill_group, wait_until
from jobqueue.errors import SetupError


class DataFolder:
    """One user's data folder; :meth:`prepare` makes it, private to the user."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.postgres = self.root / "postgres"
        self.logs = self.root / "logs"
        self._record = self.root / "children.json"
        self._lock_fd: int | None = None

    def prepare(self) -> None:
        """Make the folder.

        Raises:
            SetupError: it cannot be made, or belongs to another user.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs.mkdir(mode=0o700, exist_ok=True)
            owner = self.root.stat().st_uid
        except OSError as error:
            raise SetupError(f"the data folder {self.root} cannot be made: {error.strerror}") from error
        if owner != os.geteuid():
            raise SetupError(f"the data folder {self.root} belongs to another user: pass --data-dir")

    def socket_dir(self) -> Path:
        """Return a private folder whose path is short enough for a socket.

        Raises:
            SetupError: somebody else made a folder of that name in /tmp.
        """
        inside = self.root / "run"
        if len(os.fsencode(inside / SOCKET_NAME)) <= SOCKET_PATH_LIMIT:
            return inside
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        folder = Path(f"/tmp/jobqueue-{os.geteuid()}-{digest}")  # noqa: S108  checked below, and short
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid not in {os.geteuid(), 65534}:
            raise SetupError(f"{folder} belongs to another user: pass a --data-dir with a shorter path")
        return folder

    def try_lock(self, holder: int) -> bool:
        """Take the folder for this process and its forks; *holder* is the process id to show to others.

        The kernel gives the lock back when the last process that has it is gone, however it died.
        """
        if self._lock_fd is None:
            self._lock_fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        os.ftruncate(self._lock_fd, 0)
        os.pwrite(self._lock_fd, str(holder).encode(), 0)
        return True

    def holder(self) -> int:
        """Return the process id of the ``up`` that has the folder; 0 when unknown."""
        try:
            return int((self.root / "lock").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    def rotate_log(self, name: str) -> Path:
        """Return the log file *name*, empty; the previous run's is kept beside it with the suffix ``.1``."""
        path = self.logs / f"{name}.log"
        with contextlib.suppress(FileNotFoundError):
            path.replace(path.with_suffix(".log.1"))
        path.touch(mode=0o600)
        return path

    def record_children(self, pids: Mapping[str, int]) -> None:
        """Note which processes run, for :meth:`sweep` after a kill."""
        rows = [(name, pid, _birth(pid)) for name, pid in pids.items()]
        draft = self._record.with_suffix(".new")
        # A full disk must not end a run that works; the kernel's death signal does not need this file.
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps(rows), encoding="utf-8")
            draft.replace(self._record)

    def sweep(self) -> None:
        """End what is left of a run whose supervisor was killed; returns when it is gone.

        Clients of the database first get a moment to end by themselves. PostgreSQL gets the time for its
        checkpoint. A process is only touched if its time of birth is the recorded one.
        """
        left = [(name, pid) for name, pid, birth in self._recorded() if is_running(pid) and _birth(pid) == birth]
        for name, pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT if name == "postgres" else signal.SIGTERM)
        _end(pid for name, pid in left if name != "postgres")
        _end((pid for name, pid in left if name == "postgres"), seconds=15.0)
        self._record.unlink(missing_ok=True)

    def _recorded(self) -> list[tuple[str, int, str]]:
        try:
            rows = json.loads(self._record.read_text(encoding="utf-8"))
            return [(str(name), int(pid), str(birth)) for name, pid, birth in rows]
        except (OSError, ValueError, TypeError):
            return []


def _end(pids: Iterable[int], seconds: float = 1.5) -> None:
    waiting = list(pids)
    wait_until(lambda: not any(map(is_running, waiting)), seconds)
    for pid in waiting:
        if is_running(pid):
            kill_group(pid)
    wait_until(lambda: not any(map(is_running, waiting)), 5.0)


def _birth(pid: int) -> str:
    """Return a text that tells this process from a later one with the same number; empty when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[19]  # field 22, proc_pid_stat(5)
    except (OSError, IndexError):
        if Path("/proc/self").exists():
            return ""
    ps = ["ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(ps, capture_output=True, text=True, check=False).stdout.strip()
