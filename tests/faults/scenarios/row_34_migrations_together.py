import asyncio

from tests.faults.processes import Process
from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(34, short=True, drain=False)
async def migrations_together(world: World) -> None:
    """Four processes migrate an empty database at once after one was killed half-way: one schema, four successes."""
    for number in range(world.scaled(10, 2)):
        name = f"fresh_{number}"
        world.postgres.create_database(name)
        environ = world.environ(database_url=world.postgres.url(name))
        first = Process("migrate", ["migrate"], environ, world.folder / f"{name}-0.log")
        await asyncio.sleep(world.rng.uniform(0.2, 0.6))
        first.kill()
        together = [Process("migrate", ["migrate"], environ, world.folder / f"{name}-{n}.log") for n in range(1, 5)]
        for process in together:
            await world.until(lambda process=process: process.exit_code() is not None, "it ends", 60)
            assert process.exit_code() == 0, process.text()
