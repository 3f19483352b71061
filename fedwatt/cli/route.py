"""`fedwatt route`: trips that have not begun, from their routes alone."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import console, ruled_table, write_page
from fedwatt.cli.options import Trust
from fedwatt.errors import SettingError

if TYPE_CHECKING:
    from fedwatt.edge.route_forecast import RoutePlan


def route(
    model: Annotated[
        Path,
        typer.Argument(help="Model file of 'fedwatt export --vehicle --routes', or a run folder."),
    ],
    routes: Annotated[
        list[Path],
        typer.Argument(
            metavar="ROUTE...",
            help="GPX, GeoJSON or CSV of points, or VEHICLE_FOLDER/TRIP; several are compared.",
        ),
    ],
    depart: Annotated[
        str | None, typer.Option(help="Departure, such as 2026-11-16T08:00, for times of arrival.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Outside temperature, °C; a recorded trip knows its own.")
    ] = None,
    charge: Annotated[str | None, typer.Option(help="Charge at the start, such as 62%.")] = None,
    capacity: Annotated[
        float | None, typer.Option(help="Usable capacity, kWh; the vehicle's own if it is known.")
    ] = None,
    vehicle: Annotated[
        Path | None, typer.Option(help="For a run folder: folder of the vehicle that is to drive.")
    ] = None,
    mass: Annotated[
        float | None, typer.Option(help="For a run folder: mass of a vehicle without trips, kg.")
    ] = None,
    consumption: Annotated[
        float | None, typer.Option(help="And its mean consumption, if its display shows it, Wh/km.")
    ] = None,
    kind: Annotated[str, typer.Option(help="Its class: passenger, truck or bus.")] = "passenger",
    html: Annotated[Path | None, typer.Option(help="Write a page of the routes.")] = None,
    trust: Trust = None,
) -> None:
    """Energy, duration and charge of routes before they are driven, each with 50 and 90 % bars.

    With a charge it is a range as well: how far it reaches along each route.
    """
    from fedwatt.edge.route_forecast import Plan, plan_routes
    from fedwatt.journeys.charge import usable_wh

    plan = Plan(
        depart=None if depart is None else _time(depart),
        temperature_c=temperature,
        charge=None if charge is None else parse_charge(charge),
        capacity_wh=None if capacity is None else usable_wh(capacity),
        mass_kg=mass,
        consumption=consumption,
        kind=kind,
        vehicle=vehicle,
    )
    with console.status("Looking along the way ..."):
        route_plan = plan_routes(model, routes, plan)
    _show(route_plan)
    if html is not None:
        from fedwatt.edge.route_page import render_routes

        write_page(html, render_routes(route_plan))


def _show(plan: "RoutePlan") -> None:
    """Print the alternatives side by side, with remarks."""
    facts = zip(*(planned.rows() for planned in plan.routes), strict=True)
    rows = [[cells[0][0], *(value for _, value in cells)] for cells in facts]
    console.print(ruled_table(plan.title, ["", *(planned.name for planned in plan.routes)], rows))
    for sentence in plan.remarks():
        console.print(sentence)


def parse_charge(text: str) -> float:
    """Return a state of charge from 0 to 1.

    >>> parse_charge("62%"), parse_charge("62")
    (0.62, 0.62)
    """
    plain = text.strip().removesuffix("%").strip()
    try:
        percent = float(plain)
    except ValueError:
        raise SettingError(f"--charge {text} is no number: write 62% for 62 percent.") from None
    if 0 < percent <= 1 and "%" not in text:
        raise SettingError(f"--charge {text} can be read in two ways: write {100 * percent:g}%.")
    return percent / 100


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise SettingError(
            f"--depart {text} is no time: write a date and a time, such as 2026-11-16T08:00."
        ) from None
