"""Summary, CSV tables and docs blocks of the journeys benchmark, from results/journeys_ved.json."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.marked import write_blocks
from benchmarks.tables import overall, with_interval
from fedwatt.files import write_text

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "results" / "journeys_ved.json"
PAGE = ROOT / "docs" / "journeys.md"
HEADLINE = "share 3, {}"
SET_UPS = {HEADLINE.format("no-climate"): "no climate", HEADLINE.format("climate"): "climate"}
"""Set-ups that docs/journeys.md shows, of those in the record."""
FIRST = ("0", "1", "2", "3", "4")
"""Splits of the headline; the others are beside them for paired differences."""
LEAST_COVERED = 83
"""Percent, that intervals shall cover of every vehicle."""
ROWS = ("network", "mixed-effects ridge", "mean of members", "with earlier trips", "in trip")
BANDS = ("below 5 °C", "5 to 15 °C", "above 15 °C")
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


def statistics(splits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key numbers of one set-up over its splits."""
    first = {seed: splits[seed] for seed in FIRST if seed in splits}
    windows = window_rmse(splits, "with earlier trips")
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
            seed: round(float(np.median(errors)), 2)
            for seed, errors in trip_errors(splits, "balanced").items()
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
    result: dict[str, Any] = {}
    for kind in KINDS:
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


def cold_over_warm(splits: Mapping[str, Any]) -> dict[str, float]:
    """Return the median over vehicles of RMSE below 5 °C over that above 15 °C, by row."""
    by_row = {}
    for row in ("with earlier trips, after ten minutes", "in trip, after ten minutes"):
        ratios = []
        for vehicle in next(iter(splits.values()))["rmse_wh"][row]["all"]:
            cold, warm = (
                [
                    split["rmse_wh"][row][band][vehicle]
                    for split in splits.values()
                    if vehicle in split["rmse_wh"][row][band]
                ]
                for band in ("below 5 °C", "above 15 °C")
            )
            if cold and warm:
                square = np.mean(np.square(cold)) / np.mean(np.square(warm))
                ratios.append(float(np.sqrt(square)))
        by_row[row] = round(float(np.median(ratios)), 3)
    return by_row


def paired(splits: Mapping[str, Any], better: str, than: str) -> str:
    """Return the mean difference of a row to another over splits, with its 95 % interval."""
    first = window_rmse(splits, better)
    second = window_rmse(splits, than)
    return with_interval([first[seed] - second[seed] for seed in first], sign="+", digits=2)


def windows_block(windows: Mapping[str, Any]) -> str:
    """Return the table of rows by set-up."""
    recorded = [name for name in SET_UPS if name in windows]
    head = " | ".join(SET_UPS[name] for name in recorded)
    lines = [f"| windows, RMSE in Wh | {head} |", "|---" * (len(recorded) + 1) + "|"]
    for row in ROWS:
        cells = [
            with_interval(list(window_rmse(windows[name], row).values()), digits=2)
            for name in recorded
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def trips_block(windows: Mapping[str, Any]) -> str:
    """Return the table of whole trips by set-up."""
    lines = ["| trips of 2 km or more, speed known: error in % | median | mean | 90th percentile |"]
    lines.append("|---|---|---|---|")
    for name, text in SET_UPS.items():
        by_split = trip_errors(windows.get(name, {}), "balanced").values()
        if not by_split:
            continue
        cells = (
            [float(np.median(split_errors)) for split_errors in by_split],
            [float(split_errors.mean()) for split_errors in by_split],
            [float(np.quantile(split_errors, 0.9)) for split_errors in by_split],
        )
        lines.append(f"| {text} | {' | '.join(with_interval(cell) for cell in cells)} |")
    by_split = trip_errors(windows["share 3, climate"], "mean Wh/km").values()
    every = np.concatenate(list(by_split))
    lines.append(f"| mean Wh/km of the vehicle | {' | '.join(f'{v:.1f}' for v in _three(every))} |")
    return "\n".join(lines)


def intervals_block(record: Mapping[str, Any]) -> str:
    """Return the table of coverage: calibrated on other vehicles, and left out of everything."""
    covered = record["summary"]["windows"]["share 3, climate"]["coverage"]
    left_out = left_out_summary(record["left_out"])
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
    first = left_out["window_rmse_wh"]
    second = left_out["window_rmse_wh_as_member"]
    splits = ", ".join(left_out["splits"])
    lines += [
        "",
        f"Left out of map, network, ridge and calibration (splits {splits}), then given its own "
        f"training trips, a vehicle's windows have {first:.1f} Wh, as a member {second:.1f} Wh. "
        f"Vehicles with a coverage under {LEAST_COVERED} %: {', '.join(sorted(low)) or 'none'}. "
        "± is the standard error over trips.",
    ]
    return "\n".join(lines)


def left_out_summary(record: Mapping[str, Any]) -> dict[str, Any]:
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
            overall({s + name: cell["as_member"]["rmse_wh"] for s, name, cell in cells}), 2
        ),
    }


