from pathlib import Path

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(3, short=True)
async def killed_at_points(world: World) -> None:
    """Workers die between claim and start, and between end and report: nothing is lost, a death costs one attempt."""
    await world.api()
    once = Path(f"{world.ledger.path}.once")
    for point in ("after_claim", "after_end"):
        await world.keep_workers(1, worker_concurrency=1, faults_fail_at=point, faults_fail_once=once)
        deaths = len(world.losses)
        for number in range(world.scaled(50, 3)):
            once.touch()
            await world.submit(1, {"number": number})
            await world.until(lambda number=number: len(world.losses) > deaths + number, f"a worker dies {point}")
        await world.drained(120)
        await world.stop_keeping()
    unstarted = world.sql("SELECT sum(attempts) FROM jobs")[0][0] - len(world.runs())
    assert unstarted == world.scaled(50, 3), f"{unstarted} claims died before their start"
