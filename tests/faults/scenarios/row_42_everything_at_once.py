import asyncio
import time
from contextlib import suppress

import redis

from tests.faults.scenario import scenario
from tests.faults.world import LEASE_SECONDS, World


@scenario(42)
async def everything_at_once(world: World) -> None:
    """All faults in a random order while 20 jobs a second come in and some are cancelled: nothing lost or stolen."""
    await world.api()
    await world.keep_workers(3, worker_concurrency=4)
    until = time.monotonic() + max(15.0, 3600 * world.size if world.size > 0.1 else 0)
    load = asyncio.create_task(send_until(world, until))
    faults = [kill, freeze, terminate, crash, empty_redis, kill_redis, stop]
    while time.monotonic() < until:
        await world.rng.choice(faults)(world)
        await asyncio.sleep(world.rng.uniform(0.2, 2.0))
    await load
    await world.drained(120)
    await world.is_alive()
    for job_id, answers in world.client.cancels.items():
        if 200 in answers:
            assert await world.status_of(job_id) == "cancelled", f"{job_id} was cancelled and is not"


async def send_until(world: World, until: float) -> None:
    """Create 20 jobs a second, and cancel one in twenty a moment later."""
    number = 0
    async with asyncio.TaskGroup() as tasks:
        while time.monotonic() < until:
            number += 1
            tasks.create_task(one(world, number))
            await asyncio.sleep(0.05)


async def one(world: World, number: int) -> None:
    do = "fail" if number % 10 == 0 else "sleep"
    payload = {"do": do, "seconds": world.rng.choice([0.0, 0.05, 0.3, 1.0]), "number": number}
    job_id = await world.client.insist(payload, key=f"everything-{number}", max_attempts=10 if do == "sleep" else 2)
    if number % 20 == 0:
        await asyncio.sleep(world.rng.uniform(0, 0.5))
        await world.client.cancel(job_id)


async def kill(world: World) -> None:
    world.kill_one()


async def freeze(world: World) -> None:
    workers = world.kept_workers()
    if workers:
        worker = world.rng.choice(workers)
        world.freeze(worker)
        await asyncio.sleep(world.rng.uniform(0.5, 2 * LEASE_SECONDS))
        worker.thaw()


async def terminate(world: World) -> None:
    with world.outage():
        world.terminate_sessions()


async def crash(world: World) -> None:
    with world.outage():
        world.crash_postgres()


async def empty_redis(world: World) -> None:
    with suppress(redis.RedisError), redis.Redis.from_url(world.valkey.url()) as client:
        client.flushall()


async def kill_redis(world: World) -> None:
    process = world.valkey.process
    if process is not None:
        process.kill()
        process.wait()
    await asyncio.sleep(world.rng.uniform(0, 1))
    world.valkey.start()


async def stop(world: World) -> None:
    world.stop_one()
