"""Tables of fedwatt beside what practitioners use, with intervals of the paired differences.

    python -m benchmarks.practitioner_tables            writes docs/journeys.md and README.md
    python -m benchmarks.practitioner_tables --print

Peers' errors come from results/practitioners.json and fedwatt's from results/journeys_ved.json, so
that a new record of fedwatt changes the tables without training a peer again. An interval is the
2.5th to the 97.5th percentile over 2,000 draws of vehicles and of splits, both with replacement;
both sides of a difference have the same trips or windows in every draw.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.journeys_networks import FIELD
from benchmarks.journeys_passes import SETTINGS
from benchmarks.marked import write_blocks
from fedwatt.errors import DataError

ROOT = Path(__file__).resolve().parents[1]
PEERS, FEDWATT = ROOT / "results" / "practitioners.json", ROOT / "results" / "journeys_ved.json"
PAGE, README = ROOT / "docs" / "journeys.md", ROOT / "README.md"
DRAWS, LEVEL = 2000, 0.95
Cells = Mapping[tuple[str, str], Sequence[float]]
"""(split, vehicle) -> errors of its test trips in %, or its one RMSE in Wh."""
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

    >>> rmse([[3.0], [4.0]]) ** 2
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
        """Return the difference as a table's cell."""
        return f"{self.value:+.1f} [{self.low:+.1f}, {self.high:+.1f}] {unit}".replace("-", "−")


