import asyncio
import signal
import time

from tests.faults.scenario import scenario
from tests.faults.world import TIMEOUT_SECONDS, World


@scenario(12)
async def postgres_frozen(world: World) -> None:
    """PostgreSQL answers nothing: requests are answered 503 in time, /health at once, and all goes on afterwards."""
    await world.api()
    await world.workers(1)
    await world.submit(10, {"seconds": 0.05})
    assert await world.client.create({}), "a create without a key was refused"  # so that its connection is open, too
    with world.outage(longer_than_a_lease=True):
        world.signal_postgres(signal.SIGSTOP)
        started = time.monotonic()
        answers = await asyncio.gather(*(world.client.create({}) for _ in range(20)))
        assert answers == [None] * 20, "a job was accepted by a frozen database"
        assert time.monotonic() - started < 10 * world.patience, "the 503 came late"
        await asyncio.sleep(30 if world.size >= 1 else TIMEOUT_SECONDS)
        world.signal_postgres(signal.SIGCONT)
    await world.is_alive()
