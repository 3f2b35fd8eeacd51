import asyncio

from tests.faults.scenario import scenario
from tests.faults.world import LEASE_SECONDS, World


@scenario(14)
async def network_cut(world: World) -> None:
    """The network to PostgreSQL is cut, goes silent, becomes slow: with a lease longer than that nothing is stolen."""
    proxy = await world.proxy()
    await world.api()
    await world.workers(2, database_url=proxy.url, worker_concurrency=4, lease_seconds=60, heartbeat_seconds=1)
    load = asyncio.create_task(world.submit(world.scaled(300, 60), {"seconds": 0.3}))
    for _ in range(world.scaled(5)):
        await asyncio.sleep(0.5)
        await proxy.cut()
        await asyncio.sleep(1)
        await proxy.open()
        await asyncio.sleep(0.5)
        proxy.freeze()
        await asyncio.sleep(LEASE_SECONDS * (10 if world.size >= 1 else 1))
        proxy.thaw()
        proxy.delay_seconds = lambda: world.rng.uniform(0.2, 0.4)
        await asyncio.sleep(2)
        proxy.delay_seconds = None
    await load
    # A claim whose answer was lost in the cut waits for the end of its lease.
    await world.drained(150)
    await world.is_alive()
