"""The queue depths in Redis, for whoever wants them without asking PostgreSQL.

Overwritten as a whole from a query, never counted up and down (failures.md O1, O2). Its age is taken from the
key's remaining life, by Redis's own clock, so that no two machines' clocks are compared.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from redis.asyncio import Redis

from jobqueue.store.redis import RedisAway, RedisLink
from jobqueue.store.stats import QueueDepths

KEY = "jobqueue:queue_depths"
_LIFE_SECONDS = 60
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Mirrored(msgspec.Struct):
    fifo: _Count
    priority: _Count
    retry: _Count
    scheduled: _Count


async def write_depths(redis: RedisLink, depths: QueueDepths) -> None:
    """Overwrite the mirror. Does nothing while Redis is away."""
    text = msgspec.json.encode(depths)
    try:
        await redis.call("set", lambda client: client.set(KEY, text, ex=_LIFE_SECONDS))
    except RedisAway:
        return


async def read_depths(redis: RedisLink) -> tuple[QueueDepths, float] | None:
    """Return the mirrored depths and their age in seconds.

    None when there are none, when what is there is not ours, and when Redis is away.
    """
    try:
        text, life = await redis.call("get", _get_with_life)
        found = msgspec.json.decode(text or b"", type=_Mirrored)
    except (RedisAway, msgspec.MsgspecError, TypeError):
        return None
    age_seconds = _LIFE_SECONDS - life / 1000
    if life <= 0 or age_seconds < 0:
        return None  # somebody else set it: nobody knows when
    return QueueDepths(found.fifo, found.priority, found.retry, found.scheduled), age_seconds


async def read_mirror_age(redis: RedisLink) -> float | None:
    """Return the age of the mirror in seconds; None as :func:`read_depths`."""
    found = await read_depths(redis)
    return None if found is None else found[1]


async def _get_with_life(client: Redis) -> list[Any]:
    async with client.pipeline(transaction=False) as pipeline:
        pipeline.get(KEY)
        pipeline.pttl(KEY)
        return await pipeline.execute()
