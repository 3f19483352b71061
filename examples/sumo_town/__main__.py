"""Drive a small town in Eclipse SUMO and write its electric vehicles as a fleet.

python -m examples.sumo_town --out FLEET [--vehicles N] [--trips N] [--kind truck] [--seed N]
"""

import argparse
from pathlib import Path

from examples.sumo_town import SumoTown, sumo_vehicles
from fedwatt.telemetry.store import write_fleet


def main() -> None:
    """Drive the town and write the fleet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--vehicles", type=int, default=10)
    parser.add_argument("--trips", type=int, default=10, help="of each vehicle")
    parser.add_argument("--kind", default="passenger", help="passenger, truck or bus")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    town = SumoTown(
        vehicles=options.vehicles, trips=options.trips, kind=options.kind, seed=options.seed
    )
    write_fleet(options.out, sumo_vehicles(town), f"SUMO, {town.kind} fleet, seed {town.seed}")
    print(f"The fleet is in {options.out}. Train on it with: fedwatt run --data {options.out}")


if __name__ == "__main__":
    main()
