"""Rows of the elevation benchmarks' records, as numbers and as Markdown."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

RESULTS = Path(__file__).resolve().parents[1] / "results"
VEHICLES = 12
Cells = dict[str, dict[str, dict[str, float]]]
"""{row: {seed: {vehicle: RMSE}}}"""


def read(name: str) -> Any:
    file = RESULTS / name
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def overall(cells: dict[str, float]) -> float:
    """RMSE over all vehicles' equally many windows."""
    return float(np.sqrt(np.mean(np.square(list(cells.values())))))


def by_seed(seeds: dict[str, dict[str, float]]) -> dict[str, float]:
    """Overall RMSE of the seeds whose vehicles are all there."""
    return {seed: overall(own) for seed, own in seeds.items() if len(own) == VEHICLES}


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds and half its 95 % interval, by Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)


def with_interval(values: Sequence[float], sign: str = "", digits: int = 1) -> str:
    """Mean and half its 95 % interval over seeds, as text."""
    if len(values) == 1:
        return f"{values[0]:{sign}.{digits}f}"
    mean, half = mean_and_half(values)
    return f"{mean:{sign}.{digits}f} ± {half:.{digits}f}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
