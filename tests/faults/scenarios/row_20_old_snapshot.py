import time

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(20)
async def old_snapshot(world: World) -> None:
    """A session holds an old snapshot while jobs flow: claims stay fast, and nothing has to be done afterwards."""
    await world.api()
    await world.workers(1, worker_concurrency=50)
    first = await seconds_of(world, 2_000)
    with world.session() as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM jobs")
        for _ in range(5):
            await seconds_of(world, 2_000)
        last = await seconds_of(world, 2_000)
    assert last < (2 * first + 0.5) * world.patience, (
        f"2,000 jobs took {last:.1f} s at the end and {first:.1f} s at the start"
    )


async def seconds_of(world: World, jobs: int) -> float:
    started = time.monotonic()
    world.sql("INSERT INTO jobs (type, payload) SELECT 'probe', '{}' FROM generate_series(1, %s)", jobs)
    await world.drained()
    return time.monotonic() - started
