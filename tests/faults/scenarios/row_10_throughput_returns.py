import time
from contextlib import ExitStack

import psycopg

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(1, 7, 10)
async def throughput_returns(world: World) -> None:
    """After a crash, repeated kills, killed sessions, a restart, 300 idle connections: 95 % of the rate within 10 s."""
    world.postgres.settings["max_connections"] = "400"
    world.crash_postgres()
    await world.api()
    await world.keep_workers(2, worker_concurrency=50)
    before = await rate(world)

    async def compare(what: str) -> None:
        best = 0.0
        until = time.monotonic() + 10
        while time.monotonic() < until and best < 0.95 * before:
            best = max(best, await rate(world))
        print(f"    {what}: {best:.0f} jobs/s after {before:.0f}", flush=True)
        assert best >= 0.95 * before, f"{best:.0f} jobs/s after {what}, {before:.0f} before"

    world.kill_one()
    await compare("a worker's crash")
    for _ in range(5):
        world.kill_one()
        await rate(world)
    await compare("repeated kills")
    for _ in range(10):
        world.terminate_sessions()
        await rate(world)
    await compare("terminated sessions")
    with world.outage():
        world.crash_postgres()
    await compare("a restart of PostgreSQL")
    with ExitStack() as idle:
        for _ in range(300):
            idle.enter_context(psycopg.connect(world.database_url))
        await compare("300 idle connections")


async def rate(world: World) -> float:
    """Return how many jobs a second are done, over five thousand of them."""
    started = time.monotonic()
    world.sql("INSERT INTO jobs (type, payload, max_attempts) SELECT 'probe', '{}', 10 FROM generate_series(1, 5000)")
    left = "SELECT count(*) FROM (SELECT FROM jobs WHERE status IN ('queued', 'processing') LIMIT 200) AS unfinished"
    await world.until(lambda: world.sql(left)[0][0] < 200, "nearly all are done", 60)
    return 4_800 / (time.monotonic() - started)
