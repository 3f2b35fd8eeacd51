"""ids: unique, in order, and of the standard's layout."""

from __future__ import annotations

import threading
import time
from uuid import RFC_4122, UUID

import pytest

from jobqueue import ids
from jobqueue.ids import new_id


def test_ids_are_uuids_of_version_7_with_the_present_time() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000

    assert (made.version, made.variant) == (7, RFC_4122)
    assert before <= made.int >> 80 <= after + 1


def test_each_id_sorts_after_the_one_before() -> None:
    made = [new_id() for _ in range(20_000)]

    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_keep_their_order_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_id()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_000_000_000)

    assert new_id() > first


def test_threads_never_get_the_same_id() -> None:
    made: list[list[UUID]] = [[] for _ in range(8)]
    gate = threading.Barrier(8)

    def make(into: list[UUID]) -> None:
        gate.wait()
        into.extend(new_id() for _ in range(3_000))

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({one for part in made for one in part}) == 24_000
    assert all(part == sorted(part) for part in made)
