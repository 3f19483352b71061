"""Records of cells as numbers and as Markdown tables."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

RESULTS = Path(__file__).resolve().parents[1] / "results"
VEHICLES = 12
Cells = dict[str, dict[str, dict[str, float]]]
"""{row: {seed: {vehicle: RMSE}}}"""


def read(name: str) -> Any:
    """Return a record of results/, or {} where there is none."""
    file = RESULTS / name
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def overall(cells: dict[str, float]) -> float:
    """Return the RMSE over all vehicles' equally many windows."""
    return float(np.sqrt(np.mean(np.square(list(cells.values())))))


def by_seed(seeds: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the overall RMSE of the seeds whose vehicles are all there."""
    return {seed: overall(errors) for seed, errors in seeds.items() if len(errors) == VEHICLES}


def with_interval(values: Sequence[float], sign: str = "", digits: int = 1) -> str:
    """Return the mean over seeds and half its 95 % interval by Student's t, as text."""
    if len(values) == 1:
        return f"{values[0]:{sign}.{digits}f}"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):{sign}.{digits}f} ± {half:.{digits}f}"


def table(head: str, rows: Iterable[str]) -> str:
    """Return a Markdown table; cells are separated by bars, and all but the first are numbers."""
    lines = [head.replace("|", " | "), "---" + "|--:" * head.count("|")]
    lines += [row.replace("|", " | ") for row in rows]
    return "\n".join(f"| {line} |" if "--:" not in line else f"|{line}|" for line in lines)
