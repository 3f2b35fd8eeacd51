"""Where and with what a benchmark ran."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psycopg

from jobqueue import __version__
from jobqueue.bench.scratch import Scratch, connected

_LIBRARIES = ("psycopg", "msgspec", "uvloop", "uvicorn", "httptools", "litestar", "redis", "pgqueuer", "procrastinate")
_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")


def facts(scratch: Scratch) -> dict[str, object]:
    """Return machine, versions, settings and commit."""
    with connected(scratch.server_url) as connection:
        return {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": _commit(),
            "cpu": _first("/proc/cpuinfo", "model name"),
            "cores": os.cpu_count(),
            "memory": _first("/proc/meminfo", "MemTotal"),
            "system": platform.platform(),
            "python": platform.python_version(),
            "jobqueue": __version__,
            "postgresql": _show(connection, "server_version"),
            "settings": {name: _show(connection, name) for name in _SETTINGS},
            "worker_concurrency": scratch.concurrency,
            "size": scratch.size,
            "libraries": _versions(),
        }


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _show(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    return str(row[0]) if row else ""


def _first(path: str, field: str) -> str:
    with suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(field):
                return line.partition(":")[2].strip()
    return platform.processor() if field == "model name" else "unknown"


def _commit() -> str:
    with suppress(OSError):
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or "unknown"
    return "unknown"
