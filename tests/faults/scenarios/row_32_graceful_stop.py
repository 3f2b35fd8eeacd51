import asyncio
import signal
import time

from tests.faults.processes import Process
from tests.faults.scenario import scenario
from tests.faults.world import GRACE_SECONDS, Loss, World


@scenario(32, short=True)
async def graceful_stop(world: World) -> None:
    """SIGTERM, with short and long jobs, twice, during the start, without a database: in time, with 0, at no cost."""
    await world.api()
    for seconds, signals in ((1.0, (0.0,)), (GRACE_SECONDS * 5, (0.0,)), (1.0, (0.0, 1.0))):
        [worker] = await world.workers(1)
        ids = await world.submit(4, {"seconds": seconds})
        await world.until(lambda ids=ids: all(world.runs(job_id) for job_id in ids), "the jobs run")
        await stops(world, worker, signals)
        if seconds > GRACE_SECONDS:
            assert world.sql("SELECT DISTINCT status::text, attempts FROM jobs WHERE status <> 'completed'") == [
                ("queued", 0)
            ]
            handed_back_at = time.monotonic()
            [other] = await world.workers(1)
            await world.until(lambda ids=ids: all(len(world.runs(i)) == 2 for i in ids), "they run elsewhere")
            assert time.monotonic() - handed_back_at < 5 * world.patience, "they waited for their leases"
            for job_id in ids:
                assert await world.client.cancel(job_id) == 200
            await stops(world, other, (0.0,))
        await world.drained()
    starting = world.start_worker()
    await asyncio.sleep(world.rng.uniform(0.05, 0.2))
    code = await stops(world, starting, (0.0,), any_code=True)
    assert code in {0, -signal.SIGTERM}, f"a worker stopped during its start ended with {code}"
    [worker] = await world.workers(1)
    with world.outage():
        world.postgres.stop()
        await stops(world, worker, (0.0,))
        world.postgres.start()
    [_] = await world.workers(1)
    await world.is_alive()


async def stops(world: World, worker: Process, signals: tuple[float, ...], *, any_code: bool = False) -> int:
    """Send SIGTERM after each of *signals* seconds; the exit code, which came in time."""
    worker.is_wanted = False
    started = time.monotonic()
    for after in signals:
        await asyncio.sleep(after)
        worker.send(signal.SIGTERM)
    world.losses.append(Loss(worker.pid, time.monotonic() + GRACE_SECONDS - 0.5))  # what runs then is handed back
    await world.until(lambda: worker.exit_code() is not None, f"{worker.name} stops", GRACE_SECONDS + 6)
    took = time.monotonic() - started
    assert took <= (GRACE_SECONDS + 1.5) * world.patience + sum(signals), f"{worker.name} took {took:.1f} s to stop"
    code = worker.exit_code()
    assert code == 0 or any_code, f"{worker.name} ended with {code}: {worker.text()[-500:]}"
    return code or 0
