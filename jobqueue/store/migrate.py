"""The schema: bring it up to date, or tell where it stands. The only user of Alembic and SQLAlchemy.

Both are imported only when there is something to migrate: they cost more than the rest of a start.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from jobqueue.assets import folder
from jobqueue.errors import SchemaError, Unavailable

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_TURN = 7_210_301_455  # the advisory lock that one migrating process holds; any number nobody else uses
_TURN_SECONDS = 120
_LOCK_TIMEOUT = "4s"  # a waiting DDL lock blocks every reader behind it (failures.md P2)
_TRIES = 10


def newest_revision() -> str:
    """Return the revision this version of the program works with (the files are numbered)."""
    return max(path.name.split("_")[0] for path in (folder("migrations") / "versions").glob("[0-9]*.py"))


def current_revision(database_url: str) -> str | None:
    """Return the database's revision, or None for an empty database.

    Raises:
        Unavailable: the database cannot be reached.
    """
    try:
        with psycopg.connect(database_url, autocommit=True, connect_timeout=5) as connection:
            if connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,):
                return None
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            return row[0] if row else None
    except psycopg.OperationalError as error:
        raise Unavailable(f"The database cannot be reached: {str(error).strip().splitlines()[0]}") from error


def is_current(database_url: str) -> bool:
    """Tell whether the schema is the one this version works with, or a newer one.

    Raises:
        Unavailable: the database cannot be reached.
    """
    revision = current_revision(database_url)
    return revision is not None and revision >= newest_revision()


def require_current(database_url: str) -> None:
    """Refuse a schema that is older than this version.

    A newer one is accepted: migrations only expand what the version before them needs.

    Raises:
        SchemaError: it is older; says what to run.
        Unavailable: the database cannot be reached.
    """
    revision = current_revision(database_url)
    if revision is None or revision < newest_revision():
        raise SchemaError(
            f"The database schema is at {revision or 'nothing'}, this version needs {newest_revision()}: "
            "run `jobqueue migrate`."
        )


def upgrade(database_url: str) -> str:
    """Bring the schema to the newest revision and return it. Safe when several processes call it at once.

    Gives up after ten tries when other sessions keep the tables locked: each try waits 4 s at most, so that no
    reader stands behind it for longer.

    Raises:
        Unavailable: the database cannot be reached, or its tables stay locked.
    """
    from alembic import command
    from alembic.config import Config
    from sqlalchemy.exc import OperationalError

    config = Config()
    config.set_main_option("script_location", str(folder("migrations")).replace("%", "%%"))
    config.attributes["database_url"] = database_url
    for attempt in range(1, _TRIES + 1):
        try:
            command.upgrade(config, "head")
            return newest_revision()
        except OperationalError as error:
            reason = str(error.orig).strip().splitlines()[0]
            if attempt == _TRIES or not isinstance(error.orig, psycopg.errors.LockNotAvailable):
                raise Unavailable(f"The schema could not be migrated: {reason}") from error
            time.sleep(min(attempt, 5))
    raise AssertionError("unreachable")


def migration_engine(database_url: str) -> Engine:
    """Return an engine for Alembic; one connection, our lock timeout."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(
            database_url, application_name="jobqueue-migrate", options=f"-c lock_timeout={_LOCK_TIMEOUT}"
        )

    return create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)


def take_turn(connection: Connection) -> None:
    """Wait until no other process migrates this database, at most two minutes.

    Raises:
        Unavailable: somebody else holds the turn for longer.
    """
    deadline = time.monotonic() + _TURN_SECONDS
    while not connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_TURN})").scalar():
        if time.monotonic() > deadline:
            raise Unavailable(f"Another process has been migrating this database for more than {_TURN_SECONDS} s")
        time.sleep(0.2)
    connection.commit()


def run_sql_beside(migration: str) -> None:
    """Run the ``.sql`` file beside a migration's ``.py`` file."""
    from alembic import op

    text = Path(migration).with_suffix(".sql").read_text(encoding="utf-8")
    context = op.get_context()
    if context.as_sql:
        context.impl.static_output(text)
    else:
        # Alembic takes :name for a parameter.
        op.execute(re.sub(r":", r"\:", text))
