import asyncio
import time

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(21)
async def soak(world: World) -> None:
    """A long time at 100 jobs/s with retention: dead rows are bounded, memory, threads and files stay as they are."""
    api = await world.api()
    [worker] = await world.workers(1, worker_concurrency=20, retention_days=0.0001)
    processes = (api, worker)
    baseline: list[tuple[int, int]] = []
    until = time.monotonic() + max(60, 7200 * world.size)
    warm_at = time.monotonic() + 20
    while time.monotonic() < until:
        started = time.monotonic()
        await asyncio.gather(*(world.client.create({"number": number}) for number in range(100)))
        world.client.accepted.clear()  # retention removes them while we look
        world.client.answers.clear()
        if not baseline and time.monotonic() > warm_at:
            baseline = [(process.resident_bytes(), process.open_files()) for process in processes]
        await asyncio.sleep(max(0.0, 1 - (time.monotonic() - started)))
    await world.drained()
    for process, (resident, files) in zip(processes, baseline, strict=True):
        assert process.resident_bytes() < resident * 1.1 + 5_000_000, f"{process.name} grew"
        assert process.open_files() <= files + 2, f"{process.name} keeps files open"
    [(dead,)] = world.sql("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'jobs'")
    assert dead < 50_000, f"{dead} dead rows"
    world.is_recovery_bounded = False
