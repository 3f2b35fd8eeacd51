"""Executors that write the ledger, and points at which a worker process ends itself.

FAULTS_LEDGER names the ledger, FAULTS_FAIL_AT a point: ``after_claim`` (the claim is committed, nothing has started) or
``after_end`` (an executor returned, nothing is reported). The process ends there once the file that FAULTS_FAIL_ONCE
names could be taken away, so that each such file costs one process.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from jobqueue.executors import executor
from jobqueue.worker.loop import Worker
from tests.faults.ledger import write

LEDGER = os.environ["FAULTS_LEDGER"]
FAIL_AT = os.environ.get("FAULTS_FAIL_AT", "")


def end_process_once() -> None:
    """End this process as a crash would, if it is its turn."""
    try:
        Path(os.environ["FAULTS_FAIL_ONCE"]).unlink()
    except FileNotFoundError:
        return
    os._exit(9)


if FAIL_AT == "after_claim":
    start = Worker._start

    def start_or_end(worker: Worker, claims: Sequence[Any]) -> None:
        if claims:
            end_process_once()
        start(worker, claims)

    Worker._start = start_or_end  # type: ignore[method-assign]


async def perform(payload: dict[str, Any]) -> Any:
    """Do what ``payload.do`` says, for ``payload.seconds``."""
    do, seconds = payload.get("do", "sleep"), payload.get("seconds", 0.0)
    if do == "block":
        time.sleep(seconds)  # noqa: ASYNC251  the mistake this is about
    elif do == "spin":
        spin(seconds)
    elif do == "stubborn":
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                await asyncio.sleep(until - time.monotonic())
            except asyncio.CancelledError:
                continue
    else:
        await asyncio.sleep(seconds)
    if do == "die":
        os._exit(137)
    if do == "fork":
        leave_things_behind()
    if do == "fail":
        raise RuntimeError("as it was told to")
    if do == "hog":
        hog = bytearray(payload["bytes"])
        hog[::4096] = b"x" * len(hog[::4096])
    if do == "connect":
        await use_the_database(payload["seconds"])
    return {"done": payload.get("number")}


def spin(seconds: float) -> None:
    """Keep a processor busy."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


def leave_things_behind() -> None:
    """Leave a child process that holds all our sockets, and a thread that never ends."""
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


async def use_the_database(seconds: float) -> None:
    """Hold a connection of one's own, as jobs do."""
    import psycopg

    async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as connection:
        await connection.execute("SELECT pg_sleep(%s)", (seconds,))


@executor("probe", max_execution_seconds=60)
async def probe(job_id: str, payload: dict[str, Any]) -> Any:
    """Note the start, do it, note the end and how it ended."""
    token, outcome = uuid4().hex, "stopped"
    write(LEDGER, "start", token, job_id)
    try:
        result = await perform(payload)
        outcome = "ok"
    except RuntimeError:
        outcome = "failed"
        raise
    finally:
        write(LEDGER, "end", token, job_id, outcome)
        if FAIL_AT == "after_end":
            # Called before anything that this return sets in motion.
            asyncio.get_running_loop().call_soon(end_process_once)
    return result


@executor("thread_probe", max_execution_seconds=60)
def thread_probe(job_id: str, payload: dict[str, Any]) -> Any:
    """As :func:`probe`, in a thread."""
    token = uuid4().hex
    write(LEDGER, "start", token, job_id)
    (spin if payload.get("do") == "spin" else time.sleep)(payload.get("seconds", 0.0))
    write(LEDGER, "end", token, job_id, "ok")
    return {"done": payload.get("number")}