def add_members(record: dict[str, Any]) -> None:
    """Put beside each vehicle that was left out what it has as a member on the same trips."""
    members = record["windows"][HEADLINE.format("climate")]
    for seed, split in record["left_out"].items():
        for name, cell in split.items():
            same = members[seed]
            cell["as_member"] = {
                "rmse_wh": same["rmse_wh"]["with earlier trips"]["all"][name],
                "covered_percent": {kind: same["covered_percent"][kind][name] for kind in KINDS},
            }


def temperature_rows(windows: Mapping[str, Any]) -> list[Sequence[Any]]:
    """Return RMSE by set-up, row, vehicle and temperature band, over splits."""
    rows: list[Sequence[Any]] = [("set_up", "row", "vehicle", "temperature", "rmse_wh", "splits")]
    for name, splits in windows.items():
        for row, bands in next(iter(splits.values()))["rmse_wh"].items():
            for band in bands:
                for vehicle in bands["all"]:
                    cells = [split["rmse_wh"][row][band].get(vehicle) for split in splits.values()]
                    recorded = [cell for cell in cells if cell is not None]
                    if recorded:
                        rmse = round(float(np.sqrt(np.mean(np.square(recorded)))), 2)
                        rows.append((name, row, vehicle, band, rmse, len(recorded)))
    return rows


def blocks() -> dict[str, str]:
    """Return the blocks of docs/journeys.md from the record."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return {
        "windows": windows_block(record["windows"]),
        "recorded trips": trips_block(record["windows"]),
        "intervals": intervals_block(record),
    }


def write_tables(record_file: Path) -> None:
    """Write summary, results/journeys_temperature.csv and the blocks of docs/journeys.md."""
    record = json.loads(record_file.read_text(encoding="utf-8"))
    windows = record["windows"]
    complete = {name: splits for name, splits in windows.items() if len(splits) > 1}
    summary = {name: statistics(splits) for name, splits in complete.items()}
    for name, splits in complete.items():
        summary[name]["paired_windows_wh"] = {
            "mean of members less network": paired(splits, "mean of members", "network"),
            "mean of members less ridge": paired(splits, "mean of members", "mixed-effects ridge"),
            "earlier trips less mean": paired(splits, "with earlier trips", "mean of members"),
            "in trip less earlier trips": paired(splits, "in trip", "with earlier trips"),
        }
    add_members(record)
    left_out = left_out_summary(record["left_out"])
    record["summary"] = {**record.get("summary", {}), "windows": summary, "left_out": left_out}
    write_text(record_file, json.dumps(record, indent=1, sort_keys=True) + "\n")
    with (ROOT / "results" / "journeys_temperature.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(temperature_rows(complete))
    write_blocks(PAGE, blocks())
