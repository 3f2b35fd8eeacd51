from tests.faults.scenario import scenario
from tests.faults.world import World
from tests.worker.probes import ENDS


@scenario(29, short=True)
async def hostile_ends(world: World) -> None:
    """Executors end in every way Python knows, with errors and results no database takes: the worker lives."""
    modules = "tests.faults.probe,tests.faults.hostile_probe"
    await world.api(jobqueue_executors=modules)
    [worker] = await world.workers(1, jobqueue_executors=modules)
    ids = {}
    for end in ENDS:
        for job_type in ("hostile_probe", "hostile_thread_probe"):
            [job_id] = await world.submit(1, {"do": "end", "end": end}, type=job_type, max_attempts=1)
            ids[job_id] = end
    await world.drained()
    world.expect_no_runs(ids)
    for job_id, end in ids.items():
        [(status, error)] = world.sql("SELECT status::text, error FROM jobs WHERE id = %s", job_id)
        assert status == "failed", f"{end}: {status}"
        assert error, f"{end}: no error"
        assert len(error) < 20_000, f"{end}: an error of {len(error)} characters"
    assert worker.exit_code() is None
    await world.is_alive()
