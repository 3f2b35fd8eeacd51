"""The door to Redis: short time limits, and a pause after each failure.

Redis is a helper that may be away at any moment. Nothing here retries, nobody waits longer than
``REDIS_TIMEOUT_SECONDS``, and while Redis is away calls fail at once until a single one may look again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from jobqueue.settings import Settings, redact
from jobqueue.telemetry import REDIS_COMMAND_SECONDS, REDIS_ERRORS

log = structlog.get_logger(__name__)

Answer = TypeVar("Answer")

_CONNECTIONS = 8
_LONGEST_PAUSE_SECONDS = 5.0


class RedisAway(Exception):
    """Redis does not answer, or did not a moment ago."""


class RedisLink:
    """The process's one way to Redis. Opens connections when they are needed; close it at the end."""

    def __init__(self, settings: Settings) -> None:
        self._seconds = settings.redis_timeout_seconds
        self._url = redact(settings.redis_url)
        pool = BlockingConnectionPool.from_url(
            settings.redis_url,
            max_connections=_CONNECTIONS,
            timeout=self._seconds,
            socket_timeout=self._seconds,
            socket_connect_timeout=self._seconds,
            retry=Retry(NoBackoff(), 0),  # the library's default would multiply the wait
            protocol=2,
        )
        self._pool = pool
        self._client: Redis = Redis(connection_pool=pool)
        self._failures = 0
        self._away_since = 0.0
        self._closed_until = 0.0

    @property
    def is_away(self) -> bool:
        """Whether the latest call failed."""
        return self._failures > 0

    @property
    def connection_count(self) -> int:
        """Connections open right now."""
        # The library has no public figure; an empty guess is better than none at all.
        idle: Any = getattr(self._pool, "_available_connections", ())
        used: Any = getattr(self._pool, "_in_use_connections", ())
        return len(idle) + len(used)

    async def call(self, command: str, action: Callable[[Redis], Awaitable[Answer]]) -> Answer:
        """Run *action* with the client. *command* is its name on the metric of durations.

        Raises:
            RedisAway: it failed, took longer than the time limit, or Redis is being left alone.
        """
        now = time.monotonic()
        if now < self._closed_until:
            raise RedisAway
        if self._failures:
            self._closed_until = now + self._seconds  # this call looks; the others do not wait for it
        try:
            with REDIS_COMMAND_SECONDS.labels(command).time():
                async with asyncio.timeout(self._seconds):
                    answer = await action(self._client)
        except (RedisError, OSError, TimeoutError) as error:
            self._note_failure(error)
            raise RedisAway from error
        if self._failures:
            self._note_return()
        return answer

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()
        await self._pool.disconnect()

    def _note_failure(self, error: Exception) -> None:
        REDIS_ERRORS.inc()
        now = time.monotonic()
        if not self._failures:
            self._away_since = now
            reason = str(error).strip() or type(error).__name__
            log.warning("redis_away", url=self._url, error=reason, detail="Going on without it.")
        self._failures += 1
        self._closed_until = now + min(2.0 ** min(self._failures - 1, 3), _LONGEST_PAUSE_SECONDS)

    def _note_return(self) -> None:
        log.info("redis_back", url=self._url, away_seconds=round(time.monotonic() - self._away_since, 1))
        self._failures = 0
        self._closed_until = 0.0
