"""Summary, CSV tables and docs blocks of the journeys benchmark, from results/journeys_ved.json."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.marked import write_blocks
from benchmarks.terrain_rows import overall, with_interval
from fedwatt.files import write_text

ROOT = Path(__file__).resolve().parents[1]
HEADLINE = "share 3, {}"
ONE = "share 1, {}"
FIRST = ("0", "1", "2", "3", "4")
"""Splits of the headline; the others are beside them for paired differences."""
ROWS = ("network", "local ridge", "mixed-effects ridge", "mean of members", "in trip")


def window_rmse(splits: Mapping[str, Any], row: str) -> dict[str, float]:
    """Return the RMSE over vehicles of a row by split, Wh."""
    return {seed: overall(own["rmse_wh"][row]["all"]) for seed, own in sorted(splits.items())}


def trip_errors(splits: Mapping[str, Any], row: str) -> dict[str, np.ndarray]:
    """Return absolute errors of trips by split, %."""
    found = {}
    for seed, own in sorted(splits.items()):
        cells = own["trips_percent"][row].values()
        found[seed] = np.abs([error for trips in cells for error in trips.values()])
    return found


def statistics(splits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key numbers of one set-up over its splits."""
    first = {seed: splits[seed] for seed in FIRST if seed in splits}
    windows = window_rmse(splits, "mean of members")
    moving = window_rmse(splits, "in trip")
    trips = np.concatenate(list(trip_errors(first, "balanced").values()))
    worst = {
        "windows": max(windows.values()) / float(np.mean(list(windows.values()))),
        "in_trip": max(moving.values()) / float(np.mean(list(moving.values()))),
    }
    return {
        "window_rmse_wh": round(float(np.mean([windows[seed] for seed in first])), 2),
        "window_rmse_in_trip_wh": round(float(np.mean([moving[seed] for seed in first])), 2),
        "window_rmse_wh_by_split": {seed: round(value, 2) for seed, value in windows.items()},
        "window_rmse_in_trip_wh_by_split": {seed: round(v, 2) for seed, v in moving.items()},
        "worst_split_over_mean": {name: round(value, 3) for name, value in worst.items()},
        "trip_error_percent": _three(trips),
        "trip_error_median_by_split": {
            seed: round(float(np.median(own)), 2)
            for seed, own in trip_errors(splits, "balanced").items()
        },
        "coverage": coverage(splits),
        "cold_over_warm": cold_over_warm(splits),
    }


def _three(values: np.ndarray) -> list[float]:
    """Return median, mean and 90th percentile."""
    return [
        round(float(f), 2) for f in (np.median(values), values.mean(), np.quantile(values, 0.9))
    ]


def coverage(splits: Mapping[str, Any]) -> dict[str, Any]:
    """Return mean and least coverage over vehicles of 90 % intervals, each over all splits, %."""
    found: dict[str, Any] = {}
    for kind in ("windows", "in_trip", "trips"):
        cells: dict[str, list[float]] = {}
        for own in splits.values():
            for vehicle, value in own["covered_percent"][kind].items():
                cells.setdefault(vehicle, []).append(value)
        means = {vehicle: float(np.mean(values)) for vehicle, values in cells.items()}
        found[kind] = {
            "mean": round(float(np.mean(list(means.values()))), 1),
            "least": round(min(means.values()), 1),
            "by_vehicle": {vehicle: round(value, 1) for vehicle, value in means.items()},
        }
    return found


def cold_over_warm(splits: Mapping[str, Any]) -> dict[str, float]:
    """Return the median over vehicles of RMSE below 5 °C over that above 15 °C, by row."""
    found = {}
    for row in ("mean of members, after ten minutes", "in trip, after ten minutes"):
        ratios = []
        for vehicle in next(iter(splits.values()))["rmse_wh"][row]["all"]:
            cold, warm = (
                [
                    own["rmse_wh"][row][band][vehicle]
                    for own in splits.values()
                    if vehicle in own["rmse_wh"][row][band]
                ]
                for band in ("below 5 °C", "above 15 °C")
            )
            if cold and warm:
                square = np.mean(np.square(cold)) / np.mean(np.square(warm))
                ratios.append(float(np.sqrt(square)))
        found[row] = round(float(np.median(ratios)), 3)
    return found


