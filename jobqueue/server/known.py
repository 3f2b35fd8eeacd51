"""The job types and queues that exist, kept at hand.

A name that is not at hand is looked up at once, so that a type another process has just registered is valid
here too. All look-ups of one moment share one query, and there is never more than one under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from jobqueue.batch import Batcher
from jobqueue.errors import InvalidInput, Unavailable
from jobqueue.executors import EXECUTOR_REGISTRY, payload_schema
from jobqueue.server.body import shown
from jobqueue.store.catalog import JobType, list_job_types, list_queues, register_job_types
from jobqueue.store.db import Pool

log = structlog.get_logger(__name__)

_REFRESH_SECONDS = 10.0
_MAX_LISTED = 50


class Known:
    """Job types (this process's registry and the table ``job_types``) and queues."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._types: dict[str, JobType] = {}
        self._queues: dict[str, str] = {"default": "priority"}
        self._announced: set[str] = set()
        self._lookups: Batcher[None, None] = Batcher(self._look_up, max_batch=10_000)

    def types(self) -> dict[str, JobType]:
        """Return the types at hand by name, this process's own last word first."""
        own = {name: _own_type(name) for name in list(EXECUTOR_REGISTRY)}
        return dict(sorted({**self._types, **own}.items()))

    def queues(self) -> dict[str, str]:
        """Return the queues at hand: name → lane."""
        return self._queues

    async def has_type(self, name: str) -> bool:
        """Tell whether a job type is registered anywhere.

        Raises:
            Unavailable: it is not at hand and the database does not answer.
        """
        if name in EXECUTOR_REGISTRY or name in self._types:
            return True
        await self.refresh()
        return name in self._types

    async def require_type(self, name: str) -> None:
        """Raise InvalidInput when no process has registered this job type; Unavailable as :meth:`has_type`."""
        if name not in EXECUTOR_REGISTRY and not await self.has_type(name):
            raise InvalidInput("type", f"type is {shown(name)}, which is not registered: use {_listed(self.types())}")

    async def require_queue(self, name: str) -> None:
        """Raise InvalidInput when there is no such queue; Unavailable when the database has to be asked and is away."""
        if name in self._queues:
            return
        await self.refresh()
        if name not in self._queues:
            raise InvalidInput("queue", f"queue is {shown(name)}, which does not exist: use {_listed(self._queues)}")

    async def refresh(self) -> None:
        """Read the tables again.

        Raises:
            Unavailable: the database does not answer.
        """
        await self._lookups.put(None)

    async def keep(self) -> None:
        """Announce this process's own types and refresh, for ever. Waits out a database that is away."""
        while True:
            try:
                await self.announce()
                await self.refresh()
            except Unavailable as error:
                log.debug("catalog_not_refreshed", error=str(error))
            except Exception:
                # Jobs can be created without: the registry of this process is always at hand.
                log.exception("catalog_not_refreshed")
            await asyncio.sleep(_REFRESH_SECONDS)

    async def announce(self) -> None:
        """Write the types of this process's registry that were not written yet into ``job_types``."""
        new = [name for name in list(EXECUTOR_REGISTRY) if name not in self._announced]
        if not new:
            return
        async with self._pool.use() as connection:
            await register_job_types(connection, [_own_type(name) for name in new])
        self._announced.update(new)

    async def _look_up(self, waiting: Sequence[None]) -> list[None]:
        async with self._pool.use() as connection:
            types = await list_job_types(connection)
            self._queues = await list_queues(connection)
        self._types = {entry.name: entry for entry in types}
        return list(waiting)


def _own_type(name: str) -> JobType:
    instance = EXECUTOR_REGISTRY[name]
    schema = payload_schema(instance)
    raw = None if schema is None else msgspec.Raw(msgspec.json.encode(schema))
    return JobType(name, instance.max_execution_seconds, raw)


def _listed(names: dict[str, JobType] | dict[str, str]) -> str:
    listed = sorted(names)
    more = f" … ({len(listed)} in all)" if len(listed) > _MAX_LISTED else ""
    return f"one of {', '.join(listed[:_MAX_LISTED])}{more}"
