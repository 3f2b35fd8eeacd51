"""``jobqueue doctor``: is everything as it should be, and if not, what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import rich_click as click

from jobqueue.cli.database import print_json
from jobqueue.errors import JobQueueError
from jobqueue.executors import load_executors
from jobqueue.settings import Settings, load_settings, redact
from jobqueue.store.db import connect, first_line, where
from jobqueue.store.migrate import current_revision, newest_revision
from jobqueue.store.stats import check_database
from jobqueue.store.workers import list_workers
from jobqueue.telemetry import configure_logging

_PASSED, _NOTE, _FAILED = "ok", "note", "FAILED"
Finding = tuple[str, str]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def doctor(as_json: bool) -> int:
    """Check settings, executors, database, schema, Redis and workers. Exit 1 when something is wrong."""
    configure_logging("ERROR")  # what the parts would log is said here
    findings = asyncio.run(_collect())
    for verdict, text in findings:
        if as_json:
            print_json({"verdict": verdict, "text": text}, indent=0)
        else:
            click.echo(f"{verdict:<7} {text}")
    return 1 if any(verdict == _FAILED for verdict, _ in findings) else 0


async def _collect() -> list[Finding]:
    try:
        settings = load_settings()
    except JobQueueError as error:
        return [(_FAILED, line) for line in str(error).splitlines()]
    findings: list[Finding] = [(_PASSED, "settings")]
    for check in (_check_executors, _check_database, _check_redis):
        try:
            findings += [finding async for finding in check(settings)]
        except JobQueueError as error:
            findings.append((_FAILED, str(error)))
        except psycopg.Error as error:
            findings.append((_FAILED, f"DATABASE_URL: {redact(first_line(error))}"))
    return findings


async def _check_executors(settings: Settings) -> AsyncIterator[Finding]:
    for name, executor in sorted(load_executors(settings.executor_modules).items()):
        limit = executor.max_execution_seconds or settings.job_max_execution_seconds
        yield _PASSED, f"job type {name}: {type(executor).__module__}, at most {limit:g} s an attempt"


async def _check_database(settings: Settings) -> AsyncIterator[Finding]:
    connection = await connect(settings.database_url, settings, "doctor")
    try:
        version, is_read_only = await check_database(connection)
        state = "is read-only" if is_read_only else "answers"
        yield (
            (_FAILED if is_read_only else _PASSED),
            f"PostgreSQL {version} at {where(settings.database_url)} {state}",
        )
        revision, needed = current_revision(settings.database_url), newest_revision()
        if revision is None or revision < needed:
            yield (
                _FAILED,
                f"schema is at {revision or 'nothing'}, this version needs {needed}: run `jobqueue migrate`",
            )
            return
        yield _PASSED, f"schema is at {revision}"
        alive = [w for w in await list_workers(connection) if w.silent_seconds < 3 * settings.heartbeat_seconds]
        names = ", ".join(f"{w.hostname}:{w.pid} ({w.running}/{w.concurrency} running)" for w in alive)
        yield ((_PASSED, f"workers: {names}") if alive else (_NOTE, "no worker is running: start `jobqueue worker`"))
    finally:
        await connection.close()


async def _check_redis(settings: Settings) -> AsyncIterator[Finding]:
    from jobqueue.store.mirror import KEY
    from jobqueue.store.redis import RedisAway, RedisLink

    redis = RedisLink(settings)
    try:
        await redis.call("ping", lambda client: client.exists(KEY))
        yield _PASSED, "Redis answers"
    except RedisAway:
        yield _NOTE, "Redis does not answer: rate limits are counted per process, depths come from PostgreSQL"
    finally:
        await redis.close()
