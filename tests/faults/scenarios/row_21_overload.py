import asyncio
import time

from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(21)
async def overload(world: World) -> None:
    """Twice as many creates as can be written: 503 with Retry-After, memory stays flat, the accepted are done."""
    proxy = await world.proxy()
    api = await world.api(database_url=proxy.url)
    await world.workers(1, worker_concurrency=50)
    proxy.delay_seconds = lambda: 1.0  # a statement of 200 jobs takes two seconds
    until = time.monotonic() + max(6, 1800 * world.size if world.size >= 1 else 0)
    refused: list[bool] = []
    resident: list[int] = []

    async def one(number: int) -> None:
        body = {"type": "probe", "payload": {"number": number, "filler": "x" * 20_000}}
        response = await world.client.request("POST", "/api/v1/jobs", "create", json=body)
        if response is not None and response.status_code == 503:
            refused.append("retry-after" in response.headers)

    with world.outage():
        async with asyncio.TaskGroup() as tasks:
            number = 0
            while time.monotonic() < until:
                for _ in range(20):
                    number += 1
                    tasks.create_task(one(number))
                resident.append(api.resident_bytes())
                await asyncio.sleep(0.1)
        proxy.delay_seconds = None
    assert refused, "nothing was refused: it was not too much"
    assert all(refused), "a 503 came without Retry-After"
    half = len(resident) // 2
    assert max(resident[half:]) < max(resident[:half]) + 30_000_000, f"the API grew: {resident}"
    await world.is_alive()
