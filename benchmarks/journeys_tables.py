"""Blocks of docs/journeys.md on windows and trips, from results/journeys_ved.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.marked import write_blocks
from benchmarks.tables import overall, with_interval

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "results" / "journeys_ved.json"
PAGE = ROOT / "docs" / "journeys.md"
HEADLINE = "share 3, climate"
LEAST_COVERED = 83
"""Percent, that intervals shall cover of every vehicle."""
ROWS = ("network", "mixed-effects ridge", "mean of members", "with earlier trips", "in trip")
KINDS = {"windows": "windows", "in_trip": "windows, in trip", "trips": "trips, speed known"}


def window_rmse(splits: Mapping[str, Any], row: str) -> dict[str, float]:
    """Return the RMSE over vehicles of a row by split, Wh."""
    return {seed: overall(split["rmse_wh"][row]["all"]) for seed, split in sorted(splits.items())}


def trip_errors(splits: Mapping[str, Any], row: str) -> dict[str, np.ndarray]:
    """Return absolute errors of trips by split, %."""
    errors = {}
    for seed, split in sorted(splits.items()):
        cells = split["trips_percent"][row].values()
        errors[seed] = np.abs([error for trips in cells for error in trips.values()])
    return errors


def _three(values: np.ndarray) -> list[float]:
    """Return median, mean and 90th percentile."""
    return [
        round(float(f), 2) for f in (np.median(values), values.mean(), np.quantile(values, 0.9))
    ]


def coverage(splits: Mapping[str, Any]) -> dict[str, Any]:
    """Return mean and least coverage over vehicles of 90 % intervals, each over all splits, %."""
    result: dict[str, Any] = {}
    for kind in ("windows", "in_trip", "trips"):
        cells: dict[str, list[float]] = {}
        for split in splits.values():
            for vehicle, value in split["covered_percent"][kind].items():
                cells.setdefault(vehicle, []).append(value)
        means = {vehicle: float(np.mean(values)) for vehicle, values in cells.items()}
        result[kind] = {
            "mean": round(float(np.mean(list(means.values()))), 1),
            "least": round(min(means.values()), 1),
            "by_vehicle": {vehicle: round(value, 1) for vehicle, value in means.items()},
        }
    return result


def windows_block(windows: Mapping[str, Any]) -> str:
    """Return the table of rows by set-up."""
    lines = [
        "| windows of a minute, RMSE in Wh | shared by 3, no climate | shared by 3, climate "
        "| shared by 1, climate |",
        "|---|---|---|---|",
    ]
    setups = ("share 3, no-climate", "share 3, climate", "share 1, climate")
    for row in ROWS:
        cells = [
            with_interval(list(window_rmse(windows[name], row).values()), digits=2)
            for name in setups
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def trips_block(windows: Mapping[str, Any]) -> str:
    """Return the table of whole trips by set-up."""
    lines = ["| trips of 2 km or more, error in % | median | mean | 90th percentile |"]
    lines.append("|---|---|---|---|")
    for name, text in (
        ("share 3, no-climate", "shared by 3, speed known"),
        ("share 3, climate", "shared by 3, speed and climate known"),
        ("share 1, climate", "shared by 1, speed and climate known"),
    ):
        by_split = trip_errors(windows[name], "balanced").values()
        cells = (
            [float(np.median(split_errors)) for split_errors in by_split],
            [float(split_errors.mean()) for split_errors in by_split],
            [float(np.quantile(split_errors, 0.9)) for split_errors in by_split],
        )
        lines.append(f"| {text} | {' | '.join(with_interval(cell) for cell in cells)} |")
    by_split = trip_errors(windows[HEADLINE], "mean Wh/km").values()
    every = np.concatenate(list(by_split))
    lines.append(f"| mean Wh/km of the vehicle | {' | '.join(f'{v:.1f}' for v in _three(every))} |")
    return "\n".join(lines)


def intervals_block(record: Mapping[str, Any]) -> str:
    """Return the table of coverage: calibrated on other vehicles, and left out of everything."""
    members = record["windows"][HEADLINE]
    covered = coverage(members)
    left_out = left_out_summary(record["left_out"], members)
    lines = [
        "| 90 % intervals cover, % | members: mean | least vehicle | left out of everything: mean "
        "| least vehicle |",
        "|---|---|---|---|---|",
    ]
    low = set()
    for kind, text in KINDS.items():
        alone = left_out["coverage"][kind]
        least = min(alone["by_vehicle"], key=lambda name: alone["by_vehicle"][name][0])
        value, error, trips = alone["by_vehicle"][least]
        lines.append(
            f"| {text} | {covered[kind]['mean']:.1f} | {covered[kind]['least']:.1f} | "
            f"{alone['mean']:.1f} | {value:.1f} ± {error:.1f} ({least}, {trips} test trips) |"
        )
        low |= {
            name
            for name, vehicle_covered in alone["by_vehicle"].items()
            if vehicle_covered[0] < LEAST_COVERED
        }
    first, second = left_out["window_rmse_wh"], left_out["window_rmse_wh_as_member"]
    splits = " and ".join(left_out["splits"])
    lines += [
        "",
        f"Left out of map, network, ridge and calibration (splits {splits}), then given its own "
        f"training trips, a vehicle's windows have {first:.1f} Wh, as a member {second:.1f} Wh. "
        f"Under {LEAST_COVERED} % of something are covered of: {', '.join(sorted(low)) or 'none'}. "
        "± is the standard error over its trips.",
    ]
    return "\n".join(lines)


def left_out_summary(record: Mapping[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
    """Return coverage and RMSE of vehicles left out of everything, beside themselves as members.

    A vehicle's coverage over splits is [percent, standard error, test trips].
    """
    cells = [(seed, name, cell) for seed, split in record.items() for name, cell in split.items()]
    coverage_of = {}
    for kind in KINDS:
        vehicles: dict[str, list[tuple[float, float, int]]] = {}
        for _, name, cell in cells:
            trips = cell["test_trips"][name]
            values = (
                cell[key][kind][name] for key in ("covered_percent", "coverage_error_percent")
            )
            vehicles.setdefault(name, []).append((*values, trips))
        by_vehicle = {}
        for name, splits in vehicles.items():
            covered, error, trips = np.array(splits).T
            weight = trips / trips.sum()
            both = float(weight @ covered), float(np.sqrt(weight**2 @ error**2))
            by_vehicle[name] = [*(round(value, 1) for value in both), int(trips.sum())]
        mean = float(np.mean([cell[0] for cell in by_vehicle.values()]))
        coverage_of[kind] = {"mean": round(mean, 1), "by_vehicle": by_vehicle}
    row = "with earlier trips"
    return {
        "splits": sorted(record),
        "coverage": coverage_of,
        "window_rmse_wh": round(
            overall({s + name: cell["rmse_wh"][row]["all"][name] for s, name, cell in cells}), 2
        ),
        "window_rmse_wh_as_member": round(
            overall({s + name: members[s]["rmse_wh"][row]["all"][name] for s, name, _ in cells}), 2
        ),
    }


def blocks() -> dict[str, str]:
    """Return every block of the page by its name."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return {
        "windows": windows_block(record["windows"]),
        "recorded trips": trips_block(record["windows"]),
        "intervals": intervals_block(record),
    }


def write_tables() -> None:
    """Write the blocks of docs/journeys.md."""
    write_blocks(PAGE, blocks())
