from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(36, short=True, drain=False)
async def unknown_and_undecodable(world: World) -> None:
    """A job of a type that no worker knows waits and is seen; one whose payload does not fit its type has failed."""
    modules = "tests.faults.probe,tests.faults.hostile_probe"
    await world.workers(1, jobqueue_executors=modules)
    world.sql("INSERT INTO jobs (type) VALUES ('of_a_later_version')")
    [(misfit,)] = world.sql(
        "INSERT INTO jobs (type, payload, max_attempts)"
        " VALUES ('hostile_typed_probe', '{\"amount\": \"many\"}', 1) RETURNING id::text"
    )
    world.expect_no_runs([misfit])
    done = "SELECT error FROM jobs WHERE type = 'hostile_typed_probe' AND status = 'failed'"
    [(error,)] = await world.until(lambda: world.sql(done), "the job that does not fit has failed")
    assert "amount" in error, error
    await world.api(jobqueue_executors=modules)
    await world.is_alive()
    assert world.sql("SELECT status::text, attempts FROM jobs WHERE type = 'of_a_later_version'") == [("queued", 0)]
    response = await world.client.request("GET", "/api/v1/metrics")
    assert response is not None
    assert response.json()["queue_depths"]["priority"] == 1
    world.sql("DELETE FROM jobs WHERE type = 'of_a_later_version'")
