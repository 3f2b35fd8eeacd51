"""The API's description: ``/openapi.json``, and Swagger UI at ``/docs`` from files of our own."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler

from jobqueue.assets import folder
from jobqueue.errors import Unavailable
from jobqueue.server.openapi import build_document
from jobqueue.server.parts import Parts
from jobqueue.server.problems import HttpProblem

_FILES = {
    "index.html": "text/html; charset=utf-8",
    "init.js": "text/javascript; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
# Swagger UI draws with data: images and sets style attributes; it needs no inline script and no other host.
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@get("/docs")
async def page() -> Response[bytes]:
    """The page of the API's description."""
    return _file("index.html")


@get("/docs/{name:str}")
async def asset(request: Request[Any, Any, Any]) -> Response[bytes]:
    """A file of that page."""
    name: str = request.path_params["name"]
    if name not in _FILES or name == "index.html":
        raise HttpProblem(404, f"There is no file {name[:100]!r} here.")
    return _file(name)


@get("/openapi.json")
async def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The description as OpenAPI 3.1, built when asked for, so that new job types are in it at once."""
    parts: Parts = request.app.state.parts
    with suppress(Unavailable):  # the types this process knows are worth showing
        await parts.known.refresh()
    document = build_document(parts.settings, parts.known.types(), list(parts.known.queues()))
    return Response(msgspec.json.encode(document), media_type="application/json", headers={"cache-control": "no-store"})


HANDLERS: list[HTTPRouteHandler] = [page, asset, openapi]


def _file(name: str) -> Response[bytes]:
    headers = {"content-security-policy": _CSP, "cache-control": "public, max-age=3600"}
    return Response(_content(name), media_type=_FILES[name], headers=headers)


@cache
def _content(name: str) -> bytes:
    return (folder("web") / "static" / "docs" / name).read_bytes()
