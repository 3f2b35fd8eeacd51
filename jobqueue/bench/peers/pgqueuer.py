"""PgQueuer at its best: asyncpg, uvloop, durable tables, a batch of 200."""

from __future__ import annotations

import asyncio
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from jobqueue.bench.peers.timing import Hits, median_milliseconds, rate_of, tell

BATCH = 200
PICKUP_BATCH = 10


async def main(command: str, url: str, amount: int) -> None:
    """Measure one thing and print it."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    if command == "enqueue":
        tell(await rate_of(lambda: queries.enqueue("noop", b"0"), amount))
    elif command == "bulk":
        started = time.perf_counter()
        await queries.enqueue(["noop"] * amount, [b"0"] * amount, [0] * amount)
        tell(amount / (time.perf_counter() - started))
    elif command == "drain":
        for first in range(0, amount, 10_000):
            size = min(10_000, amount - first)
            await queries.enqueue(["noop"] * size, [b"0"] * size, [0] * size)
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
        tell(await _drain(url, amount))
    else:
        tell(await _pickup(url, queries, amount))
    await connection.close()


async def _drain(url: str, amount: int) -> float:
    hits = Hits()
    async with asyncpg.create_pool(url, min_size=2, max_size=10) as pool:
        worker = PgQueuer(AsyncpgPoolDriver(pool))

        @worker.entrypoint("noop")
        async def noop(_job: object) -> None:
            hits.hit()
            if len(hits.at) >= amount:
                worker.shutdown.set()

        await worker.run(batch_size=BATCH)
    return hits.rate()


async def _pickup(url: str, queries: Queries, amount: int) -> float:
    took: list[float] = []
    async with asyncpg.create_pool(url, min_size=2, max_size=10) as pool:
        worker = PgQueuer(AsyncpgPoolDriver(pool))

        @worker.entrypoint("noop")
        async def noop(job: object) -> None:
            took.append(time.time() - float(job.payload))  # type: ignore[attr-defined]

        running = asyncio.create_task(worker.run(batch_size=PICKUP_BATCH))
        await asyncio.sleep(2)
        for _ in range(amount):
            await queries.enqueue("noop", b"%f" % time.time())
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        worker.shutdown.set()
        await running
    return median_milliseconds(took)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
