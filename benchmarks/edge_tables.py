"""The tables of docs/edge.md, from what edge_ved.py measured."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedwatt.report.style import name_of
from fedwatt.runs.files import write_text

PAGE = Path(__file__).parents[1] / "docs" / "edge.md"


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Markdown of each table, by its name on the page."""
    federated = found["judged"]["federated"]
    rows = [
        f"| {name} | {own['test_trips']} | {own['calibration_trips']}"
        f"{'' if own['calibrated_on'] == 'validation trips' else ' *'} | {own['rmse_wh']:.1f} | "
        f"{own['windows_covered']:.1%} | ±{own['window_width_wh'] / 2:.0f} | "
        f"{own['trips_covered']:.0%} | ±{own['trip_width_wh'] / 2:.0f} |"
        for name, own in federated.items()
    ]
    covered = np.mean([own["windows_covered"] for own in federated.values()])
    trips = np.mean([own["trips_covered"] for own in federated.values()])
    rmse = np.mean([own["rmse_wh"] for own in federated.values()])
    rows.append(
        f"| **mean of vehicles** | | | {rmse:.1f} | **{covered:.1%}** | | **{trips:.1%}** | |"
    )
    head = (
        "| vehicle | test trips | calibration trips | RMSE, Wh | windows covered | width, Wh | "
        "trips covered | width, Wh |\n|---|--:|--:|--:|--:|--:|--:|--:|\n"
    )
    made = {"coverage": head + "\n".join(rows)}
    errors = {
        kind: np.concatenate([own["trip_errors_percent"] for own in by.values()])
        for kind, by in found["judged"].items()
    }
    lines = []
    for kind, by in found["judged"].items():
        each = [np.median(own["trip_errors_percent"]) for own in by.values()]
        rmse = np.mean([own["rmse_wh"] for own in by.values()])
        lines.append(
            f"| {kind} | {len(errors[kind])} | {np.median(errors[kind]):.1f} % | "
            f"{np.mean(each):.1f} % | {rmse:.1f} |"
        )
    made["trips"] = (
        "| model | test trips of 2 km or more | median trip error | mean of vehicles' medians | "
        "window RMSE, Wh, mean of vehicles |\n|---|--:|--:|--:|--:|\n" + "\n".join(lines)
    )
    made["agreement"] = (
        "| backbone | test windows | scaled features | physical features to Wh |\n"
        "|---|--:|--:|--:|\n"
        + "\n".join(
            f"| {name.upper()} | {own['windows']:,} | "
            f"{own['worst_relative']['scaled features']:.1e} | "
            f"{own['worst_relative']['physical features']:.1e} |"
            for name, own in found["agreement"].items()
        )
    )
    made["stream"] = (
        "| vehicle | test trips | windows | largest difference, Wh |\n|---|--:|--:|--:|\n"
        + "\n".join(
            f"| {name} | {own['trips']} | {own['windows']:,} | {own['worst_wh']:.1g} |"
            for name, own in found["stream"].items()
        )
    )
    made["forms"] = "| form | file, kB | RMSE added, Wh |\n|---|--:|--:|\n" + "\n".join(
        f"| {form} | {own['bytes'] / 1000:.0f} | {max(own['loss_wh'], key=abs):+.3f} |"
        for form, own in found["forms"].items()
    )
    made["latency"] = _latency_table(found["latency"], str.upper)
    made["methods"] = _latency_table(found["methods"], name_of)
    made["memory"] = f"Peak memory of the predictor's process: {found['memory_mb']:.0f} MB."
    return made


def _latency_table(rows: list[dict[str, Any]], name: Callable[[str], str]) -> str:
    """One line for a model: batch 1 and 32 in both engines."""
    by: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for row in rows:
        by.setdefault(row["model"], {})[row["engine"], row["batch"]] = row
    lines = []
    for model, own in by.items():
        cells = []
        for batch in (1, 32):
            for engine in ("PyTorch", "onnxruntime"):
                cell = own[engine, batch]
                cells.append(f"{cell['median_us']:.1f} ({cell['p95_us']:.1f})")
        throughput = 1e6 / own["onnxruntime", 32]["median_us"]
        lines.append(f"| {name(model)} | {' | '.join(cells)} | {throughput:,.0f} |")
    return (
        "| model | batch 1, PyTorch | batch 1, onnxruntime | batch 32, PyTorch | "
        "batch 32, onnxruntime | windows/s |\n|---|--:|--:|--:|--:|--:|\n" + "\n".join(lines)
    )


def write_tables(found: dict[str, Any]) -> None:
    """Put every table between its marks on the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables(found).items():
        mark = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, times = re.subn(mark, lambda m, t=table: f"{m[1]}{t}\n{m[2]}", text, flags=re.DOTALL)
        if times != 1:
            sys.exit(f"{PAGE} has {times} places marked '{name}'; there must be one.")
    write_text(PAGE, text)
