"""``jobqueue bench``: it runs, says what it measured, and its verdicts follow from the figures. Never a timing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from jobqueue.bench import charts
from jobqueue.bench.case import Case, Figures, at_least, at_most
from jobqueue.bench.report import summarise, table
from jobqueue.bench.scratch import as_uri

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jobqueue", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=80)


def case(*targets: object, limit: float | None = None) -> Case:
    return Case("c", "A case", "jobs/s", lambda _: {}, targets, limit)  # type: ignore[arg-type]


def test_two_quick_cases_end_in_a_table_a_report_and_charts(tmp_path: Path) -> None:
    done = bench("claim-others", "enqueue", "--quick", "--json", str(tmp_path / "report.json"))

    assert done.returncode == 0, done.stderr
    assert "| enqueue one by one" in done.stdout
    assert "raw INSERT: " in done.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert [result["name"] for result in report["results"]] == ["claim-others", "enqueue"]
    assert report["facts"]["settings"]["fsync"] == report["facts"]["settings"]["synchronous_commit"] == "on"
    assert all(result["runs"][0]["ours"] > 0 for result in report["results"])
    charts.main(tmp_path / "report.json", tmp_path)
    for name in ("throughput", "latency"):
        ET.fromstring((tmp_path / f"{name}.svg").read_text())


def test_cases_are_listed_and_a_wrong_name_is_refused_with_the_right_ones() -> None:
    listed, refused = bench("--list"), bench("drian")

    assert listed.returncode == 0
    assert "drain-snapshot" in listed.stdout
    assert refused.returncode == 1
    assert "drian" in refused.stderr
    assert "drain-snapshot" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("runs", "is_met"),
    [([{"ours": 90.0, "raw": 100.0}], True), ([{"ours": 40.0, "raw": 100.0}], False)],
)
def test_a_target_is_a_ratio_of_figures_of_one_run(runs: list[Figures], is_met: bool) -> None:
    result = summarise(case(at_least(0.5, "raw")), runs)

    assert result.is_met is is_met
    assert ("| met |" in table([result])) is is_met


def test_the_ratio_is_the_median_over_runs_and_not_the_ratio_of_medians() -> None:
    runs = [{"ours": 10.0, "raw": 10.0}, {"ours": 100.0, "raw": 200.0}, {"ours": 30.0, "raw": 100.0}]

    (ratio,) = summarise(case(at_most(1, "raw")), runs).ratios

    assert ratio.ratio == 0.5


def test_a_limit_is_about_ours_alone_and_a_missing_peer_is_left_out() -> None:
    result = summarise(case(at_least(1, "pgqueuer"), limit=5), [{"ours": 6.0}])

    assert result.ratios == []
    assert not result.is_met


def test_a_failed_case_says_why() -> None:
    assert "no server" in table([summarise(case(), [], "no server")])


@pytest.mark.parametrize(
    "conninfo", ["host=/tmp/s port=5432 user=me dbname=d", "host=db.example port=5433 user=me password=p:w dbname=d"]
)
def test_a_connection_string_becomes_the_url_that_settings_take(conninfo: str) -> None:
    from psycopg.conninfo import conninfo_to_dict

    assert conninfo_to_dict(as_uri(conninfo)) == conninfo_to_dict(conninfo)
