"""The timers beside the claim loop."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from jobqueue.job import Status
from jobqueue.store.db import Connection
from jobqueue.store.redis import RedisLink
from jobqueue.worker.maintenance import Maintenance, _every
from tests.conftest import MakeSettings
from tests.jobs import expire, owned
from tests.overlap import eventually


async def test_a_timer_ends_although_its_work_swallowed_the_cancellation() -> None:
    runs = 0
    entered = asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return

    timer = asyncio.create_task(_every(0.05, work))
    await entered.wait()
    timer.cancel()
    await asyncio.wait({timer}, timeout=10)

    assert timer.done()
    assert runs == 1


@pytest.mark.parametrize(("leases_away", "status"), [(0.1, Status.QUEUED), (1.0, Status.PROCESSING)])
async def test_after_an_outage_owners_get_a_lease_of_time_and_after_a_cut_connection_they_do_not(
    connection: Connection, make_settings: MakeSettings, sql: psycopg.Connection, leases_away: float, status: Status
) -> None:
    settings = make_settings(lease_seconds=1.0, heartbeat_seconds=0.3)
    maintenance = Maintenance(settings, RedisLink(settings), lambda: None)
    old_enough = "SELECT pg_postmaster_start_time() < now() - interval '1 s'"
    await eventually(lambda: sql.execute(old_enough).fetchone() == (True,), "the server is not a new one")
    taken = await owned(connection)
    expire(sql, taken)
    maintenance._failing_since = time.monotonic() - leases_away  # as a failed look leaves it

    await maintenance._recover()

    assert sql.execute("SELECT status::text FROM jobs").fetchone() == (status.value,)
    for line in (maintenance._line, maintenance._recovery_line):
        await line.close()
