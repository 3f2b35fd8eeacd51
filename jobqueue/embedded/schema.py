"""Bring the schema of DATABASE_URL up to date: ``python -m jobqueue.embedded.schema``.

A process of its own, so that the driver and Alembic do not stay in the supervisor for its whole life.
"""

from __future__ import annotations

import sys

from jobqueue.errors import JobQueueError
from jobqueue.settings import load_settings
from jobqueue.store.migrate import is_current, upgrade


def main() -> None:
    """Migrate if need be. Leaves with code 1 and one line when that is not possible."""
    try:
        settings = load_settings()
        if not is_current(settings.direct_url):
            upgrade(settings.direct_url)
    except JobQueueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
