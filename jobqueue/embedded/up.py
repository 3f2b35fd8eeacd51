"""``jobqueue up``: database, Redis-protocol server, API and workers with one command, for one user.

Two processes. The front stays in the terminal and only passes on the wish to stop; the supervisor, in a
session of its own, is the parent of everything and holds the lock on the data folder. A pipe joins them:
whoever dies, the other one notices. Ctrl-C in the terminal therefore never reaches a server directly.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from jobqueue.embedded import network
from jobqueue.embedded.folder import DataFolder
from jobqueue.embedded.plan import Plan, make_plan
from jobqueue.embedded.process import is_running
from jobqueue.embedded.supervisor import QuitRequested, Supervisor
from jobqueue.errors import JobQueueError, SetupError
from jobqueue.settings import Settings, load_settings, read_dotenv

LIVE_HOLDER_SECONDS, DEAD_HOLDER_SECONDS = 2.0, 40.0
HEALTH_SECONDS = 60.0


@dataclass(frozen=True)
class UpOptions:
    """What ``up`` is asked for. *port* 0 takes any free one; *workers* counts processes."""

    port: int = 8000
    host: str = "127.0.0.1"
    data_dir: Path = Path("~/.jobqueue")
    workers: int = 1
    demo: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def run_up(options: UpOptions) -> int:
    """Run everything until Ctrl-C or SIGTERM; return the exit code: 0 stopped as asked, 1 with a message."""
    try:
        settings = load_settings(options.environ)
        folder = DataFolder(options.data_dir)
        folder.prepare()
    except SetupError as error:
        complain(str(error))
        return 1
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    front = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(write_end)
        _run_supervisor(options, settings, folder, read_end, front)
    os.close(read_end)
    return _wait_in_front(supervisor, write_end, folder)


def _wait_in_front(supervisor: int, control: int, folder: DataFolder) -> int:
    def pass_on(*_: object) -> None:
        with contextlib.suppress(OSError):
            os.write(control, b"q")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        _, status = os.waitpid(supervisor, 0)
    finally:
        os.close(control)
        for number, handler in before.items():
            signal.signal(number, handler)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    complain(f"the supervisor was killed ({signal.Signals(-code).name}): stopping what it ran")
    if folder.try_lock(os.getpid()):
        folder.sweep()
    return 1


def _run_supervisor(options: UpOptions, settings: Settings, folder: DataFolder, control: int, front: int) -> NoReturn:
    """Be the supervisor; never returns into the caller's code, which belongs to the front."""
    code = 1
    try:
        os.setsid()
        code = _supervise(options, settings, folder, control, front)
    except BaseException as error:  # noqa: BLE001  the last frame of this process
        complain(f"up failed: {type(error).__name__}: {error}")
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def _supervise(options: UpOptions, settings: Settings, folder: DataFolder, control: int, front: int) -> int:
    supervisor = Supervisor(control, say, folder.record_children)
    started = time.monotonic()
    try:
        _take_folder(supervisor, folder, front)
        port = network.require_free_port(options.host, options.port)
        plan = make_plan(options, settings, folder, port, {**read_dotenv(Path(".env")), **options.environ})
        if plan.postgres and not folder.postgres.exists():
            say(f"making a database in {folder.root}")
        _start(supervisor, plan)
        _announce(supervisor, plan, started)
        while True:
            supervisor.pump(60.0)
    except QuitRequested:
        code = 0
    except JobQueueError as error:
        complain(str(error))
        code = 1
    finally:
        if supervisor.has_running_children:
            say("stopping; Ctrl-C again hurries")
            supervisor.stop_all()
            say("stopped")
    return code


def _take_folder(supervisor: Supervisor, folder: DataFolder, front: int) -> None:
    """Take the lock on the data folder, waiting a little for a predecessor that is about to end."""
    if not folder.try_lock(front):
        holder = folder.holder()
        dying = not is_running(holder)
        if dying:
            say("waiting for the previous run to end")
        patience = DEAD_HOLDER_SECONDS if dying else LIVE_HOLDER_SECONDS
        if not supervisor.wait_for(lambda: folder.try_lock(front), patience, pause_seconds=0.1):
            raise SetupError(
                f"`jobqueue up` runs already on {folder.root} (process {holder}): stop it, or pass --data-dir"
            )
    folder.sweep()


def _start(supervisor: Supervisor, plan: Plan) -> None:
    servers = plan.servers()
    for program, _ in servers:
        supervisor.add(program)
    for program, is_ready in servers:
        if not supervisor.wait_for(is_ready, 60.0, pause_seconds=0.02):
            words = supervisor.children[program.name].last_words()
            raise SetupError(f"{program.name} does not answer; the end of its log:\n{words}")
    plan.create_database()
    code, words = supervisor.run_once(plan.schema())
    if code != 0:
        raise SetupError(f"the database's schema cannot be brought up to date:\n{words}")
    for program in plan.programs():
        supervisor.add(program)


def _announce(supervisor: Supervisor, plan: Plan, started: float) -> None:
    def healthy() -> bool:
        return network.answers_health(plan.options.host, plan.port)

    while not supervisor.wait_for(healthy, HEALTH_SECONDS, pause_seconds=0.05):
        say("the API does not answer yet; still waiting")
    say(f"\njobqueue is ready after {time.monotonic() - started:.1f} s")
    say(plan.addresses())


def say(text: str, source: str = "") -> None:
    """Show *text*, with the name of the child that wrote it. A closed terminal is no reason to fail."""
    prefix = f"[{source}] " if source else ""
    with contextlib.suppress(OSError, ValueError):
        print("".join(f"{prefix}{line}\n" for line in text.splitlines()), end="", flush=True)


def complain(text: str) -> None:
    """Say on the standard error output why ``up`` ends."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
