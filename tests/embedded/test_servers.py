"""The servers from wheels, as real processes."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from jobqueue.embedded import wire
from jobqueue.embedded.launch import NOBODY
from jobqueue.embedded.postgres import PostgresServer
from jobqueue.embedded.process import is_running, launch, server_identity, wait_until
from jobqueue.embedded.valkey import ValkeyServer
from jobqueue.errors import SetupError

AS_ROOT = os.geteuid() == 0
IDENTITIES = sorted({server_identity(), "drop"}) if AS_ROOT else [server_identity()]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder with a path that is short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="jq-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def server(folder: Path) -> Iterator[PostgresServer]:
    made = PostgresServer(folder / "pg", folder / "s", durable=False)
    made.start()
    yield made
    made.stop()


def ask(server: PostgresServer, sql: str) -> list[str]:
    return wire.query(server.socket_path, "postgres", sql)


def test_server_answers_the_driver_on_its_socket_and_takes_no_tcp(server: PostgresServer) -> None:
    server.create_database("jobqueue")
    server.create_database("jobqueue")

    with psycopg.connect(server.url("jobqueue")) as connection:
        row = connection.execute(
            "SELECT current_database(), current_setting('listen_addresses'), current_setting('timezone')"
        ).fetchone()

    assert row == ("jobqueue", "", "UTC")
    assert server.socket_dir.stat().st_mode & 0o777 == 0o700
    assert server.data_dir.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("identity", IDENTITIES)
def test_server_starts_as_every_user_it_can_run_as(folder: Path, identity: str) -> None:
    server = PostgresServer(folder / "pg", folder / "s", durable=False, identity=identity)
    server.start()

    answer = ask(server, "SELECT 1")
    server.stop()

    assert answer == ["1"]
    assert server.data_dir.stat().st_uid == (NOBODY if identity == "drop" else os.geteuid())


def test_data_folder_follows_a_change_of_identity(folder: Path) -> None:
    for identity in (*IDENTITIES, *reversed(IDENTITIES)):
        server = PostgresServer(folder / "pg", folder / "s", durable=False, identity=identity)
        server.start()
        ask(server, "CREATE TABLE IF NOT EXISTS kept (n int)")
        server.stop()

    assert server.data_dir.is_dir()


def test_ordinary_user_starts_the_server(folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    if AS_ROOT:
        folder.chmod(0o755)
        os.chown(home, NOBODY, NOBODY)
    script = (
        "import sys; from pathlib import Path; from jobqueue.embedded.postgres import PostgresServer\n"
        "home = Path(sys.argv[1]); s = PostgresServer(home / 'pg', home / 's', durable=False)\n"
        "s.start(); print(s.identity, s.is_ready()); s.stop()"
    )
    environ = {**os.environ, "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}

    with (folder / "output").open("w+b") as output:
        process = launch(
            [sys.executable, "-c", script, str(home)],
            death_signal=signal.SIGKILL,
            identity="drop" if AS_ROOT else "same",
            environ=environ,
            output=output.fileno(),
        )
        code = process.wait(20)

    # A user without an entry in the password file is lent one, since initdb insists on it.
    identity = "same" if AS_ROOT else server_identity()
    assert (code, (folder / "output").read_text()) == (0, f"{identity} True\n")


def test_committed_rows_survive_a_killed_postmaster(folder: Path) -> None:
    server = PostgresServer(folder / "pg", folder / "s")
    server.start()
    ask(server, "CREATE TABLE kept (n int)")
    ask(server, "INSERT INTO kept VALUES (7)")
    assert server.process is not None

    server.process.kill()
    server.process.wait()
    server.start()
    rows = ask(server, "SELECT n FROM kept")
    server.stop()

    assert rows == ["7"]


def test_stale_pid_file_that_names_a_live_process_is_no_obstacle(server: PostgresServer) -> None:
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    pid_file = server.data_dir / "postmaster.pid"
    _, *others = pid_file.read_text().splitlines()
    bystander = subprocess.Popen(["sleep", "60"])
    pid_file.write_text("\n".join([str(bystander.pid), *others, ""]))

    server.start()

    assert server.is_ready()
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_server_that_a_dead_parent_left_is_replaced(server: PostgresServer) -> None:
    assert server.process is not None
    left = server.process

    successor = PostgresServer(server.data_dir, server.socket_dir, durable=False)
    successor.start()
    left.wait(10)

    assert successor.is_ready()
    successor.stop()


def test_server_ends_with_its_parent(folder: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from jobqueue.embedded.postgres import PostgresServer\n"
        "f = Path(sys.argv[1]); s = PostgresServer(f / 'pg', f / 's', durable=False); s.start()\n"
        "print(s.process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    parent = subprocess.run(
        [sys.executable, "-c", script, str(folder)], env=environ, capture_output=True, text=True, check=False
    )

    pid = int(parent.stdout)
    # Where the kernel does not tell (macOS), the next server on the folder ends it.
    if sys.platform == "linux":
        assert wait_until(lambda: not is_running(pid), 10)
    successor = PostgresServer(folder / "pg", folder / "s", durable=False)
    successor.start()
    successor.stop()
    assert not is_running(pid)


def test_nothing_runs_after_stop(server: PostgresServer) -> None:
    assert server.process is not None
    pid = server.process.pid
    with psycopg.connect(server.url()):
        server.stop()

    assert not is_running(pid)
    assert not (server.data_dir / "postmaster.pid").exists()
    assert not server.socket_path.exists()


def test_half_made_cluster_is_made_again(folder: Path) -> None:
    draft = folder / "pg.new"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("18\n")
    server = PostgresServer(folder / "pg", folder / "s", durable=False)

    server.start()
    server.stop()

    assert not draft.exists()


def test_other_major_version_is_refused_in_one_line(server: PostgresServer) -> None:
    server.stop()
    (server.data_dir / "PG_VERSION").write_text("9\n")

    with pytest.raises(SetupError, match="is PostgreSQL 9's") as refusal:
        server.start()

    assert "\n" not in str(refusal.value)


def test_too_long_socket_path_is_refused(folder: Path) -> None:
    server = PostgresServer(folder / "pg", folder / ("s" * 100))

    with pytest.raises(SetupError, match="too long"):
        server.start()


def test_named_folder_without_programs_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_PG_BIN", str(folder))

    with pytest.raises(SetupError, match="JOBQUEUE_PG_BIN names no PostgreSQL"):
        PostgresServer(folder / "pg", folder / "s").start()


def test_start_that_fails_shows_the_servers_own_words(folder: Path) -> None:
    server = PostgresServer(folder / "pg", folder / "s", durable=False, settings={"shared_buffers": "nonsense"})

    with pytest.raises(SetupError, match=r"(?s)ended at once.*shared_buffers"):
        server.start()


def test_valkey_answers_redis_py_on_its_socket_and_stops(folder: Path) -> None:
    server = ValkeyServer(folder / "s")
    server.start()
    assert server.process is not None
    pid = server.process.pid
    client = redis.Redis.from_url(server.url())

    client.set("a", "b")
    value, port, save = client.get("a"), client.config_get("port"), client.config_get("save")
    client.close()
    server.stop()

    assert (value, port, save) == (b"b", {"port": "0"}, {"save": ""})
    assert not is_running(pid)


def test_valkey_starts_over_the_socket_of_a_killed_one(folder: Path) -> None:
    first = ValkeyServer(folder / "s")
    first.start()
    assert first.process is not None
    first.process.kill()
    first.process.wait()

    second = ValkeyServer(folder / "s")
    second.start()

    assert second.is_ready()
    second.stop()
