"""Routes under masks on VED: the open exchange's cells, and what vehicles send for them.

    python benchmarks/routes_masked.py --fleet FLEET

FLEET is VED imported with '--powertrain ev,phev-electric'. Every vehicle's keys, shares and vectors
are made, added up and unmasked as on a real fleet, in one process; hills are those of an open
exchange. Writes results/routes_masked.json and a table of docs/deploy.md. Seconds are of one core
(process time). About two minutes.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.marked import write_blocks
from benchmarks.terrain_masked import AREA, ROOT, size
from fedwatt.elevation.learn import learn
from fedwatt.journeys.driving_exchange import DrivingQuestion, learn_driving
from fedwatt.journeys.route_board import RouteBoard
from fedwatt.journeys.route_exchange import learn_from_pupils, learn_routes
from fedwatt.journeys.route_questions import Pupil, RouteQuestion, SharedDriving
from fedwatt.privacy.fixed_point import Layout
from fedwatt.privacy.secure.rehearsal import rehearse
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.runs.config import from_tables
from fedwatt.runs.routes import route_board
from fedwatt.telemetry.store import read_fleet
from fedwatt.telemetry.trip import FloatArray

Question = DrivingQuestion | RouteQuestion


@dataclass
class Rehearsed:
    """Vehicles whose answers are added up under masks, and what they send."""

    boards: Mapping[str, RouteBoard]
    rows: list[dict[str, Any]] = field(default_factory=list)
    pupils: dict[str, Pupil] = field(default_factory=dict)
    numbers: Any = field(default_factory=count)

    def share(self, shared: SharedDriving, present: frozenset[str]) -> frozenset[str]:
        """All of them have the driving field."""
        self.pupils = {name: Pupil(self.boards[name], shared) for name in present}
        self.rows.append({"asked": "driving field", "bytes_down": _bytes(shared)})
        return present

    def answer(self, question: Question, name: str) -> dict[str, FloatArray]:
        """What a vehicle adds."""
        if isinstance(question, DrivingQuestion):
            return question.answer(self.boards[name].sums)
        return question.answer(self.pupils[name])

    def total(
        self, question: Question, present: frozenset[str]
    ) -> tuple[Mapping[str, FloatArray], frozenset[str]]:
        """The total, unmasked."""
        sent: Counter[str] = Counter()
        begin = process_time()
        layout = Layout(question.fields, vehicles=len(present))
        words = {name: layout.encode(self.answer(question, name)) for name in sorted(present)}
        summed = process_time() - begin
        terms = SecureSettings(bits=64).terms(
            run="routes", number=next(self.numbers), called=len(words), length=layout.length
        )

        def hear(message: Any) -> None:
            sent[message.vehicle] += size(message)

        total, survivors = rehearse(terms, words, overheard=hear)
        assert len(set(sent.values())) == 1, "vehicles send as much as each other"
        self.rows.append(
            {
                "asked": question.kind,
                "numbers": layout.length,
                "bytes_up": max(sent.values()),
                "seconds_a_vehicle": round(summed / len(words), 4),
            }
        )
        return layout.decode(total), frozenset(survivors)


def _bytes(shared: SharedDriving) -> int:
    return sum(array.nbytes for array in shared.arrays.values())


def measure(fleet: Path) -> dict[str, Any]:
    config = from_tables({"terrain": {"area": list(AREA)}})
    vehicles = list(read_fleet(fleet))
    learned = learn(vehicles, config.terrain, config.data)
    boards = {v.name: route_board(v, config, learned.own[v.name]) for v in vehicles}
    fleet_ = Rehearsed(boards)
    driving, insiders = learn_driving(fleet_.total, frozenset(boards), config.terrain)
    hills = learned.shared
    masked = learn_from_pupils(fleet_, driving, insiders, config.terrain, hills)
    clear = learn_routes(boards, config.terrain, hills=hills)
    assert np.array_equal(masked.driving.keys, clear.driving.keys), "the same cells are published"
    return {
        "vehicles": len(vehicles),
        "area": list(AREA),
        "area_places": config.terrain.service_area.size(learned.shared.grid),
        "cells": len(masked.driving.keys),
        "difference": float(np.abs(masked.driving.sums - clear.driving.sums).max()),
        "exchanges": fleet_.rows,
    }


def table(found: dict[str, Any]) -> str:
    """The table of docs/deploy.md."""
    sums = [row for row in found["exchanges"] if "bytes_up" in row]
    names = {
        "places": "places of the area",
        "headings": "headings of places of k vehicles",
        "sums": "seven sums of headings of k vehicles",
        "units": "sizes of features",
        "effects": "coefficients",
        "errors": "counts of errors",
        "correction": "correction under way",
        "under way": "counts of errors under way",
    }
    lines = [
        "| secure sums | numbers | a vehicle sends, kB each | and computes, ms |",
        "|---|---|---|---|",
    ]
    for kind, name in names.items():
        some = [row for row in sums if row["asked"] == kind]
        longest = 1000 * max(row["seconds_a_vehicle"] for row in some)
        kilobytes = some[0]["bytes_up"] / 1000
        lines.append(
            f"| {len(some)}: {name} | {some[0]['numbers']:,} | {kilobytes:,.0f} | {longest:.0f} |"
        )
    return "\n".join(lines)


def sentence(found: dict[str, Any]) -> str:
    """What stands above the table."""
    (down,) = (row["bytes_down"] for row in found["exchanges"] if "bytes_down" in row)
    return (
        f"{found['vehicles']} vehicles of VED in Ann Arbor: {found['area_places']:,} places in the "
        f"area, {found['cells']:,} cells of three vehicles or more published. They are the cells "
        f"of an open exchange, and sums differ from its by at most {found['difference']:.0e}. The "
        f"driving field that every vehicle receives has {down / 1e6:.1f} MB. Milliseconds are what "
        "a vehicle computes in the mean, without masks, for the longest of these answers."
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fleet", type=Path, required=True)
    found = measure(parser.parse_args().fleet)
    (ROOT / "results" / "routes_masked.json").write_text(json.dumps(found, indent=2) + "\n")
    block = f"{sentence(found)}\n\n{table(found)}"
    write_blocks(ROOT / "docs" / "deploy.md", {"routes": block})
    print(block)


if __name__ == "__main__":
    main()
