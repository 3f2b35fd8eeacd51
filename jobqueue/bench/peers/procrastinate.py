"""Procrastinate at its best here: psycopg connector, LISTEN on, concurrency 10, finished jobs kept (its default)."""

from __future__ import annotations

import asyncio
import logging
import sys
import time

import procrastinate

from jobqueue.bench.peers.timing import Hits, median_milliseconds, rate_of, tell

CONCURRENCY = 10
MOST_DRAINED = 2_000  # enough for a rate, at a few hundred a second


async def main(command: str, url: str, amount: int) -> None:
    """Measure one thing and print it."""
    logging.disable(logging.WARNING)
    hits, took = Hits(), list[float]()
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=CONCURRENCY + 2)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop")
    async def noop(at: float) -> None:
        hits.hit()
        took.append(time.time() - at)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        if command == "enqueue":
            tell(await rate_of(lambda: noop.defer_async(at=0.0), amount))
        elif command == "bulk":
            started = time.perf_counter()
            await noop.batch_defer_async(*[{"at": 0.0}] * amount)
            tell(amount / (time.perf_counter() - started))
        elif command == "drain":
            await noop.batch_defer_async(*[{"at": 0.0}] * min(amount, MOST_DRAINED))
            await app.run_worker_async(concurrency=CONCURRENCY, wait=False, install_signal_handlers=False)
            tell(hits.rate())
        else:
            worker = app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
            running = asyncio.create_task(worker)
            await asyncio.sleep(2)
            for _ in range(amount):
                await noop.defer_async(at=time.time())
                await asyncio.sleep(0.05)
            await asyncio.sleep(1)
            running.cancel()
            await asyncio.wait({running})
            tell(median_milliseconds(took))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
