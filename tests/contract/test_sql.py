"""The statements in ``sql/``: their headers tell the truth, and each belongs to one function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psycopg
import pytest

from jobqueue.store.db import statement
from tests.conftest import Server
from tests.contract.readme import ROOT

FILES = sorted((ROOT / "sql").glob("*.sql"))
LABELS = ["caller", "params", "index", "locks"]
EACH = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def header(path: Path) -> tuple[str, dict[str, str]]:
    """Return what a statement's comment says: the text before the labels, and the labelled parts."""
    lines = [line[2:].strip() for line in path.read_text().splitlines() if line.startswith("--")]
    text, labelled, current = [], {}, ""
    for line in lines:
        label, colon, rest = line.partition(":")
        if colon and label in LABELS:
            current = label
            labelled[label] = rest.strip()
        elif current:
            labelled[current] += f" {line}"
        else:
            text.append(line)
    return " ".join(text).strip(), labelled


def body(path: Path) -> str:
    return "\n".join(line for line in path.read_text().splitlines() if not line.startswith("--"))


@cache
def loads() -> dict[str, list[str]]:
    """Return statement → the functions and classes of the store that run it, as ``store.module.name``."""
    found: dict[str, list[str]] = {}
    for path in sorted(set((ROOT / "jobqueue").rglob("*.py")) - set((ROOT / "jobqueue" / "bench").rglob("*.py"))):
        for top in ast.parse(path.read_text()).body:
            for node in ast.walk(top):
                name = loaded_name(node)
                if name is not None:
                    module = ".".join(path.relative_to(ROOT / "jobqueue").with_suffix("").parts)
                    found.setdefault(name, []).append(f"{module}.{getattr(top, 'name', '')}")
    return found


def loaded_name(node: ast.AST) -> str | None:
    """Return the statement that a call of ``run`` or ``statement`` names."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"run", "statement"}:
        for argument in node.args[:2]:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                return argument.value
    return None


@pytest.fixture(scope="module")
def schema(postgres_server: Server, template_database: str) -> Iterator[psycopg.Connection]:
    """A connection to a migrated database that nothing here changes."""
    name = f"{template_database}_sql"
    with (
        postgres_server.janitor(name, template_database),
        psycopg.connect(postgres_server.url(name), autocommit=True) as opened,
    ):
        yield opened


@EACH
def test_header_has_every_label_in_order(path: Path) -> None:
    text, labelled = header(path)

    assert text.endswith((".", "!"))
    assert list(labelled) == LABELS
    assert all(labelled.values())


@EACH
def test_statement_is_run_by_the_one_caller_it_names(path: Path) -> None:
    caller = header(path)[1]["caller"]

    # A program with a connection of its own runs the same statements.
    assert [name for name in loads().get(path.stem, []) if not name.startswith("store.client.")] == [caller]
    if path.stem != "notify":  # the listener talks to itself
        assert caller.rpartition(".")[2] == path.stem


def test_no_function_runs_a_statement_that_does_not_exist() -> None:
    assert set(loads()) == {path.stem for path in FILES}


@EACH
def test_placeholders_are_the_declared_params(path: Path) -> None:
    declared = header(path)[1]["params"]
    used = set(re.findall(r"%\((\w+)\)[sb]", body(path)))
    if "one array per column" in declared:
        return  # the statement's own unnest list names them, one below the other

    explained = set(re.findall(r"\w+", declared))
    assert used <= explained, "used but not declared"
    names = re.findall(r"\w+", re.sub(r"\(.*?\)|\(.*|=[^,;]*", "", declared))
    others = {other.stem for other in FILES}
    assert {name for name in names if "_" in name} - others <= used, "declared but not used"
    assert (declared == "none") == (not used)


@EACH
def test_file_holds_one_statement_that_the_migrated_schema_takes(path: Path, schema: psycopg.Connection) -> None:
    assert ";" not in re.sub(r"'[^']*'", "", body(path))

    text = statement(path.stem).decode()
    numbers: dict[str, int] = {}
    text = re.sub(r"%\((\w+)\)[sb]", lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", text)
    schema.execute(f"PREPARE checked_{path.stem} AS {text.replace('%%', '%')}".encode())


@EACH
def test_indexes_that_are_named_exist(path: Path, schema: psycopg.Connection) -> None:
    named = re.findall(r"\b\w+_(?:idx|pkey)\b", header(path)[1]["index"])
    known = {row[0] for row in schema.execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'")}

    assert set(named) <= known
    assert named or header(path)[1]["index"].startswith("none")


@EACH
def test_statement_is_short(path: Path) -> None:
    assert len(body(path).splitlines()) <= 80


def test_statement_carries_its_name_for_pg_stat_activity() -> None:
    assert statement("get_job").startswith(b"/* get_job */ ")


def test_everything_in_the_schema_has_a_comment(schema: psycopg.Connection) -> None:
    missing = schema.execute(
        """
        SELECT c.relname, NULL FROM pg_class c
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'i', 'S')
          AND obj_description(c.oid, 'pg_class') IS NULL
          AND c.relname !~ '^alembic_version' AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = c.oid)
        UNION ALL
        SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
          AND c.relname <> 'alembic_version' AND col_description(c.oid, a.attnum) IS NULL
        UNION ALL
        SELECT p.proname, NULL FROM pg_proc p
        WHERE p.pronamespace = 'public'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
        UNION ALL
        SELECT t.typname, NULL FROM pg_type t
        WHERE t.typnamespace = 'public'::regnamespace AND t.typtype = 'e' AND obj_description(t.oid, 'pg_type') IS NULL
        """
    ).fetchall()

    assert missing == []
