from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(5, short=True)
async def frozen_worker(world: World) -> None:
    """A worker frozen past its lease wakes up when another has done its job: it changes nothing and goes on working."""
    await world.api()
    for _ in range(world.scaled(20)):
        [first] = await world.workers(1)
        [job_id] = await world.submit(1, {"seconds": 0.5})
        await world.until(lambda job_id=job_id: world.runs(job_id), "the job runs")
        world.freeze(first)
        [second] = await world.workers(1)
        await world.drained()
        record = world.sql("SELECT * FROM jobs WHERE id = %s", job_id)
        first.thaw()
        # The frozen one now reports its result, too late; then it must take a new job, being the only one left.
        query = "SELECT count(*) FROM job_logs WHERE job_id = %s AND event = 'discarded'"
        await world.until(
            lambda job_id=job_id: world.sql(query, job_id) == [(1,)], "the late result is noted and dropped"
        )
        assert world.sql("SELECT * FROM jobs WHERE id = %s", job_id) == record, "the late result changed the record"
        second.stop_kindly()
        await world.until(lambda second=second: second.exit_code() is not None, "the second worker has stopped")
        await world.is_alive()
        await world.drained()
        first.stop_kindly()
