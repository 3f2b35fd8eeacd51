"""Fixtures shared by all tests: a real PostgreSQL, a real Redis-protocol server, one database per test.

TEST_DATABASE_URL names a PostgreSQL to use instead of the embedded one; its user must be allowed to create
databases.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
import redis
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pytest_postgresql.janitor import DatabaseJanitor

from jobqueue.embedded.postgres import PostgresServer
from jobqueue.embedded.valkey import ValkeyServer
from jobqueue.executors import EXECUTOR_REGISTRY, load_executors
from jobqueue.settings import Settings, describe_settings
from jobqueue.store.db import Connection, connect
from jobqueue.store.migrate import upgrade

TEMPLATE = f"jobqueue_template_{os.getpid()}"
_numbers = count(1)


class Server(NamedTuple):
    """Where the PostgreSQL of this run is."""

    host: str
    port: str
    user: str
    password: str | None

    def url(self, dbname: str) -> str:
        """Return the connection URL of a database."""
        password = f":{self.password}" if self.password else ""
        return f"postgresql://{self.user}{password}@/{dbname}?host={self.host}&port={self.port}"

    def janitor(self, dbname: str, template: str | None = None, *, as_template: bool = False) -> DatabaseJanitor:
        """Return what makes and drops a database."""
        return DatabaseJanitor(
            user=self.user,
            host=self.host,
            port=self.port,
            password=self.password,
            dbname=dbname,
            template_dbname=template,
            as_template=as_template,
        )


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """Keep the developer's settings out of the tests."""
    patch = pytest.MonkeyPatch()
    for variable, _, _ in describe_settings():
        patch.delenv(variable, raising=False)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def short_tmp() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="jq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(short_tmp: Path) -> Iterator[Server]:
    """The PostgreSQL of this run: TEST_DATABASE_URL's, else an embedded one that forgets everything at the end."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        parts = conninfo_to_dict(given.replace("postgresql+psycopg://", "postgresql://"))
        yield Server(
            str(parts.get("host", "localhost")),
            str(parts.get("port", 5432)),
            str(parts.get("user", "postgres")),
            parts.get("password") and str(parts["password"]),
        )
        return
    server = PostgresServer(short_tmp / "pg", short_tmp / "s", durable=False, settings={"max_connections": "200"})
    server.start()
    parts = conninfo_to_dict(server.url())
    yield Server(str(parts["host"]), str(parts.get("port", 5432)), str(parts["user"]), None)
    server.stop()


@pytest.fixture(scope="session")
def template_database(postgres_server: Server) -> Iterator[str]:
    """A migrated database that every test gets a copy of."""
    janitor = postgres_server.janitor(TEMPLATE)
    janitor.init()
    upgrade(postgres_server.url(TEMPLATE))
    yield TEMPLATE
    janitor.drop()


@pytest.fixture
def database_url(postgres_server: Server, template_database: str) -> Iterator[str]:
    """The URL of a migrated, empty database of this test's own."""
    name = f"jobqueue_{os.getpid()}_{next(_numbers)}"
    with postgres_server.janitor(name, template_database):
        yield postgres_server.url(name)


@pytest.fixture
def empty_database_url(postgres_server: Server) -> Iterator[str]:
    """The URL of a database without our schema."""
    name = f"jobqueue_{os.getpid()}_{next(_numbers)}"
    with postgres_server.janitor(name):
        yield postgres_server.url(name)


@pytest.fixture(scope="session")
def valkey(short_tmp: Path) -> Iterator[ValkeyServer]:
    """A Redis-protocol server."""
    server = ValkeyServer(short_tmp / "v")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(valkey: ValkeyServer) -> str:
    """The URL of an empty Redis-protocol server."""
    with redis.Redis.from_url(valkey.url()) as client:
        client.flushall()
    return valkey.url()


MakeSettings = Callable[..., Settings]


@pytest.fixture
def make_settings(database_url: str, redis_url: str) -> MakeSettings:
    """Settings for this test's servers with short timings; keyword arguments override."""

    def make(**overrides: object) -> Settings:
        values: dict[str, object] = {
            "database_url": database_url,
            "redis_url": redis_url,
            "lease_seconds": 3.0,
            "heartbeat_seconds": 0.5,
            "recovery_interval_seconds": 0.5,
            "poll_seconds": 0.5,
            "shutdown_grace_seconds": 5.0,
            "rate_limit_per_minute": 1_000_000,
            "simulate_failures": False,
            "simulate_delay_scale": 0.0,
            "metrics_port": 0,
        }
        return Settings(**{**values, **overrides})

    return make


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    """The default of :func:`make_settings`."""
    return make_settings()


@pytest.fixture
async def connection(settings: Settings) -> AsyncIterator[Connection]:
    """A connection of our own kind to this test's database."""
    opened = await connect(settings.database_url, settings, "test")
    yield opened
    await opened.close()


@pytest.fixture
def sql(database_url: str) -> Iterator[psycopg.Connection]:
    """A plain autocommit connection, as psql would have."""
    with psycopg.connect(make_conninfo(database_url), autocommit=True) as opened:
        yield opened


@pytest.fixture
def registry() -> Iterator[dict[str, object]]:
    """The registry with the built-in types; what a test adds is gone afterwards."""
    load_executors([])
    before = dict(EXECUTOR_REGISTRY)
    yield EXECUTOR_REGISTRY
    EXECUTOR_REGISTRY.clear()
    EXECUTOR_REGISTRY.update(before)
