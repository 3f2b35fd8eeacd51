import asyncio

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(26, short=True)
async def cancel_storm(world: World) -> None:
    """Each job is cancelled by two clients at once at some moment: who was told 200 finds it cancelled for good."""
    await world.api()
    await world.workers(2, worker_concurrency=4)

    async def one(number: int) -> None:
        job_id = await world.client.insist({"seconds": 0.05}, key=f"storm-{number}")
        await asyncio.sleep(world.rng.uniform(0, 0.3))
        await asyncio.gather(world.client.cancel(job_id), world.client.cancel(job_id))

    turn = asyncio.Semaphore(40)

    async def in_turn(number: int) -> None:
        async with turn:
            await one(number)

    await asyncio.gather(*(in_turn(number) for number in range(world.scaled(1_000, 200))))
    await world.drained()
    for job_id, answers in world.client.cancels.items():
        status = await world.status_of(job_id)
        if 200 in answers:
            assert (status, answers) == ("cancelled", [200, 200]), f"{job_id} is {status} after {answers}"
        else:
            assert answers == [409, 409], f"{job_id} was answered {answers}"
            assert status in {"completed", "failed"}, f"{job_id} is {status} after {answers}"