def paired(splits: Mapping[str, Any], better: str, than: str) -> str:
    """Return the mean difference of a row to another over splits, with its 95 % interval."""
    first = window_rmse(splits, better)
    second = window_rmse(splits, than)
    return with_interval([first[seed] - second[seed] for seed in first], sign="+", digits=2)


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
        ("share 1, no-climate", "shared by 1, speed known"),
        ("share 1, climate", "shared by 1, speed and climate known"),
    ):
        own = trip_errors(windows[name], "balanced").values()
        cells = (
            [float(np.median(one)) for one in own],
            [float(one.mean()) for one in own],
            [float(np.quantile(one, 0.9)) for one in own],
        )
        lines.append(f"| {text} | {' | '.join(with_interval(cell) for cell in cells)} |")
    own = trip_errors(windows["share 3, climate"], "mean Wh/km").values()
    every = np.concatenate(list(own))
    lines.append(f"| mean Wh/km of the vehicle | {' | '.join(f'{v:.1f}' for v in _three(every))} |")
    return "\n".join(lines)


def intervals_block(summary: Mapping[str, Any]) -> str:
    """Return the table of coverage."""
    lines = ["| 90 % intervals cover, % | mean over vehicles | least vehicle |", "|---|---|---|"]
    for kind, text in (
        ("windows", "windows"),
        ("in_trip", "windows, in trip"),
        ("trips", "trips, speed known"),
    ):
        cell = summary["share 3, climate"]["coverage"][kind]
        lines.append(f"| {text} | {cell['mean']} | {cell['least']} |")
    return "\n".join(lines)


def temperature_rows(windows: Mapping[str, Any]) -> list[Sequence[Any]]:
    """Return RMSE by set-up, row, vehicle and temperature band, over splits."""
    rows: list[Sequence[Any]] = [("set_up", "row", "vehicle", "temperature", "rmse_wh", "splits")]
    for name, splits in windows.items():
        for row, bands in next(iter(splits.values()))["rmse_wh"].items():
            for band in bands:
                for vehicle in bands["all"]:
                    cells = [own["rmse_wh"][row][band].get(vehicle) for own in splits.values()]
                    known = [cell for cell in cells if cell is not None]
                    if known:
                        rmse = round(float(np.sqrt(np.mean(np.square(known)))), 2)
                        rows.append((name, row, vehicle, band, rmse, len(known)))
    return rows


def write_tables(record_file: Path) -> None:
    """Write summary, results/journeys_temperature.csv and the blocks of docs/journeys.md."""
    record = json.loads(record_file.read_text(encoding="utf-8"))
    windows = record["windows"]
    complete = {name: splits for name, splits in windows.items() if len(splits) > 1}
    summary = {name: statistics(splits) for name, splits in complete.items()}
    for name, splits in complete.items():
        summary[name]["paired_windows_wh"] = {
            "mean of members less network": paired(splits, "mean of members", "network"),
            "mean of members less local ridge": paired(splits, "mean of members", "local ridge"),
            "in trip less mean of members": paired(splits, "in trip", "mean of members"),
        }
    record["summary"] = {**record.get("summary", {}), "windows": summary}
    write_text(record_file, json.dumps(record, indent=1, sort_keys=True) + "\n")
    with (ROOT / "results" / "journeys_temperature.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(temperature_rows(complete))
    if len(complete) == 4:
        blocks = {
            "windows": windows_block(complete),
            "recorded trips": trips_block(complete),
            "intervals": intervals_block(summary),
        }
        write_blocks(ROOT / "docs" / "journeys.md", blocks)
