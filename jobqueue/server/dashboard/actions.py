"""What visitors do: each a form that is posted, checked, carried out, and written to the log of the jobs it touched."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec
import structlog
from litestar import Request, Response, post

from jobqueue.errors import Conflict, InvalidInput, Unavailable
from jobqueue.job import Status
from jobqueue.server.admission import Hold
from jobqueue.server.body import check, parse
from jobqueue.server.create import check_names, take_turn
from jobqueue.server.dashboard.access import Visitor, safe_path
from jobqueue.server.dashboard.new_job import body_of, filled
from jobqueue.server.dashboard.pages import parts_of
from jobqueue.server.dashboard.render import page, redirect
from jobqueue.server.dashboard.search import Search, parse_search
from jobqueue.server.parts import Parts
from jobqueue.server.problems import HttpProblem, InvalidFields
from jobqueue.server.query import parse_job_id
from jobqueue.server.reading import read_body
from jobqueue.store import search
from jobqueue.store.jobs import CreateOutcome, cancel_job
from jobqueue.telemetry import IDEMPOTENCY_HITS, JOBS_CANCELLED, JOBS_CREATED

COUNT_LIMIT = 10_000
_BATCH = 500
_BULK_SECONDS = 20.0
_FORM_OVERHEAD = 65_536  # names, and three bytes for one in the worst case of the encoding

log = structlog.get_logger(__name__)


@post("/new")
async def create(request: Request[Any, Any, Any]) -> Response[Any]:
    """Create the job that the form describes, or show the form again with what is wrong."""
    parts, visitor, form = await _acting(request)
    raw, problems = body_of(parts, form)
    wait_seconds = 0
    try:
        body, payload = parse(raw)
        checked = check(body, payload, None)
        await check_names(parts, checked)
        if not problems:
            wait_seconds = await take_turn(parts, request.scope)
        if not problems and not wait_seconds:
            outcome = await parts.writer.put(checked.new_job())
            return redirect(f"/jobs/{outcome.job.id}?notice={await _note_created(parts, visitor, outcome)}")
    except InvalidFields as error:
        problems = {**{problem.field: str(problem) for problem in error.problems}, **problems}
    except InvalidInput as error:
        problems = {error.field: str(error), **problems}
    draft = filled(parts, form, problems, wait_seconds)
    return page("new.html", request, visitor, status=429 if wait_seconds else 422, draft=draft)


async def _note_created(parts: Parts, visitor: Visitor, outcome: CreateOutcome) -> str:
    """Count the new job and write into its log whose it is; return what the page will tell."""
    if outcome.is_replay:
        IDEMPOTENCY_HITS.inc()
        return "mismatch" if outcome.is_mismatch else "replay"
    JOBS_CREATED.labels(outcome.job.type, outcome.job.priority.value).inc()
    with suppress(Unavailable):  # the job is there, whether or not its log says by whom
        async with parts.pool.use() as connection:
            message = f"Created by {_actor(visitor)}"
            await search.note_job(connection, outcome.job.id, event="created", message=message)
    return "created"


@post("/jobs/{job_id:str}/cancel")
async def cancel(request: Request[Any, Any, Any]) -> Response[Any]:
    """Cancel one job."""
    parts, visitor, _ = await _acting(request)
    wanted = parse_job_id(request.path_params["job_id"])
    notice = "cancelled"
    try:
        async with parts.pool.use() as connection:
            await cancel_job(connection, wanted, actor=_actor(visitor))
        JOBS_CANCELLED.inc()
    except Conflict:
        notice = "too-late"
    return redirect(f"/jobs/{wanted}?notice={notice}")


@post("/jobs/{job_id:str}/retry")
async def retry(request: Request[Any, Any, Any]) -> Response[Any]:
    """Let one job run again, or at once."""
    parts, visitor, _ = await _acting(request)
    wanted = parse_job_id(request.path_params["job_id"])
    async with parts.pool.use() as connection:
        done = await search.retry_jobs(connection, [wanted], actor=_actor(visitor))
    return redirect(f"/jobs/{wanted}?notice={'retried' if done else 'not-retried'}")


@post("/bulk")
async def bulk(request: Request[Any, Any, Any]) -> Response[Any]:
    """Cancel or retry many jobs: first show how many it would touch, then do it."""
    parts, visitor, form = await _acting(request)
    action = form.get("action", "")
    if action not in {"cancel", "retry"}:
        raise InvalidInput("action", "action: use cancel or retry")
    asked = parse_search(form)
    if asked.problems:
        field, text = next(iter(asked.problems.items()))
        raise InvalidInput(field, text)
    chosen = [parse_job_id(text) for text in form.get("ids", "").split(",") if text]
    if form.get("scope") != "all" and not chosen:
        return redirect(asked.link())
    if form.get("confirmed") == "yes":
        done, is_finished = await _carry_out(
            parts, visitor, action, asked, chosen if form.get("scope") != "all" else None
        )
        log.info("bulk_action", action=action, jobs=done, visitor=visitor.name)
        return page(
            "done.html",
            request,
            visitor,
            action=action,
            done=done,
            is_finished=is_finished,
            form=form,
            back=asked.link(),
        )
    count = len(chosen) if form.get("scope") != "all" else await _count(parts, action, asked)
    return page(
        "confirm.html",
        request,
        visitor,
        action=action,
        count=count,
        limit=COUNT_LIMIT,
        form=form,
        search=asked,
        back=asked.link(),
    )


@post("/login")
async def log_in(request: Request[Any, Any, Any]) -> Response[Any]:
    """Start a session."""
    access = parts_of(request).access
    form = await _form(request)
    access.check_form(request, form)
    back = safe_path(form.get("next", "/"))
    cookie = access.log_in(request, form.get("password", ""))
    if cookie is None:
        log.warning("login_failed", client=str((request.scope.get("client") or ("local",))[0]))
        visitor = access.stranger(request)
        return page("login.html", request, visitor, status=401, back=back, problem="This is not the password.")
    return redirect(back, cookie)


@post("/logout")
async def log_out(request: Request[Any, Any, Any]) -> Response[Any]:
    """End the session."""
    access = parts_of(request).access
    access.check_form(request, await _form(request))
    return redirect("/login", access.log_out(request))


async def _acting(request: Request[Any, Any, Any]) -> tuple[Parts, Visitor, dict[str, str]]:
    """Return the visitor and the form, if this visitor may act and sent it from a page of ours.

    Raises:
        LoginNeededError: nobody who is known.
        HttpProblem: 403, or the form is too large.
    """
    parts = parts_of(request)
    visitor = parts.access.visitor(request)
    form = await _form(request)
    parts.access.check_form(request, form)
    if not visitor.may_act:
        raise HttpProblem(403, "You may look, but not change anything: log in with the operator's password.")
    return parts, visitor, form


async def _form(request: Request[Any, Any, Any]) -> dict[str, str]:
    parts = parts_of(request)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HttpProblem(415, "This page takes forms of its own only.")
    headers = {name.encode(): value.encode("latin-1") for name, value in request.headers.items()}
    hold = Hold(parts.admission)
    try:
        raw = await read_body(headers, request.receive, hold, 3 * parts.settings.request_max_bytes + _FORM_OVERHEAD)
        pairs = parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1_000)
    except ValueError:
        raise HttpProblem(400, "The form has more than 1,000 fields.") from None
    finally:
        hold.release()
    form: dict[str, str] = {}
    for name, value in pairs:
        # Boxes that share a name come as one list.
        form[name] = f"{form[name]},{value}" if name == "ids" and name in form else value
    return form


def _actor(visitor: Visitor) -> str:
    return f"dashboard user {visitor.name}"


async def _count(parts: Parts, action: str, asked: Search) -> int:
    """Return how many jobs an action on all that match would touch, up to the limit."""
    count = 0
    for wanted in _touched(action, asked):
        async with parts.pool.use() as connection:
            count += len(await search.search_jobs(connection, wanted, max_jobs=COUNT_LIMIT + 1 - count))
        if count > COUNT_LIMIT:
            break
    return count


def _touched(action: str, asked: Search) -> Sequence[search.JobSearch]:
    """Return the searches for those of the matching jobs that an action can change."""
    statuses = (Status.QUEUED, Status.PROCESSING) if action == "cancel" else (Status.FAILED, Status.CANCELLED)
    given = asked.wanted.status
    return [msgspec.structs.replace(asked.wanted, status=s) for s in statuses if given in {None, s}]


async def _carry_out(
    parts: Parts, visitor: Visitor, action: str, asked: Search, chosen: Sequence[UUID] | None
) -> tuple[int, bool]:
    """Act in batches for a while. Returns how many jobs were changed, and whether none is left."""
    act = search.cancel_jobs if action == "cancel" else search.retry_jobs
    actor, done = _actor(visitor), 0
    if chosen is not None:
        async with parts.pool.use() as connection:
            return len(await act(connection, chosen, actor=actor)), True
    until = time.monotonic() + _BULK_SECONDS
    for wanted in _touched(action, asked):
        after = None
        while True:
            if time.monotonic() > until:
                return done, False
            async with parts.pool.use() as connection:
                found = await search.search_jobs(connection, wanted, after=after, max_jobs=_BATCH)
                if found:
                    done += len(await act(connection, [each.id for each in found], actor=actor))
            if len(found) < _BATCH:
                break
            after = found[-1].id
    return done, True
