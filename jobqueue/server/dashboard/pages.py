"""The pages that show something. Each is complete without scripts; with them, its parts refresh themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from litestar import Request, Response, get

from jobqueue.errors import InvalidInput, NotFound, Unavailable
from jobqueue.server.dashboard import charts, story
from jobqueue.server.dashboard.health import hints, system_hints
from jobqueue.server.dashboard.new_job import Draft, blank
from jobqueue.server.dashboard.render import ASSETS, asset, page
from jobqueue.server.dashboard.search import parse_search
from jobqueue.server.parts import Parts
from jobqueue.server.problems import HttpProblem
from jobqueue.server.query import parse_job_id
from jobqueue.store import history, search
from jobqueue.store.jobs import get_jobs_with_logs
from jobqueue.store.mirror import read_mirror_age
from jobqueue.store.workers import list_workers

PAGE_SIZE = 50
FAILURES_LOOKED_AT = 5_000


def parts_of(request: Request[Any, Any, Any]) -> Parts:
    """Return what the requests of this process share."""
    parts: Parts = request.app.state.parts
    return parts


@get("/")
async def overview(request: Request[Any, Any, Any]) -> Response[str]:
    """Is it healthy, is it keeping up, what broke."""
    parts = parts_of(request)
    visitor = parts.access.visitor(request)
    period = charts.PERIODS.get(request.query_params.get("span", ""), charts.PERIODS["hour"])
    now = datetime.now(UTC)
    figures = await parts.figures.get()
    async with parts.pool.use() as connection:
        spans = await history.read_throughput(connection, seconds=period.seconds, span_seconds=period.span_seconds)
        hour = charts.PERIODS["hour"]
        last_hour = (
            spans
            if period is hour
            else await history.read_throughput(connection, seconds=hour.seconds, span_seconds=hour.seconds)
        )
        waiting = await history.read_waiting(connection)
        median, p95 = await history.read_durations(connection)
        errors = await history.list_error_groups(connection, max_jobs=1_000, since=now - timedelta(hours=24))
        workers = story.alive(await list_workers(connection), parts.settings.lease_seconds)
    return page(
        "overview.html",
        request,
        visitor,
        figures=figures,
        waiting=waiting,
        median=median,
        p95=p95,
        errors=errors[:5],
        workers=workers,
        slots=sum(worker.concurrency for worker in workers),
        running=sum(worker.running for worker in workers),
        hints=hints(figures, waiting, workers, last_hour, is_redis_away=parts.redis.is_away),
        chart_of_statuses=charts.shares(figures.counts_by_status),
        chart=charts.draw(spans, period, now),
        period=period,
        periods=list(charts.PERIODS.values()),
        types=list(parts.known.types()),
    )


@get("/jobs")
async def jobs(request: Request[Any, Any, Any]) -> Response[str]:
    """Jobs by status, filtered, in pages."""
    parts = parts_of(request)
    visitor = parts.access.visitor(request)
    asked = parse_search(dict(request.query_params))
    figures = await parts.figures.get()
    problems, found = dict(asked.problems), []
    if "id" in request.query_params:
        problems |= _job_by_id(request.query_params["id"])
    try:
        async with parts.pool.use() as connection:
            found = await search.search_jobs(
                connection,
                asked.wanted,
                after=asked.after,
                is_newest_first=asked.is_newest_first,
                max_jobs=PAGE_SIZE + 1,
            )
    except Unavailable:
        if not asked.has_filters:
            raise
        problems["search"] = (
            f"This search took longer than {search.SEARCH_SECONDS:g} s and was given up. "
            "Narrow it: choose a status, a type, or a time range."
        )
    return page(
        "jobs.html",
        request,
        visitor,
        search=asked,
        jobs=found[:PAGE_SIZE],
        next_after=str(found[PAGE_SIZE - 1].id) if len(found) > PAGE_SIZE else None,
        counts=figures.counts_by_status,
        problems=problems,
        types=list(parts.known.types()),
        queues=list(parts.known.queues()),
    )


def _job_by_id(text: str) -> dict[str, str]:
    """Lead to a job when its id was typed into the search; tell when it is none.

    Raises:
        HttpProblem: 303, to the job.
    """
    try:
        wanted = parse_job_id(text.strip())
    except InvalidInput as error:
        return {"id": str(error)} if text.strip() else {}
    raise HttpProblem(303, "", {"location": f"/jobs/{wanted}"})


@get("/jobs/{job_id:str}")
async def job(request: Request[Any, Any, Any]) -> Response[str]:
    """Everything about one job."""
    parts = parts_of(request)
    visitor = parts.access.visitor(request)
    wanted = parse_job_id(request.path_params["job_id"])
    async with parts.pool.use() as connection:
        found = (await get_jobs_with_logs(connection, [wanted])).get(wanted)
        if found is None:
            raise NotFound(f"There is no job {wanted}. Retention removes finished jobs after a while.")
        events = await search.list_job_events(connection, wanted)
        workers = story.alive(await list_workers(connection), parts.settings.lease_seconds)
        ahead = None
        if found.status == "queued" and found.next_run_at <= datetime.now(UTC):
            ahead = await search.count_jobs_ahead(connection, wanted, max_jobs=story.AHEAD_LIMIT)
    return page(
        "job.html",
        request,
        visitor,
        job=found,
        events=events,
        has_more_lines=sum(event.event == "executor" for event in events) >= search.MAX_LINES,
        max_lines=search.MAX_LINES,
        attempts=story.attempts_of(found, events),
        ahead=ahead,
        why=story.why_waiting(found, ahead, workers),
        notice=request.query_params.get("notice", ""),
    )


@get("/new")
async def new(request: Request[Any, Any, Any]) -> Response[str]:
    """The form for a new job: empty, from a preset, or as another job was."""
    parts = parts_of(request)
    visitor = parts.access.visitor(request)
    draft = blank(parts, dict(request.query_params))
    copied = request.query_params.get("from")
    if copied:
        wanted = parse_job_id(copied)
        async with parts.pool.use() as connection:
            found = (await get_jobs_with_logs(connection, [wanted])).get(wanted)
        if found is None:
            raise NotFound(f"There is no job {wanted}.")
        draft = Draft.copy_of(parts, found)
    return page("new.html", request, visitor, draft=draft)


@get("/workers")
async def workers(request: Request[Any, Any, Any]) -> Response[str]:
    """Which processes work, and on what."""
    parts = parts_of(request)
    visitor = parts.access.visitor(request)
    async with parts.pool.use() as connection:
        known = await list_workers(connection)
        running = await search.list_running_jobs(connection)
    by_worker: dict[Any, list[search.RunningJob]] = {}
    for each in running:
        by_worker.setdefault(each.worker_id, []).append(each)
    lease = parts.settings.lease_seconds
    return page("workers.html", request, visitor, workers=known, running=by_worker, lease_seconds=lease)


@get("/failures")
async def failures(request: Request[Any, Any, Any]) -> Response[str]:
    """Failed jobs by type and error."""
    parts = parts_of(request)
    visitor = parts.access.visitor(request)
    span = request.query_params.get("span", "")
    hours = {"hour": 1, "day": 24, "week": 168}.get(span)
    since = None if hours is None else datetime.now(UTC) - timedelta(hours=hours)
    async with parts.pool.use() as connection:
        groups = await history.list_error_groups(connection, max_jobs=FAILURES_LOOKED_AT, since=since)
    by_type: dict[str, int] = {}
    for group in groups:
        by_type[group.type] = by_type.get(group.type, 0) + group.count
    return page(
        "failures.html",
        request,
        visitor,
        groups=groups,
        by_type=by_type,
        span=span if hours else "",
        since=since,
        looked_at=FAILURES_LOOKED_AT,
    )


@get("/system")
async def system(request: Request[Any, Any, Any]) -> Response[str]:
    """The database and what hangs on it."""
    parts = parts_of(request)
    visitor = parts.access.visitor(request)
    async with parts.pool.use() as connection:
        state = await history.read_system(connection)
    return page(
        "system.html",
        request,
        visitor,
        system=state,
        hints=system_hints(state),
        is_redis_away=parts.redis.is_away,
        mirror_age=await read_mirror_age(parts.redis),
        pool=parts.pool.stats(),
    )


@get("/assets/{name:str}")
async def static_file(request: Request[Any, Any, Any]) -> Response[bytes]:
    """A file of the pages. Its address changes with its content, so browsers may keep it."""
    name: str = request.path_params["name"]
    if name not in ASSETS:
        raise HttpProblem(404, f"There is no file {name[:100]!r} here.")
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(asset(name), media_type=ASSETS[name], headers=headers)
