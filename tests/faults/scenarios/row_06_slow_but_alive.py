from tests.faults.scenario import scenario
from tests.faults.world import LEASE_SECONDS, World


@scenario(6, short=True)
async def slow_but_alive(world: World) -> None:
    """Jobs sleep, block the loop, or spin for five leases, on the loop and in threads: none is ever started twice."""
    leases = 5 if world.size >= 1 else 2
    await world.api()
    await world.workers(2, worker_concurrency=8)
    seconds = LEASE_SECONDS * leases
    jobs = []
    for job_type, do in (
        ("probe", "sleep"),
        ("probe", "block"),
        ("probe", "spin"),
        ("thread_probe", "sleep"),
        ("thread_probe", "spin"),
    ):
        jobs += await world.submit(1, {"do": do, "seconds": seconds}, type=job_type)
    jobs += await world.submit(world.scaled(10_000, 50), {"seconds": 0.001})
    await world.drained(seconds * 8 + 60)
    assert len(world.runs()) == len(jobs), f"{len(world.runs())} starts of {len(jobs)} jobs"
