"""The outermost layer: what every response has, whoever made it.

Adds the request id, the security headers and the CORS headers; answers CORS preflights and HEAD; sends creates
straight to ``create``, reads of one job straight to ``read`` and everything else to the framework.
"""

from __future__ import annotations

import os
import re
from typing import Any, cast

import structlog
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from jobqueue.server.create import PATH, answer_create
from jobqueue.server.parts import Parts
from jobqueue.server.problems import Answer, Headers
from jobqueue.server.read import PREFIX, answer_get
from jobqueue.server.reading import Disconnected, drain
from jobqueue.settings import split_list

_SANE_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_SECURITY: Headers = [(b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY")]
_EXPOSED = b"X-Request-ID, X-Idempotency-Replay, X-Idempotency-Mismatch, Location, Retry-After"
_PREFLIGHT: Headers = [
    (b"access-control-allow-methods", b"GET, HEAD, POST, OPTIONS"),
    (b"access-control-allow-headers", b"Content-Type, Idempotency-Key, X-Request-ID, Traceparent, Tracestate"),
    (b"access-control-max-age", b"600"),
]


class Edge:
    """The ASGI application that the server runs."""

    def __init__(self, parts: Parts, framework: ASGIApp) -> None:
        self._parts = parts
        self.framework = framework
        origins = split_list(parts.settings.cors_origins)
        self._allows_any = "*" in origins
        self._origins = frozenset(origin.rstrip("/").encode() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        kind: str = scope["type"]
        if kind == "http":
            await self._serve(cast("HTTPScope", scope), receive, send)
        else:
            await self.framework(scope, receive, send)

    async def _serve(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        request_id, origin = _find(scope["headers"])
        extra: Headers = [(b"x-request-id", request_id), *_SECURITY]
        if self._origins:
            extra += self._cors(origin)
        method = scope["method"]
        if method == "POST" and scope["path"] == PATH:
            try:
                answer = await answer_create(self._parts, scope, receive, request_id.decode())
            except Disconnected:
                return
            await _send_answer(answer, extra, receive, send)
        elif method == "GET" and _is_one_job(scope["path"]):
            answer = await answer_get(self._parts, scope["path"], request_id.decode())
            await _send_answer(answer, extra, receive, send)
        elif method == "OPTIONS" and origin and any(n == b"access-control-request-method" for n, _ in scope["headers"]):
            allowed = _PREFLIGHT if self._cors(origin)[1:] else []
            await _send_answer(Answer(204, list(allowed), b""), extra, receive, send)
        else:
            await self._through_framework(scope, receive, send, extra)

    def _cors(self, origin: bytes | None) -> Headers:
        """Return the CORS headers. Vary goes with every answer, or a cache would give one origin's to another."""
        if self._allows_any:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", _EXPOSED)]
        if origin is None or origin not in self._origins:
            return [(b"vary", b"Origin")]
        return [
            (b"vary", b"Origin"),
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
        ]

    async def _through_framework(self, scope: HTTPScope, receive: Receive, send: Send, extra: Headers) -> None:
        is_head = scope["method"] == "HEAD"
        inner: Any = dict(scope)
        if is_head:
            inner["method"] = "GET"
        request_id = extra[0][1].decode()
        inner["state"] = {**(scope.get("state") or {}), "request_id": request_id}

        async def decorated(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                names = {name.lower() for name, _ in own}
                message["headers"] = own + [pair for pair in extra if pair[0] not in names]
            elif is_head and message["type"] == "http.response.body":
                message["body"] = b""
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await self.framework(inner, receive, decorated)


def _is_one_job(path: str) -> bool:
    return path.startswith(PREFIX) and "/" not in path[len(PREFIX) :] and len(path) > len(PREFIX)


def _find(headers: Any) -> tuple[bytes, bytes | None]:
    """Return the request id (the client's, when it is sane) and the origin."""
    request_id = origin = None
    for name, value in headers:
        if name == b"x-request-id":
            request_id = value
        elif name == b"origin":
            origin = value
    if request_id is None or not _SANE_ID.fullmatch(request_id):
        request_id = os.urandom(12).hex().encode()
    return request_id, origin


async def _send_answer(answer: Answer, extra: Headers, receive: Receive, send: Send) -> None:
    headers: Any = answer.headers + extra
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if answer.must_drain:
        # The client can read the answer while we read the rest of what it is still sending.
        await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        await drain(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    else:
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})
