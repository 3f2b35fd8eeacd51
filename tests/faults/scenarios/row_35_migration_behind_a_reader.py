import time

import psycopg

from tests.faults.processes import ROOT, Process
from tests.faults.scenario import scenario
from tests.faults.world import World

_FIRST = (ROOT / "migrations" / "versions" / "0001_jobs.sql").read_bytes()


@scenario(35, drain=False)
async def migration_behind_a_reader(world: World) -> None:
    """A migration that must wait for a long reader lets everybody else through: nobody waits longer than 5 s."""
    world.postgres.create_database("older")
    url = world.postgres.url("older")
    with psycopg.connect(url, autocommit=True, options="-c statement_timeout=30s") as client:
        client.execute(_FIRST)
        client.execute(b"CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
        client.execute(b"INSERT INTO alembic_version VALUES ('0001')")
        with psycopg.connect(url) as reader:
            reader.execute("SELECT count(*) FROM jobs")
            migration = Process("migrate", ["migrate"], world.environ(database_url=url), world.folder / "migrate.log")
            waits = b"SELECT 1 FROM pg_locks WHERE NOT granted"
            await world.until(lambda: client.execute(waits).fetchall(), "the migration waits")
            for _ in range(world.scaled(10, 3)):
                started = time.monotonic()
                client.execute("INSERT INTO jobs (type) VALUES ('email_send')")
                assert time.monotonic() - started < 5 * world.patience, "a create waited behind the migration"
                await world.until(lambda: client.execute(waits).fetchall(), "the migration tries again")
        await world.until(lambda: migration.exit_code() is not None, "the migration ends after the reader", 30)
        assert migration.exit_code() == 0, migration.text()
