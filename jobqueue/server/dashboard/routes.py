"""All routes of the dashboard, and how its errors look."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler

from jobqueue.server.dashboard import actions, pages
from jobqueue.server.dashboard.access import safe_path
from jobqueue.server.dashboard.render import page, redirect
from jobqueue.server.problems import Answer, HttpProblem

API_PREFIXES = ("/api/", "/health", "/metrics", "/openapi.json", "/docs", "/assets/")


@get("/login")
async def login(request: Request[Any, Any, Any]) -> Response[Any]:
    """The form of the password."""
    access = pages.parts_of(request).access
    back = safe_path(request.query_params.get("next", "/"))
    if not access.has_passwords and access.needs_login:
        raise HttpProblem(403, "The proxy in front did not say who you are. It is asked to by DASHBOARD_USER_HEADER.")
    if not access.has_passwords:
        return redirect(back)
    return page("login.html", request, access.stranger(request), back=back, problem="")


def answer_error(request: Request[Any, Any, Any], answer: Answer) -> Response[Any] | None:
    """Return the page for an error on a page; None when a program asked. *answer* is what a program would get."""
    wants_page = "text/html" in request.headers.get("accept", "")
    if not wants_page or request.scope["path"].startswith(API_PREFIXES):
        return None
    location = dict(answer.headers).get(b"location")
    if location is not None:
        return redirect(location.decode())
    access = pages.parts_of(request).access
    response = page("error.html", request, access.stranger(request), status=answer.status, problem=answer.problem)
    for name, value in answer.headers:
        if name not in {b"content-type", b"content-length"}:
            response.headers[name.decode()] = value.decode("latin-1")
    return response


HANDLERS: list[HTTPRouteHandler] = [
    pages.overview,
    pages.jobs,
    pages.job,
    pages.new,
    pages.workers,
    pages.failures,
    pages.system,
    pages.static_file,
    actions.create,
    actions.cancel,
    actions.retry,
    actions.bulk,
    actions.log_in,
    actions.log_out,
    login,
]
