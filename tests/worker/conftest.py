"""A real worker inside the test's event loop, and real worker processes."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from jobqueue.executors import EXECUTOR_REGISTRY
from jobqueue.executors.builtin import Simulation
from jobqueue.settings import Settings
from jobqueue.worker.loop import Worker
from tests.conftest import MakeSettings
from tests.overlap import eventually
from tests.worker.probes import PROBES, released
from tests.worker.processes import Ledger, WorkerProcess

RunWorker = Callable[..., AbstractAsyncContextManager[Worker]]
StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def run_worker(registry: dict[str, object], settings: Settings) -> Iterator[RunWorker]:
    """Run a worker that knows the probes inside ``async with``; it is stopped in an orderly way at the end."""
    registry.update(PROBES)
    released.clear()

    @asynccontextmanager
    async def run(own: Settings | None = None) -> AsyncIterator[Worker]:
        Simulation.configure(own or settings)
        worker = Worker(own or settings, dict(EXECUTOR_REGISTRY))
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            released.set()
            worker.request_stop()
            worker.request_hurry()
            await asyncio.wait_for(running, 15)

    yield run
    released.set()
    gc.collect()  # what was left open shows as a warning in the test that left it


@pytest.fixture
def quick(make_settings: MakeSettings) -> Callable[..., Settings]:
    """Settings with leases of about a second; keyword arguments override."""

    def make(**overrides: object) -> Settings:
        timings = {
            "lease_seconds": 1.2,
            "heartbeat_seconds": 0.3,
            "recovery_interval_seconds": 0.3,
            "poll_seconds": 0.3,
        }
        return make_settings(**{**timings, **overrides})

    return make


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """The file in which this test's probes note what they do."""
    return Ledger(tmp_path / "ledger")


@pytest.fixture
def start_worker(quick: Callable[..., Settings], tmp_path: Path) -> Iterator[StartWorker]:
    """Start worker processes with the settings of ``quick``; the survivors are killed at the end."""
    started: list[WorkerProcess] = []

    def start(own: Settings | None = None) -> WorkerProcess:
        process = WorkerProcess(own or quick(), tmp_path / f"worker-{len(started)}.log")
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


async def asleep(worker: Worker) -> None:
    """Wait until the worker listens, and sleeps for so long that only a notification can wake it."""
    loop = asyncio.get_running_loop()

    def sleeps() -> bool:
        alarm = worker._sleeper._alarm
        return worker._listener.is_listening and alarm is not None and alarm.when() - loop.time() > 30

    await eventually(sleeps, "the worker sleeps for long")


def other_threads() -> set[str]:
    """Return the names of all threads but this one."""
    return {thread.name for thread in threading.enumerate() if thread is not threading.current_thread()}
