"""A client of the API that writes down every answer, as somebody whom the queue owes something would."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx


class Accepted(NamedTuple):
    """A job that the API said yes to."""

    job_id: str
    key: str | None
    status: int
    at: float


class Answer(NamedTuple):
    """One answer. *status* 0: none came."""

    route: str
    status: int
    at: float
    seconds: float


class Client:
    """Talks to the API at *base_url* (asked for anew each time: it moves when the API is started again)."""

    def __init__(self, base_url: Callable[[], str]) -> None:
        self._base_url = base_url
        self._http = httpx.AsyncClient(timeout=30, limits=httpx.Limits(max_connections=2_000))
        self.accepted: list[Accepted] = []
        self.answers: list[Answer] = []
        self.cancels: dict[str, list[int]] = {}

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def request(self, method: str, path: str, route: str = "", **options: Any) -> httpx.Response | None:
        """Return the answer, or None when none came."""
        started = time.monotonic()
        try:
            response = await self._http.request(method, self._base_url() + path, **options)
        except httpx.HTTPError:
            response = None
        now = time.monotonic()
        self.answers.append(
            Answer(route or f"{method} {path}", response.status_code if response else 0, now, now - started)
        )
        return response

    async def create(self, payload: dict[str, Any], *, key: str | None = None, **fields: Any) -> str | None:
        """Create one job; the answer's id, or None when it was not accepted."""
        body = {"type": "probe", "payload": payload, **({"idempotency_key": key} if key else {}), **fields}
        response = await self.request("POST", "/api/v1/jobs", "create", json=body)
        if response is None or response.status_code not in {200, 201}:
            return None
        job_id: str = response.json()["id"]
        self.accepted.append(Accepted(job_id, key, response.status_code, time.monotonic()))
        return job_id

    async def insist(self, payload: dict[str, Any], *, key: str, seconds: float = 60, **fields: Any) -> str:
        """Create one job, again and again with the same key until it is accepted."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            job_id = await self.create(payload, key=key, **fields)
            if job_id is not None:
                return job_id
            await asyncio.sleep(0.1)
        raise AssertionError(f"{key} was not accepted within {seconds:g} s")

    async def cancel(self, job_id: str) -> int:
        """Cancel a job; the status of the answer."""
        response = await self.request("POST", f"/api/v1/jobs/{job_id}/cancel", "cancel")
        status = response.status_code if response else 0
        self.cancels.setdefault(job_id, []).append(status)
        return status
