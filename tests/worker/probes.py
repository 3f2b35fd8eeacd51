"""Executors that do what real ones do at their worst. Each start and end is noted in a file outside the queue."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from jobqueue.errors import GiveUp, RetryLater
from jobqueue.executors import BaseExecutor

log = logging.getLogger("probe")
released = threading.Event()
"""Set by a test to let executors go that wait for it, whatever they were told before."""


class Bare(BaseException):
    """Not an Exception."""


class Mute(Exception):
    """Its message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


class MuteGiveUp(GiveUp):
    """A signal whose message cannot be read."""

    def __str__(self) -> str:
        raise SystemExit(1)


class EmptyRetryLater(RetryLater):
    """A signal that was never set up."""

    def __init__(self) -> None:
        Exception.__init__(self, "later")


class OddNumber(int):
    """A number that JSON encoders refuse."""


def raising(error: BaseException) -> Callable[[], Any]:
    """Return a function that raises."""

    def end() -> Any:
        raise error

    return end


def deep(levels: int) -> Any:
    """Return nested lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def circular() -> Any:
    """Return a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


ENDS: dict[str, tuple[Callable[[], Any], str]] = {
    "exit": (raising(SystemExit(3)), "SystemExit: 3"),
    "interrupt": (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
    "cancelled": (raising(asyncio.CancelledError()), "CancelledError"),
    "bare": (raising(Bare("bare")), "Bare: bare"),
    "generator exit": (raising(GeneratorExit()), "GeneratorExit"),
    "stop iteration": (raising(StopIteration("x")), "StopIteration"),
    "timeout of its own": (raising(TimeoutError("upstream")), "TimeoutError: upstream"),
    "mute": (raising(Mute()), "Mute: (its message could not be read)"),
    "nul": (raising(ValueError("a\x00b")), "ValueError: a\ufffdb"),
    "surrogate": (raising(ValueError("a\ud800b")), "ValueError: a\ufffdb"),
    "5 MB": (raising(ValueError("x" * 5_000_000)), "ValueError: xxx"),
    "several lines": (raising(ValueError("one\ntwo")), "ValueError: one\ntwo"),
    "own decode error": (raising(msgspec.DecodeError("upstream")), "DecodeError: upstream"),
    "mute give up": (raising(MuteGiveUp()), "(its message could not be read)"),
    "retry at nan": (raising(RetryLater(math.nan, "later")), "later"),
    "empty retry": (raising(EmptyRetryLater()), "later"),
    "set": (lambda: {1}, "The result cannot be stored: result is a set"),
    "nan": (lambda: {"x": math.nan}, "The result cannot be stored: result.x is nan"),
    "nul result": (lambda: {"x": "\x00"}, "The result cannot be stored: result.x holds a NUL"),
    "nul key": (lambda: {"\x00": 1}, "The result cannot be stored: a key of result holds a NUL"),
    "surrogate result": (lambda: ["\udc00"], "The result cannot be stored: result[0] holds half a surrogate"),
    "datetime": (lambda: datetime.now(UTC), "The result cannot be stored: result is a datetime"),
    "bytes": (lambda: b"x", "The result cannot be stored: result is a bytes"),
    "20 MB": (lambda: "x" * 20_000_000, "The result cannot be stored: it has 20000002 bytes"),
    "deep": (lambda: deep(100), "The result cannot be stored: result"),
    "circular": (circular, "The result cannot be stored: result"),
    "odd number": (lambda: OddNumber(1), "The result cannot be stored: TypeError"),
    "5 000 digits": (lambda: 10**5_000, "The result cannot be stored: ValueError"),
}
"""How an executor may end, and how the error of its job begins."""


def note(payload: dict[str, Any], word: str) -> None:
    """Append a line to the ledger, in one write."""
    if path := payload.get("ledger"):
        line = f"{word} {payload.get('name', '-')} {os.getpid()} {time.monotonic()}\n"
        with Path(path).open("a", buffering=1) as ledger:
            ledger.write(line)


class Probe(BaseExecutor):
    """Does what ``payload.do`` says, on the event loop."""

    async def execute(self, job_id: str, payload: dict[str, Any]) -> Any:
        """Note the start, do it, note the end."""
        note(payload, "start")
        result = await getattr(self, payload.get("do", "nothing"))(payload)
        note(payload, "end")
        return result

    async def nothing(self, payload: dict[str, Any]) -> Any:
        return payload.get("name")

    async def end(self, payload: dict[str, Any]) -> Any:
        return ENDS[payload["end"]][0]()

    async def sleep(self, payload: dict[str, Any]) -> Any:
        await asyncio.sleep(payload["seconds"])

    async def block(self, payload: dict[str, Any]) -> Any:
        time.sleep(payload["seconds"])  # noqa: ASYNC251  the mistake this is about

    async def wait_for_file(self, payload: dict[str, Any]) -> Any:
        path = Path(payload["path"].replace("PID", str(os.getpid())))
        while not path.exists():  # noqa: ASYNC110, ASYNC240  the signal comes from another process
            await asyncio.sleep(0.02)
        return os.getpid()

    async def meet(self, payload: dict[str, Any]) -> Any:
        Path(payload["mine"]).touch()  # noqa: ASYNC240  a file in a test
        return await self.wait_for_file(payload)

    async def stubborn(self, payload: dict[str, Any]) -> Any:
        while not released.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                note(payload, "ignored")
        return "kept going"

    async def late_result(self, payload: dict[str, Any]) -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note(payload, "told")
        return "too late"

    async def kill(self, payload: dict[str, Any]) -> Any:
        os._exit(137)

    async def fail_once(self, payload: dict[str, Any]) -> Any:
        marker = Path(payload["path"])
        await asyncio.sleep(payload.get("seconds", 0))
        if not marker.exists():  # noqa: ASYNC240  a file in a test
            marker.touch()  # noqa: ASYNC240  as above
            raise RetryLater(payload["delay"], "not yet")
        return "second time"

    async def talk(self, payload: dict[str, Any]) -> Any:
        talk(payload)
        await asyncio.to_thread(log.warning, "from a helper thread")


class ThreadProbe(BaseExecutor):
    """Does what ``payload.do`` says, in a thread."""

    def execute(self, job_id: str, payload: dict[str, Any]) -> Any:
        """Note the start, do it, note the end."""
        note(payload, "start")
        result = getattr(self, payload.get("do", "nothing"))(payload)
        note(payload, "end")
        return result

    def nothing(self, payload: dict[str, Any]) -> Any:
        return payload.get("name")

    def end(self, payload: dict[str, Any]) -> Any:
        return ENDS[payload["end"]][0]()

    def stubborn(self, payload: dict[str, Any]) -> Any:
        released.wait()
        return "kept going"

    def talk(self, payload: dict[str, Any]) -> Any:
        talk(payload)


def talk(payload: dict[str, Any]) -> None:
    """Log lines of all kinds."""
    for number in range(payload.get("lines", 3)):
        log.warning("line %d", number)
    log.error("a NUL \x00")
    if payload.get("malformed"):  # only in a process of its own: pytest's capture refuses such lines
        log.error("half a pair \ud800")
        log.warning("%d is not a number", "this")


class ShortProbe(Probe):
    """The same, with a second's time."""

    max_execution_seconds: ClassVar[float | None] = 1


class ShortThreadProbe(ThreadProbe):
    """The same, with a second's time."""

    max_execution_seconds: ClassVar[float | None] = 1


class Order(msgspec.Struct):
    """A typed payload."""

    amount: int


class TypedProbe(BaseExecutor):
    """Takes typed payloads only."""

    async def execute(self, job_id: str, payload: Order) -> Any:
        """Return what it got."""
        return payload.amount


PROBES: dict[str, BaseExecutor] = {
    "probe": Probe(),
    "thread_probe": ThreadProbe(),
    "short_probe": ShortProbe(),
    "short_thread_probe": ShortThreadProbe(),
    "typed_probe": TypedProbe(),
}
