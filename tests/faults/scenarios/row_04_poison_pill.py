from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(4, short=True)
async def poison_pill(world: World) -> None:
    """A job that kills its worker ends as failed after its attempts, and the jobs beside it are all completed."""
    world.is_recovery_bounded = True
    await world.api()
    await world.keep_workers(2, worker_concurrency=2)
    pills = await world.submit(1, {"do": "die", "seconds": 0.05}, max_attempts=3)
    good = await world.submit(world.scaled(100, 30), {"seconds": 0.05}, max_attempts=10)
    await world.drained(120)
    for job_id in pills:
        assert await world.status_of(job_id) == "failed"
        assert len(world.runs(job_id)) == 3
    for job_id in good:
        assert await world.status_of(job_id) == "completed"
