"""Other queues on the same server in the same run: small adapters around their public interfaces.

Each adapter is a process of its own, ``python -m jobqueue.bench.peers.NAME COMMAND DATABASE_URL NUMBER``, so that an
event loop or a driver of one queue is not shared with another. They are not dependencies: ``pip install
'jobqueue[bench]'`` adds them, and one that is missing is left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobqueue.bench.scratch import Scratch

NAMES = ("pgqueuer", "procrastinate")
TIMEOUT_SECONDS = 180.0


def installed() -> list[str]:
    """Return the peers that can be measured here."""
    return [name for name in NAMES if find_spec(name) is not None]


def measure(scratch: Scratch, command: str, amount: int) -> dict[str, float]:
    """Return each peer's figure for ``enqueue`` (seconds), ``bulk``, ``drain`` or ``pickup`` (number of jobs).

    Raises:
        subprocess.CalledProcessError: a peer failed.
    """
    figures = {}
    for name in installed():
        with scratch.database(migrated=False) as url:
            done = subprocess.run(
                [sys.executable, "-m", f"jobqueue.bench.peers.{name}", command, url, str(amount)],
                stdout=subprocess.PIPE,
                check=True,
                timeout=TIMEOUT_SECONDS,
            )
        figures[name] = float(json.loads(done.stdout.splitlines()[-1]))
    return figures
