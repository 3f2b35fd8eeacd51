"""The timers beside the claim loop."""

from __future__ import annotations

import asyncio

from jobqueue.worker.maintenance import _every


async def test_a_timer_ends_although_its_work_swallowed_the_cancellation() -> None:
    runs = 0
    entered = asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return

    timer = asyncio.create_task(_every(0.05, work))
    await entered.wait()
    timer.cancel()
    await asyncio.wait({timer}, timeout=10)

    assert timer.done()
    assert runs == 1
