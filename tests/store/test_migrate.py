"""Migrations: any number of processes at once, and never a long queue behind a lock (failures.md 1.P)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from sqlalchemy.exc import OperationalError

import jobqueue
from jobqueue.errors import SchemaError, Unavailable
from jobqueue.store import migrate
from tests.overlap import eventually

ROOT = Path(jobqueue.__file__).parents[1]


def start(url: str, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def plain(url: str) -> psycopg.Connection:
    return psycopg.connect(make_conninfo(url), autocommit=True)


async def test_four_processes_at_once_on_an_empty_database_all_succeed(empty_database_url: str) -> None:
    with plain(empty_database_url) as holder:
        # All four stand before the door before it opens.
        holder.execute("SELECT pg_advisory_lock(%s)", (migrate._TURN,))
        processes = [start(empty_database_url, "jobqueue", "migrate") for _ in range(4)]

        def waiting() -> bool:
            row = holder.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE application_name = 'jobqueue-migrate' AND datname = current_database()"
            ).fetchone()
            return row == (4,)

        await eventually(waiting, "four processes wait for their turn", 60)
        holder.execute("SELECT pg_advisory_unlock(%s)", (migrate._TURN,))
        outputs = [await asyncio.to_thread(process.communicate) for process in processes]

        assert [process.returncode for process in processes] == [0, 0, 0, 0], outputs
        assert holder.execute("SELECT version_num FROM alembic_version").fetchall() == [(migrate.newest_revision(),)]
        assert holder.execute("SELECT name FROM queues ORDER BY 1").fetchall() == [("default",), ("fifo",)]


def test_migrating_again_changes_nothing(database_url: str) -> None:
    assert migrate.upgrade(database_url) == migrate.newest_revision()
    assert migrate.is_current(database_url)


def test_an_older_or_missing_schema_is_refused_with_the_command_to_run(empty_database_url: str) -> None:
    with pytest.raises(SchemaError, match="run `jobqueue migrate`"):
        migrate.require_current(empty_database_url)


def test_a_newer_schema_is_accepted(database_url: str) -> None:
    with plain(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    migrate.require_current(database_url)


def test_a_database_that_is_away_is_said_to_be_away(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        migrate.require_current(f"postgresql://u@/db?host={tmp_path}")


def test_a_process_that_never_gets_its_turn_says_so(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "_TURN_SECONDS", 0.3)
    with plain(empty_database_url) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", (migrate._TURN,))

        with pytest.raises(Unavailable, match="has been migrating"):
            migrate.upgrade(empty_database_url)


def test_every_migration_connection_has_the_lock_timeout(database_url: str) -> None:
    with migrate.migration_engine(database_url).connect() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == migrate._LOCK_TIMEOUT


async def test_a_change_behind_a_long_reader_gives_up_before_it_stops_everybody(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "_LOCK_TIMEOUT", "700ms")
    refused: list[str] = []

    def change() -> None:
        with migrate.migration_engine(database_url).connect() as connection:
            try:
                connection.exec_driver_sql("ALTER TABLE jobs ADD COLUMN more int")
            except OperationalError as error:
                refused.append(type(error.orig).__name__)

    with plain(database_url) as reader, plain(database_url) as watcher, plain(database_url) as third:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs")
        changing = threading.Thread(target=change)
        changing.start()
        await eventually(
            lambda: watcher.execute(
                "SELECT 1 FROM pg_stat_activity WHERE application_name = 'jobqueue-migrate'"
                " AND wait_event_type = 'Lock' AND datname = current_database()"
            ).fetchone(),
            "the change waits for the reader",
        )
        # The reader is still there: only the change's giving up lets this one through.
        third.execute("SET statement_timeout = '10s'")
        assert third.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
        changing.join()

    assert refused == ["LockNotAvailable"]


def test_alembic_itself_works_from_the_checkout(empty_database_url: str) -> None:
    process = start(empty_database_url, "alembic", "upgrade", "head")
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 0, output
    assert migrate.is_current(empty_database_url)


def test_alembic_prints_sql_that_makes_the_same_schema(empty_database_url: str) -> None:
    process = start(empty_database_url, "alembic", "upgrade", "head", "--sql")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output

    with plain(empty_database_url) as connection:
        connection.execute(output[output.index("BEGIN;") :].encode())

    assert migrate.is_current(empty_database_url)
    with plain(empty_database_url) as connection:
        assert connection.execute("INSERT INTO jobs (type) VALUES ('x') RETURNING status").fetchone() == ("queued",)


def test_jobs_that_were_there_before_the_counts_are_counted(empty_database_url: str) -> None:
    environment = {**os.environ, "DATABASE_URL": empty_database_url}
    command = [sys.executable, "-m", "alembic", "upgrade", "0001"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    with plain(empty_database_url) as sql:
        sql.execute("INSERT INTO jobs (type) SELECT 'a' FROM generate_series(1, 7)")
        sql.execute(
            "INSERT INTO jobs (type, status, started_at, completed_at)"
            " VALUES ('a', 'completed', now() - interval '3 s', now())"
        )

        migrate.upgrade(empty_database_url)

        counted = sql.execute("SELECT status::text, sum(jobs), sum(run_microseconds) FROM job_counts GROUP BY 1")
        assert set(counted.fetchall()) == {("queued", 7, 0), ("completed", 1, 3_000_000)}
        woken = sql.execute("SELECT tgname FROM pg_trigger WHERE tgrelid = 'jobs'::regclass AND NOT tgisinternal")
        assert "jobs_wake_workers" not in {name for (name,) in woken}
