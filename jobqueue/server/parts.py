"""What the requests of one API process share: settings, connections, catalog, limit, writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jobqueue.server.admission import MAX_HELD_BYTES, Admission
from jobqueue.server.dashboard.access import Access
from jobqueue.server.figures import Figures
from jobqueue.server.known import Known
from jobqueue.server.rate_limit import RateLimit
from jobqueue.server.read import JobReader
from jobqueue.server.writer import JobWriter
from jobqueue.settings import Settings
from jobqueue.store.db import Pool
from jobqueue.store.redis import RedisLink


class Parts:
    """Made before the start, opened and closed with the server. Needs neither database nor Redis to start."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pool = Pool(settings, "api")
        self.redis = RedisLink(settings)
        self.admission = Admission(max(MAX_HELD_BYTES, 4 * settings.request_max_bytes))
        self.access = Access(settings)
        self.known = Known(self.pool)
        self.rate_limit = RateLimit(self.redis, settings.rate_limit_per_minute)
        self.writer = JobWriter(settings)
        self.reader = JobReader(settings)
        self.figures = Figures(self.pool, self.redis)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Hold everything open. On the way out jobs that wait are still written."""
        await self.pool.open()
        keeper = asyncio.create_task(self.known.keep(), name="known-keeper")
        try:
            yield
        finally:
            while not keeper.done():
                # Once is not enough: the connection pool can swallow a cancellation when a connection arrives
                # in the same moment.
                keeper.cancel()
                await asyncio.wait({keeper}, timeout=0.5)
            await self.writer.close()
            await self.reader.close()
            await self.pool.close()
            await self.redis.close()
