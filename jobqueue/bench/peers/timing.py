"""What the adapters share: how a figure is taken and told."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable


def tell(figure: float) -> None:
    """Print the one figure of this process."""
    print(json.dumps(figure))


async def rate_of(once: Callable[[], Awaitable[object]], seconds: float) -> float:
    """Return how often a second *once* can be done one after the other."""
    for _ in range(20):
        await once()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        await once()
        count += 1
    return count / (time.perf_counter() - started)


class Hits:
    """Notes when handlers started."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def hit(self) -> None:
        """Note a start."""
        self.at.append(time.perf_counter())

    def rate(self) -> float:
        """Return starts a second, from the first to the last."""
        return (len(self.at) - 1) / (self.at[-1] - self.at[0])


def median_milliseconds(seconds: list[float]) -> float:
    """Return the median of *seconds* in milliseconds."""
    return sorted(seconds)[len(seconds) // 2] * 1000
