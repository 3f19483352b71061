"""`fedwatt route`: predict routes before they are driven."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import Json, console, print_json, ruled_table, write_page
from fedwatt.cli.data.shared import Kind, TerrainModel
from fedwatt.cli.options import Html, Trust, VehicleFolder
from fedwatt.errors import SettingError

if TYPE_CHECKING:
    from fedwatt.edge.route_forecast import RoutePlan


Routes = Annotated[
    list[Path],
    typer.Argument(
        metavar="ROUTE...",
        help="GPX, GeoJSON or CSV of points, or VEHICLE_FOLDER/TRIP; repeatable.",
    ),
]
AnyModel = Annotated[
    str,
    typer.Option(help="Use leaf-24, plug-in-hybrid, electric-car, a model file or a run."),
]
Temperature = Annotated[
    float | None, typer.Option(help="Set the outside temperature, °C. [default: as recorded]")
]
Soc = Annotated[str | None, typer.Option(help="Set the state of charge at the start, such as 62%.")]
Depart = Annotated[
    str | None, typer.Option(help="Set the time of departure, such as 2026-11-16T08:00.")
]
Capacity = Annotated[
    float | None, typer.Option(help="Set the usable capacity, kWh. [default: the model's]")
]
Consumption = Annotated[
    float | None,
    typer.Option(help="Set the recent mean consumption on the display, Wh/km."),
]
Mass = Annotated[float | None, typer.Option(help="Set the mass of the vehicle, kg.")]
Load = Annotated[float, typer.Option(help="Set the load beyond the driver, kg.")]


def route(
    routes: Routes,
    model: AnyModel,
    temperature: Temperature = None,
    soc: Soc = None,
    depart: Depart = None,
    capacity: Capacity = None,
    consumption: Consumption = None,
    mass: Mass = None,
    load: Load = 0.0,
    elevation: TerrainModel = None,
    vehicle: VehicleFolder = None,
    kind: Kind = "passenger",
    html: Html = None,
    as_json: Json = False,
    trust: Trust = None,
) -> None:
    """Predict a route: energy, duration and state of charge on arrival."""
    from fedwatt.edge.pretrained import route_model
    from fedwatt.edge.route_forecast import Departure, plan_routes
    from fedwatt.journeys.charge import usable_wh

    heights = None
    if elevation is not None:
        from fedwatt.telemetry.terrain_model import read_terrain_model

        heights = read_terrain_model([elevation]).elevation_m
    plan = Departure(
        depart=None if depart is None else _time(depart),
        temperature_c=temperature,
        soc=None if soc is None else parse_soc(soc),
        capacity_wh=None if capacity is None else usable_wh(capacity),
        load_kg=load,
        mass_kg=mass,
        consumption=consumption,
        kind=kind,
        vehicle=vehicle,
        elevation=heights,
    )
    with console.status("Predicting ..."):
        planned = plan_routes(route_model(model, plan), routes, plan)
    if as_json:
        routes_json = [
            {"route": planned_route.name, "answer": planned_route.answer()}
            | dict(planned_route.rows())
            for planned_route in planned.routes
        ]
        print_json({"routes": routes_json, "remarks": [*planned.remarks()]})
    else:
        _show(planned)
    if html is not None:
        from fedwatt.edge.route_page import render_routes

        write_page(html, render_routes(planned))


def _show(plan: "RoutePlan") -> None:
    """Print the answers, the alternatives side by side, and remarks."""
    for planned in plan.routes:
        prefix = f"{planned.name}: " if len(plan.routes) > 1 else ""
        console.print(f"{prefix}{planned.answer()}.", style="bold")
    facts = zip(*(planned.rows() for planned in plan.routes), strict=True)
    rows = [[cells[0][0], *(value for _, value in cells)] for cells in facts]
    console.print(ruled_table(plan.title, ["", *(planned.name for planned in plan.routes)], rows))
    for sentence in plan.remarks():
        console.print(sentence)


def parse_soc(text: str) -> float:
    """Return a state of charge from 0 to 1.

    >>> parse_soc("62%"), parse_soc("62")
    (0.62, 0.62)
    """
    plain = text.strip().removesuffix("%").strip()
    try:
        percent = float(plain)
    except ValueError:
        raise SettingError(f"--soc {text} is no number: write 62% for 62 percent.") from None
    if 0 < percent <= 1 and "%" not in text:
        raise SettingError(f"--soc {text} can be read in two ways: write {100 * percent:g}%.")
    return percent / 100


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise SettingError(
            f"--depart {text} is no time: write a date and a time, such as 2026-11-16T08:00."
        ) from None
