from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(31)
async def forks_and_threads(world: World) -> None:
    """Jobs leave child processes that hold our sockets, and threads: no connection is shared, all goes on."""
    await world.api()
    [worker] = await world.workers(1)
    await world.submit(world.scaled(20, 5), {"do": "fork", "seconds": 0.05})
    await world.submit(50)
    await world.drained()
    assert "connection" not in [line for line in worker.text().splitlines() if '"error"' in line]
    await world.is_alive()
