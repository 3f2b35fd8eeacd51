"""Logging in, the two roles, names from a proxy, and that nobody is led elsewhere (failures.md Q2, Q3)."""

from __future__ import annotations

import pytest

from jobqueue.errors import SettingsError
from jobqueue.job import Status
from jobqueue.server.dashboard.access import safe_path
from jobqueue.settings import load_settings
from jobqueue.store.db import Connection
from tests.dashboard.conftest import Person, Visit
from tests.dashboard.test_pages import PAGES
from tests.jobs import add, messages, read

PASSWORDS = {"dashboard_password": "operate it", "dashboard_read_password": "look at it"}


async def log_in(person: Person, password: str, status: int = 303, to: str = "/") -> None:
    await person.get(f"/login?next={to}")
    await person.send("/login", status, password=password, next=to)


async def test_strangers_are_led_to_the_login_and_back(visit: Visit, connection: Connection) -> None:
    job = await add(connection)
    async with visit(**PASSWORDS) as person:
        for path in (*PAGES, f"/jobs/{job.id}", "/jobs?status=failed"):
            response = await person.get(path, 303)
            assert response.headers["location"].startswith("/login?next=/")
        await person.get("/login?next=%2Fjobs%3Fstatus%3Dfailed")
        response = await person.send("/login", password="operate it", next="/jobs?status=failed")
        assert response.headers["location"] == "/jobs?status=failed"
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        for path in PAGES:
            await person.get(path)
        await person.send("/logout")
        await person.get("/", 303)


async def test_a_wrong_password_opens_nothing_and_tries_are_limited(visit: Visit) -> None:
    async with visit(**PASSWORDS) as person:
        for _ in range(5):
            await log_in(person, "wrong", 401)
            assert "This is not the password" in person.text
        await log_in(person, "operate it", 429)
        await person.get("/", 303)
    async with visit(address="127.0.0.2", **PASSWORDS) as other:
        await log_in(other, "operate it")


async def test_a_reader_sees_everything_and_changes_nothing(visit: Visit, connection: Connection) -> None:
    job = await add(connection)
    async with visit(**PASSWORDS) as person:
        await log_in(person, "look at it")
        await person.get(f"/jobs/{job.id}")
        assert "Looking only" in person.text
        assert "Cancel…" not in person.text
        assert "New job" not in person.text
        for path in (f"/jobs/{job.id}/cancel", f"/jobs/{job.id}/retry", "/bulk", "/new"):
            await person.send(path, 403, action="cancel", scope="all", confirmed="yes", type="email_send")
    assert (await read(connection, job)).status is Status.QUEUED


async def test_cookies_that_were_tampered_with_are_not_believed(visit: Visit) -> None:
    async with visit(**PASSWORDS) as person:
        await log_in(person, "look at it")
        [cookie] = [c for c in person.http.cookies.jar if c.name == "jobqueue_session"]
        session, role, expires, signature = str(cookie.value).split(".")
        assert role == "reader"
        for forged in (
            f"{session}.operator.{expires}.{signature}",
            f"{session}.reader.{int(expires) + 9999}.{signature}",
            f"{session}.reader.x.{signature}",
            f"{session}.reader.1.{signature}",
            "",
        ):
            response = await person.http.get("/", headers={"Cookie": f"jobqueue_session={forged}"})
            assert response.status_code == 303, forged


async def test_a_name_from_the_proxy_is_believed_from_the_proxy_alone(visit: Visit, connection: Connection) -> None:
    job = await add(connection)
    proxy = {"dashboard_user_header": "X-Forwarded-User", "trusted_proxies": "10.0.0.0/8"}
    async with visit(address="10.1.2.3", **proxy) as person:
        await person.get("/", 303)
        person.http.headers["X-Forwarded-User"] = "ann@example.com"
        await person.get(f"/jobs/{job.id}")
        await person.send(f"/jobs/{job.id}/cancel")
        assert any("by dashboard user ann@example.com" in line for line in await messages(connection, job))
    async with visit(address="192.0.2.1", **proxy) as stranger:
        stranger.http.headers["X-Forwarded-User"] = "ann@example.com"
        await stranger.get("/", 303)
        await stranger.get("/login", 403)
        assert "did not say who you are" in stranger.text


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "", "\n/x", "/a\\b", "/\tx"],
)
async def test_nobody_is_led_elsewhere(visit: Visit, path: str) -> None:
    assert safe_path(path) == "/"
    async with visit(**PASSWORDS) as person:
        await person.get("/login")
        response = await person.send("/login", password="operate it", next=path)
        assert response.headers["location"] == "/"


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"DASHBOARD_USER_HEADER": "X-User"}, "without TRUSTED_PROXIES"),
        ({"DASHBOARD_PASSWORD": "a", "DASHBOARD_READ_PASSWORD": "a"}, "the same as"),
        ({"DASHBOARD_READ_PASSWORD": "secret-word"}, "without DASHBOARD_PASSWORD"),
    ],
)
def test_settings_that_would_open_the_door_are_refused_without_telling_the_password(
    environ: dict[str, str], told: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ)

    assert told in str(caught.value)
    assert "secret-word" not in str(caught.value)
