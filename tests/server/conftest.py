"""The API, started with this test's servers, and clients for it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from jobqueue.server import create_api
from jobqueue.settings import Settings

StartApi = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    """Start and stop an ASGI application as a server would."""
    received: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    sent: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    task = asyncio.create_task(app(scope, received.get, sent.put))
    await received.put({"type": "lifespan.startup"})
    assert (await sent.get())["type"] == "lifespan.startup.complete"
    yield
    await received.put({"type": "lifespan.shutdown"})
    assert (await sent.get())["type"] == "lifespan.shutdown.complete"
    await task


@asynccontextmanager
async def started(settings: Settings, address: tuple[str, int] | None = ("127.0.0.1", 1234)) -> AsyncIterator[Any]:
    """A client of the API with these settings; *address* is where the client seems to come from."""
    app = create_api(settings)
    transport = httpx.ASGITransport(app=app, client=address, raise_app_exceptions=True)  # type: ignore[arg-type]
    async with lifespan(app), httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        client.app = app  # type: ignore[attr-defined]
        yield client


@pytest.fixture
async def api(settings: Settings, registry: dict[str, object]) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an API with the default settings of tests and the built-in job types."""
    async with started(settings) as client:
        yield client


@contextmanager
def served(settings: Settings, **config: Any) -> Iterator[str]:
    """The API under a real uvicorn in a thread; yields its base URL."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(
                create_api(settings),
                **{"loop": "uvloop", "http": "httptools", "log_config": None, "proxy_headers": False, **config},
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while thread.is_alive() and not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def frozen_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """A port nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
