from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(23)
async def jobs_use_connections(world: World) -> None:
    """Every job opens a connection of its own while all slots are full: heartbeats and reports have theirs."""
    await world.api()
    await world.workers(1, worker_concurrency=40)
    await world.submit(world.scaled(400, 80), {"do": "connect", "seconds": 0.3})
    await world.drained(120)
