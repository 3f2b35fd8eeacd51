from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(28, short=True)
async def cancel_uncooperative(world: World) -> None:
    """Cancelled jobs that swallow it, block, or sit in a thread: cancelled at once, and the other slots go on."""
    await world.api()
    await world.workers(1, worker_concurrency=4)
    stubborn = await world.submit(1, {"do": "stubborn", "seconds": 6})
    stubborn += await world.submit(1, {"seconds": 6}, type="thread_probe")
    await world.until_started(2)
    stubborn += await world.submit(1, {"do": "block", "seconds": 2})  # holds up the whole loop, so it comes last
    await world.until_started(3)
    for job_id in stubborn:
        assert (await world.client.cancel(job_id), await world.status_of(job_id)) == (200, "cancelled")
    await world.is_alive()
    await world.submit(20)
    await world.drained()
    for job_id in stubborn:
        assert await world.status_of(job_id) == "cancelled"
