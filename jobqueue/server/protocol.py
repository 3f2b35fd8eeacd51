"""HTTP/1.1 with bounds: uvicorn's protocol waits for ever for a head that trickles in and a client that does not read.

The bounds are those of common proxies: nginx and HAProxy allow a head 10 to 60 s and 8 to 64 KB.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from jobqueue.server.problems import HttpProblem, problem_for

HEAD_SECONDS = 10.0
HEAD_BYTES = 65_536
HEAD_FIELDS = 200
UNREAD_SECONDS = 30.0
AHEAD_REQUESTS = 1_000
MAX_CONNECTIONS = 10_000
_OTHER_FILES = 128  # files and connections of the process that are not clients


def max_connections() -> int:
    """Return how many clients may be connected at once, after raising the process's limit of open files to allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + _OTHER_FILES
    if soft < wanted and soft != resource.RLIM_INFINITY:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MAX_CONNECTIONS, soft - _OTHER_FILES))


class BoundedProtocol(HttpToolsProtocol):
    """One client's connection.

    A head that is not complete *HEAD_SECONDS* after the connection or its first byte is answered 408, one larger than
    *HEAD_BYTES* or of more than *HEAD_FIELDS* fields 431, a client beyond *limit* 503; each closes the connection. So
    do an answer of which the client takes nothing for *UNREAD_SECONDS*, and *AHEAD_REQUESTS* sent before their answers.
    """

    limit = MAX_CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._is_in_head = True
        self._head_bytes = 0
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the parent does
        """Take a new client."""
        super().connection_made(transport)
        if len(self.connections) > self.limit:
            self._refuse(503, "Too many clients are connected.", {"retry-after": "1"})
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._stop_timers()
        self._end_answer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        if self.transport.is_closing():
            return
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._timer is None and (self.cycle is None or self.cycle.response_complete):
                self._await_head()
        super().data_received(data)
        if self._is_in_head and self._head_bytes > HEAD_BYTES:
            self._refuse(431, f"The head of the request is larger than {HEAD_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        """Check the head, then let the request go on."""
        self._is_in_head = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if len(self.headers) > HEAD_FIELDS:
            self._refuse(431, f"The request has more than {HEAD_FIELDS} header fields.")
        elif self._head_bytes > HEAD_BYTES and self._size_of_head() > HEAD_BYTES:
            self._refuse(431, f"The head of the request is larger than {HEAD_BYTES} bytes.")
        elif len(self.pipeline) >= AHEAD_REQUESTS:
            self._give_up()
        else:
            if self.client is not None:
                # Behind a trusted proxy the server replaces scope["client"] by the proxy's word.
                self.scope["state"]["peer"] = self.client[0]
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body of a request that was not refused."""
        if self.cycle is not None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of a request; a head comes next."""
        self._is_in_head = True
        self._head_bytes = 0
        if self.cycle is not None:
            super().on_message_complete()

    def pause_writing(self) -> None:
        """Stop writing to a client that does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self._give_up)

    def resume_writing(self) -> None:
        """Go on writing."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self._refuse(400, msg)

    def on_response_complete(self) -> None:
        """Go on with the requests that were sent ahead, and read more only when none is left."""
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _end_answer(self) -> None:
        """Let the request that is being answered know that nobody listens; the parent tells the latest one only."""
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def _give_up(self) -> None:
        self._end_answer()
        self.flow.resume_writing()
        self.transport.abort()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _head_is_late(self) -> None:
        self._refuse(408, f"The head of the request did not arrive within {HEAD_SECONDS:g} seconds.")

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _refuse(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        self._stop_timers()
        if self.transport.is_closing():
            return
        problem = HttpProblem(status, detail, {**(headers or {}), "connection": "close"})
        answer = problem_for(problem, instance="", request_id="")
        lines = [b"HTTP/1.1 %d" % status, *(name + b": " + value for name, value in answer.headers)]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + answer.body)
        self.transport.close()

    def _stop_timers(self) -> None:
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()
        self._timer = self._unread = None
