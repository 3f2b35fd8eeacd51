"""Charts as SVG, drawn here: no script, no style attributes, readable by screen readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from jobqueue.store.history import Span

WIDTH, HEIGHT = 1_000.0, 200.0


class Period(msgspec.Struct, frozen=True):
    """A length of time that a chart can show, and the length of each bar."""

    name: str
    title: str
    seconds: int
    span_seconds: int
    clock: str


PERIODS = {
    period.name: period
    for period in (
        Period("hour", "Last hour", 3_600, 60, "%H:%M"),
        Period("day", "Last day", 86_400, 1_800, "%H:%M"),
        Period("week", "Last week", 604_800, 10_800, "%a %H:%M"),
    )
}


class Bar(msgspec.Struct, frozen=True):
    """One span, in the units of the drawing. *label* says it in words."""

    x: float
    width: float
    completed_y: float
    completed_height: float
    failed_y: float
    failed_height: float
    label: str


class Share(msgspec.Struct, frozen=True):
    """One status's part of a bar of 1,000 units."""

    status: str
    count: int
    x: float
    width: float


def shares(counts: Mapping[str, int]) -> list[Share]:
    """Return the parts of the bar that shows all jobs by status; none without jobs."""
    total, x = sum(counts.values()), 0.0
    parts = []
    for status, count in counts.items():
        if count:
            width = WIDTH * count / total
            parts.append(Share(status, count, round(x, 2), round(width, 2)))
            x += width
    return parts


class Chart(msgspec.Struct, frozen=True):
    """What the template draws: 1,000 by 200 units."""

    bars: Sequence[Bar]
    highest: int
    ticks: Sequence[tuple[float, str]]
    completed: int
    failed: int
    created: int


def draw(spans: Sequence[Span], period: Period, now: datetime) -> Chart:
    """Return the chart of what ended in each span, failures on top of completions."""
    first = (int(now.timestamp()) - period.seconds) // period.span_seconds * period.span_seconds
    count = (int(now.timestamp()) - first) // period.span_seconds + 1
    known = {int(span.begins_at.timestamp()): span for span in spans}
    highest = max((span.completed + span.failed for span in spans), default=0)
    scale = HEIGHT / highest if highest else 0.0
    width = WIDTH / count
    bars = []
    for index in range(count):
        at = first + index * period.span_seconds
        span = known.get(at)
        if span is None or not span.completed + span.failed:
            continue
        completed, failed = span.completed * scale, span.failed * scale
        begins = datetime.fromtimestamp(at, UTC).strftime(period.clock)
        bars.append(
            Bar(
                round(index * width + width * 0.1, 2),
                round(width * 0.8, 2),
                round(HEIGHT - completed, 2),
                round(completed, 2),
                round(HEIGHT - completed - failed, 2),
                round(failed, 2),
                f"{begins} UTC: {span.completed:,} completed, {span.failed:,} failed, {span.created:,} created",
            )
        )
    return Chart(
        bars,
        highest,
        [
            (round(part * WIDTH), datetime.fromtimestamp(first + part * period.seconds, UTC).strftime(period.clock))
            for part in (0, 0.25, 0.5, 0.75)
        ],
        sum(span.completed for span in spans),
        sum(span.failed for span in spans),
        sum(span.created for span in spans),
    )
