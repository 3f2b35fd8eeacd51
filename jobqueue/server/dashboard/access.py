"""Who visits the dashboard, and what they may do.

A session is a signed cookie, so that any API process can check it and none has to remember it. The key comes from the
passwords: changing one ends all sessions. Forms carry a token that belongs to the session, and a request that a browser
says another site has caused is refused before that (failures.md Q2).
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import quote

import msgspec
from litestar import Request

from jobqueue.safejson import clean_text
from jobqueue.server.problems import HttpProblem
from jobqueue.server.rate_limit import LocalLimit, client_key
from jobqueue.settings import Settings, split_list

COOKIE = "jobqueue_session"
SESSION_SECONDS = 12 * 3600
LOGINS_PER_MINUTE = 5


class Role(StrEnum):
    """What a visitor may do: everything, or only look."""

    OPERATOR = "operator"
    READER = "reader"


class Visitor(msgspec.Struct, frozen=True):
    """Who asks. *cookie* is to be set when it is not None."""

    name: str
    role: Role
    token: str
    has_logged_in: bool
    cookie: str | None = None

    @property
    def may_act(self) -> bool:
        """Whether this visitor may change anything."""
        return self.role is Role.OPERATOR


class LoginNeededError(Exception):
    """The visitor has to log in first. *location* leads there and back."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


class Access:
    """The rules of one API process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._logins = LocalLimit(LOGINS_PER_MINUTE)
        self._proxies = [ip_network(entry, strict=False) for entry in split_list(settings.trusted_proxies)]
        secret = "\n".join((settings.dashboard_password, settings.dashboard_read_password, settings.database_url))
        self._key = sha256(b"jobqueue dashboard\n" + secret.encode()).digest()

    @property
    def needs_login(self) -> bool:
        """Whether strangers are kept out."""
        settings = self._settings
        return bool(settings.dashboard_password or settings.dashboard_read_password or settings.dashboard_user_header)

    @property
    def has_passwords(self) -> bool:
        """Whether there is a login page."""
        return bool(self._settings.dashboard_password or self._settings.dashboard_read_password)

    def visitor(self, request: Request[Any, Any, Any]) -> Visitor:
        """Return who asks.

        Raises:
            LoginNeededError: nobody who is known.
        """
        session, role, has_logged_in = self._session(request.cookies)
        cookie = None
        if session is None:
            session, role, has_logged_in = secrets.token_hex(16), None, False
            cookie = self._cookie(request, session, None)
        name = self._name_from_proxy(request)
        if name is not None:
            return Visitor(name, Role.OPERATOR, self._token(session), False, cookie)
        if role is None and self.needs_login:
            raise LoginNeededError(f"/login?next={quote(_own_path(request))}")
        who = f"{role or Role.OPERATOR} at {_address(request)}"
        return Visitor(who, role or Role.OPERATOR, self._token(session), has_logged_in, cookie)

    def stranger(self, request: Request[Any, Any, Any]) -> Visitor:
        """Return a visitor for the login page, who need not be known and may do nothing."""
        session, _, _ = self._session(request.cookies)
        cookie = None
        if session is None:
            session = secrets.token_hex(16)
            cookie = self._cookie(request, session, None)
        return Visitor("", Role.READER, self._token(session), False, cookie)

    def check_form(
        self, request: Request[Any, Any, Any], form: Mapping[str, str], *, needs_session: bool = True
    ) -> None:
        """Refuse a form that does not come from a page of ours.

        Raises:
            HttpProblem: 403.
        """
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        if site is not None:
            # The browser's own word. Host need not be compared then, which a proxy may have changed.
            is_foreign = site not in {"same-origin", "none"}
        else:
            is_foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host", "")
        if is_foreign:
            raise HttpProblem(403, "This form was sent by a page of another site.")
        session, _, _ = self._session(request.cookies)
        token = form.get("token", "")
        if session is None or not hmac.compare_digest(self._token(session).encode(), token.encode("utf-8", "replace")):
            raise HttpProblem(403, "This form is too old, or cookies are off. Go back, reload the page and try again.")

    def log_in(self, request: Request[Any, Any, Any], password: str) -> str | None:
        """Return the cookie of a new session, or None when the password is wrong.

        Raises:
            HttpProblem: 429, too many tries from this address.
        """
        wait = self._logins.take(client_key(_address(request)))
        if wait:
            seconds = max(1, round(wait / 1_000_000))
            raise HttpProblem(429, f"Too many tries: wait {seconds} s.", {"retry-after": str(seconds)})
        given = sha256(password.encode("utf-8", "replace")).digest()
        for role, right in (
            (Role.OPERATOR, self._settings.dashboard_password),
            (Role.READER, self._settings.dashboard_read_password),
        ):
            if right and hmac.compare_digest(given, sha256(right.encode()).digest()):
                return self._cookie(request, secrets.token_hex(16), role)
        return None

    def log_out(self, request: Request[Any, Any, Any]) -> str:
        """Return the cookie that ends a session."""
        return f"{COOKIE}=; Max-Age=0; {self._flags(request)}"

    def _session(self, cookies: Mapping[str, str]) -> tuple[str | None, Role | None, bool]:
        """Return the session's id and role from the cookie; (None, None, False) when it is not one of ours."""
        session, _, rest = cookies.get(COOKIE, "").partition(".")
        role, _, rest = rest.partition(".")
        expires, _, signature = rest.partition(".")
        right = self._sign("session", session, role, expires)
        if not hmac.compare_digest(right.encode(), signature.encode()) or int(expires) < time.time():
            return None, None, False
        return session, Role(role) if role else None, bool(role)

    def _cookie(self, request: Request[Any, Any, Any], session: str, role: Role | None) -> str:
        expires = str(int(time.time()) + SESSION_SECONDS)
        signature = self._sign("session", session, role or "", expires)
        value = f"{session}.{role or ''}.{expires}.{signature}"
        return f"{COOKIE}={value}; Max-Age={SESSION_SECONDS}; {self._flags(request)}"

    def _flags(self, request: Request[Any, Any, Any]) -> str:
        secure = "; Secure" if request.scope["scheme"] == "https" else ""
        return f"Path=/; HttpOnly; SameSite=Strict{secure}"

    def _token(self, session: str) -> str:
        return self._sign("form", session)

    def _sign(self, *parts: str) -> str:
        return hmac.new(self._key, "\n".join(parts).encode(), sha256).hexdigest()

    def _name_from_proxy(self, request: Request[Any, Any, Any]) -> str | None:
        """Return the name in the proxy's header. Believed from TRUSTED_PROXIES only."""
        header = self._settings.dashboard_user_header
        name = request.headers.get(header.lower()) if header else None
        if not name:
            return None
        # The protocol's own note: what the server takes for the client comes from the proxy's other header.
        peer = (request.scope.get("state") or {}).get("peer") or _address(request)
        try:
            address = ip_address(peer)
        except ValueError:
            return None
        return clean_text(name, 80) if any(address in network for network in self._proxies) else None


def safe_path(path: str) -> str:
    """Return *path* when it leads to a page of ours, else the overview (failures.md Q3)."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and "\\" not in path
    return path if is_ours else "/"


def _own_path(request: Request[Any, Any, Any]) -> str:
    if request.method != "GET":
        return "/"
    query = request.scope["query_string"].decode("latin-1")
    return request.scope["path"] + (f"?{query}" if query else "")


def _address(request: Request[Any, Any, Any]) -> str:
    client = request.scope.get("client")
    return client[0] if client else "a local socket"
