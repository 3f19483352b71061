"""Tables of fedwatt beside what practitioners use, with intervals of the paired differences.

    python -m benchmarks.practitioner_tables            writes README.md, docs and CSV
    python -m benchmarks.practitioner_tables --print

Peers' errors come from results/practitioners.json and fedwatt's from results/journeys_ved.json, so
that a new record of fedwatt changes the tables without training a peer again. An interval is the
2.5th to the 97.5th percentile over 2,000 draws of vehicles and of splits, both with replacement;
both sides of a difference have the same trips or windows in every draw.
"""

import argparse
import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.marked import write_blocks
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "results" / "practitioners.json"
FEDWATT = ROOT / "results" / "journeys_ved.json"
PAGE = ROOT / "docs" / "journeys.md"
TABLE = ROOT / "results" / "practitioners.csv"
README = ROOT / "README.md"
DRAWS = 2000
LEVEL = 0.95
Cells = dict[tuple[str, str], dict[str, float]]
"""(split, vehicle) -> trip -> absolute error in %; or (split, vehicle) -> "" -> RMSE in Wh."""
SHARED_BY = ElevationSettings().minimum_vehicles
SET_UP = f"share {SHARED_BY}, {{}}"
Statistic = Callable[[Sequence[Sequence[float]]], float]


def median_error(cells: Sequence[Sequence[float]]) -> float:
    """Return the median over all trips of the cells."""
    return float(np.median(np.concatenate(cells)))


def mean_error(cells: Sequence[Sequence[float]]) -> float:
    """Return the mean over all trips of the cells."""
    return float(np.mean(np.concatenate(cells)))


def tail_error(cells: Sequence[Sequence[float]]) -> float:
    """Return the 90th percentile over all trips of the cells."""
    return float(np.quantile(np.concatenate(cells), 0.9))


def rmse(cells: Sequence[Sequence[float]]) -> float:
    """Return the RMSE of cells that count alike.

    >>> round(rmse([[3.0], [4.0]]) ** 2, 9)
    12.5
    """
    return float(np.sqrt(np.mean(np.square(np.concatenate(cells)))))


@dataclass(frozen=True)
class Difference:
    """fedwatt less a peer with the ends of its interval."""

    value: float
    low: float
    high: float

    def text(self, unit: str) -> str:
        """Return the difference as a table's cell; one of percentages is in points."""
        name = "points" if unit == "%" else unit
        return f"{self.value:+.1f} [{self.low:+.1f}, {self.high:+.1f}] {name}".replace("-", "−")


def on_same(first: Cells, second: Cells) -> tuple[dict[Any, list[float]], dict[Any, list[float]]]:
    """Return both sides' values of the cells and trips that both have, in one order."""
    ours: dict[Any, list[float]] = {}
    theirs: dict[Any, list[float]] = {}
    for cell in sorted(set(first) & set(second)):
        trips = sorted(set(first[cell]) & set(second[cell]))
        comparable = [trip for trip in trips if np.isfinite(first[cell][trip] + second[cell][trip])]
        if not comparable:
            raise DataError(
                f"Split {cell[0]} of {cell[1]} has no trip that both sides predict. Record both "
                "on the same fleet."
            )
        ours[cell] = [first[cell][trip] for trip in comparable]
        theirs[cell] = [second[cell][trip] for trip in comparable]
    return ours, theirs


