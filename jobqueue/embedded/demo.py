"""A steady trickle of sample jobs: ``python -m jobqueue.embedded.demo http://localhost:8000/api/v1/jobs``.

It is an ordinary client of the API, so what it shows is what any program would see.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

PAUSE_SECONDS = 2.0
NAMES = ("ada", "grace", "linus", "margaret", "edsger", "barbara")
PRIORITIES, WEIGHTS = ("high", "medium", "low"), (2, 5, 3)


def main() -> None:
    """Create jobs until stopped."""
    url = sys.argv[1]
    for job in sample_jobs(random.Random()):  # noqa: S311  no secrets here
        post(url, job)
        time.sleep(PAUSE_SECONDS)


def sample_jobs(dice: random.Random) -> Iterator[dict[str, object]]:
    """Yield bodies for ``POST /api/v1/jobs``, the three built-in types in turn, with mixed priorities."""
    for number in itertools.count(1):
        job_type, payload = (
            (
                "email_send",
                {"to": f"{dice.choice(NAMES)}@example.com", "subject": f"Welcome, number {number}"},
            ),
            ("payment_retry", {"amount": round(dice.uniform(5, 250), 2), "currency": "EUR"}),
            ("report_generate", {"format": "pdf", "month": f"2026-{dice.randint(1, 12):02}"}),
        )[number % 3]
        yield {"type": job_type, "payload": payload, "priority": dice.choices(PRIORITIES, WEIGHTS)[0]}


def post(url: str, job: dict[str, object]) -> None:
    """Create one job. An answer of 429 or a missing API costs a pause, not the demo's life."""
    request = urllib.request.Request(  # noqa: S310  the address is ours
        url, json.dumps(job).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310  see above
            pass
    except urllib.error.HTTPError as error:
        time.sleep(min(float(error.headers.get("Retry-After") or 5), 60))
    except OSError:
        time.sleep(1)


if __name__ == "__main__":
    main()
