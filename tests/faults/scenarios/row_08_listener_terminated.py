from tests.faults.scenario import scenario
from tests.faults.world import POLL_SECONDS, World


@scenario(8, short=True)
async def listener_terminated(world: World) -> None:
    """The listening sessions are terminated: jobs are found by looking, and the workers listen again within 10 s."""
    await world.api()
    await world.workers(1)
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'jobqueue-worker-listen'"
    for _ in range(world.scaled(10, 2)):
        before = world.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'jobqueue-worker-listen'")
        world.terminate_sessions("jobqueue-worker-listen")
        await world.starts_within(POLL_SECONDS + 1)
        await world.until(
            lambda before=before: (
                world.sql(count) == [(1,)]
                and world.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'jobqueue-worker-listen'")
                != before
            ),
            "a new session listens",
            10,
        )
        await world.starts_within(POLL_SECONDS + 1)
