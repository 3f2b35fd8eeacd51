"""A bound on the request bodies that one API process holds, from their first byte to the answer.

Without it a database that is slower than its clients would be paid for in memory: thousands of requests may wait for
the next write, each with its body.
"""

from __future__ import annotations

from jobqueue.batch import QueueFull

MAX_HELD_BYTES = 64 * 1024 * 1024


class Admission:
    """Counts the bytes that are held. *max_bytes* is their bound."""

    def __init__(self, max_bytes: int = MAX_HELD_BYTES) -> None:
        self._max_bytes = max_bytes
        self.held_bytes = 0

    def take(self, size: int) -> None:
        """Hold *size* bytes more.

        Raises:
            QueueFull: too many are held; nothing was taken.
        """
        if self.held_bytes + size > self._max_bytes:
            raise QueueFull
        self.held_bytes += size

    def give(self, size: int) -> None:
        """Let go of *size* bytes."""
        self.held_bytes -= size


class Hold:
    """What one request holds."""

    __slots__ = ("_admission", "_size")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._size = 0

    def add(self, size: int) -> None:
        """Hold *size* bytes more.

        Raises:
            QueueFull: too many are held by all requests together.
        """
        self._admission.take(size)
        self._size += size

    def release(self) -> None:
        """Let go of everything."""
        self._admission.give(self._size)
        self._size = 0
