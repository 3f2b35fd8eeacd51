"""Keeps a set of child processes running: prefixes their output, starts again what dies, stops all in order.

One thread, one loop (:meth:`Supervisor.pump`). It is the parent of all children, so the kernel tells it of
every death, and tells the children of its own (see ``launch.py``).
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobqueue.embedded.process import kill_group, last_lines
from jobqueue.errors import SetupError

# A child that ends this soon failed to start; after so many in a row there is no point in going on.
QUICK_DEATH_SECONDS = 5.0
QUICK_DEATHS = 3
# A worker takes the repeated signal as "hand back now" only some seconds after the first one, since deployment
# tools send pairs; so the signal is repeated for a little longer than that.
HURRY_SECONDS = 7.0
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.3, 10.0


class QuitRequested(Exception):
    """The user asked to stop."""


@dataclass(frozen=True)
class Program:
    """What to run. *start* gets the file descriptor for its output and returns the running process.

    *stop_signal* and then, after *grace_seconds*, SIGKILL end it. Lower *stage* numbers are stopped first, a
    stage at a time. *log_file* is named when it writes its own log rather than to its output.
    """

    name: str
    start: Callable[[int], subprocess.Popen[bytes]]
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10.0
    stage: int = 0
    log_file: Path | None = None


@dataclass
class Child:
    """A program and its present process."""

    program: Program
    process: subprocess.Popen[bytes] | None = None
    output: int = -1
    started_at: float = 0.0
    restart_at: float | None = None
    quick_deaths: int = 0
    unfinished: bytes = b""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=12))

    def last_words(self) -> str:
        """Return the end of what it wrote, indented."""
        if self.program.log_file is not None:
            return last_lines(self.program.log_file)
        return "\n".join(f"  {line}" for line in self.tail)


class Supervisor:
    """The loop.

    *control* is a pipe: each byte in it asks to stop (a second one: faster), and so does its end. *say* gets
    a line to show and the name of the child that wrote it (empty: ours). *on_change* gets the process ids by
    name whenever one starts or ends.
    """

    def __init__(
        self, control: int, say: Callable[[str, str], None], on_change: Callable[[dict[str, int]], None]
    ) -> None:
        self.children: dict[str, Child] = {}
        self.quit_count = 0
        self._say_line = say
        self._on_change = on_change
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, self._read_control)
        self._alarm, ring = socket.socketpair()
        self._alarm.setblocking(False)
        ring.setblocking(False)
        self._ring = ring  # kept open: signals write to it and wake the loop
        self._selector.register(self._alarm, selectors.EVENT_READ, self._read_alarm)
        signal.set_wakeup_fd(ring.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._count_quit)

    @property
    def has_running_children(self) -> bool:
        """Whether there is anything to stop."""
        return any(child.process is not None for child in self.children.values())

    def add(self, program: Program) -> None:
        """Start *program* and keep it running from now on."""
        self.children[program.name] = Child(program)
        self._start(self.children[program.name])

    def pump(self, seconds: float) -> None:
        """Wait up to *seconds* for something to happen, and deal with it.

        Raises:
            QuitRequested: the user asked to stop (not while stopping).
            SetupError: a child keeps dying.
        """
        for key, _ in self._selector.select(max(0.0, min(seconds, self._next_restart()))):
            key.data(key.fd)
        for child in list(self.children.values()):
            self._look_after(child)
        if self.quit_count and not self._stopping:
            raise QuitRequested

    def wait_for(self, condition: Callable[[], bool], seconds: float, pause_seconds: float = 0.05) -> bool:
        """Pump until *condition* is true; return whether that was within *seconds*."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline:
                return False
            self.pump(pause_seconds)
        return True

    def run_once(self, program: Program) -> tuple[int, str]:
        """Run a short program to its end; return its exit code and last lines. Its output is not shown."""
        child = Child(program)
        process = self._spawn(child, show=False)
        try:
            while process.poll() is None or child.output >= 0:
                self.pump(0.2)
        finally:
            if process.poll() is None:
                kill_group(process.pid)
                process.wait()
            self._close(child)
        return process.returncode, child.last_words()

    def stop_all(self) -> None:
        """Stop every child, stage by stage; returns when the last one is gone.

        A further request to stop meanwhile repeats the signal and shortens the present stage's grace; one more
        ends it.
        """
        self._stopping = True
        for stage in sorted({child.program.stage for child in self.children.values()}):
            members = [child for child in self.children.values() if child.program.stage == stage]
            self._stop_stage(members)
        self.children.clear()
        self._on_change({})

    def _stop_stage(self, members: Sequence[Child]) -> None:
        asked, repeat_at = self.quit_count, math.inf
        deadline = time.monotonic() + max(child.program.grace_seconds for child in members)
        _send_stop_signals(members)
        # Output is read to its end, but what a grandchild keeps open must not hold us up.
        while any(child.process is not None or child.output >= 0 for child in members):
            now = time.monotonic()
            urgency = self.quit_count - asked
            if now >= deadline or urgency > 1:
                break
            if urgency == 1 and repeat_at == math.inf:
                self._say("hurrying: unfinished jobs are handed back; once more kills at once")
                deadline, repeat_at = min(deadline, now + HURRY_SECONDS), now
            if now >= repeat_at:
                _send_stop_signals(members)
                repeat_at = now + 0.5
            self.pump(0.1)
            if all(child.process is None for child in members):
                deadline = min(deadline, now + 0.5)
        for child in members:
            if child.process is not None:
                self._say(f"{child.program.name} did not stop in time: killing it")
                kill_group(child.process.pid)
                child.process.wait()
            self._close(child)

    def _start(self, child: Child) -> None:
        child.process = self._spawn(child)
        child.started_at = time.monotonic()
        child.restart_at = None
        self._tell()

    def _spawn(self, child: Child, show: bool = True) -> subprocess.Popen[bytes]:
        read_end, write_end = os.pipe()
        try:
            process = child.program.start(write_end)
        except OSError as error:
            os.close(read_end)
            raise SetupError(f"{child.program.name} cannot be started: {error}") from error
        finally:
            os.close(write_end)
        os.set_blocking(read_end, False)
        child.output = read_end
        self._selector.register(read_end, selectors.EVENT_READ, lambda fd: self._read_output(child, fd, show=show))
        return process

    def _look_after(self, child: Child) -> None:
        if child.restart_at is not None and time.monotonic() >= child.restart_at and not self._stopping:
            self._start(child)
        if child.process is None or child.process.poll() is None:
            return
        code, pid, child.process = child.process.returncode, child.process.pid, None
        self._tell()
        if self._stopping:
            return
        # What it started itself shares its group, and would keep ports and jobs.
        kill_group(pid)
        while child.output >= 0 and self._read_output(child, child.output):
            pass
        self._close(child)
        quick = time.monotonic() - child.started_at < QUICK_DEATH_SECONDS
        child.quick_deaths = child.quick_deaths + 1 if quick else 0
        if child.quick_deaths >= QUICK_DEATHS:
            raise SetupError(
                f"{child.program.name} cannot be kept running ({_cause(code)}); its last lines:\n{child.last_words()}"
            )
        delay = min(FIRST_DELAY_SECONDS * 2**child.quick_deaths, LONGEST_DELAY_SECONDS)
        self._say(f"{child.program.name} ended unexpectedly ({_cause(code)}): starting it again in {delay:.1f} s")
        child.restart_at = time.monotonic() + delay

    def _close(self, child: Child) -> None:
        if child.output >= 0:
            self._selector.unregister(child.output)
            os.close(child.output)
            child.output = -1

    def _read_output(self, child: Child, fd: int, show: bool = True) -> bool:
        """Show the lines that are there; return whether there may be more."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        *lines, child.unfinished = (child.unfinished + data).split(b"\n")
        if not data:
            lines = [child.unfinished] if child.unfinished else []
            child.unfinished = b""
            self._close(child)
        for raw in lines:
            line = raw.decode(errors="replace").rstrip()
            child.tail.append(line)
            if show:
                self._say_line(line, child.program.name)
        return bool(data)

    def _say(self, text: str) -> None:
        self._say_line(text, "")

    def _read_control(self, fd: int) -> None:
        data = os.read(fd, 64)
        self.quit_count += len(data) or 1
        if not data:
            self._selector.unregister(fd)

    def _read_alarm(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._alarm.recv(4096)

    def _count_quit(self, *_: object) -> None:
        self.quit_count += 1

    def _next_restart(self) -> float:
        now = time.monotonic()
        return min((c.restart_at - now for c in self.children.values() if c.restart_at is not None), default=3600.0)

    def _tell(self) -> None:
        self._on_change({name: c.process.pid for name, c in self.children.items() if c.process is not None})


def _send_stop_signals(members: Sequence[Child]) -> None:
    for child in members:
        child.restart_at = None
        if child.process is not None:
            child.process.send_signal(child.program.stop_signal)


def _cause(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
