"""batch: what waits goes together, and nothing waits without need."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar

import pytest

from jobqueue.batch import Batcher, QueueFull

caller: ContextVar[str] = ContextVar("caller", default="nobody")


class Gate:
    """A write that notes its batches and waits until it is opened."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.entered = asyncio.Event()
        if is_open:
            self.open.set()

    async def write(self, items: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(items))
        self.entered.set()
        await self.open.wait()
        return [ValueError(f"bad {item}") if item < 0 else item * 10 for item in items]


async def test_a_lone_item_goes_at_once_and_alone() -> None:
    gate = Gate(is_open=True)
    batcher = Batcher(gate.write)

    assert await batcher.submit(4) == 40
    assert await batcher.submit(5) == 50
    assert gate.batches == [[4], [5]]


async def test_items_gather_only_while_a_write_is_under_way() -> None:
    gate = Gate()
    batcher = Batcher(gate.write)
    first = batcher.put(1)
    await gate.entered.wait()
    later = [batcher.put(item) for item in (2, 3, 4)]
    assert gate.batches == [[1]]

    gate.open.set()

    assert await asyncio.gather(first, *later) == [10, 20, 30, 40]
    assert gate.batches == [[1], [2, 3, 4]]


async def test_a_batch_is_never_larger_than_allowed() -> None:
    gate = Gate(is_open=True)
    batcher = Batcher(gate.write, max_batch=2)

    answers = await asyncio.gather(*(batcher.submit(item) for item in range(5)))

    assert answers == [0, 10, 20, 30, 40]
    assert [len(batch) for batch in gate.batches] == [2, 2, 1]


async def test_an_exception_reaches_only_the_caller_of_its_item() -> None:
    batcher = Batcher(Gate(is_open=True).write)

    answers = await asyncio.gather(*(batcher.submit(item) for item in (1, -2, 3)), return_exceptions=True)

    assert answers[0] == 10
    assert isinstance(answers[1], ValueError)
    assert answers[2] == 30


async def test_a_failed_write_fails_its_items_and_the_next_write_works() -> None:
    writes = 0

    async def write(items: Sequence[int]) -> list[int]:
        nonlocal writes
        writes += 1
        if writes == 1:
            raise OSError("away")
        return list(items)

    batcher = Batcher(write)
    with pytest.raises(OSError, match="away"):
        await batcher.submit(1)

    assert await batcher.submit(2) == 2


async def test_a_write_that_answers_too_little_fails_instead_of_leaving_callers_waiting() -> None:
    async def write(items: Sequence[int]) -> list[int]:
        return []

    with pytest.raises(ValueError, match="shorter"):
        await asyncio.wait_for(Batcher(write).submit(1), 5)


async def test_too_many_waiting_items_are_refused_and_those_inside_are_kept() -> None:
    gate = Gate()
    batcher = Batcher(gate.write, max_waiting=2)
    kept = [batcher.put(1)]
    await gate.entered.wait()
    kept += [batcher.put(2), batcher.put(3)]

    with pytest.raises(QueueFull):
        await batcher.submit(4)

    gate.open.set()
    assert await asyncio.gather(*kept) == [10, 20, 30]


async def test_a_caller_that_gives_up_does_not_disturb_the_others() -> None:
    gate = Gate()
    batcher = Batcher(gate.write)
    first, second = batcher.put(1), batcher.put(2)
    await gate.entered.wait()
    first.cancel()

    gate.open.set()

    assert await second == 20
    assert await batcher.submit(3) == 30


async def test_drained_waits_for_the_write_under_way_and_for_all_that_wait() -> None:
    gate = Gate()
    batcher = Batcher(gate.write, max_batch=1)
    answers = [batcher.put(item) for item in (1, 2, 3)]
    draining = asyncio.create_task(batcher.drained())
    await gate.entered.wait()
    assert not draining.done()

    gate.open.set()
    await draining

    assert [answer.result() for answer in answers] == [10, 20, 30]
    assert len(batcher) == 0


async def test_a_stopped_writer_tells_the_callers_of_its_batch() -> None:
    gate = Gate()
    batcher = Batcher(gate.write)
    answer = batcher.put(1)
    await gate.entered.wait()
    assert batcher._writer is not None
    batcher._writer.cancel()

    with pytest.raises(RuntimeError, match="stopped"):
        await answer
    gate.open.set()
    assert await batcher.submit(2) == 20


async def test_a_batch_does_not_run_in_the_context_of_its_first_caller() -> None:
    seen: list[str] = []

    async def write(items: Sequence[int]) -> list[int]:
        seen.append(caller.get())
        return list(items)

    caller.set("the job that logged first")
    await Batcher(write).submit(1)

    assert seen == ["nobody"]
