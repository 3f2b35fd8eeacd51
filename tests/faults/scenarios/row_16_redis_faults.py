import asyncio
import signal
import time

import redis

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(16, short=True)
async def redis_faults(world: World) -> None:
    """Redis is killed, frozen, emptied, full: jobs flow, and a create takes at most 250 ms longer."""
    await world.api()
    await world.workers(1)
    usual = await slowest(world)
    process = world.valkey.process
    assert process is not None
    with redis.Redis.from_url(world.valkey.url()) as client:
        client.flushall()
        assert await slowest(world) < usual + 0.25 * world.patience
        client.config_set("maxmemory", "1mb")
        assert await slowest(world) < usual + 0.25 * world.patience
        client.config_set("maxmemory", "0")
    process.send_signal(signal.SIGSTOP)
    assert await slowest(world) < usual + 0.25 * world.patience
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()
    assert await slowest(world) < usual + 0.25 * world.patience
    world.valkey.start()
    await world.is_alive()
    with redis.Redis.from_url(world.valkey.url()) as client:
        await world.until(lambda: client.keys("*"), "the mirror is written again", 10)


async def slowest(world: World) -> float:
    """Return the time of the slowest of some creates."""
    times = []
    for _ in range(world.scaled(100, 20)):
        started = time.monotonic()
        assert await world.client.create({}) is not None, "a create was refused"
        times.append(time.monotonic() - started)
        await asyncio.sleep(0.005)
    return max(times)
