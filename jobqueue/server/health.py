"""Whether this process lives, whether it can work, and its Prometheus metrics."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Request, Response, get
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from jobqueue.errors import Unavailable
from jobqueue.server.parts import Parts
from jobqueue.store.migrate import newest_revision
from jobqueue.store.stats import check_database, schema_revision
from jobqueue.telemetry import DB_POOL_SIZE, REDIS_POOL_CONNECTIONS

_READY_SECONDS = 2.0


@get("/health")
async def health() -> dict[str, str]:
    """Asks nobody: a database that is away is no reason to restart this process."""
    return {"status": "ok"}


@get("/health/ready")
async def ready(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
    """Tells whether the database can be reached and written, and has the schema this version needs."""
    parts: Parts = request.app.state.parts
    try:
        async with asyncio.timeout(_READY_SECONDS), parts.pool.use() as connection:
            version, is_read_only = await check_database(connection)
            revision = await schema_revision(connection)
    except (Unavailable, TimeoutError) as error:
        reason = str(error) or f"The database does not answer within {_READY_SECONDS:g} s."
        return _readiness(parts, False, {"database": "unavailable", "reason": reason})
    is_current = revision is not None and revision >= newest_revision()
    return _readiness(
        parts,
        is_current and not is_read_only,
        {
            "database": "read-only" if is_read_only else "ok",
            "database_version": version,
            "schema": "ok" if is_current else "outdated: run `jobqueue migrate`",
            "schema_revision": revision,
            "schema_needed": newest_revision(),
        },
    )


@get("/metrics")
async def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Metrics of this process in Prometheus's text format."""
    parts: Parts = request.app.state.parts
    DB_POOL_SIZE.set(parts.pool.stats().get("pool_size", 0))
    REDIS_POOL_CONNECTIONS.set(parts.redis.connection_count)
    return Response(generate_latest(), headers={"content-type": CONTENT_TYPE_LATEST})


def _readiness(parts: Parts, is_ready: bool, details: dict[str, Any]) -> Response[dict[str, Any]]:
    # Redis is shown but does not decide: everything works without it.
    body = {
        "status": "ready" if is_ready else "not ready",
        **details,
        "redis": "away" if parts.redis.is_away else "ok",
    }
    return Response(body, status_code=200 if is_ready else 503, headers={"cache-control": "no-store"})
