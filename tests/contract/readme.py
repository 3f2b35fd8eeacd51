"""Reading the README: its fenced blocks, section by section, and its tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A fenced block: the word after the fence, its text, and the line it starts on."""

    language: str
    text: str
    line: int


def section(title: str) -> str:
    """Return the text under the heading ``## title``."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the README has no section {title!r}"
    return found.group(1)


def blocks(title: str) -> list[Block]:
    """Return the fenced blocks of a section in order."""
    text = section(title)
    before = README[: README.index(text)].count("\n") + 1
    return [
        Block(found.group(1), found.group(2), before + text[: found.start()].count("\n"))
        for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def table(title: str) -> list[list[str]]:
    """Return the rows of a section's first table, without head and rule."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
