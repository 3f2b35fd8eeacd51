from tests.faults.scenario import scenario
from tests.faults.world import POLL_SECONDS, World


@scenario(9)
async def half_open_listener(world: World) -> None:
    """A firewall forgets the listening connection without a word: noticed within 60 s, jobs are found by looking."""
    proxy = await world.proxy()
    await world.api()
    [worker] = await world.workers(1, database_direct_url=proxy.url)
    proxy.forget_existing()
    await world.starts_within(POLL_SECONDS + 1)
    await world.until(lambda: worker.text().count('"listening"') == 2, "a new session listens", 60)
    await world.starts_within(POLL_SECONDS + 1)
