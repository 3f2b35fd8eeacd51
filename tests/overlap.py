"""Forcing and awaiting states in tests: nothing here sleeps and hopes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg

from jobqueue.store.db import Connection

Found = TypeVar("Found")
DEADLINE_SECONDS = 20.0


async def eventually(
    look: Callable[[], Awaitable[Found] | Found], what: str = "", seconds: float = DEADLINE_SECONDS
) -> Found:
    """Return the first true value of *look*, or fail after *seconds*."""
    end = time.monotonic() + seconds
    found = None
    while time.monotonic() < end:
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"did not happen within {seconds:g} s: {what or look}; last seen: {found!r}")


async def until_blocked(watcher: psycopg.Connection, blocked: Connection) -> None:
    """Wait until *blocked* really waits for a lock that another session holds."""
    pid = blocked.info.backend_pid

    def waits() -> bool:
        row = watcher.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchone()
        return bool(row and row[0])

    await eventually(waits, f"backend {pid} waits for a lock")
