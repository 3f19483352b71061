"""`fedwatt data import` and `map`: turn recordings into a fleet, show what files are."""

from dataclasses import replace
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedwatt.cli.console import console
from fedwatt.cli.data import shared
from fedwatt.cli.data.shared import import_progress, refuse_filled
from fedwatt.errors import DataError, SettingError

if TYPE_CHECKING:
    from fedwatt.telemetry.cleaning import Cleaning
    from fedwatt.telemetry.recognise.understand import ImportAnswers, Understanding

LONGEST_READING = 12
LEAST_TRIPS = 3
REPEAT = (
    "To change its mapping, edit {mapping} and repeat with: fedwatt data import csv PATH --map "
    "{mapping} --out OTHER"
)
ONLY_CHARGE = (
    "The fleet reports its state of charge and no energy: 'fedwatt run --data {out}' predicts "
    "points of charge. To predict trips in Wh, write the usable capacity below [facts] of the "
    "mapping, pack_capacity_wh = 42000, and import with it again."
)

Paths = Annotated[
    list[Path],
    typer.Argument(help="Read these files or folders.", metavar="PATH..."),
]
Recording = Annotated[
    str,
    typer.Argument(
        help="Choose auto (look and decide), ved, eved, csv (with --map) or a reader.",
        metavar="KIND",
    ),
]
Powertrain = Annotated[
    str, typer.Option(help="Select vehicles of ved and eved: ev, phev-electric, phev, all.")
]
Mapping = Annotated[
    str | None,
    typer.Option("--map", help="Read csv by this TOML file or shipped mapping ('data map')."),
]
MinTrips = Annotated[
    int | None,
    typer.Option(help=f"{shared.MIN_TRIPS} [default: 10 for ved and eved, else 3]", min=1),
]
MinSeconds = Annotated[float, typer.Option(help="Drop shorter trips, s.")]
MinMetres = Annotated[float, typer.Option(help="Drop shorter trips, m.")]
MaxGap = Annotated[
    float | None,
    typer.Option(help="Cut trips at longer gaps, s. [default: 10, or by the rows' interval]"),
]
VehicleColumn = Annotated[
    str,
    typer.Option(
        "--vehicle-column", help="Take vehicles from this column (auto).", metavar="COLUMN"
    ),
]
TripColumn = Annotated[
    str, typer.Option("--trip-column", help="Take trips from this column (auto).", metavar="COLUMN")
]
Dates = Annotated[str, typer.Option(help="Read dates 'day first' or 'month first' (auto).")]


def import_(
    kind: Recording,
    paths: Paths,
    out: Annotated[Path | None, typer.Option(help=shared.OUT_HELP)] = None,
    powertrain: Powertrain = "ev,phev-electric",
    mapping: Mapping = None,
    vehicle: VehicleColumn = "",
    trip: TripColumn = "",
    dates: Dates = "",
    dry_run: shared.DryRun = False,
    min_trips: MinTrips = None,
    min_seconds: MinSeconds = 120.0,
    min_metres: MinMetres = 500.0,
    max_gap: MaxGap = None,
    dem: shared.TerrainModel = None,
) -> None:
    """Import recordings as a fleet: cleaned trips at 1 Hz, one folder per vehicle."""
    # Here, because only readers need polars, and a GPU box may have none.
    from fedwatt.telemetry.importing import import_fleet
    from fedwatt.telemetry.recognise.understand import ImportAnswers

    if out is not None:
        refuse_filled(out)
    answers = {"vehicle": vehicle, "trip": trip, "dates": dates}
    understanding = None
    if kind == "auto":
        understanding = understood(paths, ImportAnswers(**answers))
        kind = understanding.reader
    else:
        _refuse_answers(kind, {"vehicle-column": vehicle, "trip-column": trip, "dates": dates})
    if out is None and not dry_run:
        raise SettingError("Name the new fleet: --out FLEET, or --dry-run to leave it at this.")
    cleaning = _cleaning(kind, min_trips, min_seconds, min_metres, max_gap)
    with TemporaryDirectory(prefix="fedwatt-") as scratch, import_progress() as report:
        # A dry run is an import into a folder that goes: it accepts what an import accepts.
        fleet = Path(scratch) / "fleet" if dry_run or out is None else out
        if understanding and kind == "csv":
            paths = list(understanding.paths)
            mapping = str(store_mapping(understanding, fleet))
        sentences = import_fleet(
            fleet,
            kind,
            paths,
            cleaning,
            report,
            dem=dem,
            powertrain=tuple(part.strip() for part in powertrain.split(",")),
            mapping=mapping,
            own_gap=max_gap is not None,
        )
    outcome = "All of this can be imported; nothing is written." if dry_run else ""
    for sentence in (*sentences, outcome or f"The fleet is in {fleet}."):
        console.print(sentence, soft_wrap=True)
    if not dry_run:
        if understanding and mapping:
            console.print(REPEAT.format(mapping=quote(mapping)), soft_wrap=True)
        say_next(fleet)


def _refuse_answers(kind: str, answers: dict[str, str]) -> None:
    """Refuse what only `auto` asks for."""
    answered = [f"--{name}" for name, answer in answers.items() if answer]
    if answered:
        hint = " In csv the mapping says it." if kind == "csv" else ""
        raise SettingError(f"Only 'data import auto' takes {' and '.join(answered)}.{hint}")


