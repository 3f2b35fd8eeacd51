"""deploy/roles.sql: what each role may do is enough for its work, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobqueue.settings import Settings
from jobqueue.store.migrate import upgrade
from tests.overlap import eventually
from tests.server.conftest import started
from tests.worker.probes import PROBES
from tests.worker.processes import Ledger, WorkerProcess

ROLES = (Path(__file__).parents[2] / "deploy" / "roles.sql").read_bytes()
Login = Callable[[str], str]


@pytest.fixture
def login(sql: psycopg.Connection, database_url: str) -> Iterator[Login]:
    """The roles, and a function that returns the URL of this test's database for a member of one."""
    for _ in range(2):  # a second time changes nothing
        sql.execute(ROLES)
    parts = conninfo_to_dict(database_url)
    made = []

    def member(role: str) -> str:
        name = f"member_of_{role}_{parts['dbname']}"
        sql.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x' IN ROLE {role}".encode())
        made.append(name)
        return f"postgresql://{name}:x@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"

    yield member
    for name in made:
        sql.execute(f"DROP ROLE {name}".encode())
    # Rights on this database would keep the roles from being dropped by whoever shares the server.
    sql.execute(b"REASSIGN OWNED BY jobqueue_migrate TO CURRENT_USER")
    for role in ("jobqueue_migrate", "jobqueue_run", "jobqueue_read"):
        sql.execute(f"DROP OWNED BY {role}".encode())


async def test_api_and_worker_need_no_more_than_the_role_that_runs(
    login: Login, settings: Settings, tmp_path: Path, sql: psycopg.Connection, registry: dict[str, object]
) -> None:
    running = msgspec.structs.replace(settings, database_url=login("jobqueue_run"))
    ledger = Ledger(tmp_path / "ledger")
    registry.update(PROBES)
    worker = WorkerProcess(running, tmp_path / "worker.log")
    try:
        await worker.until_logged("listening")
        async with started(running) as client:
            payload = {"ledger": str(ledger.path), "name": "a", "do": "nothing"}
            created = await client.post("/api/v1/jobs", json={"type": "probe", "payload": payload})
            assert created.status_code == 201, created.text
            await ledger.until("end", "a")
            later = {"type": "probe", "run_at": "2030-01-01T00:00:00Z"}
            waiting = (await client.post("/api/v1/jobs", json=later)).json()
            assert (await client.post(f"/api/v1/jobs/{waiting['id']}/cancel")).status_code == 200
            assert (await client.get("/api/v1/jobs")).json()["total"] == 2
            assert (await client.get("/api/v1/metrics")).status_code == 200
            assert (await client.get("/health/ready")).status_code == 200
        query = "SELECT count(*) FROM jobs WHERE status = 'completed'"
        await eventually(lambda: sql.execute(query).fetchone() == (1,), "the job is completed")
    finally:
        worker.kill()
    assert "permission denied" not in worker.log_text()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE jobs",
        "ALTER TABLE jobs DROP COLUMN result",
        "TRUNCATE jobs",
        "ALTER TABLE jobs DISABLE TRIGGER ALL",
        "CREATE TABLE mine (id int)",
        "UPDATE job_logs SET message = 'nothing happened'",
        "INSERT INTO queues (name) VALUES ('mine')",
        "UPDATE alembic_version SET version_num = '9999'",
        "CREATE ROLE mine",
        "DROP INDEX jobs_claim_idx",
    ],
)
def test_who_runs_jobs_cannot_change_schema_logs_or_rights(login: Login, statement: str) -> None:
    with (
        psycopg.connect(make_conninfo(login("jobqueue_run")), autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


def test_who_reads_can_read_everything_and_change_nothing(login: Login, sql: psycopg.Connection) -> None:
    tables = [
        row[0]
        for row in sql.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')"
        ).fetchall()
    ]
    with psycopg.connect(make_conninfo(login("jobqueue_read")), autocommit=True) as connection:
        for table in tables:
            connection.execute(f"SELECT count(*) FROM {table}".encode())
            if table == "job_attempts":
                continue
            for statement in (f"INSERT INTO {table} DEFAULT VALUES", f"DELETE FROM {table}"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())


def test_who_migrates_makes_the_schema_and_the_others_can_use_it(
    empty_database_url: str, sql: psycopg.Connection
) -> None:
    with psycopg.connect(make_conninfo(empty_database_url), autocommit=True) as admin:
        admin.execute(ROLES)
        admin.execute(b"CREATE ROLE migrator LOGIN IN ROLE jobqueue_migrate")
        admin.execute(b"ALTER ROLE migrator SET role TO jobqueue_migrate")
        parts = conninfo_to_dict(empty_database_url)
        try:
            upgrade(f"postgresql://migrator@/{parts['dbname']}?host={parts['host']}&port={parts['port']}")
            admin.execute(b"SET ROLE jobqueue_run")
            admin.execute(b"INSERT INTO jobs (type) VALUES ('email_send')")
            admin.execute(b"SET ROLE jobqueue_read")
            assert admin.execute(b"SELECT sum(jobs) FROM job_counts").fetchone() == (1,)
        finally:
            admin.execute(b"RESET ROLE")
            admin.execute(b"REASSIGN OWNED BY jobqueue_migrate TO CURRENT_USER")
            for role in ("jobqueue_migrate", "jobqueue_run", "jobqueue_read"):
                admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(b"DROP ROLE migrator")
