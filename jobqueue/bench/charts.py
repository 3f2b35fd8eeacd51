"""Draws a throughput chart and a latency chart, as plain SVG, from a report of ``jobqueue bench --json``.

``python -m jobqueue.bench.charts REPORT.json FOLDER``
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import msgspec

_BAR, _GAP, _LEFT, _WIDTH, _TOP = 18, 8, 250, 760, 44
_OURS, _OTHERS = "#2563eb", "#94a3b8"
_THROUGHPUT = (
    ("drain", ("ours", "raw SQL", "pgqueuer", "procrastinate")),
    ("bulk", ("ours", "pgqueuer", "procrastinate")),
    ("enqueue", ("ours", "raw INSERT", "pgqueuer", "procrastinate")),
    ("http-create-20", ("ours", "empty handler", "transaction per request")),
    ("http-get-20", ("ours", "empty handler")),
)
_LATENCY = (
    ("pickup", ("ours", "p99", "pgqueuer", "procrastinate")),
    ("claim-backlog", ("20 k waiting", "1 M waiting", "5 M waiting", "10 M waiting")),
    ("large", ("/api/v1/metrics (10 k)", "/api/v1/metrics (10 M)", "/api/v1/jobs? (10 k)", "/api/v1/jobs? (10 M)")),
)

Results = dict[str, dict[str, Any]]


def draw(results: Results, title: str, cases: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    """Return a chart with one group of bars per case; each group has a scale of its own."""
    rows: list[str] = []
    y = _TOP
    for name, labels in cases:
        if name not in results:
            continue
        result = results[name]
        values = {label: result["median"][label] for label in labels if label in result["median"]}
        rows.append(
            f'<text x="8" y="{y + 12}" class="case">{escape(result["title"])} ({escape(result["unit"])})</text>'
        )
        y += _BAR + _GAP
        longest = max(values.values(), default=1.0)
        for label, value in values.items():
            length = max(2.0, (_WIDTH - _LEFT - 110) * value / longest)
            fill = _OURS if label == "ours" or "M" in label or "k" in label.split("(")[-1] else _OTHERS
            shown = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
            rows.append(
                f'<text x="{_LEFT - 8}" y="{y + 13}" class="label">{escape(label)}</text>'
                f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR}" rx="2" fill="{fill}"/>'
                f'<text x="{_LEFT + length + 6:.1f}" y="{y + 13}">{shown}</text>'
            )
            y += _BAR + _GAP
        y += _GAP * 2
    style = (
        "text{font:13px system-ui,sans-serif;fill:#334155}.case{font-weight:600}.label{text-anchor:end}"
        ".title{font-size:17px;font-weight:700}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}" role="img">'
        f'<title>{escape(title)}</title><style>{style}</style><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="8" y="24" class="title">{escape(title)}</text>{"".join(rows)}</svg>\n'
    )


def main(report: Path, folder: Path) -> None:
    """Write ``throughput.svg`` and ``latency.svg``."""
    results = {result["name"]: result for result in msgspec.json.decode(report.read_bytes())["results"]}
    (folder / "throughput.svg").write_text(draw(results, "Throughput: longer is better", _THROUGHPUT), encoding="utf-8")
    (folder / "latency.svg").write_text(draw(results, "Latency: shorter is better", _LATENCY), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
