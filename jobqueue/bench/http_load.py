"""A load generator for HTTP: keep-alive connections that send the next request when an answer is complete.

Runs as a process of its own: ``python -m jobqueue.bench.http_load`` with a :class:`Load` as JSON on standard input.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import cast

import msgspec

BODY = b'{"type":"bench_noop","payload":{"to":"ann@example.com"}}'


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask for: *connections* at once, for *seconds*."""

    port: int
    connections: int
    seconds: float
    path: str
    method: str = "GET"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came back: answers a second, and the milliseconds that half and 95 of a hundred answers took at most."""

    rate: float
    p50_ms: float
    p95_ms: float
    errors: int


def run_load(load: Load) -> Report:
    """Run a load in a process of its own.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "jobqueue.bench.http_load"],
        input=msgspec.json.encode(load),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Report)


class _Client(asyncio.Protocol):
    def __init__(self, request: bytes, took: list[float], ended: asyncio.Event) -> None:
        self._request = request
        self._took = took
        self._ended = ended
        self._buffer = b""
        self._missing = -1
        self._sent_at = 0.0
        self.errors = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._missing < 0:
            head, separator, body = self._buffer.partition(b"\r\n\r\n")
            if not separator:
                return
            self.errors += not head.startswith((b"HTTP/1.1 20",))
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            self._missing, self._buffer = int(length.partition(b":")[2]), body
        if len(self._buffer) >= self._missing:
            self._took.append(time.perf_counter() - self._sent_at)
            self._buffer, self._missing = b"", -1
            if not self._ended.is_set():
                self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.errors += not self._ended.is_set()


async def _run(load: Load) -> Report:
    loop, took, ended = asyncio.get_running_loop(), list[float](), asyncio.Event()
    head = f"{load.method} {load.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    request = head.encode() + b"\r\n"
    if load.method == "POST":
        request = f"{head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    pairs = [
        await loop.create_connection(lambda: _Client(request, took, ended), "127.0.0.1", load.port)
        for _ in range(load.connections)
    ]
    await asyncio.sleep(0.3)  # connections are made and caches filled
    took.clear()
    started = time.perf_counter()
    await asyncio.sleep(load.seconds)
    rate, waited = len(took) / (time.perf_counter() - started), sorted(took)
    ended.set()
    for transport, _ in pairs:
        transport.close()
    if not waited:
        return Report(rate=0.0, p50_ms=0.0, p95_ms=0.0, errors=load.connections)
    return Report(
        rate=rate,
        p50_ms=waited[len(waited) // 2] * 1000,
        p95_ms=waited[int(len(waited) * 0.95)] * 1000,
        errors=sum(client.errors for _, client in pairs),
    )


def main() -> None:
    """Run the load that standard input describes, and print the report as JSON."""
    import uvloop

    load = msgspec.json.decode(sys.stdin.buffer.read(), type=Load)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_run(load))))


if __name__ == "__main__":
    main()
