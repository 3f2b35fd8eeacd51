"""The README's tables and .env.example say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram

from jobqueue import telemetry
from jobqueue.histogram import JobHistogram
from jobqueue.server.body import FIELDS
from jobqueue.server.openapi import build_document
from jobqueue.settings import Settings, describe_settings, load_settings, read_dotenv
from tests.contract.readme import README, ROOT, section, table


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def test_settings_table_is_complete_and_right() -> None:
    expected = [
        [code(variable), code(default) or "empty", meaning] for variable, default, meaning in describe_settings()
    ]

    assert table("Settings") == expected


def test_env_example_lists_every_setting_with_meaning_and_default() -> None:
    parts = (ROOT / ".env.example").read_text().strip().split("\n\n")

    assert parts[1:] == [f"# {meaning}\n#{variable}={default}" for variable, default, meaning in describe_settings()]


def test_env_example_changes_nothing_when_it_is_used(tmp_path: Path) -> None:
    uncommented = tmp_path / ".env"
    lines = (ROOT / ".env.example").read_text().splitlines()
    uncommented.write_text("\n".join(line.removeprefix("#") for line in lines if not line.startswith("# ")))

    assert read_dotenv(ROOT / ".env.example") == {}
    assert len(read_dotenv(uncommented)) == len(describe_settings())
    assert load_settings({}, uncommented) == Settings()


def test_routes_table_is_the_openapi_document() -> None:
    paths = build_document(Settings(), {}, ["default"])["paths"]
    expected = [
        [code(f"{method.upper()} {path}"), operation["summary"]]
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]

    assert table("Routes") == expected


def test_metrics_table_is_complete_and_right() -> None:
    expected = []
    for collector in vars(telemetry).values():
        if isinstance(collector, (Counter, Gauge, Histogram, JobHistogram)):
            metric = next(iter(collector.describe()))
            name = metric.name + ("_total" if metric.type == "counter" else "")
            names = (collector.label,) if isinstance(collector, JobHistogram) else collector._labelnames
            labels = ", ".join(code(label) for label in names)
            expected.append([code(name), metric.type, labels, metric.documentation])

    assert table("Metrics") == expected


def test_create_table_lists_the_fields_of_the_request() -> None:
    assert {row[0].strip("`") for row in table("Use")} == set(FIELDS)


def test_rooms_table_lists_every_folder_and_links_to_its_readme() -> None:
    shown = {row[0] for row in table("How it is built")}
    rooms = {f"jobqueue/{path.parent.name}" for path in (ROOT / "jobqueue").glob("*/__init__.py")}
    beside = {path.parent.name for path in ROOT.glob("[!.]*/README.md")}
    expected = {
        f"[`{name}`]({name}/README.md)" if (ROOT / name / "README.md").exists() else f"`{name}`"
        for name in rooms | beside
    }

    assert shown == expected


@pytest.mark.parametrize("name", sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.]*/**/README.md")))
def test_readme_of_a_folder_names_every_module(name: str) -> None:
    folder = (ROOT / name).parent
    text = (ROOT / name).read_text()

    for module in folder.glob("*.py"):
        if not module.name.startswith("__"):
            assert module.stem in text, f"{name} says nothing about {module.name}"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_decisions_are_few_and_short() -> None:
    decisions = section("Decisions").strip().split("\n\n")

    assert len(decisions) <= 8
    assert all(text.startswith("**") and text.count("\n") < 10 for text in decisions)
