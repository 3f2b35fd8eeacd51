"""A browser without a screen: follows forms as a person would, keeping cookies."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import pytest

from jobqueue.settings import Settings
from tests.conftest import MakeSettings
from tests.server.conftest import started

HTML = {"Accept": "text/html"}


class Person:
    """Somebody at a browser."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.page = ""

    async def get(self, path: str, status: int = 200, **headers: str) -> httpx.Response:
        """Open a page."""
        response = await self.http.get(path, headers={**HTML, **headers})
        assert response.status_code == status, (response.status_code, response.text[:1000])
        self.page = response.text
        return response

    async def send(
        self, path: str, expect: int = 303, headers: dict[str, str] | None = None, **form: str
    ) -> httpx.Response:
        """Send a form with the token of the page that was opened last."""
        token = re.search(r'name="token" value="(\w+)"', self.page)
        given = {"token": token.group(1) if token else "", **form}
        response = await self.http.post(path, data=given, headers={**HTML, **(headers or {})})
        assert response.status_code == expect, (response.status_code, self.text_of(response.text)[:1000])
        if expect != 303:
            self.page = response.text
        return response

    @property
    def text(self) -> str:
        """What the page says."""
        return self.text_of(self.page)

    @staticmethod
    def text_of(page: str) -> str:
        """Return a page without its tags."""
        return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


Visit = Callable[..., AbstractAsyncContextManager[Person]]


@pytest.fixture
def visit(make_settings: MakeSettings, registry: object) -> Visit:
    """A function that opens a dashboard with some settings, for a person at an address."""

    @asynccontextmanager
    async def opened(address: str = "127.0.0.1", **overrides: object) -> AsyncIterator[Person]:
        settings: Settings = make_settings(**overrides)
        async with started(settings, (address, 1234)) as http:
            yield Person(http)

    return opened


@pytest.fixture
async def person(visit: Visit) -> AsyncIterator[Person]:
    """Somebody at a dashboard without passwords."""
    async with visit() as opened:
        yield opened
