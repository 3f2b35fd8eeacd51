"""Starting, signalling and awaiting child processes, through ``launch.py``."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from jobqueue.embedded.launch import NOBODY

LAUNCH = Path(__file__).with_name("launch.py")


def launch(
    command: Sequence[str],
    *,
    death_signal: signal.Signals | None,
    identity: str = "same",
    environ: Mapping[str, str] | None = None,
    output: IO[bytes] | int | None = None,
) -> subprocess.Popen[bytes]:
    """Start *command* in its own session.

    *death_signal* is what it gets when the thread that called this ends (Linux only; None: it stays).
    *identity* is one of those in ``launch.py``. *output* takes its standard output and error.
    """
    prefix = [
        sys.executable,
        "-I",
        "-S",
        str(LAUNCH),
        str(os.getpid()),
        str(int(death_signal or 0)),
        identity,
    ]
    return subprocess.Popen(
        [*prefix, *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=dict(os.environ if environ is None else environ),
        start_new_session=True,
    )


@cache
def server_identity() -> str:
    """Return the identity for a program that refuses root, or that needs a user with a name.

    An ordinary user without an entry in the password file (common in containers) is given one by the
    namespace too, since ``initdb`` insists on it.
    """
    uid = os.geteuid()
    if uid != 0:
        with contextlib.suppress(KeyError):
            pwd.getpwuid(uid)
            return "same"
    probe = [sys.executable, "-I", "-S", str(LAUNCH), "0", "0", "probe"]
    if subprocess.call(probe, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
        return "namespace"
    return "drop" if uid == 0 else "same"


def give_to_server(folder: Path, identity: str) -> None:
    """Make the files of *folder* belong to the user that *identity* runs as. Only root changes anything.

    The folder itself comes last: while it has another owner, the work is not done.
    """
    owner = NOBODY if identity == "drop" else os.geteuid()
    if os.geteuid() != 0 or folder.stat().st_uid == owner:
        return
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(parent) / name, owner, owner, follow_symlinks=False)
    os.chown(folder, owner, owner)


def stop_process(process: subprocess.Popen[bytes], steps: Sequence[tuple[signal.Signals, float]]) -> None:
    """Send each signal of *steps* in turn and wait the seconds beside it, until *process* has ended.

    It is reaped here. The last resort is SIGKILL to its whole group, after the steps.
    """
    for number, seconds in steps:
        if process.poll() is not None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    if process.poll() is None:
        kill_group(process.pid)
        process.wait()


def kill_group(pid: int) -> None:
    """Kill the process *pid* and what it started (each child leads a group of its own)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Return whether *pid* runs. A zombie does not: its parent may never reap it (containers)."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return status.rpartition(")")[2].split()[0] not in {"Z", "X"}
    return True


def wait_until(condition: Callable[[], bool], seconds: float, pause_seconds: float = 0.02) -> bool:
    """Return whether *condition* came true within *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_seconds)
    return True


def last_lines(path: Path, count: int = 10) -> str:
    """Return the end of a log file, indented; empty when there is none."""
    with contextlib.suppress(OSError):
        lines = path.read_bytes()[-20_000:].decode(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-count:])
    return ""
