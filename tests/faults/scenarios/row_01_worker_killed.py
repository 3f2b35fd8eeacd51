import asyncio

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(1, short=True)
async def worker_killed(world: World) -> None:
    """Workers die by kill -9 in the middle of jobs: every job is done, none starts again before its lease ended."""
    await world.api()
    await world.keep_workers(2, worker_concurrency=4)
    await world.submit(world.scaled(200, 30), {"seconds": 0.4}, max_attempts=10)
    for _ in range(world.scaled(20, 3)):
        await asyncio.sleep(world.rng.uniform(0.3, 0.8))
        world.kill_one()
    await world.drained(120)
    await world.is_alive()
