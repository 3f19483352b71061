"""`fedwatt data import` and `map`: recordings become a fleet."""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import console
from fedwatt.cli.data.shared import Out, import_progress, refuse_filled, say_account, say_made
from fedwatt.errors import SettingError

if TYPE_CHECKING:
    from fedwatt.data import Vehicle


class Kind(StrEnum):
    """What the recordings are."""

    VED = "ved"
    EVED = "eved"
    CSV = "csv"
    SUMO = "sumo"


def import_(
    kind: Annotated[Kind, typer.Argument(help="What the files are.")],
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Files or folders; for sumo the FCD and the battery output.", metavar="PATH..."
        ),
    ],
    out: Out,
    powertrain: Annotated[
        str,
        typer.Option(
            help="VED and eVED: which vehicles, of ev, phev-electric (all-electric trips of "
            "plug-in hybrids), phev, all; separated by commas."
        ),
    ] = "ev,phev-electric",
    mapping: Annotated[
        str | None,
        typer.Option(
            "--map", help="csv: TOML file, or a shipped mapping. 'fedwatt data map' proposes one."
        ),
    ] = None,
    geo: Annotated[
        bool, typer.Option("--geo", help="sumo: positions were written with --fcd-output.geo.")
    ] = False,
    minimum_trips: Annotated[
        int | None,
        typer.Option(
            help="Usable trips that a vehicle must have; by default 10 for ved and eved, 1 for csv "
            "and sumo.",
            min=1,
        ),
    ] = None,
    minimum_seconds: Annotated[float, typer.Option(help="Shortest trip, s.")] = 120.0,
    minimum_metres: Annotated[float, typer.Option(help="Shortest trip, m.")] = 500.0,
    maximum_gap: Annotated[
        float, typer.Option(help="Longest gap bridged while driving, s; a trip is cut there.")
    ] = 10.0,
    dem: Annotated[
        Path | None,
        typer.Option(
            help="Terrain model for elevation and grade: SRTM .hgt, GeoTIFF (extra 'terrain'), or "
            "a folder of them."
        ),
    ] = None,
    osm: Annotated[
        Path | None,
        typer.Option(
            help="OpenStreetMap extract (.osm, .osm.pbf; extra 'osm') for speed limits, "
            "intersections, bus stops and focus points."
        ),
    ] = None,
    only_enriched: Annotated[
        bool,
        typer.Option(
            "--only-enriched",
            help="Leave out trips that --dem or --osm do not cover; enriched features need it.",
        ),
    ] = False,
) -> None:
    """Turn recordings into a fleet: cleaned trips at 1 Hz, one folder a vehicle."""
    # Here, because only readers need polars, and a GPU box may have none.
    from fedwatt.data import maps, readers
    from fedwatt.data.readers.sumo_output import geographic
    from fedwatt.data.store import write_fleet

    refuse_filled(out)
    terrain = maps.read_terrain([dem]) if dem is not None else None
    extract = maps.Extract(osm) if osm is not None else None
    if only_enriched and terrain is None and extract is None:
        raise SettingError("--only-enriched needs --dem or --osm, which do the enriching.")
    usual = readers.VED_CLEANING if kind in (Kind.VED, Kind.EVED) else readers.PLAIN_CLEANING
    cleaning = replace(
        usual,
        minimum_trips=usual.minimum_trips if minimum_trips is None else minimum_trips,
        minimum_seconds=minimum_seconds,
        minimum_metres=minimum_metres,
        maximum_gap_s=maximum_gap,
    )
    with import_progress() as report:
        vehicles: Iterator[Vehicle]
        if kind is Kind.SUMO:
            if len(paths) != 2:
                raise SettingError("sumo needs two files: the FCD output and the battery output.")
            position = geographic if geo else None
            vehicles = readers.import_sumo(*paths, position=position, cleaning=cleaning)
        elif kind is Kind.CSV:
            if mapping is None:
                raise SettingError(
                    "Plain files need --map, which says what their columns are. "
                    f"'fedwatt data map {paths[0]}' proposes one."
                )
            vehicles = readers.import_csv(paths, mapping, cleaning=cleaning, progress=report)
        else:
            reader = readers.import_ved if kind is Kind.VED else readers.import_eved
            chosen = tuple(part.strip() for part in powertrain.split(","))
            vehicles = reader(paths, powertrain=chosen, cleaning=cleaning, progress=report)
        enriched = None
        if terrain is not None or extract is not None:
            enriched = maps.EnrichedVehicles(
                vehicles, terrain=terrain, extract=extract, only_enriched=only_enriched
            )
        source = ", ".join(path.name for path in [*paths, *filter(None, (dem, osm))])
        write_fleet(
            out, vehicles if enriched is None else enriched, source=f"{kind.value}: {source}"
        )
    if isinstance(vehicles, readers.VehicleStream):
        say_account(vehicles.account, ("vehicles", "trips", "rows"))
        for name in vehicles.passed_over:
            console.print(f"Passed over: {name}", highlight=False)
    for sentence in enriched.sentences() if enriched is not None else ():
        console.print(sentence, highlight=False)
    say_made(out)


def map_(
    path: Annotated[Path, typer.Argument(help="A CSV or Parquet file.")],
    out: Annotated[Path | None, typer.Option(help="Write it here instead of showing it.")] = None,
) -> None:
    """Propose a mapping from a file's columns to fedwatt's channels, as TOML to check and edit."""
    from fedwatt.data.readers import propose_mapping

    text = propose_mapping(path)
    if out is None:
        console.print(text, highlight=False, soft_wrap=True)
    else:
        out.write_text(text, encoding="utf-8")
        console.print(f"{out} is a proposal: check its units and signs before you import with it.")
