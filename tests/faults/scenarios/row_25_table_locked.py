import asyncio
import time

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(25)
async def table_locked(world: World) -> None:
    """Somebody locks the table: statements give up in time, /health answers, and nothing is piled up afterwards."""
    await world.api()
    await world.workers(1, lease_seconds=60)
    await world.submit(10)
    await world.drained()
    with world.outage():
        with world.session() as holder:
            holder.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            started = time.monotonic()
            answers = await asyncio.gather(*(world.client.create({}) for _ in range(50)))
            assert answers == [None] * 50, "a create went through a lock"
            assert time.monotonic() - started < 10 * world.patience, "the 503 came late"
            await asyncio.sleep(20 * world.size)
        await world.until(lambda: world.client.create({}), "creates work again", 10)
    await world.is_alive()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    await world.until(lambda: world.sql(waiting) == [(0,)], "nobody waits for a lock", 10)
