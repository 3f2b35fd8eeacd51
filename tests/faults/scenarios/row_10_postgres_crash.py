import asyncio

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(10, short=True)
async def postgres_crash(world: World) -> None:
    """PostgreSQL crashes again and again under load: every accepted job is done, the first one within 10 s."""
    await world.api()
    await world.workers(2, worker_concurrency=4)
    load = asyncio.create_task(world.submit(world.scaled(500, 150), {"seconds": 0.05}))
    for _ in range(world.scaled(5, 2)):
        await asyncio.sleep(world.rng.uniform(0.3, 1.0))
        with world.outage():
            world.crash_postgres()
        await world.starts_within(10)
    await load
    await world.drained()
    await world.is_alive()