def paired_difference(fedwatt: Cells, peer: Cells, statistic: Statistic) -> Difference:
    """Return the statistic of fedwatt less that of a peer on what both have."""
    ours, theirs = on_same(fedwatt, peer)
    splits, vehicles = (sorted({cell[place] for cell in ours}) for place in (0, 1))
    rng = np.random.default_rng(0)

    def gap(cells: Sequence[tuple[str, str]]) -> float:
        return statistic([ours[cell] for cell in cells]) - statistic([theirs[c] for c in cells])

    drawn = []
    for _ in range(DRAWS):
        chosen_splits = rng.choice(splits, len(splits))
        chosen_vehicles = rng.choice(vehicles, len(vehicles))
        cells = [(str(s), str(v)) for s in chosen_splits for v in chosen_vehicles]
        drawn.append(gap([cell for cell in cells if cell in ours]))
    low, high = np.quantile(drawn, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Difference(gap(list(ours)), float(low), float(high))


# ------------------------------------------------------------------------------- records
def peer_cells(part: Mapping[str, Any], kind: str, row: str) -> Cells:
    """Return a peer's cells of a row; `kind` is "errors_percent" or "rmse_wh"."""
    cells: Cells = {}
    for seed, by_vehicle in part.items():
        for vehicle, values in by_vehicle[kind].get(row, {}).items():
            cells[seed, vehicle] = values if isinstance(values, dict) else {"": values}
    return cells


def fedwatt_routes(journeys: Mapping[str, Any], peers: Mapping[str, Any]) -> Cells:
    """Return fedwatt's errors before departure, as last recorded trip by trip."""
    recorded = journeys["routes"].get("errors_percent")
    if recorded is None:  # a record without trips: as measured beside the peers
        return peer_cells(peers["routes"], "errors_percent", "fedwatt")
    return {
        (seed, name): route_errors
        for seed, by in recorded.items()
        for name, route_errors in by.items()
    }


def fedwatt_trips(
    journeys: Mapping[str, Any], inputs: str, row: str = "balanced, without earlier trips"
) -> Cells:
    """Return fedwatt's errors of trips with known speed, as an exported model makes them."""
    return {
        (seed, vehicle): {trip: abs(error) for trip, error in trips.items()}
        for seed, split in journeys["windows"].get(SET_UP.format(inputs), {}).items()
        for vehicle, trips in split["trips_percent"][row].items()
    }


def fedwatt_windows(
    journeys: Mapping[str, Any], inputs: str, row: str = "mean of members"
) -> Cells:
    """Return fedwatt's RMSE by vehicle."""
    return {
        (seed, vehicle): {"": rmse_wh}
        for seed, split in journeys["windows"].get(SET_UP.format(inputs), {}).items()
        for vehicle, rmse_wh in split["rmse_wh"][row]["all"].items()
    }


# -------------------------------------------------------------------------------- tables
@dataclass(frozen=True)
class Comparison:
    """One task with the same inputs for fedwatt and its peers."""

    task: str
    inputs: str
    unit: str
    fedwatt: Cells
    peers: Mapping[str, Cells]
    short_inputs: str = ""
    """The inputs in README, without those that all tasks share; empty: README omits the task."""

    @property
    def statistic(self) -> Statistic:
        """Return the statistic that the README shows."""
        return median_error if self.unit == "%" else rmse


def comparisons(peers: Mapping[str, Any], journeys: Mapping[str, Any]) -> list[Comparison]:
    """Return all tasks whose rows both records hold."""
    routes = peers.get("routes", {})
    windows = peers.get("windows", {})
    elevation = f"elevation learned by the fleet (places of {SHARED_BY} or more vehicles)"
    earlier = "the vehicle's earlier trips"
    expected = (
        f"route, outside temperature, the fleet's usual driving there, {elevation}, {earlier}; "
        "nothing of the trip"
    )
    speed = f"speed, outside temperature, {elevation}, {earlier}"
    climate = "measured heater and air conditioning"

    def trips(part: Mapping[str, Any], rows: Mapping[str, str]) -> dict[str, Cells]:
        return {name: peer_cells(part, "errors_percent", row) for name, row in rows.items()}

    forest = "RouteE, forest of the vehicle"
    boosted = "boosted trees of all vehicles"
    climates = {"climate": "", "no-climate": ", without climate power"}

    def tree_cells(kind: str, inputs: str, row: str = "learned elevation") -> dict[str, Cells]:
        name = f"boosted trees, {row}{climates[inputs]}"
        return {boosted: peer_cells(peers.get("trees", {}), kind, name)}

    before = {
        forest: forest,
        "RouteE, forest of all vehicles (mass in place of name)": "RouteE, forest of all vehicles",
        "mean Wh/km of the vehicle (distance alone)": "mean Wh/km",
        "RouteE, bundled Chevrolet Bolt (no trips of VED)": "RouteE, bundled Chevrolet Bolt",
    }
    compared = [
        Comparison(
            "trip before departure, median error",
            expected,
            "%",
            fedwatt_routes(journeys, peers),
            trips(routes, before),
            "route",
        ),
        Comparison(
            "trip with known speed, median error",
            f"{speed}; no climate power",
            "%",
            fedwatt_trips(journeys, "no-climate"),
            trips(windows, {forest: f"{forest}, without climate power"})
            | tree_cells("errors_percent", "no-climate"),
            "speed",
        ),
        Comparison(
            "trip with known speed and climate power, median error",
            f"{speed}, {climate}",
            "%",
            fedwatt_trips(journeys, "climate"),
            trips(windows, {forest: f"{forest}, with climate power"})
            | tree_cells("errors_percent", "climate"),
            "speed, climate power",
        ),
        Comparison(
            "60 s window, RMSE",
            f"{speed}; no climate power, nothing of the trip's energy so far",
            "Wh",
            fedwatt_windows(journeys, "no-climate"),
            tree_cells("rmse_wh", "no-climate"),
        ),
        Comparison(
            "60 s window with climate power, RMSE",
            f"{speed}, {climate}; nothing of the trip's energy so far",
            "Wh",
            fedwatt_windows(journeys, "climate"),
            tree_cells("rmse_wh", "climate"),
            "speed, climate power",
        ),
        Comparison(
            "60 s window with climate power and earlier trips, RMSE",
            f"{speed}, {climate}, memory of earlier trips; nothing of the trip's energy so far",
            "Wh",
            fedwatt_windows(journeys, "climate", "with earlier trips"),
            tree_cells("rmse_wh", "climate", "learned elevation, earlier trips"),
        ),
        Comparison(
            "trip with known speed, climate power and earlier trips, median error",
            f"{speed}, {climate}, memory of earlier trips",
            "%",
            fedwatt_trips(journeys, "climate", "balanced"),
            tree_cells("errors_percent", "climate", "learned elevation, earlier trips"),
        ),
    ]
    return [entry for entry in compared if entry.fedwatt and any(entry.peers.values())]


SHORT_NAMES: Final = {
    "RouteE, forest of the vehicle": "RouteE per vehicle",
    "mean Wh/km of the vehicle": "mean Wh/km",
    "boosted trees of all vehicles": "pooled boosted trees",
}
"""Names of peers in README."""
ONLY_IN_CSV: Final = ("Bolt", "RouteE, forest of all vehicles")
"""Peers that results/practitioners.csv has and README leaves out."""


def readme_table(tasks: Sequence[Comparison]) -> str:
    """Return README's table of the main peers of each task, below the answer for a driver."""
    lines = [
        "| task: inputs | baseline | fedwatt | difference [95 %] |",
        "|---|---|---|---|",
    ]
    answer = ""
    for comparison in tasks:
        if not comparison.short_inputs:
            continue
        task = comparison.task.partition(" with ")[0].partition(",")[0]
        for name, cells in comparison.peers.items():
            if not cells or any(word in name for word in ONLY_IN_CSV):
                continue
            both = on_same(comparison.fedwatt, cells)
            ours, theirs = (comparison.statistic(list(side.values())) for side in both)
            gap = paired_difference(comparison.fedwatt, cells, comparison.statistic)
            unit = comparison.unit
            peer = name.partition(" (")[0]
            if (comparison.short_inputs, peer) == ("route", "mean Wh/km of the vehicle"):
                answer = (
                    f"**Before departure trips of cars that trained err by {ours:.1f} % (median); "
                    f"mean Wh/km has {theirs:.1f} %.**\n\n"
                )
            lines.append(
                f"| {task}: {comparison.short_inputs} | "
                f"{SHORT_NAMES.get(peer, peer)}: {theirs:.1f} {unit} | "
                f"{ours:.1f} {unit} | {gap.text(unit).rpartition(' ')[0]} |"
            )
    return answer + "\n".join(lines)


def csv_rows(tasks: Sequence[Comparison]) -> list[Sequence[Any]]:
    """Return one row for each method of each task: all statistics on the same trips or windows."""
    rows: list[Sequence[Any]] = [
        (
            *("task", "inputs", "method", "unit", "median", "mean", "90th percentile", "rmse"),
            *("fedwatt less this one", "low", "high", "fedwatt less this one, mean"),
        )
    ]
    for task in tasks:
        peers = {name: cells for name, cells in task.peers.items() if cells}
        first = next(iter(peers.values()))
        for name, cells in {"fedwatt": task.fedwatt, **peers}.items():
            errors = list(on_same(cells, first)[0].values())
            percent = task.unit == "%"
            measures = (median_error, mean_error, tail_error) if percent else (rmse,)
            values: list[Any] = [round(measure(errors), 2) for measure in measures]
            values = [*values, ""] if percent else ["", "", "", *values]
            gaps: list[Any] = ["", "", "", ""]
            if name != "fedwatt":
                gap = paired_difference(task.fedwatt, cells, task.statistic)
                gaps = [round(value, 2) for value in (gap.value, gap.low, gap.high)]
                in_the_mean = paired_difference(task.fedwatt, cells, mean_error).value
                gaps.append(round(in_the_mean, 2) if percent else "")
            rows.append((task.task, task.inputs, name, task.unit, *values, *gaps))
    return rows


def page_block(tasks: Sequence[Comparison]) -> str:
    """Return by how much fedwatt's errors are lower, in one sentence for docs/journeys.md."""
    sentences = []
    for entry in tasks:
        margins = []
        for name, cells in entry.peers.items():
            if not cells or name not in SHORT_NAMES or "earlier trips" in entry.task:
                continue
            both = on_same(entry.fedwatt, cells)
            ours, theirs = (entry.statistic(list(side.values())) for side in both)
            margins.append(f"{100 * (1 - ours / theirs):.1f} % ({SHORT_NAMES[name]})")
        if margins:
            sentences.append(f"{entry.task.rpartition(',')[0]}: {', '.join(margins)}")
    return (
        "fedwatt's errors (trips: median; windows: RMSE) are lower than the baselines' by: "
        f"{'; '.join(sentences)}."
    )


def main() -> None:
    """Write README's table, results/practitioners.csv and the sentences of docs/journeys.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="show the tables and write nothing")
    peers, journeys = (json.loads(file.read_text(encoding="utf-8")) for file in (PEERS, FEDWATT))
    compared = comparisons(peers, journeys)
    page = page_block(compared)
    table = readme_table(compared)
    if parser.parse_args().print:
        print(f"{page}\n\n{table}")
        return
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(csv_rows(compared))
    write_blocks(PAGE, {"beside what practitioners use": page})
    if "<!-- accuracy -->" in README.read_text(encoding="utf-8"):
        write_blocks(README, {"accuracy": table})


if __name__ == "__main__":
    main()
