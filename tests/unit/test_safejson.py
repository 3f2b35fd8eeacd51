"""safejson: what PostgreSQL or an encoder refuses is refused by name, or cleaned (failures.md I7, I8, L1 to L5)."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec
import pytest

from jobqueue.safejson import (
    MAX_DEPTH,
    MAX_ERROR_CHARS,
    UnsafeValue,
    check_value,
    clean_text,
    describe_exception,
    encode_value,
)


class Colour(StrEnum):
    RED = "red"


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


CIRCULAR: list[Any] = []
CIRCULAR += [CIRCULAR, CIRCULAR]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1.5,
        10**300,
        "",
        "\\u0000 as text is fine",
        "é 😀 \u2028",
        Colour.RED,
        {"a": {"b": [1, "x", None]}},
        (1, 2),
        nested(MAX_DEPTH),
    ],
)
def test_what_json_can_hold_passes_unchanged(value: Any) -> None:
    decoded = msgspec.json.decode(encode_value(value, "result"))

    assert decoded == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": "x\x00y"}, r"result\.a holds a NUL"),
        ({"a\x00": 1}, r"a key of result holds a NUL"),
        (["ok", "\ud800"], r"result\[1\] holds half a surrogate pair"),
        ({"\udfff": 1}, r"a key of result holds half a surrogate"),
        ({"a": [math.nan]}, r"result\.a\[0\] is nan"),
        (math.inf, r"result is inf"),
        (-math.inf, r"result is -inf"),
        ({1: "x"}, r"result has the key 1: keys must be text"),
        ({"when": datetime.now(UTC)}, r"result\.when is a datetime"),
        ({"s": {1, 2}}, r"result\.s is a set"),
        (b"bytes", r"result is a bytes"),
        (object(), r"result is a object"),
        (nested(MAX_DEPTH + 1), r"nested deeper than 64"),
        (nested(100_000), r"nested deeper than 64"),
        (CIRCULAR, r"nested deeper than 64"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(UnsafeValue, match=message):
        encode_value(value, "result")


def test_a_long_key_over_a_long_list_costs_no_memory_for_the_place_of_each_entry() -> None:
    started = time.process_time()
    check_value({"k" * 130_000: list(range(60_000)), "l" * 130_000: dict.fromkeys(map(str, range(30_000)), 1)})

    assert time.process_time() - started < 2


def test_a_refusal_shows_only_the_two_ends_of_a_long_place() -> None:
    with pytest.raises(UnsafeValue) as caught:
        check_value({"k" * 10_000: ["\x00"]})

    assert len(str(caught.value)) < 200
    assert "[0] holds a NUL" in str(caught.value)


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "x\udfffy", "\x00" * 10])
def test_cleaned_text_can_be_stored(text: str) -> None:
    cleaned = clean_text(text)

    assert "\x00" not in cleaned
    cleaned.encode()


def test_cleaned_text_is_cut_and_says_how_long_it_was() -> None:
    cleaned = clean_text("x" * 5_000_000)

    assert len(cleaned) < MAX_ERROR_CHARS + 50
    assert cleaned.endswith("(5000000 characters)")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NotText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307  the mistake this is about


@pytest.mark.parametrize("error", [Mute(), Exits(), NotText()])
def test_an_exception_that_cannot_be_read_is_described_all_the_same(error: Exception) -> None:
    assert describe_exception(error) == f"{type(error).__name__}: (its message could not be read)"


def test_an_exception_is_described_by_type_and_message() -> None:
    assert describe_exception(ValueError("wrong")) == "ValueError: wrong"
    assert describe_exception(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert describe_exception(ValueError("wrong"), with_type=False) == "wrong"
    assert describe_exception(ValueError("a\x00\ud800")) == "ValueError: a\ufffd\ufffd"
