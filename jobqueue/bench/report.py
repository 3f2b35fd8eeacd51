"""From runs to a table and a JSON file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from jobqueue.bench.case import Case, Figures, Target


class Ratio(msgspec.Struct, frozen=True):
    """Ours divided by a yardstick: the median over runs, of figures taken in the same run."""

    label: str
    ratio: float
    target: str
    is_met: bool


class Result(msgspec.Struct, frozen=True):
    """What became of one case."""

    name: str
    title: str
    unit: str
    runs: list[Figures]
    median: Figures
    ratios: list[Ratio] = []
    limit: float | None = None
    error: str | None = None

    @property
    def is_met(self) -> bool:
        """Tell whether every target was met."""
        within = self.limit is None or self.median.get("ours", 0.0) <= self.limit
        return self.error is None and within and all(ratio.is_met for ratio in self.ratios)


def summarise(case: Case, runs: Sequence[Figures], error: str | None = None) -> Result:
    """Return the result of a case's runs."""
    labels = list(dict.fromkeys(label for run in runs for label in run))
    median = {label: statistics.median(run[label] for run in runs if label in run) for label in labels}
    ratios = [_ratio(target, runs) for target in case.targets if target.label in median]
    return Result(case.name, case.title, case.unit, list(runs), median, ratios, case.limit, error)


def _ratio(target: Target, runs: Sequence[Figures]) -> Ratio:
    ratio = statistics.median(run["ours"] / run[target.label] for run in runs if target.label in run)
    return Ratio(target.label, ratio, f"{target.relation} {target.bound:g}", target.is_met(ratio))


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table, one row per comparison."""
    lines = ["| case | ours | beside | ratio | target | |", "|---|---|---|---|---|---|"]
    for result in results:
        if result.error is not None:
            lines.append(f"| {result.title} | {result.error} | | | | failed |")
            continue
        ours = _spread(result, "ours")
        compared = {ratio.label for ratio in result.ratios}
        if result.limit is not None:
            verdict = "met" if result.is_met else "missed"
            lines.append(f"| {result.title} | {ours} | | | <= {result.limit:g} | {verdict} |")
        for ratio in result.ratios:
            beside = f"{ratio.label}: {_spread(result, ratio.label)}"
            verdict = "met" if ratio.is_met else "missed"
            lines.append(f"| {result.title} | {ours} | {beside} | {ratio.ratio:.2f} | {ratio.target} | {verdict} |")
        lines += [
            f"| {result.title} | {ours} | {label}: {_spread(result, label)} | | | |"
            for label in result.median
            if label != "ours" and label not in compared
        ]
        if len(result.median) == 1 and result.limit is None:
            lines.append(f"| {result.title} | {ours} | | | | |")
    return "\n".join(lines)


def _spread(result: Result, label: str) -> str:
    values = [run[label] for run in result.runs if label in run]
    median = f"{_short(result.median[label])} {result.unit}" if "%" not in label else _short(result.median[label])
    return median if len(values) == 1 else f"{median} ({_short(min(values))}–{_short(max(values))})"


def _short(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def document(facts: dict[str, object], results: Sequence[Result]) -> bytes:
    """Return the whole report as JSON."""
    return msgspec.json.format(msgspec.json.encode({"facts": facts, "results": list(results)}), indent=2)
