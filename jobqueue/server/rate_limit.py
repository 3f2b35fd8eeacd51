"""How many creates a client may make: one decision for all API processes, kept in Redis.

The generic cell rate algorithm: a client has a burst of *limit* creates and earns one back every 60/limit
seconds. All decisions that are due at the same moment go to Redis in one script call. While Redis is away a
limit of the same size holds inside this process, so *n* processes then let *n* times as much pass.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from redis.asyncio import Redis

from jobqueue.batch import Batcher
from jobqueue.store.redis import RedisAway, RedisLink

_MAX_LOCAL_CLIENTS = 10_000
_KEY = "jobqueue:rate:"

# One value per client: the time at which its whole burst is earned back, in microseconds of Redis's clock.
# It is always set together with its expiry (failures.md N3), and never trusted to lie further ahead than a
# whole burst, so that a clock that was set back heals by itself.
_SCRIPT = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local interval = tonumber(ARGV[1])
local burst = tonumber(ARGV[2])
local decisions = {}
for index, key in ipairs(KEYS) do
  local wanted = tonumber(ARGV[2 + index])
  local full_at = tonumber(redis.pcall('GET', key))
  local is_too_far = full_at and full_at > now + burst
  if not full_at or not (full_at >= now) then
    full_at = now
  elseif is_too_far then
    full_at = now + burst
  end
  local granted = math.min(wanted, math.floor((now + burst - full_at) / interval))
  full_at = full_at + granted * interval
  if granted > 0 or is_too_far then
    redis.call('SET', key, string.format('%.0f', full_at), 'PX', math.ceil((full_at - now) / 1000))
  end
  decisions[2 * index - 1] = granted
  decisions[2 * index] = math.ceil(full_at + interval - burst - now)
end
return decisions
"""


class RateLimit:
    """Decides whether a client may create a job now."""

    def __init__(self, redis: RedisLink, limit_per_minute: int) -> None:
        self._redis = redis
        self._interval, self._burst = _cells(limit_per_minute)
        self._local = LocalLimit(limit_per_minute)
        self._script: Any = None
        self._decisions: Batcher[str, int] = Batcher(self._decide, max_batch=500)

    async def take(self, client: str) -> int:
        """Take one create of *client*. Returns 0, or the whole seconds to wait when nothing is left.

        Raises:
            QueueFull: far too many requests wait.
        """
        return await self._decisions.put(client)

    async def _decide(self, clients: Sequence[str]) -> list[int | Exception]:
        try:
            waits = await self._redis.call("rate_limit", lambda redis: self._run(redis, clients))
        except RedisAway:
            waits = [self._local.take(client) for client in clients]
        return [math.ceil(wait / 1_000_000) for wait in waits]

    async def _run(self, redis: Redis, clients: Sequence[str]) -> list[int]:
        """Return how long each of *clients* has to wait, in microseconds. One that is named twice takes two."""
        if self._script is None:
            self._script = redis.register_script(_SCRIPT)
        wanted = Counter(clients)
        answer: list[int] = await self._script(
            keys=[_KEY + client for client in wanted],
            args=[self._interval, self._burst, *wanted.values()],
            client=redis,
        )
        granted = dict(zip(wanted, answer[::2], strict=True))
        wait = dict(zip(wanted, answer[1::2], strict=True))
        waits = []
        for client in clients:
            granted[client] -= 1
            waits.append(0 if granted[client] >= 0 else wait[client])
        return waits


class LocalLimit:
    """The same limit inside one process. Remembers at most 10,000 clients; the longest silent go first."""

    def __init__(self, limit_per_minute: int) -> None:
        self._interval, self._burst = _cells(limit_per_minute)
        self._full_at: OrderedDict[str, int] = OrderedDict()

    def take(self, client: str, now: float | None = None) -> int:
        """Take one. Returns 0, or the microseconds to wait. *now* is in seconds of any steady clock."""
        now_at = int((time.monotonic() if now is None else now) * 1_000_000)
        full_at = max(self._full_at.get(client, now_at), now_at)
        wait = full_at + self._interval - self._burst - now_at
        if wait > 0:
            return wait
        self._full_at[client] = full_at + self._interval
        self._full_at.move_to_end(client)
        if len(self._full_at) > _MAX_LOCAL_CLIENTS:
            self._full_at.popitem(last=False)
        return 0

    def __len__(self) -> int:
        return len(self._full_at)


def _cells(limit_per_minute: int) -> tuple[int, int]:
    """Return how long one create takes to be earned back, and the whole burst, in microseconds.

    Whole numbers: rounded fractions would add up and refuse the last create of a burst.
    """
    interval = 60_000_000 // limit_per_minute
    return interval, interval * limit_per_minute


@lru_cache(maxsize=4096)
def client_key(host: str | None) -> str:
    """Return who is counted together: an IPv4 address, or the /64 that one IPv6 customer has (failures.md N4).

    What is not an address (a proxy passed on rubbish) shares one count, so that inventing names gains nothing;
    a local socket has one of its own.
    """
    if host is None:
        return "local"
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            return str(ip_network((int(address) >> 64 << 64, 64)))
        address = address.ipv4_mapped
    return str(address)
