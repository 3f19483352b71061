"""The attack report card on the embedded fleet and on VED.

    python benchmarks/attacks.py [--ved FOLDER]

writes results/attacks.json and the tables of docs/privacy.md. The embedded fleet has the 20
vehicles of `synthetic_fleet(20, 0)`; VED is what FOLDER holds. Crafted evaluation reads the first
48 inputs of a window; the first two vehicles of each fleet are attacked. About three minutes a
fleet on one core. Without --ved the tables have the embedded fleet alone.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.marked import write_blocks
from fedwatt.audit import LEVELS, attack_fleet
from fedwatt.audit.card import MEASURES, SET
from fedwatt.audit.levels import GUESS
from fedwatt.synthetic import synthetic_fleet, synthetic_vehicles
from fedwatt.telemetry.store import load_fleet, read_vehicle, vehicle_folders

ROOT = Path(__file__).parents[1]
SIZE: dict[str, Any] = {"inputs": 48, "windows": 100, "rounds": 3, "victims": 2, "say": print}
FLEETS = {"embedded": "the embedded fleet (simulated)", "VED": "VED (Ann Arbor, real)"}
RESULT = ROOT / "results" / "attacks.json"


def cards(ved: Path | None) -> dict[str, Any]:
    """The tables of both fleets."""
    found = {}
    fleet = synthetic_fleet(20, 0)
    telemetry = list(synthetic_vehicles(20, 0))
    found["embedded"] = attack_fleet(fleet, telemetry, **SIZE).table()
    if ved is not None:
        telemetry = [read_vehicle(folder) for folder in vehicle_folders(ved)]
        found["VED"] = attack_fleet(load_fleet(ved), telemetry, **SIZE).table()
    return found


def attack_table(found: dict[str, Any]) -> str:
    """What each attack recovers, by fleet and level."""
    columns = ("fleet", "attack", *LEVELS, GUESS)
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for fleet, card in found.items():
        for name, own in card["attacks"].items():
            figures = " | ".join(f"{own[level]:.3g}" for level in (*LEVELS, GUESS))
            lines.append(f"| {fleet}, {card['vehicles']} | {name} | {figures} |")
    lines += ["", *(f"- *{name}*: {meaning}." for name, meaning in MEASURES.items())]
    fleets = (f"{card['vehicles']} vehicles of {FLEETS[name]}" for name, card in found.items())
    of = next(iter(found.values()))["victims"]
    ran = f"Ran on {' and '.join(fleets)}; attacks on one vehicle are means over the first {of}."
    given = "; ".join(f"{name}: {', '.join(levels)}" for name, levels in SET.items())
    return "\n".join([*lines, "", f"{ran} Set, not measured: {given}."])


def poisoning_table(found: dict[str, Any]) -> str:
    """Test RMSE by fleet, lie and level."""
    levels = list(next(iter(next(iter(found.values()))["poisoning"].values())))
    lines = [f"| fleet | lie | {' | '.join(levels)} |", "|---" * (len(levels) + 2) + "|"]
    for fleet, card in found.items():
        for name, own in card["poisoning"].items():
            figures = (v if isinstance(v, str) else f"{v:,.1f}" for v in own.values())
            lines.append(f"| {fleet} | {name} | {' | '.join(figures)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ved", type=Path, help="Folder of the imported VED fleet.")
    found = cards(parser.parse_args().ved)
    RESULT.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    blocks = {"attacks": attack_table(found), "poisoning": poisoning_table(found)}
    write_blocks(ROOT / "docs" / "privacy.md", blocks)


if __name__ == "__main__":
    main()
