"""Connections and statements.

Owns how a connection is opened, how long it may take, and which errors mean that the database is away. Knows
nothing about jobs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec
import psycopg
from psycopg.adapt import Loader
from psycopg.conninfo import make_conninfo
from psycopg.pq import Format
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from jobqueue.assets import folder
from jobqueue.errors import Unavailable
from jobqueue.settings import Settings, redact
from jobqueue.telemetry import DB_ERRORS, DB_QUERY_SECONDS

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Rows = list[tuple[Any, ...]]

# Refused by the data, not by the server's state: the same statement would be refused again.
REFUSED = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
)
_AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.UndefinedTable,
    PoolTimeout,
    PoolClosed,
    TooManyRequests,
)
_NOT_PREPARED = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)
_POOL_PATIENCE_SECONDS = 3.0  # a reader that gets no connection by then is told that the database is away
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_unpack_int8 = struct.Struct("!q").unpack


@cache
def statement(name: str) -> bytes:
    """Return the statement ``sql/<name>.sql`` without its header, tagged with its name for pg_stat_activity."""
    lines = (folder("sql") / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    body = [line for line in lines if not line.startswith("--")]
    return f"/* {name} */ {' '.join(body)}".encode()


class _JsonText(Loader):
    """Leaves ``jsonb`` as its text, so that numbers stay exactly what they were."""

    format = Format.BINARY

    def load(self, data: bytes | bytearray | memoryview) -> msgspec.Raw:
        return msgspec.Raw(bytes(data)[1:])


class _UtcTime(Loader):
    """Loads ``timestamptz`` in UTC whatever the session's time zone is."""

    format = Format.BINARY

    def load(self, data: bytes | bytearray | memoryview) -> datetime:
        return _EPOCH + timedelta(0, 0, _unpack_int8(data)[0])


def conninfo(url: str, settings: Settings, role: str, lock_seconds: float | None = None) -> str:
    """Return the connection string: *url* plus our time limits wherever it does not set its own.

    *lock_seconds* is the longest wait for a lock; None: as for everything. *role* is shown as ``application_name``.
    A standby is refused: LISTEN and every write would fail there.
    """
    given = psycopg.conninfo.conninfo_to_dict(url)
    milliseconds = int(settings.database_timeout_seconds * 1000)
    lock_milliseconds = milliseconds if lock_seconds is None else min(milliseconds, int(lock_seconds * 1000))
    ours: dict[str, Any] = {
        "application_name": f"jobqueue-{role}",
        "connect_timeout": max(2, round(settings.database_timeout_seconds / 2)),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": milliseconds,
        "target_session_attrs": "read-write",
        "options": f"-c statement_timeout={milliseconds} -c lock_timeout={lock_milliseconds}"
        " -c idle_in_transaction_session_timeout=60000 -c client_connection_check_interval=5000",
    }
    return make_conninfo(url, **{key: value for key, value in ours.items() if key not in given})


async def connect(url: str, settings: Settings, role: str, *, lock_seconds: float | None = None) -> Connection:
    """Open a connection of our own kind (autocommit, exact JSON, UTC times).

    Raises:
        Unavailable: the server cannot be reached in time.
    """
    with _unavailable():
        async with asyncio.timeout(settings.database_timeout_seconds):
            connection = await psycopg.AsyncConnection.connect(
                conninfo(url, settings, role, lock_seconds),
                autocommit=True,
                prepare_threshold=_prepare_threshold(settings),
            )
    adapt(connection)
    return connection


def _prepare_threshold(settings: Settings) -> int | None:
    """Return None, which means never, where a pooler is said to stand in between.

    In transaction mode it may hand each statement to another session, which knows nothing of those prepared before
    (failures.md C9); PgBouncer keeps track of them only since 1.21, and only when told to.
    """
    return None if settings.database_direct_url else 5


def adapt(connection: psycopg.AsyncConnection[Any]) -> None:
    """Teach a connection our reading of ``jsonb`` and ``timestamptz``."""
    connection.adapters.register_loader("jsonb", _JsonText)
    connection.adapters.register_loader("timestamptz", _UtcTime)


