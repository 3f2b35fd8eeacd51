"""A search for jobs: the form and the address of the jobs page, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar
from urllib.parse import urlencode
from uuid import UUID

import msgspec

from jobqueue.errors import InvalidInput
from jobqueue.job import Priority, Status
from jobqueue.safejson import UnsafeValue, check_value
from jobqueue.server.body import shown
from jobqueue.server.query import parse_job_id
from jobqueue.store.search import JobSearch

FIELDS = ("status", "type", "priority", "queue", "key", "since", "until", "ended", "error", "group", "payload")
_MAX_CHARS = 500
Word = TypeVar("Word", bound=StrEnum)


class Search(msgspec.Struct, frozen=True):
    """What was asked for: as text (for the form and for links), and as what it means."""

    given: dict[str, str]
    wanted: JobSearch
    after: UUID | None
    is_newest_first: bool
    problems: dict[str, str]

    def link(self, **changes: str | None) -> str:
        """Return the address of this search with some of it changed (None: without)."""
        kept = {name: value for name, value in {**self.given, **changes}.items() if value}
        return f"/jobs?{urlencode(kept)}" if kept else "/jobs"

    @property
    def has_filters(self) -> bool:
        """Whether anything but the status narrows the search."""
        return any(self.given.get(name) for name in FIELDS if name != "status")


def parse_search(given: Mapping[str, str]) -> Search:
    """Return what a query asks for. What cannot be understood is left out and told in *problems*, by field."""
    kept = {name: given[name].strip() for name in (*FIELDS, "order", "after") if given.get(name, "").strip()}
    problems: dict[str, str] = {}
    for name, value in list(kept.items()):
        try:
            check_value(value, name)
        except UnsafeValue as error:
            problems[name] = str(error)
        if len(value) > _MAX_CHARS:
            problems[name] = f"{name} is longer than {_MAX_CHARS} characters"
        if name in problems:
            del kept[name]
    path, wanted_value = _payload(kept.get("payload"), problems)
    wanted = JobSearch(
        status=_word(kept, "status", Status, problems),
        type=kept.get("type"),
        priority=_word(kept, "priority", Priority, problems),
        queue=kept.get("queue"),
        idempotency_key=kept.get("key"),
        since=_time(kept, "since", problems),
        until=_time(kept, "until", problems),
        ended_since=_time(kept, "ended", problems),
        error_text=kept.get("error"),
        error_group=kept.get("group"),
        path=path,
        value=wanted_value,
    )
    after = None
    if "after" in kept:
        try:
            after = parse_job_id(kept["after"])
        except InvalidInput as error:
            problems["after"] = str(error)
    return Search(
        {n: v for n, v in kept.items() if n != "after"}, wanted, after, kept.get("order") != "oldest", problems
    )


def _word(kept: dict[str, str], name: str, words: type[Word], problems: dict[str, str]) -> Word | None:
    if name not in kept:
        return None
    try:
        return words(kept[name])
    except ValueError:
        problems[name] = f"{name} is {shown(kept.pop(name))}: use one of {', '.join(words)}"
        return None


def _time(kept: dict[str, str], name: str, problems: dict[str, str]) -> datetime | None:
    """Return a time; one without an offset (as a browser's field sends it) is UTC."""
    if name not in kept:
        return None
    try:
        moment = datetime.fromisoformat(kept[name])
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        problems[name] = f"{name} is {shown(kept.pop(name))}: use a time such as 2030-01-31T12:00"
        return None


def _payload(text: str | None, problems: dict[str, str]) -> tuple[list[str] | None, str | None]:
    """Return path and value of ``customer.id=17``."""
    if text is None:
        return None, None
    path, equals, value = text.partition("=")
    parts = [part.strip() for part in path.removeprefix("payload.").split(".")]
    if not equals or not all(parts):
        problems["payload"] = f"payload is {shown(text)}: use path=value, such as customer.id=17"
        return None, None
    return parts, value.strip()
