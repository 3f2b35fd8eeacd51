"""Reading query strings and path parameters, strictly: what is not understood is refused, never guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec

from jobqueue.errors import InvalidInput
from jobqueue.job import MAX_TYPE_LENGTH, JobFilter, Priority, Status
from jobqueue.safejson import UnsafeValue, check_value
from jobqueue.server.body import shown
from jobqueue.server.problems import InvalidFields

MAX_PAGE = 10**15  # times the largest page size it still fits the 64 bits of OFFSET
MAX_PAGE_SIZE = 100
DEFAULT_PAGE_SIZE = 20
PARAMETERS = ("status", "type", "priority", "page", "page_size")

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
Word = TypeVar("Word", bound=StrEnum)


class ListQuery(msgspec.Struct, frozen=True):
    """What a listing asks for. Whether the type is known remains to be seen."""

    wanted: JobFilter
    page: int
    page_size: int


def parse_list_query(query: bytes) -> ListQuery:
    """Return what the query string of a listing asks for.

    Raises:
        InvalidFields: with every parameter that is unknown, given twice, empty or out of range.
    """
    problems: list[InvalidInput] = []
    given = _parameters(query, problems)
    found = ListQuery(
        JobFilter(
            status=_word(given, "status", Status, problems),
            type=_type(given, problems),
            priority=_word(given, "priority", Priority, problems),
        ),
        _number(given, "page", 1, MAX_PAGE, problems),
        _number(given, "page_size", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, problems),
    )
    if problems:
        raise InvalidFields(problems)
    return found


def parse_job_id(text: str) -> UUID:
    """Return the id in its one form, 8-4-4-4-12 hexadecimal digits.

    Raises:
        InvalidInput: it is anything else.
    """
    if not _UUID.fullmatch(text):
        raise InvalidInput(
            "job_id", f"job_id is {shown(text)}: use a UUID such as 01a2b3c4-d5e6-7f80-9a1b-2c3d4e5f6071"
        )
    return UUID(text)


def _parameters(query: bytes, problems: list[InvalidInput]) -> dict[str, str]:
    given: dict[str, str] = {}
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        problems.append(InvalidInput("", "There are more than 50 query parameters"))
        return given
    for name, value in pairs:
        if name not in PARAMETERS:
            allowed = ", ".join(PARAMETERS)
            problems.append(InvalidInput(name[:100], f"The parameter {shown(name)} is not known: use {allowed}"))
        elif name in given:
            problems.append(InvalidInput(name, f"{name} is given twice: use it once"))
        given[name] = value
    return given


def _word(given: Mapping[str, str], name: str, words: type[Word], problems: list[InvalidInput]) -> Word | None:
    if name not in given:
        return None
    try:
        return words(given[name])
    except ValueError:
        allowed = ", ".join(words)
        problems.append(InvalidInput(name, f"{name} is {shown(given[name])}: use one of {allowed}"))
        return None


def _type(given: Mapping[str, str], problems: list[InvalidInput]) -> str | None:
    name = given.get("type")
    if name is None:
        return None
    try:
        check_value(name, "type")
    except UnsafeValue as error:
        problems.append(InvalidInput("type", str(error)))
    if not 1 <= len(name) <= MAX_TYPE_LENGTH:
        problems.append(InvalidInput("type", f"type is {shown(name)}: use the name of a job type"))
    return name


def _number(given: Mapping[str, str], name: str, default: int, largest: int, problems: list[InvalidInput]) -> int:
    text = given.get(name)
    if text is None:
        return default
    if re.fullmatch(r"[0-9]{1,20}", text) and 1 <= int(text) <= largest:
        return int(text)
    problems.append(InvalidInput(name, f"{name} is {shown(text)}: use a whole number from 1 to {largest}"))
    return default
