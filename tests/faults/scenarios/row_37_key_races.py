import asyncio

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(37, short=True)
async def key_races(world: World) -> None:
    """Fifty clients use one key at once while sessions are terminated: one job, one 201, no 5xx but 503."""
    await world.api()
    await world.workers(1)
    for number in range(world.scaled(200, 20)):
        together = [world.client.insist({}, key=f"race-{number}") for _ in range(50)]
        if number % 10 == 5:
            with world.outage():
                racing = asyncio.gather(*together)
                world.terminate_sessions()
                ids = await racing
        else:
            ids = await asyncio.gather(*together)
        assert len(set(ids)) == 1, f"one key, {len(set(ids))} jobs"
