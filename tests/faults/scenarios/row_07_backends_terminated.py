import asyncio

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(7, short=True)
async def backends_terminated(world: World) -> None:
    """All sessions are terminated every two seconds under load: no job is lost, and the rate comes back within 10 s."""
    await world.api()
    await world.workers(2, worker_concurrency=4)
    load = asyncio.create_task(world.submit(world.scaled(2_000, 200), {"seconds": 0.02}))
    for _ in range(world.scaled(30, 3)):
        await asyncio.sleep(2 * max(world.size, 0.2))
        with world.outage():
            world.terminate_sessions()
    await load
    await world.drained()
    await world.is_alive()