async def run(
    connection: Connection,
    name: str,
    params: Mapping[str, Any] | None = None,
    *,
    timeout: float = 10.0,
    prepare: bool = True,
) -> Rows:
    """Run ``sql/<name>.sql`` and return its rows. Without *prepare* the server plans it for these very parameters.

    Raises:
        Unavailable: no answer within *timeout* seconds, or the server is away, restarting or read-only.
        psycopg.Error: the statement was refused (see ``REFUSED``).
    """
    with _unavailable(), DB_QUERY_SECONDS.labels(name).time(), _deadline(connection, timeout):
        try:
            cursor = connection.cursor(binary=True)
            try:
                await cursor.execute(statement(name), params, prepare=prepare)
            except _NOT_PREPARED:
                # A pooler gave us another session, and nobody had told us of it (failures.md C9). Nothing has run.
                connection.prepare_threshold = None
                await cursor.execute(statement(name), params)
            return await cursor.fetchall() if cursor.description else []
        except psycopg.errors.ReadOnlySqlTransaction:
            # A demoted primary answers reads for ever; only a new connection finds the new one.
            await connection.close()
            raise


@contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except REFUSED:
        raise  # some of them are operational errors to psycopg
    except (*_AWAY, TimeoutError, OSError) as error:
        DB_ERRORS.labels(type(error).__name__).inc()
        raise Unavailable(f"The database does not answer: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type's name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def constraint_name(error: Exception) -> str | None:
    """Return the constraint that refused a statement, if one did."""
    return error.diag.constraint_name if isinstance(error, psycopg.Error) else None


def was_slow(error: Unavailable) -> bool:
    """Tell whether the server itself stopped the statement because it waited or ran for too long."""
    return isinstance(error.__cause__, (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled))


@contextmanager
def _deadline(connection: Connection, seconds: float) -> Iterator[None]:
    """Shut the socket down after *seconds*.

    Cancelling the task is not enough: psycopg would wait for the server to confirm, and a frozen server or a
    network that swallows packets never does (failures.md D2).
    """
    timer = asyncio.get_running_loop().call_later(seconds, _shut_down, connection)
    try:
        yield
    finally:
        timer.cancel()


def _shut_down(connection: Connection) -> None:
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
    except (OSError, psycopg.Error):
        return  # already closed, which is all we want


class Line:
    """One connection that heals itself, for one purpose at a time.

    Waits in line for it; opens it when needed; throws it away after any failure. *lock_seconds* is the longest wait for
    a lock; None: as for everything.
    """

    def __init__(
        self, settings: Settings, role: str, url: str | None = None, *, lock_seconds: float | None = None
    ) -> None:
        self._lock_seconds = lock_seconds
        self._settings = settings
        self._role = role
        self._url = url or settings.database_url
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        """Hold the connection.

        Raises:
            Unavailable: it cannot be opened.
        """
        async with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = await connect(self._url, self._settings, self._role, lock_seconds=self._lock_seconds)
            try:
                yield self._connection
            except (Unavailable, asyncio.CancelledError):
                # After a cancelled or broken call nobody knows what the server still sends.
                await self._drop()
                raise

    async def close(self) -> None:
        """Close the connection; the next use opens a new one."""
        async with self._lock:
            await self._drop()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class Pool:
    """Connections for reading, shared by the requests of an API process."""

    def __init__(self, settings: Settings, role: str) -> None:
        self._settings = settings
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            conninfo(settings.database_url, settings, role),
            kwargs={"autocommit": True, "prepare_threshold": _prepare_threshold(settings)},
            min_size=1,
            max_size=settings.database_pool_size,
            max_waiting=settings.database_pool_size * 250,
            timeout=min(settings.database_timeout_seconds, _POOL_PATIENCE_SECONDS),
            reconnect_timeout=5,
            open=False,
            configure=_configure,
            name=f"jobqueue-{role}",
        )

    async def open(self) -> None:
        """Start filling the pool; does not wait for the database."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close(timeout=2)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        """Hold one connection.

        Raises:
            Unavailable: none could be had in time.
        """
        with _unavailable():
            connection = await self._pool.getconn()
        try:
            yield connection
        finally:
            await self._pool.putconn(connection)

    def stats(self) -> dict[str, int]:
        """Return the pool's own figures (size, waiting requests, …)."""
        return self._pool.get_stats()


async def _configure(connection: Connection) -> None:
    adapt(connection)


def where(url: str) -> str:
    """Return host, port and database of *url*, for messages (never the password)."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        return redact(url)
    host, port = parts.get("host", "local socket"), parts.get("port", 5432)
    return f"{host}:{port}/{parts.get('dbname', '')}"
