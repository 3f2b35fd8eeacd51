"""``up`` from outside: its processes, its messages, what a kill leaves."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobqueue.embedded import wire
from jobqueue.embedded.network import require_free_port
from jobqueue.embedded.postgres import SOCKET_NAME, PostgresServer
from jobqueue.embedded.process import is_running, wait_until
from jobqueue.embedded.valkey import ValkeyServer

DRIVER = (
    "import sys; from pathlib import Path; from jobqueue.embedded.up import UpOptions, run_up\n"
    "sys.exit(run_up(UpOptions(port=int(sys.argv[1]), data_dir=Path(sys.argv[2]))))"
)
READY = "Ctrl-C stops everything."
CLEAN = {
    "SIMULATE_DELAY_SCALE": "0",
    "SIMULATE_FAILURES": "false",
    "SHUTDOWN_GRACE_SECONDS": "2",
    "METRICS_PORT": "0",
}


class Up:
    """One running ``up`` on the data folder *root*."""

    def __init__(self, root: Path, port: int, **environ: str) -> None:
        self.root, self.port = root, port
        self.output = root.with_name(f"{root.name}-{time.monotonic_ns()}.out")
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, str(port), str(root)],
                # Another working folder: a developer's own .env must not count.
                cwd=root.parent,
                env={**kept, **CLEAN, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
                stdout=output,
                stderr=output,
            )

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_ready(self) -> "Up":
        wait_until(lambda: READY in self.text() or self.process.poll() is not None, 15)
        assert READY in self.text(), self.text()
        return self

    def children(self) -> dict[str, int]:
        try:
            return {name: pid for name, pid, _ in json.loads((self.root / "children.json").read_text())}
        except FileNotFoundError:
            return {}

    def supervisor(self) -> int:
        shown = subprocess.check_output(["ps", "-A", "-o", "pid=,ppid="], text=True)
        pairs = [line.split() for line in shown.splitlines()]
        return next(int(pid) for pid, parent in pairs if int(parent) == self.process.pid)

    def query(self, sql: str) -> list[str]:
        return wire.query(self.root / "run" / SOCKET_NAME, "jobqueue", sql)

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps(body).encode() if body is not None else None,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(15)


def all_gone(pids: dict[str, int]) -> bool:
    return not any(is_running(pid) for pid in pids.values())


@pytest.fixture
def root() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="jq-", dir="/tmp"))
    yield parent / "data"
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def up(root: Path) -> Iterator[Up]:
    started = Up(root, require_free_port("127.0.0.1", 0))
    yield started.wait_ready()
    started.process.terminate()
    started.process.wait(15)


def test_job_runs_and_ctrl_c_leaves_no_process(up: Up) -> None:
    job = up.call("/api/v1/jobs", {"type": "email_send", "payload": {"to": "ada@example.com"}})
    path = f"/api/v1/jobs/{job['id']}"
    completed = wait_until(lambda: up.call(path)["status"] == "completed", 10)
    children = up.children()

    code = up.stop()

    assert completed
    assert sorted(children) == ["api", "postgres", "valkey", "worker-1"]
    assert code == 0
    assert all_gone(children)
    assert "Traceback" not in up.text()


def test_data_survive_a_restart(up: Up) -> None:
    up.query("CREATE TABLE kept AS SELECT 7 AS n")
    up.stop()

    again = Up(up.root, up.port).wait_ready()
    rows = again.query("SELECT n FROM kept")
    again.stop()

    assert rows == ["7"]


@pytest.mark.parametrize("victims", ["front", "supervisor", "both"])
def test_killed_up_leaves_nothing_and_the_next_one_starts_at_once(up: Up, victims: str) -> None:
    up.query("CREATE TABLE kept AS SELECT 7 AS n")
    children, supervisor = up.children(), up.supervisor()

    for name, pid in (("front", up.process.pid), ("supervisor", supervisor)):
        if victims in {name, "both"}:
            os.kill(pid, signal.SIGKILL)
    if victims != "both":
        assert wait_until(lambda: all_gone({**children, "supervisor": supervisor}), 10)
    again = Up(up.root, up.port).wait_ready()
    rows = again.query("SELECT n FROM kept")

    assert rows == ["7"]
    assert all_gone(children)
    assert again.stop() == 0


def test_second_up_on_the_same_data_folder_names_the_first(up: Up) -> None:
    second = Up(up.root, up.port)

    code = second.process.wait(10)

    assert code == 1
    assert second.text() == (
        f"`jobqueue up` runs already on {up.root} (process {up.process.pid}): stop it, or pass --data-dir\n"
    )


def test_taken_port_is_named_in_one_line(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = Up(root, port)
        code = refused.process.wait(10)

    assert code == 1
    assert refused.text() == f"port {port} is already in use: stop the other program or pass --port\n"
    assert not (root / "postgres").exists()


def test_bad_setting_is_named_in_one_line(root: Path) -> None:
    refused = Up(root, 0, WORKER_CONCURRENCY="many")

    code = refused.process.wait(10)

    assert code == 1
    assert refused.text().startswith("WORKER_CONCURRENCY='many' is not allowed")
    assert refused.text().count("\n") == 1


@pytest.mark.parametrize("name", ["api", "worker-1", "valkey", "postgres"])
def test_killed_child_is_started_again(up: Up, name: str) -> None:
    before = up.children()

    os.kill(before[name], signal.SIGKILL)

    assert wait_until(lambda: up.children().get(name, before[name]) != before[name], 10)
    assert f"{name} ended unexpectedly (killed by SIGKILL): starting it again" in up.text()
    assert up.stop() == 0


def test_child_that_cannot_start_ends_up_with_its_last_lines(root: Path) -> None:
    failed = Up(root, 0, JOBQUEUE_EXECUTORS="no_such_module")

    code = failed.process.wait(18)

    assert code == 1
    assert "cannot be kept running (exit code 1); its last lines:\n" in failed.text()
    assert "no_such_module" in failed.text()
    assert failed.text().endswith("hurries\nstopped\n")


def test_servers_of_the_user_are_used_when_named_in_dotenv(root: Path) -> None:
    database = PostgresServer(root.parent / "pg", root.parent / "s", durable=False)
    cache = ValkeyServer(root.parent / "s")
    database.start()
    cache.start()
    dotenv = f"DATABASE_URL={database.url()}\nREDIS_URL={cache.url()}\n"
    (root.parent / ".env").write_text(dotenv)

    started = Up(root, 0).wait_ready()
    children = started.children()
    code = started.stop()

    assert sorted(children) == ["api", "worker-1"]
    assert code == 0
    assert database.is_ready()
    database.stop()
    cache.stop()
