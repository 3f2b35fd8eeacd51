from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(2, short=True)
async def killed_and_restarted(world: World) -> None:
    """The only worker is killed and started again at once: its job is not left for some later start to find."""
    await world.api()
    for _ in range(world.scaled(10)):
        [worker] = await world.workers(1)
        [job_id] = await world.submit(1, {"seconds": 2})
        await world.until(lambda job_id=job_id: world.runs(job_id), "the job runs")
        world.kill(worker)
        [fresh] = await world.workers(1)
        await world.until(lambda job_id=job_id: len(world.runs(job_id)) == 2, "the job runs again")
        await world.drained()
        fresh.stop_kindly()
