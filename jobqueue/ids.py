"""Time-ordered ids (RFC 9562 UUID version 7), so that the primary key's index grows at one end."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

_lock = threading.Lock()
_last_tick = 0


def new_id() -> UUID:
    """Return a UUIDv7 that sorts after every id this process made before.

    RFC 9562 section 6.2, method 3: the 12 bits after the milliseconds hold the fraction of the millisecond.
    The tick never repeats or goes back, also when the clock does.
    """
    global _last_tick  # noqa: PLW0603  the monotonic guard is one number per process
    tick = time.time_ns() * 4096 // 1_000_000
    with _lock:
        tick = max(tick, _last_tick + 1)
        _last_tick = tick
    milliseconds, fraction = divmod(tick, 4096)
    random = int.from_bytes(os.urandom(8)) & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=(milliseconds << 80) | (0x7000 | fraction) << 64 | 0x8000_0000_0000_0000 | random)
