"""The handlers of ``/api/v1``, in the order of the README's table."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from litestar import Request, Response, Router, get, post

from jobqueue.errors import InvalidInput
from jobqueue.job import JobFilter
from jobqueue.safejson import clean_text
from jobqueue.server.body import shown
from jobqueue.server.create import answer_create
from jobqueue.server.parts import Parts
from jobqueue.server.problems import Answer
from jobqueue.server.query import parse_job_id, parse_list_query
from jobqueue.server.read import answer_get
from jobqueue.store.jobs import cancel_job, has_job_of_type, list_jobs
from jobqueue.telemetry import JOBS_CANCELLED

log = structlog.get_logger(__name__)

_encode = msgspec.json.Encoder().encode


@post("/jobs")
async def create(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Stands in for the route in front of the framework, so that the framework knows of it."""
    request_id = request.scope["state"].get("request_id", "")
    return _response(await answer_create(_parts(request), request.scope, request.receive, request_id))


@get("/jobs")
async def list_all(request: Request[Any, Any, Any]) -> Response[bytes]:
    """A page of jobs, newest first, with the exact number of all that match."""
    parts = _parts(request)
    query = parse_list_query(request.scope["query_string"])
    if query.wanted.type is not None:
        await _require_known_type(parts, query.wanted)
    async with parts.pool.use() as connection:
        items, total = await list_jobs(connection, query.wanted, page=query.page, page_size=query.page_size)
    return _json({"items": items, "total": total, "page": query.page, "page_size": query.page_size})


@get("/jobs/{job_id:str}")
async def get_one(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Stands in for the route in front of the framework; answers HEAD."""
    request_id = request.scope["state"].get("request_id", "")
    return _response(await answer_get(_parts(request), request.scope["path"], request_id))


@post("/jobs/{job_id:str}/cancel", status_code=200)
async def cancel(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Cancels a queued or processing job."""
    wanted = parse_job_id(request.path_params["job_id"])
    client = request.scope.get("client")
    actor = f"API client {clean_text(client[0], 60)}" if client else "API client on a local socket"
    async with _parts(request).pool.use() as connection:
        job = await cancel_job(connection, wanted, actor=actor)
    JOBS_CANCELLED.inc()
    log.info("job_cancelled", job_id=str(wanted))
    return _json(job)


@get("/metrics")
async def figures(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Jobs by status, mean processing time, queue depths."""
    return _json(await _parts(request).figures.get())


def build_router() -> Router:
    """Return the routes of the API."""
    return Router("/api/v1", route_handlers=[create, list_all, get_one, cancel, figures])


async def _require_known_type(parts: Parts, wanted: JobFilter) -> None:
    """A type is known while it is registered or any job has it."""
    name = str(wanted.type)
    if await parts.known.has_type(name):
        return
    async with parts.pool.use() as connection:
        if not await has_job_of_type(connection, name):
            known = ", ".join(list(parts.known.types())[:50])
            raise InvalidInput("type", f"type is {shown(name)}, which no job has: use one of {known}")


def _parts(request: Request[Any, Any, Any]) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


def _response(answer: Answer) -> Response[bytes]:
    headers = {name.decode(): value.decode("latin-1") for name, value in answer.headers}
    return Response(answer.body, status_code=answer.status, headers=headers, media_type=headers["content-type"])


def _json(value: object) -> Response[bytes]:
    return Response(_encode(value), media_type="application/json", headers={"cache-control": "no-store"})
