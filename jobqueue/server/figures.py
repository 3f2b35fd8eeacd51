"""The figures of ``GET /api/v1/metrics``. However many ask, one query is under way at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from jobqueue.batch import Batcher
from jobqueue.store.db import Pool
from jobqueue.store.mirror import write_depths
from jobqueue.store.redis import RedisLink
from jobqueue.store.stats import MANY_CHANGES, QueueDepths, fold_job_counts, read_figures
from jobqueue.telemetry import QUEUE_DEPTH

_MIRROR_SECONDS = 1.0


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
        self._mirrored: QueueDepths | None = None
        self._mirrored_at = 0.0
        # Who comes while a query is under way waits for the next one: its snapshot would be older than the request.
        self._reads: Batcher[None, FigureSet] = Batcher(self._read, max_batch=10_000)

    async def get(self) -> FigureSet:
        """Return the figures as of now.

        Raises:
            Unavailable: the database does not answer.
        """
        return await self._reads.put(None)

    async def _read(self, waiting: Sequence[None]) -> list[FigureSet]:
        async with self._pool.use() as connection:
            figures = await read_figures(connection)
            if figures.change_count > MANY_CHANGES:
                await fold_job_counts(connection)  # no worker does it
        await self._mirror(figures.depths)
        answer = FigureSet(figures.by_status, figures.avg_processing_time_seconds, figures.depths)
        return [answer] * len(waiting)

    async def _mirror(self, depths: QueueDepths) -> None:
        """Pass the depths on to the mirror and the gauges, when they have changed or nobody did for a while."""
        now = time.monotonic()
        if depths == self._mirrored and now - self._mirrored_at < _MIRROR_SECONDS:
            return
        self._mirrored, self._mirrored_at = depths, now
        for name, count in msgspec.structs.asdict(depths).items():
            QUEUE_DEPTH.labels(name).set(count)
        await write_depths(self._redis, depths)
