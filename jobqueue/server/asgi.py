"""Puts the API together: one ASGI application for a server such as uvicorn to run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State

from jobqueue.server import api, docs, health
from jobqueue.server.dashboard import routes
from jobqueue.server.dashboard.access import LoginNeededError
from jobqueue.server.dashboard.render import redirect
from jobqueue.server.edge import Edge
from jobqueue.server.parts import Parts
from jobqueue.server.problems import problem_for
from jobqueue.settings import Settings


def create_api(settings: Settings) -> Edge:
    """Return the ASGI application. Its lifespan opens and closes everything it needs."""
    parts = Parts(settings)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async with parts.opened():
            yield

    framework = Litestar(
        route_handlers=[
            api.build_router(),
            health.health,
            health.ready,
            health.metrics,
            *docs.HANDLERS,
            *routes.HANDLERS,
        ],
        lifespan=[lifespan],
        state=State({"parts": parts}),
        exception_handlers={Exception: _answer_error},
        openapi_config=None,  # ours is written by hand: it tells what the create route really checks
        logging_config=None,
        debug=False,
    )
    return Edge(parts, framework)


def _answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    request_id = request.scope["state"].get("request_id", "")
    if isinstance(error, LoginNeededError):
        return redirect(error.location)
    answer = problem_for(error, instance=request.scope["path"], request_id=request_id)
    shown = routes.answer_error(request, answer)
    if shown is not None:
        return shown
    headers = {name.decode(): value.decode("latin-1") for name, value in answer.headers}
    return Response(answer.body, status_code=answer.status, headers=headers, media_type=headers["content-type"])
