"""A real browser at a real system: PostgreSQL, Redis, the API process and a worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from jobqueue.settings import describe_settings
from tests.faults.processes import ROOT

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
MISSING = (
    "no Chromium: apt-get install chromium, or name one in CHROMIUM. "
    "The pages themselves are tested without it in tests/dashboard"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's own Chromium. Not for the whole session: while it is there, no test can have an event loop."""
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(MISSING)
    expect.set_options(timeout=20_000)  # longer than the pages take to refresh themselves
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()


class System:
    """What a browser test talks to."""

    def __init__(self, url: str, database_url: str) -> None:
        self.url = url
        self.database_url = database_url

    def sql(self, query: str) -> list[tuple[object, ...]]:
        """Run one statement."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def create(self, **body: object) -> str:
        """Create a job over HTTP."""
        response = httpx.post(f"{self.url}/api/v1/jobs", json={"type": "email_send", **body})
        assert response.status_code == 201, response.text
        return str(response.json()["id"])


@pytest.fixture
def system(
    request: pytest.FixtureRequest, database_url: str, redis_url: str, tmp_path: Path, unused_port: int
) -> Iterator[System]:
    """The API and a worker as processes; settings by ``@pytest.mark.parametrize("system", [{…}], indirect=True)``."""
    own = {name: os.environ[name] for name in os.environ if name not in {row[0] for row in describe_settings()}}
    environ = {
        **own,
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "API_PORT": str(unused_port),
        "METRICS_PORT": "0",
        "POLL_SECONDS": "0.5",
        "RATE_LIMIT_PER_MINUTE": "100000",
        "SIMULATE_FAILURES": "false",
        "SIMULATE_DELAY_SCALE": "0.2",
        **getattr(request, "param", {}),
    }
    processes = []
    for role in ("api", "worker"):
        with (tmp_path / f"{role}.log").open("wb") as log:
            command = [sys.executable, "-m", "jobqueue", role]
            processes.append(subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log))
    url = f"http://127.0.0.1:{unused_port}"
    transport = httpx.HTTPTransport(retries=50)
    try:
        with httpx.Client(transport=transport) as client:
            assert client.get(f"{url}/health").status_code == 200
        yield System(url, database_url)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture
def unused_port() -> int:
    """A port that nobody listens on."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def page(browser: Browser, system: System) -> Iterator[Page]:
    """A page on which every error of the console, and every request to elsewhere, fails the test."""
    context = browser.new_context(base_url=system.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=system.url)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda each: wrong.append(each.url) if not each.url.startswith(system.url) else None)
    opened.expected_errors = []  # type: ignore[attr-defined]
    yield opened
    context.close()
    expected = opened.expected_errors  # type: ignore[attr-defined]
    assert [text for text in wrong if not any(part in text for part in expected)] == []
