"""A wire between a worker and PostgreSQL that a test can cut, freeze, or rob of its answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from jobqueue.settings import Settings


class Proxy:
    """Forwards connections to the server of *url*."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        self._host = query["host"][0]
        self._port = int(query["port"][0])
        self._database = parts.path
        self._user = parts.netloc.rpartition("@")[0]
        self._served: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.delay_seconds: Callable[[], float] | None = None
        self._drop_after: str | None = None
        self._server: asyncio.Server | None = None
        self._listening_on = 0
        self.dropped = asyncio.Event()

    async def open(self) -> None:
        """Listen; at the second time on the same port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._listening_on)
        self._listening_on = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuse connections and reset those that exist."""
        assert self._server is not None
        self._server.close()
        self._reset()

    async def close(self) -> None:
        """Cut everything and wait until nothing of it runs."""
        self.thaw()
        await self.cut()
        await asyncio.gather(*self._served, return_exceptions=True)

    def freeze(self) -> None:
        """Keep connections, pass nothing on."""
        self._flowing.clear()

    def forget_existing(self) -> None:
        """Pass nothing on for connections that exist now, as a firewall does that forgot them; new ones work."""
        self._flowing.clear()
        self._flowing = asyncio.Event()
        self._flowing.set()

    def thaw(self) -> None:
        """Pass everything on again."""
        self._flowing.set()

    def drop_answer_to(self, name: str) -> None:
        """Let the next run of statement *name* through, and cut its connection instead of passing the answer on.

        Only a run on a connection that has not run it before is recognised.
        """
        self._drop_after = name
        self.dropped.clear()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 that it listens on."""
        return self._listening_on

    @property
    def url(self) -> str:
        """The database through this proxy."""
        return f"postgresql://{self._user}@127.0.0.1:{self._listening_on}{self._database}?sslmode=disable"

    def _reset(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        try:
            if self._host.startswith("/"):
                path = f"{self._host}/.s.PGSQL.{self._port}"
                server_reader, server_writer = await asyncio.open_unix_connection(path)
            else:
                server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        robbed, flowing = asyncio.Event(), self._flowing
        self._writers |= {writer, server_writer}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, server_writer, flowing, robbed, is_request=True))
                both.create_task(self._pump(server_reader, writer, flowing, robbed, is_request=False))
        except* (OSError, EOFError):
            pass
        finally:
            for side in (writer, server_writer):
                side.transport.abort()
            self._writers -= {writer, server_writer}

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        flowing: asyncio.Event,
        robbed: asyncio.Event,
        *,
        is_request: bool,
    ) -> None:
        prepared: bytes | None = None
        while data := await source.read(65_536):
            await flowing.wait()
            if self.delay_seconds is not None:
                await asyncio.sleep(self.delay_seconds())
            if is_request and self._drop_after is not None:
                if prepared is not None and b"\x00" + prepared + b"\x00" in data:
                    self._drop_after = None
                    robbed.set()
                elif match := re.search(rb"(_pg3_\w+)\x00/\* %b \*/" % self._drop_after.encode(), data):
                    prepared = match.group(1)
            elif not is_request and robbed.is_set():
                self.dropped.set()
                break
            target.write(data)
            await target.drain()
        raise EOFError


@asynccontextmanager
async def proxied(settings: Settings) -> AsyncIterator[Proxy]:
    """Open a proxy in front of the database of *settings*."""
    proxy = Proxy(settings.database_url)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()
