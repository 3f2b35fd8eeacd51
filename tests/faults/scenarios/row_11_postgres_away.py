import asyncio

from tests.faults.scenario import scenario
from tests.faults.world import LEASE_SECONDS, World


@scenario(11)
async def postgres_away(world: World) -> None:
    """PostgreSQL is stopped while jobs run, for a moment and for long: what ended meanwhile is not run again."""
    api = await world.api()
    [worker] = await world.workers(1, worker_concurrency=8, lease_seconds=30, heartbeat_seconds=1)
    long = 60 if world.size >= 1 else 2 * LEASE_SECONDS
    for seconds in (2.0, long):
        ids = await world.submit(8, {"seconds": 1.0})
        await world.until(lambda ids=ids: all(world.runs(i) for i in ids), "the jobs run")
        before = [process.resident_bytes() for process in (api, worker)]
        with world.outage(longer_than_a_lease=seconds > 25):
            world.postgres.stop()
            assert await world.client.create({}) is None, "a job was accepted without a database"
            await asyncio.sleep(seconds)
            world.postgres.start()
        await world.drained()
        for process, bytes_before in zip((api, worker), before, strict=True):
            grown = process.resident_bytes() - bytes_before
            assert grown < 50_000_000, f"{process.name} grew by {grown} bytes"
        if seconds < 25:
            for job_id in ids:
                assert len(world.runs(job_id)) == 1, "a job that had ended was run again"
    await world.is_alive()
