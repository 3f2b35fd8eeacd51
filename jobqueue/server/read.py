"""``GET /api/v1/jobs/{id}``, straight on ASGI like creates, for the same reason.

The jobs that concurrent requests ask for are read together, on one connection: a statement per request costs several
times as much in Python as in PostgreSQL.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from jobqueue.batch import Batcher
from jobqueue.errors import NotFound, Unavailable
from jobqueue.job import JobWithLogs
from jobqueue.server.problems import Answer, problem_for
from jobqueue.server.query import parse_job_id
from jobqueue.settings import Settings
from jobqueue.store.db import Line
from jobqueue.store.jobs import get_jobs_with_logs

if TYPE_CHECKING:
    from jobqueue.server.parts import Parts

PREFIX = "/api/v1/jobs/"
_MAX_BATCH = 50  # a job may come with a thousand lines
_QUICKLY_SECONDS = 1.0
_JSON = (b"content-type", b"application/json")
_NO_STORE = (b"cache-control", b"no-store")
_encode = msgspec.json.Encoder().encode


class JobReader:
    """Reads jobs with their logs. Opens its connection when it is needed; close it at the end."""

    def __init__(self, settings: Settings) -> None:
        self._timeout_seconds = settings.database_timeout_seconds
        self._line = Line(settings, "api-read")
        self._reads: Batcher[UUID, JobWithLogs] = Batcher(self._read, max_batch=_MAX_BATCH)

    async def get(self, job_id: UUID) -> JobWithLogs:
        """Return one job.

        Raises:
            NotFound: there is no such job.
            Unavailable: the database does not answer.
            QueueFull: far too many requests wait.
        """
        return await self._reads.put(job_id)

    async def close(self) -> None:
        """Close the connection."""
        await self._reads.drained()
        await self._line.close()

    async def _read(self, job_ids: Sequence[UUID]) -> list[JobWithLogs | Exception]:
        started_at = time.monotonic()
        try:
            found = await self._fetch(job_ids)
        except Unavailable:
            if time.monotonic() - started_at > _QUICKLY_SECONDS:
                raise
            found = await self._fetch(job_ids)  # the connection was from before a restart of the server
        return [found.get(job_id) or NotFound(f"There is no job {job_id}.") for job_id in job_ids]

    async def _fetch(self, job_ids: Sequence[UUID]) -> dict[UUID, JobWithLogs]:
        async with self._line.use() as connection:
            return await get_jobs_with_logs(connection, job_ids, timeout=self._timeout_seconds)


async def answer_get(parts: Parts, path: str, request_id: str) -> Answer:
    """Return the answer to a request for one job; errors are answers too."""
    try:
        job = await parts.reader.get(parse_job_id(path.removeprefix(PREFIX)))
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, the client gets an answer and the log the reason
        return problem_for(error, instance=path, request_id=request_id)
    body = _encode(job)
    return Answer(200, [_JSON, (b"content-length", b"%d" % len(body)), _NO_STORE], body)
