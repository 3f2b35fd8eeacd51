"""Whether all is well, in plain words: what a person on call has to know first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobqueue.server.dashboard.render import duration, since, size
from jobqueue.server.figures import FigureSet
from jobqueue.store.history import Span, System, Waiting
from jobqueue.store.migrate import newest_revision
from jobqueue.store.workers import WorkerRecord

_LONG_WAIT_SECONDS = 60
_OLD_TRANSACTION_SECONDS = 300
_MANY_DEAD_ROWS = 100_000
_OLD_AGE = 500_000_000


class Hint(msgspec.Struct, frozen=True):
    """Something to know. *level* is ``bad`` or ``warn``."""

    level: str
    text: str


def hints(
    figures: FigureSet, waiting: Waiting, workers: Sequence[WorkerRecord], spans: Sequence[Span], *, is_redis_away: bool
) -> list[Hint]:
    """Return what is wrong with the queue. *spans* are those of the last hour, *workers* the live ones."""
    found = []
    due = figures.queue_depths.priority + figures.queue_depths.fifo
    if not workers:
        found.append(Hint("bad", "No worker is running: nothing is being done. Start one with: jobqueue worker"))
    oldest = since(waiting.oldest())
    if workers and oldest is not None and oldest > _LONG_WAIT_SECONDS:
        text = f"Falling behind: {due:,} jobs are due, the oldest since {duration(oldest)}. More workers or slots help."
        found.append(Hint("warn", text))
    completed, failed = sum(span.completed for span in spans), sum(span.failed for span in spans)
    if failed and failed >= 0.05 * (completed + failed):
        share = failed / (completed + failed)
        found.append(Hint("bad", f"{failed:,} jobs failed for good in the last hour, {share:.0%} of all that ended."))
    if is_redis_away:
        found.append(Hint("warn", "Redis is away: each API process limits creates for itself. Jobs are not affected."))
    return found


def system_hints(system: System) -> list[Hint]:
    """Return what is wrong with the server."""
    found = []
    if system.revision < newest_revision():
        text = f"The schema is at {system.revision}, this version needs {newest_revision()}: run jobqueue migrate."
        found.append(Hint("bad", text))
    oldest = system.oldest_transaction_seconds
    if oldest is not None and oldest > _OLD_TRANSACTION_SECONDS:
        text = f"A transaction has been open for {duration(oldest)}: dead rows cannot be removed meanwhile. Find it in "
        found.append(Hint("warn", text + "pg_stat_activity and end it, or set idle_in_transaction_session_timeout."))
    if (system.dead_rows or 0) > max(_MANY_DEAD_ROWS, system.live_rows or 0):
        text = f"{system.dead_rows:,} dead rows in jobs: autovacuum does not keep up. Look for old transactions first."
        found.append(Hint("warn", text))
    if system.connections > 0.85 * system.max_connections:
        text = (
            f"{system.connections} of {system.max_connections} connections are in use. Raise max_connections, or pool."
        )
        found.append(Hint("warn", text))
    if system.notification_queue_usage > 0.1:
        full = f"{system.notification_queue_usage:.0%}"
        text = f"The queue of notifications is {full} full: a listening session does not read."
        found.append(Hint("bad", text))
    if system.transaction_age > _OLD_AGE:
        text = f"The oldest row is {system.transaction_age:,} transactions old: vacuum before the numbers wrap around."
        found.append(Hint("bad", text))
    if system.listeners == 0:
        found.append(Hint("warn", "No worker listens: new jobs are found by polling only, up to POLL_SECONDS later."))
    if system.logs_bytes > 50_000_000_000:
        found.append(Hint("warn", f"Logs take {size(system.logs_bytes)}: RETENTION_DAYS decides how long they stay."))
    return found
