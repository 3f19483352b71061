"""Result of `fedwatt data import auto`: shown as a table, stored as a mapping."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.table import Table

from fedwatt.cli.console import console

if TYPE_CHECKING:
    from fedwatt.telemetry.recognise.understand import Answers, Understanding

LONGEST_READING = 12
FEWEST_TRIPS = 3
ONLY_CHARGE = (
    "The fleet reports its charge and no energy. Train on points of charge with: fedwatt run "
    "--data {out} --set data.target=soc --set data.window=300. To predict trips in Wh, write the "
    "usable capacity below [facts] of the mapping, pack_capacity_wh = 42000, and import with it "
    "again."
)


def understood(paths: list[Path], answers: "Answers") -> "Understanding":
    """Look at the files, show what they are, and refuse what cannot become a fleet."""
    from fedwatt.telemetry.recognise.describe import column_lines, refuse_incomplete, sentences
    from fedwatt.telemetry.recognise.understand import understand

    with console.status("Looking at the files ..."):
        understanding = understand(paths, answers)
    table = Table(title=understanding.sample.path.name, title_justify="left")
    for name in ("column", "taken as", "unit", "three readings", "why"):
        table.add_column(name, overflow="fold")
    lines = column_lines(understanding)
    for line in (line for line in lines if line.taken_as):
        readings = ", ".join(text[:LONGEST_READING] for text in line.readings)
        table.add_row(line.column, line.taken_as, line.unit, readings, line.why)
    console.print(table)
    if unused := [line.column for line in lines if not line.taken_as]:
        console.print(f"Not used: {', '.join(unused)}.", soft_wrap=True)
    for sentence in sentences(understanding):
        console.print(sentence, soft_wrap=True)
    refuse_incomplete(understanding)
    return understanding


def say_next(out: Path) -> None:
    """Print the commands from here to a predicted trip of this fleet."""
    from fedwatt.telemetry.store import read_vehicle, vehicle_folders
    from fedwatt.windows import DataSettings
    from fedwatt.windows.split import split_trips

    folders = vehicle_folders(out)
    vehicles = (read_vehicle(folder) for folder in folders)
    folder, vehicle = max(zip(folders, vehicles, strict=True), key=lambda pair: len(pair[1].trips))
    recordings = {trip.name: trip.recording for trip in vehicle.trips}
    if len(set(recordings.values())) < FEWEST_TRIPS:
        console.print(
            f"No vehicle has {FEWEST_TRIPS} trips yet, which training needs: record more."
        )
        return
    settings = DataSettings()
    trip = split_trips(vehicle.name, recordings, settings.split, settings.split_seed)["test"][0]
    target = ""
    if "energy_wh" not in vehicle.trips[0].channels:
        if "pack_capacity_wh" not in vehicle.facts:
            console.print(ONLY_CHARGE.format(out=quote(str(out))), soft_wrap=True)
            return
        target = " --set data.target=energy-from-soc --set data.window=300"
    console.print("Next, to the prediction of a trip that training does not see:")
    for command in next_commands(out, folder, trip, target):
        console.print(f"  {command}", soft_wrap=True)


def next_commands(out: Path, folder: Path, trip: str, target: str) -> tuple[str, ...]:
    """Return the commands that train the recommended method, export a model and predict `trip`."""
    from fedwatt.methods.recommended import RECOMMENDED

    run = Path("runs") / out.name
    return (
        f"fedwatt run --data {quote(str(out))}{target} --method {RECOMMENDED} --seeds 1 "
        f"--personalise --out {quote(str(run))}",
        f"fedwatt export {quote(str(run))} --vehicle {quote(str(folder))} --model personalised "
        "--out car.onnx",
        f"fedwatt predict car.onnx {quote(str(folder / trip))} --html trip.html",
    )


def keep_mapping(understanding: "Understanding", out: Path) -> Path:
    """Write the mapping beside the fleet; one that is there already and differs is set aside."""
    from fedwatt.telemetry.recognise.describe import mapping_text

    path = out.with_name(f"{out.name}.mapping.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = mapping_text(understanding)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        aside = path.with_suffix(".toml.bak")
        path.replace(aside)
        console.print(f"The mapping that was there is now {aside}.", soft_wrap=True)
    path.write_text(text, encoding="utf-8")
    console.print(
        f"Mapping: {path}. Edit it and repeat with: fedwatt data import csv PATH --map "
        f"{quote(str(path))} --out OTHER",
        soft_wrap=True,
    )
    return path
