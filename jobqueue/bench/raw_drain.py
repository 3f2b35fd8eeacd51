"""The yardstick of the drain cases, a process of its own: claims and finishes a hundred jobs at a time to the last.

``python -m jobqueue.bench.raw_drain URL``
"""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

import psycopg

_SQL = Path(__file__).parent / "sql"


def statement(name: str) -> bytes:
    """Return a yardstick's statement without its comment."""
    lines = (_SQL / f"{name}.sql").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("--")).encode()


def main(url: str) -> None:
    """Drain the queue."""
    claim, finish, worker_id = statement("claim_hundred"), statement("finish_hundred"), uuid4()
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.cursor(binary=True)
        while ids := [row[0] for row in cursor.execute(claim, {"worker_id": worker_id}, prepare=True)]:
            cursor.execute(finish, {"ids": ids}, prepare=True)


if __name__ == "__main__":
    main(sys.argv[1])
