"""Further connections to this test's database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from jobqueue.settings import Settings
from jobqueue.store.db import Connection, connect


@pytest.fixture
async def others(settings: Settings) -> AsyncIterator[list[Connection]]:
    """Three more connections of our own kind."""
    opened = [await connect(settings.database_url, settings, f"other-{number}") for number in range(3)]
    yield opened
    for connection in opened:
        await connection.close()
