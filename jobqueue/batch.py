"""Work that is gathered but never delayed.

While one write is under way the next items queue up; when it ends they go together in one call. An item
that arrives while nothing is being written goes at once, alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class QueueFull(Exception):
    """Too many items wait to be written."""


class Batcher(Generic[Item, Answer]):
    """Gathers the items of concurrent callers into calls of *write*.

    *write* takes up to *max_batch* items and returns one answer per item, in order; an answer that is an
    exception is raised in its caller. An exception out of *write* itself is raised in all of them. At most
    *max_waiting* items wait; more raise :class:`QueueFull`.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        *,
        max_batch: int = 200,
        max_waiting: int = 10_000,
    ) -> None:
        self._write = write
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._writer: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def submit(self, item: Item) -> Answer:
        """Write *item* with whatever waits beside it, and return its answer.

        Raises:
            QueueFull: *max_waiting* items wait already; nothing was taken.
        """
        return await self.put(item)

    def put(self, item: Item) -> asyncio.Future[Answer]:
        """As :meth:`submit`, for callers that do not wait; returns the answer's future."""
        if len(self._waiting) >= self._max_waiting:
            raise QueueFull
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._writer is None or self._writer.done():
            # A batch belongs to no caller, so it must not log or trace as the first one.
            self._writer = asyncio.create_task(self._run(), name="batch-writer", context=Context())
        return answer

    async def drained(self) -> None:
        """Wait until nothing waits and nothing is being written."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait({self._writer})

    async def _run(self) -> None:
        while self._waiting:
            size = min(len(self._waiting), self._max_batch)
            batch = [self._waiting.popleft() for _ in range(size)]
            try:
                answers = await self._write([item for item, _ in batch])
                answered = list(zip(batch, answers, strict=True))
            except BaseException as error:
                reason = error if isinstance(error, Exception) else RuntimeError("the writer was stopped")
                for _, future in batch:
                    if not future.done():
                        future.set_exception(reason)
                if not isinstance(error, Exception):
                    raise
                continue
            for (_, future), answer in answered:
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