def paired_difference(fedwatt: Cells, peer: Cells, statistic: Statistic) -> Difference:
    """Return the statistic of fedwatt less that of a peer on the same cells.

    Cells that only one side has are left out.
    """
    both = sorted(set(fedwatt) & set(peer))
    for cell in both:
        if len(fedwatt[cell]) != len(peer[cell]):
            raise DataError(
                f"Split {cell[0]} of {cell[1]} has {len(fedwatt[cell])} trips of fedwatt and "
                f"{len(peer[cell])} of its peer. Record both on the same fleet."
            )
    splits, vehicles = (sorted({cell[place] for cell in both}) for place in (0, 1))
    rng = np.random.default_rng(0)

    def gap(cells: Sequence[tuple[str, str]]) -> float:
        ours, theirs = ([side[cell] for cell in cells] for side in (fedwatt, peer))
        return statistic(ours) - statistic(theirs)

    drawn = []
    for _ in range(DRAWS):
        chosen_splits = rng.choice(splits, len(splits))
        chosen_vehicles = rng.choice(vehicles, len(vehicles))
        cells = [(str(s), str(v)) for s in chosen_splits for v in chosen_vehicles]
        drawn.append(gap([cell for cell in cells if cell in peer and cell in fedwatt]))
    low, high = np.quantile(drawn, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Difference(gap(both), float(low), float(high))


# ------------------------------------------------------------------------------- records
def peer_cells(part: Mapping[str, Any], kind: str, row: str) -> dict[tuple[str, str], list[float]]:
    """Return a peer's cells of a row; `kind` is "errors_percent" or "rmse_wh"."""
    cells = {}
    for seed, found in part.items():
        for vehicle, values in found[kind].get(row, {}).items():
            cells[seed, vehicle] = values if isinstance(values, list) else [values]
    return cells


def fedwatt_routes(
    journeys: Mapping[str, Any], peers: Mapping[str, Any]
) -> dict[tuple[str, str], list[float]]:
    """Return fedwatt's errors before departure, as last recorded trip by trip."""
    recorded = journeys["routes"].get("errors_percent")
    if recorded is None:  # a record of before it held trips: as measured beside the peers
        return peer_cells(peers["routes"], "errors_percent", "fedwatt")
    return {(seed, name): own for seed, by in recorded.items() for name, own in by.items()}


def fedwatt_trips(journeys: Mapping[str, Any], name: str) -> dict[tuple[str, str], list[float]]:
    """Return fedwatt's errors of trips with known speed; none where they are not recorded."""
    return {
        (seed, one["vehicle"]): one[name]
        for seed, found in journeys["windows"].items()
        for one in found["trips"]
        if name in one
    }


def fedwatt_windows(journeys: Mapping[str, Any], row: str) -> dict[tuple[str, str], list[float]]:
    """Return fedwatt's RMSE by vehicle."""
    return {
        (seed, vehicle): [value]
        for seed, found in journeys["windows"].items()
        for vehicle, value in found["rows"][row].items()
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

    @property
    def statistic(self) -> Statistic:
        """What the README shows."""
        return median_error if self.unit == "%" else rmse


def comparisons(peers: Mapping[str, Any], journeys: Mapping[str, Any]) -> list[Comparison]:
    """Return all tasks whose rows both records hold."""
    routes, windows = peers.get("routes", {}), peers.get("windows", {})
    earlier = "the vehicle's earlier trips"
    field = f"learned elevation (places of {FIELD.minimum_vehicles} or more vehicles)"
    expected = (
        f"route, outside temperature, the fleet's usual driving and learned elevation there "
        f"(places of {SETTINGS.minimum_vehicles} or more vehicles), {earlier}; nothing of the trip"
    )
    speed = f"speed, outside temperature, {field}, {earlier}"

    def trips(part: Mapping[str, Any], rows: Sequence[str]) -> dict[str, Cells]:
        return {row: peer_cells(part, "errors_percent", row) for row in rows}

    boosted = {
        "boosted trees of all vehicles": "boosted trees, learned elevation",
        "boosted trees of all vehicles, SRTM in place of learned elevation": "boosted trees, SRTM",
    }
    found = [
        Comparison(
            "trip before departure, median error",
            expected,
            "%",
            fedwatt_routes(journeys, peers),
            trips(
                routes,
                (
                    "RouteE, forest of the vehicle",
                    "RouteE, forest of all vehicles",
                    "mean Wh/km",
                    "RouteE, bundled Chevrolet Bolt",
                ),
            ),
        ),
        Comparison(
            "trip with known speed, median error",
            f"{speed}; no climate power",
            "%",
            fedwatt_trips(journeys, "errors_percent_without_climate"),
            trips(windows, ("RouteE, forest of the vehicle, without climate power",)),
        ),
        Comparison(
            "trip with known speed and climate power, median error",
            f"{speed}, measured heater and air conditioning",
            "%",
            fedwatt_trips(journeys, "errors_percent"),
            trips(windows, ("RouteE, forest of the vehicle, with climate power",))
            | {name: peer_cells(windows, "errors_percent", row) for name, row in boosted.items()},
        ),
        Comparison(
            "60 s window, RMSE",
            f"{speed}, measured heater and air conditioning; nothing of the trip's energy so far",
            "Wh",
            fedwatt_windows(journeys, "mixture"),
            {name: peer_cells(windows, "rmse_wh", row) for name, row in boosted.items()},
        ),
    ]
    return [one for one in found if one.fedwatt and any(one.peers.values())]


def on_same(cells: Cells, other: Cells) -> list[Sequence[float]]:
    """Return the cells that another side has as well, in one order."""
    return [cells[cell] for cell in sorted(set(cells) & set(other))]


def readme_table(found: Sequence[Comparison]) -> str:
    """Return README's table: one line for each peer of each task."""
    lines = [
        "| task | inputs known | baseline | fedwatt | difference (95 % interval) |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        for name, cells in one.peers.items():
            if not cells:
                continue
            theirs = one.statistic(on_same(cells, one.fedwatt))
            ours = one.statistic(on_same(one.fedwatt, cells))
            gap = paired_difference(one.fedwatt, cells, one.statistic)
            lines.append(
                f"| {one.task} | {one.inputs} | {name}: {theirs:.1f} {one.unit} | "
                f"{ours:.1f} {one.unit} | {gap.text(one.unit)} |"
            )
    return "\n".join(lines)


def page_block(found: Sequence[Comparison], setups: Mapping[str, Any]) -> str:
    """Return the tables of docs/journeys.md: each task with its inputs and all statistics."""
    parts = []
    for one in found:
        splits = len({cell[0] for cells in one.peers.values() for cell in cells})
        parts.append(
            f"**{one.task.split(',')[0].capitalize()}** ({splits} splits). Inputs: {one.inputs}."
        )
        if one.unit == "%":
            lines = [
                "| error of a trip's energy, % | median | mean | 90th percentile "
                "| fedwatt's median less this one |",
                "|---|---|---|---|---|",
            ]
        else:
            lines = ["| windows of 60 s | RMSE, Wh | fedwatt less this one |", "|---|---|---|"]
        peers = {name: cells for name, cells in one.peers.items() if cells}
        first = next(iter(peers.values()))
        for name, cells in {"fedwatt": one.fedwatt, **peers}.items():
            shown = on_same(cells, first)
            measures = (median_error, mean_error, tail_error) if one.unit == "%" else (rmse,)
            values = " | ".join(f"{measure(shown):.1f}" for measure in measures)
            gap = "–"
            if name != "fedwatt":
                gap = paired_difference(one.fedwatt, cells, one.statistic).text(one.unit)
            lines.append(f"| {name} | {values} | {gap} |")
        parts.append("\n".join(lines))
    chosen = [
        f"{row}: {', '.join(own['features'])} on links of {own['length_m']} m"
        for row, own in setups.items()
    ]
    parts.append(f"Chosen for RouteE on validation trips: {'; '.join(chosen)}.")
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="show the tables and write nothing")
    peers, journeys = (json.loads(file.read_text(encoding="utf-8")) for file in (PEERS, FEDWATT))
    found = comparisons(peers, journeys)
    page, table = page_block(found, peers["setups"]), readme_table(found)
    if parser.parse_args().print:
        print(f"{page}\n\n{table}")
        return
    write_blocks(PAGE, {"beside what practitioners use": page})
    if "<!-- accuracy -->" in README.read_text(encoding="utf-8"):
        write_blocks(README, {"accuracy": table})


if __name__ == "__main__":
    main()
