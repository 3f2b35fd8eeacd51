import asyncio
from contextlib import ExitStack, suppress

import psycopg

from tests.faults.scenario import scenario
from tests.faults.world import TERMINATE, World


@scenario(22)
async def no_connections_left(world: World) -> None:
    """Idle sessions eat every connection, and ours are terminated: all goes on within 10 s of there being room."""
    await world.api()
    await world.workers(1)
    await world.submit(10)
    with world.outage(), ExitStack() as hoard:
        admin = hoard.enter_context(psycopg.connect(world.database_url, autocommit=True))
        for _ in range(2):
            # The first time ours are still among them; then their places are taken, too.
            with suppress(psycopg.OperationalError):
                while True:
                    hoard.enter_context(psycopg.connect(world.database_url, autocommit=True))
            admin.execute(TERMINATE, ("jobqueue-%",))
        await asyncio.sleep(2)
        hoard.close()
        await world.until(lambda: world.client.create({}), "creates work again", 10)
    await world.is_alive()
