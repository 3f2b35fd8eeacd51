"""Reading a request's body: bounded in size and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from litestar.types import Receive

from jobqueue.batch import QueueFull
from jobqueue.server.admission import Hold
from jobqueue.server.problems import HttpProblem

BODY_TIMEOUT_SECONDS = 30.0
_DRAIN_SECONDS = 2.0
_DRAIN_BYTES = 16 * 1024 * 1024


class Disconnected(Exception):
    """The client went away before its request was complete."""


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    hold: Hold,
    max_bytes: int,
    *,
    timeout: float = BODY_TIMEOUT_SECONDS,
) -> bytes:
    """Return the whole body, which *hold* then holds.

    Raises:
        HttpProblem: 413 when it is larger than *max_bytes*, 408 when it takes longer than *timeout* seconds, 503 when
            too much is held to read all of it.
        QueueFull: too much is held to keep it.
        Disconnected: the client went away.
    """
    declared = headers.get(b"content-length")
    if declared is not None and declared.isdigit() and int(declared[:20]) > max_bytes:
        # A client that asked for leave to send (Expect: 100-continue) sends nothing after this answer.
        raise _too_large(max_bytes, must_drain=b"expect" not in headers)
    try:
        async with asyncio.timeout(timeout):
            message: Any = await receive()
            body: bytes = message.get("body", b"")
            if message["type"] == "http.request" and not message.get("more_body"):
                if len(body) > max_bytes:
                    raise _too_large(max_bytes, must_drain=False)
                hold.add(len(body))
                return body
            return await _read_rest(message, receive, hold, max_bytes)
    except TimeoutError:
        raise HttpProblem(
            408, f"The body did not arrive within {timeout:g} seconds.", {"connection": "close"}
        ) from None


async def drain(receive: Receive) -> None:
    """Read on to the end of a body nobody wants, within limits.

    Closing a connection with unread data makes the client lose the answer that says why.
    """
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while size < _DRAIN_BYTES:
                message: Any = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
                size += len(message.get("body", b""))


async def _read_rest(message: Any, receive: Receive, hold: Hold, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise Disconnected
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes, must_drain=bool(message.get("more_body")))
        is_last = not message.get("more_body")
        try:
            hold.add(len(part))
        except QueueFull:
            headers = {"retry-after": "1", "connection": "close"}
            raise HttpProblem(503, "Too many request bodies are being read.", headers, must_drain=not is_last) from None
        parts.append(part)
        if is_last:
            return b"".join(parts)
        message = await receive()


def _too_large(max_bytes: int, *, must_drain: bool) -> HttpProblem:
    return HttpProblem(
        413,
        f"The body is larger than the {max_bytes} bytes that are allowed (REQUEST_MAX_BYTES).",
        {"connection": "close"},
        must_drain=must_drain,
    )
