"""A real worker inside the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from jobqueue.executors import EXECUTOR_REGISTRY
from jobqueue.executors.builtin import Simulation
from jobqueue.settings import Settings
from jobqueue.worker.loop import Worker

RunWorker = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture
def run_worker(registry: dict[str, object], settings: Settings) -> RunWorker:
    """Run a worker inside ``async with``; it is stopped in an orderly way at the end."""

    @asynccontextmanager
    async def run(own: Settings | None = None) -> AsyncIterator[Worker]:
        Simulation.configure(own or settings)
        worker = Worker(own or settings, dict(EXECUTOR_REGISTRY))
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.request_stop()
            worker.request_hurry()
            await asyncio.wait_for(running, 15)

    return run
