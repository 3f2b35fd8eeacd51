import time

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(18)
async def time_zones(world: World) -> None:
    """Processes and server in different time zones: delays are exact, and a job for later starts at its time."""
    world.sql("ALTER DATABASE jobqueue SET timezone = 'Asia/Kathmandu'")
    await world.api(tz="America/New_York")
    await world.workers(1, tz="Europe/Berlin")
    [failing] = await world.submit(1, {"do": "fail"}, max_attempts=2)
    now = world.sql(
        "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '2 s', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"+00:00\"')"
    )[0][0]
    started = time.monotonic()
    [later] = await world.submit(1, run_at=now.replace("+00:00", "Z"))
    await world.drained()
    first, second = world.runs(failing)
    assert 1.0 <= second.started_at - first.started_at <= 4.0 * world.patience
    assert 1.9 <= world.runs(later)[0].started_at - started <= 3.0 * world.patience
