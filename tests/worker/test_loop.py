"""A worker runs jobs."""

from __future__ import annotations

from jobqueue.store.db import Connection
from tests.jobs import add, messages, until_status
from tests.worker.conftest import RunWorker


async def test_a_job_runs_to_completion(connection: Connection, run_worker: RunWorker) -> None:
    job = await add(connection, payload={"to": "a@b"})

    async with run_worker():
        done = await until_status(connection, job, "completed", "failed")

    assert done.status == "completed", done
    print(done.result, await messages(connection, job))
