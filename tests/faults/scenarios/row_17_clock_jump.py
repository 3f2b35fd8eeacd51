from pathlib import Path

from tests.faults.scenario import scenario
from tests.faults.world import LEASE_SECONDS, Cannot, World

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")


@scenario(17)
async def clock_jump(world: World) -> None:
    """Workers whose clocks are an hour off, ahead and behind: they steal nothing and retry nothing early."""
    found = [path for pattern in LIBRARIES for path in Path("/").glob(pattern[1:])]
    if not found:
        raise Cannot("libfaketime is missing: apt-get install faketime")
    await world.api()
    for offset in ("+1h", "-1h"):
        await world.workers(1, worker_concurrency=4, ld_preload=found[0], faketime=offset, dont_fake_monotonic=1)
    [true] = await world.workers(1, worker_concurrency=4)
    del true
    await world.submit(4, {"seconds": LEASE_SECONDS * 2})
    await world.submit(world.scaled(200, 20), {"seconds": 0.05})
    failing = await world.submit(6, {"do": "fail"}, max_attempts=2)
    await world.drained()
    for job_id in failing:
        first, second = world.runs(job_id)
        assert second.started_at - first.started_at >= 1.0, "a retry came early"
        assert second.started_at - first.started_at <= (3.0 + 1.5) * world.patience, "a retry came late"
