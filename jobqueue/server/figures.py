"""The figures of ``GET /api/v1/metrics``. However many ask, one query is under way at a time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobqueue.batch import Batcher
from jobqueue.store.db import Pool, snapshot
from jobqueue.store.mirror import read_depths, write_depths
from jobqueue.store.redis import RedisLink
from jobqueue.store.stats import QueueDepths, StatusCounts, count_jobs_by_status, queue_depths
from jobqueue.telemetry import QUEUE_DEPTH

# The mirror cannot tell which of the waiting jobs became due since it was written: this is how late it may be.
MAX_MIRROR_AGE_SECONDS = 1.0


class FigureSet(msgspec.Struct, frozen=True):
    """The answer. ``queue_depths`` adds up to the queued jobs."""

    counts_by_status: dict[str, int]
    avg_processing_time_seconds: float | None
    queue_depths: QueueDepths


class Figures:
    """Reads the figures, for all who ask at the same moment at once."""

    def __init__(self, pool: Pool, redis: RedisLink) -> None:
        self._pool = pool
        self._redis = redis
        # Who comes while a query is under way waits for the next one: its snapshot would be older than the request.
        self._reads: Batcher[None, FigureSet] = Batcher(self._read, max_batch=10_000)

    async def get(self) -> FigureSet:
        """Return the figures as of now.

        Raises:
            Unavailable: the database does not answer.
        """
        return await self._reads.put(None)

    async def _read(self, waiting: Sequence[None]) -> list[FigureSet]:
        mirrored = await read_depths(self._redis)
        depths = None if mirrored is None or mirrored[1] > MAX_MIRROR_AGE_SECONDS else mirrored[0]
        async with self._pool.use() as connection, snapshot(connection):
            counts = await count_jobs_by_status(connection)
            is_mirror_right = depths is not None and depths.total() == counts.by_status["queued"]
            if depths is None or not is_mirror_right:
                depths = await queue_depths(connection)
        if not is_mirror_right:
            await write_depths(self._redis, depths)
        _show(depths)
        return [_figure_set(counts, depths)] * len(waiting)


def _figure_set(counts: StatusCounts, depths: QueueDepths) -> FigureSet:
    return FigureSet(counts.by_status, counts.avg_processing_time_seconds, depths)


def _show(depths: QueueDepths) -> None:
    for name, count in msgspec.structs.asdict(depths).items():
        QUEUE_DEPTH.labels(name).set(count)
