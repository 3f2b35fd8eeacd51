"""Where the claim loop starts to look: behind what it claimed last, and now and then at the start.

As long as some transaction holds an old snapshot, PostgreSQL cannot remove the index entries of claimed jobs, and a
claim that looks from the start walks over all of them: after 200,000 jobs 54 ms instead of 5. Starting behind the last
claimed position of each level (a low-water mark) leaves them out. What lands behind the mark (a released job, an insert
that commits late, a cancellation that is rolled back, a time in the past) is found by looking from the start, which
is done as often as it can be without taking more than a fortieth of the time: when it costs 3 ms, every 120 ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from jobqueue.store.claims import Marks, Position

_SHARE = 40.0
_LONGEST_PAUSE_SECONDS = 10.0


class LowWater:
    """The marks of one claim loop. Call :meth:`start` before a claim and :meth:`claimed` after it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._marks: dict[str, Position] = {}
        self._full_look_at = 0.0
        self._started_at = 0.0
        self._is_full = True

    def start(self) -> Marks:
        """Return the positions to start behind; none when it is time to look from the start."""
        self._started_at = self._clock()
        self._is_full = self._started_at >= self._full_look_at
        return {} if self._is_full else self._marks

    def claimed(self, marks: dict[str, Position]) -> None:
        """Take the positions that the claim reached."""
        self._marks.update(marks)
        if self._is_full:
            now = self._clock()
            self._full_look_at = now + min(_SHARE * (now - self._started_at), _LONGEST_PAUSE_SECONDS)

    def seconds_to_full_look(self) -> float | None:
        """Return when a claim may look from the start; None when the latest one did."""
        return None if self._is_full else max(0.0, self._full_look_at - self._clock())

    def forget(self) -> None:
        """Look from the start next time: the claim failed, nobody knows what is there now."""
        self._marks.clear()
        self._full_look_at = 0.0
