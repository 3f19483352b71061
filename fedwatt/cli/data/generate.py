"""`fedwatt data generate` and `electrify`: fleets whose energy is simulated."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.console import console
from fedwatt.cli.data import shared


def generate(
    out: shared.Out,
    vehicles: Annotated[int, typer.Option(help="Set the number of vehicles.", min=1)] = 20,
    trips: Annotated[int, typer.Option(help="Set the trips of each vehicle.", min=3)] = 40,
    kind: shared.Kind = "passenger",
    seed: shared.Seed = 0,
) -> None:
    """Simulate a fleet: trips at 1 Hz through a hilly town, energy from physics."""
    from fedwatt.synthetic import synthetic_vehicles
    from fedwatt.telemetry.store import write_fleet

    shared.refuse_filled(out)
    made = synthetic_vehicles(vehicles, seed, trips=trips, kind=kind)
    with console.status("Driving ..."):
        write_fleet(out, made, source=f"synthetic {kind} fleet, town, seed {seed}")
    shared.say_made(out)


def electrify(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Read the speed of hybrids and petrol cars from these VED files.",
            metavar="PATH...",
        ),
    ],
    out: shared.Out,
    kind: shared.Kind = "passenger",
    seed: shared.Seed = 0,
    min_trips: Annotated[int, typer.Option(help=shared.MIN_TRIPS, min=3)] = 10,
) -> None:
    """Simulate electric vehicles at the recorded speed of any cars."""
    from fedwatt.synthetic.electrify import electrified_vehicle
    from fedwatt.telemetry.readers import VED_CLEANING, import_ved
    from fedwatt.telemetry.store import write_fleet

    shared.refuse_filled(out)
    with shared.import_progress() as report:
        cleaning = replace(VED_CLEANING, unlabelled=True, minimum_trips=min_trips)
        recordings = import_ved(
            paths, powertrain=("hev", "ice"), cleaning=cleaning, progress=report
        )
        named = ", ".join(path.name for path in paths)
        write_fleet(
            out,
            (electrified_vehicle(each, kind=kind, seed=seed) for each in recordings),
            source=f"electrified ({kind}): {named}",
        )
    console.print("\n".join(recordings.account.sentences()))
    shared.say_made(out)
