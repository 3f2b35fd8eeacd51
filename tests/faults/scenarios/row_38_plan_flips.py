from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(38)
async def plan_flips(world: World) -> None:
    """Whatever plan the server chooses, a claim takes no more than its slots and no job twice."""
    await world.api()
    world.sql(
        "INSERT INTO jobs (type, status, completed_at) SELECT 'probe', 'failed', now() FROM generate_series(1, %s)",
        world.scaled(1_000_000, 20_000),
    )
    for switch in ("seqscan", "hashjoin", "mergejoin", "nestloop", "material", "indexscan", "bitmapscan", "sort"):
        world.sql(f"ALTER DATABASE jobqueue SET enable_{switch} = off")
        [worker] = await world.workers(1, worker_concurrency=3)
        ids = await world.submit(12, {"seconds": 0.02})
        await world.drained()
        at_once = most_at_once([run for run in world.runs() if run.job_id in ids])
        assert at_once <= 3, f"{at_once} jobs on 3 slots without {switch}"
        world.kill(worker)
        world.sql(f"ALTER DATABASE jobqueue RESET enable_{switch}")
    world.sql("DELETE FROM jobs WHERE error IS NULL AND status = 'failed'")


def most_at_once(runs: list) -> int:
    """Return the largest number of executions at one time."""
    edges = sorted([(run.started_at, 1) for run in runs] + [(run.ended_at, -1) for run in runs])
    level = most = 0
    for _, step in edges:
        level += step
        most = max(most, level)
    return most
