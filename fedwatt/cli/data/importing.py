"""`fedwatt data import` and `map`: recordings become a fleet."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import console
from fedwatt.cli.data.shared import import_progress, refuse_filled, say_made
from fedwatt.cli.data.understood import keep_mapping, say_next, understood
from fedwatt.errors import SettingError

if TYPE_CHECKING:
    from fedwatt.telemetry.cleaning import Cleaning
    from fedwatt.telemetry.importing import Maps, Recordings

Paths = Annotated[
    list[Path],
    typer.Argument(
        help="Files or folders; for sumo the FCD and the battery output.", metavar="PATH..."
    ),
]
Powertrain = Annotated[
    str,
    typer.Option(
        help="VED and eVED: which vehicles, of ev, phev-electric (all-electric trips of "
        "plug-in hybrids), phev, all; separated by commas."
    ),
]
Mapping = Annotated[
    str | None,
    typer.Option(
        "--map", help="csv: TOML file, or a shipped mapping. 'fedwatt data map' proposes one."
    ),
]
Geo = Annotated[
    bool, typer.Option("--geo", help="sumo: positions were written with --fcd-output.geo.")
]
MinimumTrips = Annotated[
    int | None,
    typer.Option(
        help="Usable trips that a vehicle must have; by default 10 for ved and eved, 1 for csv "
        "and sumo.",
        min=1,
    ),
]
MaximumGap = Annotated[
    float | None,
    typer.Option(
        help="Longest gap bridged while driving, s; a trip is cut there. By default 10; auto "
        "chooses it from the interval that it measures, csv takes the mapping's."
    ),
]
VehicleColumn = Annotated[
    str, typer.Option("--vehicle", help="auto: the column that names vehicles.", metavar="COLUMN")
]
TripColumn = Annotated[
    str, typer.Option("--trip", help="auto: the column that names trips.", metavar="COLUMN")
]
Dates = Annotated[
    str,
    typer.Option(help="auto: 'day first' or 'month first', where the dates do not tell."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="auto: show what the files are, and write nothing.")
]
Dem = Annotated[
    Path | None,
    typer.Option(
        help="Terrain model for elevation and grade: SRTM .hgt, GeoTIFF (extra 'elevation'), or "
        "a folder of them."
    ),
]
Osm = Annotated[
    Path | None,
    typer.Option(
        help="OpenStreetMap extract (.osm, .osm.pbf; extra 'osm') for speed limits, "
        "intersections, bus stops and focus points."
    ),
]
OnlyEnriched = Annotated[
    bool,
    typer.Option(
        "--only-enriched",
        help="Leave out trips that --dem or --osm do not cover; enriched features need it.",
    ),
]


def import_(
    kind: Annotated[
        str,
        typer.Argument(
            help="What the files are: auto looks at them and decides; ved, eved, csv (with --map), "
            "sumo; or a reader of your own such as ./reader.py:read. 'fedwatt plugins' lists all.",
            metavar="KIND",
        ),
    ],
    paths: Paths,
    out: Annotated[Path | None, typer.Option(help="Folder of the new fleet.")] = None,
    powertrain: Powertrain = "ev,phev-electric",
    mapping: Mapping = None,
    vehicle: VehicleColumn = "",
    trip: TripColumn = "",
    dates: Dates = "",
    dry_run: DryRun = False,
    geo: Geo = False,
    minimum_trips: MinimumTrips = None,
    minimum_seconds: Annotated[float, typer.Option(help="Shortest trip, s.")] = 120.0,
    minimum_metres: Annotated[float, typer.Option(help="Shortest trip, m.")] = 500.0,
    maximum_gap: MaximumGap = None,
    dem: Dem = None,
    osm: Osm = None,
    only_enriched: OnlyEnriched = False,
) -> None:
    """Turn recordings into a fleet: cleaned trips at 1 Hz, one folder a vehicle."""
    # Here, because only readers need polars, and a GPU box may have none.
    from fedwatt.telemetry.importing import Maps, Recordings
    from fedwatt.telemetry.recognise.understand import Answers

    if out is not None:
        refuse_filled(out)
    answers = {"vehicle": vehicle, "trip": trip, "dates": dates}
    understanding = None
    if kind == "auto":
        understanding = understood(paths, Answers(**answers))
        if dry_run:
            return
    else:
        _refuse_answers(kind, answers | {"dry-run": dry_run})
    if out is None:
        alternative = ", or --dry-run to leave it at this" if understanding else ""
        raise SettingError(f"Name the folder of the new fleet: --out FLEET{alternative}.")
    if understanding:
        kind = "csv"
        paths = list(understanding.paths)
        mapping = str(keep_mapping(understanding, out))
    recordings = Recordings(
        kind=kind,
        paths=tuple(paths),
        powertrain=tuple(part.strip() for part in powertrain.split(",")),
        mapping=mapping,
        geo=geo,
        cleaning=_cleaning(kind, minimum_trips, minimum_seconds, minimum_metres, maximum_gap),
        own_gap=maximum_gap is not None,
    )
    _read(recordings, Maps(dem=dem, osm=osm, only_enriched=only_enriched), out)
    if understanding:
        say_next(out)


def _refuse_answers(kind: str, answers: dict[str, str | bool]) -> None:
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
        minimum_trips=trips or usual.minimum_trips,
        minimum_seconds=seconds,
        minimum_metres=metres,
        maximum_gap_s=usual.maximum_gap_s if gap_s is None else gap_s,
    )


def _read(recordings: "Recordings", maps: "Maps", out: Path) -> None:
    """Write the fleet and say what became of the recordings."""
    from fedwatt.telemetry.importing import import_fleet

    with import_progress() as report:
        sentences = import_fleet(out, recordings, maps, report)
    for sentence in sentences:
        console.print(sentence, soft_wrap=True)
    say_made(out)


def map_(
    path: Annotated[Path, typer.Argument(help="A CSV or Parquet file, or a folder of them.")],
    out: Annotated[Path | None, typer.Option(help="Write it here instead of showing it.")] = None,
) -> None:
    """Propose a mapping from a file's columns to fedwatt's channels, as TOML to check and edit."""
    from fedwatt.telemetry.recognise.describe import mapping_text
    from fedwatt.telemetry.recognise.understand import understand

    text = mapping_text(understand(path))
    if out is None:
        console.print(text, soft_wrap=True)
    else:
        out.write_text(text, encoding="utf-8")
        advice = "is a proposal: check its units and signs before you import with it."
        console.print(f"{out} {advice}", soft_wrap=True)
