"""The yardsticks of the HTTP cases, one per process: ``python -m jobqueue.bench.http_bare PORT KIND``.

``empty`` is a handler of the web framework that decodes a create's body and encodes a job, and does nothing else.
``single`` writes each create in a transaction of its own, through a pool, as most services do. Both run on the server
and with the settings that the API uses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar, Request, Response, get, post
from psycopg_pool import AsyncConnectionPool

from jobqueue.store.client import new_job

_JOB = {
    "id": "01a23002-5106-7fb1-ac7d-3310104a8358",
    "type": "bench_noop",
    "payload": {"to": "ann@example.com"},
    "priority": "medium",
    "status": "queued",
    "idempotency_key": None,
    "attempts": 0,
    "max_attempts": 5,
    "next_retry_at": None,
    "created_at": "2026-12-01T05:09:47.917771Z",
    "started_at": None,
    "completed_at": None,
    "error": None,
    "result": None,
    "queue": "default",
    "next_run_at": "2026-12-01T05:09:47.917771Z",
}
_INSERT = "INSERT INTO jobs (id, type, payload) VALUES (%s, %s, %s) RETURNING created_at, next_run_at"


def _answer(status: int) -> Response[bytes]:
    return Response(msgspec.json.encode(_JOB), status_code=status, media_type="application/json")


@post("/api/v1/jobs")
async def create_nothing(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Decode the body, encode a job."""
    msgspec.json.decode(await request.body())
    return _answer(201)


@get("/api/v1/jobs/{job_id:str}")
async def get_nothing(job_id: str) -> Response[bytes]:
    """Encode a job."""
    return _answer(200 if job_id else 404)


def single_app(url: str) -> Litestar:
    """Return an app that writes one job per transaction."""
    pool = AsyncConnectionPool(url, min_size=8, max_size=8, open=False)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async with pool:
            yield

    @post("/api/v1/jobs")
    async def create_one(request: Request[Any, Any, Any]) -> Response[bytes]:
        body = msgspec.json.decode(await request.body())
        job = new_job(body["type"], body["payload"])
        async with pool.connection() as connection:
            await connection.execute(_INSERT, (job.id, body["type"], job.payload.decode()), prepare=True)
        return _answer(201)

    return Litestar([create_one], lifespan=[lifespan], logging_config=None, openapi_config=None)


def main(port: int, kind: str) -> None:
    """Serve one of the yardsticks."""
    if kind == "single":
        app = single_app(os.environ["DATABASE_URL"])
    else:
        app = Litestar([create_nothing, get_nothing], logging_config=None, openapi_config=None)
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=2048,
    )
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
