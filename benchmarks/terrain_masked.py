"""Hills under masks on VED: the open field's nodes and elevations, and what vehicles send for them.

    python benchmarks/terrain_masked.py --fleet FLEET

FLEET is VED imported with '--powertrain ev,phev-electric'. Every vehicle's keys, shares and vectors
are made, added up and unmasked as on a real fleet, in one process. Writes
results/terrain_masked.json and the table of docs/deploy.md. Seconds are of one core (process time),
so a busy machine lengthens them little. About half a minute.
"""

import argparse
import json
from collections import Counter
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.marked import write_blocks
from fedwatt.elevation.exchange import learn_from_totals
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import shared_field
from fedwatt.elevation.question import Question
from fedwatt.elevation.settings import TerrainSettings
from fedwatt.elevation.survey import survey
from fedwatt.privacy.fixed_point import Layout
from fedwatt.privacy.secure.plain import to_plain
from fedwatt.privacy.secure.rehearsal import rehearse
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.telemetry.store import read_fleet
from fedwatt.windows import DataSettings

ROOT = Path(__file__).parents[1]
AREA = (42.2, 42.35, -83.85, -83.65)
"""Ann Arbor."""
DATA = DataSettings(features="base, terrain")


def size(message: Any) -> int:
    """Bytes of the values of a message, without the transport's own and the vehicle's name."""
    total = 0
    for value in to_plain(message).values():
        for part in value if isinstance(value, list) else [value]:
            total += len(part) if isinstance(part, bytes) else 0
    return total


def measure(fleet: Path) -> dict[str, Any]:
    settings, grid = TerrainSettings(area=AREA, source="learn", choose_prior=False), Grid()
    surveys = {v.name: survey(v, grid, settings.segment_s, DATA) for v in read_fleet(fleet)}
    rows: list[dict[str, Any]] = []
    numbers = count()

    def totals(question: Question, present: frozenset[str]) -> Any:
        sent: Counter[str] = Counter()
        begin = process_time()
        layout = Layout(question.fields, vehicles=len(present))
        words = {name: layout.encode(question.answer(surveys[name])) for name in sorted(present)}
        summed = process_time() - begin
        terms = SecureSettings().terms(
            run="hills", number=next(numbers), called=len(words), length=layout.length
        )

        def hear(message: Any) -> None:
            sent[message.vehicle] += size(message)

        total, survivors = rehearse(terms, words, overheard=hear)
        assert len(set(sent.values())) == 1, "vehicles send as much as each other"
        rows.append(
            {
                "asked": "count" if question.field is None else "sums",
                "nodes": len(question.nodes),
                "bytes_up": max(sent.values()),
                "seconds_a_vehicle": round(summed / len(words), 4),
                "seconds_of_masks": round((process_time() - begin - summed) / len(words), 4),
            }
        )
        return layout.decode(total), frozenset(survivors)

    masked = learn_from_totals(totals, frozenset(surveys), grid, settings)
    clear, _ = shared_field(list(surveys.values()), grid, settings)
    assert np.array_equal(masked.field.keys, clear.keys), "the same nodes are published"
    return {
        "vehicles": len(surveys),
        "area": list(AREA),
        "area_nodes": settings.service_area.size(grid),
        "driven": masked.driven,
        "nodes": masked.field.nodes,
        "difference_m": float(np.abs(masked.field.elevation_m - clear.elevation_m).max()),
        "exchanges": rows,
    }


def table(found: dict[str, Any]) -> str:
    """The table of docs/deploy.md."""
    rows = found["exchanges"]
    counts = [row for row in rows if row["asked"] == "count"]
    sums = [row for row in rows if row["asked"] == "sums"]
    lines = ["| secure sums | over nodes | a vehicle sends, kB each |", "|---|---|---|"]
    for what, some in (("1 count", counts[:1]), ("more counts", counts[1:]), ("sums", sums)):
        nodes = sorted({row["nodes"] for row in some})
        sent = sorted({round(row["bytes_up"] / 1000) for row in some})
        number = what if what.startswith("1") else f"{len(some)} {what}"
        lines.append(f"| {number} | {_range(nodes)} | {_range(sent)} |")
    return "\n".join(lines)


def _range(values: list[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fleet", type=Path, required=True)
    found = measure(parser.parse_args().fleet)
    (ROOT / "results" / "terrain_masked.json").write_text(json.dumps(found, indent=2) + "\n")
    sentence = (
        f"{found['vehicles']} vehicles of VED in Ann Arbor: {found['area_nodes']:,} nodes in the "
        f"area, {found['driven']:,} driven, {found['nodes']:,} published. They are the nodes of an "
        f"open exchange, and elevations differ from its by at most {found['difference_m']:.0e} m."
    )
    write_blocks(ROOT / "docs" / "deploy.md", {"hills": f"{sentence}\n\n{table(found)}"})
    print(sentence, table(found), sep="\n\n")


if __name__ == "__main__":
    main()