def _cleaning(
    kind: str, trips: int | None, seconds: float, metres: float, gap_s: float | None
) -> "Cleaning":
    """Return the usual cleaning of a kind of recordings, with the limits asked for."""
    from fedwatt.telemetry.cleaning import PLAIN_CLEANING
    from fedwatt.telemetry.importing import USUAL_CLEANING, own_reader

    if kind not in USUAL_CLEANING:
        own_reader(kind)  # refuses what is none
    usual = USUAL_CLEANING.get(kind, PLAIN_CLEANING)
    return replace(
        usual,
        minimum_trips=trips or max(usual.minimum_trips, LEAST_TRIPS),
        minimum_seconds=seconds,
        minimum_metres=metres,
        maximum_gap_s=usual.maximum_gap_s if gap_s is None else gap_s,
    )


def map_(
    paths: Annotated[
        list[Path], typer.Argument(help="Look at these files or folders.", metavar="PATH...")
    ],
    out: Annotated[Path | None, typer.Option(help=shared.OUT_HELP)] = None,
    dates: Dates = "",
) -> None:
    """Propose a mapping from columns to channels, as TOML to check and edit."""
    from fedwatt.telemetry.recognise.understand import ImportAnswers, mapping_text, understand

    text = mapping_text(understand(paths, ImportAnswers(dates=dates)))
    if out is None:
        console.print(text, soft_wrap=True)
    else:
        out.write_text(text, encoding="utf-8")
        advice = "is a proposal: check its units and signs before you import with it."
        console.print(f"{out} {advice}", soft_wrap=True)


def understood(paths: list[Path], answers: "ImportAnswers") -> "Understanding":
    """Look at the files, show what they are, and refuse what cannot become a fleet."""
    from fedwatt.telemetry.readers.files import listed
    from fedwatt.telemetry.recognise.understand import (
        column_lines,
        refuse_incomplete,
        sentences,
        understand,
    )

    with console.status("Looking at the files ..."):
        understanding = understand(paths, answers)
    if understanding.reader != "csv":
        columns = f"{understanding.sample.path.name} has the columns of {understanding.reader}"
        console.print(
            f"{columns}: read as by 'fedwatt data import {understanding.reader}'.", soft_wrap=True
        )
        return understanding
    table = Table(title=understanding.sample.path.name, title_justify="left")
    for name in ("column", "taken as", "unit", "three readings", "why"):
        table.add_column(name, overflow="fold")
    lines = column_lines(understanding)
    for line in (line for line in lines if line.taken_as):
        readings = ", ".join(text[:LONGEST_READING] for text in line.readings)
        table.add_row(line.column, line.taken_as, line.unit, readings, line.why)
    console.print(table)
    if unused := [line.column for line in lines if not line.taken_as]:
        console.print(f"Not used: {listed(unused)}.", soft_wrap=True)
    for sentence in sentences(understanding):
        console.print(sentence, soft_wrap=True)
    refuse_incomplete(understanding)
    return understanding


def say_next(out: Path) -> None:
    """Print the commands from here to a predicted trip of this fleet."""
    from fedwatt.telemetry.store import read_vehicle, vehicle_folders
    from fedwatt.windows import DataSettings
    from fedwatt.windows.client import split_of_trips
    from fedwatt.windows.vehicle_trips import recorded_target

    folders = vehicle_folders(out)
    vehicles = [read_vehicle(folder) for folder in folders]
    place = max(range(len(folders)), key=lambda at: len(vehicles[at].trips))
    settings = DataSettings(**recorded_target(vehicles))
    if settings.target == "soc":
        console.print(ONLY_CHARGE.format(out=quote(str(out))), soft_wrap=True)
        return
    try:
        split_of = [split_of_trips(vehicle, settings) for vehicle in vehicles][place]
    except DataError as error:
        console.print(str(error), soft_wrap=True)
        return
    trip = next(trip for trip, split in split_of.items() if split == "test")
    console.print("Next, to the prediction of a trip that training does not see:")
    for command in next_commands(out, folders[place], trip):
        console.print(f"  {command}", soft_wrap=True)


def next_commands(out: Path, folder: Path, trip: str) -> tuple[str, ...]:
    """Return the commands that train a model, export it for a vehicle and predict `trip`."""
    run = quote(str(Path("runs") / out.name))
    return (
        f"fedwatt run --data {quote(str(out))} --out {run}",
        f"fedwatt export {run} --vehicle {quote(str(folder))} --out car.onnx",
        f"fedwatt predict car.onnx {quote(str(folder / trip))} --html trip.html",
    )


def store_mapping(understanding: "Understanding", out: Path) -> Path:
    """Write the mapping beside the fleet; one that is there already and differs is set aside."""
    from fedwatt.telemetry.recognise.understand import mapping_text

    path = out.with_name(f"{out.name}.mapping.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = mapping_text(understanding)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        aside = path.with_suffix(".toml.bak")
        path.replace(aside)
        console.print(f"The mapping that was there is now {aside}.", soft_wrap=True)
    path.write_text(text, encoding="utf-8")
    return path
