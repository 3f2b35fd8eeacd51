import psycopg

from tests.faults.scenario import scenario
from tests.faults.world import POLL_SECONDS, World


@scenario(39, short=True)
async def notify_queue(world: World) -> None:
    """A listening session sits in a transaction, so notifications pile up: inserts go on, jobs start in time."""
    await world.api()
    await world.workers(1, worker_concurrency=20)
    with psycopg.connect(world.database_url) as holder:
        holder.execute("LISTEN jobqueue_jobs")
        holder.commit()
        holder.execute("SELECT 1")
        with psycopg.connect(world.database_url, autocommit=True) as connection:
            for _ in range(world.scaled(20_000, 500)):
                connection.execute("INSERT INTO jobs (type) VALUES ('probe')")
        await world.starts_within(POLL_SECONDS + 30)
        await world.drained(120)
        await world.starts_within(POLL_SECONDS + 1)
