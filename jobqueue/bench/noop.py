"""The job that the cases run: it does nothing. With a time in its payload it notes how long it took to be picked up."""

from __future__ import annotations

import os
import struct
import time
from typing import Any

from jobqueue.executors import executor

RECORD = os.environ.get("JOBQUEUE_BENCH_RECORD")
"""File that takes one double per job: seconds from the time in its payload to its start."""

_record = os.open(RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if RECORD else None


@executor("bench_noop")
async def bench_noop(_job_id: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Do nothing."""
    if _record is not None and "at" in payload:
        os.write(_record, struct.pack("d", time.time() - payload["at"]))
    return {}
