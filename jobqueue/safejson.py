"""The gate for JSON values and text on their way into PostgreSQL.

PostgreSQL refuses NUL in text and JSON, lone surrogates and non-finite numbers; deep nesting ends in a
recursion error somewhere. Values are refused here by name instead, and text that must be stored whatever
it says (errors, log lines) is cleaned.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

MAX_DEPTH = 64
MAX_ERROR_CHARS = 10_000
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

Place = tuple["Place | None", str]
"""Where a value stands: the place of what holds it, and the step from there. Spelled out only when refused: doing so
for every value of a list under a long key would take gigabytes."""


class UnsafeValue(ValueError):
    """A value that cannot be stored as JSON; the message says where and why."""


def check_value(value: Any, path: str = "payload") -> None:
    """Check that *value* can be stored as ``jsonb`` and read back unchanged.

    Raises:
        UnsafeValue: nesting deeper than 64, NUL or lone surrogates in text, NaN or infinity, a key that is
            not text, or a Python type that JSON does not have.
    """
    # An explicit stack: the depth of hostile input must not become our own recursion.
    stack: list[tuple[Any, Place, int]] = [(value, (None, path), 1)]
    while stack:
        item, place, depth = stack.pop()
        if isinstance(item, str):
            _check_text(item, place)
        elif item is None or isinstance(item, (bool, int)):
            continue
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise UnsafeValue(f"{_shown(place)} is {item}: only finite numbers can be stored")
        elif isinstance(item, (dict, list, tuple)):
            if depth > MAX_DEPTH:
                raise UnsafeValue(f"{_shown(place)} is nested deeper than {MAX_DEPTH} levels")
            stack.extend(_children(item, place, depth + 1))
        else:
            raise UnsafeValue(f"{_shown(place)} is a {type(item).__name__}, which JSON does not have")


def encode_value(value: Any, path: str) -> bytes:
    """Check *value* and return its JSON text.

    Raises:
        UnsafeValue: as :func:`check_value`.
    """
    check_value(value, path)
    return msgspec.json.encode(value)


def clean_text(text: str, limit: int = MAX_ERROR_CHARS) -> str:
    """Return *text* in a form PostgreSQL stores: no NUL, no lone surrogate, at most *limit* characters."""
    if len(text) > limit:
        text = f"{text[:limit]}… ({len(text)} characters)"
    return _UNSTORABLE.sub("\ufffd", text)


def describe_exception(error: BaseException, *, with_type: bool = True) -> str:
    """Return ``TypeName: message``, also for exceptions whose own ``__str__`` fails."""
    name = type(error).__name__
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001  a handler's exception may do anything, and must not stop the worker
        message = "(its message could not be read)"
    if with_type or not message:
        message = f"{name}: {message}" if message else name
    return clean_text(message)


def _check_text(text: str, place: Place, what: str = "") -> None:
    if "\x00" in text:
        raise UnsafeValue(f"{what}{_shown(place)} holds a NUL character (U+0000), which cannot be stored")
    if not text.isascii() and _UNSTORABLE.search(text):
        raise UnsafeValue(f"{what}{_shown(place)} holds half a surrogate pair, which is not text")


def _children(item: Any, place: Place, depth: int) -> list[tuple[Any, Place, int]]:
    if not isinstance(item, dict):
        return [(child, (place, f"[{index}]"), depth) for index, child in enumerate(item)]
    for key in item:
        if not isinstance(key, str):
            raise UnsafeValue(f"{_shown(place)} has the key {key!r}: keys must be text")
        _check_text(key, place, "a key of ")
    return [(child, (place, f".{key}"), depth) for key, child in item.items()]


def _shown(place: Place) -> str:
    steps: list[str] = []
    holder: Place | None = place
    while holder is not None:
        holder, step = holder
        steps.append(step)
    where = "".join(reversed(steps))
    return where if len(where) <= 100 else f"{where[:60]}…{where[-30:]}"
