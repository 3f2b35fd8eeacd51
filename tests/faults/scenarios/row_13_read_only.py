from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(13)
async def read_only(world: World) -> None:
    """The database takes no writes for a while, as after a fail-over to a standby: all goes on without a restart."""
    await world.api()
    await world.workers(1)
    await world.submit(10)
    [later] = await world.submit(1, run_at="2100-01-01T00:00:00Z")
    with world.outage():
        world.sql("ALTER DATABASE jobqueue SET default_transaction_read_only = on")
        world.terminate_sessions()
        assert await world.client.create({}) is None, "a job was accepted by a read-only database"
        # Several, since each may be sent on another of the API's sessions.
        assert [await world.client.cancel(later) for _ in range(8)] == [503] * 8, "cancelled in a read-only database"
        world.sql("ALTER DATABASE jobqueue RESET default_transaction_read_only")
        await world.until(lambda: world.client.create({}), "creates work again", 30)
    assert await world.client.cancel(later) == 200, "a cancel was sent on a session that still takes no writes"
    await world.is_alive()
